//! What of a worker's backlog is in memory: a window on the ledger, never the whole of it.

use crate::hash::Set;
use crate::job::JobId;
use crate::mutant::Mutant;

use super::LaneId;

/// Jobs of one worker that are held in memory at the most.
pub const WINDOW_JOBS_MAX: usize = 8_192;
/// Jobs of one lane that are held in memory at the most, so that one noisy entity does not fill the window.
pub const LANE_JOBS_MAX: usize = 1_024;

/// How much is held in memory and runs at once. Small values are for tests and simulations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs of one worker in memory.
    pub window_jobs: usize,
    /// Jobs of one lane in memory.
    pub lane_jobs: usize,
    /// Jobs running at once over all workers.
    pub in_flight: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { window_jobs: WINDOW_JOBS_MAX, lane_jobs: LANE_JOBS_MAX, in_flight: super::IN_FLIGHT_MAX }
    }
}

/// One worker's window.
#[derive(Clone, Debug)]
pub(super) struct BacklogWindow {
    /// Jobs of this worker in memory.
    pub held: usize,
    limits: Limits,
    /// Every live job up to here is in memory or in a lane that is full.
    cursor: JobId,
    /// The ledger has, or may have, live jobs beyond the cursor.
    has_more: bool,
    loading: bool,
    /// Something arrived while a load was under way: its answer is not the whole truth.
    arrived_meanwhile: bool,
    /// Jobs from here on came back to life while a load was under way, whose answer may not have them.
    rewound: Option<JobId>,
    /// Jobs that left memory while a load was under way, whose answer may show them as they stood before.
    left: Set<JobId>,
    /// Lanes of which jobs were left in the ledger, and the first such job.
    full_lanes: Set<LaneId>,
    left_from: Option<JobId>,
}

impl BacklogWindow {
    /// Nothing is known yet: all is to be loaded.
    pub fn new(limits: Limits) -> BacklogWindow {
        BacklogWindow {
            held: 0,
            limits,
            cursor: JobId(0),
            has_more: true,
            loading: false,
            arrived_meanwhile: false,
            rewound: None,
            left: Set::default(),
            full_lanes: Set::default(),
            left_from: None,
        }
    }

    /// Whether a job that was just accepted can be taken straight into memory. If not, it will be loaded in its turn.
    pub fn admits_new(&mut self, id: JobId, lane: Option<LaneId>) -> bool {
        if self.loading {
            self.arrived_meanwhile = !Mutant::WindowForgetsWhatArrivesWhileLoading.is_on();
            return false;
        }
        if self.has_more || self.held >= self.limits.window_jobs {
            self.has_more = true;
            return false;
        }
        if lane.is_some_and(|lane| self.has_deferred(lane)) {
            self.leave(id);
            self.cursor = self.cursor.max(id);
            return false;
        }
        self.cursor = self.cursor.max(id);
        true
    }

    /// Whether every job that is accepted now stays in the ledger, and it is known that there are some: nobody need be told of
    /// one more.
    pub fn defers_new(&self) -> bool {
        self.has_more && !self.loading
    }

    /// Whether a job that goes on in another lane can take its place there. If not, it is read again in its turn, behind
    /// those of that lane that are not in memory.
    pub fn takes_moved(&mut self, id: JobId, lane: LaneId, full: bool) -> bool {
        if full || self.has_deferred(lane) {
            self.defer(id, lane);
            return false;
        }
        if self.rewound.is_some_and(|first| first <= id) {
            return false;
        }
        !self.has_more && !self.loading || self.cursor >= id
    }

    /// Whether jobs of this lane were left in the ledger: those that come behind them stay there too, even if there is
    /// room meanwhile.
    pub fn has_deferred(&self, lane: LaneId) -> bool {
        !self.full_lanes.is_empty() && self.full_lanes.contains(&lane)
    }

    /// A job of a full lane stays in the ledger for now.
    pub fn defer(&mut self, id: JobId, lane: LaneId) {
        self.full_lanes.insert(lane);
        self.leave(id);
    }

    fn leave(&mut self, id: JobId) {
        self.left_from = Some(self.left_from.map_or(id, |first| first.min(id)));
    }

    /// A job has left memory: it is finished, or stays in the ledger until it is its turn.
    pub fn evicted(&mut self, id: JobId) {
        self.held -= 1;
        if self.loading {
            self.left.insert(id);
        }
    }

    /// Whether what a load brings of this job must not be believed: it left memory meanwhile, or what stands before it will be
    /// read again and comes first.
    pub fn is_outdated(&mut self, id: JobId) -> bool {
        if self.left.contains(&id) {
            // It stands otherwise by now, or has come back to life since.
            self.rewind(id);
        }
        self.rewound.is_some_and(|first| id >= first)
    }

    /// Jobs up to and including this one have been looked at; `more` says whether the ledger had more.
    pub fn loaded(&mut self, last: Option<JobId>, more: bool) {
        self.loading = false;
        if let Some(last) = last {
            self.cursor = self.cursor.max(last);
        }
        self.has_more = more || std::mem::take(&mut self.arrived_meanwhile);
        self.go_back();
    }

    /// After a load: to where jobs came back to life meanwhile.
    fn go_back(&mut self) {
        self.left.clear();
        if let Some(first) = self.rewound.take() {
            self.rewind(first);
        }
    }

    /// A load failed and will be asked for again.
    pub fn load_failed(&mut self) {
        self.loading = false;
        self.has_more = true;
        self.go_back();
    }

    /// Jobs from here on came back to life, behind the cursor: look again.
    pub fn rewind(&mut self, id: JobId) {
        if Mutant::RevivedJobNotLookedFor.is_on() {
            return;
        }
        if self.loading {
            // The cursor moves on with the answer, which was perhaps read before.
            self.rewound = Some(self.rewound.map_or(id, |first| first.min(id)));
            return;
        }
        self.cursor = self.cursor.min(JobId(id.0 - 1));
        self.has_more = true;
    }

    /// A lane has this many jobs in memory now.
    pub fn lane_shrank(&mut self, lane: LaneId, jobs: usize) {
        if jobs < self.limits.lane_jobs.div_ceil(2)
            && self.has_deferred(lane)
            && self.full_lanes.remove(&lane)
            && let Some(first) = self.left_from.take()
        {
            self.full_lanes.clear();
            self.rewind(first);
        }
    }

    /// Where to load from, if it is time to. Marks the load as under way.
    pub fn want_load(&mut self) -> Option<(JobId, usize)> {
        if self.loading || !self.has_more || self.held > self.limits.window_jobs / 2 {
            return None;
        }
        self.loading = true;
        Some((self.cursor, self.limits.window_jobs - self.held))
    }
}
