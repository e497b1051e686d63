//! Parameters of an `http.request` step.

use std::borrow::Cow;
use std::time::Duration;

use hyper::Method;
use serde_json::{Map, Value, json};
use sluice_domain::action::Action;
use sluice_domain::outcome::{EffectClass, Failure};
use sluice_domain::template::{Expression, Scope};
use sluice_domain::unit;

use crate::parameter::{kind, map, problem, required, text, value};

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) method: Method,
    pub(crate) url: Cow<'a, str>,
    pub(crate) headers: Option<&'a Map<String, Value>>,
    pub(crate) query: Option<&'a Map<String, Value>>,
    pub(crate) body: Body<'a>,
    pub(crate) idempotency_header: Option<Cow<'a, str>>,
    pub(crate) accept_status: Vec<u16>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) class: EffectClass,
    /// Must hold besides the status. Of a read-back: whether a 2xx answer has the effect.
    pub(crate) success_if: Option<Expression>,
    /// Output of the step; empty: status, headers and body.
    pub(crate) result: Vec<(&'a str, Expression)>,
}

/// Variables of the rules over an answer, besides `response`.
pub(crate) fn rule_scope(with: &Value, effect_key: &str) -> Scope {
    let mut scope = Scope::new();
    scope.set("with", with.clone());
    scope.set("effect", json!({ "key": effect_key }));
    scope
}

#[derive(Debug)]
pub(crate) enum Body<'a> {
    None,
    Json(&'a Value),
    Form(&'a Map<String, Value>),
    Text(Cow<'a, str>),
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let method = match text(with, "method")?.as_deref() {
            None | Some("POST") => Method::POST,
            Some("GET") => Method::GET,
            Some("PUT") => Method::PUT,
            Some("PATCH") => Method::PATCH,
            Some("DELETE") => Method::DELETE,
            Some(other) => {
                return Err(problem(
                    "method",
                    format_args!("must be GET, POST, PUT, PATCH or DELETE; it is `{other}`"),
                ));
            }
        };
        let timeout = text(with, "timeout")?
            .map(|text| unit::duration(&text))
            .transpose()
            .map_err(|error| problem("timeout", error))?;
        Ok(Settings {
            method,
            url: required(with, "url")?,
            headers: map(with, "headers")?,
            query: map(with, "query")?,
            body: Body::read(with)?,
            idempotency_header: text(with, "idempotency_header")?,
            accept_status: accept_status(with)?,
            timeout,
            class: Action::HttpRequest.class(with),
            success_if: with.get("success_if").map(|rule| expression("success_if", rule)).transpose()?.flatten(),
            result: result(with)?,
        })
    }

    /// Parameters of the `verify:` request, if configured.
    pub(crate) fn read_verify(with: &'a Value) -> Result<Option<Settings<'a>>, Failure> {
        let Some(verify) = map(with, "verify")? else { return Ok(None) };
        let url = verify.get("url").and_then(Value::as_str).filter(|url| !url.trim().is_empty());
        let headers = match verify.get("headers") {
            None | Some(Value::Null) => None,
            Some(Value::Object(headers)) => Some(headers),
            Some(other) => {
                return Err(problem("verify.headers", format_args!("must be a map; it is {}", kind(other))));
            }
        };
        Ok(Some(Settings {
            method: Method::GET,
            url: Cow::Borrowed(url.ok_or_else(|| problem("verify.url", "is missing or not text"))?),
            headers,
            query: None,
            body: Body::None,
            idempotency_header: None,
            accept_status: Vec::new(),
            timeout: None,
            class: EffectClass::Natural,
            success_if: verify.get("found").map(|found| expression("verify.found", found)).transpose()?.flatten(),
            result: Vec::new(),
        }))
    }
}

impl<'a> Body<'a> {
    fn read(with: &'a Value) -> Result<Body<'a>, Failure> {
        // `json: null` is a body; only a missing key means no body.
        let given = [
            ("json", with.get("json").map(Body::Json)),
            ("form", map(with, "form")?.map(Body::Form)),
            ("text", text(with, "text")?.map(Body::Text)),
        ];
        let mut body = ("", Body::None);
        for (name, found) in given {
            let Some(found) = found else { continue };
            if !body.0.is_empty() {
                return Err(problem(name, format_args!("and `with.{}` are both set; a request has one body", body.0)));
            }
            body = (name, found);
        }
        Ok(body.1)
    }
}

/// An expression, with or without braces; `None` for null.
fn expression(name: &str, value: &Value) -> Result<Option<Expression>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    let text =
        value.as_str().ok_or_else(|| problem(name, format_args!("must be an expression; it is {}", kind(value))))?;
    let trimmed = text.trim();
    let inside = trimmed.strip_prefix("{{").and_then(|inside| inside.strip_suffix("}}")).unwrap_or(trimmed);
    Expression::parse(inside).map(Some).map_err(|error| problem(name, format_args!("is not an expression: {error}")))
}

fn result(with: &Value) -> Result<Vec<(&str, Expression)>, Failure> {
    let mut parts = Vec::new();
    for (name, value) in map(with, "result")?.into_iter().flatten() {
        parts.extend(expression(&format!("result.{name}"), value)?.map(|expression| (name.as_str(), expression)));
    }
    Ok(parts)
}

fn accept_status(with: &Value) -> Result<Vec<u16>, Failure> {
    let Some(given) = value(with, "accept_status") else { return Ok(Vec::new()) };
    let numbers = given.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(given));
    let status = |number: &Value| {
        number.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| (100..=599).contains(number))
    };
    numbers
        .iter()
        .map(status)
        .collect::<Option<_>>()
        .ok_or_else(|| problem("accept_status", "must be a list of HTTP statuses such as [404, 409]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_domain::outcome::FailureClass;

    #[test]
    fn absent_parameters_have_defaults() {
        let with = json!({"url": "/x", "headers": null, "timeout": null});
        let settings = Settings::read(&with).unwrap();
        assert_eq!(settings.method, Method::POST);
        assert!(settings.headers.is_none() && settings.query.is_none() && settings.timeout.is_none());
        assert!(matches!(settings.body, Body::None) && settings.accept_status.is_empty());
        assert_eq!(settings.class, EffectClass::Blind);
        assert!(Settings::read_verify(&with).unwrap().is_none());
    }

    #[test]
    fn problems_name_the_parameter() {
        let table = [
            (json!({}), "`with.url` is missing."),
            (json!({"url": "  "}), "`with.url` is empty."),
            (json!({"url": ["/x"]}), "`with.url` must be text; it is a list."),
            (json!({"url": "/x", "method": "HEAD"}), "`with.method` must be GET"),
            (json!({"url": "/x", "headers": "a"}), "`with.headers` must be a map"),
            (json!({"url": "/x", "query": [1]}), "`with.query` must be a map"),
            (json!({"url": "/x", "json": 1, "text": "a"}), "`with.text` and `with.json` are both set"),
            (json!({"url": "/x", "timeout": "soon"}), "`with.timeout` `soon` is not a duration"),
            (json!({"url": "/x", "accept_status": [404, "x"]}), "`with.accept_status` must be a list"),
            (json!({"url": "/x", "accept_status": [70_000]}), "`with.accept_status` must be a list"),
        ];
        for (with, expected) in table {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
            assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Mapping, "invalid-parameter"));
        }
        let failure = Settings::read_verify(&json!({"url": "/x", "verify": {"headers": {}}})).unwrap_err();
        assert!(failure.message.contains("`with.verify.url`"), "{}", failure.message);
    }
}
