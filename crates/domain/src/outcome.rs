//! Outcome of an attempt. A connector's failure is data, not an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far the destination protects against a call that is sent twice. Declared by the connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectClass {
    /// The effect and its marker commit together at the destination.
    Transactional,
    /// Sending it again changes nothing: an upsert by external id, a PUT.
    Natural,
    /// The destination recognises the idempotency key.
    Keyed,
    /// The destination can be queried whether the effect was applied.
    Verifiable,
    /// Nothing can be learned after sending: SMTP, an incoming webhook.
    Blind,
}

impl EffectClass {
    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            EffectClass::Transactional => "transactional",
            EffectClass::Natural => "natural",
            EffectClass::Keyed => "keyed",
            EffectClass::Verifiable => "verifiable",
            EffectClass::Blind => "blind",
        }
    }

    pub fn parse(word: &str) -> Option<EffectClass> {
        [
            EffectClass::Transactional,
            EffectClass::Natural,
            EffectClass::Keyed,
            EffectClass::Verifiable,
            EffectClass::Blind,
        ]
        .into_iter()
        .find(|class| class.as_str() == word)
    }

    /// True if the intent must be durable before the first byte is sent. A natural effect may be sent while its intent is
    /// written: if the process dies in between, sending it again does no harm. This does not hold for a replayed job:
    /// the effect may be applied already, and later changes must not be overwritten.
    pub(crate) fn waits_for_intent(self, replays: u32) -> bool {
        self != EffectClass::Natural || replays > 0
    }
}

/// Failure class, shown to operators; dead letters are counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// Timeout, network error, 429, 5xx: may succeed on a retry.
    Retryable,
    /// A conflict, a lock, a duplicate id: retried a few times, then left to an operator. Ledgers of version 0.1 hold it as
    /// `maybe`.
    #[serde(alias = "maybe")]
    Conflict,
    /// The destination rejects this content; a retry cannot help.
    Permanent,
    /// The destination rejects the credentials.
    Auth,
    /// The step could not be prepared: a missing field, or an expression that failed.
    Mapping,
    /// The event lacks the identity that the destination needs.
    Identity,
    /// The job crashed the process repeatedly.
    Poison,
    /// Waited longer than the retention of its queue.
    Expired,
    /// The effect may have been applied, and this cannot be determined.
    Unknown,
}

impl FailureClass {
    pub const ALL: [FailureClass; 9] = [
        FailureClass::Retryable,
        FailureClass::Conflict,
        FailureClass::Permanent,
        FailureClass::Auth,
        FailureClass::Mapping,
        FailureClass::Identity,
        FailureClass::Poison,
        FailureClass::Expired,
        FailureClass::Unknown,
    ];

    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Retryable => "retryable",
            FailureClass::Conflict => "conflict",
            FailureClass::Permanent => "permanent",
            FailureClass::Auth => "auth",
            FailureClass::Mapping => "mapping",
            FailureClass::Identity => "identity",
            FailureClass::Poison => "poison",
            FailureClass::Expired => "expired",
            FailureClass::Unknown => "unknown",
        }
    }

    /// The class of this name; `maybe`, the former name of `conflict`, is accepted too.
    pub fn parse(word: &str) -> Option<FailureClass> {
        if word == "maybe" {
            return Some(FailureClass::Conflict);
        }
        FailureClass::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

/// A failure: a message for operators and a code for filters. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    /// Short and stable: the provider's code (`UNABLE_TO_LOCK_ROW`) or Sluice's (`timeout`).
    pub code: String,
    /// One sentence: what happened and, if known, what to do.
    pub message: String,
    /// HTTP status, if there was a response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
}

impl Failure {
    pub fn new(class: FailureClass, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { class, code: code.into(), message: message.into(), status: None }
    }

    pub fn with_status(self, status: u16) -> Failure {
        Failure { status: Some(status), ..self }
    }

    /// Whether a request that carried other jobs too was rejected as a whole. That is no attempt of this job: it is sent again, alone.
    pub(crate) fn is_of_shared_request(&self) -> bool {
        self.code == BATCH_REJECTED
    }
}

