//! Senders that put their proof into the body: Mailgun, Google Ads, Microsoft Graph.
//!
//! A field that occurs twice is refused: two readers could each take another one of them.

use std::time::Duration;

use aws_lc_rs::hmac;
use jiff::Timestamp;
use serde::Deserialize;

use super::Verified;
use super::digest::{Algorithm, Encoding, same};
use super::error::{MalformedSignature, VerifyError};
use super::freshness::TimestampUnit;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};
use super::text::form_pairs;
use crate::payload::multipart_pairs;

const TOLERANCE: Duration = Duration::from_secs(300);
const UNIT: TimestampUnit = TimestampUnit::Seconds;

/// Mailgun: an HMAC over a timestamp and a token. The event itself is not signed, so whoever
/// verifies has to remember [`Verified::replay_token`] for as long as the window is open.
#[derive(Clone, Debug)]
pub(super) struct MailgunCheck {
    tolerance: Duration,
    keys: Keyring<hmac::Key>,
}

#[derive(Deserialize)]
struct MailgunBody {
    signature: Option<MailgunSignature>,
}

#[derive(Default, Deserialize)]
struct MailgunSignature {
    timestamp: Option<TextOrNumber>,
    token: Option<String>,
    signature: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(u64),
}

impl MailgunCheck {
    pub(super) fn new(secrets: &[Secret], tolerance: Option<Duration>) -> Result<MailgunCheck, SettingsProblem> {
        let keys = Keyring::build(secrets, |secret| {
            Ok::<_, SettingsProblem>(Algorithm::Sha256.key(secret.value.expose().as_bytes()))
        })?;
        Ok(MailgunCheck { tolerance: tolerance.unwrap_or(TOLERANCE), keys })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let sent = if request.is_content_type("application/x-www-form-urlencoded") {
            MailgunSignature::from_pairs(form_pairs(request.body))?
        } else if request.is_content_type("multipart/form-data") {
            let problem = "it has to be a form with timestamp, token and signature, and without files";
            let content_type = request.header("content-type").and_then(|value| std::str::from_utf8(value).ok());
            let pairs = multipart_pairs(request.body, content_type.unwrap_or_default());
            let pairs = pairs.map_err(|_| VerifyError::BodyMalformed { problem })?;
            MailgunSignature::from_pairs(pairs.into_iter().map(|(name, value)| (name.into_bytes(), value)))?
        } else {
            MailgunSignature::from_json(request.body)?
        };
        let place = |field: &str| format!("the body's signature.{field}");
        let missing = || VerifyError::SignatureMissing { place: place("signature") };
        let signature = sent.signature.filter(|text| !text.is_empty()).ok_or_else(missing)?;
        let malformed = |problem| VerifyError::malformed(place("signature"), problem);
        let candidate = Encoding::Hex.decode(signature.as_bytes()).map_err(malformed)?;
        if candidate.bytes().len() != Algorithm::Sha256.digest_bytes() {
            return Err(malformed(MalformedSignature::Length));
        }
        let token = sent.token.filter(|text| !text.is_empty());
        let token = token.ok_or_else(|| VerifyError::SignatureMissing { place: place("token") })?;
        let timestamp = match sent.timestamp {
            Some(TextOrNumber::Text(text)) => text,
            Some(TextOrNumber::Number(number)) => number.to_string(),
            None => return Err(VerifyError::TimestampMissing { place: place("timestamp") }),
        };
        let at = UNIT.parse(timestamp.as_bytes());
        let at = at.ok_or_else(|| VerifyError::TimestampMalformed { place: place("timestamp") })?;
        UNIT.check(at, now, Some(self.tolerance))?;
        let secret = self.keys.admit(now, VerifyError::SignatureMismatch, |key| {
            same(mailgun_tag(key, &timestamp, &token).as_ref(), candidate.bytes())
        })?;
        Ok(Verified { replay_token: Some(token), ..Verified::by(secret, Some(at)) })
    }

    /// Timestamp and signature for this token.
    pub(super) fn sign(&self, token: &str, now: Timestamp) -> Option<(String, String)> {
        let key = self.keys.signing(now)?;
        let timestamp = UNIT.write(now);
        let signature = Encoding::Hex.encode(mailgun_tag(key, &timestamp, token).as_ref());
        Some((timestamp, signature))
    }
}

