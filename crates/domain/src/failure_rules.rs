//! Failure rules: what an error response of a destination means, as data.
//!
//! Each connector ships a table; a declared one has its rules in its document. Rules of a destination are evaluated before those
//! of its connector; the first match applies. One type of rule and one decision for all of them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use crate::outcome::FailureClass;
use crate::unit;

/// Maximum rules of one destination.
pub const RULES_MAX: usize = 200;

/// What happens after a matching error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// Retry; not before this long.
    Retry(Option<Duration>),
    /// Retry a few times (`max_attempts_conflict`), then leave it to an operator.
    Conflict,
    /// Stop all calls of the destination for this long, or as long as its response says. Costs no attempt.
    Wait(Option<Duration>),
    /// Do not retry: the job becomes a dead letter of this class.
    Reject(FailureClass),
    /// The record does not exist; `on_absent` of the step decides.
    Absent,
    /// The record exists already: the connector makes the call an update of it.
    Convert,
    /// The token is invalid: fetch a new one and send once more, then as `pause`.
    Refresh,
    /// The job becomes a dead letter of class auth, and the destination is paused until an operator resumes it.
    Pause,
    /// The effect may have been applied; its class decides.
    Unsure,
    /// Nothing to do: the effect is there already.
    Noop,
}

impl FailureAction {
    /// Values of `action:`.
    pub const NAMES: [&'static str; 10] =
        ["retry", "conflict", "wait", "reject", "absent", "convert", "refresh", "pause", "unsure", "noop"];

    /// Those of a rule in a connector document: its requests know no other records.
    pub const DECLARED_NAMES: [&'static str; 8] =
        ["retry", "conflict", "wait", "reject", "pause", "refresh", "unsure", "noop"];

    /// Classes that `reject` accepts. Rejected credentials are `pause`.
    pub const REJECT_CLASSES: [&'static str; 3] = ["permanent", "mapping", "identity"];

    pub fn as_str(self) -> &'static str {
        match self {
            FailureAction::Retry(_) => "retry",
            FailureAction::Conflict => "conflict",
            FailureAction::Wait(_) => "wait",
            FailureAction::Reject(_) => "reject",
            FailureAction::Absent => "absent",
            FailureAction::Convert => "convert",
            FailureAction::Refresh => "refresh",
            FailureAction::Pause => "pause",
            FailureAction::Unsure => "unsure",
            FailureAction::Noop => "noop",
        }
    }

    /// The action of this name. `after` is for `retry` and `wait`, `class` for `reject`.
    pub fn parse(
        name: &str,
        after: Option<Duration>,
        class: Option<FailureClass>,
    ) -> Result<FailureAction, FailureRuleProblem> {
        let action = match name {
            "retry" => FailureAction::Retry(after),
            "conflict" => FailureAction::Conflict,
            "wait" => FailureAction::Wait(after),
            "reject" => FailureAction::Reject(class.unwrap_or(FailureClass::Permanent)),
            "absent" => FailureAction::Absent,
            "convert" => FailureAction::Convert,
            "refresh" => FailureAction::Refresh,
            "pause" => FailureAction::Pause,
            "unsure" => FailureAction::Unsure,
            "noop" => FailureAction::Noop,
            _ => return Err(FailureRuleProblem::Action),
        };
        let takes_after = matches!(action, FailureAction::Retry(_) | FailureAction::Wait(_));
        if after.is_some() && !takes_after {
            return Err(FailureRuleProblem::After);
        }
        match (action, class) {
            (FailureAction::Reject(class), _) if !FailureAction::REJECT_CLASSES.contains(&class.as_str()) => {
                Err(FailureRuleProblem::Class)
            }
            (FailureAction::Reject(_), _) | (_, None) => Ok(action),
            (_, Some(_)) => Err(FailureRuleProblem::Class),
        }
    }
}

/// For operators: `wait 30s`, `reject permanent`.
impl fmt::Display for FailureAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            FailureAction::Retry(Some(after)) | FailureAction::Wait(Some(after)) => {
                write!(f, " {}", unit::format_duration(*after))
            }
            FailureAction::Reject(class) => write!(f, " {}", class.as_str()),
            _ => Ok(()),
        }
    }
}

/// HTTP statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    pub first: u16,
    pub last: u16,
}

impl StatusRange {
    pub fn one(status: u16) -> StatusRange {
        StatusRange { first: status, last: status }
    }

    /// Reads `429` or `500-599`; statuses are 100 to 599.
    pub fn parse(text: &str) -> Option<StatusRange> {
        let status = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..600).contains(status));
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (status(first)?, status(last)?),
            None => (status(text)?, status(text)?),
        };
        (first <= last).then_some(StatusRange { first, last })
    }

    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// The call that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleCall {
    /// The effect and its read-back.
    #[default]
    Effect,
    /// The request for an access token; the effect was not sent.
    Token,
}

