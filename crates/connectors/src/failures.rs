//! From a failure rule to an outcome, the same for every connector with a table.

use std::time::Duration;

use sluice_domain::failure_rules::{FailureAction, FailureRule};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

/// An error response and the rule that it matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedFailure<'a> {
    pub(crate) rule: &'a FailureRule,
    pub(crate) status: u16,
    /// Wait that the destination asks for.
    pub(crate) requested_wait: Option<Duration>,
}

impl MatchedFailure<'_> {
    /// Outcome of a call with this response. The connector performs `absent` and `convert` itself; where it cannot, they
    /// reject.
    pub(crate) fn outcome(&self, failure: impl Fn(FailureClass) -> Failure) -> Outcome {
        let requested = self.requested_wait;
        match self.rule.action {
            FailureAction::Wait(wait) => {
                Outcome::Wait { failure: failure(FailureClass::Retryable), after: requested.or(wait) }
            }
            FailureAction::Retry(_) if self.status == 503 && requested.is_some() => {
                Outcome::Wait { failure: failure(FailureClass::Retryable), after: requested }
            }
            FailureAction::Retry(after) => {
                Outcome::Retry { failure: failure(FailureClass::Retryable), after: requested.or(after) }
            }
            FailureAction::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict), after: requested },
            FailureAction::Reject(class) => Outcome::Reject { failure: failure(class) },
            // A server error does not tell whether the record exists.
            FailureAction::Absent | FailureAction::Convert if self.status >= 500 => {
                Outcome::Retry { failure: failure(FailureClass::Retryable), after: requested }
            }
            FailureAction::Absent | FailureAction::Convert => {
                Outcome::Reject { failure: failure(FailureClass::Permanent) }
            }
            FailureAction::Refresh | FailureAction::Pause => Outcome::Reject { failure: failure(FailureClass::Auth) },
        }
    }

    /// Result of a read-back with this response.
    pub(crate) fn readback(&self, failure: impl Fn(FailureClass) -> Failure) -> Readback {
        Readback::Unreadable(match self.rule.action {
            FailureAction::Absent if self.status < 500 => return Readback::Absent,
            FailureAction::Absent | FailureAction::Wait(_) | FailureAction::Retry(_) => {
                failure(FailureClass::Retryable)
            }
            FailureAction::Conflict | FailureAction::Convert => failure(FailureClass::Conflict),
            FailureAction::Reject(class) => failure(class),
            FailureAction::Refresh | FailureAction::Pause => failure(FailureClass::Auth),
        })
    }
}
