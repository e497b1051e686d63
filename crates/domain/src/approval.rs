//! Approvals: an operator decides whether a job continues.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::EffectKey;
use crate::mutant::Mutant;

/// Identifies an approval request. Derived from the effect key of the step, so that requesting twice gives one approval.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(pub [u8; 16]);

impl ApprovalId {
    /// Parses `apr_…`.
    pub fn parse(text: &str) -> Option<ApprovalId> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.trim().strip_prefix("apr_")?.as_bytes()).ok()?;
        bytes.try_into().ok().map(ApprovalId)
    }
}

impl From<EffectKey> for ApprovalId {
    fn from(key: EffectKey) -> ApprovalId {
        ApprovalId(key.0)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apr_{}", data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Decision of an operator, or of the expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    Approve,
    Reject,
}

impl Choice {
    /// As written in the configuration and in API requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Choice::Approve => "approve",
            Choice::Reject => "reject",
        }
    }

    pub fn parse(word: &str) -> Option<Choice> {
        [Choice::Approve, Choice::Reject].into_iter().find(|choice| choice.as_str() == word)
    }

    /// State after this decision.
    pub fn state(self) -> ApprovalState {
        match self {
            Choice::Approve => ApprovalState::Approved,
            Choice::Reject => ApprovalState::Rejected,
        }
    }
}

/// State of an approval. Final once decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    /// The job continues.
    Approved,
    /// The job ends.
    Rejected,
}

impl ApprovalState {
    pub const ALL: [ApprovalState; 3] = [ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Rejected];

    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Rejected => "rejected",
        }
    }

    /// Whether a decision was made: no further one counts.
    pub fn is_decided(self) -> bool {
        self != ApprovalState::Pending && !Mutant::SecondAnswerCounts.is_on()
    }

    pub fn parse(word: &str) -> Option<ApprovalState> {
        ApprovalState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Decider of an approval that expired.
pub const EXPIRY: &str = "expiry";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_round_trip() {
        let id = ApprovalId([0xab; 16]);
        assert_eq!(ApprovalId::parse(&id.to_string()), Some(id));
        assert_eq!(ApprovalId::parse("apr_12"), None);
        assert_eq!(ApprovalId::parse("eff_abababababababababababababababab"), None);
        for state in ApprovalState::ALL {
            assert_eq!(ApprovalState::parse(state.as_str()), Some(state));
        }
        assert_eq!(Choice::parse("approve").map(Choice::state), Some(ApprovalState::Approved));
    }
}
