//! SendGrid and Postmark: neither has an idempotency key, so that every request is another mail.

use hyper::StatusCode;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use super::ServiceKind;
use super::shared::ServiceRequest;
use super::state::ServiceState;
use crate::reply::FakeReply;
use crate::uri::form_value;

const X_MESSAGE_ID: HeaderName = HeaderName::from_static("x-message-id");
const POSTMARK_BATCH_MAX: usize = 500;
/// A recipient that Postmark refuses because it bounced or complained.
const INACTIVE: &str = "inactive@";

pub(super) fn sendgrid(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    let refused = |status, message: &str, field: Value| {
        FakeReply::json(status, &json!({"errors": [{"message": message, "field": field, "help": null}]}))
    };
    if request.authorization() != format!("Bearer {}", ServiceKind::Sendgrid.credential()) {
        let message = "The provided authorization grant is invalid, expired, or revoked";
        return refused(StatusCode::UNAUTHORIZED, message, Value::Null);
    }
    if (request.method, request.path) != ("POST", "/v3/mail/send") {
        return refused(StatusCode::NOT_FOUND, "not found", Value::Null);
    }
    let Some(mail) = request.json() else {
        return refused(StatusCode::BAD_REQUEST, "Bad Request", Value::Null);
    };
    let problem = |field: &str, message: &str| refused(StatusCode::BAD_REQUEST, message, field.into());
    let personalizations = mail["personalizations"].as_array().map(Vec::as_slice).unwrap_or_default();
    if personalizations.is_empty() {
        return problem(
            "personalizations",
            "The personalizations field is required and must have at least one personalization.",
        );
    }
    for (index, personalization) in personalizations.iter().enumerate() {
        let recipients = personalization["to"].as_array().map(Vec::as_slice).unwrap_or_default();
        if recipients.is_empty() || recipients.iter().any(|to| !is_address(&to["email"])) {
            let field = format!("personalizations.{index}.to");
            return problem(
                &field,
                "The to array is required for all personalization objects, and must have at least one email object with a valid email address.",
            );
        }
    }
    if !is_address(&mail["from"]["email"]) {
        return problem("from.email", "The from email does not contain a valid address.");
    }
    if !mail["template_id"].is_string() && mail["content"].as_array().is_none_or(Vec::is_empty) {
        return problem(
            "content",
            "Unless a valid template_id is provided, the content parameter is required. There must be at least one defined content block.",
        );
    }
    let key = effect_key(&personalizations[0]["custom_args"]).or_else(|| effect_key(&mail["custom_args"]));
    let to = personalizations[0]["to"][0]["email"].as_str().unwrap_or_default().to_owned();
    let id = state.apply("mail", &key.unwrap_or(to), mail, |number| format!("sim{number:019}"));
    FakeReply::empty(StatusCode::ACCEPTED).with(X_MESSAGE_ID, &id)
}

pub(super) fn postmark(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    if request.header("x-postmark-server-token") != ServiceKind::Postmark.credential() {
        let message = "The Server Token you provided in the X-Postmark-Server-Token request header was invalid.";
        return FakeReply::json(StatusCode::UNAUTHORIZED, &json!({"ErrorCode": 10, "Message": message}));
    }
    match (request.method, request.path) {
        ("POST", "/email") => match request.json() {
            Some(mail) => {
                let answer = postmark_send(state, &mail);
                let is_sent = answer["ErrorCode"] == 0;
                let status = if is_sent { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
                FakeReply::json(status, &answer)
            }
            None => unprocessable(402, "Received invalid JSON input."),
        },
        ("POST", "/email/batch") => match request.json() {
            Some(Value::Array(mails)) if mails.len() <= POSTMARK_BATCH_MAX => {
                let answers: Vec<Value> = mails.iter().map(|mail| postmark_send(state, mail)).collect();
                FakeReply::json(StatusCode::OK, &answers)
            }
            Some(Value::Array(_)) => unprocessable(410, "Too many messages in one request; the maximum is 500."),
            _ => unprocessable(402, "Received invalid JSON input."),
        },
        ("GET", "/messages/outbound") => postmark_list(state, request.query),
        _ => FakeReply::json(StatusCode::NOT_FOUND, &json!({"ErrorCode": 404, "Message": "Not found"})),
    }
}

fn postmark_send(state: &mut ServiceState, mail: &Value) -> Value {
    let text = |name: &str| mail[name].as_str().unwrap_or_default();
    let to = text("To");
    let refused = |code: u32, message: &str| json!({"ErrorCode": code, "Message": message});
    if !text("From").contains('@') {
        return refused(300, "Invalid 'From' address.");
    }
    if to.is_empty() || to.split(',').any(|address| !address.contains('@')) {
        return refused(300, "Invalid 'To' address.");
    }
    if to.contains(INACTIVE) {
        return refused(406, "You tried to send to recipient(s) that have been marked as inactive.");
    }
    if text("TextBody").is_empty() && text("HtmlBody").is_empty() {
        return refused(300, "Provide either email TextBody or HtmlBody or both.");
    }
    let key = effect_key(&mail["Metadata"]).unwrap_or_else(|| to.to_owned());
    let id = state.apply("mail", &key, mail.clone(), |number| format!("00000000-0000-4000-8000-{number:012x}"));
    let at = jiff::Timestamp::now().to_string();
    json!({"To": to, "SubmittedAt": at, "MessageID": id, "ErrorCode": 0, "Message": "OK"})
}

/// Newest first.
fn postmark_list(state: &ServiceState, query: &str) -> FakeReply {
    let recipient = form_value(query, "recipient").unwrap_or_default();
    let number = |name: &str| form_value(query, name).and_then(|text| text.parse::<usize>().ok());
    let (Some(count), Some(offset)) = (number("count"), number("offset")) else {
        return unprocessable(600, "count and offset are required.");
    };
    let to = |mail: &Value| mail["To"].as_str().unwrap_or_default().to_owned();
    let found: Vec<Value> = state
        .effects
        .iter()
        .rev()
        .filter(|effect| to(&effect.fields).contains(&recipient))
        .map(|effect| {
            json!({
                "MessageID": effect.id, "To": [{"Email": to(&effect.fields), "Name": null}], "Status": "Sent",
                "Subject": effect.fields["Subject"], "Metadata": effect.fields["Metadata"], "Tag": effect.fields["Tag"],
            })
        })
        .collect();
    let page: Vec<&Value> = found.iter().skip(offset).take(count.min(500)).collect();
    FakeReply::json(StatusCode::OK, &json!({"TotalCount": found.len(), "Messages": page}))
}

fn unprocessable(code: u32, message: &str) -> FakeReply {
    FakeReply::json(StatusCode::UNPROCESSABLE_ENTITY, &json!({"ErrorCode": code, "Message": message}))
}

fn effect_key(arguments: &Value) -> Option<String> {
    Some(arguments["effect_key"].as_str()?.to_owned())
}

fn is_address(value: &Value) -> bool {
    let parts = value.as_str().and_then(|text| text.split_once('@'));
    parts.is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains([' ', '@']))
}
