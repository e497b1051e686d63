//! What becomes of a lane in which a call of unknown outcome may still be applied. The same for both drivers.

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;

use crate::op::{EffectSettlement, Recheck};
use crate::record::JobRecord;

/// A lane with a call of unknown outcome, and its last confirmed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Straggler {
    pub job: JobId,
    pub key: EffectKey,
    /// When the write is compared with its record, by the steady clock; [`Time::NEVER`] while it is.
    pub due_at: Time,
}

/// What a settlement changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StragglerChange {
    Keep,
    Write(Straggler),
    /// The comparison is over.
    Delete,
    /// A newer write was confirmed while this one was compared: that has no meaning any more.
    Supersede {
        old: Straggler,
        new: Straggler,
    },
}

/// What becomes of a lane that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueLane {
    /// The confirmed write is compared with its record.
    Compare,
    /// It is looked at again then.
    Later(Time),
    /// There is nothing to compare.
    Delete,
}

impl DueLane {
    /// By the states of the lane's job and of its effect.
    pub(crate) fn of(recheck: &Recheck, job: Option<JobState>, effect: Option<EffectState>) -> DueLane {
        let is_confirmed = effect == Some(EffectState::Applied);
        match job {
            Some(state) if state.is_live() => DueLane::Later(recheck.due_at + Recheck::RUNS_LATER),
            Some(JobState::Succeeded) if is_confirmed => DueLane::Compare,
            // The write counts once the job is replayed.
            Some(JobState::Dead | JobState::Unknown) if is_confirmed => {
                DueLane::Later(recheck.due_at + Recheck::FAILED_LATER)
            }
            _ => DueLane::Delete,
        }
    }
}

impl Straggler {
    pub(crate) fn is_compared(self) -> bool {
        self.due_at == Time::NEVER
    }

    /// Whether the settlement of an effect of this class can change a lane.
    pub(crate) fn concerns(class: EffectClass, settled: &EffectSettlement) -> bool {
        class == EffectClass::Natural && (settled.late_until.is_some() || settled.state == EffectState::Applied)
    }

    /// The effect of a job was settled.
    pub(crate) fn settled(lane: Option<Straggler>, job: JobId, settled: &EffectSettlement) -> StragglerChange {
        let own = |due_at| Straggler { job, key: settled.key, due_at };
        match (lane, settled.late_until) {
            (None, Some(until)) => StragglerChange::Write(own(until)),
            (Some(lane), Some(until)) => {
                let due_at = if lane.is_compared() { until } else { lane.due_at.max(until) };
                StragglerChange::Write(Straggler { due_at, ..lane })
            }
            (None, None) => StragglerChange::Keep,
            (Some(lane), None) if lane.is_compared() && lane.key == settled.key => StragglerChange::Delete,
            (Some(lane), None) if lane.is_compared() => {
                StragglerChange::Supersede { old: lane, new: own(JobRecord::DUE_AT_ONCE) }
            }
            (Some(lane), None) => StragglerChange::Write(own(lane.due_at)),
        }
    }
}
