//! The part of a backlog that is in memory: a window on the live jobs of one worker and destination.
//!
//! Queued jobs are loaded in ascending order of their ids, up to a cursor. Every live job up to the cursor is in memory, or stays
//! in the ledger for a known reason: its lane is full, or an older job of its lane is deferred. Retrying and waiting jobs are
//! loaded by their due time.

use std::time::Duration;

use crate::hash::{Map, Set};
use crate::job::JobId;
use crate::mutant::Mutant;
use crate::time::Time;

use super::{HORIZON, LaneId};

/// Jobs in memory.
pub const JOBS_MAX: usize = 16_384;
/// Jobs of one lane in memory, so that one noisy entity does not fill the window.
pub const LANE_JOBS_MAX: usize = 1_024;
/// Jobs that one load brings.
pub const LOAD_JOBS_MAX: usize = 1_024;
/// Jobs running at once over all workers.
pub const IN_FLIGHT_MAX: usize = 1_024;

/// Limits of memory and of runs. Small values are for tests and simulations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs in memory over all workers and destinations.
    pub jobs: usize,
    /// Jobs of one lane in memory.
    pub lane_jobs: usize,
    /// Jobs that one load brings.
    pub load_jobs: usize,
    /// Jobs running at once over all workers.
    pub in_flight: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { jobs: JOBS_MAX, lane_jobs: LANE_JOBS_MAX, load_jobs: LOAD_JOBS_MAX, in_flight: IN_FLIGHT_MAX }
    }
}

/// Why a load is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadKind {
    /// To run jobs.
    Window,
    /// To find interrupted jobs only, while the destination or the worker cannot run.
    Interrupted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LoadUnderWay {
    pub kind: LoadKind,
    /// Jobs that fit into memory.
    pub room: usize,
}

/// Progress of the search for interrupted jobs in a backlog that cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptedScan {
    From(JobId),
    Done,
}

#[derive(Debug)]
pub(super) struct BacklogWindow {
    /// Jobs in memory.
    pub jobs: usize,
    /// Jobs in memory that the ledger has as retrying or waiting.
    pub timed: usize,
    /// Jobs at the heads of their lanes that are not due yet.
    pub waiting: usize,
    pub cursor: JobId,
    /// The highest cursor so far: jobs up to here were in memory or loads have passed over them.
    pub seen_until: JobId,
    /// The ledger has, or may have, queued jobs beyond the cursor.
    pub has_more: bool,
    /// The ledger has, or may have, jobs that are not deferred by their due time and not in memory.
    pub more_due: bool,
    /// The earliest due time of a deferred job, as far as is known. In the past: not known.
    pub next_due: Option<Time>,
    pub load: Option<LoadUnderWay>,
    /// Jobs that are due by this time are not deferred. It changes only while no load is under way.
    pub due_by: Time,
    /// How far ahead of their time jobs are in memory: zero while jobs that could run have no room.
    horizon: Duration,
    /// No load before this time: the last one failed.
    pub retry_at: Time,
    pub scan: InterruptedScan,
    /// Jobs whose route to this destination is being written.
    pub incoming: u32,
    /// A job arrived while a load was under way, whose answer may not have it.
    arrived: bool,
    /// Jobs from here on became live while a load was under way, whose answer may not have them.
    rewound: Option<JobId>,
    /// Due time of a job that was deferred while a load was under way, whose answer may not know of it.
    deferred_meanwhile: Option<Time>,
    /// Jobs that left memory while a load was under way, whose answer may have them as they were before.
    left: Set<JobId>,
    /// Lanes of jobs that were deferred while a load was under way, whose answer may have the jobs behind them.
    blocked: Map<LaneId, JobId>,
    /// Lanes of which jobs stay in the ledger because the lane is full, and the first such job.
    full_lanes: Set<LaneId>,
    full_from: Option<JobId>,
    /// Jobs that fitted into a lane when one was full.
    lane_limit: usize,
}

