//! Signs a request as its sender would, for test webhooks.

use std::fmt;

use aws_lc_rs::digest;
use data_encoding::{BASE64, HEXLOWER};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::hmac::{HmacCheck, SignedValues, TimestampLocation};
use super::hmac_settings::{Assign, Layout, Separator, SignatureHeader};
use super::preset::{FieldLocation, preset};
use super::request::Request;
use super::scheme::Scheme;
use super::secret::SecretValue;
use super::shared_secret::{SharedCheck, SharedLocation};
use super::text::percent_encode;
use super::verifier::{Check, Verifier};

#[derive(Clone, Copy)]
pub struct UnsignedRequest<'a> {
    /// Upper case.
    pub method: &'a str,
    /// Event id, for senders that sign it or send it in a header.
    pub id: &'a str,
    /// Twilio signs forms differently from other bodies.
    pub content_type: &'a str,
    pub body: &'a [u8],
}

impl fmt::Debug for UnsignedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsignedRequest")
            .field("method", &self.method)
            .field("id", &self.id)
            .field("content_type", &self.content_type)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A signed request.
#[derive(Clone)]
pub struct SignedRequest {
    /// Additional headers. Hidden in debug output, since some are credentials.
    pub headers: Vec<(String, SecretValue)>,
    /// Query of the URL, if the scheme puts a credential into it.
    pub query: Option<SecretValue>,
    /// Modified if the scheme puts a credential into the body.
    pub body: Vec<u8>,
}

