//! Parses a request body by its content type and encoding.

use std::borrow::Cow;

use hyper::{HeaderMap, StatusCode};
use serde_json::Value;
use sluice_domain::flow::{BodyFormat, Flow};
use sluice_domain::payload::{self, PayloadProblem};

use super::answer::HttpProblem;
use super::decode::decode;

pub(super) struct Payload<'b> {
    pub value: Value,
    /// JSON text of the body, if it was JSON.
    pub text: Option<Cow<'b, [u8]>>,
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";

pub(super) fn read<'b>(flow: &Flow, headers: &HeaderMap, body: &'b [u8]) -> Result<Payload<'b>, HttpProblem> {
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parameters = content_type.split(';').map(str::trim);
    let essence = parameters.next().unwrap_or_default().to_ascii_lowercase();
    for parameter in parameters {
        check_charset(parameter)?;
    }
    let is_multipart = essence == MULTIPART && flow.body.format != BodyFormat::Json;
    let is_form = is_multipart
        || match (flow.body.format, essence.as_str()) {
            (BodyFormat::Form, "") => true,
            (BodyFormat::Json | BodyFormat::JsonOrForm, "") => false,
            (BodyFormat::Form | BodyFormat::JsonOrForm, FORM) => true,
            (BodyFormat::Json | BodyFormat::JsonOrForm, essence) if essence == JSON || essence.ends_with("+json") => {
                false
            }
            _ => return Err(wrong_type(flow.body.format, &essence)),
        };
    let text = decode(headers, body, flow.body_bytes_max)?;
    if text.is_empty() {
        return Err(problem(PayloadProblem::Empty));
    }
    if is_form {
        let value = if is_multipart {
            payload::parse_multipart(&text, content_type, flow.body.duplicate_keys)
        } else {
            payload::parse_form(&text, flow.body.duplicate_keys)
        };
        let value = value.map_err(problem)?;
        return Ok(Payload { value, text: None });
    }
    let value = payload::parse_json(&text, flow.body.duplicate_keys).map_err(problem)?;
    // The stored text must be valid JSON, and a byte order mark is not.
    let text = Some(text).filter(|text| !text.starts_with(b"\xef\xbb\xbf"));
    Ok(Payload { value, text })
}

fn wrong_type(format: BodyFormat, essence: &str) -> HttpProblem {
    let taken = match format {
        BodyFormat::Json => JSON.to_owned(),
        BodyFormat::Form => format!("{FORM} and {MULTIPART}"),
        BodyFormat::JsonOrForm => format!("{JSON}, {FORM} and {MULTIPART}"),
    };
    let essence: String = essence.chars().take(80).collect();
    HttpProblem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-type-unsupported",
        format!("the content type is {essence}; this flow accepts {taken}"),
    )
}

fn check_charset(parameter: &str) -> Result<(), HttpProblem> {
    let Some((name, value)) = parameter.split_once('=') else { return Ok(()) };
    let value = value.trim().trim_matches('"');
    let known = ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|name| name.eq_ignore_ascii_case(value));
    if !name.trim().eq_ignore_ascii_case("charset") || known {
        return Ok(());
    }
    let value: String = value.chars().take(40).collect();
    Err(HttpProblem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "charset-unsupported",
        format!("the charset of the body is {value}; use UTF-8"),
    ))
}

/// Error response for a body that cannot be parsed.
pub(super) fn problem(problem: PayloadProblem) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, problem.code(), problem.to_string())
}
