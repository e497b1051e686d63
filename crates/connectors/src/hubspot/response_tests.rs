use super::*;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Recorded responses with the expected outcome, one per line.
const WRITES: &str = include_str!("../../tests/data/hubspot_write.jsonl");
const BATCHES: &str = include_str!("../../tests/data/hubspot_batch.jsonl");
const READS: &str = include_str!("../../tests/data/hubspot_read.jsonl");
const TOKENS: &str = include_str!("../../tests/data/hubspot_token.jsonl");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// `create`, `convert`, `update`, `update noop` or `associate`.
    #[serde(default)]
    call: String,
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Value,
    /// Ids of the records of a batch; the trace ids are `t-` and the id.
    #[serde(default)]
    ids: Vec<String>,
    #[serde(default)]
    written: Map<String, Value>,
    expect: Value,
    #[serde(default)]
    message: Vec<String>,
}

fn recorded(lines: &str) -> Vec<(Recorded, HttpResponse)> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let recorded: Recorded = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let body = match &recorded.body {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                json => json.to_string(),
            };
            let headers: HeaderMap = recorded
                .headers
                .iter()
                .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
                .collect();
            let response = HttpResponse { status: recorded.status, headers, body: body.into(), truncated: false };
            (recorded, response)
        })
        .collect()
}

fn context() -> ResponseContext<'static> {
    let now = Time::parse("2026-03-01T12:00:00Z").unwrap();
    ResponseContext { host: "hub", rules: &SHIPPED_RULES, now }
}

fn with(id: &str, written: &Map<String, Value>) -> Value {
    json!({"object": "contacts", "id_property": "lead_key", "id": id, "properties": written})
}

/// Outcome, class, code, wait in seconds.
fn brief(outcome: &Outcome) -> String {
    let after = match outcome {
        Outcome::Done { result } => return format!("done {result}"),
        Outcome::Retry { after, .. } | Outcome::Wait { after, .. } => *after,
        _ => None,
    };
    let failure = outcome.failure().map_or_else(String::new, |f| format!(" {} {}", f.class.as_str(), f.code));
    let after = after.map_or_else(String::new, |after| format!(" {}s", after.as_secs()));
    format!("{}{failure}{after}", outcome.as_str())
}

fn check(recorded: &Recorded, found: &str, message: &str) {
    assert_eq!(found, recorded.expect, "{} {} {}", recorded.call, recorded.status, recorded.body);
    for part in &recorded.message {
        assert!(message.contains(part), "`{part}` is not in `{message}`");
    }
    assert!(message.chars().count() < 700, "{message}");
}

#[test]
fn recorded_writes_map_to_outcomes() {
    for (recorded, response) in recorded(WRITES) {
        let with = with("k-1", &recorded.written);
        let settings = Settings::read(&with).unwrap();
        let outcome = match recorded.call.as_str() {
            "create" => match created(&response, context()) {
                Answer::Settled(outcome) => outcome,
                Answer::Exists(id) => {
                    check(&recorded, &format!("exists {}", id.as_deref().unwrap_or("unnamed")), "");
                    continue;
                }
            },
            "convert" => converted(&response, &settings, context()),
            "update" => outcome(&response, Mode::UpdateOnly(OnAbsent::DeadLetter), "contacts", context()),
            "update noop" => outcome(&response, Mode::UpdateOnly(OnAbsent::Noop), "contacts", context()),
            "associate" => {
                let with = json!({"from_object": "contacts", "from": 51, "to_object": "companies", "to": "7"});
                associated(&response, &AssociateSettings::read(&with).unwrap(), context())
            }
            other => panic!("{other}"),
        };
        let refresh = if is_token_refusal(&response, &SHIPPED_RULES) { "refresh, then " } else { "" };
        let message = outcome.failure().map_or("", |failure| &failure.message);
        check(&recorded, &format!("{refresh}{}", brief(&outcome)), message);
    }
}

