//! Inserts of new events: the row, the body, the jobs, and what they are found and counted by.

use rusqlite::params;
use sluice_domain::contact::ContactId;
use sluice_domain::event::EventId;
use sluice_domain::failure_group::GroupKey;
use sluice_domain::history::Measure;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;

use super::super::attempt::lane_order_code;
use super::super::batch::{Batch, sealed_failure};
use super::super::contact_keys::PersonSealer;
use super::super::content_owner::content_of;
use super::super::key_index::{EventRef, prefix, ref_prefix};
use super::super::key_store::Sealer;
use super::super::late_identity::SupplyingEvent;
use super::super::new_jobs::InsertedEvent;
use super::super::row::{self, place};
use super::super::statements::{Bound, StatementId};
use super::super::totals::TotalRef;
use super::{KeyedEvent, Owner};
use crate::op::{Acceptance, Accepted};
use crate::record::{EventBody, EventSeq, NewJob, Quarantine};
use crate::seal::{SealContext, StableId};

/// The event whose jobs are inserted.
struct InsertedJobs<'a> {
    seq: i64,
    id: EventId,
    contact: Option<i64>,
    /// Digest as it is stored.
    entity: u64,
    sealer: &'a Sealer,
    quarantine: Option<&'a Quarantine>,
}

/// How the message of a failure is sealed.
struct SealedMessage<'a> {
    sealer: &'a Sealer,
    context: SealContext<'a>,
}

/// What an event is found by.
#[derive(Clone, Copy)]
struct IndexEntries {
    seq: EventSeq,
    key: KeyDigest,
    id: EventId,
    /// The key that seals it.
    contact_key: Option<i64>,
    /// The contact of the identity map.
    contact_id: Option<ContactId>,
}

/// Where a new event belongs.
struct Placement {
    /// If contacts are kept and one is identified.
    contact_id: Option<ContactId>,
    /// Digest of the lane of its jobs, as it is stored.
    entity: u64,
    /// Set if its identifiers conflict and the rule is to quarantine it.
    conflict: Option<Quarantine>,
}

/// How an event is inserted.
#[derive(Debug)]
pub(super) struct EventInsert<'a> {
    pub key: KeyDigest,
    pub generation: u32,
    /// The event with the same key and another content.
    pub variant_of: Option<&'a Owner>,
    pub quarantine: Option<&'a Quarantine>,
}

impl Batch<'_, '_> {
    pub(super) fn insert_event(
        &mut self,
        event: &KeyedEvent<'_>,
        entry: EventInsert<'_>,
    ) -> rusqlite::Result<Acceptance> {
        let seq = self.counters.next_seq;
        let first_job = self.counters.next_job;
        let id = EventId::new(entry.key, entry.generation);
        let jobs = u32::try_from(event.jobs.len()).unwrap_or(u32::MAX);
        let PersonSealer { contact: contact_key, sealer } = self.person_sealer(event.contact)?;
        let Placement { contact_id, entity, conflict } = self.place(event, &entry, seq, contact_key)?;
        let quarantine = entry.quarantine.or(conflict.as_ref());
        let entries = IndexEntries { seq, key: entry.key, id, contact_key, contact_id };
        self.write_event(event, &entry, entries, &sealer)?;
        let jobs_of = InsertedJobs { seq, id, contact: contact_key, entity, sealer: &sealer, quarantine };
        self.insert_jobs(event, jobs_of)?;
        self.counters.next_seq += 1;
        self.counters.next_job += i64::from(jobs);
        self.index_event(event, entries);
        self.content_undo.extend(self.contents.insert(content_of(event), seq, event.received_at));
        self.count_accepted(event);
        let released = match contact_id {
            Some(contact) => self.release_waiting(&SupplyingEvent { event, id, contact, entity, contact_key })?,
            None => self.await_identity(event, seq, id)?,
        };
        if quarantine.is_some() {
            self.keep_quarantined(event, (seq, id), &sealer)?;
        } else {
            let (generation, first_job) = (entry.generation, JobId(first_job));
            let variant_of = entry.variant_of.map(|first| first.seq);
            self.inserted.push(InsertedEvent { seq, id, generation, entity, first_job, variant_of });
        }
        Ok(Acceptance::Accepted(Accepted {
            seq,
            id,
            variant_of: entry.variant_of.map(|first| first.id),
            quarantined: quarantine.is_some(),
            released,
        }))
    }

    /// Writes the rows of the event and of its body.
    fn write_event(
        &mut self,
        event: &KeyedEvent<'_>,
        entry: &EventInsert<'_>,
        entries: IndexEntries,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let IndexEntries { seq, key, id, contact_key, contact_id } = entries;
        let key_text = sealer.seal(place::key_text(seq, id), &[event.key_text.as_bytes()]);
        self.statements.execute(
            StatementId::InsertEvent,
            &[
                Bound::Number(seq),
                Bound::Blob(&id.0),
                Bound::Blob(&key.0),
                Bound::Number(i64::from(entry.generation)),
                Bound::Blob(&key_text),
                Bound::Name(&event.flow),
                Bound::Name(&event.source),
                Bound::Name(&event.event_type),
                Bound::Number(event.received_at.0),
                Bound::Number(self.now.0),
                Bound::number(event.occurred_at.map(|at| at.0)),
                Bound::Number(event.expires_at.0),
                Bound::Name(&event.revision),
                Bound::name(event.verified_by.as_deref()),
                Bound::Text(&event.trace),
                Bound::Blob(&event.fingerprint),
                Bound::Number(self.counters.next_job),
                Bound::Number(i64::try_from(event.jobs.len()).unwrap_or(i64::MAX)),
                Bound::number(entry.variant_of.map(|first| first.seq)),
                Bound::number(contact_key),
                Bound::blob(event.signed_content.as_ref().map(|content| &content.0[..])),
                Bound::number(contact_id.map(|id| id.0)),
            ],
        )?;
        let body = seal_body(sealer, place::body(seq, id), &event.body);
        self.statements.execute(StatementId::InsertBody, &[Bound::Number(seq), Bound::Blob(&body)])
    }

