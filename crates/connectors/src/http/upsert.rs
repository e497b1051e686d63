//! `http.upsert`: the requests of an upsert, from the parameters of the step.

use std::time::Duration;

use hyper::Method;
use serde_json::{Map, Value};
use sluice_domain::action::Action;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::template::url::{UNRESERVED, percent_encode};

use super::request::{EffectContext, build};
use super::response::{ResponseContext, body, is_web_page, outcome};
use super::settings::Settings;
use super::{Sent, Target, exchange};
use crate::outbound::{HttpResponse, Outbound, Request};
use crate::parameter::{problem, scalar, value};
use crate::text::{excerpt, exposed, redact, redact_outcome};
use crate::upsert::{self, UpsertRequests, several, usable_id};
use crate::{Call, deadline};

/// Place of the id in the URL of an update. Values are percent-encoded there, so that none of them can contain it.
const ID_IN_URL: &str = "{id}";

/// Statuses of an update that mean that there is no such record.
const GONE: [u16; 2] = [404, 410];

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let Some(identity) = Action::HttpUpsert.record_identity(call.with) else {
        return Outcome::Reject { failure: upsert::no_identity() };
    };
    let requests = Requests { outbound, target, timeout_max, call };
    let outcome = upsert::call(&requests, &identity, call.record).await;
    redact_outcome(outcome, exposed(&target.secrets))
}

pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let Some(identity) = Action::HttpUpsert.record_identity(call.with) else {
        return Readback::Unreadable(upsert::no_identity());
    };
    let requests = Requests { outbound, target, timeout_max, call };
    match upsert::read_back(&requests, &identity).await {
        Readback::Unreadable(failure) => {
            let message = redact(failure.message, exposed(&target.secrets));
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

/// The request that creates the record.
pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    if Action::HttpUpsert.record_identity(call.with).is_none() {
        return Err(upsert::no_identity());
    }
    prepared(target, call, part(call.with, "create")?, Some(call.effect_key))
}

struct Requests<'a> {
    outbound: &'a Outbound,
    target: &'a Target,
    timeout_max: Duration,
    call: Call<'a>,
}

impl UpsertRequests for Requests<'_> {
    async fn find(&self) -> Result<Option<Value>, Outcome> {
        let find = part(self.call.with, "find").map_err(reject)?;
        let answer = self.send(with_method(find, look_method(find)), None).await?;
        if answer.response.status == 404 {
            return Ok(None);
        }
        let found = self.readable(&answer)?;
        match text(find, "records").map_err(reject)? {
            None => match usable_id(pointed(&found, find, "id").map_err(reject)?) {
                None if found.as_str().is_some_and(|text| !text.trim().is_empty()) => {
                    Err(unexpected(&answer, "a text that is no record"))
                }
                id => Ok(id),
            },
            Some(_) => match pointed(&found, find, "records").map_err(reject)? {
                Some(Value::Array(records)) => match &records[..] {
                    [] => Ok(None),
                    [record] => match usable_id(pointed(record, find, "id").map_err(reject)?) {
                        Some(id) => Ok(Some(id)),
                        None => Err(unexpected(&answer, "a record without an id at `find.id`")),
                    },
                    records => Err(several(records.len())),
                },
                _ => Err(unexpected(&answer, "no list of records at `find.records`")),
            },
        }
    }

    async fn create(&self) -> Result<Value, Outcome> {
        let create = part(self.call.with, "create").map_err(reject)?;
        let answer = self.send(create.clone(), Some(self.call.effect_key)).await?;
        let created = self.readable(&answer)?;
        // The record is there, and will be found.
        usable_id(pointed(&created, create, "id").map_err(reject)?)
            .ok_or_else(|| unexpected(&answer, "no id at `create.id`"))
    }

    async fn update(&self, id: &Value) -> Result<bool, Outcome> {
        if value(self.call.with, "update").is_none() {
            return Ok(true);
        }
        let update = part(self.call.with, "update").map_err(reject)?;
        let addressed = addressed(update, id).map_err(reject)?;
        let answer = self.send(with_method(&addressed, Method::PATCH), None).await?;
        if GONE.contains(&answer.response.status) {
            return Ok(false);
        }
        self.accepted(&answer).map(|_| true)
    }
}

