//! What of a worker's backlog is in memory: a window on the ledger, never the whole of it.

use std::collections::HashSet;

use crate::job::JobId;

use super::LaneId;

/// Jobs of one worker that are held in memory at the most.
pub const WINDOW_JOBS_MAX: usize = 8_192;
/// Jobs of one lane that are held in memory at the most, so that one noisy entity does not fill the window.
pub const LANE_JOBS_MAX: usize = 1_024;

/// One worker's window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Jobs of this worker in memory.
    pub held: usize,
    /// Every live job up to here is in memory or in a lane that is full.
    cursor: JobId,
    /// The ledger has, or may have, live jobs beyond the cursor.
    behind: bool,
    loading: bool,
    /// Something arrived while a load was under way: its answer is not the whole truth.
    arrived_meanwhile: bool,
    /// Lanes of which jobs were left in the ledger, and the first such job.
    full_lanes: HashSet<LaneId>,
    left_from: Option<JobId>,
}

impl Window {
    /// Nothing is known yet: all is to be loaded.
    pub fn new() -> Window {
        Window {
            held: 0,
            cursor: JobId(0),
            behind: true,
            loading: false,
            arrived_meanwhile: false,
            full_lanes: HashSet::new(),
            left_from: None,
        }
    }

    /// Whether a job that was just accepted can be taken straight into memory. If not, it will be loaded in its turn.
    pub fn takes_fresh(&mut self, id: JobId, lane: Option<LaneId>) -> bool {
        if self.loading {
            self.arrived_meanwhile = true;
            return false;
        }
        if self.behind || self.held >= WINDOW_JOBS_MAX {
            self.behind = true;
            return false;
        }
        if lane.is_some_and(|lane| self.full_lanes.contains(&lane)) {
            self.leave(id);
            self.cursor = self.cursor.max(id);
            return false;
        }
        self.cursor = self.cursor.max(id);
        true
    }

    /// A job of a full lane stays in the ledger for now.
    pub fn leave_in(&mut self, id: JobId, lane: LaneId) {
        self.full_lanes.insert(lane);
        self.leave(id);
    }

    fn leave(&mut self, id: JobId) {
        self.left_from = Some(self.left_from.map_or(id, |first| first.min(id)));
    }

    /// Jobs up to and including this one have been looked at; `more` says whether the ledger had more.
    pub fn loaded(&mut self, last: Option<JobId>, more: bool) {
        self.loading = false;
        if let Some(last) = last {
            self.cursor = self.cursor.max(last);
        }
        self.behind = more || std::mem::take(&mut self.arrived_meanwhile);
    }

    /// A load failed and will be asked for again.
    pub fn load_failed(&mut self) {
        self.loading = false;
        self.behind = true;
    }

    /// Jobs from here on came back to life, behind the cursor: look again.
    pub fn rewind(&mut self, id: JobId) {
        self.cursor = self.cursor.min(JobId(id.0 - 1));
        self.behind = true;
        if self.loading {
            self.arrived_meanwhile = true;
        }
    }

    /// A lane has this many jobs in memory now.
    pub fn lane_shrank(&mut self, lane: LaneId, jobs: usize) {
        if jobs < LANE_JOBS_MAX / 2 && self.full_lanes.remove(&lane) && let Some(first) = self.left_from.take() {
            self.full_lanes.clear();
            self.rewind(first);
        }
    }

    /// Where to load from, if it is time to. Marks the load as under way.
    pub fn want_load(&mut self) -> Option<(JobId, usize)> {
        if self.loading || !self.behind || self.held > WINDOW_JOBS_MAX / 2 {
            return None;
        }
        self.loading = true;
        Some((self.cursor, WINDOW_JOBS_MAX - self.held))
    }
}
