//! Records of the jobs in the scheduler's memory, with the events, bodies and effects of those that are to run soon.

use std::sync::Arc;

use sluice_domain::hash::Map;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::record::EffectRecord;
use sluice_ledger::{EventBody, EventRecord, JobRecord, LoadedJob};

/// Bodies in memory. Beyond this they are read again when their jobs run.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Beyond this, bodies are kept without their decoded events.
const DECODED_BYTES_MAX: usize = 6 * 1024 * 1024;
/// Jobs that may be cached beside those that the scheduler holds, before they are removed.
const SPARE_JOBS_MAX: usize = 1_024;

#[derive(Debug)]
struct CachedJob {
    job: JobRecord,
    rest: Option<Rest>,
}

/// What a run reads beside the job.
#[derive(Clone, Debug)]
struct Rest {
    event: Arc<EventRecord>,
    body: Arc<EventBody>,
    effects: Vec<EffectRecord>,
}

#[derive(Debug, Default)]
pub(super) struct JobCache {
    jobs: Map<JobId, CachedJob>,
    body_bytes: usize,
}

impl JobCache {
    /// A job as it was read or accepted.
    pub(super) fn put(&mut self, loaded: LoadedJob) {
        let LoadedJob { job, event, body, effects } = loaded;
        if self.body_bytes >= DECODED_BYTES_MAX {
            body.decoded.clear();
        }
        let has_room = self.body_bytes < BODY_BYTES_MAX;
        self.insert(job, has_room.then_some(Rest { event, body, effects }));
    }

    /// A job whose event is read when it runs.
    pub(super) fn put_record(&mut self, job: JobRecord) {
        self.insert(job, None);
    }

    /// Adds what a run reads to a cached job, unless the job has changed in between.
    pub(super) fn complete(&mut self, loaded: LoadedJob) {
        if self.jobs.get(&loaded.job.id).is_some_and(|cached| cached.rest.is_none() && cached.job == loaded.job) {
            self.put(loaded);
        }
    }

    fn insert(&mut self, job: JobRecord, rest: Option<Rest>) {
        let id = job.id;
        self.remove(id);
        self.body_bytes += rest.as_ref().map_or(0, |rest| rest.body.bytes());
        self.jobs.insert(id, CachedJob { job, rest });
    }

    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(cached) = self.jobs.remove(&id) {
            self.body_bytes -= cached.rest.map_or(0, |rest| rest.body.bytes());
        }
    }

    /// Removes jobs that the scheduler does not hold any more, once they are many or their bodies take the room of others.
    pub(super) fn sweep(&mut self, jobs_held: usize, is_held: impl Fn(JobId) -> bool) {
        let is_full = self.body_bytes >= BODY_BYTES_MAX && self.jobs.len() > jobs_held;
        if is_full || self.jobs.len() > jobs_held + SPARE_JOBS_MAX {
            self.jobs.retain(|id, _| is_held(*id));
            let bytes = self.jobs.values().filter_map(|cached| cached.rest.as_ref()).map(|rest| rest.body.bytes());
            self.body_bytes = bytes.sum();
        }
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    pub(super) fn record(&self, id: JobId) -> Option<&JobRecord> {
        self.jobs.get(&id).map(|cached| &cached.job)
    }

    /// A job with everything that its run reads; `None` if that has to be read first.
    pub(super) fn loaded(&self, id: JobId) -> Option<LoadedJob> {
        let CachedJob { job, rest } = self.jobs.get(&id)?;
        let Rest { event, body, effects } = rest.clone()?;
        Some(LoadedJob { job: job.clone(), event, body, effects })
    }

    /// Whether a job that was read for its run is the one that the scheduler decided about. A job that was handed to another
    /// destination has made steps that the ledger does not know, so that the records may differ.
    pub(super) fn matches(&self, loaded: &JobRecord) -> bool {
        let is_running = |job: &JobRecord| job.state == JobState::Running;
        self.record(loaded.id).is_some_and(|cached| {
            loaded.state.is_live()
                && is_running(loaded) == is_running(cached)
                && (loaded.attempts_total, loaded.replays) == (cached.attempts_total, cached.replays)
        })
    }
}
