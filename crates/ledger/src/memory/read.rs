//! Reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sluice_domain::event::{EventId, EventStatus};
use sluice_domain::job::written_record;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;

use super::{DAY_MS, Store};
use crate::audit::AuditFilter;
use crate::balance::{BalanceOutcome, BalancePart};
use crate::filter::{EventQuery, JobFilter, ListPage, Page, StoredQuery};
use crate::op::{EventLookup, FoundKeys, KeyLookup};
use crate::record::{
    AttemptRecord, AuditRecord, EffectRecord, EventBody, EventRecord, EventSeq, JobRecord, JobSummary, JobTotal,
    ListedEvent, LoadedJob, OldestJobs, PauseRecord, PinnedRecord, Reason, RevisionRecord, SourceDayCounts,
    StoredEvent,
};

impl Store {
    pub fn job(&self, id: JobId) -> Option<&JobRecord> {
        self.jobs.get(&id).map(|job| &job.record)
    }

    /// Every job, oldest first.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|job| &job.record)
    }

    /// The jobs of an event.
    pub fn jobs_of(&self, seq: EventSeq) -> impl Iterator<Item = &JobRecord> {
        let event = self.events.get(&seq);
        event.into_iter().flat_map(super::EventRow::job_ids).filter_map(|id| self.job(id))
    }

    /// The id that was assigned last.
    pub fn last_job(&self) -> JobId {
        JobId(self.last_job)
    }

    /// Number of jobs by state.
    pub fn job_counts(&self) -> Vec<(JobState, u64)> {
        let counts = JobState::ALL.into_iter().map(|state| (state, self.job_states[state as usize]));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Number of events.
    pub fn event_count(&self) -> u64 {
        self.events.len() as u64
    }

    /// Every event, oldest first.
    pub fn all_events(&self) -> impl Iterator<Item = EventRecord> {
        self.events.values().map(|event| (*event.record).clone())
    }

    /// The sequence number of an event.
    pub fn find(&self, id: EventId) -> Option<EventSeq> {
        let by_key = self.owners.get(&id.0).into_iter().flatten().copied();
        let mut candidates = by_key.chain(self.later_ids.get(&id).copied());
        candidates.find(|seq| self.events.get(seq).is_some_and(|event| event.id == id))
    }

    /// Sequence numbers of events whose ids have the same first 64 bits.
    pub fn find_candidates(&self, id: EventId) -> Vec<EventSeq> {
        match self.find(id) {
            Some(seq) => vec![seq],
            None => {
                let alike = self.event_heads().filter(|event| event.id.0[..8] == id.0[..8]);
                alike.map(|event| event.seq).collect()
            }
        }
    }

    /// An event without its content.
    pub fn event_head(&self, seq: EventSeq) -> Option<EventHead<'_>> {
        self.events.get(&seq).map(super::EventRow::head)
    }

    /// The same of every event, oldest first.
    pub fn event_heads(&self) -> impl DoubleEndedIterator<Item = EventHead<'_>> {
        self.events.values().map(super::EventRow::head)
    }

    /// Events by sequence number, with bodies where they are still stored.
    pub fn events(&self, seqs: &[EventSeq]) -> Vec<(EventRecord, Option<EventBody>)> {
        let found = seqs.iter().filter_map(|seq| self.events.get(seq));
        let body =
            |event: &super::EventRow| event.body.clone().map(|body| (*self.identified_body(event.seq, body)).clone());
        found.map(|event| ((*event.record).clone(), body(event))).collect()
    }

    /// Events with their requests, oldest first.
    pub fn events_after(&self, query: &StoredQuery) -> Vec<StoredEvent> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for row in self.events.from(&(query.after + 1)).take(query.limit as usize) {
            let mut dropped = self.variants(row.seq).kept;
            dropped.retain(|variant| variant.event.is_none());
            let stored = StoredEvent { event: (*row.record).clone(), body: row.body.as_deref().cloned(), dropped };
            bytes += stored.body_bytes();
            found.push(stored);
            if bytes > query.body_bytes_max {
                break;
            }
        }
        found
    }

    /// Sequence numbers of the first event that was received at or after a time, and of the last event.
    pub fn event_span(&self, since: Time) -> Option<(EventSeq, EventSeq)> {
        let last = self.events.values().last()?.seq;
        let first = self.events.values().find(|row| row.new.received_at >= since)?.seq;
        Some((first, last))
    }

    /// The jobs of an event.
    pub fn jobs_of_event(&self, event: &EventRecord) -> Vec<JobRecord> {
        let jobs = self.jobs.from(&event.first_job).take_while(|job| job.record.seq == event.seq);
        jobs.map(|job| job.record.clone()).collect()
    }

    /// The effects of a job in the order of its steps; of one step, the one that was begun last first.
    pub fn effects(&self, job: JobId) -> Vec<EffectRecord> {
        let Some(job) = self.jobs.get(&job) else { return vec![] };
        let mut effects: Vec<_> = job.effects.iter().collect();
        effects.sort_by_key(|effect| (effect.begin.step, std::cmp::Reverse(effect.begin.n)));
        effects.into_iter().map(super::EffectRow::record).collect()
    }

    /// The effects of a job without their results.
    pub fn effect_states(&self, job: JobId) -> impl Iterator<Item = EffectStatus<'_>> {
        self.jobs.get(&job).into_iter().flat_map(|job| &job.effects).map(|effect| EffectStatus {
            step: effect.begin.step,
            step_id: &effect.begin.step_id,
            n: effect.begin.n,
            key: effect.begin.key,
            class: effect.begin.class,
            state: effect.state,
            absent_reads: effect.absent_reads,
            reads: effect.reads,
            last_at: effect.last_at,
        })
    }

    /// The attempts of a job in their order.
    pub fn attempts(&self, job: JobId) -> Vec<AttemptRecord> {
        let Some(row) = self.jobs.get(&job) else { return vec![] };
        let mut attempts: Vec<_> = row.attempts.iter().collect();
        attempts.sort_by_key(|attempt| attempt.n);
        attempts.into_iter().map(|attempt| attempt.record(job)).collect()
    }

    pub(crate) fn list_events(&self, query: &EventQuery, page: Page) -> ListPage<ListedEvent> {
        let newest_first = self.events.values().rev().filter(|event| page.after.is_none_or(|after| event.seq < after));
        let found = newest_first
            .filter(|event| query.source.as_deref().is_none_or(|source| *event.new.source == *source))
            .filter(|event| query.event_type.as_deref().is_none_or(|wanted| event.new.event_type == wanted))
            .filter(|event| query.since.is_none_or(|since| event.new.received_at >= since))
            .filter(|event| query.seqs.as_ref().is_none_or(|seqs| seqs.contains(&event.seq)))
            .map(|event| ListedEvent {
                event: (*event.record).clone(),
                jobs: self.jobs_of(event.seq).map(JobSummary::from).collect(),
            })
            .filter(|listed| {
                let status = EventStatus::of(listed.jobs.iter().map(|job| job.state));
                query.status.is_none_or(|wanted| wanted == status)
            })
            .take(page.limit as usize);
        ListPage::of(found.collect(), page, |listed| listed.event.seq)
    }

    pub(crate) fn find_keys(&self, lookup: &KeyLookup) -> FoundKeys {
        let seqs = lookup.keys.iter().filter_map(|key| self.owners.get(&key.0)).flatten().copied();
        let is_about =
            |event: &&super::EventRow| event.new.contact.is_some_and(|contact| lookup.contacts.contains(&contact));
        let contact_events = self.events.values().filter(is_about).map(|event| event.seq);
        FoundKeys { seqs: seqs.collect(), contact_events: contact_events.collect() }
    }

    pub(crate) fn find_referenced(&self, lookup: &EventLookup) -> Vec<EventSeq> {
        let wrote = |event: &super::EventRow, id: &str| {
            let effects = event.job_ids().filter_map(|job| self.jobs.get(&job)).flat_map(|row| &row.effects);
            effects
                .filter_map(|effect| effect.result.as_deref())
                .any(|result| written_record(result).as_deref() == Some(id))
        };
        let matches = |event: &&super::EventRow| match lookup {
            EventLookup::Trace(id) => event.record.trace_id() == id,
            EventLookup::Record(id) => wrote(event, id),
            EventLookup::Identity(identity) => {
                let jobs = event.job_ids().filter_map(|job| self.jobs.get(&job));
                jobs.flat_map(|row| &row.effects).any(|effect| effect.begin.identity.as_ref() == Some(identity))
            }
        };
        self.events.values().rev().filter(matches).map(|event| event.seq).collect()
    }

    pub(crate) fn list_jobs(&self, filter: &JobFilter, page: Page) -> ListPage<(JobRecord, EventRecord)> {
        let newest_first = self.jobs().collect::<Vec<_>>().into_iter().rev();
        let found = newest_first
            .filter(|job| page.after.is_none_or(|after| job.id.0 < after) && self.matches(job, filter))
            .take(page.limit as usize)
            .filter_map(|job| Some((job.clone(), (*self.events.get(&job.seq)?.record).clone())));
        ListPage::of(found.collect(), page, |(job, _)| job.id.0)
    }

    pub(crate) fn matching_jobs_part(&self, filter: &JobFilter, after: JobId, limit: u32) -> ListPage<JobId> {
        let oldest_first = self.jobs.from(&JobId(after.0 + 1)).map(|job| &job.record);
        let found = oldest_first.filter(|job| self.matches(job, filter)).take(limit as usize).map(|job| job.id);
        ListPage::of(found.collect(), Page { after: Some(after.0), limit }, |id| id.0)
    }

    fn matches(&self, job: &JobRecord, filter: &JobFilter) -> bool {
        fn is(wanted: &Option<String>, found: Option<&str>) -> bool {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        }
        let failure = job.failure.as_ref();
        (filter.states.is_empty() || filter.states.contains(&job.state))
            && is(&filter.worker, Some(&job.worker))
            && is(&filter.queue, Some(&job.queue))
            && is(&filter.dead_letter_queue, job.dead_letter_queue.as_deref())
            && is(&filter.source, self.events.get(&job.seq).map(|event| &*event.new.source))
            && is(&filter.destination, Some(&job.destination))
            && is(&filter.class, failure.map(|failure| failure.class.as_str()))
            && is(&filter.code, failure.map(|failure| failure.code.as_str()))
            && filter.since.is_none_or(|since| job.updated_at >= since)
            && filter.until.is_none_or(|until| job.updated_at < until)
    }

    pub(crate) fn dead_reasons(&self, since: Time, limit: u32) -> Vec<Reason> {
        let mut reasons = BTreeMap::<(String, String), Reason>::new();
        let parked =
            |job: &&JobRecord| matches!(job.state, JobState::Dead | JobState::Unknown) && job.updated_at >= since;
        for job in self.jobs().filter(parked) {
            let (class, code, message) = job.failure.as_ref().map_or_else(Default::default, |failure| {
                (failure.class.as_str().to_owned(), failure.code.clone(), failure.message.clone())
            });
            let reason = reasons.entry((class.clone(), code.clone())).or_insert_with(|| Reason {
                class,
                code,
                message: String::new(),
                count: 0,
                last_at: Time(i64::MIN),
            });
            reason.count += 1;
            reason.last_at = reason.last_at.max(job.updated_at);
            reason.message = std::mem::take(&mut reason.message).max(message);
        }
        let mut reasons: Vec<Reason> = reasons.into_values().collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        reasons.truncate(limit as usize);
        reasons
    }

    pub fn pauses(&self) -> Vec<PauseRecord> {
        self.pauses.values().cloned().collect()
    }

    pub(crate) fn revision(&self, hash: &str) -> Option<String> {
        self.revisions.get(hash).cloned()
    }

    pub(crate) fn revision_history(&self, page: Page) -> Vec<RevisionRecord> {
        let newest_first =
            self.revision_history.iter().rev().filter(|line| page.after.is_none_or(|after| line.n < after));
        newest_first.take(page.limit as usize).cloned().collect()
    }

    pub(crate) fn pinned(&self) -> Vec<PinnedRecord> {
        let mut counts = BTreeMap::<_, (u64, u64)>::new();
        for job in self.jobs() {
            let parked = matches!(job.state, JobState::Dead | JobState::Unknown);
            if parked || job.state.is_live() {
                let dead_letter_queue = job.dead_letter_queue.clone().filter(|_| parked);
                let key = (job.revision.clone(), job.worker.clone(), job.queue.clone(), dead_letter_queue, !parked);
                let (live, dead) = counts.entry(key).or_default();
                *(if parked { dead } else { live }) += 1;
            }
        }
        let record = |((revision, worker, queue, dead_letter_queue, _), (live, parked))| {
            let (revision, worker, queue): (Arc<str>, Arc<str>, Arc<str>) = (revision, worker, queue);
            PinnedRecord {
                revision: revision.to_string(),
                worker: worker.to_string(),
                queue: queue.to_string(),
                dead_letter_queue,
                live,
                parked,
            }
        };
        counts.into_iter().map(record).collect()
    }

    /// Number of jobs by worker, destination, state and dead-letter queue.
    pub fn job_totals(&self) -> Vec<JobTotal> {
        let mut counts = BTreeMap::<_, JobTotal>::new();
        for job in self.jobs() {
            let wait = job.wait_reason();
            let key =
                (&job.worker, &job.destination, job.state.code(), &job.dead_letter_queue, wait.map(WaitReason::as_str));
            let total = counts.entry(key).or_insert_with(|| JobTotal {
                worker: job.worker.clone(),
                destination: job.destination.clone(),
                state: job.state,
                dead_letter_queue: job.dead_letter_queue.as_deref().map(Arc::from),
                wait,
                count: 0,
            });
            total.count += 1;
        }
        counts.into_values().collect()
    }

    pub(crate) fn oldest_jobs(&self) -> OldestJobs {
        let mut live = BTreeMap::<Arc<str>, Time>::new();
        let mut dead_letters = BTreeMap::<Option<Arc<str>>, Time>::new();
        for job in self.jobs() {
            match job.state {
                state if state.is_live() => {
                    let since = if job.replays > 0 { job.updated_at } else { job.created_at };
                    let oldest = live.entry(job.worker.clone()).or_insert(since);
                    *oldest = since.min(*oldest);
                }
                JobState::Dead | JobState::Unknown => {
                    let queue = job.dead_letter_queue.as_deref().map(Arc::from);
                    let ended = job.finished_at.unwrap_or(job.updated_at);
                    let oldest = dead_letters.entry(queue).or_insert(ended);
                    *oldest = ended.min(*oldest);
                }
                _ => {}
            }
        }
        OldestJobs { live: live.into_iter().collect(), dead_letters: dead_letters.into_iter().collect() }
    }

    /// Jobs with their events, bodies and effects. See `Ledger::load_jobs`.
    pub fn load_jobs(&self, jobs: &[JobId], body_bytes_max: usize) -> Vec<LoadedJob> {
        let mut bytes = 0usize;
        let mut loaded = Vec::with_capacity(jobs.len());
        for id in jobs {
            let Some(job) = self.job(*id) else { continue };
            let Some(event) = self.events.get(&job.seq) else { continue };
            let body = event.body.clone().map(|body| self.identified_body(event.seq, body)).unwrap_or_default();
            bytes = bytes.saturating_add(body.bytes());
            if bytes > body_bytes_max && !loaded.is_empty() {
                break;
            }
            let event = event.record.clone();
            loaded.push(LoadedJob { job: job.clone(), event, body, effects: self.effects(*id) });
        }
        loaded
    }

    /// A job as its owner knows it, with its event, body and effects.
    pub fn load_known(&self, job: JobRecord) -> Option<LoadedJob> {
        self.jobs.get(&job.id)?;
        let event = self.events.get(&job.seq)?;
        let body = event.body.clone().map(|body| self.identified_body(event.seq, body)).unwrap_or_default();
        Some(LoadedJob { event: event.record.clone(), body, effects: self.effects(job.id), job })
    }

    pub(crate) fn audit_entries(&self, filter: &AuditFilter, page: Page) -> ListPage<AuditRecord> {
        let (first, before) = filter.window(page, self.audit.len() as i64 + 1);
        let looked_at = self.audit.iter().rev().filter(|line| line.id < before && line.id >= first);
        let found = looked_at.filter(|line| filter.matches(line)).take(page.limit as usize).cloned().collect();
        let can_match = |line: &&AuditRecord| filter.since.is_none_or(|since| line.at >= since);
        let is_more = self.audit.iter().filter(can_match).any(|line| line.id < first);
        let scanned_to = self.audit.iter().find(|line| line.id >= first).map(|line| line.at);
        filter.found(found, page, (first, scanned_to.filter(|_| is_more)))
    }

    pub(crate) fn balance_start(&self, day: Time) -> (Vec<SourceDayCounts>, Range<EventSeq>) {
        let first = self.events.values().find(|event| event.record.persisted_at >= day).map(|event| event.seq);
        let end = self.last_seq + 1;
        (self.source_day_counts(&day.to_jiff().strftime("%Y-%m-%d").to_string()), first.unwrap_or(end)..end)
    }

    pub(crate) fn balance_part(&self, after: EventSeq, limit: u32) -> BalancePart {
        let mut part = BalancePart { looked_until: after, ..BalancePart::default() };
        for event in self.events.values().filter(|event| event.seq > after && event.seq <= after + i64::from(limit)) {
            let states = event.job_ids().filter_map(|id| self.jobs.get(&id)).map(|job| job.record.state);
            let outcome = states.map(outcome_of).max().unwrap_or(BalanceOutcome::Noop);
            let day = event.record.persisted_at.to_jiff().strftime("%Y-%m-%d").to_string();
            *part.counts.entry((day, event.new.source.to_string(), outcome)).or_default() += 1;
        }
        part.looked_until = (after + i64::from(limit)).min(self.last_seq.max(after));
        part
    }

    /// What each source has sent on each day since one.
    pub fn source_day_counts(&self, since_day: &str) -> Vec<SourceDayCounts> {
        let named = self.source_days.iter().map(|((day, source), tally)| SourceDayCounts {
            day: Time(day * DAY_MS).to_jiff().strftime("%Y-%m-%d").to_string(),
            source: source.to_string(),
            ..tally.clone()
        });
        named.filter(|tally| tally.day.as_str() >= since_day).collect()
    }

    /// The jobs of an event as they are announced once they are durable.
    pub(super) fn new_jobs(&self, seq: EventSeq) -> Vec<LoadedJob> {
        let Some(event) = self.events.get(&seq) else { return vec![] };
        let record = &event.record;
        let jobs = event.job_ids().filter_map(|id| self.job(id));
        jobs.map(|job| LoadedJob {
            job: job.clone(),
            event: record.clone(),
            body: event.new.body.clone(),
            effects: vec![],
        })
        .collect()
    }
}

