//! Maps a response to an outcome. Pure.

use std::sync::LazyLock;

use hyper::header::{CONTENT_TYPE, DATE, ETAG, HeaderName, LAST_MODIFIED, LINK, LOCATION};
use serde_json::{Map, Value};
use sluice_domain::destination::{HttpAuth, HttpDestination};
use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureTable, RuleCall, RuleOrigin};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::template::{Expression, Scope};
use sluice_domain::time::Time;

use super::settings::Settings;
use crate::failures::{MatchedFailure, shipped};
use crate::outbound::HttpResponse;
use crate::text::excerpt;

/// Response headers in the step's output.
static OUTPUT_HEADERS: [HeaderName; 8] = [
    CONTENT_TYPE,
    DATE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext<'a> {
    /// For messages.
    pub(crate) host: &'a str,
    pub(crate) class: EffectClass,
    pub(crate) accept_status: &'a [u16],
    pub(crate) rules: &'a FailureTable,
    pub(crate) now: Time,
}

/// What error responses mean.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> = LazyLock::new(|| shipped(include_str!("failures.json")));

/// The same for a destination without an address and credentials of its own, whose steps name the host: one host that refuses a request
/// says nothing about the others, so that nothing is paused.
pub(crate) static ANY_HOST_RULES: LazyLock<FailureTable> = LazyLock::new(|| {
    let of_any_host = |rule: &FailureRule| match rule.action {
        FailureAction::Pause => FailureRule {
            action: FailureAction::Reject(FailureClass::Permanent),
            advice: "refuses the request; the destination has no credentials".to_owned(),
            ..rule.clone()
        },
        _ => rule.clone(),
    };
    FailureTable::of_connector(&SHIPPED_RULES.rules().map(|(rule, _)| of_any_host(rule)).collect::<Vec<_>>())
});

/// What error responses of a destination mean, before it adds rules of its own.
pub(crate) fn shipped_rules(destination: &HttpDestination) -> &'static FailureTable {
    let has_credentials = !matches!(destination.auth, HttpAuth::None) || !destination.headers.is_empty();
    match destination.base_url.is_some() || has_credentials {
        true => &SHIPPED_RULES,
        false => &ANY_HOST_RULES,
    }
}

/// Outcome of an attempt with this response.
pub(crate) fn outcome(response: &HttpResponse, context: ResponseContext<'_>) -> Outcome {
    let status = response.status;
    if (200..300).contains(&status) || context.accept_status.contains(&status) {
        return Outcome::Done { result: output(response) };
    }
    let message = String::from_utf8_lossy(&response.body);
    let found = context.rules.find_with_origin(RuleCall::Effect, status, &provider_code(response), &message);
    let (rule, origin) = found.expect("the last rule of the shipped table matches every response");
    let matched = MatchedFailure { rule, status, requested_wait: response.retry_after(context.now) };
    let may_be_applied = rule.action == FailureAction::Unsure && context.class != EffectClass::Natural;
    let what = match (origin, status) {
        (RuleOrigin::Destination, _) => format!("refused the request: {}", rule.advice),
        (_, 300..=399) => redirect(response),
        _ if may_be_applied => format!("{}, which may have been applied", rule.advice),
        _ => rule.advice.clone(),
    };
    match matched.outcome(|class| failure(response, context.host, class, &what)) {
        // The same request again writes the same.
        Outcome::Unsure { failure } if !may_be_applied => {
            Outcome::Retry { failure, after: response.retry_after(context.now) }
        }
        outcome => outcome,
    }
}

/// The code of an error answer where most APIs have it; empty if it has none.
fn provider_code(response: &HttpResponse) -> String {
    let body = body(response);
    let found = ["/code", "/error/code", "/errorCode", "/error/type", "/error", "/type"].iter().find_map(|place| {
        match body.pointer(place)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    });
    found.unwrap_or_default()
}

