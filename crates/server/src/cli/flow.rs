//! Shared by `try` and `send`: a flow, and a payload signed like its sender.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::flow::{BodyFormat, Flow};
use sluice_domain::payload::write_form;
use sluice_domain::template::Template;
use sluice_domain::verify::{Scheme, SecretValue, UnsignedRequest, sign};

use super::up::explain;
use super::{CliError, exit};
use crate::config::{self, EnvironmentThenFiles, did_you_mean};
use crate::revisions::LoadedRevision;
use crate::run::StartError;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Directory of a configuration, which may be one file.
pub(super) fn directory(config: &Path) -> PathBuf {
    if config.is_dir() { config.to_owned() } else { config.parent().unwrap_or(Path::new(".")).to_owned() }
}

/// Loads a configuration, without warnings.
pub(super) fn load(path: &Path) -> Result<LoadedRevision, CliError> {
    let files = config::read(path).map_err(|error| explain(error.into()))?;
    let mut compiled = config::compile(&files, &EnvironmentThenFiles::new(directory(path)));
    match compiled.config.take() {
        Some(config) => LoadedRevision::new(config, compiled.secrets).map_err(|error| explain(error.into())),
        None => Err(explain(StartError::Config(Box::new(compiled), files))),
    }
}

/// Flow by name or path.
pub(super) fn find<'a>(live: &'a LoadedRevision, wanted: &str) -> Result<&'a Arc<Flow>, CliError> {
    let flows = &live.config.flows;
    let mut at_path = flows.values().filter(|flow| flow.path == wanted);
    if let Some(flow) = flows.get(wanted).or_else(|| at_path.next()) {
        return Ok(flow);
    }
    let paths = flows.values().map(|flow| flow.path.as_str());
    let names: Vec<&str> = flows.keys().map(String::as_str).collect();
    let hint = match did_you_mean(wanted, names.iter().copied().chain(paths)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "the configuration has no flows; use another one with --config DIR".to_owned(),
        None => {
            format!("the flows are {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Err(CliError::new(exit::NO, format!("unknown flow `{wanted}`; {hint}")))
}

pub(super) fn payload(file: &Path, flow: &Flow) -> Result<Vec<u8>, CliError> {
    let unreadable =
        |error: std::io::Error| CliError::new(exit::USAGE, format!("{} cannot be read: {error}", file.display()));
    // Reads one byte over the limit to detect an excess.
    let limit = flow.body_bytes_max.saturating_add(1);
    let mut body = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut body).map_err(unreadable)?;
    } else {
        std::fs::File::open(file).map_err(unreadable)?.take(limit).read_to_end(&mut body).map_err(unreadable)?;
    }
    if body.len() as u64 > flow.body_bytes_max {
        return Err(CliError::new(
            exit::NO,
            format!(
                "rejected: 413 body-too-large: the payload exceeds the limit of this flow, {} bytes",
                flow.body_bytes_max
            ),
        ));
    }
    Ok(body)
}

#[derive(Debug)]
pub(super) struct Signed {
    /// Names are lower case.
    pub headers: Vec<(String, SecretValue)>,
    /// Query string of the credential, if the scheme uses one.
    pub query: Option<SecretValue>,
    pub body: Vec<u8>,
}

/// Payload in the format of the flow's sender, with its content type. A form may be given as a form or as the
/// equivalent JSON object; a trailing line break is removed.
fn in_its_form<'b>(flow: &Flow, given: Option<&'b str>, body: &'b [u8]) -> (&'b str, Cow<'b, [u8]>) {
    if let Some(given) = given {
        return (given, Cow::Borrowed(body));
    }
    let looks_like_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'[') | None);
    let looks_like_form = !looks_like_json && body.contains(&b'=');
    let is_form = match flow.body.format {
        BodyFormat::Json => false,
        BodyFormat::Form => true,
        BodyFormat::JsonOrForm => looks_like_form,
    };
    if !is_form {
        return (JSON, Cow::Borrowed(body));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => (FORM, Cow::Owned(write_form(&members).into_bytes())),
        _ => (FORM, Cow::Borrowed(body.trim_ascii_end())),
    }
}

