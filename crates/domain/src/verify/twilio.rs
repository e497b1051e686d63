//! Twilio: HMAC-SHA1 over the public URL and either the sorted form parameters, or a body digest in the URL.

use std::borrow::Cow;

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use jiff::Timestamp;

use super::Verified;
use super::digest::{Algorithm, Candidates, Encoding, constant_time_eq};
use super::error::VerifyError;
use super::hmac::header_location;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret};
use super::text::{form_pairs, percent_encode};
use super::url::{PublicUrl, split_scheme};

pub(super) const SIGNATURE: &str = "x-twilio-signature";
const BODY_DIGEST: &str = "bodySHA256";

#[derive(Clone, Debug)]
pub(super) struct TwilioCheck {
    url: PublicUrl,
    keys: Keyring<hmac::Key>,
}

type Parameters<'a> = Vec<(Cow<'a, [u8]>, Cow<'a, [u8]>)>;

impl TwilioCheck {
    pub(super) fn new(secrets: &[Secret], url: Option<PublicUrl>) -> Result<TwilioCheck, SettingsProblem> {
        let url = url.ok_or(SettingsProblem::PublicUrlMissing)?;
        let keys = Keyring::build(secrets, |secret| {
            Ok::<_, SettingsProblem>(Algorithm::Sha1.key(secret.value.expose().as_bytes()))
        })?;
        Ok(TwilioCheck { url, keys })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let value = request.header(SIGNATURE);
        let value = value.ok_or_else(|| VerifyError::SignatureMissing { location: header_location(SIGNATURE) })?;
        let bytes = Algorithm::Sha1.digest_bytes();
        let candidates = Candidates::decode(Encoding::Base64, bytes, std::iter::once(value))
            .map_err(|problem| VerifyError::malformed(header_location(SIGNATURE), problem))?;
        let url = self.url.of_request(request);
        let forms = url_forms(&url);
        let matches = |key: &hmac::Key, parameters: &Parameters<'_>| {
            let mut forms = forms.iter();
            forms.any(|form| candidates.contain(tag(key, form, parameters).as_ref()))
        };
        let accept = |parameters: &Parameters<'_>| {
            self.keys.accept(now, VerifyError::SignatureMismatch, |key| matches(key, parameters))
        };

        // If the URL contains a digest of the body, only the URL is signed.
        if let Some(signed_digest) = body_digest(&url) {
            match accept(&Vec::new()) {
                Ok(secret) => {
                    let own = digest::digest(&digest::SHA256, request.body);
                    if !constant_time_eq(own.as_ref(), &signed_digest) {
                        return Err(VerifyError::BodyMismatch);
                    }
                    return Ok(Verified::signed_by(secret, None));
                }
                Err(VerifyError::SecretExpired { secret }) => {
                    return Err(VerifyError::SecretExpired { secret });
                }
                Err(_) => {}
            }
        }
        Ok(Verified::signed_by(accept(&parameters(request.body))?, None))
    }

    /// The signature header, and the query of the URL if it must change.
    pub(super) fn sign(&self, request: &Request<'_>, now: Timestamp) -> Option<Signature> {
        let key = self.keys.signing(now)?;
        let mut url = self.url.text().to_owned();
        let is_form = request.is_content_type("application/x-www-form-urlencoded");
        let (parameters, query) = if is_form || request.body.is_empty() {
            (parameters(request.body), None)
        } else {
            let digest = digest::digest(&digest::SHA256, request.body);
            let query = format!("{BODY_DIGEST}={}", HEXLOWER.encode(digest.as_ref()));
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&query);
            (Vec::new(), url.split_once('?').map(|(_, whole)| whole.to_owned()))
        };
        let value = BASE64.encode(tag(key, &url, &parameters).as_ref());
        Some(Signature { header: (SIGNATURE, value), query })
    }
}

/// Result of [`TwilioCheck::sign`].
pub(super) struct Signature {
    pub(super) header: (&'static str, String),
    pub(super) query: Option<String>,
}

fn tag(key: &hmac::Key, url: &str, parameters: &Parameters<'_>) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(url.as_bytes());
    for (name, value) in parameters {
        context.update(name);
        context.update(value);
    }
    context.sign()
}

/// Form parameters sorted by name and value; repeated pairs count once.
fn parameters(body: &[u8]) -> Parameters<'_> {
    let mut parameters: Parameters<'_> = form_pairs(body).collect();
    parameters.sort();
    parameters.dedup();
    parameters
}

fn body_digest(url: &str) -> Option<Vec<u8>> {
    let query = url.split_once('?')?.1;
    let (_, value) = form_pairs(query.as_bytes()).find(|(name, _)| name.as_ref() == BODY_DIGEST.as_bytes())?;
    HEXLOWER_PERMISSIVE.decode(&value).ok()
}

/// Variants in which Twilio's products write a URL: with and without port, and with a re-encoded query. Twilio's own
/// library tries the same variants.
fn url_forms(url: &str) -> Vec<String> {
    let mut forms = vec![url.to_owned()];
    if let Some((scheme, rest)) = split_scheme(url) {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (host, port) = split_port(authority);
        let default = if scheme.eq_ignore_ascii_case("https://") { "443" } else { "80" };
        forms.push(format!("{scheme}{host}{tail}"));
        forms.push(format!("{scheme}{host}:{}{tail}", port.unwrap_or(default)));
    }
    for index in 0..forms.len() {
        if let Some((before, query)) = forms[index].split_once('?') {
            let form = format!("{before}?{}", re_encoded(query));
            forms.push(form);
        }
    }
    forms.sort();
    forms.dedup();
    forms
}

/// Host, including a user name, and port. A colon inside brackets belongs to an IPv6 address.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Decodes and re-encodes the query, escaping all but the unreserved characters of a URI component.
fn re_encoded(query: &str) -> String {
    let mut encoded = String::with_capacity(query.len());
    for (name, value) in form_pairs(query.as_bytes()) {
        if !encoded.is_empty() {
            encoded.push('&');
        }
        percent_encode(&name, b"-_.!~*'()", &mut encoded);
        encoded.push('=');
        percent_encode(&value, b"-_.!~*'()", &mut encoded);
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_variants_include_and_omit_the_port() {
        let forms = |url| url_forms(url);
        assert_eq!(forms("https://a.b/in"), ["https://a.b/in", "https://a.b:443/in"]);
        assert_eq!(forms("https://a.b:443/in"), ["https://a.b/in", "https://a.b:443/in"]);
        assert_eq!(forms("http://a.b"), ["http://a.b", "http://a.b:80"]);
        assert_eq!(forms("https://a.b:8443/in"), ["https://a.b/in", "https://a.b:8443/in"]);
        assert_eq!(forms("https://[::1]/in"), ["https://[::1]/in", "https://[::1]:443/in"]);
        assert_eq!(
            forms("https://a.b/in?q='x%27 y"),
            [
                "https://a.b/in?q='x%27 y",
                "https://a.b/in?q='x'%20y",
                "https://a.b:443/in?q='x%27 y",
                "https://a.b:443/in?q='x'%20y",
            ]
        );
    }

    #[test]
    fn repeated_parameters_count_once_per_distinct_value() {
        let joined = |body: &str| {
            let parameters = parameters(body.as_bytes());
            let parts = parameters.iter().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]);
            String::from_utf8(parts.flatten().collect()).unwrap()
        };
        assert_eq!(joined("b=2&a=z&a=y&a=z&B=1&c"), "B1ayazb2c");
    }
}
