//! Runs the recorded answers of a connector: compares the request of each call and what each answer means. Nothing is sent.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings, Preview, RecordedAnswer};
use sluice_domain::connector::RegisteredConnector;
use sluice_domain::destination::{Destination, DestinationKind, GateSettings};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;

use crate::config::{AnswerCase, ConnectorTests, ExpectedAnswer, ExpectedOutcome, ExpectedRequest};

/// Effect key of every case.
const EFFECT_KEY: &str = "0123456789abcdef0123456789abcdef";
/// Time of every case, for dates in answers: 2026-01-01T00:00:00Z.
const NOW: Time = Time(1_767_225_600_000);
const DESTINATION: &str = "recorded";

/// Result of one connector's recorded answers.
#[derive(Debug, Default)]
pub struct AnswerReport {
    pub cases: usize,
    pub answers: usize,
    /// What differs, each with the case it is in.
    pub problems: Vec<String>,
}

/// Runs every case.
pub fn run(tests: &ConnectorTests) -> AnswerReport {
    let mut report = AnswerReport { cases: tests.cases.len(), ..AnswerReport::default() };
    let destination = Destination {
        name: DESTINATION.to_owned(),
        kind: DestinationKind::Declared(tests.destination.clone()),
        timeout: Duration::from_secs(30),
        straggler_horizon: None,
        batch_max: None,
        failure_rules: vec![],
        gate: GateSettings::default(),
    };
    let connectors = match Connectors::new([&destination], &OutboundSettings::default()) {
        Ok(connectors) => connectors,
        Err(problem) => {
            report.problems.push(problem.to_string());
            return report;
        }
    };
    let mut covered = BTreeSet::new();
    for case in &tests.cases {
        run_case(&connectors, case, &mut covered, &mut report);
    }
    for (index, rule) in tests.connector.definition.failures.iter().enumerate() {
        if !covered.contains(&index) {
            let advice = &rule.advice;
            report.problems.push(format!("failure rule {} (`{advice}`) decides no recorded answer", index + 1));
        }
    }
    for action in tests.connector.actions() {
        let name = action.spec().name;
        let is_batch = |case: &&AnswerCase| case.is_batch && case.action.name() == name && case.request.is_some();
        if action.definition().batch.is_some() && !tests.cases.iter().any(|case| is_batch(&case)) {
            report.problems.push(format!("the action {name} has no case with the request of a batch"));
        }
        if !tests.cases.iter().any(|case| case.action.name() == name && case.request.is_some()) {
            report.problems.push(format!("the action {name} has no case with its request"));
        }
    }
    report
}

fn run_case(connectors: &Connectors, case: &AnswerCase, covered: &mut BTreeSet<usize>, report: &mut AnswerReport) {
    let mut problem = |what: String| report.problems.push(format!("{}: {what}", case.name));
    let keys: Vec<String> = (0..case.with.len()).map(effect_key).collect();
    let calls: Vec<Call<'_>> = case
        .with
        .iter()
        .zip(&keys)
        .map(|(with, effect_key)| Call {
            action: case.action,
            destination: DESTINATION,
            with,
            effect_key,
            message_key: None,
            record: None,
            attempt: 1,
            traceparent: None,
            timeout: Duration::from_secs(30),
            now: NOW,
        })
        .collect();
    let Some(call) = calls.first().copied() else { return problem("there is no call".to_owned()) };
    for (expected, preview) in [
        (
            &case.request,
            case.request.as_ref().map(|_| match case.is_batch {
                true => connectors.preview_batch(&calls),
                false => connectors.preview(&call),
            }),
        ),
        (&case.read_back, case.read_back.as_ref().map(|_| connectors.preview_read_back(&call))),
    ] {
        match (expected, preview) {
            (Some(expected), Some(Ok(found))) => differences(expected, &found).into_iter().for_each(&mut problem),
            (Some(_), Some(Err(failure))) => problem(format!("the request cannot be built: {}", failure.message)),
            _ => {}
        }
    }
    for answer in &case.answers {
        let judged = match case.is_batch {
            true => connectors.judge_batch(&calls, &recorded(answer)),
            false => connectors
                .judge(&call, &recorded(answer))
                .map(|(rule, outcome)| (rule.into_iter().collect(), vec![outcome])),
        };
        match judged {
            Ok((rules, outcomes)) => {
                covered.extend(rules);
                compare_outcomes(answer, &outcomes).into_iter().for_each(&mut problem);
            }
            Err(failure) => problem(failure.message),
        }
    }
    for answer in &case.read_back_answers {
        match connectors.judge_read_back(&call, &recorded(answer)) {
            Ok(found) => compare_read_back(answer, &found).into_iter().for_each(&mut problem),
            Err(failure) => problem(failure.message),
        }
    }
    report.answers += case.answers.len() + case.read_back_answers.len();
}

