//! SendGrid's event webhook: ECDSA P-256 over `{timestamp}{body}`.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, ParsedPublicKey};
use data_encoding::{BASE64, BASE64_NOPAD};
use jiff::Timestamp;

use super::Verified;
use super::digest::Encoding;
use super::error::VerifyError;
use super::freshness::TimestampUnit;
use super::hmac::header_location;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};
use super::sign::SignProblem;

pub(super) const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
pub(super) const TIMESTAMP: &str = "x-twilio-email-event-webhook-timestamp";
const UNIT: TimestampUnit = TimestampUnit::Seconds;

/// SendGrid publishes no tolerance, so there is no default.
#[derive(Clone, Debug)]
pub(super) struct SendgridCheck {
    tolerance: Option<Duration>,
    keys: Keyring<ParsedPublicKey>,
    signing_key: Option<Arc<EcdsaKeyPair>>,
}

impl SendgridCheck {
    pub(super) fn new(
        secrets: &[Secret],
        tolerance: Option<Duration>,
        signing_key: Option<&SecretValue>,
    ) -> Result<SendgridCheck, SettingsProblem> {
        let keys = Keyring::build(secrets, |secret| {
            let bytes = base64(secret.value.expose());
            let key = bytes.and_then(|der| ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, der).ok());
            key.ok_or_else(|| SettingsProblem::PublicKey {
                secret: secret.name.clone(),
                expected: "the base64 of a P-256 key in DER, on one line and without BEGIN and END",
            })
        })?;
        Ok(SendgridCheck { tolerance, keys, signing_key: signing_key.map(read_pair).transpose()? })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let location = || header_location(SIGNATURE);
        let value = request.header(SIGNATURE);
        let value = value.ok_or_else(|| VerifyError::SignatureMissing { location: location() })?;
        let signature = Encoding::Base64.decode(value);
        let signature = signature.map_err(|problem| VerifyError::malformed(location(), problem))?;

        let location = || header_location(TIMESTAMP);
        let timestamp = request.header(TIMESTAMP);
        let timestamp = timestamp.ok_or_else(|| VerifyError::TimestampMissing { location: location() })?;
        let at = UNIT.parse(timestamp);
        let at = at.ok_or_else(|| VerifyError::TimestampMalformed { location: location() })?;
        UNIT.check(at, now, self.tolerance)?;

        let mut context = digest::Context::new(&digest::SHA256);
        context.update(timestamp);
        context.update(request.body);
        let digest = context.finish();
        let secret = self.keys.accept(now, VerifyError::SignatureMismatch, |key| {
            key.verify_digest_sig(&digest, signature.bytes()).is_ok()
        })?;
        Ok(Verified::signed_by(secret, Some(at)))
    }

    /// The two headers. ECDSA signatures are randomized: each call gives another one.
    pub(super) fn sign(&self, body: &[u8], now: Timestamp) -> Result<[(&'static str, String); 2], SignProblem> {
        let pair = self.signing_key.as_ref().ok_or(SignProblem::SigningKeyMissing)?;
        let timestamp = UNIT.write(now);
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(timestamp.as_bytes());
        context.update(body);
        let signature = pair.sign_digest(&context.finish());
        let signature = signature.expect("a SHA-256 digest can be signed with a P-256 key");
        Ok([(SIGNATURE, BASE64.encode(signature.as_ref())), (TIMESTAMP, timestamp)])
    }
}

fn read_pair(value: &SecretValue) -> Result<Arc<EcdsaKeyPair>, SettingsProblem> {
    let der = base64(value.expose());
    let pair = der.and_then(|der| EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &der).ok());
    pair.map(Arc::new).ok_or(SettingsProblem::SigningKey(
        "the base64 of a P-256 private key in DER, on one line and without BEGIN and END",
    ))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok()
}
