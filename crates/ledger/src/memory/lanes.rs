//! Index of live jobs by destination and worker, and the backlog that is read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_domain::hash::Map;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;

use super::Store;
use crate::record::{BlockedLane, JobRecord, LiveLane, looked_at_max};

/// Destination and worker.
type LaneKey = (Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    jobs: Map<LaneKey, LaneJobs>,
    /// Retrying and waiting jobs by destination and entity.
    deferred: Map<Arc<str>, Map<u64, BTreeSet<JobId>>>,
}

#[derive(Clone, Debug, Default)]
struct LaneJobs {
    /// Queued and running.
    ready: BTreeSet<JobId>,
    /// Retrying and waiting, by due time.
    deferred: BTreeSet<(Time, JobId)>,
}

/// Where a job is found in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LanePlace {
    key: LaneKey,
    entity: u64,
    id: JobId,
    /// `None` if the job is queued or running.
    due_at: Option<Time>,
}

impl LanePlace {
    /// `None` if the job is not live.
    pub(super) fn of(job: &JobRecord) -> Option<LanePlace> {
        let due_at = match job.state {
            JobState::Queued | JobState::Running => None,
            JobState::Retrying | JobState::Waiting => Some(job.due_at),
            _ => return None,
        };
        Some(LanePlace { key: (job.destination.clone(), job.worker.clone()), entity: job.entity, id: job.id, due_at })
    }
}

impl Lanes {
    /// A job has changed.
    pub(super) fn update(&mut self, before: Option<LanePlace>, after: Option<LanePlace>) {
        if before == after {
            return;
        }
        before.into_iter().for_each(|place| self.remove(&place));
        after.into_iter().for_each(|place| self.insert(place));
    }

    fn insert(&mut self, place: LanePlace) {
        let LanePlace { key, entity, id, due_at } = place;
        if let Some(due_at) = due_at {
            self.deferred.entry(key.0.clone()).or_default().entry(entity).or_default().insert(id);
            self.jobs.entry(key).or_default().deferred.insert((due_at, id));
        } else {
            self.jobs.entry(key).or_default().ready.insert(id);
        }
    }

    fn remove(&mut self, place: &LanePlace) {
        let Some(jobs) = self.jobs.get_mut(&place.key) else { return };
        match place.due_at {
            None => drop(jobs.ready.remove(&place.id)),
            Some(due_at) => {
                jobs.deferred.remove(&(due_at, place.id));
                if let Some(lanes) = self.deferred.get_mut(&place.key.0)
                    && let Some(ids) = lanes.get_mut(&place.entity)
                    && ids.remove(&place.id)
                    && ids.is_empty()
                {
                    lanes.remove(&place.entity);
                }
            }
        }
        if jobs.ready.is_empty() && jobs.deferred.is_empty() {
            self.jobs.remove(&place.key);
        }
    }
}

impl Store {
    /// Live jobs of one worker and destination that can run now.
    pub fn backlog(&self, query: &BacklogQuery) -> BacklogPage {
        let mut page = BacklogPage { looked_until: query.after, ..BacklogPage::default() };
        let key = (query.destination.clone(), query.worker.clone());
        let Some(jobs) = self.lanes.jobs.get(&key) else { return page };
        let look_max = looked_at_max(query.limit);
        for (looked_at, id) in jobs.ready.range(JobId(query.after.0 + 1)..).enumerate() {
            if page.queued.len() >= query.limit || looked_at >= look_max {
                page.more_queued = true;
                break;
            }
            page.looked_until = *id;
            page.queued.extend(self.job(*id).filter(|job| !self.is_blocked(job, query.due_by)).cloned());
        }
        let due = jobs.deferred.range(..=(query.due_by, JobId(i64::MAX))).filter_map(|(_, id)| self.job(*id));
        page.due = due.filter(|job| !self.is_blocked(job, query.due_by)).take(query.limit + 1).cloned().collect();
        page.more_due = page.due.len() > query.limit;
        page.due.truncate(query.limit);
        page.next_due = jobs.deferred.range((query.due_by, JobId(i64::MAX))..).map(|(due_at, _)| *due_at).next();
        page
    }

    /// Whether an older job of the same worker in the lane is due later. A running job is never blocked.
    fn is_blocked(&self, job: &JobRecord, due_by: Time) -> bool {
        self.blocking(job, due_by).is_some()
    }

    /// The oldest job that blocks another one.
    fn blocking(&self, job: &JobRecord, due_by: Time) -> Option<&JobRecord> {
        if job.order == LaneOrder::None || job.state == JobState::Running {
            return None;
        }
        let ids = self.lanes.deferred.get(&job.destination)?.get(&job.entity)?;
        let mut older = ids.range(..job.id).filter_map(|id| self.job(*id));
        older.find(|older| older.due_at > due_by && older.worker == job.worker)
    }

    pub(crate) fn blocked_lanes(&self, now: Time, limit: u32) -> Vec<BlockedLane> {
        let look_max = looked_at_max(limit as usize);
        let mut found = BTreeMap::<JobId, BlockedLane>::new();
        for jobs in self.lanes.jobs.values() {
            let queued = jobs.ready.iter().filter_map(|id| self.job(*id));
            let in_lanes = queued.filter(|job| job.state == JobState::Queued && job.order == LaneOrder::Fifo);
            for job in in_lanes.take(look_max) {
                let Some(head) = self.blocking(job, now) else { continue };
                let lane = found.entry(head.id).or_insert_with(|| BlockedLane {
                    head: head.clone(),
                    first_behind: job.id,
                    waits_since: job.created_at,
                    jobs_behind: 0,
                });
                lane.jobs_behind += 1;
            }
        }
        let mut lanes: Vec<BlockedLane> = found.into_values().collect();
        lanes.sort_by_key(|lane| (lane.waits_since, lane.head.id));
        lanes.truncate(limit as usize);
        lanes
    }

    pub(crate) fn blocking_jobs(&self, jobs: &[JobId], now: Time) -> Vec<(JobId, JobId)> {
        let live = jobs.iter().filter_map(|id| self.job(*id)).filter(|job| job.state.is_live());
        let mut found: Vec<_> = live.filter_map(|job| Some((job.id, self.blocking(job, now)?.id))).collect();
        found.sort_unstable();
        found
    }

    /// Every pair of worker and destination that has live jobs.
    pub fn live_lanes(&self) -> Vec<LiveLane> {
        let lanes = self.lanes.jobs.keys().cloned();
        let mut lanes: Vec<_> = lanes.map(|(destination, worker)| LiveLane { worker, destination }).collect();
        lanes.sort();
        lanes
    }

    /// Number of live jobs.
    pub fn live_count(&self) -> usize {
        self.lanes.jobs.values().map(|jobs| jobs.ready.len() + jobs.deferred.len()).sum()
    }
}
