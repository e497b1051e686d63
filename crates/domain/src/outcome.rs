//! What an attempt can come to. A connector's failure is data, not an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far the destination protects itself against a repeated call. Declared by the connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectClass {
    /// The effect and its marker commit together at the destination.
    Transactional,
    /// Doing it again changes nothing: an upsert by external id, a PUT.
    Natural,
    /// The destination recognises our idempotency key.
    Keyed,
    /// It can be read back whether the effect is there.
    Verifiable,
    /// Nothing can be known after the bytes have left: SMTP, an incoming webhook.
    Blind,
}

impl EffectClass {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            EffectClass::Transactional => "transactional",
            EffectClass::Natural => "natural",
            EffectClass::Keyed => "keyed",
            EffectClass::Verifiable => "verifiable",
            EffectClass::Blind => "blind",
        }
    }

    /// The class that this word names.
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

    /// Whether the intent must be durable before the first byte leaves. A natural effect may be
    /// sent meanwhile: should the process die in between, sending it again does no harm. Not so in a
    /// job that was replayed: the ledger may know it as applied, and what came later must stay.
    pub fn waits_for_intent(self, replays: u32) -> bool {
        self != EffectClass::Natural || replays > 0
    }
}

/// Why something failed, as an operator sorts it (and as dead letters are counted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// Time-out, network, 429, 5xx: it may pass by itself.
    Retryable,
    /// A conflict, a lock, a duplicate id: retried a few times, then left to an operator. Ledgers of version 0.1 hold it as
    /// `maybe`.
    #[serde(alias = "maybe")]
    Conflict,
    /// The destination refuses this content: trying again cannot help.
    Permanent,
    /// The destination refuses who we are.
    Auth,
    /// The step could not be prepared: a missing field, an expression that failed.
    Mapping,
    /// The event lacks what the destination needs to know who it is about.
    Identity,
    /// The job killed the process, again and again.
    Poison,
    /// Waited longer than its queue keeps jobs.
    Expired,
    /// The effect may have happened and nobody can tell.
    Unknown,
}

impl FailureClass {
    /// Every class, for tables and metrics.
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

    /// The word that is stored and shown.
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

/// What went wrong, in words for a person and codes for a filter. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// How it is sorted.
    pub class: FailureClass,
    /// A short stable code: the provider's (`UNABLE_TO_LOCK_ROW`) or ours (`timeout`).
    pub code: String,
    /// One sentence: what happened and, where it is known, what to do.
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
}

impl Failure {
    /// A failure without an HTTP status.
    pub fn new(class: FailureClass, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { class, code: code.into(), message: message.into(), status: None }
    }

    /// The same with the status that the destination answered.
    pub fn with_status(self, status: u16) -> Failure {
        Failure { status: Some(status), ..self }
    }
}

/// What one attempt came to. Closed: every connector speaks in these six.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// Applied, and this is what the destination said (a record id, a body).
    Done {
        /// The step's output.
        result: Value,
    },
    /// Nothing had to be done, for a reason that is worth recording.
    Noop {
        /// Why.
        reason: String,
    },
    /// Surely not applied; try again.
    Retry {
        /// What went wrong.
        failure: Failure,
        /// When the destination asked to come back.
        after: Option<Duration>,
    },
    /// Surely not applied; the destination asks everybody to wait. Costs no attempt.
    Wait {
        /// What the destination said.
        failure: Failure,
        /// For how long; `None` when it did not say.
        after: Option<Duration>,
    },
    /// Surely not applied, and never will be as it stands.
    Reject {
        /// Why.
        failure: Failure,
    },
    /// Sent, and no whole answer: it may have been applied.
    Unsure {
        /// What broke.
        failure: Failure,
    },
}

impl Outcome {
    /// The word for metrics and attempt rows.
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

    /// What went wrong, unless nothing did.
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

/// What a read-back found when the outcome of a verifiable effect was unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Readback {
    /// The effect is there; this is what it left.
    Present(Value),
    /// The effect is not there.
    Absent,
    /// The destination could not be asked.
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
    fn stored_name_of_every_class_is_its_displayed_name() {
        for class in FailureClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(FailureClass::parse(class.as_str()), Some(class));
        }
    }
}
