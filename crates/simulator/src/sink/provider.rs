//! Providers that a sink can behave as: an S3 subset, Amazon SES, and a push service of browsers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest;
use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, LOCATION};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::lock;
use crate::reply::FakeReply;

/// What a sink behaves as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// PUT with `If-None-Match: *`, HEAD, GET and DELETE of objects. Every request needs a Signature Version 4.
    S3,
    /// `POST /v2/email/outbound-emails`. A recipient at `bounce.example` is refused.
    Ses,
    /// `POST /push/ID`; `/gone/ID` is a subscription that ended.
    WebPush,
}

impl Provider {
    pub const ALL: [Provider; 3] = [Provider::S3, Provider::Ses, Provider::WebPush];

    /// Name under which it is inspected.
    pub fn name(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Ses => "ses",
            Provider::WebPush => "webpush",
        }
    }
}

/// An object of the simulated store.
#[derive(Debug)]
struct Object {
    body: Bytes,
    content_type: String,
    effect_key: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct ProviderState {
    objects: Mutex<HashMap<String, Object>>,
    accepted: AtomicU64,
}

const CONTENT_HASH: &str = "x-amz-content-sha256";
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");
const EFFECT_KEY: HeaderName = HeaderName::from_static("x-amz-meta-effect-key");
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

impl ProviderState {
    pub(super) fn objects(&self) -> u64 {
        lock(&self.objects).len() as u64
    }

    pub(super) fn object(&self, path: &str) -> Option<Bytes> {
        lock(&self.objects).get(path).map(|object| object.body.clone())
    }

    pub(super) fn reset(&self) {
        lock(&self.objects).clear();
        self.accepted.store(0, Ordering::Release);
    }

    pub(super) fn serve(&self, provider: Provider, parts: &Parts, body: &Bytes) -> FakeReply {
        match provider {
            Provider::S3 => self.s3(parts, body),
            Provider::Ses => self.ses(parts, body),
            Provider::WebPush => self.web_push(parts, body),
        }
    }

