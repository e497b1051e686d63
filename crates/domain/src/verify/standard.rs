//! Standard Webhooks and Svix: `{id}.{timestamp}.{body}`, by HMAC (`v1`) or Ed25519 (`v1a`).

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, ParsedPublicKey};
use data_encoding::{BASE64, BASE64_NOPAD};
use jiff::Timestamp;

use super::Verified;
use super::digest::{Algorithm, Candidates, Encoding};
use super::error::{MalformedSignature, VerifyError};
use super::freshness::TimestampUnit;
use super::hmac::{fields, header_location};
use super::hmac_settings::{Assign, SecretEncoding, Separator};
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};
use super::sign::SignProblem;
use super::verifier::signed_header;

const TOLERANCE: Duration = Duration::from_secs(300);
const UNIT: TimestampUnit = TimestampUnit::Seconds;

/// Names of the three headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

impl Family {
    pub(super) fn names(&self) -> [&'static str; 3] {
        [self.id, self.timestamp, self.signature]
    }

    /// Headers that the signature covers.
    pub(super) fn signed(&self) -> [&'static str; 2] {
        [self.id, self.timestamp]
    }
}

pub(super) const STANDARD: Family =
    Family { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
pub(super) const SVIX: Family = Family { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

/// Verifies either header family; signs with the first.
#[derive(Clone, Debug)]
pub(super) struct StandardCheck {
    families: [Family; 2],
    tolerance: Duration,
    keys: Keyring<StandardKey>,
    signing_key: Option<Arc<Ed25519KeyPair>>,
}

#[derive(Clone)]
enum StandardKey {
    Hmac(Box<hmac::Key>),
    Ed25519 { public: ParsedPublicKey, pair: Option<Arc<Ed25519KeyPair>> },
}

impl StandardKey {
    fn read(secret: &Secret) -> Result<StandardKey, SettingsProblem> {
        let text = secret.value.expose();
        let unreadable = |expected| SettingsProblem::PublicKey { secret: secret.name.clone(), expected };
        if let Some(public) = text.strip_prefix("whpk_") {
            let expected = "whpk_ and the base64 of 32 bytes";
            let bytes = base64(public).filter(|bytes| bytes.len() == 32);
            let public = bytes.and_then(|bytes| ParsedPublicKey::new(&ED25519, bytes).ok());
            let public = public.ok_or_else(|| unreadable(expected))?;
            return Ok(StandardKey::Ed25519 { public, pair: None });
        }
        if text.starts_with("whsk_") {
            let pair = read_pair(&secret.value)?;
            let public = ParsedPublicKey::new(&ED25519, pair.public_key().as_ref());
            let public = public.map_err(|_| SettingsProblem::SigningKey(PRIVATE_KEY))?;
            return Ok(StandardKey::Ed25519 { public, pair: Some(pair) });
        }
        let key = SecretEncoding::Base64.decode(secret, "whsec_")?;
        Ok(StandardKey::Hmac(Box::new(Algorithm::Sha256.key(&key))))
    }
}

const PRIVATE_KEY: &str = "whsk_ and the base64 of 64 bytes, the seed and its public key";

fn read_pair(value: &SecretValue) -> Result<Arc<Ed25519KeyPair>, SettingsProblem> {
    let bytes = value.expose().strip_prefix("whsk_").and_then(base64);
    let pair = bytes.and_then(|bytes| {
        let (seed, public) = bytes.split_at_checked(32)?;
        Ed25519KeyPair::from_seed_and_public_key(seed, public).ok()
    });
    pair.map(Arc::new).ok_or(SettingsProblem::SigningKey(PRIVATE_KEY))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok()
}

impl StandardCheck {
    /// The headers that it signs with.
    pub(super) fn headers(&self) -> [&'static str; 3] {
        let [own, _] = &self.families;
        [own.signature, own.timestamp, own.id]
    }

    pub(super) fn new(
        families: [Family; 2],
        secrets: &[Secret],
        tolerance: Option<Duration>,
        signing_key: Option<&SecretValue>,
    ) -> Result<StandardCheck, SettingsProblem> {
        Ok(StandardCheck {
            families,
            tolerance: tolerance.unwrap_or(TOLERANCE),
            keys: Keyring::build(secrets, StandardKey::read)?,
            signing_key: signing_key.map(read_pair).transpose()?,
        })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let family = self.family(request);
        let missing = |name| VerifyError::SignatureMissing { location: header_location(name) };
        let value = request.header(family.signature).ok_or_else(|| missing(family.signature))?;
        let id = request.header(family.id);
        let id = id.ok_or_else(|| VerifyError::IdMissing { location: header_location(family.id) })?;
        // A dot in the id would make the boundary between id and timestamp ambiguous.
        if id.contains(&b'.') {
            return Err(VerifyError::IdMalformed { location: header_location(family.id) });
        }
        let location = || header_location(family.timestamp);
        let timestamp = request.header(family.timestamp);
        let timestamp = timestamp.ok_or_else(|| VerifyError::TimestampMissing { location: location() })?;
        let at = UNIT.parse(timestamp);
        let at = at.ok_or_else(|| VerifyError::TimestampMalformed { location: location() })?;
        UNIT.check(at, now, Some(self.tolerance))?;

        let listed = |version| fields(value, Separator::Space, Assign::Comma, version);
        let v1 = Candidates::decode(Encoding::Base64, 32, listed("v1"));
        let v1a = Candidates::decode(Encoding::Base64, 64, listed("v1a"));
        if let (Err(hmac), Err(ed25519)) = (&v1, &v1a) {
            let problem = if *hmac == MalformedSignature::NoKnownVersion { ed25519 } else { hmac };
            return Err(VerifyError::malformed(header_location(family.signature), *problem));
        }
        let mut joined = None;
        let secret = self.keys.accept(now, VerifyError::SignatureMismatch, |key| match key {
            StandardKey::Hmac(key) => {
                v1.as_ref().is_ok_and(|candidates| candidates.contain(tag(key, id, timestamp, request.body).as_ref()))
            }
            StandardKey::Ed25519 { public, .. } => v1a.as_ref().is_ok_and(|candidates| {
                let message = joined.get_or_insert_with(|| join(id, timestamp, request.body));
                candidates.iter().any(|signature| public.verify_sig(message, signature).is_ok())
            }),
        })?;
        let signed_headers = family.signed().into_iter().zip([id, timestamp]);
        let other = self.families.iter().filter(|other| other.id != family.id);
        Ok(Verified {
            signed_headers: signed_headers.filter_map(|(name, value)| signed_header(name, value)).collect(),
            unused_headers: other.flat_map(Family::names).collect(),
            ..Verified::signed_by(secret, Some(at))
        })
    }

    /// The first complete family; otherwise the one with a signature.
    fn family(&self, request: &Request<'_>) -> Family {
        let whole = |family: &&Family| family.names().iter().all(|name| request.header(name).is_some());
        let signed = |family: &&Family| request.header(family.signature).is_some();
        let families = || self.families.iter();
        *families().find(whole).or_else(|| families().find(signed)).unwrap_or(&self.families[0])
    }

    /// The three headers as set by the sender: one signature for each secret that has not expired, so that a receiver may know
    /// either of two during a rotation.
    pub(super) fn sign(
        &self,
        id: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<[(&'static str, String); 3], SignProblem> {
        let timestamp = UNIT.write(now);
        let ed25519 = |pair: &Ed25519KeyPair| {
            let message = join(id.as_bytes(), timestamp.as_bytes(), body);
            format!("v1a,{}", BASE64.encode(pair.sign(&message).as_ref()))
        };
        let signature = |key: &StandardKey| match key {
            StandardKey::Hmac(key) => {
                let tag = tag(key, id.as_bytes(), timestamp.as_bytes(), body);
                Some(format!("v1,{}", BASE64.encode(tag.as_ref())))
            }
            StandardKey::Ed25519 { pair, .. } => {
                let pair = pair.as_ref().or(self.signing_key.as_ref());
                pair.map(|pair| ed25519(pair))
            }
        };
        self.keys.signing(now).ok_or(SignProblem::NoSecret)?;
        let mut signatures: Vec<String> = self.keys.accepted(now).filter_map(signature).collect();
        signatures.dedup();
        if signatures.is_empty() {
            return Err(SignProblem::SigningKeyMissing);
        }
        let signature = signatures.join(" ");
        let family = self.families[0];
        Ok([(family.id, id.to_owned()), (family.timestamp, timestamp), (family.signature, signature)])
    }
}

fn tag(key: &hmac::Key, id: &[u8], timestamp: &[u8], body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in [id, b".", timestamp, b".", body] {
        context.update(part);
    }
    context.sign()
}

fn join(id: &[u8], timestamp: &[u8], body: &[u8]) -> Vec<u8> {
    [id, timestamp, body].join(&b'.')
}
