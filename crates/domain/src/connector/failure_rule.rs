//! Rules that map an error answer to an outcome, as data.

use std::time::Duration;

use crate::outcome::FailureClass;
use crate::template::Template;

/// One rule. A condition that is absent matches everything.
#[derive(Debug)]
pub struct FailureRule {
    /// Any of these; empty matches every status.
    pub statuses: Vec<StatusRange>,
    /// The provider's code; a trailing `*` matches a prefix.
    pub codes: Vec<String>,
    /// Text that the provider's message contains.
    pub contains: Option<String>,
    pub action: FailureAction,
    /// Cause or remedy, for the operator.
    pub advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    Retry,
    /// Retry a few times, then leave it to an operator.
    Conflict,
    /// All callers wait: for as long as the answer says, else this long.
    Wait(Duration),
    /// Never again, with this class.
    Reject(FailureClass),
    /// The credentials are refused: the destination is paused until an operator resumes it.
    Pause,
    /// The access token is not accepted: fetch a new one, once, then as `Pause`.
    Refresh,
    /// The effect may have been applied.
    Unsure,
    /// Nothing to do: the effect is there already.
    Noop,
}

impl FailureAction {
    /// All values of `action:`.
    pub const NAMES: [&'static str; 8] = ["retry", "conflict", "wait", "reject", "pause", "refresh", "unsure", "noop"];

    /// As written in `action:`.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureAction::Retry => "retry",
            FailureAction::Conflict => "conflict",
            FailureAction::Wait(_) => "wait",
            FailureAction::Reject(_) => "reject",
            FailureAction::Pause => "pause",
            FailureAction::Refresh => "refresh",
            FailureAction::Unsure => "unsure",
            FailureAction::Noop => "noop",
        }
    }
}

/// Where an error answer has its code and its message; over `response`.
#[derive(Debug, Default)]
pub struct ErrorFields {
    pub code: Option<Template>,
    pub message: Option<Template>,
}

/// HTTP statuses, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    pub from: u16,
    pub to: u16,
}

impl StatusRange {
    pub fn one(status: u16) -> StatusRange {
        StatusRange { from: status, to: status }
    }

    /// Parses `404` and `500-599`.
    pub fn parse(text: &str) -> Option<StatusRange> {
        let status = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
        let (from, to) = match text.split_once('-') {
            Some((from, to)) => (status(from)?, status(to)?),
            None => (status(text)?, status(text)?),
        };
        (from <= to).then_some(StatusRange { from, to })
    }

    pub fn contains(self, status: u16) -> bool {
        (self.from..=self.to).contains(&status)
    }
}

impl std::fmt::Display for StatusRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}-{}", self.from, self.to),
        }
    }
}

impl FailureRule {
    pub fn matches(&self, status: u16, code: &str, message: &str) -> bool {
        let code_matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => code.starts_with(start),
            None => pattern == code,
        };
        (self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(status)))
            && (self.codes.is_empty() || self.codes.iter().any(code_matches))
            && self.contains.as_deref().is_none_or(|text| message.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_ranges_parse_and_other_texts_do_not() {
        assert_eq!(StatusRange::parse("404"), Some(StatusRange::one(404)));
        assert_eq!(StatusRange::parse("500-599"), Some(StatusRange { from: 500, to: 599 }));
        for wrong in ["", "99", "600", "599-500", "5xx", "4-5-6", "-"] {
            assert_eq!(StatusRange::parse(wrong), None, "{wrong}");
        }
        assert_eq!(StatusRange::parse("500 - 503").unwrap().to_string(), "500-503");
    }

    #[test]
    fn rule_matches_if_every_condition_holds() {
        let rule = FailureRule {
            statuses: vec![StatusRange::one(400)],
            codes: vec!["212*".into(), "7".into()],
            contains: Some("number".into()),
            action: FailureAction::Reject(FailureClass::Permanent),
            advice: String::new(),
        };
        assert!(rule.matches(400, "21211", "bad number"));
        assert!(rule.matches(400, "7", "number"));
        assert!(!rule.matches(401, "21211", "bad number"));
        assert!(!rule.matches(400, "77", "bad number"));
        assert!(!rule.matches(400, "7", "bad text"));
        let any = FailureRule { statuses: vec![], codes: vec![], contains: None, ..rule };
        assert!(any.matches(503, "", ""));
    }
}
