//! Twilio: SMS of the API of 2010-04-01. There is no idempotency key: every request is another message.
//!
//! The numbers of Twilio's test credentials fail as there: +15005550001 is not valid, +15005550004 has opted out, +15005550009
//! cannot receive SMS.

use hyper::StatusCode;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::{Value, json};

use super::ServiceKind;
use super::shared::ServiceRequest;
use super::state::ServiceState;
use crate::reply::FakeReply;
use crate::uri::form_value;

const PAGE: usize = 50;
const PAGE_MAX: usize = 1_000;
const BODY_CHARACTERS_MAX: usize = 1_600;

pub(super) fn answer(state: &mut ServiceState, request: &ServiceRequest<'_>) -> FakeReply {
    let credential = (ServiceKind::ACCOUNT.to_owned(), ServiceKind::Twilio.credential().to_owned());
    if request.basic() != Some(credential) {
        return error(StatusCode::UNAUTHORIZED, 20003, "Authenticate");
    }
    let base = format!("/2010-04-01/Accounts/{}/Messages", ServiceKind::ACCOUNT);
    match (request.method, request.path.strip_prefix(&base)) {
        ("POST", Some(".json")) => send(state, request.form()),
        ("GET", Some(".json")) => list(state, request.query),
        ("GET", Some(one)) => {
            let sid = one.trim_start_matches('/').trim_end_matches(".json");
            match state.effects.iter().find(|effect| effect.id == sid) {
                Some(effect) => FakeReply::json(StatusCode::OK, &effect.fields),
                None => error(StatusCode::NOT_FOUND, 20404, "The requested resource was not found"),
            }
        }
        _ => error(StatusCode::NOT_FOUND, 20404, "The requested resource was not found"),
    }
}

fn send(state: &mut ServiceState, form: &str) -> FakeReply {
    let field = |name: &str| form_value(form, name).unwrap_or_default();
    let (to, from, body) = (field("To"), field("From"), field("Body"));
    let service = field("MessagingServiceSid");
    let refused = |code, message: String| error(StatusCode::BAD_REQUEST, code, &message);
    if from.is_empty() && service.is_empty() {
        return refused(21603, "A 'From' phone number is required".to_owned());
    }
    if body.is_empty() {
        return refused(21602, "Message body is required".to_owned());
    }
    if body.chars().count() > BODY_CHARACTERS_MAX {
        return refused(21617, "The concatenated message body exceeds the 1600 character limit".to_owned());
    }
    match to.as_str() {
        "+15005550004" => return refused(21610, "Attempt to send to unsubscribed recipient".to_owned()),
        "+15005550009" => return refused(21614, format!("'To' number: {to}, is not a valid mobile number")),
        "+15005550001" => return refused(21211, format!("Invalid 'To' Phone Number: {to}")),
        to if !is_number(to) => return refused(21211, format!("Invalid 'To' Phone Number: {to}")),
        _ => {}
    }
    let now = DateTimePrinter::new().timestamp_to_string(&jiff::Timestamp::now()).unwrap_or_default();
    let account = ServiceKind::ACCOUNT;
    let mut message = json!({
        "account_sid": account, "api_version": "2010-04-01", "body": body, "date_created": now, "date_sent": null,
        "date_updated": now, "direction": "outbound-api", "error_code": null, "error_message": null,
        "from": if from.is_empty() { Value::Null } else { from.into() },
        "messaging_service_sid": if service.is_empty() { Value::Null } else { service.into() },
        "num_media": "0", "num_segments": "1", "price": null, "price_unit": "USD", "status": "queued", "to": to,
        "subresource_uris": {},
    });
    let number = state.truth.effects + 1;
    let sid = format!("SM{number:032x}");
    message["sid"] = sid.as_str().into();
    message["uri"] = format!("/2010-04-01/Accounts/{account}/Messages/{sid}.json").into();
    let key = format!("{to} {}", message["body"].as_str().unwrap_or_default());
    state.apply("sms", &key, message.clone(), |_| sid);
    FakeReply::json(StatusCode::CREATED, &message)
}

/// Newest first.
fn list(state: &ServiceState, query: &str) -> FakeReply {
    let wanted = form_value(query, "To");
    let size = form_value(query, "PageSize").and_then(|text| text.parse().ok()).unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let matches = |message: &&Value| wanted.as_deref().is_none_or(|to| message["to"] == *to);
    let messages: Vec<&Value> = state.effects.iter().rev().map(|effect| &effect.fields).filter(matches).collect();
    let uri = format!("/2010-04-01/Accounts/{}/Messages.json?PageSize={size}&Page=0", ServiceKind::ACCOUNT);
    let page = &messages[..messages.len().min(size)];
    let body = json!({
        "messages": page, "page": 0, "page_size": size, "start": 0, "end": page.len().saturating_sub(1), "uri": uri,
        "first_page_uri": uri, "next_page_uri": null, "previous_page_uri": null,
    });
    FakeReply::json(StatusCode::OK, &body)
}

fn is_number(text: &str) -> bool {
    text.strip_prefix('+')
        .is_some_and(|digits| (7..=15).contains(&digits.len()) && digits.bytes().all(|d| d.is_ascii_digit()))
}

fn error(status: StatusCode, code: u32, message: &str) -> FakeReply {
    let more_info = format!("https://www.twilio.com/docs/errors/{code}");
    let body = json!({"code": code, "message": message, "more_info": more_info, "status": status.as_u16()});
    FakeReply::json(status, &body)
}
