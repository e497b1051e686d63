//! HubSpot: SHA-256 digests that start with the secret (v1, v2), and an HMAC (v3).

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use jiff::Timestamp;

use super::Verified;
use super::digest::{Algorithm, Encoding, constant_time_eq};
use super::error::{MalformedSignature, VerifyError};
use super::freshness::TimestampUnit;
use super::hmac::header_location;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret};
use super::text::escaped_byte;
use super::url::PublicUrl;

const TOLERANCE: Duration = Duration::from_secs(300);
const UNIT: TimestampUnit = TimestampUnit::Milliseconds;
const SIGNATURE: &str = "x-hubspot-signature";
const VERSION: &str = "x-hubspot-signature-version";
const SIGNATURE_V3: &str = "x-hubspot-signature-v3";
const TIMESTAMP: &str = "x-hubspot-request-timestamp";
/// Headers of all versions.
pub(super) const HEADERS: [&str; 4] = [SIGNATURE, VERSION, SIGNATURE_V3, TIMESTAMP];

/// Required signature version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HubspotVersion {
    /// v3 if the request carries it, otherwise the version it states.
    #[default]
    Auto,
    /// Digest of secret and body.
    V1,
    /// Digest of secret, method, URL and body.
    V2,
    /// HMAC of method, URL, body and timestamp.
    V3,
}

#[derive(Clone, Debug)]
pub(super) struct HubspotCheck {
    version: HubspotVersion,
    url: Option<PublicUrl>,
    tolerance: Duration,
    keys: Keyring<HubspotKey>,
}

#[derive(Clone)]
struct HubspotKey {
    hmac: hmac::Key,
    /// SHA-256 context that already includes the secret.
    started: digest::Context,
}

/// Version that a request is verified with.
#[derive(Clone, Copy)]
enum SignatureVersion {
    V1,
    V2,
    V3,
}

impl HubspotCheck {
    /// Headers of the required version; of v3 for `Auto`.
    pub(super) fn headers(&self) -> &'static [&'static str] {
        match self.version {
            HubspotVersion::V1 | HubspotVersion::V2 => &[SIGNATURE, VERSION],
            HubspotVersion::V3 | HubspotVersion::Auto => &[SIGNATURE_V3, TIMESTAMP],
        }
    }

    pub(super) fn new(
        version: HubspotVersion,
        secrets: &[Secret],
        tolerance: Option<Duration>,
        url: Option<PublicUrl>,
    ) -> Result<HubspotCheck, SettingsProblem> {
        if url.is_none() && version != HubspotVersion::V1 {
            return Err(SettingsProblem::PublicUrlMissing);
        }
        let timed = matches!(version, HubspotVersion::Auto | HubspotVersion::V3);
        if tolerance.is_some() && !timed {
            return Err(SettingsProblem::ToleranceWithoutTimestamp);
        }
        let keys = Keyring::build(secrets, |secret| {
            let bytes = secret.value.expose().as_bytes();
            let mut started = digest::Context::new(&digest::SHA256);
            started.update(bytes);
            Ok::<_, SettingsProblem>(HubspotKey { hmac: Algorithm::Sha256.key(bytes), started })
        })?;
        Ok(HubspotCheck { version, url, tolerance: tolerance.unwrap_or(TOLERANCE), keys })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let version = self.select_version(request)?;
        let (name, encoding) = match version {
            SignatureVersion::V3 => (SIGNATURE_V3, Encoding::Base64),
            SignatureVersion::V1 | SignatureVersion::V2 => (SIGNATURE, Encoding::Hex),
        };
        let value = request.header(name);
        let value = value.ok_or_else(|| VerifyError::SignatureMissing { location: header_location(name) })?;
        let malformed = |problem| VerifyError::malformed(header_location(name), problem);
        let candidate = encoding.decode(value).map_err(malformed)?;
        if candidate.bytes().len() != Algorithm::Sha256.digest_bytes() {
            return Err(malformed(MalformedSignature::Length));
        }
        let signed_at = match version {
            SignatureVersion::V3 => Some(self.timestamp_of(request, now)?),
            SignatureVersion::V1 | SignatureVersion::V2 => None,
        };
        let url = match version {
            SignatureVersion::V1 => String::new(),
            _ => self.url.as_ref().map_or_else(String::new, |url| url.of_request(request).into()),
        };
        let timestamp = signed_at.map_or(&b""[..], |(text, _)| text);
        let signed = Signed { method: request.method, url: &url, body: request.body, timestamp };
        let secret = self
            .keys
            .accept(now, VerifyError::SignatureMismatch, |key| signed.matches(version, key, candidate.bytes()))?;
        Ok(Verified::signed_by(secret, signed_at.map(|(_, at)| at)))
    }

    fn select_version(&self, request: &Request<'_>) -> Result<SignatureVersion, VerifyError> {
        let unknown = || VerifyError::malformed(header_location(VERSION), MalformedSignature::NoKnownVersion);
        let stated = match request.header(VERSION) {
            Some(b"v1") => Some(SignatureVersion::V1),
            Some(b"v2") => Some(SignatureVersion::V2),
            Some(_) => None,
            // Older v1 deliveries state no version.
            None => Some(if self.version == HubspotVersion::V2 { SignatureVersion::V2 } else { SignatureVersion::V1 }),
        };
        match (self.version, stated) {
            (HubspotVersion::V3, _) => Ok(SignatureVersion::V3),
            (HubspotVersion::Auto, _) if request.header(SIGNATURE_V3).is_some() => Ok(SignatureVersion::V3),
            (HubspotVersion::Auto | HubspotVersion::V1, Some(SignatureVersion::V1)) => Ok(SignatureVersion::V1),
            (HubspotVersion::Auto | HubspotVersion::V2, Some(SignatureVersion::V2)) => Ok(SignatureVersion::V2),
            _ => Err(unknown()),
        }
    }

    fn timestamp_of<'a>(&self, request: &Request<'a>, now: Timestamp) -> Result<(&'a [u8], Timestamp), VerifyError> {
        let location = || header_location(TIMESTAMP);
        let text = request.header(TIMESTAMP);
        let text = text.ok_or_else(|| VerifyError::TimestampMissing { location: location() })?;
        let at = UNIT.parse(text).ok_or_else(|| VerifyError::TimestampMalformed { location: location() })?;
        UNIT.check(at, now, Some(self.tolerance))?;
        Ok((text, at))
    }

    /// The headers as set by HubSpot; `Auto` signs with v3.
    pub(super) fn sign(&self, method: &str, body: &[u8], now: Timestamp) -> Option<Vec<(&'static str, String)>> {
        let key = self.keys.signing(now)?;
        let url = self.url.as_ref().map_or("", PublicUrl::text);
        let written = UNIT.write(now);
        let version = match self.version {
            HubspotVersion::V1 => SignatureVersion::V1,
            HubspotVersion::V2 => SignatureVersion::V2,
            HubspotVersion::V3 | HubspotVersion::Auto => SignatureVersion::V3,
        };
        let signed = Signed { method, url, body, timestamp: written.as_bytes() };
        let plain = |version: &str| {
            let digest = if version == "v1" { signed.v1(key) } else { signed.v2(key) };
            let signature = Encoding::Hex.encode(digest.as_ref());
            vec![(SIGNATURE, signature), (VERSION, version.to_owned())]
        };
        Some(match version {
            SignatureVersion::V1 => plain("v1"),
            SignatureVersion::V2 => plain("v2"),
            SignatureVersion::V3 => {
                let signature = Encoding::Base64.encode(signed.v3(key).as_ref());
                vec![(SIGNATURE_V3, signature), (TIMESTAMP, written)]
            }
        })
    }
}

