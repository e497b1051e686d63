//! A person decides whether a job goes on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::EffectKey;

/// Names a question to a person: made of the key of the step that asks, so that asking twice is asking once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(pub [u8; 16]);

impl ApprovalId {
    /// Reads `apr_…`.
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

/// What a person, or the end of their time, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// It goes on.
    Approve,
    /// It does not.
    Reject,
}

impl Choice {
    /// The word in the configuration and in orders.
    pub fn as_str(self) -> &'static str {
        match self {
            Choice::Approve => "approve",
            Choice::Reject => "reject",
        }
    }

    /// The choice that this word names.
    pub fn parse(word: &str) -> Option<Choice> {
        [Choice::Approve, Choice::Reject].into_iter().find(|choice| choice.as_str() == word)
    }

    /// Where a question stands that was answered so.
    pub fn state(self) -> ApprovalState {
        match self {
            Choice::Approve => ApprovalState::Approved,
            Choice::Reject => ApprovalState::Rejected,
        }
    }
}

/// Where a question to a person stands. Once it is answered it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    /// Nobody has answered.
    Pending,
    /// The job goes on, or has.
    Approved,
    /// The job ends, or has.
    Rejected,
}

impl ApprovalState {
    /// Every state.
    pub const ALL: [ApprovalState; 3] = [ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Rejected];

    /// The word that people see and the ledger keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Rejected => "rejected",
        }
    }

    /// The state that this word names.
    pub fn parse(word: &str) -> Option<ApprovalState> {
        ApprovalState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Who decides when nobody did in time.
pub const EXPIRY: &str = "expiry";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_read_back() {
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
