//! Settings and a destination become a request. Pure.

use bytes::Bytes;
use data_encoding::BASE64;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluice_domain::destination::{HttpAuth, HttpDestination};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::verify::SecretValue;

use super::settings::{Body, Settings};
use crate::outbound::{Reach, Request, sensitive};
use crate::parameter::{kind, problem, scalar};
use crate::text::percent_encode;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What may stand unescaped in a query or a form.
const UNRESERVED: &[u8] = b"-._~";

/// Headers that frame the request: set by hand they would let one request look like two.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A plain HTTP destination, prepared once.
#[derive(Debug, Default)]
pub(crate) struct Target {
    base: Option<Base>,
    /// Headers for every request, credentials included; all of them are masked when shown.
    headers: HeaderMap,
    allow_private_addresses: bool,
    /// What must not appear in any text about this destination.
    pub(crate) secrets: Vec<SecretValue>,
}

#[derive(Debug)]
struct Base {
    /// Without a slash at its end.
    text: String,
    url: Url,
}

impl Target {
    /// Prepares a destination, or says which of its keys is wrong.
    pub(crate) fn new(destination: &HttpDestination) -> Result<Target, String> {
        let base = destination.base_url.as_deref().map(Base::parse).transpose()?;
        let mut headers = HeaderMap::with_capacity(destination.headers.len() + 1);
        let mut secrets = Vec::new();
        for (name, value) in &destination.headers {
            let parsed = header_name(name).map_err(|what| format!("headers: `{name}` {what}"))?;
            let value_parsed = sensitive(value.expose())
                .ok_or_else(|| format!("headers: the value of `{name}` has a character that no header may have"))?;
            headers.append(parsed, value_parsed);
            secrets.push(value.clone());
        }
        let authorization = match &destination.auth {
            HttpAuth::None => None,
            HttpAuth::Bearer(token) => {
                secrets.push(token.clone());
                Some(format!("Bearer {}", token.expose()))
            }
            HttpAuth::Basic { user, password } => {
                let encoded = BASE64.encode(format!("{user}:{}", password.expose()).as_bytes());
                secrets.push(password.clone());
                secrets.push(SecretValue::new(encoded.as_str()));
                Some(format!("Basic {encoded}"))
            }
        };
        if let Some(authorization) = authorization {
            let value = sensitive(&authorization)
                .ok_or("auth: the secret has a character that no header may have, such as a line break")?;
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Target { base, headers, allow_private_addresses: destination.allow_private_addresses, secrets })
    }

    /// The URL that a step means, and how far it may reach.
    fn locate(&self, url: &str, query: Option<&Map<String, Value>>) -> Result<(Url, Reach), Failure> {
        let url = url.trim();
        let mut text = if is_absolute(url) {
            url.to_owned()
        } else if let Some(base) = &self.base {
            format!("{}/{}", base.text, url.trim_start_matches('/'))
        } else {
            return Err(problem("url", "is relative, and the destination has no base_url"));
        };
        if let Some(query) = query {
            let fragment = text.find('#').map(|at| text.split_off(at));
            let mut first = !text.contains('?');
            pairs(query, "query", |name, value| {
                if first {
                    text.push('?');
                } else if !text.ends_with(['?', '&']) {
                    text.push('&');
                }
                first = false;
                percent_encode(name, UNRESERVED, &mut text);
                text.push('=');
                percent_encode(value, UNRESERVED, &mut text);
            })?;
            text.push_str(fragment.as_deref().unwrap_or_default());
        }
        let url = Url::parse(&text).map_err(|error| problem("url", format_args!("is not a URL: {error}")))?;
        let home = self.base.as_ref().is_some_and(|base| base.url.origin() == url.origin());
        if !home && self.base.is_some() && !self.headers.is_empty() {
            return Err(Failure::new(
                FailureClass::Permanent,
                "other-origin",
                format!(
                    "`with.url` leads to {}, which is not the destination's base_url, so its credentials stay here. Use a destination of its own for that host.",
                    url.host_str().unwrap_or_default()
                ),
            ));
        }
        let reach = if home || self.allow_private_addresses { Reach::Anywhere } else { Reach::Public };
        Ok((url, reach))
    }
}

