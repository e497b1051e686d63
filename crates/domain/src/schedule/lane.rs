//! Lanes: fifo jobs of one entity, one at a time, ascending by id.

use std::collections::VecDeque;

use crate::hash::Map;
use crate::job::JobId;

/// A lane: the jobs of one entity at one destination; for internal steps, of one entity and worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    pub(super) destination: u32,
    /// For internal steps.
    pub(super) worker: Option<u32>,
    pub(super) entity: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lanes(Map<LaneId, VecDeque<JobId>>);

impl Lanes {
    pub fn len(&self, lane: LaneId) -> usize {
        self.0.get(&lane).map_or(0, VecDeque::len)
    }

    pub fn head(&self, lane: LaneId) -> Option<JobId> {
        self.0.get(&lane)?.front().copied()
    }

    /// Inserts a job in the order of ids, behind the first `fixed` jobs.
    pub fn insert(&mut self, lane: LaneId, id: JobId, fixed: usize) {
        let jobs = self.0.entry(lane).or_default();
        if jobs.back().is_none_or(|last| *last < id) {
            jobs.push_back(id);
            return;
        }
        let fixed = fixed.min(jobs.len());
        let place = jobs.iter().skip(fixed).position(|other| *other > id).map_or(jobs.len(), |place| place + fixed);
        jobs.insert(place, id);
    }

    /// Inserts a job behind the first `fixed` jobs, whatever its id.
    pub fn insert_first(&mut self, lane: LaneId, id: JobId, fixed: usize) {
        let jobs = self.0.entry(lane).or_default();
        jobs.insert(fixed.min(jobs.len()), id);
    }

    pub fn push_back(&mut self, lane: LaneId, id: JobId) {
        self.0.entry(lane).or_default().push_back(id);
    }

    /// Removes a job and returns how many are left in its lane.
    pub fn remove(&mut self, lane: LaneId, id: JobId) -> usize {
        let Some(jobs) = self.0.get_mut(&lane) else { return 0 };
        if jobs.front() == Some(&id) {
            jobs.pop_front();
        } else if jobs.back() == Some(&id) {
            jobs.pop_back();
        } else if let Some(place) = jobs.iter().position(|other| *other == id) {
            jobs.remove(place);
        }
        let left = jobs.len();
        if left == 0 {
            self.0.remove(&lane);
        }
        left
    }

    /// The jobs of a lane from the last to the first.
    pub fn youngest_first(&self, lane: LaneId) -> Vec<JobId> {
        self.0.get(&lane).map_or_else(Vec::new, |jobs| jobs.iter().rev().copied().collect())
    }
}