/// Signs a payload like the flow's sender, and sets the id in the header that the flow reads it from. Explicit headers take
/// precedence.
pub(super) fn signed(flow: &Flow, id: &str, body: &[u8], given: &[(String, String)]) -> Result<Signed, CliError> {
    let mut signed = sign_only(flow, id, body, given)?;
    set_id(flow, id, &mut signed.headers, given);
    set_headers(&mut signed.headers, given);
    Ok(signed)
}

/// Sets the header that the key or the event id is read from, unless one of several is set. Headers of the event type are no ids.
fn set_id(flow: &Flow, id: &str, headers: &mut Vec<(String, SecretValue)>, given: &[(String, String)]) {
    let types = flow.event.event_type.headers();
    let of_event = flow.event.source_event_id.as_ref().map(Template::headers).unwrap_or_default();
    let of_keys = flow.idempotency.strategies.iter().flat_map(|strategy| strategy.identifying_headers(&flow.event));
    let names: Vec<String> = of_keys.chain(of_event).filter(|name| !types.contains(name)).collect();
    let is_set = |name: &String| headers.iter().any(|(own, _)| own == name) || given.iter().any(|(own, _)| own == name);
    if let Some(name) = names.first().filter(|_| !names.iter().any(is_set)) {
        headers.push((name.clone(), SecretValue::from(id)));
    }
}

/// Says so if an explicit id reached no header: the flow reads its event id from the payload then.
pub(super) fn note_unused_id(flow: &Flow, id: Option<&String>, signed: &Signed) {
    // Mailgun's token is made of the id.
    let in_body = flow.verify.as_ref().is_some_and(|verifier| verifier.scheme() == Scheme::Mailgun);
    let Some(id) = id.filter(|_| !in_body) else { return };
    if !signed.headers.iter().any(|(_, value)| value.expose() == id) {
        anstream::eprintln!(
            "--id has no effect: the flow `{}` reads its event id from the payload, not from a header",
            flow.name
        );
    }
}

/// Without a verifier the payload is unchanged.
fn sign_only(flow: &Flow, id: &str, body: &[u8], given: &[(String, String)]) -> Result<Signed, CliError> {
    let given = given.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.as_str());
    let (form, body) = in_its_form(flow, given, body);
    let content_type = ("content-type".to_owned(), SecretValue::from(form));
    let Some(verifier) = &flow.verify else {
        return Ok(Signed { headers: vec![content_type], query: None, body: body.into_owned() });
    };
    let unsigned = UnsignedRequest { method: &flow.method, id, content_type: form, body: &body };
    let signed = sign(verifier, &unsigned, jiff::Timestamp::now()).map_err(|problem| {
        CliError::new(
            exit::NO,
            format!("the payload cannot be signed for `{}` ({}): {problem}", flow.name, verifier.scheme()),
        )
    })?;
    let mut headers = vec![content_type];
    headers.extend(signed.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)));
    Ok(Signed { headers, query: signed.query, body: signed.body })
}

/// `Name: value`, as a flag.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("use the format 'Name: value'")?;
    let name = hyper::header::HeaderName::from_bytes(name.trim().as_bytes()).map_err(|error| error.to_string())?;
    let value = value.trim();
    hyper::header::HeaderValue::from_str(value).map_err(|error| error.to_string())?;
    Ok((name.as_str().to_owned(), value.to_owned()))
}

/// Sets explicit headers, which override the sender's.
fn set_headers(headers: &mut Vec<(String, SecretValue)>, given: &[(String, String)]) {
    for (name, value) in given {
        headers.retain(|(own, _)| own != name);
        headers.push((name.clone(), SecretValue::from(value.as_str())));
    }
}