/// Outcome of an attempt with this response, by the step's own rules for success and output as well.
pub(crate) fn judge(
    response: &HttpResponse,
    settings: &Settings<'_>,
    context: ResponseContext<'_>,
    scope: impl FnOnce() -> Scope,
) -> Outcome {
    let outcome = outcome(response, context);
    let Outcome::Done { .. } = outcome else { return outcome };
    if settings.success_if.is_none() && settings.result.is_empty() {
        return outcome;
    }
    let mut scope = scope();
    scope.set("response", answer(response));
    let failure =
        |class, code, what: &str| Failure { code: String::from(code), ..failure(response, context.host, class, what) };
    match settings.success_if.as_ref().map(|rule| (rule.holds(&scope), can_be_read(response, rule, &scope))) {
        None => {}
        Some((Ok(true), true)) => {}
        Some((Ok(false), true)) => {
            let what = "answered that the request failed: success_if does not hold";
            return Outcome::Reject { failure: failure(FailureClass::Permanent, "not-successful", what) };
        }
        Some(_) => {
            let what = "answered with something that success_if cannot read";
            return Outcome::Unsure { failure: failure(FailureClass::Retryable, "unexpected-response", what) };
        }
    }
    if settings.result.is_empty() {
        return outcome;
    }
    let part = |(name, expression): &(&str, Expression)| {
        let value = expression.evaluate(&scope).ok().flatten().unwrap_or_default();
        ((*name).to_owned(), value)
    };
    Outcome::Done { result: settings.result.iter().map(part).collect() }
}

/// Result of a `verify` request. `found` decides whether a 2xx answer has the effect.
pub(crate) fn readback(response: &HttpResponse, host: &str, found: Option<(&Expression, Scope)>) -> Readback {
    if let (200..300, Some((found, mut scope))) = (response.status, found) {
        scope.set("response", answer(response));
        return match found.holds(&scope) {
            Ok(true) if can_be_read(response, found, &scope) => Readback::Present(output(response)),
            Ok(false) if can_be_read(response, found, &scope) => Readback::Absent,
            _ => {
                let what = "answered the read-back with something that verify.found cannot read";
                Readback::Unreadable(failure(response, host, FailureClass::Retryable, what))
            }
        };
    }
    match response.status {
        200..300 => Readback::Present(output(response)),
        404 => Readback::Absent,
        401 | 403 => Readback::Unreadable(failure(
            response,
            host,
            FailureClass::Auth,
            "rejects the credentials of the read-back; check the destination's auth",
        )),
        _ => Readback::Unreadable(failure(
            response,
            host,
            FailureClass::Retryable,
            "did not report whether the effect is present",
        )),
    }
}

/// Whether a rule over the answer can decide: the body is complete, and has members if the rule reads some. A text has none: a page of a
/// proxy, of a login or about maintenance comes with status 200 as well, and would satisfy every rule that something is absent.
pub(crate) fn can_be_read(response: &HttpResponse, rule: &Expression, scope: &Scope) -> bool {
    let source: String = rule.source().split_whitespace().collect();
    let reads_members = ["response.body.", "response.body["].iter().any(|part| source.contains(part));
    let is_text = scope.get("response").is_some_and(|answer| answer["body"].is_string());
    !(response.truncated || is_text && reads_members)
}

/// Whether the body is an HTML document.
pub(crate) fn is_web_page(response: &HttpResponse) -> bool {
    let body = response.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&response.body).trim_ascii_start();
    let starts_with =
        |start: &str| body.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start.as_bytes()));
    starts_with("<!doctype html") || starts_with("<html")
}

fn redirect(response: &HttpResponse) -> String {
    let location = response.headers.get("location").and_then(|value| value.to_str().ok());
    // Host only: the query may hold a secret.
    match location.and_then(|text| url::Url::parse(text).ok()).as_ref().and_then(url::Url::host_str) {
        Some(host) => format!("redirects to {host}; redirects are not followed, use the final URL"),
        None => "redirects; redirects are not followed, use the final URL".to_owned(),
    }
}

fn failure(response: &HttpResponse, host: &str, class: FailureClass, what: &str) -> Failure {
    let quoted = excerpt(&response.body);
    let separator = if quoted.is_empty() { "." } else { ": " };
    Failure::new(
        class,
        format!("http-{}", response.status),
        format!("{host} {what} (status {}){separator}{quoted}", response.status),
    )
    .with_status(response.status)
}

/// Output of the step.
fn output(response: &HttpResponse) -> Value {
    let headers: Map<String, Value> = OUTPUT_HEADERS
        .iter()
        .filter_map(|name| Some((name.to_string(), response.headers.get(name)?.to_str().ok()?.into())))
        .collect();
    // `json!` would copy the values.
    let mut output = Map::from_iter([
        ("status".to_owned(), response.status.into()),
        ("headers".to_owned(), headers.into()),
        ("body".to_owned(), body(response)),
    ]);
    if response.truncated {
        output.insert("body_cut".to_owned(), true.into());
    }
    output.into()
}