/// A request that a connector makes, and the recorded answer to it, for a simulator.
#[derive(Clone, Debug)]
pub struct RecordedRoute {
    pub method: String,
    /// Path of the URL; `*` stands for a value.
    pub path: String,
    pub answer: ExpectedAnswer,
    /// Answer of a read-back before the effect exists.
    pub absent: Option<ExpectedAnswer>,
    /// Members that lead to the items of the request and to the results of the answer.
    pub batch: Option<(Vec<String>, Vec<String>)>,
}

/// Path of the token endpoint, with `*` for values; `None` if the connector has none.
pub fn token_path(tests: &ConnectorTests) -> Option<String> {
    let document: Value = serde_json::from_str(&tests.connector.definition.source).unwrap_or_default();
    let template = document["auth"]["oauth"]["token_url"].as_str()?;
    let path = path_pattern(template);
    // The whole URL is a key of the destination.
    Some(if path.is_empty() { "/token".to_owned() } else { path })
}

/// The route of an action's batch, if it has one.
fn batch_route(tests: &ConnectorTests, document: &Value, name: &str, base: &str) -> Option<RecordedRoute> {
    let batch = &document["actions"][name]["batch"];
    let cases = tests.cases.iter().filter(|case| case.action.name() == name && case.is_batch);
    let is_done = |answer: &&ExpectedAnswer| answer.outcomes.first().is_some_and(|first| first.outcome == "done");
    let answer = cases.flat_map(|case| &case.answers).find(is_done)?.clone();
    let request = &batch["request"];
    let members = batch["results"].as_str().map(|results| {
        let rest = results.trim().trim_start_matches("response.body").trim_start_matches('.');
        let names = rest.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        (items_at(&request["json"]).unwrap_or_default(), names)
    });
    let found = route(method(request, "POST"), request_path(base, request), answer);
    Some(RecordedRoute { batch: members, ..found })
}

/// Members that lead to the items in a request.
fn items_at(template: &Value) -> Option<Vec<String>> {
    match template {
        Value::String(text) if text.replace(' ', "") == "{{items}}" => Some(vec![]),
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let mut names = items_at(value)?;
            names.insert(0, name.clone());
            Some(names)
        }),
        _ => None,
    }
}

