//! Questions, whichever driver answers them.

use std::sync::Arc;

use sluice_domain::duplicate_stats::DuplicateStats;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use crate::Error;
use crate::memory::{Store, StoreHandle};
use crate::record::*;
use crate::sqlite::{self, JobFilter, Page, Reader, Reason, read};

/// What can be asked.
#[derive(Clone, Debug)]
pub(crate) enum ReadBackend {
    Sqlite(sqlite::ReadPool),
    Memory(StoreHandle),
}

/// One moment of a ledger.
#[derive(Debug)]
pub(crate) enum Snapshot<'a> {
    Sqlite(&'a Reader<'a>),
    Memory(&'a Store),
}

impl ReadBackend {
    /// Asks one question, or several about the same moment.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        match self {
            ReadBackend::Sqlite(reads) => reads.ask(move |reader| question(&Snapshot::Sqlite(reader))).await,
            ReadBackend::Memory(place) => Ok(question(&Snapshot::Memory(&place.read()))?),
        }
    }
}

/// One question as both drivers answer it.
macro_rules! questions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $memory:expr;)*) => {
        $(pub(crate) fn $name(view: &Snapshot<'_>, $($argument: $type),*) -> rusqlite::Result<$answer> {
            match view {
                Snapshot::Sqlite(reader) => read::$name(reader, $($argument),*),
                Snapshot::Memory(store) => {
                    let answer: fn(&Store, $($type),*) -> $answer = $memory;
                    Ok(answer(store, $($argument),*))
                }
            }
        })*
    };
}

questions! {
    live_jobs(worker: &Arc<str>, after: JobId, limit: usize) -> Vec<JobRecord> = |store, worker, after, limit| store.live_jobs(worker, after, limit).cloned().collect();
    running_jobs(after: JobId, limit: u32) -> Vec<JobRecord> = |store, after, limit| store.running_jobs(after, limit);
    live_workers() -> Vec<String> = Store::live_workers;
    live_counts() -> Vec<(String, JobState, u64)> = Store::live_counts;
    job_counts() -> Vec<(JobState, u64)> = Store::job_counts;
    event_count() -> u64 = Store::event_count;
    events(ords: &[EventSeq]) -> Vec<(EventRecord, Option<EventBody>)> = |store, ords| store.events(ords);
    variants(event: EventSeq) -> Variants = |store, event| store.variants(event);
    repeats(source: &str) -> DuplicateStats = |store, source| store.repeats(source);
    jobs_of_event(event: &EventRecord) -> Vec<JobRecord> = |store, event| store.jobs_of_event(event);
    job(id: JobId) -> Option<JobRecord> = |store, id| store.job(id).cloned();
    effects(job: JobId) -> Vec<EffectRecord> = |store, job| store.effects(job);
    attempts(job: JobId) -> Vec<AttemptRecord> = |store, job| store.attempts(job);
    list_events(source: Option<&str>, event_type: Option<&str>, page: Page) -> Vec<EventRecord> = |store, source, event_type, page| store.list_events(source, event_type, page);
    list_jobs(filter: &JobFilter, page: Page) -> Vec<(JobRecord, EventRecord)> = |store, filter, page| store.list_jobs(filter, page);
    matching_jobs(filter: &JobFilter, after: JobId, limit: u32) -> Vec<JobId> = |store, filter, after, limit| store.matching_jobs(filter, after, limit);
    dead_reasons(since: Time, limit: u32) -> Vec<Reason> = |store, since, limit| store.dead_reasons(since, limit);
    pauses() -> Vec<PauseRecord> = Store::pauses;
    revision(hash: &str) -> Option<String> = |store, hash| store.revision(hash);
    configured(page: Page) -> Vec<RevisionRecord> = |store, page| store.configured(page);
    pinned() -> Vec<PinnedRecord> = Store::pinned;
    audit(page: Page) -> Vec<AuditRecord> = |store, page| store.audit_trail(page);
    tallies(since_day: &str) -> Vec<SourceDayCounts> = |store, since_day| store.tallies(since_day);
    keys() -> KeysRecord = |_| KeysRecord { root: String::new(), tenant: vec![], contacts: 0, to_rewrap: 0 };
}
