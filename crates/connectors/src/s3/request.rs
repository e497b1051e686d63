//! Builds signed requests. Pure.

use aws_lc_rs::digest;
use bytes::Bytes;
use data_encoding::BASE64;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use sluice_domain::destination::{AwsCredentials, S3Destination};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::Failure;
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::response::{self, ResponseContext};
use super::settings::Settings;
use crate::Call;
use crate::outbound::{AddressScope, Request};
use crate::parameter::problem;
use crate::sigv4::{self, Scope};

const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const EFFECT_KEY: HeaderName = HeaderName::from_static("x-amz-meta-effect-key");

/// Bucket with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    /// URL of the bucket, without a trailing slash.
    base: String,
    /// Put before every key.
    prefix: String,
    host: String,
    region: String,
    credentials: AwsCredentials,
    pub(crate) rules: FailureTable,
    pub(crate) secrets: Vec<SecretValue>,
}

impl Target {
    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &S3Destination, own_rules: &[FailureRule]) -> Result<Target, String> {
        let S3Destination { endpoint, region, bucket, .. } = destination;
        let base = match endpoint {
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        };
        let url = Url::parse(&base).map_err(|error| format!("endpoint: is not a URL: {error}"))?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err("bucket: a name has lower-case letters, digits, dots and hyphens".to_owned());
        }
        if !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(format!("region: `{region}` is not a region such as eu-central-1"));
        }
        let credentials = &destination.credentials;
        let secrets = [Some(&credentials.secret_access_key), credentials.session_token.as_ref()];
        Ok(Target {
            base,
            prefix: destination.prefix.clone().unwrap_or_default(),
            host: url.host_str().unwrap_or_default().to_owned(),
            region: region.clone(),
            credentials: credentials.clone(),
            rules: response::SHIPPED_RULES.behind(own_rules),
            secrets: secrets.into_iter().flatten().cloned().collect(),
        })
    }

    pub(super) fn context(&self, now: Time) -> ResponseContext<'_> {
        ResponseContext { host: &self.host, rules: &self.rules, now }
    }

    pub(super) fn url_text(&self, settings: &Settings<'_>) -> String {
        let mut text = format!("{}/", self.base);
        // Slashes of a key are those of the path.
        const KEPT: &[u8] = b"-._~/";
        debug_assert!(UNRESERVED.iter().all(|byte| KEPT.contains(byte)));
        percent_encode(&self.prefix, KEPT, &mut text);
        percent_encode(&settings.key, KEPT, &mut text);
        text
    }

    pub(super) fn put(&self, settings: &Settings<'_>, call: &Call<'_>) -> Result<Request, Failure> {
        let mut headers = HeaderMap::new();
        let content_type = HeaderValue::from_str(&settings.content_type)
            .map_err(|_| problem("content_type", "has a character that is not allowed in a header"))?;
        headers.insert(CONTENT_TYPE, content_type);
        let checksum = checksum(&settings.body);
        headers.insert(CHECKSUM, HeaderValue::from_str(&checksum).expect("base64 is valid in a header"));
        if let Ok(key) = HeaderValue::from_str(call.effect_key) {
            headers.insert(EFFECT_KEY, key);
        }
        if !settings.overwrite {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        self.signed(Method::PUT, settings, (headers, settings.body.clone()), call.now)
    }

    pub(super) fn head(&self, settings: &Settings<'_>, call: &Call<'_>) -> Result<Request, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"));
        self.signed(Method::HEAD, settings, (headers, Bytes::new()), call.now)
    }

    fn signed(
        &self,
        method: Method,
        settings: &Settings<'_>,
        (headers, body): (HeaderMap, Bytes),
        now: Time,
    ) -> Result<Request, Failure> {
        let url = Url::parse(&self.url_text(settings))
            .map_err(|error| problem("key", format_args!("makes no URL: {error}")))?;
        let mut request = Request { method, url, headers, body, scope: AddressScope::Anywhere };
        sigv4::sign(&mut request, &self.credentials, Scope { region: &self.region, service: "s3" }, now)?;
        Ok(request)
    }
}

/// SHA-256 as S3 writes it.
pub(super) fn checksum(body: &[u8]) -> String {
    BASE64.encode(digest::digest(&digest::SHA256, body).as_ref())
}
