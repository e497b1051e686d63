//! Maps Slack responses to outcomes, by error name and status. Pure.

use std::sync::LazyLock;

use serde_json::{Value, json};
use sluice_domain::failure_rules::{FailureTable, RuleCall};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use super::request::effect_key;
use super::settings::Channel;
use crate::failures::{MatchedFailure, shipped};
use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// What error responses mean, by error name and status.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> = LazyLock::new(|| shipped(include_str!("failures.json")));

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// For messages.
    pub(crate) host: &'a str,
    pub(crate) channel: Channel,
    pub(crate) rules: &'a FailureTable,
    pub(crate) now: Time,
}

/// Outcome of an attempt with this response.
pub(crate) fn outcome(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    let parsed: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let is_success = (200..300).contains(&response.status);
    match context.channel {
        Channel::Fixed if is_success => Outcome::Done { result: json!({"status": response.status}) },
        Channel::Required if is_success && parsed["ok"] == true => {
            Outcome::Done { result: json!({"ts": parsed["ts"], "channel": parsed["channel"]}) }
        }
        _ => rejected(response, &parsed, context),
    }
}

fn rejected(response: &HttpResponse, parsed: &Value, context: ResponseContext<'_>) -> Outcome {
    let status = response.status;
    let body_text = String::from_utf8_lossy(&response.body);
    let is_word = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let error = parsed["error"].as_str().or(Some(body_text.trim()).filter(is_word));
    let found = context.rules.find(RuleCall::Effect, status, error.unwrap_or_default(), &body_text);
    let rule = found.expect("the last rule of the shipped table matches every response");
    let code = error.map_or_else(|| format!("http-{status}"), str::to_owned);
    let failure = |class| {
        let (host, advice) = (context.host, &rule.advice);
        let message = format!("{host} returned {code} (status {status}): {advice}: {}", excerpt(&response.body));
        Failure::new(class, code.clone(), message).with_status(status)
    };
    let requested_wait = response.retry_after(context.now);
    MatchedFailure { rule, status, requested_wait }.outcome(failure)
}

/// Result of one page of a read-back.
#[derive(Debug, PartialEq)]
pub(crate) enum Page {
    /// The message was found, or the page cannot be read.
    Final(Readback),
    /// Not on this page; continue with this cursor.
    Next(String),
    /// Not on this page, and no page follows.
    End,
}

