//! Outcomes of PostgreSQL errors by SQLSTATE, and of lost connections. Pure.

use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use crate::text::excerpt;

/// Progress of the transaction when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// COMMIT was not sent: the server rolls back.
    Open,
    /// COMMIT was sent.
    Committing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorAction {
    Retry,
    /// Defer: the server has no capacity.
    Wait,
    /// Retry a few times, then leave it to an operator.
    Conflict,
    /// Do not retry.
    Reject(FailureClass),
}

/// Rule for one SQLSTATE or a prefix of it.
#[derive(Debug)]
struct ErrorRule {
    code: &'static str,
    action: ErrorAction,
    advice: &'static str,
}

const fn rule(code: &'static str, action: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code, action, advice }
}

const PERMANENT: ErrorAction = ErrorAction::Reject(FailureClass::Permanent);
const AUTH: ErrorAction = ErrorAction::Reject(FailureClass::Auth);
const BAD_DATA: &str = "correct the mapping or the data, then replay the job";

/// The first matching rule applies.
static RULES: &[ErrorRule] = &[
    rule("08", ErrorAction::Retry, "the connection failed"),
    rule("0A", PERMANENT, BAD_DATA),
    rule("22", PERMANENT, BAD_DATA),
    rule("23503", ErrorAction::Conflict, "the referenced row does not exist, or not yet"),
    rule("23", PERMANENT, "the row violates a constraint of the table"),
    rule("25006", ErrorAction::Retry, "the server is read-only, as during a failover"),
    rule("28", AUTH, "check the user and the password in the destination's url"),
    rule("3D000", PERMANENT, "the database does not exist"),
    rule("40003", ErrorAction::Retry, "the result of the transaction is unknown"),
    rule("40", ErrorAction::Retry, "the transaction conflicts with another one"),
    rule(
        "42501",
        AUTH,
        "the user lacks a privilege; grant it, including CREATE for the table sluice_effects, or create that table by hand",
    ),
    rule("42P10", PERMANENT, "no unique index covers exactly the columns of `key`"),
    rule("42", PERMANENT, BAD_DATA),
    rule("53300", ErrorAction::Wait, "the server has no free connection"),
    rule("53", ErrorAction::Retry, "the server has insufficient resources"),
    rule("54", PERMANENT, BAD_DATA),
    rule("55", ErrorAction::Retry, "the object is in use or locked"),
    rule("57014", ErrorAction::Retry, "the statement exceeded statement_timeout"),
    rule(
        "57",
        ErrorAction::Retry,
        "the server is shutting down or starting, or an administrator cancelled the session",
    ),
    rule("58", ErrorAction::Retry, "the server had a system error"),
    rule("P0001", PERMANENT, "a trigger rejects it"),
    rule("XX", ErrorAction::Retry, "the server had an internal error"),
];

static UNKNOWN_CODE: ErrorRule = rule("", ErrorAction::Conflict, "the server rejects it");

/// SQLSTATEs with which a server may end a session after it carried out the COMMIT.
const SESSION_ENDING: [&str; 6] = ["08", "40003", "53", "57P", "58", "XX"];

/// Outcome of an error response.
pub(crate) fn rejected(location: &str, stage: Stage, code: &str, message: &str) -> Outcome {
    let rule = RULES.iter().find(|rule| code.starts_with(rule.code)).unwrap_or(&UNKNOWN_CODE);
    if stage == Stage::Committing && SESSION_ENDING.iter().any(|start| code.starts_with(start)) {
        return connection_lost(location, stage, code, rule.advice);
    }
    let failure = |class| {
        let quoted = excerpt(message.as_bytes());
        Failure::new(class, code, format!("{location} returned {code}: {}: {quoted}", rule.advice))
    };
    match rule.action {
        ErrorAction::Retry => Outcome::Retry { failure: failure(FailureClass::Retryable), after: None },
        ErrorAction::Wait => {
            Outcome::Wait { failure: failure(FailureClass::Retryable), after: Some(NO_CONNECTION_WAIT) }
        }
        ErrorAction::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict), after: None },
        ErrorAction::Reject(class) => Outcome::Reject { failure: failure(class) },
    }
}

const NO_CONNECTION_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Outcome of an attempt without a response.
pub(crate) fn connection_lost(location: &str, stage: Stage, code: &str, reason: &str) -> Outcome {
    match stage {
        Stage::Open => Outcome::Retry {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{location}: {reason}. The transaction was not committed."),
            ),
            after: None,
        },
        Stage::Committing => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{location}: {reason}. COMMIT was sent; the next attempt checks sluice_effects."),
            ),
        },
    }
}

/// Output of the step, from the row as JSON text.
pub(crate) fn output(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(outcome: &Outcome) -> String {
        format!("{} {}", outcome.as_str(), outcome.failure().unwrap().class.as_str())
    }

    #[test]
    fn sqlstate_maps_to_outcome() {
        let table = [
            ("40001", "retry retryable"),
            ("40P01", "retry retryable"),
            ("55P03", "retry retryable"),
            ("57P03", "retry retryable"),
            ("57P01", "retry retryable"),
            ("57014", "retry retryable"),
            ("25006", "retry retryable"),
            ("08006", "retry retryable"),
            ("53300", "wait retryable"),
            ("53100", "retry retryable"),
            ("23505", "reject permanent"),
            ("23502", "reject permanent"),
            ("23514", "reject permanent"),
            ("23503", "retry conflict"),
            ("22001", "reject permanent"),
            ("22P02", "reject permanent"),
            ("42P01", "reject permanent"),
            ("42P10", "reject permanent"),
            ("42501", "reject auth"),
            ("28P01", "reject auth"),
            ("28000", "reject auth"),
            ("3D000", "reject permanent"),
            ("P0001", "reject permanent"),
            ("XX000", "retry retryable"),
            ("99999", "retry conflict"),
        ];
        for (code, expected) in table {
            let outcome = rejected("db/crm", Stage::Open, code, "no");
            assert_eq!(brief(&outcome), expected, "{code}");
            assert_eq!(outcome.failure().unwrap().code, code);
        }
    }

    #[test]
    fn no_rule_is_shadowed_by_an_earlier_one() {
        for (index, rule) in RULES.iter().enumerate() {
            assert_eq!(RULES.iter().position(|other| rule.code.starts_with(other.code)), Some(index), "{rule:?}");
        }
    }

    #[test]
    fn lost_connection_is_unsure_only_after_commit_was_sent() {
        assert_eq!(brief(&connection_lost("db", Stage::Open, "reset", "gone")), "retry retryable");
        assert_eq!(brief(&connection_lost("db", Stage::Committing, "reset", "gone")), "unsure retryable");
        assert_eq!(brief(&rejected("db", Stage::Committing, "57P01", "bye")), "unsure retryable");
        assert_eq!(brief(&rejected("db", Stage::Committing, "40001", "no")), "retry retryable");
        assert_eq!(brief(&rejected("db", Stage::Committing, "23505", "no")), "reject permanent");
    }
}