/// An answer, and what was sent for it.
struct Answer {
    response: HttpResponse,
    sent: Sent,
}

impl Requests<'_> {
    async fn send(&self, part: Value, effect_key: Option<&str>) -> Result<Answer, Outcome> {
        let settings = Settings::read(&part).map_err(reject)?;
        let context = EffectContext { effect_key, traceparent: self.call.traceparent, now: self.call.now };
        let limit = deadline([self.call.timeout, self.timeout_max]);
        let (answered, sent) = exchange(self.outbound, self.target, &settings, (context, limit)).await;
        match answered {
            Ok(response) => Ok(Answer { response, sent }),
            Err(outcome) => Err(sent.redact(outcome, self.target)),
        }
    }

    /// Body of an answer that means success and has a record, or says that there is none.
    fn readable(&self, answer: &Answer) -> Result<Value, Outcome> {
        let body = self.accepted(answer)?;
        match is_web_page(&answer.response) {
            true => Err(unexpected(answer, "a web page")),
            false => Ok(body),
        }
    }

    /// Body of an answer that means success.
    fn accepted(&self, answer: &Answer) -> Result<Value, Outcome> {
        let Answer { response, sent } = answer;
        let context = ResponseContext {
            host: &sent.host,
            class: EffectClass::Verifiable,
            accept_status: &[],
            rules: &self.target.rules,
            now: self.call.now,
        };
        match outcome(response, context) {
            Outcome::Done { .. } if response.truncated => Err(unexpected(answer, "more than fits")),
            Outcome::Done { .. } => {
                let body = body(response);
                match self.error(&body).map_err(reject)? {
                    Some(failed) => Err(failed),
                    None => Ok(body),
                }
            }
            failed => Err(sent.redact(failed, self.target)),
        }
    }

    /// The failure that an answer with a status of success reports at `error_at`.
    fn error(&self, body: &Value) -> Result<Option<Outcome>, Failure> {
        let Some(error) = pointed(body, self.call.with, "error_at")?.filter(|error| !is_nothing(error)) else {
            return Ok(None);
        };
        let text = error.to_string();
        let quoted = excerpt(text.as_bytes());
        let is_temporary = texts(self.call.with, "retry_on").any(|part| text.contains(part));
        Ok(Some(if is_temporary {
            let message = format!("The destination reports an error that may pass: {quoted}");
            Outcome::Retry { failure: Failure::new(FailureClass::Retryable, "reported-error", message), after: None }
        } else {
            let message = format!("The destination rejects this request; correct it, then replay the job: {quoted}");
            Outcome::Reject { failure: Failure::new(FailureClass::Permanent, "reported-error", message) }
        }))
    }
}

fn prepared(target: &Target, call: &Call<'_>, part: &Value, effect_key: Option<&str>) -> Result<Request, Failure> {
    let context = EffectContext { effect_key, traceparent: call.traceparent, now: call.now };
    build(&Settings::read(part)?, target, context)
}

/// An answer of success without what the step expects.
fn unexpected(answer: &Answer, what: &str) -> Outcome {
    let text = format!("{} answered with {what}: {}", answer.sent.host, excerpt(&answer.response.body));
    let failure = Failure::new(FailureClass::Retryable, "unexpected-response", text);
    Outcome::Unsure { failure: failure.with_status(answer.response.status) }
}

fn reject(failure: Failure) -> Outcome {
    Outcome::Reject { failure }
}

fn part<'a>(with: &'a Value, name: &str) -> Result<&'a Value, Failure> {
    value(with, name).filter(|part| part.is_object()).ok_or_else(|| problem(name, "is missing or not a map"))
}

/// A look is a GET unless it has a body.
fn look_method(find: &Value) -> Method {
    let has_body = ["json", "form", "text"].iter().any(|name| find.get(name).is_some());
    if has_body { Method::POST } else { Method::GET }
}