/// Variable `response` of rules: status, headers (names in lower case) and body.
pub(crate) fn answer(response: &HttpResponse) -> Value {
    let headers: Map<String, Value> = response
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.into())))
        .collect();
    Value::Object(Map::from_iter([
        ("status".to_owned(), response.status.into()),
        ("headers".to_owned(), headers.into()),
        ("body".to_owned(), body(response)),
    ]))
}

/// JSON if the body is JSON, else text; null if it is empty.
pub(crate) fn body(response: &HttpResponse) -> Value {
    let bytes = response.body.trim_ascii();
    if bytes.is_empty() {
        return Value::Null;
    }
    let declared = response
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.split(';').next().is_some_and(|essence| essence.trim().ends_with("json")));
    let parsed = (!response.truncated && (declared || matches!(bytes[0], b'{' | b'[')))
        .then(|| serde_json::from_slice(bytes).ok())
        .flatten();
    parsed.unwrap_or_else(|| String::from_utf8_lossy(&response.body).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::tests::{RecordedFailure, check_recorded};
    use serde_json::json;
    use std::time::Duration;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn response(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpResponse {
        let headers =
            headers.iter().map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap()));
        HttpResponse { status, headers: headers.collect(), body: body.to_owned().into(), truncated: false }
    }

    fn read(response: &HttpResponse, class: EffectClass) -> Outcome {
        let now = Time::parse(NOW).unwrap();
        outcome(
            response,
            ResponseContext { host: "a.example", class, accept_status: &[404], rules: &SHIPPED_RULES, now },
        )
    }

    /// Outcome, failure class and wait in seconds.
    fn brief(outcome: &Outcome) -> String {
        let after = match outcome {
            Outcome::Retry { after, .. } | Outcome::Wait { after, .. } => after.map(|after| after.as_secs()),
            _ => None,
        };
        let class = outcome.failure().map_or("-", |failure| failure.class.as_str());
        after.map_or_else(
            || format!("{} {class}", outcome.as_str()),
            |after| format!("{} {class} {after}", outcome.as_str()),
        )
    }

    #[test]
    fn host_that_an_event_names_cannot_pause_the_calls_of_others() {
        let judged = |destination: &HttpDestination| {
            let rules = shipped_rules(destination);
            let context =
                ResponseContext { host: "a", class: EffectClass::Blind, accept_status: &[], rules, now: Time(0) };
            [401, 403].map(|status| brief(&outcome(&response(status, &[], ""), context)))
        };
        let any_host = HttpDestination::default();
        assert_eq!(judged(&any_host), ["reject permanent", "reject permanent"]);
        let own_host = HttpDestination { base_url: Some("https://a.example".into()), ..HttpDestination::default() };
        assert_eq!(judged(&own_host), ["reject auth", "reject auth"]);
        let credentials = HttpDestination { auth: HttpAuth::Bearer("t".into()), ..HttpDestination::default() };
        assert_eq!(judged(&credentials), ["reject auth", "reject auth"]);
    }

    #[test]
    fn own_rules_decide_about_success_and_output() {
        let with = serde_json::json!({
            "url": "/x", "success_if": "not response.body.error", "result": {"id": "response.body.data[0]", "key": "{{ effect.key }}"},
            "verify": {"url": "/y", "found": "response.body.email == with.json.email"}, "json": {"email": "a@x.org"},
        });
        let settings = Settings::read(&with).unwrap();
        let scope = || super::super::settings::rule_scope(&with, "eff-1");
        let context = ResponseContext {
            host: "a",
            class: EffectClass::Blind,
            accept_status: &[],
            rules: &SHIPPED_RULES,
            now: Time(0),
        };
        let judged = |body: &str| judge(&response(200, &[], body), &settings, context, scope);
        assert_eq!(judged(r#"{"data": [7]}"#), Outcome::Done { result: serde_json::json!({"id": 7, "key": "eff-1"}) });
        let refused = judged(r#"{"error": ["UserError", "no"]}"#);
        let failure = refused.failure().unwrap();
        assert_eq!((refused.as_str(), failure.code.as_str()), ("reject", "not-successful"));
        assert!(failure.message.contains("UserError"), "{}", failure.message);
        let cut = HttpResponse { truncated: true, ..response(200, &[], r#"{"error"#) };
        assert_eq!(judge(&cut, &settings, context, scope).as_str(), "unsure", "the rest is not known");
        for page in ["<!DOCTYPE html><title>Maintenance</title>", "Back soon", "{\"error\": cut"] {
            assert_eq!(judged(page).as_str(), "unsure", "{page} has no member error, and is no success");
        }
        assert_eq!(judged("").as_str(), "done", "as of status 204");
        let of_text = serde_json::json!({"url": "/x", "success_if": "'Thank you' in response.body"});
        let of_text = Settings::read(&of_text).unwrap();
        let page = response(200, &[], "<html><body>Thank you</body></html>");
        assert_eq!(judge(&page, &of_text, context, scope).as_str(), "done", "the rule reads a text");
        assert_eq!(judge(&response(500, &[], "{}"), &settings, context, scope).as_str(), "unsure");
        let verify = Settings::read_verify(&with).unwrap().unwrap();
        let found = |status, body: &str| {
            let rule = verify.success_if.as_ref().map(|found| (found, scope()));
            readback(&response(status, &[], body), "a", rule)
        };
        assert!(matches!(found(200, r#"{"email": "a@x.org"}"#), Readback::Present(_)));
        assert_eq!(found(200, r#"{"email": "b@x.org"}"#), Readback::Absent);
        assert_eq!(found(404, ""), Readback::Absent);
        assert!(matches!(found(500, ""), Readback::Unreadable(_)));
        assert!(matches!(found(200, "<html><body>Sign in</body></html>"), Readback::Unreadable(_)), "not absent");
    }

    #[test]
    fn status_maps_to_outcome_by_effect_class() {
        let seconds: &[(&str, &str)] = &[("retry-after", "7")];
        let date: &[(&str, &str)] = &[("retry-after", "Sun, 01 Mar 2026 12:01:00 GMT")];
        let garbage: &[(&str, &str)] = &[("retry-after", "-3")];
        let none: &[(&str, &str)] = &[];
        let table = [
            (200, none, "done -", "done -"),
            (201, none, "done -", "done -"),
            (204, none, "done -", "done -"),
            (404, none, "done -", "done -"),
            (301, none, "reject permanent", "reject permanent"),
            (304, none, "reject permanent", "reject permanent"),
            (400, none, "reject permanent", "reject permanent"),
            (401, none, "reject auth", "reject auth"),
            (403, none, "reject auth", "reject auth"),
            (408, none, "retry retryable", "retry retryable"),
            (409, none, "retry conflict", "retry conflict"),
            (410, none, "reject permanent", "reject permanent"),
            (422, none, "reject permanent", "reject permanent"),
            (423, seconds, "retry conflict 7", "retry conflict 7"),
            (425, none, "retry retryable", "retry retryable"),
            (429, none, "wait retryable", "wait retryable"),
            (429, seconds, "wait retryable 7", "wait retryable 7"),
            (429, date, "wait retryable 60", "wait retryable 60"),
            (429, garbage, "wait retryable", "wait retryable"),
            (500, none, "unsure retryable", "retry retryable"),
            (501, none, "unsure retryable", "retry retryable"),
            (502, none, "unsure retryable", "retry retryable"),
            (503, none, "retry retryable", "retry retryable"),
            (503, seconds, "wait retryable 7", "wait retryable 7"),
            (504, none, "unsure retryable", "retry retryable"),
            (504, seconds, "unsure retryable", "retry retryable 7"),
        ];
        for (status, headers, blind, natural) in table {
            let response = response(status, headers, "");
            for class in [EffectClass::Blind, EffectClass::Keyed, EffectClass::Verifiable] {
                assert_eq!(brief(&read(&response, class)), blind, "{status} {headers:?} {class:?}");
            }
            let outcome = read(&response, EffectClass::Natural);
            assert_eq!(brief(&outcome), natural, "{status} {headers:?}");
            if let Some(failure) = outcome.failure() {
                assert_eq!((failure.code.clone(), failure.status), (format!("http-{status}"), Some(status)));
            }
        }
    }

    #[test]
    fn recorded_answers_map_to_outcomes_and_cover_every_rule() {
        let find = |answer: &RecordedFailure| {
            let response = answer.response();
            let code = provider_code(&response);
            let message = String::from_utf8_lossy(&response.body).into_owned();
            SHIPPED_RULES.find(RuleCall::Effect, answer.status, &code, &message)
        };
        check_recorded(include_str!("../../tests/data/http.jsonl"), &SHIPPED_RULES, find, |answer| {
            read(&answer.response(), EffectClass::Keyed)
        });
    }

    #[test]
    fn rule_of_the_destination_matches_the_code_and_the_text_of_the_answer() {
        let own = shipped(
            r#"[{"code": "quota.*", "action": "wait", "for": "90s", "advice": "the quota is used up"},
                {"status": "400", "contains": "already exists", "action": "noop", "advice": "it is there already"}]"#,
        );
        let own: Vec<_> = own.rules().map(|(rule, _)| rule.clone()).collect();
        let rules = SHIPPED_RULES.behind(&own);
        let read = |status, body: &str| {
            let (class, now) = (EffectClass::Keyed, Time(0));
            let context = ResponseContext { host: "a", class, accept_status: &[], rules: &rules, now };
            outcome(&response(status, &[], body), context)
        };
        let waits = read(400, r#"{"error": {"code": "quota.daily"}}"#);
        assert_eq!(brief(&waits), "wait retryable 90");
        assert!(waits.failure().unwrap().message.contains("the quota is used up"), "{waits:?}");
        assert_eq!(read(400, r#"{"message": "Contact already exists"}"#).as_str(), "noop");
        assert_eq!(brief(&read(400, "{}")), "reject permanent");
    }

    #[test]
    fn very_long_retry_after_is_passed_to_the_retry_policy() {
        let outcome = read(&response(429, &[("retry-after", "99999999999999999999")], ""), EffectClass::Blind);
        assert!(matches!(outcome, Outcome::Wait { after: Some(after), .. } if after > Duration::from_secs(1 << 31)));
    }

    #[test]
    fn output_holds_status_headers_and_body() {
        let json_headers: &[(&str, &str)] =
            &[("content-type", "application/problem+json; charset=utf-8"), ("set-cookie", "s=1")];
        let table = [
            (response(200, json_headers, " {\"id\": 7} "), json!({"id": 7})),
            (response(200, json_headers, "7"), json!(7)),
            (response(200, &[], "[1]"), json!([1])),
            (response(200, &[], "{broken"), json!("{broken")),
            (response(200, &[("content-type", "text/plain")], "ok\n"), json!("ok\n")),
            (response(204, &[], ""), Value::Null),
        ];
        for (response, body) in table {
            let Outcome::Done { result } = read(&response, EffectClass::Blind) else { panic!("{response:?}") };
            assert_eq!(result["body"], body);
            assert_eq!(result["status"], response.status);
            assert!(result["headers"].get("set-cookie").is_none() && result.get("body_cut").is_none());
        }
        let truncated = HttpResponse { truncated: true, ..response(200, &[], "[1") };
        let Outcome::Done { result } = read(&truncated, EffectClass::Blind) else { panic!("{truncated:?}") };
        assert_eq!((&result["body"], &result["body_cut"]), (&json!("[1"), &json!(true)));
    }

    #[test]
    fn message_names_host_and_status_and_quotes_a_short_excerpt() {
        let outcome = read(&response(422, &[], &"é".repeat(4000)), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(
            message.starts_with("a.example rejects this request; correct it, then replay the job (status 422): é"),
            "{message}"
        );
        assert!(message.chars().count() < 420, "{message}");
        let outcome =
            read(&response(302, &[("location", "https://b.example/x?token=hunter2")], ""), EffectClass::Blind);
        let message = &outcome.failure().unwrap().message;
        assert!(message.contains("redirects to b.example") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn read_back_is_present_absent_or_unreadable() {
        assert!(matches!(readback(&response(200, &[], "{}"), "a", None), Readback::Present(_)));
        assert_eq!(readback(&response(404, &[], ""), "a", None), Readback::Absent);
        for status in [301, 400, 401, 410, 429, 500, 503] {
            assert!(matches!(readback(&response(status, &[], ""), "a", None), Readback::Unreadable(_)), "{status}");
        }
    }
}