impl BacklogWindow {
    /// Nothing is known: everything is to be loaded.
    pub(super) fn new() -> BacklogWindow {
        BacklogWindow {
            jobs: 0,
            timed: 0,
            waiting: 0,
            cursor: JobId(0),
            seen_until: JobId(0),
            has_more: true,
            more_due: false,
            next_due: Some(Time(i64::MIN)),
            load: None,
            due_by: Time(i64::MIN),
            horizon: HORIZON,
            retry_at: Time(i64::MIN),
            scan: InterruptedScan::From(JobId(0)),
            incoming: 0,
            arrived: false,
            rewound: None,
            deferred_meanwhile: None,
            left: Set::default(),
            blocked: Map::default(),
            full_lanes: Set::default(),
            full_from: None,
            lane_limit: 1,
        }
    }

    /// Whether every live job is in memory, apart from jobs of full lanes and deferred jobs with those behind them.
    pub(super) fn is_current(&self) -> bool {
        self.load.is_none() && !self.has_more && !self.more_due && self.incoming == 0
    }

    /// A new job stays in the ledger and is loaded later.
    pub(super) fn pass_over_new(&mut self) {
        match self.load {
            Some(_) => self.arrived = !Mutant::WindowForgetsWhatArrivesWhileLoading.is_on(),
            None => self.has_more = true,
        }
    }

    /// Whether every new job stays in the ledger, and it is known that there are some: further ones need not be announced.
    pub(super) fn defers_new(&self) -> bool {
        self.has_more && self.load.is_none()
    }

    /// Whether a job that comes from another lane keeps its order if it is placed in memory: nothing older of its lane is in the
    /// ledger alone.
    pub(super) fn keeps_order(&self, id: JobId) -> bool {
        !self.more_due
            && self.incoming == 0
            && self.rewound.is_none_or(|first| first > id)
            && (self.cursor >= id || !self.has_more && self.load.is_none())
    }

    /// Whether jobs of this lane stay in the ledger: those behind them stay there too, even if there is room meanwhile.
    pub(super) fn is_lane_full(&self, lane: LaneId) -> bool {
        !self.full_lanes.is_empty() && self.full_lanes.contains(&lane)
    }

    /// A job stays in the ledger because its lane is full.
    pub(super) fn pass_over_full(&mut self, id: JobId, lane: LaneId, lane_limit: usize) {
        self.full_lanes.insert(lane);
        self.lane_limit = lane_limit;
        self.full_from = Some(self.full_from.map_or(id, |first| first.min(id)));
    }

    /// The lane has this many jobs in memory now.
    pub(super) fn lane_shrank(&mut self, lane: LaneId, jobs: usize) {
        if self.is_lane_full(lane)
            && jobs < self.lane_limit.div_ceil(2)
            && let Some(first) = self.full_from.take()
        {
            self.full_lanes.clear();
            self.rewind(first);
        }
    }

    /// A job has left memory.
    pub(super) fn job_left(&mut self, id: JobId) {
        if self.load.is_some() {
            self.left.insert(id);
        }
    }

    /// A job is deferred until `due`; or it is due already, and not in memory.
    pub(super) fn job_deferred(&mut self, due: Time) {
        let earliest = |known: Option<Time>| Some(known.map_or(due, |known| known.min(due)));
        if self.load.is_some() {
            self.deferred_meanwhile = earliest(self.deferred_meanwhile);
        }
        if due <= self.due_by {
            self.more_due = true;
        } else {
            self.next_due = earliest(self.next_due);
        }
    }

    /// Jobs behind this one in its lane are blocked in the ledger.
    pub(super) fn lane_blocked(&mut self, lane: LaneId, id: JobId) {
        if self.load.is_some() {
            self.blocked.entry(lane).and_modify(|first| *first = (*first).min(id)).or_insert(id);
        }
    }