#[test]
fn recorded_batches_are_taken_apart() {
    for (recorded, response) in recorded(BATCHES) {
        let withs: Vec<Value> = recorded.ids.iter().map(|id| with(id, &Map::new())).collect();
        let settings: Vec<Settings<'_>> = withs.iter().map(|with| Settings::read(with).unwrap()).collect();
        let traces: Vec<String> = recorded.ids.iter().map(|id| format!("t-{id}")).collect();
        let records: Vec<(&Settings<'_>, &str)> = settings.iter().zip(traces.iter().map(String::as_str)).collect();
        let found: Vec<String> = match batch(&response, &records, context()) {
            BatchOutcome::Whole(outcome) => vec![format!("whole {}", brief(&outcome))],
            BatchOutcome::Each(outcomes) => outcomes.iter().map(brief).collect(),
        };
        assert_eq!(json!(found), recorded.expect, "{} {}", recorded.status, recorded.body);
    }
}

#[test]
fn records_whose_common_answer_is_too_large_are_sent_alone() {
    let withs = ["a", "b"].map(|id| with(id, &Map::new()));
    let settings = withs.each_ref().map(|with| Settings::read(with).unwrap());
    let records = [(&settings[0], "t-a"), (&settings[1], "t-b")];
    let body = r#"{"status": "COMPLETE", "results": [{"id": "1", "prop"#;
    let response = HttpResponse { status: 200, headers: HeaderMap::new(), body: body.into(), truncated: true };
    let found = |records: &[(&Settings<'_>, &str)]| match batch(&response, records, context()) {
        BatchOutcome::Whole(outcome) => {
            outcome.of_whole_batch(records.len()).iter().map(brief).collect::<Vec<_>>().join(", ")
        }
        BatchOutcome::Each(outcomes) => panic!("{outcomes:?}"),
    };
    assert_eq!(found(&records), "retry conflict batch-rejected, retry conflict batch-rejected");
    assert_eq!(found(&records[..1]), "retry retryable too-large");
}

#[test]
fn recorded_reads_map_to_read_backs() {
    for (recorded, response) in recorded(READS) {
        let with = with("k-1", &recorded.written);
        let found = match readback(&response, &Settings::read(&with).unwrap(), context()) {
            Readback::Present(value) => format!("present {value}"),
            Readback::Absent => "absent".to_owned(),
            Readback::Unreadable(failure) => format!("unreadable {} {}", failure.class.as_str(), failure.code),
        };
        check(&recorded, &found, "");
    }
}

#[test]
fn recorded_token_responses_map_to_outcomes() {
    for (recorded, response) in recorded(TOKENS) {
        match grant(&response, "hub", context().now) {
            Ok(granted) => {
                let expires = granted.expires_in.map_or(0, |life| life.as_secs());
                let renewed = granted.refresh_token.unwrap_or_default();
                check(&recorded, format!("token {} {renewed} {expires}s", granted.access_token).trim(), "");
            }
            Err(outcome) => check(&recorded, &brief(&outcome), &outcome.failure().unwrap().message),
        }
    }
}

#[test]
fn every_rule_is_covered_by_a_recorded_response() {
    let hits = |lines: &str, call| {
        let error = |response: &HttpResponse| ApiError::read(response.body.trim_ascii());
        let responses = recorded(lines);
        let found = responses.iter().map(|(_, response)| find(&SHIPPED_RULES, call, response.status, &error(response)));
        found.cloned().collect::<Vec<_>>()
    };
    let mut covered = hits(WRITES, RuleCall::Effect);
    covered.extend(hits(TOKENS, RuleCall::Token));
    let missing: Vec<_> = SHIPPED_RULES.rules().filter(|(rule, _)| !covered.contains(rule)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn daily_limit_is_read_from_the_headers() {
    let headers = [("x-hubspot-ratelimit-daily", "250000"), ("x-hubspot-ratelimit-daily-remaining", "249000")];
    let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let response = |headers| HttpResponse { status: 200, headers, body: "".into(), truncated: false };
    assert_eq!(quota(&response(HeaderMap::from_iter(headers))), Some(Quota { used: 1_000, limit: 250_000 }));
    assert_eq!(quota(&response(HeaderMap::new())), None);
}