    fn s3(&self, parts: &Parts, body: &Bytes) -> FakeReply {
        // S3 alone needs the hash of the body as a header.
        let named = header(&parts.headers, CONTENT_HASH).ok_or("AccessDenied");
        if let Err(code) = named.and_then(|_| signed(parts, body)) {
            return s3_error(StatusCode::FORBIDDEN, code);
        }
        let path = parts.uri.path().to_owned();
        let mut objects = lock(&self.objects);
        match (parts.method.clone(), objects.get(&path)) {
            (Method::PUT, Some(_)) if header(&parts.headers, "if-none-match") == Some("*") => {
                s3_error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed")
            }
            (Method::PUT, _) => {
                let own = BASE64.encode(digest::digest(&digest::SHA256, body).as_ref());
                if header(&parts.headers, CHECKSUM.as_str()).is_some_and(|sent| sent != own) {
                    return s3_error(StatusCode::BAD_REQUEST, "BadDigest");
                }
                let object = Object {
                    body: body.clone(),
                    content_type: header(&parts.headers, "content-type").unwrap_or("binary/octet-stream").to_owned(),
                    effect_key: header(&parts.headers, EFFECT_KEY.as_str()).map(str::to_owned),
                };
                let reply = FakeReply::empty(StatusCode::OK).with(ETAG, &etag(body));
                objects.insert(path, object);
                reply
            }
            (Method::GET | Method::HEAD, Some(object)) => {
                let content = if parts.method == Method::GET { object.body.clone() } else { Bytes::new() };
                let mut reply = FakeReply { body: content, ..FakeReply::empty(StatusCode::OK) };
                reply = reply.with(ETAG, &etag(&object.body)).with(CONTENT_TYPE, &object.content_type);
                if header(&parts.headers, "x-amz-checksum-mode") == Some("ENABLED") {
                    let own = BASE64.encode(digest::digest(&digest::SHA256, &object.body).as_ref());
                    reply = reply.with(CHECKSUM, &own);
                }
                match &object.effect_key {
                    Some(key) => reply.with(EFFECT_KEY, key),
                    None => reply,
                }
            }
            (Method::GET | Method::HEAD, None) => s3_error(StatusCode::NOT_FOUND, "NoSuchKey"),
            (Method::DELETE, _) => {
                objects.remove(&path);
                FakeReply::empty(StatusCode::NO_CONTENT)
            }
            _ => s3_error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }

    fn ses(&self, parts: &Parts, body: &Bytes) -> FakeReply {
        let refuse = |status, code: &str, message: &str| {
            FakeReply::json(status, &json!({ "message": message })).with(ERROR_TYPE, code)
        };
        if let Err(code) = signed(parts, body) {
            return refuse(StatusCode::FORBIDDEN, code, "The request is not signed.");
        }
        if (parts.method.as_str(), parts.uri.path()) != ("POST", "/v2/email/outbound-emails") {
            return refuse(StatusCode::NOT_FOUND, "NotFoundException", "No such operation.");
        }
        let mail: Value = serde_json::from_slice(body).unwrap_or_default();
        let to = mail["Destination"]["ToAddresses"].as_array().cloned().unwrap_or_default();
        let content = &mail["Content"]["Simple"];
        if mail["FromEmailAddress"].as_str().is_none() || to.is_empty() || content["Subject"]["Data"].as_str().is_none()
        {
            return refuse(
                StatusCode::BAD_REQUEST,
                "BadRequestException",
                "A mail needs a sender, a recipient and a subject.",
            );
        }
        if to.iter().filter_map(Value::as_str).any(|to| to.contains("@bounce.example")) {
            return refuse(StatusCode::BAD_REQUEST, "MessageRejected", "Address is on the suppression list.");
        }
        let number = self.accepted.fetch_add(1, Ordering::AcqRel) + 1;
        FakeReply::json(StatusCode::OK, &json!({ "MessageId": format!("sim-{number:08}") }))
    }

    fn web_push(&self, parts: &Parts, body: &Bytes) -> FakeReply {
        let path = parts.uri.path();
        if path.starts_with("/gone/") {
            return FakeReply::json(StatusCode::GONE, &json!({ "code": 410, "errno": 106, "message": "Gone" }));
        }
        if parts.method != Method::POST || !path.starts_with("/push/") {
            return FakeReply::empty(StatusCode::NOT_FOUND);
        }
        let is_signed = header(&parts.headers, "authorization").is_some_and(|text| text.starts_with("vapid t="));
        if !is_signed {
            return FakeReply::json(StatusCode::UNAUTHORIZED, &json!({ "code": 401, "errno": 109 }));
        }
        let has_ttl = header(&parts.headers, "ttl").is_some_and(|ttl| ttl.parse::<u64>().is_ok());
        if !has_ttl || header(&parts.headers, "content-encoding") != Some("aes128gcm") || body.len() < 103 {
            return FakeReply::json(StatusCode::BAD_REQUEST, &json!({ "code": 400, "errno": 110 }));
        }
        if body.len() > 4_096 {
            return FakeReply::json(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "code": 413, "errno": 104 }));
        }
        let number = self.accepted.fetch_add(1, Ordering::AcqRel) + 1;
        FakeReply::empty(StatusCode::CREATED).with(LOCATION, &format!("/message/{number}"))
    }
}

/// Whether the request has a signature of the usual form, over this body. The signature itself is not computed.
fn signed(parts: &Parts, body: &Bytes) -> Result<(), &'static str> {
    let authorization = header(&parts.headers, "authorization").unwrap_or_default();
    let named = ["AWS4-HMAC-SHA256 Credential=", "SignedHeaders=", "Signature="];
    if !named.iter().all(|part| authorization.contains(part)) || header(&parts.headers, "x-amz-date").is_none() {
        return Err("AccessDenied");
    }
    let own = HEXLOWER.encode(digest::digest(&digest::SHA256, body).as_ref());
    match header(&parts.headers, CONTENT_HASH) {
        Some(sent) if sent != own && sent != "UNSIGNED-PAYLOAD" => Err("SignatureDoesNotMatch"),
        _ => Ok(()),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn etag(body: &Bytes) -> String {
    format!("\"{}\"", &HEXLOWER.encode(digest::digest(&digest::SHA256, body).as_ref())[..32])
}

fn s3_error(status: StatusCode, code: &str) -> FakeReply {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    );
    FakeReply::of(status, "application/xml", body)
}
