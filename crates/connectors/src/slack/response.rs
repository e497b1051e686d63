//! What Slack's answers mean, as data. Pure.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;

use super::request::effect_key;
use super::settings::Channel;
use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// Who is asked to slow down without being told for how long waits so long.
const SLOW_DOWN: Duration = Duration::from_secs(1);

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorAction {
    /// Hold everything back.
    Wait,
    /// Try again.
    Retry,
    /// Slack says of these that a part of it may have been done.
    Unsure,
    /// Never as it stands.
    Reject(FailureClass),
}

const PERMANENT: ErrorAction = ErrorAction::Reject(FailureClass::Permanent);
const AUTH: ErrorAction = ErrorAction::Reject(FailureClass::Auth);
const TOKEN: &str = "check the bot's token and its scopes (chat:write, channels:history)";
const WEBHOOK: &str = "check the webhook_url";
const CHANNEL: &str = "check the channel's id, and that the bot is a member of it";
const CONTENT: &str = "correct the message, then replay the job";

/// Errors by name; what is not here is refused for good.
static ERRORS: &[(&str, ErrorAction, &str)] = &[
    ("ratelimited", ErrorAction::Wait, "it asks to slow down"),
    ("rate_limited", ErrorAction::Wait, "it asks to slow down"),
    ("message_limit_exceeded", ErrorAction::Wait, "too many messages were sent in this workspace"),
    ("service_unavailable", ErrorAction::Retry, "it is away for now"),
    ("request_timeout", ErrorAction::Retry, "the request did not arrive as a whole"),
    ("team_added_to_org", ErrorAction::Retry, "the workspace is being moved"),
    ("internal_error", ErrorAction::Unsure, "it failed, and the message may be there"),
    ("fatal_error", ErrorAction::Unsure, "it failed, and the message may be there"),
    ("invalid_auth", AUTH, TOKEN),
    ("not_authed", AUTH, TOKEN),
    ("account_inactive", AUTH, TOKEN),
    ("token_revoked", AUTH, TOKEN),
    ("token_expired", AUTH, TOKEN),
    ("missing_scope", AUTH, TOKEN),
    ("no_permission", AUTH, TOKEN),
    ("not_allowed_token_type", AUTH, TOKEN),
    ("org_login_required", AUTH, TOKEN),
    ("access_denied", AUTH, TOKEN),
    ("no_service", AUTH, WEBHOOK),
    ("no_service_id", AUTH, WEBHOOK),
    ("no_team", AUTH, WEBHOOK),
    ("team_disabled", AUTH, WEBHOOK),
    ("invalid_token", AUTH, WEBHOOK),
    ("action_prohibited", AUTH, WEBHOOK),
    ("channel_not_found", PERMANENT, CHANNEL),
    ("not_in_channel", PERMANENT, CHANNEL),
    ("is_archived", PERMANENT, CHANNEL),
    ("channel_is_archived", PERMANENT, CHANNEL),
    ("restricted_action", PERMANENT, CHANNEL),
    ("posting_to_general_channel_denied", PERMANENT, CHANNEL),
];

/// What decides how an answer is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// Who answered, for messages.
    pub(crate) host: &'a str,
    pub(crate) channel: Channel,
    pub(crate) now: Time,
}

/// What an attempt came to that was answered like this.
pub(crate) fn outcome(answer: &HttpResponse, reading: ResponseContext<'_>) -> Outcome {
    let parsed: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let good = (200..300).contains(&answer.status);
    match reading.channel {
        Channel::Fixed if good => Outcome::Done { result: json!({"status": answer.status}) },
        Channel::Needed if good && parsed["ok"] == true => {
            Outcome::Done { result: json!({"ts": parsed["ts"], "channel": parsed["channel"]}) }
        }
        _ => refused(answer, &parsed, reading),
    }
}

