//! What the server's errors mean, as data, and what an error that is not the server's comes to. Pure.

use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use crate::text::excerpt;

/// How far a transaction had come when it broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before COMMIT was sent: the server takes back what it was not told to keep.
    Open,
    /// COMMIT was sent.
    Committing,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorAction {
    /// Try again.
    Retry,
    /// Hold back for a while: there is no room.
    Wait,
    /// A few times, then a person.
    Conflict,
    /// Never as it stands.
    Reject(FailureClass),
}

/// One line of the table: a whole SQLSTATE or the beginning of one.
#[derive(Debug)]
struct ErrorRule {
    code: &'static str,
    verdict: ErrorAction,
    advice: &'static str,
}

const fn row(code: &'static str, verdict: ErrorAction, advice: &'static str) -> ErrorRule {
    ErrorRule { code, verdict, advice }
}

const PERMANENT: ErrorAction = ErrorAction::Reject(FailureClass::Permanent);
const AUTH: ErrorAction = ErrorAction::Reject(FailureClass::Auth);
const BAD_DATA: &str = "correct the mapping or the data, then replay the job";

/// The first that fits.
static ROWS: &[ErrorRule] = &[
    row("08", ErrorAction::Retry, "the connection failed"),
    row("0A", PERMANENT, BAD_DATA),
    row("22", PERMANENT, BAD_DATA),
    row("23503", ErrorAction::Conflict, "a row that it refers to is not there, or not yet"),
    row("23", PERMANENT, "a constraint of the table refuses it"),
    row("25006", ErrorAction::Retry, "this server only reads, as one does while another takes over"),
    row("28", AUTH, "check the user and the password in the destination's url"),
    row("3D000", PERMANENT, "the database does not exist"),
    row("40003", ErrorAction::Retry, "the server does not know how the transaction ended"),
    row("40", ErrorAction::Retry, "the transaction met another one"),
    row(
        "42501",
        AUTH,
        "the user lacks a right; grant it, also CREATE for the table sluice_effects, or create that table by hand",
    ),
    row("42P10", PERMANENT, "`key` is not the columns of a unique index"),
    row("42", PERMANENT, BAD_DATA),
    row("53300", ErrorAction::Wait, "the server has no free connection"),
    row("53", ErrorAction::Retry, "the server has no room"),
    row("54", PERMANENT, BAD_DATA),
    row("55", ErrorAction::Retry, "something else holds it"),
    row("57014", ErrorAction::Retry, "it took longer than statement_timeout"),
    row("57", ErrorAction::Retry, "the server is stopping, starting or was told to stop this"),
    row("58", ErrorAction::Retry, "the server's machine failed"),
    row("P0001", PERMANENT, "a trigger refuses it"),
    row("XX", ErrorAction::Retry, "the server failed"),
];

static STRANGE: ErrorRule = row("", ErrorAction::Conflict, "the server refuses it");

/// States in which a server may end a session whose COMMIT it has carried out.
const ENDS_SESSIONS: [&str; 6] = ["08", "40003", "53", "57P", "58", "XX"];

/// What an attempt comes to that the server answered with an error.
pub(crate) fn refused(place: &str, stage: Stage, code: &str, message: &str) -> Outcome {
    let row = ROWS.iter().find(|row| code.starts_with(row.code)).unwrap_or(&STRANGE);
    if stage == Stage::Committing && ENDS_SESSIONS.iter().any(|start| code.starts_with(start)) {
        return broken(place, stage, code, row.advice);
    }
    let failure = |class| {
        let said = excerpt(message.as_bytes());
        Failure::new(class, code, format!("{place} answered {code}: {}: {said}", row.advice))
    };
    match row.verdict {
        ErrorAction::Retry => Outcome::Retry { failure: failure(FailureClass::Retryable), after: None },
        ErrorAction::Wait => Outcome::Wait { failure: failure(FailureClass::Retryable), after: Some(NO_ROOM) },
        ErrorAction::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict), after: None },
        ErrorAction::Reject(class) => Outcome::Reject { failure: failure(class) },
    }
}

const NO_ROOM: std::time::Duration = std::time::Duration::from_secs(5);

/// What an attempt comes to that was not answered.
pub(crate) fn broken(place: &str, stage: Stage, code: &str, reason: &str) -> Outcome {
    match stage {
        Stage::Open => Outcome::Retry {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{place}: {reason}. The transaction was not committed."),
            ),
            after: None,
        },
        Stage::Committing => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                code,
                format!("{place}: {reason}. COMMIT was sent; the next attempt looks into sluice_effects."),
            ),
        },
    }
}

/// The output, from what the server wrote as JSON.
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
    fn every_state_comes_to_what_it_means() {
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
            let outcome = refused("db/crm", Stage::Open, code, "no");
            assert_eq!(brief(&outcome), expected, "{code}");
            assert_eq!(outcome.failure().unwrap().code, code);
        }
    }

    #[test]
    fn no_row_hides_behind_an_earlier_one() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(ROWS.iter().position(|other| row.code.starts_with(other.code)), Some(index), "{row:?}");
        }
    }

    #[test]
    fn only_a_commit_that_was_sent_leaves_a_doubt() {
        assert_eq!(brief(&broken("db", Stage::Open, "reset", "gone")), "retry retryable");
        assert_eq!(brief(&broken("db", Stage::Committing, "reset", "gone")), "unsure retryable");
        assert_eq!(brief(&refused("db", Stage::Committing, "57P01", "bye")), "unsure retryable");
        assert_eq!(brief(&refused("db", Stage::Committing, "40001", "no")), "retry retryable");
        assert_eq!(brief(&refused("db", Stage::Committing, "23505", "no")), "reject permanent");
    }
}
