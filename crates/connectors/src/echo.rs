//! Masks what a destination quotes of the request in its error: names, addresses and other values of the event. The message
//! is logged and shown.

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::outcome::{Outcome, Readback};

use crate::Call;
use crate::text::{MASK, message_of};

/// Shorter values are not masked: they occur by chance.
const CHARACTERS_MIN: usize = 3;
/// Shorter numbers are not masked: they may be a status, a limit or a position.
const DIGITS_MIN: usize = 6;
/// Values taken from one request.
const VALUES_MAX: usize = 1_000;

/// Masks the message of an outcome.
pub(crate) fn mask_outcome(mut outcome: Outcome, call: &Call<'_>) -> Outcome {
    if let Some(message) = message_of(&mut outcome) {
        *message = mask(std::mem::take(message), &values(call));
    }
    outcome
}

/// Masks the message of an outcome that several calls share: it may quote any of them.
pub(crate) fn mask_shared(mut outcome: Outcome, calls: &[Call<'_>]) -> Outcome {
    if let Some(message) = message_of(&mut outcome) {
        let mut found: Vec<String> = calls.iter().flat_map(values).collect();
        longest_first(&mut found);
        *message = mask(std::mem::take(message), &found);
    }
    outcome
}

/// Masks the failure message of a read-back.
pub(crate) fn mask_readback(mut readback: Readback, call: &Call<'_>) -> Readback {
    if let Readback::Unreadable(failure) = &mut readback {
        failure.message = mask(std::mem::take(&mut failure.message), &values(call));
    }
    readback
}

/// Parameters whose values come from events. The others, such as `object` or `url`, help to understand the error.
fn data_parameters(action: Action) -> &'static [&'static str] {
    match action {
        Action::HttpRequest => &["json", "form", "text", "query"],
        Action::HttpUpsert => &["identity", "create", "update"],
        Action::SalesforceUpsert => &["external_id", "fields"],
        Action::HubspotUpsert => &["id", "properties"],
        Action::PostgresUpsert => &["values"],
        Action::EmailSend => &["to", "cc", "bcc", "reply_to", "subject", "text", "html"],
        Action::SendTemplate => &["to", "cc", "bcc", "reply_to", "subject", "text", "html", "vars"],
        Action::SesSend => &["to", "cc", "bcc", "reply_to", "subject", "text", "html"],
        Action::S3Put => &["json", "text"],
        Action::WebPushSend => &["subscription", "json", "text"],
        Action::FileAppend => &["record"],
        Action::SlackPost => &["text", "blocks"],
        _ => &[],
    }
}

/// Values of the request, longest first, so that a value within another one leaves no rest.
fn values(call: &Call<'_>) -> Vec<String> {
    let mut found = vec![];
    match call.action {
        Action::Declared(_) => collect(call.with, &mut found),
        action => {
            for name in data_parameters(action) {
                collect(call.with.get(name).unwrap_or(&Value::Null), &mut found);
            }
        }
    }
    longest_first(&mut found);
    found
}

fn longest_first(values: &mut Vec<String>) {
    values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    values.dedup();
}

fn collect(value: &Value, found: &mut Vec<String>) {
    if found.len() >= VALUES_MAX {
        return;
    }
    match value {
        Value::String(text) => {
            // A destination may quote the JSON of the request.
            let quoted = Value::String(text.clone()).to_string();
            let escaped = one_line(quoted.trim_matches('"'));
            let text = one_line(text);
            if escaped != text && escaped.chars().count() >= CHARACTERS_MIN {
                found.push(escaped);
            }
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let least = if is_number { DIGITS_MIN } else { CHARACTERS_MIN };
            if text.chars().count() >= least && !["true", "false", "null"].contains(&text.as_str()) {
                found.push(text);
            }
        }
        Value::Number(number) if number.to_string().len() >= DIGITS_MIN => found.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => members.values().for_each(|member| collect(member, found)),
        _ => {}
    }
}

/// The text with single spaces, as in excerpts of responses.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Replaces every value that stands in the text as a word of its own, and the beginning of one where the text was cut off.
fn mask(text: String, values: &[String]) -> String {
    values.iter().fold(text, |text, value| {
        let text = if text.contains(value.as_str()) { mask_words(&text, value) } else { text };
        mask_cut(text, value)
    })
}

fn mask_words(text: &str, value: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(value) {
        let (before, after) = (&rest[..at], &rest[at + value.len()..]);
        let joined = |outside: Option<char>, inside: Option<char>| {
            outside.is_some_and(char::is_alphanumeric) && inside.is_some_and(char::is_alphanumeric)
        };
        let previous = before.chars().next_back().or(masked.chars().next_back());
        let part_of_a_word =
            joined(previous, value.chars().next()) || joined(after.chars().next(), value.chars().next_back());
        masked.push_str(before);
        masked.push_str(if part_of_a_word { value } else { MASK });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

/// An excerpt ends with `…` where it was cut, perhaps within the value.
fn mask_cut(text: String, value: &str) -> String {
    let Some(start) = text.strip_suffix('…') else { return text };
    let ends: Vec<usize> = value.char_indices().map(|(at, _)| at).skip(CHARACTERS_MIN).collect();
    match ends.into_iter().rev().find(|end| start.ends_with(&value[..*end])) {
        Some(end) => format!("{}{MASK}…", &start[..start.len() - end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn masked(action: Action, with: &Value, message: &str) -> String {
        let call = Call {
            action,
            destination: "crm",
            with,
            effect_key: "eff",
            message_key: None,
            record: None,
            attempt: 1,
            traceparent: None,
            timeout: std::time::Duration::from_secs(1),
            now: sluice_domain::time::Time(0),
        };
        mask(message.to_owned(), &values(&call))
    }

    #[test]
    fn values_that_a_destination_echoes_are_masked() {
        let with = json!({
            "object": "Lead", "external_id_field": "External__c", "external_id": "website:4711",
            "fields": { "LastName": "Lovelace", "Company": "Lovelace  &\nSons", "Age": 36, "Phone": 4155550123u64, "Ok": true },
        });
        assert_eq!(
            masked(
                Action::SalesforceUpsert,
                &with,
                "duplicate value found: External__c of Lead: website:4711, Lovelace & Sons, Lovelace, Lovelaces, 36, 4155550123, true"
            ),
            "duplicate value found: External__c of Lead: ***, ***, ***, Lovelaces, 36, ***, true"
        );
    }

    #[test]
    fn value_that_was_cut_off_is_masked() {
        let with = json!({ "json": { "name": "Lovelace" } });
        assert_eq!(masked(Action::HttpRequest, &with, "unknown person Lovel…"), "unknown person ***…");
        assert_eq!(masked(Action::HttpRequest, &with, "unknown person Lo…"), "unknown person Lo…");
    }

    #[test]
    fn letters_beside_other_letters_of_any_language_are_kept_apart() {
        let with = json!({ "text": "Zoë" });
        assert_eq!(masked(Action::SlackPost, &with, "«Zoë», Zoës, 名Zoë"), "«***», Zoës, 名Zoë");
    }
}