    fn count_accepted(&mut self, event: &KeyedEvent<'_>) {
        self.counts.add(Measure::Accepted, &event.source, "");
        self.source_day(&event.source).accepted += 1;
        for warning in &event.warnings {
            *self.mapping_warnings.entry((event.source.clone(), warning.clone())).or_default() += 1;
        }
    }

    /// Where an event belongs.
    fn place(
        &mut self,
        event: &KeyedEvent<'_>,
        entry: &EventInsert<'_>,
        seq: EventSeq,
        contact_key: Option<i64>,
    ) -> rusqlite::Result<Placement> {
        let nowhere = Placement { contact_id: None, entity: event.entity, conflict: None };
        let Some(observation) = event.observation.as_deref().filter(|_| entry.quarantine.is_none()) else {
            return Ok(nowhere);
        };
        Ok(match self.identify(observation, seq, contact_key)? {
            Ok((contact, entity)) => Placement { contact_id: Some(contact), entity, conflict: None },
            Err(failure) => Placement { conflict: Some(Quarantine::new(failure)), ..nowhere },
        })
    }

    /// Adds the entries by which an event is found: its key, its id, its signed content, its contacts and its trace.
    fn index_event(&mut self, event: &KeyedEvent<'_>, entries: IndexEntries) {
        let IndexEntries { seq, key, id, contact_key, contact_id } = entries;
        self.indexes.keys.insert(prefix(&key.0), seq);
        if id.0 != key.0 {
            // A later generation has an id of its own, by which it must be found too.
            self.indexes.keys.insert(prefix(&id.0), seq);
        }
        if let Some(content) = event.signed_content {
            self.indexes.keys.insert(prefix(&content.0), seq);
        }
        let contact = contact_id.map(|id| EventRef::Contact(id.0));
        let refs = [contact_key.map(EventRef::ContactKey), contact, EventRef::trace(&event.trace)];
        for reference in refs.into_iter().flatten() {
            self.indexes.event_refs.insert(ref_prefix(reference), seq);
        }
    }

    fn insert_jobs(&mut self, event: &KeyedEvent<'_>, jobs: InsertedJobs<'_>) -> rusqlite::Result<()> {
        let InsertedJobs { seq, id: event_id, contact, entity, sealer, quarantine } = jobs;
        let state = quarantine.map_or(JobState::Queued, |_| JobState::Dead);
        for (index, job) in (0..).zip(&event.jobs) {
            let id = self.counters.next_job + i64::from(index);
            self.statements.execute(
                StatementId::InsertJob,
                &[
                    Bound::Number(id),
                    Bound::Number(seq),
                    Bound::Name(&job.worker),
                    Bound::Name(&job.queue),
                    Bound::Name(&event.revision),
                    Bound::Number(entity as i64),
                    Bound::Number(self.now.0),
                    Bound::number(contact),
                    Bound::Name(&job.route.destination),
                    Bound::Number(lane_order_code(job.route.order)),
                    Bound::Number(i64::from(event.imported)),
                ],
            )?;
            if let Some(quarantine) = quarantine {
                let context = place::job_message(id, StableId { owner: event_id.0, index });
                self.quarantine_job(JobId(id), job, quarantine, SealedMessage { sealer, context })?;
            }
            self.totals.add(TotalRef {
                state,
                worker: &job.worker,
                destination: &job.route.destination,
                dead_letter_queue: quarantine.and(job.dead_letter_queue.as_deref()).unwrap_or_default(),
                queue: &job.queue,
                revision: &event.revision,
                wait: "",
            });
            if let Some(measure) = Measure::of_job_end(state, 0) {
                self.counts.add(measure, &job.worker, state.as_str());
            }
        }
        if let Some(clock) = event.response_clock(seq, event_id, JobId(self.counters.next_job)) {
            self.write_response(&clock)?;
        }
        Ok(())
    }

    /// A job that was just inserted is a dead letter from the start.
    fn quarantine_job(
        &mut self,
        id: JobId,
        job: &NewJob,
        quarantine: &Quarantine,
        message: SealedMessage<'_>,
    ) -> rusqlite::Result<()> {
        let (failure, message) = sealed_failure(message.sealer, message.context, Some(&quarantine.failure));
        self.cached(include_str!("../sql/quarantine_job.sql"))?.execute(params![
            id.0,
            JobState::Dead.code(),
            failure,
            message,
            job.dead_letter_queue.as_deref()
        ])?;
        self.add_to_group(&GroupKey::new(&job.worker, &quarantine.failure), id, self.now)
    }
}

pub(super) fn seal_body(sealer: &Sealer, place: SealContext<'_>, body: &EventBody) -> Vec<u8> {
    let (lengths, [headers, raw, normalized]) = row::body_parts(body);
    sealer.seal(place, &[&lengths, headers, raw, normalized])
}
