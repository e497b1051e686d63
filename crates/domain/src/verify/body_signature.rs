//! Senders that put signature or credential into the body: Mailgun, Google Ads, Microsoft Graph.
//!
//! A field that occurs twice is rejected: two parsers could use different values.

use std::time::Duration;

use aws_lc_rs::hmac;
use jiff::Timestamp;
use serde::Deserialize;

use super::Verified;
use super::digest::{Algorithm, Encoding, constant_time_eq};
use super::error::{MalformedSignature, VerifyError};
use super::freshness::TimestampUnit;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};
use super::text::form_pairs;
use crate::payload::multipart_pairs;

const TOLERANCE: Duration = Duration::from_secs(300);
const UNIT: TimestampUnit = TimestampUnit::Seconds;

/// Mailgun: an HMAC over a timestamp and a token. The event is not signed, so the caller must remember
/// [`Verified::replay_token`] for the length of the tolerance.
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
            let problem = "it must be a form with timestamp, token and signature, and without files";
            let content_type = request.header("content-type").and_then(|value| std::str::from_utf8(value).ok());
            let pairs = multipart_pairs(request.body, content_type.unwrap_or_default());
            let pairs = pairs.map_err(|_| VerifyError::BodyMalformed { problem })?;
            MailgunSignature::from_pairs(pairs.into_iter().map(|(name, value)| (name.into_bytes(), value)))?
        } else {
            MailgunSignature::from_json(request.body)?
        };
        let location = |field: &str| format!("the body's signature.{field}");
        let missing = || VerifyError::SignatureMissing { location: location("signature") };
        let signature = sent.signature.filter(|text| !text.is_empty()).ok_or_else(missing)?;
        let malformed = |problem| VerifyError::malformed(location("signature"), problem);
        let candidate = Encoding::Hex.decode(signature.as_bytes()).map_err(malformed)?;
        if candidate.bytes().len() != Algorithm::Sha256.digest_bytes() {
            return Err(malformed(MalformedSignature::Length));
        }
        let token = sent.token.filter(|text| !text.is_empty());
        let token = token.ok_or_else(|| VerifyError::SignatureMissing { location: location("token") })?;
        let timestamp = match sent.timestamp {
            Some(TextOrNumber::Text(text)) => text,
            Some(TextOrNumber::Number(number)) => number.to_string(),
            None => return Err(VerifyError::TimestampMissing { location: location("timestamp") }),
        };
        let at = UNIT.parse(timestamp.as_bytes());
        let at = at.ok_or_else(|| VerifyError::TimestampMalformed { location: location("timestamp") })?;
        UNIT.check(at, now, Some(self.tolerance))?;
        let secret = self.keys.accept(now, VerifyError::SignatureMismatch, |key| {
            constant_time_eq(mailgun_tag(key, &timestamp, &token).as_ref(), candidate.bytes())
        })?;
        Ok(Verified { replay_token: Some(token), ..Verified::signed_by(secret, Some(at)) })
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
        let problem = "it must be JSON with timestamp, token and signature at signature";
        let body: MailgunBody = serde_json::from_slice(body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        Ok(body.signature.unwrap_or_default())
    }

    /// An inbound route: three form fields besides those of the message.
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

/// Google Ads lead forms: `google_key`, which must be removed before the body is stored.
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
        let problem = "it must be JSON with a text at google_key";
        let body: GoogleBody =
            serde_json::from_slice(request.body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        let location = || "the body's google_key".to_owned();
        let sent = body.google_key.filter(|key| !key.is_empty());
        let sent = sent.ok_or_else(|| VerifyError::CredentialsMissing { location: location() })?;
        Ok(Verified::signed_by(accept(&self.keys, now, &sent, location())?, None))
    }
}

/// Microsoft Graph: `clientState` in each of several notifications.
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

    /// Each notification must carry a configured secret; the name of the first one's is returned.
    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let problem = "it must be JSON with a list at value, and in it a text at clientState";
        let body: GraphBody =
            serde_json::from_slice(request.body).map_err(|_| VerifyError::BodyMalformed { problem })?;
        let mut first = None;
        for (index, notification) in body.value.iter().enumerate() {
            let location = || format!("the body's value[{index}].clientState");
            let sent = notification.client_state.as_deref().filter(|state| !state.is_empty());
            let sent = sent.ok_or_else(|| VerifyError::CredentialsMissing { location: location() })?;
            let secret = accept(&self.keys, now, sent, location())?;
            first = first.or(Some(secret));
        }
        let empty = || VerifyError::BodyMalformed { problem: "it contains no notification" };
        Ok(Verified::signed_by(first.ok_or_else(empty)?, None))
    }
}

fn plain(secrets: &[Secret]) -> Result<Keyring<SecretValue>, SettingsProblem> {
    Keyring::build(secrets, |secret| Ok(secret.value.clone()))
}

fn accept<'k>(
    keys: &'k Keyring<SecretValue>,
    now: Timestamp,
    sent: &str,
    location: String,
) -> Result<&'k str, VerifyError> {
    keys.accept(now, VerifyError::CredentialsMismatch { location }, |key| {
        constant_time_eq(sent.as_bytes(), key.expose().as_bytes())
    })
}
