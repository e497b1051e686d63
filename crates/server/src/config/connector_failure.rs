//! `failures:` of a connector.

use std::time::Duration;

use sluice_domain::connector::ConnectorAuth;
use sluice_domain::failure_rules::{FailureAction, FailureRule, RuleCall, StatusRange};
use sluice_domain::outcome::FailureClass;

use super::connector::texts;
use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::rule::at_least_one;
use super::table::{LASTING, SectionSpec, ValueType, key};

/// Wait of a rule whose answer names none.
const WAIT: Duration = Duration::from_secs(30);

pub(super) static FAILURE: SectionSpec = SectionSpec {
    title: "a failure rule of a connector",
    about: "Matches if every condition holds. Each rule needs a recorded answer.",
    keys: &[
        key("status", ValueType::Described("a status such as 404, a range such as 500-599, or a list"), "HTTP statuses."),
        key("code", ValueType::Described("a code, or a list"), "The provider's code; a trailing `*` matches a prefix."),
        key("contains", ValueType::Text, "Text that the provider's message contains."),
        key(
            "action",
            ValueType::OneOf(&FailureAction::DECLARED_NAMES),
            "retry; conflict: a few times; wait: all callers; reject: never again; pause: the credentials are refused, so the job is a dead letter of class auth and the destination is paused; refresh: fetch a new token; unsure: may be applied; noop: nothing to do.",
        )
        .required(),
        key("class", ValueType::OneOf(&["permanent", "identity", "mapping"]), "Failure class of `reject`.").or("permanent"),
        key("for", LASTING, "How long `wait` lasts if the answer does not say.").or("30s"),
        key("advice", ValueType::Text, "Cause or remedy, for the operator.").required(),
    ],
    later: &[],
    rules: &[at_least_one(
        &["status", "code", "contains"],
        "a failure rule needs `status`, `code` or `contains`",
        "such as: status: 429",
    )],
};

/// Statuses and ranges of statuses.
pub(super) fn statuses(report: Report<'_>, node: &YamlNode) -> Vec<StatusRange> {
    let mut found = vec![];
    for item in node.items().unwrap_or(std::slice::from_ref(node)) {
        match item.text().and_then(StatusRange::parse) {
            Some(range) => found.push(range),
            None => {
                report
                    .error(item.span, "bad-value", "`status` must be a status such as 404, or a range such as 500-599")
                    .hint("several are a list: [404, 500-599]");
            }
        }
    }
    found
}

pub(super) fn read(report: Report<'_>, node: &YamlNode) -> Option<FailureRule> {
    let fields = Fields::open(report, node, &[&FAILURE])?;
    let statuses = fields.node("status").map(|node| statuses(report, node)).unwrap_or_default();
    let codes = fields.node("code").map(|node| texts(report, node, "code")).unwrap_or_default();
    let class = match fields.one_of("class") {
        Some("identity") => FailureClass::Identity,
        Some("mapping") => FailureClass::Mapping,
        _ => FailureClass::Permanent,
    };
    let after = fields.duration("for");
    let action = match fields.one_of("action")? {
        "retry" => FailureAction::Retry(None),
        "conflict" => FailureAction::Conflict,
        "wait" => FailureAction::Wait(Some(after.unwrap_or(WAIT))),
        "pause" => FailureAction::Pause,
        "refresh" => FailureAction::Refresh,
        "unsure" => FailureAction::Unsure,
        "noop" => FailureAction::Noop,
        _ => FailureAction::Reject(class),
    };
    for (name, used) in
        [("class", action == FailureAction::Reject(class)), ("for", matches!(action, FailureAction::Wait(_)))]
    {
        if fields.node(name).is_some() && !used {
            let message = format!("`{name}` is not used with `action: {}`", action.as_str());
            report.error(fields.key_span(name), "unused-key", message);
        }
    }
    Some(FailureRule {
        call: RuleCall::Effect,
        statuses,
        codes,
        contains: fields.text("contains").map(str::to_owned),
        action,
        advice: fields.text("advice").unwrap_or_default().to_owned(),
    })
}

/// A token can only be fetched again if it was fetched.
pub(super) fn check_refresh(
    report: Report<'_>,
    fields: &Fields<'_, '_>,
    failures: &[FailureRule],
    auth: &ConnectorAuth,
) {
    let refreshes = failures.iter().any(|rule| rule.action == FailureAction::Refresh);
    if refreshes && !matches!(auth, ConnectorAuth::OAuth(_)) {
        report
            .error(fields.key_span("failures"), "contradiction", "`action: refresh` needs `auth.oauth`")
            .hint("write `action: pause` for credentials that are refused");
    }
}
