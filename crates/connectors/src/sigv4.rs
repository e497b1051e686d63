//! AWS Signature Version 4, as Amazon SES and S3-compatible stores want it. Pure.
//!
//! The path is signed as it stands in the URL. That is right for S3, and for other services as long as their paths need no
//! escapes.

use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use sluice_domain::destination::AwsCredentials;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use url::Position;

use crate::outbound::{Request, sensitive};

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Region and service that a signature is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// Adds the headers of the signature, over every header that is set so far and the body.
pub(crate) fn sign(
    request: &mut Request,
    credentials: &AwsCredentials,
    scope: Scope<'_>,
    now: Time,
) -> Result<(), Failure> {
    let payload = HEXLOWER.encode(digest::digest(&digest::SHA256, &request.body).as_ref());
    let date = now.to_jiff().strftime("%Y%m%dT%H%M%SZ").to_string();
    request.headers.insert(CONTENT_SHA256, header(&payload)?);
    request.headers.insert(DATE, header(&date)?);
    if let Some(token) = &credentials.session_token {
        let token = sensitive(token.expose()).ok_or_else(|| invalid("session_token"))?;
        request.headers.insert(SECURITY_TOKEN, token);
    }
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).trim().to_owned()))
        .collect();
    headers.push(("host".to_owned(), request.url[Position::BeforeHost..Position::AfterPort].to_owned()));
    let canonical = Canonical {
        method: request.method.as_str(),
        path: request.url.path(),
        query: request.url.query().unwrap_or_default(),
        headers,
        payload: &payload,
    };
    let text = canonical.authorization(credentials, scope, &date);
    let value = sensitive(&text).ok_or_else(|| invalid("access_key_id"))?;
    request.headers.insert(AUTHORIZATION, value);
    Ok(())
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text).map_err(|_| invalid("region"))
}

fn invalid(key: &str) -> Failure {
    let message = format!("`{key}` of the destination has a character that is not allowed in a header.");
    Failure::new(FailureClass::Mapping, "not-signed", message)
}

/// A request in the form that is signed.
struct Canonical<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// SHA-256 of the body, in hexadecimal.
    payload: &'a str,
}

impl Canonical<'_> {
    fn authorization(mut self, credentials: &AwsCredentials, scope: Scope<'_>, date: &str) -> String {
        self.headers.sort();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let day = &date[..8];
        let Scope { region, service } = scope;
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let canonical = HEXLOWER.encode(digest::digest(&digest::SHA256, self.text(&names).as_bytes()).as_ref());
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{canonical}");
        let start = format!("AWS4{}", credentials.secret_access_key.expose()).into_bytes();
        let key = [day, region, service, "aws4_request"].iter().fold(start, |key, part| tag(&key, part.as_bytes()));
        let signature = HEXLOWER.encode(&tag(&key, to_sign.as_bytes()));
        let id = &credentials.access_key_id;
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    fn text(&self, names: &str) -> String {
        let mut query: Vec<(&str, &str)> = self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        query.sort_unstable();
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", one_space(value))).collect();
        let path = if self.path.is_empty() { "/" } else { self.path };
        format!("{}\n{path}\n{}\n{headers}\n{names}\n{}", self.method, query.join("&"), self.payload)
    }
}

/// Runs of spaces count as one.
fn one_space(value: &str) -> String {
    value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn tag(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(authorization: &str) -> &str {
        authorization.rsplit('=').next().unwrap()
    }

    /// The test suite that AWS publishes for Signature Version 4.
    #[test]
    fn requests_of_the_published_suite_have_their_signatures() {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let date = "20150830T123600Z";
        let form = HEXLOWER.encode(digest::digest(&digest::SHA256, b"Param1=value1").as_ref());
        for (name, method, query, header, payload, expected) in [
            ("get-vanilla", "GET", "", None, EMPTY, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            (
                "post-vanilla",
                "POST",
                "",
                None,
                EMPTY,
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "Param2=value2&Param1=value1",
                None,
                EMPTY,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "post-x-www-form-urlencoded",
                "POST",
                "",
                Some(("content-type", "application/x-www-form-urlencoded")),
                form.as_str(),
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let mut headers = vec![
                ("x-amz-date".to_owned(), date.to_owned()),
                ("host".to_owned(), "example.amazonaws.com".to_owned()),
            ];
            headers.extend(header.map(|(name, value)| (name.to_owned(), value.to_owned())));
            let canonical = Canonical { method, path: "/", query, headers, payload };
            let found = canonical.authorization(&credentials, Scope { region: "us-east-1", service: "service" }, date);
            assert_eq!(signature(&found), expected, "{name}: {found}");
        }
    }

    /// Examples of the S3 API reference.
    #[test]
    fn requests_of_the_s3_reference_have_their_signatures() {
        let credentials = AwsCredentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let headers = |more: &[(&str, &str)]| -> Vec<(String, String)> {
            let common = [("host", "examplebucket.s3.amazonaws.com"), ("x-amz-date", "20130524T000000Z")];
            common.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let upload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let table = [
            (
                "GET",
                "/test.txt",
                "",
                headers(&[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)]),
                EMPTY,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                "",
                headers(&[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-content-sha256", upload),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ]),
                upload,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/",
                "lifecycle",
                headers(&[("x-amz-content-sha256", EMPTY)]),
                EMPTY,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
        ];
        for (method, path, query, headers, payload, expected) in table {
            let canonical = Canonical { method, path, query, headers, payload };
            let scope = Scope { region: "us-east-1", service: "s3" };
            let found = canonical.authorization(&credentials, scope, "20130524T000000Z");
            assert_eq!(signature(&found), expected, "{path}: {found}");
        }
    }
}
