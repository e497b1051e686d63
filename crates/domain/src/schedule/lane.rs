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
    pub(super) fn len(&self, lane: LaneId) -> usize {
        self.0.get(&lane).map_or(0, VecDeque::len)
    }

    pub(super) fn head(&self, lane: LaneId) -> Option<JobId> {
        self.0.get(&lane)?.front().copied()
    }

    /// Inserts a job behind all older ones, and behind the first `fixed` jobs. An interrupted job may be before older ones, so that
    /// the place is looked for from the end.
    pub(super) fn insert(&mut self, lane: LaneId, id: JobId, fixed: usize) {
        let jobs = self.0.entry(lane).or_default();
        let older = jobs.iter().rposition(|other| *other < id).map_or(0, |last| last + 1);
        jobs.insert(older.max(fixed.min(jobs.len())), id);
    }

    /// Inserts a job behind the first `fixed` jobs, whatever its id.
    pub(super) fn insert_first(&mut self, lane: LaneId, id: JobId, fixed: usize) {
        let jobs = self.0.entry(lane).or_default();
        jobs.insert(fixed.min(jobs.len()), id);
    }

    pub(super) fn push_back(&mut self, lane: LaneId, id: JobId) {
        self.0.entry(lane).or_default().push_back(id);
    }

    /// Removes a job and returns how many are left in its lane.
    pub(super) fn remove(&mut self, lane: LaneId, id: JobId) -> usize {
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
    pub(super) fn youngest_first(&self, lane: LaneId) -> Vec<JobId> {
        self.0.get(&lane).map_or_else(Vec::new, |jobs| jobs.iter().rev().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_placed_behind_older_ones_even_if_an_interrupted_younger_one_is_first() {
        let lane = LaneId { destination: 0, worker: None, entity: 1 };
        let mut lanes = Lanes::default();
        lanes.insert(lane, JobId(961), 0);
        lanes.insert(lane, JobId(1200), 0);
        lanes.insert_first(lane, JobId(994), 0);
        lanes.insert(lane, JobId(968), 0);
        lanes.insert(lane, JobId(956), 0);
        assert_eq!(lanes.youngest_first(lane), [1200, 968, 961, 994, 956].map(JobId));
    }
}
