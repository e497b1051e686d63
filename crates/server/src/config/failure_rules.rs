//! `failure_rules:` of a destination to [`FailureRule`]s.

use sluice_domain::failure_rules::{FailureAction, FailureRule, FailureRuleProblem, RULES_MAX, RuleCall, StatusRange};
use sluice_domain::outcome::FailureClass;

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::rule::at_least_one;
use super::table::{LASTING, SectionSpec, ValueType, key};

pub(super) static FAILURE_RULE: SectionSpec = SectionSpec {
    title: "a failure rule",
    about: "What an error response of the destination means. These rules are evaluated before those of the connector, which \
            `sluice destinations show NAME --rules` lists; the first match applies. All conditions of a rule must hold.",
    keys: &[
        key(
            "status",
            ValueType::Described("a status such as 429, or a range such as 500-599"),
            "HTTP status of the response; reply code of smtp.",
        ),
        key("code", ValueType::Text, "Error code of the provider: SQLSTATE of postgres, exit-N or signal-N of a script, the command (such as RCPT TO) of smtp; a trailing * matches a prefix."),
        key("contains", ValueType::Text, "Text that the provider's message contains."),
        key(
            "action",
            ValueType::OneOf(&FailureAction::NAMES),
            "retry; conflict: retry a few times; wait: stop all calls for a while; reject: dead letter; absent: the record does not \
             exist; convert: the record exists and is updated; refresh: fetch a new token once; pause: dead letter, and pause the \
             destination; unsure: the effect may have been applied; noop: there is nothing to do.",
        )
        .required(),
        key("for", LASTING, "Minimum delay of retry, or duration of wait. Retry-After of the response takes precedence."),
        key("class", ValueType::OneOf(&FailureAction::REJECT_CLASSES), "Class of the dead letter of reject.")
            .or("permanent"),
        key("advice", ValueType::Text, "Cause or remedy, shown to operators.").or("the condition of the rule"),
    ],
    later: &[],
    rules: &[at_least_one(
        &["status", "code", "contains"],
        "a failure rule needs `status`, `code` or `contains`",
        "a rule without a condition would match every error",
    )],
};

/// Rules of a destination, in order of precedence.
pub(super) fn read(fields: &Fields<'_, '_>) -> Vec<FailureRule> {
    let Some(node) = fields.node("failure_rules") else { return vec![] };
    let Some(items) = node.items() else {
        let found = node.describe();
        fields.report.error(node.span, "wrong-type", format!("`failure_rules` must be a list, found {found}"));
        return vec![];
    };
    if items.len() > RULES_MAX {
        let message = format!("`failure_rules` has {} rules; the maximum is {RULES_MAX}", items.len());
        fields.report.error(node.span, "too-many", message);
    }
    items.iter().filter_map(|item| read_rule(fields.report, item)).collect()
}

fn read_rule(report: Report<'_>, node: &YamlNode) -> Option<FailureRule> {
    let fields = Fields::open(report, node, &[&FAILURE_RULE])?;
    let status = match fields.text("status") {
        None => None,
        Some(text) => match StatusRange::parse(text) {
            Some(range) => Some(range),
            None => {
                report.error(fields.value_span("status"), "bad-value", FailureRuleProblem::Status.to_string());
                return None;
            }
        },
    };
    let text = |name| fields.text(name).map(str::to_owned);
    let (code, contains) = (text("code"), text("contains"));
    let class = fields.one_of("class").and_then(FailureClass::parse);
    let name = fields.one_of("action")?;
    let action = match FailureAction::parse(name, fields.duration("for"), class) {
        Ok(action) => action,
        Err(problem) => {
            let key = if problem == FailureRuleProblem::Class { "class" } else { "for" };
            report.error(fields.key_span(key), "contradiction", problem.to_string());
            return None;
        }
    };
    let conditions = [status.map(|range| format!("status {range}")), code.clone(), contains.clone()];
    let advice = text("advice").unwrap_or_else(|| {
        format!(
            "a failure rule of this destination matched: {}",
            conditions.into_iter().flatten().collect::<Vec<_>>().join(", ")
        )
    });
    let (statuses, codes) = (status.into_iter().collect(), code.into_iter().collect());
    Some(FailureRule { call: RuleCall::Effect, statuses, codes, contains, action, advice })
}
