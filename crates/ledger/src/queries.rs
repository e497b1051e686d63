//! What can be asked of a ledger: nothing here changes it.

use std::sync::Arc;

use sluice_domain::duplicate_stats::DuplicateStats;
use sluice_domain::event::EventId;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use crate::op::{Op, Reply};
use crate::view as read;
use crate::{
    AttemptRecord, AuditRecord, EffectRecord, Error, EventBody, EventRecord, EventSeq, JobFilter, JobRecord,
    KeysRecord, Ledger, Page, PauseRecord, PinnedRecord, Reason, RevisionRecord, SourceDayCounts, Variants,
};

impl Ledger {
    /// What may be told about the keys that seal the ledger.
    pub async fn keys(&self) -> Result<KeysRecord, Error> {
        self.reads.ask(read::keys).await
    }

    /// Live jobs of a worker beyond an id, in order; at most `limit`.
    pub async fn live_jobs(&self, worker: Arc<str>, after: JobId, limit: usize) -> Result<Vec<JobRecord>, Error> {
        self.reads.ask(move |connection| read::live_jobs(connection, &worker, after, limit)).await
    }

    /// Jobs whose attempt had not ended when the last process did, beyond an id.
    pub async fn running_jobs(&self, after: JobId, limit: u32) -> Result<Vec<JobRecord>, Error> {
        self.reads.ask(move |connection| read::running_jobs(connection, after, limit)).await
    }

    /// The workers that have live jobs.
    pub async fn live_workers(&self) -> Result<Vec<String>, Error> {
        self.reads.ask(read::live_workers).await
    }

    /// Live jobs by worker and state.
    pub async fn live_counts(&self) -> Result<Vec<(String, JobState, u64)>, Error> {
        self.reads.ask(read::live_counts).await
    }

    /// All jobs by state.
    pub async fn job_counts(&self) -> Result<Vec<(JobState, u64)>, Error> {
        self.reads.ask(read::job_counts).await
    }

    /// How many events there are.
    pub async fn event_count(&self) -> Result<u64, Error> {
        self.reads.ask(read::event_count).await
    }

    /// Events by their places, with bodies where they are still kept.
    pub async fn events(&self, ords: Vec<EventSeq>) -> Result<Vec<(EventRecord, Option<EventBody>)>, Error> {
        self.reads.ask(move |connection| read::events(connection, &ords)).await
    }

    /// The event with this name.
    pub async fn find_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        let Reply::Candidates(ords) = self.submit(Op::Find(id)).await? else { return Ok(None) };
        Ok(self.events(ords).await?.into_iter().map(|(event, _)| event).find(|event| event.id == id))
    }

    /// The other contents that came under the key of an event.
    pub async fn variants(&self, event: EventSeq) -> Result<Variants, Error> {
        self.reads.ask(move |connection| read::variants(connection, event)).await
    }

    /// How often and how late a source repeats itself.
    pub async fn repeats(&self, source: String) -> Result<DuplicateStats, Error> {
        self.reads.ask(move |connection| read::repeats(connection, &source)).await
    }

    /// The jobs of an event.
    pub async fn jobs_of_event(&self, event: EventRecord) -> Result<Vec<JobRecord>, Error> {
        self.reads.ask(move |connection| read::jobs_of_event(connection, &event)).await
    }

    /// A job.
    pub async fn job(&self, id: JobId) -> Result<Option<JobRecord>, Error> {
        self.reads.ask(move |connection| read::job(connection, id)).await
    }

    /// The effects of a job, in the order of its steps; the one that was begun last first, where a step had several under
    /// different revisions.
    pub async fn effects(&self, job: JobId) -> Result<Vec<EffectRecord>, Error> {
        self.reads.ask(move |connection| read::effects(connection, job)).await
    }

    /// The attempts of a job, in their order.
    pub async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>, Error> {
        self.reads.ask(move |connection| read::attempts(connection, job)).await
    }

    /// Events, newest first.
    pub async fn list_events(
        &self,
        source: Option<String>,
        event_type: Option<String>,
        page: Page,
    ) -> Result<Vec<EventRecord>, Error> {
        self.reads
            .ask(move |connection| read::list_events(connection, source.as_deref(), event_type.as_deref(), page))
            .await
    }

    /// Jobs that match, newest first, with their events.
    pub async fn list_jobs(&self, filter: JobFilter, page: Page) -> Result<Vec<(JobRecord, EventRecord)>, Error> {
        self.reads.ask(move |connection| read::list_jobs(connection, &filter, page)).await
    }

    /// The ids of jobs that match beyond an id, oldest first.
    pub async fn matching_jobs(&self, filter: JobFilter, after: JobId, limit: u32) -> Result<Vec<JobId>, Error> {
        self.reads.ask(move |connection| read::matching_jobs(connection, &filter, after, limit)).await
    }

    /// Why jobs died since then, most frequent first.
    pub async fn dead_reasons(&self, since: Time, limit: u32) -> Result<Vec<Reason>, Error> {
        self.reads.ask(move |connection| read::dead_reasons(connection, since, limit)).await
    }

    /// Everything that is paused.
    pub async fn pauses(&self) -> Result<Vec<PauseRecord>, Error> {
        self.reads.ask(read::pauses).await
    }

    /// The files of a revision of the configuration, as they were kept.
    pub async fn revision(&self, hash: Arc<str>) -> Result<Option<String>, Error> {
        self.reads.ask(move |connection| read::revision(connection, &hash)).await
    }

    /// What was in force and since when, newest first: the first one is in force now.
    pub async fn configured(&self, page: Page) -> Result<Vec<RevisionRecord>, Error> {
        self.reads.ask(move |connection| read::configured(connection, page)).await
    }

    /// How many live jobs and dead letters there are, by the revision, the worker and the queues that they belong to.
    pub async fn pinned(&self) -> Result<Vec<PinnedRecord>, Error> {
        self.reads.ask(read::pinned).await
    }

    /// The audit trail, newest first.
    pub async fn audit_trail(&self, page: Page) -> Result<Vec<AuditRecord>, Error> {
        self.reads.ask(move |connection| read::audit(connection, page)).await
    }

    /// What each source has sent on each day since then (`2026-11-15`).
    pub async fn tallies(&self, since_day: String) -> Result<Vec<SourceDayCounts>, Error> {
        self.reads.ask(move |connection| read::tallies(connection, &since_day)).await
    }
}