/// One rule. Conditions that are absent match everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRule {
    pub call: RuleCall,
    /// Any of these; empty matches every status.
    pub statuses: Vec<StatusRange>,
    /// Any of these codes of the provider; a trailing `*` matches a prefix, and an empty one a response without a code. An empty
    /// list matches every code.
    pub codes: Vec<String>,
    /// Text that the provider's message contains.
    pub contains: Option<String>,
    pub action: FailureAction,
    /// Cause or remedy, for the operator.
    pub advice: String,
}

impl FailureRule {
    pub fn matches(&self, status: u16, code: &str, message: &str) -> bool {
        let code_matches = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => code.starts_with(start),
            None => wanted == code,
        };
        (self.codes.is_empty() || self.codes.iter().any(code_matches))
            && (self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(status)))
            && self.contains.as_deref().is_none_or(|part| message.contains(part))
    }
}

/// Why a rule is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureRuleProblem {
    #[error("`action` must be one of {}", FailureAction::NAMES.join(", "))]
    Action,
    #[error("only `retry` and `wait` take `for`")]
    After,
    #[error("only `reject` takes `class`, one of {}", FailureAction::REJECT_CLASSES.join(", "))]
    Class,
    #[error("`status` must be a status such as 429 or a range such as 500-599")]
    Status,
    #[error("`for` must be a duration such as 30s")]
    Duration,
}

/// Rules of one connector or destination, in order of precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureTable {
    rules: Vec<(FailureRule, RuleOrigin)>,
}

/// Where a rule is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrigin {
    /// `failure_rules:` of the destination.
    Destination,
    /// The table or the document of its connector.
    Connector,
    /// The table of HTTP, which applies where a declared connector says nothing.
    Http,
}