fn refused(answer: &HttpResponse, parsed: &Value, reading: ResponseContext<'_>) -> Outcome {
    let status = answer.status;
    let said = String::from_utf8_lossy(&answer.body);
    let is_word = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let error = parsed["error"].as_str().or(Some(said.trim()).filter(is_word));
    let named = error.and_then(|error| ERRORS.iter().find(|(name, ..)| *name == error));
    let (verdict, advice) = match (named, status) {
        (_, 429) => (ErrorAction::Wait, "it asks to slow down"),
        (Some((_, verdict, advice)), _) => (*verdict, *advice),
        (None, 503) => (ErrorAction::Retry, "it is away for now"),
        (None, 500..=599) => (ErrorAction::Unsure, "it failed, and the message may be there"),
        (None, 401 | 403) => (AUTH, if reading.channel == Channel::Fixed { WEBHOOK } else { TOKEN }),
        // Success in other words than Slack's is no success, and no refusal either.
        (None, 200..=299) if error.is_none() => (ErrorAction::Unsure, "this does not look like an answer of Slack"),
        (None, 300..=399) => (PERMANENT, "redirects are not followed"),
        (None, _) => (PERMANENT, CONTENT),
    };
    let code = error.map_or_else(|| format!("http-{status}"), str::to_owned);
    let failure = |class| {
        let message =
            format!("{} answered {code} (status {status}): {advice}: {}", reading.host, excerpt(&answer.body));
        Failure::new(class, code.clone(), message).with_status(status)
    };
    let after = answer.retry_after(reading.now);
    match verdict {
        ErrorAction::Wait => {
            Outcome::Wait { failure: failure(FailureClass::Retryable), after: after.or(Some(SLOW_DOWN)) }
        }
        ErrorAction::Retry => Outcome::Retry { failure: failure(FailureClass::Retryable), after },
        ErrorAction::Unsure => Outcome::Unsure { failure: failure(FailureClass::Retryable) },
        ErrorAction::Reject(class) => Outcome::Reject { failure: failure(class) },
    }
}

/// What one page of a read-back says.
#[derive(Debug, PartialEq)]
pub(crate) enum Page {
    /// The message is there, or it cannot be told.
    Final(Readback),
    /// It is not on this page, and this is the next one.
    Next(String),
    /// It is not on this page, which is the last.
    End,
}

/// Looks for the effect's message.
pub(crate) fn page(answer: &HttpResponse, key: &str, channel: &str, reading: ResponseContext<'_>) -> Page {
    let parsed: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if parsed["ok"] != true || !(200..300).contains(&answer.status) || answer.cut {
        let failure = refused(answer, &parsed, reading).failure().cloned();
        let failure = failure.unwrap_or_else(|| Failure::new(FailureClass::Retryable, "read", "it cannot be read"));
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
            "Slack has more messages and does not say where.",
        ))),
        None => Page::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse { status, headers: HeaderMap::new(), body: body.to_owned().into(), cut: false }
    }

    fn reading(channel: Channel) -> ResponseContext<'static> {
        ResponseContext { host: "slack.com", channel, now: Time(0) }
    }

    fn brief(outcome: &Outcome) -> String {
        match outcome.failure() {
            None => outcome.as_str().to_owned(),
            Some(failure) => format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code),
        }
    }

    #[test]
    fn every_answer_of_the_api_comes_to_what_it_means() {
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
            assert_eq!(brief(&outcome(&answer(status, body), reading(Channel::Needed))), expected, "{status} {body}");
        }
        let mut slow = answer(429, "");
        slow.headers.insert(RETRY_AFTER, HeaderValue::from_static("30"));
        let Outcome::Wait { after, .. } = outcome(&slow, reading(Channel::Needed)) else { panic!("it waits") };
        assert_eq!(after, Some(Duration::from_secs(30)));
    }

    #[test]
    fn every_answer_of_a_webhook_comes_to_what_it_means() {
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
            assert_eq!(brief(&outcome(&answer(status, body), reading(Channel::Fixed))), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_message_is_known_by_its_key_and_absence_needs_every_page() {
        let read = |body: &str| page(&answer(200, body), "eff_1", "C1", reading(Channel::Needed));
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