/// Searches a page for the message with this effect key.
pub(crate) fn page(response: &HttpResponse, key: &str, channel: &str, context: ResponseContext<'_>) -> Page {
    let parsed: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    if parsed["ok"] != true || !(200..300).contains(&response.status) || response.truncated {
        let failure = rejected(response, &parsed, context).failure().cloned();
        let failure = failure
            .unwrap_or_else(|| Failure::new(FailureClass::Retryable, "read", "The page of messages cannot be read."));
        return Page::Final(Readback::Unreadable(failure));
    }
    let messages = parsed["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(message) = messages.iter().find(|message| effect_key(message) == Some(key)) {
        return Page::Final(Readback::Present(json!({"ts": message["ts"], "channel": channel})));
    }
    match parsed["response_metadata"]["next_cursor"].as_str().filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => Page::Next(cursor.to_owned()),
        None if parsed["has_more"] == true => Page::Final(Readback::Unreadable(Failure::new(
            FailureClass::Retryable,
            "read",
            "Slack reports more messages but returns no cursor.",
        ))),
        None => Page::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::failures::tests::{RecordedFailure, check_recorded};
    use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};

    fn response(status: u16, body: &str) -> HttpResponse {
        HttpResponse { status, headers: HeaderMap::new(), body: body.to_owned().into(), truncated: false }
    }

    fn context(channel: Channel) -> ResponseContext<'static> {
        ResponseContext { host: "slack.com", channel, rules: &SHIPPED_RULES, now: Time(0) }
    }

    fn brief(outcome: &Outcome) -> String {
        match outcome.failure() {
            None => outcome.as_str().to_owned(),
            Some(failure) => format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code),
        }
    }

    #[test]
    fn api_responses_map_to_outcomes() {
        for (status, body, expected) in [
            (200, r#"{"ok":true,"ts":"1.2","channel":"C1"}"#, "done"),
            (200, r#"{"ok":false,"error":"ratelimited"}"#, "wait retryable ratelimited"),
            (429, r#"{"ok":false,"error":"ratelimited"}"#, "wait retryable ratelimited"),
            (429, "", "wait retryable http-429"),
            (200, r#"{"ok":false,"error":"service_unavailable"}"#, "retry retryable service_unavailable"),
            (200, r#"{"ok":false,"error":"internal_error"}"#, "unsure retryable internal_error"),
            (200, r#"{"ok":false,"error":"fatal_error"}"#, "unsure retryable fatal_error"),
            (200, r#"{"ok":false,"error":"invalid_auth"}"#, "reject auth invalid_auth"),
            (200, r#"{"ok":false,"error":"missing_scope"}"#, "reject auth missing_scope"),
            (200, r#"{"ok":false,"error":"channel_not_found"}"#, "reject permanent channel_not_found"),
            (200, r#"{"ok":false,"error":"is_archived"}"#, "reject permanent is_archived"),
            (200, r#"{"ok":false,"error":"invalid_blocks"}"#, "reject permanent invalid_blocks"),
            (200, r#"{"ok":false,"error":"some_new_error"}"#, "reject permanent some_new_error"),
            (200, "<html>", "unsure retryable http-200"),
            (500, "", "unsure retryable http-500"),
            (502, "<html>", "unsure retryable http-502"),
            (503, "", "retry retryable http-503"),
            (403, "", "reject auth http-403"),
            (302, "", "reject permanent http-302"),
        ] {
            assert_eq!(
                brief(&outcome(&response(status, body), context(Channel::Required))),
                expected,
                "{status} {body}"
            );
        }
        let mut limited = response(429, "");
        limited.headers.insert(RETRY_AFTER, HeaderValue::from_static("30"));
        let Outcome::Wait { after, .. } = outcome(&limited, context(Channel::Required)) else {
            panic!("expected wait")
        };
        assert_eq!(after, Some(Duration::from_secs(30)));
    }

    #[test]
    fn recorded_answers_map_to_outcomes_and_cover_every_rule() {
        let find = |answer: &RecordedFailure| {
            let response = answer.response();
            let text = String::from_utf8_lossy(&response.body).into_owned();
            let parsed: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            let word = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(text.as_str());
            let error = parsed["error"].as_str().or(word).unwrap_or_default();
            SHIPPED_RULES.find(RuleCall::Effect, answer.status, error, &text)
        };
        check_recorded(include_str!("../../tests/data/slack.jsonl"), &SHIPPED_RULES, find, |answer| {
            outcome(&answer.response(), context(Channel::Required))
        });
    }

    #[test]
    fn webhook_responses_map_to_outcomes() {
        for (status, body, expected) in [
            (200, "ok", "done"),
            (400, "invalid_payload", "reject permanent invalid_payload"),
            (403, "action_prohibited", "reject auth action_prohibited"),
            (404, "no_service", "reject auth no_service"),
            (404, "channel_not_found", "reject permanent channel_not_found"),
            (410, "channel_is_archived", "reject permanent channel_is_archived"),
            (429, "rate_limited", "wait retryable rate_limited"),
            (500, "rollup_error", "unsure retryable rollup_error"),
            (500, "", "unsure retryable http-500"),
        ] {
            assert_eq!(brief(&outcome(&response(status, body), context(Channel::Fixed))), expected, "{status} {body}");
        }
    }

    #[test]
    fn message_is_matched_by_effect_key_and_absence_needs_every_page() {
        let read = |body: &str| page(&response(200, body), "eff_1", "C1", context(Channel::Required));
        let ours = r#"{"ts":"5.6","metadata":{"event_type":"sluice_effect","event_payload":{"effect_key":"eff_1"}}}"#;
        let other =
            r#"{"ts":"5.6","text":"eff_1","metadata":{"event_type":"other","event_payload":{"effect_key":"eff_1"}}}"#;
        let found = Readback::Present(json!({"ts": "5.6", "channel": "C1"}));
        assert_eq!(read(&format!(r#"{{"ok":true,"messages":[{other},{ours}]}}"#)), Page::Final(found));
        assert_eq!(read(&format!(r#"{{"ok":true,"messages":[{other}]}}"#)), Page::End);
        let more = r#"{"ok":true,"messages":[],"has_more":true,"response_metadata":{"next_cursor":"abc"}}"#;
        assert_eq!(read(more), Page::Next("abc".into()));
        for unreadable in
            [r#"{"ok":true,"messages":[],"has_more":true}"#, r#"{"ok":false,"error":"missing_scope"}"#, ""]
        {
            assert!(matches!(read(unreadable), Page::Final(Readback::Unreadable(_))), "{unreadable}");
        }
    }
}