    /// Whether an older job of the lane was deferred while the load was under way.
    pub(super) fn is_blocked(&self, lane: Option<LaneId>, id: JobId) -> bool {
        !self.blocked.is_empty() && lane.and_then(|lane| self.blocked.get(&lane)).is_some_and(|first| *first < id)
    }

    pub(super) fn has_left(&self, id: JobId) -> bool {
        !self.left.is_empty() && self.left.contains(&id)
    }

    /// Whether a loaded job is ignored: it left memory meanwhile, or older jobs will be loaded again and come first.
    pub(super) fn is_outdated(&mut self, id: JobId) -> bool {
        if self.has_left(id) {
            self.rewind(id);
        }
        self.rewound.is_some_and(|first| id >= first)
    }

    /// Jobs from here on are not in memory: they are loaded again.
    pub(super) fn rewind(&mut self, id: JobId) {
        if Mutant::RevivedJobNotLookedFor.is_on() {
            return;
        }
        if self.load.is_some() {
            // The cursor moves on with the answer, which may have been read before.
            self.rewound = Some(self.rewound.map_or(id, |first| first.min(id)));
            return;
        }
        self.cursor = self.cursor.min(JobId(id.0 - 1));
        self.has_more = true;
    }

    /// Jobs up to here are in memory, or known to stay in the ledger.
    pub(super) fn new_taken(&mut self, cursor: JobId) {
        self.cursor = self.cursor.max(cursor);
        self.seen_until = self.seen_until.max(cursor);
    }

    /// The queued jobs of a load are taken up to `cursor`; `more` if there are further ones.
    pub(super) fn queued_taken(&mut self, cursor: JobId, more: bool) {
        self.new_taken(cursor);
        self.has_more = more;
    }

    /// Interrupted jobs up to the cursor are found.
    pub(super) fn scan_passed(&mut self) {
        if let InterruptedScan::From(from) = self.scan {
            self.scan = match self.has_more {
                true => InterruptedScan::From(from.max(self.cursor)),
                false => InterruptedScan::Done,
            };
        }
    }

    /// The due jobs of a load are taken; `more` if there are further ones.
    pub(super) fn due_taken(&mut self, next_due: Option<Time>, more: bool) {
        self.more_due = more;
        self.next_due = next_due;
        if let Some(due) = self.deferred_meanwhile {
            self.job_deferred(due);
        }
    }

    /// A load has ended. What happened while it was under way is looked for again.
    pub(super) fn load_ended(&mut self) {
        self.load = None;
        self.has_more |= std::mem::take(&mut self.arrived);
        self.deferred_meanwhile = None;
        self.left.clear();
        self.blocked.clear();
        if let Some(first) = self.rewound.take() {
            self.rewind(first);
        }
    }

    /// Extends the time up to which jobs are loaded, if no job becomes due in between: nothing has to be read for that.
    pub(super) fn extend_due_by(&mut self, now: Time) {
        let until = now + self.horizon;
        if self.load.is_none() && self.next_due.is_none_or(|due| due > until) {
            self.due_by = self.due_by.max(until);
        }
    }

    /// Deferred jobs are due: all that are due within the horizon are loaded at once.
    pub(super) fn advance_due_by(&mut self, now: Time) {
        if !self.has_more {
            self.horizon = HORIZON;
        }
        if self.next_due.is_some_and(|due| due <= now) && !self.more_due {
            self.more_due = true;
            self.due_by = now + self.horizon;
        } else {
            self.extend_due_by(now);
        }
    }

    /// Jobs that are not due at `now` leave memory, and none is loaded before it is due. Only while no load is under way.
    pub(super) fn shorten_horizon(&mut self, now: Time) {
        (self.horizon, self.due_by) = (Duration::ZERO, now);
    }

    /// Whether there is something to load.
    pub(super) fn wants_load(&self, now: Time) -> bool {
        self.has_more || self.more_due || self.next_due.is_some_and(|due| due <= now)
    }
}