/// Requests of every action with its first successful answer, its read-back and the token request.
pub fn routes(tests: &ConnectorTests) -> Vec<RecordedRoute> {
    let document: Value = serde_json::from_str(&tests.connector.definition.source).unwrap_or_default();
    let base = base_path(tests.connector);
    let mut routes = vec![];
    if let Some(path) = token_path(tests) {
        let body = json!({ "access_token": "simulated-token", "token_type": "Bearer", "expires_in": 3600 });
        routes.push(route("POST", path, simple_answer(200, body)));
    }
    for action in tests.connector.actions() {
        let name = action.spec().name;
        let own = || tests.cases.iter().filter(|case| case.action.name() == name && !case.is_batch);
        let find = |outcome: &str| own().flat_map(|case| &case.answers).find(|answer| answer.means(outcome)).cloned();
        // Before the single form: both may have one path, and only the batch knows how many results there are.
        routes.extend(batch_route(tests, &document, name, &base));
        let request = &document["actions"][name]["request"];
        if let Some(done) = find("done") {
            routes.push(route(method(request, "POST"), request_path(&base, request), done));
        }
        let find = |outcome: &str| {
            own().flat_map(|case| &case.read_back_answers).find(|answer| answer.means(outcome)).cloned()
        };
        let request = &document["actions"][name]["read_back"]["request"];
        if let Some(present) = find("present") {
            let found = route(method(request, "POST"), request_path(&base, request), present);
            routes.push(RecordedRoute { absent: find("absent"), ..found });
        }
    }
    routes
}

/// Path of the address of a connector's API, with `*` for values; empty if the requests have whole URLs.
pub fn base_path(connector: &RegisteredConnector) -> String {
    let document: Value = serde_json::from_str(&connector.definition.source).unwrap_or_default();
    document["base_url"].as_str().map(path_pattern).unwrap_or_default()
}

fn route(method: &str, path: String, answer: ExpectedAnswer) -> RecordedRoute {
    RecordedRoute { method: method.to_owned(), path, answer, absent: None, batch: None }
}

fn simple_answer(status: u16, body: Value) -> ExpectedAnswer {
    ExpectedAnswer { status, headers: vec![], body, outcomes: vec![], line: 0 }
}

fn method<'a>(request: &'a Value, usual: &'a str) -> &'a str {
    request["method"].as_str().unwrap_or(usual)
}

fn request_path(base: &str, request: &Value) -> String {
    let url = with_stars(request["url"].as_str().unwrap_or_default());
    match url.starts_with('/') {
        true => format!("{}{url}", base.trim_end_matches('/')),
        false => url,
    }
}

/// The path of a URL template, with `*` for every value.
fn path_pattern(template: &str) -> String {
    let url = with_stars(template);
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    rest.find('/').map_or_else(String::new, |at| rest[at..].to_owned())
}

fn with_stars(template: &str) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        text.push('*');
        rest = after.split_once("}}").map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text
}

fn recorded(answer: &ExpectedAnswer) -> RecordedAnswer {
    RecordedAnswer { status: answer.status, headers: answer.headers.clone(), body: answer.body.clone() }
}

fn differences(expected: &ExpectedRequest, found: &Preview) -> Vec<String> {
    let mut differences = vec![];
    if (expected.method, expected.url.as_str()) != (found.method.as_str(), found.url.as_str()) {
        differences
            .push(format!("expected {} {}, found {} {}", expected.method, expected.url, found.method, found.url));
    }
    for (name, value) in &expected.headers {
        let sent = found.headers.iter().find(|(sent, _)| sent == name).map(|(_, value)| value.as_str());
        if sent != Some(value) {
            differences.push(format!("expected the header {name}: {value}, found {}", sent.unwrap_or("none")));
        }
    }
    if expected.body != found.body {
        differences.push(format!("expected the body {}, found {}", expected.body, found.body));
    }
    differences
}

/// The effect key of the call at this place.
fn effect_key(place: usize) -> String {
    let (start, last) = EFFECT_KEY.split_at(EFFECT_KEY.len() - 2);
    let last = usize::from_str_radix(last, 16).unwrap_or_default();
    format!("{start}{:02x}", (last + place) % 256)
}

/// Compares the outcome of each call; one expected outcome is that of all.
fn compare_outcomes(answer: &ExpectedAnswer, outcomes: &[Outcome]) -> Vec<String> {
    if answer.outcomes.len() != 1 && answer.outcomes.len() != outcomes.len() {
        let (expected, found) = (answer.outcomes.len(), outcomes.len());
        return vec![format!("line {}: expected {expected} outcomes, found {found}", answer.line)];
    }
    let expected = answer.outcomes.iter().cycle();
    expected.zip(outcomes).flat_map(|(expected, outcome)| compare_outcome(answer.line, expected, outcome)).collect()
}