impl RuleOrigin {
    pub fn as_str(self) -> &'static str {
        match self {
            RuleOrigin::Destination => "configuration",
            RuleOrigin::Connector => "connector",
            RuleOrigin::Http => "http",
        }
    }
}

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn texts(self) -> Vec<String> {
        match self {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

/// A rule as written in a shipped table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    #[serde(default)]
    call: RuleCall,
    status: Option<OneOrMore>,
    code: Option<OneOrMore>,
    contains: Option<String>,
    action: String,
    r#for: Option<String>,
    class: Option<String>,
    advice: String,
}

impl WrittenRule {
    fn read(self) -> Result<FailureRule, FailureRuleProblem> {
        let statuses = self.status.map_or_else(Vec::new, OneOrMore::texts);
        let statuses = statuses.iter().map(|text| StatusRange::parse(text).ok_or(FailureRuleProblem::Status));
        let after =
            self.r#for.map(|text| unit::duration(&text).map_err(|_| FailureRuleProblem::Duration)).transpose()?;
        let class = self.class.map(|text| FailureClass::parse(&text).ok_or(FailureRuleProblem::Class)).transpose()?;
        let action = FailureAction::parse(&self.action, after, class)?;
        Ok(FailureRule {
            call: self.call,
            statuses: statuses.collect::<Result<_, _>>()?,
            codes: self.code.map_or_else(Vec::new, OneOrMore::texts),
            contains: self.contains,
            action,
            advice: self.advice,
        })
    }
}

impl FailureTable {
    /// Reads a shipped table: a JSON list of rules.
    pub fn parse(json: &str) -> Result<FailureTable, String> {
        let written: Vec<WrittenRule> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let rules = written
            .into_iter()
            .enumerate()
            .map(|(index, rule)| rule.read().map_err(|problem| format!("rule {}: {problem}", index + 1)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(FailureTable::of_connector(&rules))
    }

    /// The rules of a connector.
    pub fn of_connector(rules: &[FailureRule]) -> FailureTable {
        FailureTable { rules: rules.iter().map(|rule| (rule.clone(), RuleOrigin::Connector)).collect() }
    }

    /// This table behind the rules of a destination.
    pub fn behind(&self, own: &[FailureRule]) -> FailureTable {
        let own = own.iter().map(|rule| (rule.clone(), RuleOrigin::Destination));
        FailureTable { rules: own.chain(self.rules.iter().cloned()).collect() }
    }

    /// This table, and where it has no rule, that of HTTP.
    pub fn before_http(mut self, http: &FailureTable) -> FailureTable {
        self.rules.extend(http.rules.iter().map(|(rule, _)| (rule.clone(), RuleOrigin::Http)));
        self
    }

    /// The first rule that matches an error response.
    pub fn find(&self, call: RuleCall, status: u16, code: &str, message: &str) -> Option<&FailureRule> {
        self.find_with_origin(call, status, code, message).map(|(rule, _)| rule)
    }

    /// The same, with where it is written.
    pub fn find_with_origin(
        &self,
        call: RuleCall,
        status: u16,
        code: &str,
        message: &str,
    ) -> Option<(&FailureRule, RuleOrigin)> {
        let found = self.rules.iter().find(|(rule, _)| rule.call == call && rule.matches(status, code, message));
        found.map(|(rule, origin)| (rule, *origin))
    }

    /// Every rule in order of precedence, and where it is written.
    pub fn rules(&self) -> impl Iterator<Item = (&FailureRule, RuleOrigin)> {
        self.rules.iter().map(|(rule, origin)| (rule, *origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(json: &str) -> FailureTable {
        FailureTable::parse(json).unwrap()
    }

    #[test]
    fn first_matching_rule_applies_and_rules_of_the_destination_come_first() {
        let shipped = table(
            r#"[{"code": "RATE*", "status": "429", "action": "wait", "for": "10s", "advice": "a"},
                {"status": "400-499", "action": "reject", "advice": "b"},
                {"call": "token", "action": "pause", "advice": "c"}]"#,
        );
        let action = |table: &FailureTable, status, code: &str| {
            table.find(RuleCall::Effect, status, code, "").map(|rule| rule.action.to_string())
        };
        assert_eq!(action(&shipped, 429, "RATE_LIMITS").as_deref(), Some("wait 10s"));
        assert_eq!(action(&shipped, 429, "OTHER").as_deref(), Some("reject permanent"));
        assert_eq!(action(&shipped, 500, "RATE_LIMITS"), None);
        assert_eq!(shipped.find(RuleCall::Token, 500, "", "").unwrap().action, FailureAction::Pause);
        let own = table(r#"[{"status": "429", "contains": "busy", "action": "retry", "for": "2s", "advice": "d"}]"#);
        let own: Vec<FailureRule> = own.rules().map(|(rule, _)| rule.clone()).collect();
        let both = shipped.behind(&own);
        assert_eq!(both.find(RuleCall::Effect, 429, "RATE_LIMITS", "busy").unwrap().advice, "d");
        assert_eq!(both.find(RuleCall::Effect, 429, "RATE_LIMITS", "").unwrap().advice, "a");
        let origins: Vec<&str> = both.rules().map(|(_, origin)| origin.as_str()).collect();
        assert_eq!(origins, ["configuration", "connector", "connector", "connector"]);
    }

    #[test]
    fn lists_match_any_of_their_members_and_an_empty_code_a_response_without_one() {
        let rules = table(
            r#"[{"status": ["408", "500-599"], "code": ["A*", "b"], "contains": "x", "action": "retry", "advice": "a"},
                {"status": "200-299", "code": "", "action": "unsure", "advice": "b"}]"#,
        );
        let advice = |status, code: &str, message: &str| {
            rules.find(RuleCall::Effect, status, code, message).map(|rule| rule.advice.as_str())
        };
        assert_eq!(advice(408, "Abc", "xy"), Some("a"));
        assert_eq!(advice(502, "b", "x"), Some("a"));
        assert_eq!((advice(502, "c", "x"), advice(409, "b", "x"), advice(502, "b", "")), (None, None, None));
        assert_eq!((advice(200, "", ""), advice(200, "c", "")), (Some("b"), None));
    }

    #[test]
    fn invalid_rules_are_reported_with_their_number() {
        for (rule, expected) in [
            (r#"{"action": "ignore", "advice": ""}"#, "rule 1: `action` must be one of retry"),
            (r#"{"action": "reject", "for": "3s", "advice": ""}"#, "rule 1: only `retry` and `wait`"),
            (r#"{"action": "reject", "class": "auth", "advice": ""}"#, "rule 1: only `reject` takes `class`"),
            (r#"{"action": "retry", "class": "permanent", "advice": ""}"#, "rule 1: only `reject` takes `class`"),
            (r#"{"action": "retry", "status": "700", "advice": ""}"#, "rule 1: `status` must be"),
            (r#"{"action": "retry", "status": "500-400", "advice": ""}"#, "rule 1: `status` must be"),
            (r#"{"action": "wait", "for": "soon", "advice": ""}"#, "rule 1: `for` must be"),
            (r#"{"action": "retry", "advise": ""}"#, "unknown field"),
        ] {
            let problem = FailureTable::parse(&format!("[{rule}]")).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