/// An event without its content.
#[derive(Clone, Copy, Debug)]
pub struct EventHead<'a> {
    pub seq: EventSeq,
    pub id: EventId,
    pub key_text: &'a str,
    /// Number of expired events that had its key before.
    pub generation: u32,
    pub received_at: Time,
    pub jobs: u32,
}

/// An effect without its result.
#[derive(Clone, Copy, Debug)]
pub struct EffectStatus<'a> {
    pub step: u32,
    pub step_id: &'a Arc<str>,
    /// The attempt that began it last.
    pub n: u32,
    pub key: sluice_domain::job::EffectKey,
    pub class: sluice_domain::outcome::EffectClass,
    pub state: sluice_domain::job::EffectState,
    /// Reads that did not find the effect, since the last attempt.
    pub absent_reads: u32,
    /// Reads in all, since the last attempt.
    pub reads: u32,
    pub last_at: Time,
}

fn outcome_of(state: JobState) -> BalanceOutcome {
    match state {
        JobState::Succeeded => BalanceOutcome::Done,
        JobState::Noop => BalanceOutcome::Noop,
        JobState::Dropped => BalanceOutcome::Dropped,
        JobState::Unknown => BalanceOutcome::Unknown,
        JobState::Dead => BalanceOutcome::Dead,
        JobState::Queued | JobState::Running | JobState::Retrying | JobState::Waiting => BalanceOutcome::Waiting,
    }
}
