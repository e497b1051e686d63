//! `batch:` of an action: how calls of several jobs share a request.

use sluice_domain::connector::{BatchDefinition, BatchMatching};

use super::connector::{AT_START, KnownNames, OF_REQUEST, condition_over, template, texts};
use super::connector_action::read_request;
use super::diagnostics::Report;
use super::expression::Visible;
use super::fields::Fields;
use super::node::YamlNode;
use super::rule::needs;
use super::table::{SectionSpec, ValueType, key};

/// Largest number of calls in one request.
const CALLS_MAX: u32 = 1_000;

/// Variables of the request of a batch.
const OF_BATCH: Visible<'static> = Visible { roots: &["items", "with", "destination"], ..AT_START };
/// Variables of one result.
const OF_RESULT: Visible<'static> = Visible { roots: &["result", "response"], ..AT_START };
/// Variables of one call.
const OF_CALL: Visible<'static> = Visible { roots: &["with", "effect"], ..AT_START };

pub(super) static BATCH: SectionSpec = SectionSpec {
    title: "a batch of a connector",
    about: "Waiting jobs share a request; none waits for company. The answer is taken apart into one answer for each call, which is judged by the rules of the action like that of a request of its own. Without `results` the answer is that of every call. If the request as a whole is rejected, each job is sent alone.",
    keys: &[
        key("max", ValueType::Count(2, CALLS_MAX), "Calls in one request, at the most.").required(),
        key(
            "same",
            ValueType::Described("a list of parameters"),
            "Parameters that have the same value in all calls of a request.",
        ),
        key(
            "identity",
            ValueType::Described("a list of parameters"),
            "Parameters that identify what a call writes; calls with the same values go in different requests.",
        )
        .or("no two calls write the same"),
        key(
            "item",
            ValueType::Described("anything"),
            "Part of the request for one call; reads what `request` of the action reads.",
        )
        .required(),
        key(
            "request",
            ValueType::Table("a request of a connector"),
            "The request. Expressions read `items`, `destination`, and of `with` the parameters of `same`.",
        )
        .required(),
        key("results", ValueType::Condition, "Over `response`: the list with one result for each call."),
        key("body", ValueType::Described("anything"), "Over `result` and `response`: body of the answer of one call.")
            .or("the result"),
        key("status", ValueType::Condition, "Over `result` and `response`: status of the answer of one call.")
            .or("that of the whole answer"),
        key("match", ValueType::Table("a match of a batch"), "How a result finds its call.")
            .or("by its place in the list"),
    ],
    later: &[],
    rules: &[
        needs(&["body", "results"], "`body` is of one of the `results`", "add `results`"),
        needs(&["status", "results"], "`status` is of one of the `results`", "add `results`"),
        needs(&["match", "results"], "`match` is about `results`", "add `results`"),
    ],
};

pub(super) static MATCH: SectionSpec = SectionSpec {
    title: "a match of a batch",
    about: "A result belongs to the call for which both expressions have the same value; letter case is ignored. A call without a result is unsure.",
    keys: &[
        key("result", ValueType::Condition, "Over `result`.").required(),
        key("call", ValueType::Condition, "Over `with` and `effect`.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<BatchDefinition> {
    let fields = Fields::open(report, node, &[&BATCH])?;
    let parameters = known.parameters.clone().unwrap_or_default();
    let names = |key: &'static str| {
        let found = fields.node(key).map(|node| texts(report, node, key)).unwrap_or_default();
        for name in found.iter().filter(|name| !parameters.contains(&name.as_str())) {
            let message = format!("`{name}` is not a parameter of the action");
            report.error(fields.value_span(key), "unknown-name", message).meant(name, parameters.iter().copied(), "");
        }
        found
    };
    let (same, identity) = (names("same"), names("identity"));
    let item = fields.node("item").and_then(|node| template(report, node, (OF_REQUEST, known)));
    let shared = KnownNames { keys: known.keys.clone(), parameters: Some(same.iter().map(String::as_str).collect()) };
    let request = fields.node("request").and_then(|node| read_request(report, node, (OF_BATCH, &shared)));
    let answer = Visible { roots: &["response"], ..AT_START };
    let over = |key, visible| fields.node(key).and_then(|node| condition_over(report, node, (visible, known)));
    let results = over("results", answer);
    let status = over("status", OF_RESULT);
    let body = fields.node("body").and_then(|node| template(report, node, (OF_RESULT, known)));
    let matching = fields.node("match").map(|node| read_match(report, node, known));
    let request = request?;
    let mut carries_items = false;
    request.visit_expressions(&mut |expression| carries_items |= expression.roots().contains("items"));
    if !carries_items {
        report
            .error(fields.value_span("request"), "no-items", "the request of a batch does not send its `items`")
            .hint("such as: json: {data: '{{ items }}'}");
    }
    Some(BatchDefinition {
        max: fields.count("max")?,
        same: same.clone(),
        identity,
        item: item?,
        request,
        results,
        body,
        status,
        matching: match matching {
            Some(matching) => Some(matching?),
            None => None,
        },
    })
}

fn read_match(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<BatchMatching> {
    let fields = Fields::open(report, node, &[&MATCH])?;
    let over = |key, visible| fields.node(key).and_then(|node| condition_over(report, node, (visible, known)));
    let result = over("result", Visible { roots: &["result"], ..AT_START });
    let call = over("call", OF_CALL);
    Some(BatchMatching { result: result?, call: call? })
}
