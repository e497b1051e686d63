//! Handshakes: requests that probe the endpoint and carry no event.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::digest::{Encoding, constant_time_eq};
use super::request::Request;
use super::scheme::Scheme;
use super::text;
use super::verifier::{Check, Verifier, verify};

/// Maximum body of a handshake; larger bodies are not examined.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a challenge that is signed or echoed.
const CHALLENGE_BYTES_MAX: usize = 4096;

/// Immediate response; no event is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeResponse {
    pub status: u16,
    /// `None` without a body.
    pub content_type: Option<&'static str>,
    pub body: String,
}

impl HandshakeResponse {
    fn status(status: u16) -> HandshakeResponse {
        HandshakeResponse { status, content_type: None, body: String::new() }
    }

    /// Plain text, so that a browser does not execute an echoed challenge.
    fn text(body: String) -> HandshakeResponse {
        HandshakeResponse { status: 200, content_type: Some("text/plain"), body }
    }

    fn json(body: &serde_json::Value) -> HandshakeResponse {
        let body = body.to_string();
        HandshakeResponse { status: 200, content_type: Some("application/json"), body }
    }
}

/// The response to a handshake; `None` if the request is not a handshake and must be verified.
///
/// A signed handshake is answered only if its signature matches; otherwise [`verify`] reports the error.
pub fn handshake(verifier: &Verifier, request: &Request<'_>, now: Timestamp) -> Option<HandshakeResponse> {
    let is_get = request.method == "GET";
    let is_post = request.method == "POST";
    match verifier.scheme() {
        Scheme::Meta if is_get => meta(verifier, request),
        Scheme::Slack if is_post => slack(verifier, request, now),
        Scheme::Zoom if is_post => zoom(verifier, request, now),
        Scheme::MicrosoftGraph if is_post => parameter(request, "validationToken").map(HandshakeResponse::text),
        Scheme::Linkedin if is_get => linkedin(verifier, request, now),
        Scheme::Mailchimp if is_get => Some(HandshakeResponse::status(200)),
        Scheme::Woocommerce if is_post => woocommerce(request),
        Scheme::Intercom if is_post => {
            let ping: Ping = small_json(request, "ping")?;
            signed(verifier, request, now, ping.topic == "ping")
        }
        Scheme::Github if is_post => {
            let ping = request.header("x-github-event") == Some(b"ping");
            signed(verifier, request, now, ping)
        }
        _ => None,
    }
}

#[derive(Deserialize)]
struct Ping {
    topic: String,
}

/// 200 for a ping with a valid signature.
fn signed(verifier: &Verifier, request: &Request<'_>, now: Timestamp, is_ping: bool) -> Option<HandshakeResponse> {
    (is_ping && verify(verifier, request, now).is_ok()).then(|| HandshakeResponse::status(200))
}

fn meta(verifier: &Verifier, request: &Request<'_>) -> Option<HandshakeResponse> {
    if parameter(request, "hub.mode")? != "subscribe" {
        return None;
    }
    let sent = parameter(request, "hub.verify_token").unwrap_or_default();
    let expected = verifier.verify_token.as_ref().map(|token| token.expose());
    let known = expected.is_some_and(|token| constant_time_eq(sent.as_bytes(), token.as_bytes()));
    Some(match parameter(request, "hub.challenge") {
        Some(challenge) if known => HandshakeResponse::text(challenge),
        _ => HandshakeResponse::status(403),
    })
}

#[derive(Deserialize)]
struct SlackChallenge {
    r#type: String,
    challenge: String,
}

fn slack(verifier: &Verifier, request: &Request<'_>, now: Timestamp) -> Option<HandshakeResponse> {
    let body: SlackChallenge = small_json(request, "url_verification")?;
    let known = body.r#type == "url_verification" && verify(verifier, request, now).is_ok();
    known.then(|| HandshakeResponse::text(body.challenge))
}

#[derive(Deserialize)]
struct ZoomValidation {
    event: String,
    payload: ZoomPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ZoomPayload {
    plain_token: String,
}

fn zoom(verifier: &Verifier, request: &Request<'_>, now: Timestamp) -> Option<HandshakeResponse> {
    let body: ZoomValidation = small_json(request, "endpoint.url_validation")?;
    if body.event != "endpoint.url_validation" {
        return None;
    }
    // A validation may be unsigned, but a signature that is present must match.
    if request.header("x-zm-signature").is_some() && verify(verifier, request, now).is_err() {
        return None;
    }
    let plain = body.payload.plain_token;
    let encrypted = sign_challenge(verifier, &plain, now)?;
    Some(HandshakeResponse::json(&json!({"plainToken": plain, "encryptedToken": encrypted})))
}

fn linkedin(verifier: &Verifier, request: &Request<'_>, now: Timestamp) -> Option<HandshakeResponse> {
    let code = parameter(request, "challengeCode")?;
    let response = sign_challenge(verifier, &code, now)?;
    Some(HandshakeResponse::json(&json!({"challengeCode": code, "challengeResponse": response})))
}

/// HMAC of a challenge, in hexadecimal.
///
/// Zoom and LinkedIn sign events with the same key, so an attacker who could have any text signed could forge an event.
/// The signed string of an event always contains `:` or `=`: only challenges of other characters are signed.
fn sign_challenge(verifier: &Verifier, challenge: &str, now: Timestamp) -> Option<String> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if challenge.is_empty() || challenge.len() > 128 || !challenge.bytes().all(harmless) {
        return None;
    }
    let Check::Hmac(check) = &verifier.check else { return None };
    let key = check.keys.signing(now)?;
    let tag = aws_lc_rs::hmac::sign(key, challenge.as_bytes());
    Some(Encoding::Hex.encode(tag.as_ref()))
}

/// Ping that WooCommerce sends when a webhook is saved: `webhook_id=7`, unsigned.
fn woocommerce(request: &Request<'_>) -> Option<HandshakeResponse> {
    let id = request.body.strip_prefix(b"webhook_id=")?;
    let is_ping = !id.is_empty() && id.iter().all(u8::is_ascii_digit);
    let unsigned = request.header("x-wc-webhook-signature").is_none();
    (is_ping && unsigned).then(|| HandshakeResponse::status(200))
}

fn parameter(request: &Request<'_>, name: &str) -> Option<String> {
    let value = request.parameter(name).filter(|value| value.len() <= CHALLENGE_BYTES_MAX)?;
    String::from_utf8(value.into_owned()).ok()
}

/// Parses the body if it is small and contains this word. Parsing every event would cost more than its verification.
fn small_json<'a, T: Deserialize<'a>>(request: &Request<'a>, word: &str) -> Option<T> {
    let promising = request.body.len() <= BODY_BYTES_MAX && text::contains(request.body, word);
    promising.then(|| serde_json::from_slice(request.body).ok()).flatten()
}
