//! The new jobs of a commit, as they are announced after it.

use std::sync::Arc;

use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
use sluice_domain::time::Time;

use crate::record::{EventRecord, JobRecord, LoadedJob, NewEvent};

/// An event that a batch has inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct InsertedEvent {
    pub seq: i64,
    pub id: EventId,
    pub generation: u32,
    /// Digest as it is stored.
    pub entity: u64,
    pub first_job: JobId,
    pub variant_of: Option<i64>,
}

impl InsertedEvent {
    /// The jobs of the workers that are announced.
    pub(super) fn announced(self, event: &NewEvent, now: Time, wants: impl Fn(&str) -> bool) -> Vec<LoadedJob> {
        let jobs = (self.first_job.0..).zip(&event.jobs).filter(|(_, job)| wants(&job.worker));
        let jobs: Vec<JobRecord> = jobs
            .map(|(id, job)| JobRecord { seq: self.seq, entity: self.entity, ..event.queued(job, JobId(id), now) })
            .collect();
        if jobs.is_empty() {
            return vec![];
        }
        let record = Arc::new(EventRecord {
            seq: self.seq,
            generation: self.generation,
            persisted_at: now,
            first_job: self.first_job,
            variant_of: self.variant_of,
            ..event.record(self.id)
        });
        jobs.into_iter()
            .map(|job| LoadedJob { job, event: record.clone(), body: event.body.clone(), effects: vec![] })
            .collect()
    }
}
