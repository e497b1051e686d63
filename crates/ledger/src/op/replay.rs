//! Replays.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_domain::job::JobId;
use sluice_domain::replay::{Reapply, ReplayId, ReplayState};
use sluice_domain::time::Time;
use sluice_domain::unit::Rate;

use crate::filter::JobFilter;
use crate::record::ReplayRecord;

/// Requeues finished and dead jobs with the same effect keys. Live jobs are skipped.
#[derive(Clone, Debug)]
pub struct Replay {
    pub jobs: Vec<JobId>,
    pub actor: String,
    pub reason: String,
    /// Run under this revision instead of the one that the jobs were accepted under. Its steps may be at other places, so a
    /// job starts at the first one; applied effects are known by their keys and not repeated.
    pub revision: Option<Arc<str>>,
    pub at: Time,
}

/// Jobs of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySelection {
    /// Evaluated when the batch of a job comes.
    Filter(JobFilter),
    /// Numbers of jobs, ascending.
    Jobs(Vec<i64>),
}

/// A replay that starts.
#[derive(Clone, Debug)]
pub struct NewReplay {
    pub selection: ReplaySelection,
    pub actor: String,
    pub reason: String,
    /// As in [`Replay`].
    pub revision: Option<Arc<str>>,
    /// Effects that are applied again.
    pub reapply: Reapply,
    /// Jobs per time; `None` for no limit.
    pub rate: Option<Rate>,
    /// Jobs per batch.
    pub batch: u32,
    pub at: Time,
}

/// The next batch of a running replay: its jobs are requeued, and the replay continues behind them.
#[derive(Clone, Debug)]
pub struct AdvanceReplay {
    pub id: ReplayId,
    /// The last job that was looked at before; if the replay has moved on since, nothing is written.
    pub after: JobId,
    /// The last job that was looked at now.
    pub until: JobId,
    /// Jobs that are requeued. Those that are not replayable any more are counted as skipped.
    pub jobs: Vec<JobId>,
    /// Jobs that were looked at and are not requeued.
    pub skipped: u64,
    /// No job is left behind these.
    pub is_last: bool,
    /// When the next batch may start, by the wall clock.
    pub next_at: Time,
    pub at: Time,
}

/// An operator pauses, resumes or cancels a replay.
#[derive(Clone, Debug)]
pub struct ControlReplay {
    pub id: ReplayId,
    pub state: ReplayState,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl ControlReplay {
    /// As the audit trail names it.
    pub(crate) fn action(&self) -> &'static str {
        match self.state {
            ReplayState::Paused => "pause",
            ReplayState::Cancelled => "cancel",
            ReplayState::Running | ReplayState::Done => "resume",
        }
    }
}

/// The result of a [`ControlReplay`].
#[derive(Clone, Debug, PartialEq)]
pub enum Controlled {
    Changed(ReplayRecord),
    /// It is in that state already.
    Same(ReplayRecord),
    /// It is finished.
    Refused(ReplayRecord),
    Unknown,
}