impl fmt::Debug for SignedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedRequest")
            .field("headers", &self.headers)
            .field("query", &self.query)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignProblem {
    #[error("every configured secret has expired")]
    NoSecret,
    #[error("a public key cannot sign; set the private signing key too")]
    SigningKeyMissing,
    /// Could be confused with another part of the signed string.
    #[error("with {scheme} an event id must not be empty or contain a dot")]
    Id { scheme: Scheme },
    #[error("the body cannot carry the signature: {0}")]
    Body(&'static str),
}

/// Signs as the sender would at time `now`, with the first secret that has not expired; Standard Webhooks with every one of them.
///
/// Schemes that sign the URL use the configured public URL.
pub fn sign(verifier: &Verifier, request: &UnsignedRequest<'_>, now: Timestamp) -> Result<SignedRequest, SignProblem> {
    sign_for(verifier, request, None, now)
}

/// As [`sign`], for a request to this URL. Only the general HMAC scheme uses it.
pub fn sign_for(
    verifier: &Verifier,
    request: &UnsignedRequest<'_>,
    url: Option<&str>,
    now: Timestamp,
) -> Result<SignedRequest, SignProblem> {
    let scheme = verifier.scheme();
    let mut signed = SignedRequest { headers: Vec::new(), query: None, body: request.body.to_vec() };
    match &verifier.check {
        Check::Hmac(check) => hmac(check, request, (url, now), &mut signed)?,
        Check::Standard(check) => {
            if request.id.is_empty() || request.id.contains('.') {
                return Err(SignProblem::Id { scheme });
            }
            signed.set_all(check.sign(request.id, request.body, now)?);
        }
        Check::Hubspot(check) => {
            let headers = check.sign(request.method, request.body, now);
            signed.set_all(headers.ok_or(SignProblem::NoSecret)?);
        }
        Check::Twilio(check) => {
            let headers = [("content-type", request.content_type)];
            let request = Request { method: request.method, path_and_query: "", headers: &headers, body: request.body };
            let signature = check.sign(&request, now).ok_or(SignProblem::NoSecret)?;
            signed.set_all([signature.header]);
            signed.query = signature.query.map(SecretValue::from);
        }
        Check::Sendgrid(check) => signed.set_all(check.sign(request.body, now)?),
        Check::Mailgun(check) => {
            let token = mailgun_token(request.id, now);
            let (timestamp, signature) = check.sign(&token, now).ok_or(SignProblem::NoSecret)?;
            if is_form(request.content_type) {
                signed.append_fields(&[("timestamp", &timestamp), ("token", &token), ("signature", &signature)]);
                signed.set_id(scheme, request.id);
                return Ok(signed);
            }
            let signature_fields = json!({"timestamp": timestamp, "token": token, "signature": signature});
            signed.change_body(|body| {
                body.insert("signature".to_owned(), signature_fields);
                Ok(())
            })?;
        }
        Check::Google(check) => {
            let key = check.keys.signing(now).ok_or(SignProblem::NoSecret)?;
            signed.change_body(|body| {
                body.insert("google_key".to_owned(), json!(key.expose()));
                Ok(())
            })?;
        }
        Check::Graph(check) => {
            let key = check.keys.signing(now).ok_or(SignProblem::NoSecret)?;
            signed.change_body(|body| set_client_state(body, key))?;
        }
        Check::Shared(check) => shared(check, now, &mut signed)?,
        Check::None => {}
    }
    signed.set_id(scheme, request.id);
    Ok(signed)
}

fn hmac(
    check: &HmacCheck,
    request: &UnsignedRequest<'_>,
    (url, now): (Option<&str>, Timestamp),
    signed: &mut SignedRequest,
) -> Result<(), SignProblem> {
    let key = check.keys.signing(now).ok_or(SignProblem::NoSecret)?;
    let timestamp = match &check.timestamp {
        Some(source) => match &source.location {
            TimestampLocation::Body(..) => {
                source.location.in_body(request.body).ok_or(SignProblem::Body("the timestamp must be in it already"))?
            }
            _ => source.unit.write(now).into_bytes(),
        },
        None => Vec::new(),
    };
    let url = url.unwrap_or_else(|| check.public_url());
    let values = SignedValues {
        body: request.body,
        timestamp: &timestamp,
        id: request.id.as_bytes(),
        url,
        path: path_and_query(url),
        method: request.method,
    };
    let digest = check.encoding.encode(check.tag(key, &values).as_ref());
    let signature = format!("{}{digest}", check.prefix);
    let timestamp = String::from_utf8_lossy(&timestamp);
    let signed_at = check.timestamp.as_ref().map(|source| &source.location);
    let value = match &check.layout {
        Layout::Whole => signature,
        Layout::List { separator, assign, signature_key } => {
            let (separator, assign) = characters(*separator, *assign);
            let signature = format!("{signature_key}{assign}{signature}");
            match signed_at {
                Some(TimestampLocation::Field(key)) => {
                    format!("{key}{assign}{timestamp}{separator}{signature}")
                }
                _ => signature,
            }
        }
    };
    let (SignatureHeader::One(header) | SignatureHeader::FirstOf(header, _) | SignatureHeader::EitherOf(header, _)) =
        &check.header;
    signed.set(header, value);
    if let Some(TimestampLocation::Header(name)) = signed_at {
        signed.set(name, timestamp.into_owned());
    }
    if let Some(name) = &check.id_header {
        signed.set(name, request.id.to_owned());
    }
    Ok(())
}

fn characters(separator: Separator, assign: Assign) -> (char, char) {
    let separator = match separator {
        Separator::Comma => ',',
        Separator::Semicolon => ';',
        Separator::Space => ' ',
    };
    let assign = match assign {
        Assign::Equals => '=',
        Assign::Comma => ',',
    };
    (separator, assign)
}

/// Path and query of a URL; `/` if it has none.
fn path_and_query(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or_default();
    rest.find('/').map_or("/", |at| &rest[at..])
}

fn shared(check: &SharedCheck, now: Timestamp, signed: &mut SignedRequest) -> Result<(), SignProblem> {
    let secret = check.keys.signing(now).ok_or(SignProblem::NoSecret)?.expose();
    match &check.location {
        SharedLocation::Bearer => signed.set("authorization", format!("Bearer {secret}")),
        SharedLocation::Basic => {
            signed.set("authorization", format!("Basic {}", BASE64.encode(secret.as_bytes())));
        }
        SharedLocation::Header(name) => signed.set(name, secret.to_owned()),
        SharedLocation::Query(name) => {
            let mut query = String::new();
            percent_encode(name.as_bytes(), b"-_.~", &mut query);
            query.push('=');
            percent_encode(secret.as_bytes(), b"-_.~", &mut query);
            signed.query = Some(SecretValue::from(query));
        }
    }
    Ok(())
}

fn is_form(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Fifty hexadecimal digits, different for each id and time.
fn mailgun_token(id: &str, now: Timestamp) -> String {
    let seed = format!("{id} {now}");
    let mut token = HEXLOWER.encode(digest::digest(&digest::SHA256, seed.as_bytes()).as_ref());
    token.truncate(50);
    token
}

fn set_client_state(body: &mut Map<String, Value>, key: &SecretValue) -> Result<(), SignProblem> {
    let notifications = body.get_mut("value").and_then(Value::as_array_mut);
    let notifications = notifications.ok_or(SignProblem::Body("it must contain a list at value"))?;
    for notification in notifications {
        let members = notification.as_object_mut();
        let members = members.ok_or(SignProblem::Body("each entry of value must be an object"))?;
        members.insert("clientState".to_owned(), json!(key.expose()));
    }
    Ok(())
}

impl SignedRequest {
    fn set(&mut self, name: &str, value: String) {
        self.headers.push((name.to_owned(), SecretValue::from(value)));
    }

    fn set_all<'n>(&mut self, headers: impl IntoIterator<Item = (&'n str, String)>) {
        for (name, value) in headers {
            self.set(name, value);
        }
    }

    /// Sets the id header of this sender, if it has one.
    fn set_id(&mut self, scheme: Scheme, id: &str) {
        if let Some([FieldLocation::Header(name)]) = preset(scheme).event_id.first() {
            let is_set = self.headers.iter().any(|(own, _)| own == name);
            if !is_set && !id.is_empty() {
                self.set(name, id.to_owned());
            }
        }
    }

    fn append_fields(&mut self, fields: &[(&str, &str)]) {
        let mut text = String::new();
        for (name, value) in fields {
            text.push_str(if self.body.is_empty() && text.is_empty() { "" } else { "&" });
            text.push_str(name);
            text.push('=');
            percent_encode(value.as_bytes(), b"-_.~", &mut text);
        }
        self.body.extend_from_slice(text.as_bytes());
    }

    fn change_body(
        &mut self,
        change: impl FnOnce(&mut Map<String, Value>) -> Result<(), SignProblem>,
    ) -> Result<(), SignProblem> {
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        let Some(Value::Object(mut members)) = body else {
            return Err(SignProblem::Body("it must be a JSON object"));
        };
        change(&mut members)?;
        self.body = Value::Object(members).to_string().into_bytes();
        Ok(())
    }
}