fn compare_outcome(line: usize, answer: &ExpectedOutcome, outcome: &Outcome) -> Vec<String> {
    let mut differences = vec![];
    let mut differ = |what: &str, expected: String, found: String| {
        if expected != found {
            differences.push(format!("line {line}: expected the {what} {expected}, found {found}"));
        }
    };
    differ("outcome", answer.outcome.to_owned(), outcome.as_str().to_owned());
    let failure = outcome.failure();
    if let Some(class) = answer.class {
        let found = failure.map_or("none", |failure| failure.class.as_str());
        differ("class", class.as_str().to_owned(), found.to_owned());
    }
    if let Some(code) = &answer.code {
        differ("code", code.clone(), failure.map_or_else(|| "none".to_owned(), |failure| failure.code.clone()));
    }
    if let Some(after) = answer.after {
        let found = match outcome {
            Outcome::Retry { after, .. } | Outcome::Wait { after, .. } => *after,
            _ => None,
        };
        differ("wait", format_duration(after), found.map_or_else(|| "none".to_owned(), format_duration));
    }
    if let (Some(result), Outcome::Done { result: found }) = (&answer.result, outcome) {
        differ("result", result.to_string(), found.to_string());
    }
    differences
}

fn compare_read_back(answer: &ExpectedAnswer, found: &Readback) -> Vec<String> {
    let (word, result) = match found {
        Readback::Present(result) => ("present", Some(result)),
        Readback::Absent => ("absent", None),
        Readback::Unreadable(_) => ("unreadable", None),
    };
    let mut differences = vec![];
    let Some(expected) = answer.outcomes.first() else { return differences };
    if word != expected.outcome {
        differences.push(format!("line {}: expected {}, found {word}", answer.line, expected.outcome));
    }
    if let (Some(expected), Some(found)) = (&expected.result, result)
        && expected != found
    {
        differences.push(format!("line {}: expected the result {expected}, found {found}", answer.line));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{shipped, shipped_tests};

    #[test]
    fn every_action_of_every_shipped_connector_has_a_route() {
        let (tests, _) = shipped_tests();
        let found: Vec<RecordedRoute> = tests.iter().flat_map(routes).collect();
        for tests in &tests {
            let count = tests.connector.actions().count();
            assert!(routes(tests).len() >= count, "{}: {:?}", tests.connector.definition.name, routes(tests));
        }
        let has = |method: &str, path: &str| found.iter().any(|route| route.method == method && route.path == path);
        assert!(has("POST", "/v1/track"));
        assert!(has("GET", "/2010-04-01/Accounts/*/Messages.json"));
        assert!(has("PATCH", "/api/data/v9.2/*(*='*')"));
        assert!(has("POST", "/*/oauth2/v2.0/token"), "the token endpoint of Dataverse");
        assert!(has("POST", "/token"), "the token endpoint of FCM");
        let batch = |path: &str| found.iter().find(|route| route.path == path).unwrap().batch.clone();
        assert_eq!(batch("/email/batch"), Some((vec![], vec![])));
        assert_eq!(batch("/crm/v8/*/upsert"), Some((vec!["data".to_owned()], vec!["data".to_owned()])));
    }

    #[test]
    fn recorded_answers_of_every_shipped_connector_hold_and_cover_every_rule() {
        let (tests, problems) = shipped_tests();
        assert!(problems.is_empty(), "{problems:#?}");
        assert_eq!(tests.len(), shipped().len());
        let failed: Vec<String> = tests
            .iter()
            .flat_map(|tests| {
                let name = &tests.connector.definition.name;
                run(tests).problems.into_iter().map(move |problem| format!("{name}: {problem}"))
            })
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
