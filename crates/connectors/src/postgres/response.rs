//! Outcomes of PostgreSQL errors by SQLSTATE, and of lost connections. Pure.

use std::sync::LazyLock;

use serde_json::Value;
use sluice_domain::failure_rules::{FailureTable, RuleCall};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use crate::failures::{MatchedFailure, shipped};
use crate::text::excerpt;

/// Progress of the transaction when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// COMMIT was not sent: the server rolls back.
    Open,
    /// COMMIT was sent.
    Committing,
}

/// What SQLSTATEs mean.
pub(crate) static SHIPPED_RULES: LazyLock<FailureTable> = LazyLock::new(|| shipped(include_str!("failures.json")));

/// SQLSTATEs with which a server may end a session after it carried out the COMMIT.
const SESSION_ENDING: [&str; 6] = ["08", "40003", "53", "57P", "58", "XX"];

/// Error of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DbFailure<'a> {
    /// SQLSTATE.
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
}

/// Outcome of an error response.
pub(crate) fn rejected(location: &str, stage: Stage, error: DbFailure<'_>, rules: &FailureTable) -> Outcome {
    let DbFailure { code, message } = error;
    let found = rules.find(RuleCall::Effect, 0, code, message);
    let rule = found.expect("the last rule of the shipped table matches every error");
    if stage == Stage::Committing && SESSION_ENDING.iter().any(|start| code.starts_with(start)) {
        return connection_lost(location, stage, code, &rule.advice);
    }
    let failure = |class| {
        let quoted = excerpt(message.as_bytes());
        Failure::new(class, code, format!("{location} returned {code}: {}: {quoted}", rule.advice))
    };
    MatchedFailure { rule, status: 0, requested_wait: None }.outcome(failure)
}

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
    use crate::failures::tests::{RecordedFailure, check_recorded};

    fn rejected(location: &str, stage: Stage, code: &str, message: &str) -> Outcome {
        super::rejected(location, stage, DbFailure { code, message }, &SHIPPED_RULES)
    }

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
    fn recorded_errors_map_to_outcomes_and_cover_every_rule() {
        let find = |error: &RecordedFailure| SHIPPED_RULES.find(RuleCall::Effect, 0, &error.code, &error.message);
        check_recorded(include_str!("../../tests/data/postgres.jsonl"), &SHIPPED_RULES, find, |error| {
            let error = DbFailure { code: &error.code, message: &error.message };
            super::rejected("db/crm", Stage::Open, error, &SHIPPED_RULES)
        });
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