fn with_method(part: &Value, usual: Method) -> Value {
    let mut part = part.clone();
    if let Value::Object(entries) = &mut part
        && value(&Value::Object(entries.clone()), "method").is_none()
    {
        entries.insert("method".to_owned(), usual.as_str().into());
    }
    part
}

/// The update with the id of its record in the URL and in the body.
fn addressed(update: &Value, id: &Value) -> Result<Value, Failure> {
    let mut update = update.clone();
    let text = scalar(id).unwrap_or_default().into_owned();
    if let Some(Value::String(url)) = update.get_mut("url") {
        let mut encoded = String::new();
        percent_encode(&text, UNRESERVED, &mut encoded);
        *url = url.replace(ID_IN_URL, &encoded);
    }
    let places: Vec<String> = texts(&update, "id_at").map(str::to_owned).collect();
    for place in places {
        let json = update.get_mut("json").and_then(|json| json.pointer_mut(&place));
        let target = match json {
            Some(target) => Some(target),
            None => update.get_mut("form").and_then(|form| form.pointer_mut(&place)),
        };
        let target = target.ok_or_else(|| problem("update.id_at", format_args!("`{place}` is not in the body")))?;
        *target = id.clone();
    }
    Ok(update)
}

/// Value that a parameter points to; `None` without the parameter.
fn pointed<'v>(body: &'v Value, part: &Value, name: &str) -> Result<Option<&'v Value>, Failure> {
    Ok(text(part, name)?.and_then(|pointer| body.pointer(pointer)))
}

/// A JSON pointer.
fn text<'a>(part: &'a Value, name: &str) -> Result<Option<&'a str>, Failure> {
    match value(part, name) {
        None => Ok(None),
        Some(Value::String(pointer)) if pointer.is_empty() || pointer.starts_with('/') => Ok(Some(pointer)),
        Some(_) => Err(problem(name, "must be a JSON pointer, such as /result/0/id")),
    }
}

/// One text, or a list of them.
fn texts<'a>(part: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    let given = value(part, name);
    let items = given.map(|given| given.as_array().map_or(std::slice::from_ref(given), Vec::as_slice));
    items.unwrap_or_default().iter().filter_map(Value::as_str)
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => Map::is_empty(entries),
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_id_is_put_into_the_url_and_the_body_and_data_cannot_name_its_place() {
        let update = json!({
            "url": "/contacts/{id}/of/%7Bid%7D",
            "json": {"params": [[null], {"name": "{id}"}]},
            "id_at": "/params/0/0",
        });
        let addressed = super::addressed(&update, &json!("a/b c")).unwrap();
        assert_eq!(addressed["url"], "/contacts/a%2Fb%20c/of/%7Bid%7D");
        assert_eq!(addressed["json"], json!({"params": [["a/b c"], {"name": "{id}"}]}));
        let number = super::addressed(&update, &json!(7)).unwrap();
        assert_eq!(number["json"]["params"][0], json!([7]));
        let missing = json!({"url": "/x", "json": {}, "id_at": ["/params/0"]});
        let failure = super::addressed(&missing, &json!(7)).unwrap_err();
        assert!(failure.message.contains("`/params/0` is not in the body"), "{}", failure.message);
    }

    #[test]
    fn a_look_has_the_method_of_its_body() {
        assert_eq!(look_method(&json!({"url": "/x"})), Method::GET);
        assert_eq!(look_method(&json!({"url": "/x", "json": {}})), Method::POST);
        assert_eq!(with_method(&json!({"method": "PUT"}), Method::PATCH)["method"], "PUT");
        assert_eq!(with_method(&json!({"method": null}), Method::PATCH)["method"], "PATCH");
    }

    #[test]
    fn an_error_is_a_value_that_says_something() {
        for nothing in [json!(null), json!(false), json!(""), json!([]), json!({})] {
            assert!(is_nothing(&nothing), "{nothing}");
        }
        for something in [json!(["UserError", []]), json!("x"), json!(0), json!(true)] {
            assert!(!is_nothing(&something), "{something}");
        }
    }
}
