//! What a job in the state [`JobState::Waiting`] waits for, by its own record. What keeps a job from starting although it is due is
//! known to the scheduler alone: [`crate::schedule::JobWait`].

use std::fmt;

use crate::call_budget::{BUDGET_CODE, BUDGET_EXHAUSTED};
use crate::job::JobState;
use crate::outcome::Failure;
use crate::record::JobRecord;
use crate::safe_mode::SAFE_MODE_HOLDS;
use crate::transition::JobUpdate;
use crate::upsert::IDENTITY_BUSY;

/// Code of a job that waits for the decision on an approval.
pub const APPROVAL_CODE: &str = "approval";
/// Code of a job whose effect a policy defers.
pub const POLICY_CODE: &str = "policy-wait";

/// Why a job waits although no attempt of it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// An operator decides on an approval.
    Approval,
    /// A policy defers the effect: quiet hours, a frequency cap.
    Policy,
    /// Safe mode holds the worker.
    SafeMode,
    /// The outcome of the last attempt is read back first.
    ReadBack,
    /// Another effect for the same record is open.
    Record,
    /// The destination asked for a pause.
    Throttled,
    /// Only the reserve of a budget is left, and the job is of a replay or an import; or the budget ended during its call.
    Budget,
    /// The next step or item is not due yet.
    Delay,
}

impl WaitReason {
    pub const ALL: [WaitReason; 8] = [
        WaitReason::Approval,
        WaitReason::Policy,
        WaitReason::SafeMode,
        WaitReason::ReadBack,
        WaitReason::Record,
        WaitReason::Throttled,
        WaitReason::Budget,
        WaitReason::Delay,
    ];

    /// The reason of a job in this state, `None` if it does not wait.
    pub fn of(state: JobState, verifying: bool, failure: Option<&Failure>) -> Option<WaitReason> {
        if state != JobState::Waiting {
            return None;
        }
        Some(match failure.map(|failure| failure.code.as_str()) {
            _ if verifying => WaitReason::ReadBack,
            None => WaitReason::Delay,
            Some(APPROVAL_CODE) => WaitReason::Approval,
            Some(POLICY_CODE) => WaitReason::Policy,
            Some(SAFE_MODE_HOLDS) => WaitReason::SafeMode,
            Some(BUDGET_CODE | BUDGET_EXHAUSTED) => WaitReason::Budget,
            Some(IDENTITY_BUSY) => WaitReason::Record,
            Some(_) => WaitReason::Throttled,
        })
    }

    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitReason::Approval => "approval",
            WaitReason::Policy => "policy",
            WaitReason::SafeMode => "safe-mode",
            WaitReason::ReadBack => "read-back",
            WaitReason::Record => "record",
            WaitReason::Throttled => "throttled",
            WaitReason::Budget => "budget",
            WaitReason::Delay => "delay",
        }
    }

    pub fn parse(word: &str) -> Option<WaitReason> {
        WaitReason::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JobRecord {
    pub fn wait_reason(&self) -> Option<WaitReason> {
        WaitReason::of(self.state, self.verifying, self.failure.as_ref())
    }

    /// The last failure. The record of a waiting job holds the reason of its wait in the same place: only a read-back follows a
    /// failure.
    pub fn last_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| matches!(self.wait_reason(), None | Some(WaitReason::ReadBack)))
    }
}

impl JobUpdate {
    pub fn wait_reason(&self) -> Option<WaitReason> {
        WaitReason::of(self.state, self.verifying, self.failure.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::FailureClass;

    #[test]
    fn every_reason_is_told_from_the_record_and_reads_back() {
        let reason = |verifying, code: Option<&str>| {
            let failure = code.map(|code| Failure::new(FailureClass::Retryable, code, ""));
            WaitReason::of(JobState::Waiting, verifying, failure.as_ref())
        };
        assert_eq!(reason(false, Some(APPROVAL_CODE)), Some(WaitReason::Approval));
        assert_eq!(reason(false, Some(POLICY_CODE)), Some(WaitReason::Policy));
        assert_eq!(reason(false, Some(SAFE_MODE_HOLDS)), Some(WaitReason::SafeMode));
        assert_eq!(reason(false, Some("429")), Some(WaitReason::Throttled));
        assert_eq!(reason(false, Some(BUDGET_CODE)), Some(WaitReason::Budget));
        assert_eq!(reason(false, None), Some(WaitReason::Delay));
        assert_eq!(reason(true, Some("timeout")), Some(WaitReason::ReadBack));
        assert_eq!(WaitReason::of(JobState::Retrying, false, None), None);
        for reason in WaitReason::ALL {
            assert_eq!(WaitReason::parse(reason.as_str()), Some(reason));
        }
    }
}