/// Input of a signature.
struct Signed<'a> {
    method: &'a str,
    url: &'a str,
    body: &'a [u8],
    timestamp: &'a [u8],
}

impl Signed<'_> {
    fn matches(&self, version: SignatureVersion, key: &HubspotKey, candidate: &[u8]) -> bool {
        match version {
            SignatureVersion::V1 => constant_time_eq(self.v1(key).as_ref(), candidate),
            SignatureVersion::V2 => constant_time_eq(self.v2(key).as_ref(), candidate),
            SignatureVersion::V3 => constant_time_eq(self.v3(key).as_ref(), candidate),
        }
    }

    fn v1(&self, key: &HubspotKey) -> digest::Digest {
        let mut context = key.started.clone();
        context.update(self.body);
        context.finish()
    }

    fn v2(&self, key: &HubspotKey) -> digest::Digest {
        let mut context = key.started.clone();
        for part in [self.method.as_bytes(), self.url.as_bytes(), self.body] {
            context.update(part);
        }
        context.finish()
    }

    fn v3(&self, key: &HubspotKey) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&key.hmac);
        let url = decode_url(self.url);
        for part in [self.method.as_bytes(), &url, self.body, self.timestamp] {
            context.update(part);
        }
        context.sign()
    }
}

/// Reverses only the escapes that HubSpot reverses before signing with v3.
fn decode_url(url: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(url.len());
    let mut rest = url.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = if byte == b'%' { escaped_byte(after) } else { None };
        match escaped.filter(|byte| b":/?@!$'()*,;".contains(byte)) {
            Some(escaped) => {
                decoded.push(escaped);
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_escapes_are_reversed() {
        let url = "https://a.b/in%2Fx?q=%3A%2f%3F%40%21%24%27%28%29%2A%2C%3B&k=%20%26%3D%25%2B%zz%4";
        let expected = "https://a.b/in/x?q=:/?@!$'()*,;&k=%20%26%3D%25%2B%zz%4";
        assert_eq!(String::from_utf8(decode_url(url)).unwrap(), expected);
    }
}