impl Base {
    fn parse(text: &str) -> Result<Base, String> {
        let url = Url::parse(text).map_err(|error| format!("base_url: `{text}` is not a URL: {error}"))?;
        if !is_absolute(text) || !url.has_host() || url.query().is_some() || url.fragment().is_some() {
            return Err(format!("base_url: `{text}` must be http:// or https://, a host and at most a path"));
        }
        Ok(Base { text: text.trim_end_matches('/').to_owned(), url })
    }
}

fn is_absolute(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// What is the same in every attempt of one effect, and the trace it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a> {
    /// `None` for a read, which has no effect.
    pub(crate) effect_key: Option<&'a str>,
    pub(crate) traceparent: Option<&'a str>,
}

/// Builds the request.
pub(crate) fn build(settings: &Settings<'_>, target: &Target, marks: Marks<'_>) -> Result<Request, Failure> {
    let (url, reach) = target.locate(&settings.url, settings.query)?;
    let mut headers = target.headers.clone();
    for (name, value) in settings.headers.into_iter().flatten() {
        if value.is_null() {
            continue;
        }
        let parsed = header_name(name).map_err(|what| problem(&format!("headers.{name}"), what))?;
        let text = scalar(value)
            .ok_or_else(|| problem(&format!("headers.{name}"), format_args!("must be text; it is {}", kind(value))))?;
        let mut value = header_value(&format!("headers.{name}"), &text)?;
        value.set_sensitive(names_a_secret(parsed.as_str()));
        headers.insert(parsed, value);
    }

    let (body, content_type) = encode(&settings.body)?;
    if let Some(content_type) = content_type {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }
    if let Some(key) = marks.effect_key {
        let key = HeaderValue::from_str(key).map_err(|_| {
            Failure::new(FailureClass::Mapping, "invalid-key", "The effect's key has a character that no header may have.")
        })?;
        if let Some(name) = &settings.idempotency_header {
            let name = header_name(name).map_err(|what| problem("idempotency_header", what))?;
            headers.insert(name, key.clone());
        }
        headers.entry(IDEMPOTENCY_KEY).or_insert(key);
    }
    if let Some(traceparent) = marks.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.entry(TRACEPARENT).or_insert(traceparent);
    }
    Ok(Request { method: settings.method.clone(), url, headers, body, reach })
}

fn encode(body: &Body<'_>) -> Result<(Bytes, Option<&'static str>), Failure> {
    Ok(match body {
        Body::None => (Bytes::new(), None),
        Body::Json(value) => {
            let text = serde_json::to_vec(value).expect("a JSON value is written as JSON");
            (text.into(), Some("application/json"))
        }
        Body::Form(form) => {
            let mut text = String::new();
            pairs(form, "form", |name, value| {
                if !text.is_empty() {
                    text.push('&');
                }
                percent_encode(name, UNRESERVED, &mut text);
                text.push('=');
                percent_encode(value, UNRESERVED, &mut text);
            })?;
            (text.into(), Some("application/x-www-form-urlencoded"))
        }
        Body::Text(text) => (Bytes::copy_from_slice(text.as_bytes()), Some("text/plain; charset=utf-8")),
    })
}

/// Hands out names and values; a list is its name repeated, `null` is left out.
fn pairs(map: &Map<String, Value>, parameter: &str, mut each: impl FnMut(&str, &str)) -> Result<(), Failure> {
    for (name, value) in map {
        let values = value.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(value));
        for value in values.iter().filter(|value| !value.is_null()) {
            let text = scalar(value).ok_or_else(|| {
                problem(&format!("{parameter}.{name}"), format_args!("must be text or a list of texts; it holds {}", kind(value)))
            })?;
            each(name, &text);
        }
    }
    Ok(())
}

fn header_name(name: &str) -> Result<HeaderName, &'static str> {
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "is not a header name")?;
    if FRAMING.contains(&name.as_str()) {
        return Err("frames the request and cannot be set");
    }
    Ok(name)
}

fn header_value(parameter: &str, text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|_| problem(parameter, "has a character that no header may have, such as a line break"))
}

/// Whether the value under such a name is likely to be a credential.
fn names_a_secret(name: &str) -> bool {
    const MARKS: [&str; 8] = ["auth", "token", "secret", "password", "cookie", "api-key", "apikey", "signature"];
    MARKS.iter().any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    include!("request_tests.rs");
}