fn mailgun_tag(key: &hmac::Key, timestamp: &str, token: &str) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(timestamp.as_bytes());
    context.update(token.as_bytes());
    context.sign()
}

impl MailgunSignature {
    /// A webhook: an object at `signature`.
    fn from_json(body: &[u8]) -> Result<MailgunSignature, VerifyError> {
        let problem = "it has to be JSON with timestamp, token and signature at signature";
        let body: MailgunBody = serde_json::from_slice(body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        Ok(body.signature.unwrap_or_default())
    }

    /// An inbound route: three fields beside the message's own.
    fn from_pairs(
        pairs: impl Iterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>,
    ) -> Result<MailgunSignature, VerifyError> {
        let mut sent = MailgunSignature::default();
        for (name, value) in pairs {
            let text = || String::from_utf8_lossy(value.as_ref()).into_owned();
            let twice = match name.as_ref() {
                b"timestamp" => sent.timestamp.replace(TextOrNumber::Text(text())).is_some(),
                b"token" => sent.token.replace(text()).is_some(),
                b"signature" => sent.signature.replace(text()).is_some(),
                _ => false,
            };
            if twice {
                return Err(VerifyError::BodyMalformed { problem: "a signature field occurs twice" });
            }
        }
        Ok(sent)
    }
}

/// Google Ads lead forms: `google_key`, which has to be removed before the body is stored.
#[derive(Clone, Debug)]
pub(super) struct GoogleCheck {
    pub(super) keys: Keyring<SecretValue>,
}

#[derive(Deserialize)]
struct GoogleBody {
    google_key: Option<String>,
}

impl GoogleCheck {
    pub(super) fn new(secrets: &[Secret]) -> Result<GoogleCheck, SettingsProblem> {
        Ok(GoogleCheck { keys: plain(secrets)? })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let problem = "it has to be JSON with a text at google_key";
        let body: GoogleBody =
            serde_json::from_slice(request.body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        let place = || "the body's google_key".to_owned();
        let sent = body.google_key.filter(|key| !key.is_empty());
        let sent = sent.ok_or_else(|| VerifyError::CredentialsMissing { place: place() })?;
        Ok(Verified::by(admit(&self.keys, now, &sent, place())?, None))
    }
}

/// Microsoft Graph: `clientState` in each notification, of which one request may carry several.
#[derive(Clone, Debug)]
pub(super) struct GraphCheck {
    pub(super) keys: Keyring<SecretValue>,
}

#[derive(Deserialize)]
struct GraphBody {
    value: Vec<GraphNotification>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphNotification {
    client_state: Option<String>,
}

impl GraphCheck {
    pub(super) fn new(secrets: &[Secret]) -> Result<GraphCheck, SettingsProblem> {
        Ok(GraphCheck { keys: plain(secrets)? })
    }

    /// Each notification has to carry a configured secret; the first one's is reported.
    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let problem = "it has to be JSON with a list at value, and in it a text at clientState";
        let body: GraphBody =
            serde_json::from_slice(request.body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        let mut first = None;
        for (index, notification) in body.value.iter().enumerate() {
            let place = || format!("the body's value[{index}].clientState");
            let sent = notification.client_state.as_deref().filter(|state| !state.is_empty());
            let sent = sent.ok_or_else(|| VerifyError::CredentialsMissing { place: place() })?;
            let secret = admit(&self.keys, now, sent, place())?;
            first = first.or(Some(secret));
        }
        let empty = || VerifyError::BodyMalformed { problem: "it holds no notification" };
        Ok(Verified::by(first.ok_or_else(empty)?, None))
    }
}

fn plain(secrets: &[Secret]) -> Result<Keyring<SecretValue>, SettingsProblem> {
    Keyring::build(secrets, |secret| Ok(secret.value.clone()))
}

fn admit<'k>(
    keys: &'k Keyring<SecretValue>,
    now: Timestamp,
    sent: &str,
    place: String,
) -> Result<&'k str, VerifyError> {
    keys.admit(now, VerifyError::CredentialsMismatch { place }, |key| same(sent.as_bytes(), key.expose().as_bytes()))
}
