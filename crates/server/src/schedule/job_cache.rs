//! The records of the jobs that the scheduler holds, and the events of those that are fresh.

use std::sync::Arc;

use sluice_domain::hash::Map;
use sluice_domain::job::JobId;
use sluice_ledger::{EventBody, EventRecord, JobRecord, LoadedJob};

use super::StepRoute;
use crate::work::RunInput;

/// Bodies of fresh events that are kept for their first run; beyond this they are read from the ledger again.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Beyond this an event is kept as its text alone, which takes less.
const AT_HAND_BYTES_MAX: usize = 6 * 1024 * 1024;

#[derive(Debug)]
struct CachedJob {
    job: JobRecord,
    destination: Arc<str>,
    event: Option<(Arc<EventRecord>, Arc<EventBody>)>,
}

/// What is known of each job in the scheduler's window.
#[derive(Debug, Default)]
pub(super) struct JobCache {
    jobs: Map<JobId, CachedJob>,
    /// Put in since the last look at what the scheduler took.
    new: Vec<JobId>,
    body_bytes: usize,
}

impl JobCache {
    /// Jobs that have just been accepted.
    pub fn offer(&mut self, fresh: impl IntoIterator<Item = (LoadedJob, Arc<str>)>) {
        for (LoadedJob { job, event, body }, destination) in fresh {
            if self.body_bytes >= AT_HAND_BYTES_MAX {
                body.decoded.take();
            }
            let room = self.body_bytes < BODY_BYTES_MAX;
            self.put(job, destination, room.then_some((event, body)));
        }
    }

    /// Jobs that were read from the ledger.
    pub fn load(&mut self, jobs: impl IntoIterator<Item = (JobRecord, Arc<str>)>) {
        for (job, destination) in jobs {
            if !self.jobs.contains_key(&job.id) {
                self.put(job, destination, None);
            }
        }
    }

    fn put(&mut self, job: JobRecord, destination: Arc<str>, event: Option<(Arc<EventRecord>, Arc<EventBody>)>) {
        let id = job.id;
        self.body_bytes += event.as_ref().map_or(0, |(_, body)| body.bytes());
        self.new.push(id);
        if let Some(before) = self.jobs.insert(id, CachedJob { job, destination, event }) {
            self.forget_body(&before);
        }
    }

    fn forget_body(&mut self, entry: &CachedJob) {
        self.body_bytes -= entry.event.as_ref().map_or(0, |(_, body)| body.bytes());
    }

    /// Of what was put in since the last time, only what the scheduler took stays.
    pub fn keep_new(&mut self, taken: impl Fn(JobId) -> bool) {
        for id in std::mem::take(&mut self.new) {
            if !taken(id) {
                self.remove(id);
            }
        }
    }

    /// The job stands otherwise now. Its event is read again when it runs again: that is later, or another step.
    pub fn update(&mut self, job: JobRecord, place: &StepRoute) {
        if let Some(entry) = self.jobs.get_mut(&job.id) {
            let bytes = entry.event.take().map_or(0, |(_, body)| body.bytes());
            self.body_bytes -= bytes;
            // The scheduler may leave it in the ledger for now.
            self.new.push(job.id);
            entry.job = job;
            entry.destination = place.destination.clone();
        }
    }

    /// The job is not held any more. Answers whose it was.
    pub fn remove(&mut self, id: JobId) -> Option<Arc<str>> {
        let entry = self.jobs.remove(&id)?;
        self.forget_body(&entry);
        Some(entry.job.worker)
    }

    /// What work needs to run this job; the bare job if its event has to be read first.
    pub fn order(&self, id: JobId) -> Option<Result<RunInput, (JobRecord, Arc<str>)>> {
        let entry = self.jobs.get(&id)?;
        let (job, destination) = (entry.job.clone(), entry.destination.clone());
        Some(match &entry.event {
            Some((event, body)) => Ok(RunInput { job, event: event.clone(), body: body.clone(), destination }),
            None => Err((job, destination)),
        })
    }
}