/// Code of the failure of a job whose batch was rejected as a whole. Its next call is made for it alone.
pub const BATCH_REJECTED: &str = "batch-rejected";

/// Outcome of one attempt. Closed: every connector reports one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The destination confirmed the effect.
    Done {
        /// Output of the step: a record id, a response body.
        result: Value,
    },
    /// Nothing to do.
    Noop { reason: String },
    /// Not applied; retry.
    Retry {
        failure: Failure,
        /// Delay requested by the destination.
        after: Option<Duration>,
    },
    /// Not applied; the destination asks all callers to wait. Costs no attempt.
    Wait {
        failure: Failure,
        /// Delay requested by the destination, if any.
        after: Option<Duration>,
    },
    /// Not applied; a retry cannot help.
    Reject { failure: Failure },
    /// Sent without a complete response: may have been applied.
    Unsure { failure: Failure },
}

impl Outcome {
    /// As in metrics and attempt rows.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Done { .. } => "done",
            Outcome::Noop { .. } => "noop",
            Outcome::Retry { .. } => "retry",
            Outcome::Wait { .. } => "wait",
            Outcome::Reject { .. } => "reject",
            Outcome::Unsure { .. } => "unsure",
        }
    }

    /// The outcomes of calls that shared a request which was answered as a whole: the same for each. Only a rejection is not: it
    /// may be about one call alone, so that each is sent again in a request of its own.
    pub fn of_whole_batch(self, calls: usize) -> Vec<Outcome> {
        let outcome = match self {
            Outcome::Reject { failure } if calls > 1 && failure.class != FailureClass::Auth => {
                let message =
                    format!("A request for {calls} jobs was rejected; each is sent alone. {}", failure.message);
                let failure =
                    Failure { class: FailureClass::Conflict, code: BATCH_REJECTED.to_owned(), message, ..failure };
                Outcome::Retry { failure, after: None }
            }
            other => other,
        };
        vec![outcome; calls]
    }

    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Done { .. } | Outcome::Noop { .. } => None,
            Outcome::Retry { failure, .. }
            | Outcome::Wait { failure, .. }
            | Outcome::Reject { failure }
            | Outcome::Unsure { failure } => Some(failure),
        }
    }
}

/// Result of a read-back, made when the outcome of a verifiable effect is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Readback {
    /// The effect was applied; its result.
    Present(Value),
    /// The effect was not applied.
    Absent,
    /// The query failed.
    Unreadable(Failure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_is_read_under_its_former_name_and_written_under_the_current_one() {
        let stored = r#"{"class":"maybe","code":"UNABLE_TO_LOCK_ROW","message":"locked"}"#;
        let failure: Failure = serde_json::from_str(stored).unwrap();
        assert_eq!(failure.class, FailureClass::Conflict);
        assert_eq!(serde_json::to_string(&failure.class).unwrap(), "\"conflict\"");
        assert_eq!(FailureClass::parse("maybe"), Some(FailureClass::Conflict));
    }

    #[test]
    fn a_rejected_request_kills_none_of_its_jobs_and_other_answers_are_those_of_each() {
        let reject = |class| Outcome::Reject { failure: Failure::new(class, "X", "no").with_status(400) };
        let outcomes = reject(FailureClass::Permanent).of_whole_batch(3);
        assert_eq!(outcomes.len(), 3);
        for outcome in outcomes {
            let Outcome::Retry { failure, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(
                (failure.class, &*failure.code, failure.status),
                (FailureClass::Conflict, BATCH_REJECTED, Some(400))
            );
        }
        for whole in
            [reject(FailureClass::Auth), Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "cut", "") }]
        {
            assert_eq!(whole.clone().of_whole_batch(2), [whole.clone(), whole]);
        }
        let alone = reject(FailureClass::Permanent);
        assert_eq!(alone.clone().of_whole_batch(1), [alone]);
    }

    #[test]
    fn stored_name_of_every_class_is_its_displayed_name() {
        for class in FailureClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(FailureClass::parse(class.as_str()), Some(class));
        }
    }
}
