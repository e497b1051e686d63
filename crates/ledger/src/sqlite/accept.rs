//! Accepts: the owner of a key, duplicates, and other contents under the same key.

use std::ops::Deref;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use sluice_domain::contact::ContactId;
use sluice_domain::duplicate_stats;
use sluice_domain::event::{EventId, next_generation};
use sluice_domain::history::Measure;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;

use super::attempt::lane_order_code;
use super::batch::{Batch, Lateness, sealed_failure};
use super::content_owner::content_of;
use super::key_index::{EventRef, prefix, ref_prefix};
use super::key_store::Sealer;
use super::late_identity::SupplyingEvent;
use super::new_jobs::InsertedEvent;
use super::row::{self, place};
use super::statements::StatementId;
use super::totals::TotalRef;
use crate::op::{Acceptance, Accepted, Duplicate, FoundKeys, KeyLookup, MatchedBy};
use crate::record::{ClashPolicy, EventBody, EventSeq, NewEvent, Proof, Quarantine};
use crate::seal::{SealContext, StableId};

/// Variants of an event that are stored; further ones are counted.
const VARIANTS_MAX: i64 = 8;

/// An event with digests under a tenant key. Its own digests could be guessed from its content.
#[derive(Debug)]
pub(super) struct KeyedEvent<'a> {
    event: &'a NewEvent,
    pub key: KeyDigest,
    pub signed_content: Option<KeyDigest>,
    pub fingerprint: [u8; 16],
    entity: u64,
}

impl Deref for KeyedEvent<'_> {
    type Target = NewEvent;

    fn deref(&self) -> &NewEvent {
        self.event
    }
}

/// The event that owns a key, or has the same content.
#[derive(Debug)]
pub(super) struct Owner {
    pub seq: i64,
    id: EventId,
    pub key: KeyDigest,
    generation: u32,
    pub expires_at: Time,
    pub fingerprint: [u8; 16],
    pub flow: String,
    pub received_at: Time,
    pub event_type: String,
    pub signed_content: Option<[u8; 16]>,
}

/// Whether a key is free.
#[derive(Debug)]
enum Claim {
    Owned(Owner),
    /// With the last owner, whose lifetime has expired.
    Free(Option<Owner>),
}

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
struct EventInsert<'a> {
    key: KeyDigest,
    generation: u32,
    /// The event with the same key and another content.
    variant_of: Option<&'a Owner>,
    quarantine: Option<&'a Quarantine>,
}

impl Batch<'_, '_> {
    /// Accepts the events of one request, in their order.
    pub fn accept_events(&mut self, events: &[NewEvent]) -> rusqlite::Result<Vec<Acceptance>> {
        let Some(owner) = events.first().map(|event| event.key) else { return Ok(vec![]) };
        events.iter().map(|event| self.accept_event(event, owner)).collect()
    }

    /// Accepts an event of a request whose first event has the key `owner`.
    fn accept_event(&mut self, event: &NewEvent, owner: KeyDigest) -> rusqlite::Result<Acceptance> {
        if let Some(proof) = event.proof
            && !self.claim_proof(proof, owner, event.received_at)?
        {
            return Ok(Acceptance::ProofUsed);
        }
        let keyed = KeyedEvent {
            event,
            key: self.key_store.key_digest(event.key),
            signed_content: event.signed_content.map(|content| self.key_store.key_digest(content)),
            fingerprint: self.key_store.digest("content", &event.fingerprint),
            entity: prefix(&self.key_store.digest("entity", &event.entity.to_be_bytes())),
        };
        self.admit(&keyed)
    }

    /// Whether a proof may be used by the request whose first event has this key: no other request has used it.
    fn claim_proof(&self, proof: Proof, owner: KeyDigest, at: Time) -> rusqlite::Result<bool> {
        let digest = self.key_store.digest("proof", &proof.digest.0);
        let event_key = self.key_store.key_digest(owner).0;
        let used: Option<[u8; 16]> = self
            .cached(include_str!("sql/proof.sql"))?
            .query_row(params![digest, at.0], |row| row.get(0))
            .optional()?;
        if let Some(used) = used {
            return Ok(used == event_key);
        }
        let claim = include_str!("sql/claim_proof.sql");
        self.cached(claim)?.execute(params![digest, event_key, proof.expires_at.0])?;
        Ok(true)
    }

    fn admit(&mut self, event: &KeyedEvent<'_>) -> rusqlite::Result<Acceptance> {
        if let Some(window) = event.content_window
            && self.contents.widen(window)
        {
            let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/keep_content_window.sql"))?.execute([millis])?;
        }
        let expired = match self.claim(event.key, event)? {
            Claim::Owned(owner) => return self.match_owner(event, owner, MatchedBy::Key),
            Claim::Free(expired) => expired,
        };
        for adjacent in &event.adjacent_keys {
            if let Claim::Owned(owner) = self.claim(self.key_store.key_digest(*adjacent), event)? {
                return self.match_owner(event, owner, MatchedBy::AdjacentKey);
            }
        }
        if let Some(owner) = self.content_owner(event)? {
            self.bind_key(event, &owner)?;
            return self.duplicate(event, &owner, MatchedBy::Content);
        }
        if let Some(owner) = expired.as_ref().filter(|_| !event.imported) {
            self.counts.add(Measure::LateDuplicates, &event.source, "");
            self.note_lateness(event, owner, Lateness::AfterExpiry);
        }
        let generation = next_generation(expired.map(|owner| owner.generation));
        self.insert_event(
            event,
            EventInsert { key: event.key, generation, variant_of: None, quarantine: event.quarantine.as_ref() },
        )
    }

    pub(super) fn owner(&self, seq: i64) -> rusqlite::Result<Option<Owner>> {
        let owner = |row: &rusqlite::Row<'_>| {
            Ok(Owner {
                seq,
                id: EventId(row.get(0)?),
                key: KeyDigest(row.get(1)?),
                generation: row.get(2)?,
                expires_at: Time(row.get(3)?),
                fingerprint: row.get(4)?,
                flow: row.get(5)?,
                received_at: Time(row.get(6)?),
                event_type: row.get(7)?,
                signed_content: row.get(8)?,
            })
        };
        self.cached(include_str!("sql/event_key.sql"))?.query_row([seq], owner).optional()
    }

    fn claim(&self, key: KeyDigest, event: &KeyedEvent<'_>) -> rusqlite::Result<Claim> {
        let mut expired = None;
        for seq in self.indexes.keys.candidates(self.connection, prefix(&key.0))?.into_iter().rev() {
            match self.owner(seq)? {
                Some(owner) if owner.key != key => {}
                // A check before the commit does not see what the commit itself brings.
                Some(_) if Mutant::DedupAfterEnqueue.is_on() && self.indexes.keys.is_uncommitted(seq) => {}
                Some(owner) if owner.expires_at <= event.received_at => {
                    expired = Some(owner);
                    break;
                }
                Some(owner) => return Ok(Claim::Owned(owner)),
                None => {}
            }
        }
        Ok(self.bound_owner(key, event.received_at)?.map_or(Claim::Free(expired), Claim::Owned))
    }

    /// Key taken: duplicate, or key clash if fingerprints differ.
    fn match_owner(&mut self, event: &KeyedEvent<'_>, owner: Owner, by: MatchedBy) -> rusqlite::Result<Acceptance> {
        if owner.fingerprint == event.fingerprint {
            self.note_lateness(event, &owner, Lateness::Within);
            return self.duplicate(event, &owner, by);
        }
        if event.clash == ClashPolicy::Drop {
            self.count_clash(&event.source);
            self.keep_variant(event, &owner, None)?;
            let mut answer = self.duplicate(event, &owner, by)?;
            if let Acceptance::Duplicate(duplicate) = &mut answer {
                duplicate.clash = true;
            }
            return Ok(answer);
        }
        // Derived from the owner's key, so that a variant is the same on both sides of a bucket edge.
        let key = owner.key.variant(event.fingerprint);
        let generation = match self.claim(key, event)? {
            Claim::Owned(variant) => {
                self.note_lateness(event, &variant, Lateness::Within);
                self.count_variant(event, &owner)?;
                return self.duplicate(event, &variant, by);
            }
            Claim::Free(expired) => next_generation(expired.map(|variant| variant.generation)),
        };
        if let Some(same) = self.content_owner(event)? {
            return self.duplicate(event, &same, MatchedBy::Content);
        }
        self.count_clash(&event.source);
        self.keep_variant(event, &owner, Some(self.counters.next_seq))?;
        let clash = (event.clash == ClashPolicy::Quarantine).then(|| key_clash(&owner));
        let quarantine = event.quarantine.as_ref().or(clash.as_ref());
        self.insert_event(event, EventInsert { key, generation, variant_of: Some(&owner), quarantine })
    }

    fn duplicate(&mut self, event: &KeyedEvent<'_>, owner: &Owner, by: MatchedBy) -> rusqlite::Result<Acceptance> {
        let first =
            self.cached(include_str!("sql/event.sql"))?.query_row([owner.seq], |row| self.reader().event_row(row))?;
        let jobs = self.reader().jobs_of_event(&first)?;
        self.counts.add(Measure::Duplicates, &event.source, "");
        let counts = self.source_day(&event.source);
        counts.duplicates += 1;
        counts.by_content += u64::from(by == MatchedBy::Content);
        Ok(Acceptance::Duplicate(Duplicate {
            id: first.id,
            key_text: first.key_text,
            received_at: first.received_at,
            source: first.source,
            verified_by: first.verified_by,
            by,
            clash: false,
            jobs,
        }))
    }

    fn count_clash(&mut self, source: &Arc<str>) {
        self.counts.add(Measure::Clashes, source, "");
        self.source_day(source).clashes += 1;
    }

    fn note_lateness(&mut self, event: &KeyedEvent<'_>, owner: &Owner, kind: Lateness) {
        if event.imported {
            return;
        }
        let bucket = duplicate_stats::bucket(event.received_at.since(owner.received_at));
        *self.lateness.entry((event.source.clone(), kind, bucket)).or_default() += 1;
    }

    /// The slot of this content among the variants of an event, or else the number of variants.
    fn variant_slot(&self, event: &KeyedEvent<'_>, first: &Owner) -> rusqlite::Result<Result<i64, i64>> {
        let mut statement = self.cached(include_str!("sql/variant_slots.sql"))?;
        let mut rows = statement.query([first.seq])?;
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            if row.get::<_, [u8; 16]>(1)? == event.fingerprint {
                return Ok(Ok(row.get(0)?));
            }
            taken += 1;
        }
        Ok(Err(taken))
    }

    fn keep_variant(&mut self, event: &KeyedEvent<'_>, first: &Owner, became: Option<i64>) -> rusqlite::Result<()> {
        let taken = match self.variant_slot(event, first)? {
            Ok(slot) => {
                self.cached(include_str!("sql/repeat_variant.sql"))?.execute([first.seq, slot])?;
                return Ok(());
            }
            Err(taken) if taken >= VARIANTS_MAX => {
                self.cached(include_str!("sql/further_variant.sql"))?.execute([first.seq, VARIANTS_MAX - 1])?;
                return Ok(());
            }
            Err(taken) => taken,
        };
        let sealed = match became {
            Some(_) => None,
            None => {
                let contact = self.contact_key(event.contact)?;
                Some(seal_body(
                    &self.sealer(contact)?,
                    place::variant(first.seq, first.id, &taken.to_be_bytes()),
                    &event.body,
                ))
            }
        };
        self.cached(include_str!("sql/insert_variant.sql"))?.execute(params![
            first.seq,
            taken,
            event.received_at.0,
            event.fingerprint,
            became,
            sealed
        ])?;
        Ok(())
    }

    fn count_variant(&mut self, event: &KeyedEvent<'_>, first: &Owner) -> rusqlite::Result<()> {
        if let Ok(slot) = self.variant_slot(event, first)? {
            self.cached(include_str!("sql/repeat_variant.sql"))?.execute([first.seq, slot])?;
        }
        Ok(())
    }

    fn insert_event(&mut self, event: &KeyedEvent<'_>, entry: EventInsert<'_>) -> rusqlite::Result<Acceptance> {
        let seq = self.counters.next_seq;
        let first_job = self.counters.next_job;
        let id = EventId::new(entry.key, entry.generation);
        let jobs = u32::try_from(event.jobs.len()).unwrap_or(u32::MAX);
        let contact_key = self.contact_key(event.contact)?;
        let sealer = self.sealer(contact_key)?;
        let Placement { contact_id, entity, conflict } = self.place(event, &entry, seq, contact_key)?;
        let quarantine = entry.quarantine.or(conflict.as_ref());
        self.statements.get(StatementId::InsertEvent)?.execute(params![
            seq,
            id.0,
            entry.key.0,
            entry.generation,
            sealer.seal(place::key_text(seq, id), &[event.key_text.as_bytes()]),
            event.flow.as_ref(),
            event.source.as_ref(),
            event.event_type,
            event.received_at.0,
            self.now.0,
            event.occurred_at.map(|at| at.0),
            event.expires_at.0,
            event.revision.as_ref(),
            event.verified_by,
            event.trace,
            event.fingerprint,
            first_job,
            jobs,
            entry.variant_of.map(|first| first.seq),
            contact_key,
            event.signed_content.map(|content| content.0),
            contact_id.map(|id| id.0)
        ])?;
        let body = seal_body(&sealer, place::body(seq, id), &event.body);
        self.statements.get(StatementId::InsertBody)?.execute(params![seq, body])?;
        let jobs_of = InsertedJobs { seq, id, contact: contact_key, entity, sealer: &sealer, quarantine };
        self.insert_jobs(event, jobs_of)?;
        self.counters.next_seq += 1;
        self.counters.next_job += i64::from(jobs);
        self.index_event(event, (entry.key, id), seq);
        self.index_refs(event, (contact_key, contact_id), seq);
        self.content_undo.extend(self.contents.insert(content_of(event), seq, event.received_at));
        self.count_accepted(event);
        match contact_id {
            Some(contact) => self.release_waiting(&SupplyingEvent { event, id, contact, entity, contact_key })?,
            None if event.quarantine.is_some() => self.await_identity(event, seq, id)?,
            None => {}
        }
        if quarantine.is_none() {
            let (generation, first_job) = (entry.generation, JobId(first_job));
            let variant_of = entry.variant_of.map(|first| first.seq);
            self.inserted.push(InsertedEvent { seq, id, generation, entity, first_job, variant_of });
        }
        Ok(Acceptance::Accepted(Accepted {
            seq,
            id,
            variant_of: entry.variant_of.map(|first| first.id),
            quarantined: quarantine.is_some(),
        }))
    }

    fn index_refs(
        &mut self,
        event: &KeyedEvent<'_>,
        (contact_key, contact): (Option<i64>, Option<ContactId>),
        seq: EventSeq,
    ) {
        let contact = contact.map(|id| EventRef::Contact(id.0));
        let refs = [contact_key.map(EventRef::ContactKey), contact, EventRef::trace(&event.trace)];
        for reference in refs.into_iter().flatten() {
            self.indexes.event_refs.insert(ref_prefix(reference), seq);
        }
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
            Err(failure) => Placement { conflict: Some(Quarantine { failure }), ..nowhere },
        })
    }

    fn index_event(&mut self, event: &KeyedEvent<'_>, (key, id): (KeyDigest, EventId), seq: EventSeq) {
        self.indexes.keys.insert(prefix(&key.0), seq);
        if id.0 != key.0 {
            // A later generation has an id of its own, by which it must be found too.
            self.indexes.keys.insert(prefix(&id.0), seq);
        }
        if let Some(content) = event.signed_content {
            self.indexes.keys.insert(prefix(&content.0), seq);
        }
    }

    fn insert_jobs(&mut self, event: &KeyedEvent<'_>, jobs: InsertedJobs<'_>) -> rusqlite::Result<()> {
        let InsertedJobs { seq, id: event_id, contact, entity, sealer, quarantine } = jobs;
        let state = quarantine.map_or(JobState::Queued, |_| JobState::Dead);
        for (index, job) in (0..).zip(&event.jobs) {
            let id = self.counters.next_job + i64::from(index);
            let identity = StableId { owner: event_id.0, index };
            let failure = quarantine.map(|quarantine| &quarantine.failure);
            let dead_letter_queue = quarantine.and(job.dead_letter_queue.as_deref());
            let (failure, message) = sealed_failure(sealer, place::job_message(id, identity), failure);
            self.statements.get(StatementId::InsertJob)?.execute(params![
                id,
                seq,
                job.worker.as_ref(),
                job.queue.as_ref(),
                event.revision.as_ref(),
                entity as i64,
                self.now.0,
                state.code(),
                quarantine.map(|_| self.now.0),
                failure,
                message,
                dead_letter_queue,
                contact,
                job.route.destination.as_ref(),
                lane_order_code(job.route.order)
            ])?;
            self.totals.add(TotalRef {
                state,
                worker: &job.worker,
                destination: &job.route.destination,
                dead_letter_queue: dead_letter_queue.unwrap_or_default(),
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

    /// The key of the person with this digest; a new one gets a key of its own.
    pub(super) fn contact_key(&mut self, contact: Option<KeyDigest>) -> rusqlite::Result<Option<i64>> {
        let Some(contact) = contact else { return Ok(None) };
        let digest = self.key_store.digest("contact", &contact.0);
        if let Some(id) = self.find_contact(&digest)? {
            return Ok(Some(id));
        }
        let id = self.counters.next_contact;
        self.key_store.add_contact(self.connection, &mut self.key_changes, id, digest, self.now)?;
        self.counters.next_contact += 1;
        self.indexes.contacts.insert(prefix(&digest), id);
        Ok(Some(id))
    }

    fn find_contact(&self, digest: &[u8; 16]) -> rusqlite::Result<Option<i64>> {
        for id in self.indexes.contacts.candidates(self.connection, prefix(digest))?.into_iter().rev() {
            let known = self.key_store.contact(self.connection, Some(&self.key_changes), id)?;
            if known.is_some_and(|known| known.digest == *digest) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Events with a reference, oldest first. A prefix may be that of another reference, since senders choose trace ids: the rows decide.
    pub(super) fn events_of(&self, reference: EventRef) -> rusqlite::Result<Vec<EventSeq>> {
        let mut row = self.cached(include_str!("sql/event_ref.sql"))?;
        let mut seqs = Vec::new();
        for seq in self.indexes.event_refs.candidates(self.connection, ref_prefix(reference))? {
            let matches = |row: &rusqlite::Row<'_>| {
                let (key, contact): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
                Ok(match reference {
                    EventRef::ContactKey(id) => key == Some(id),
                    EventRef::Contact(id) => contact == Some(id),
                    EventRef::Trace(_) => EventRef::trace(row.get_ref(2)?.as_str()?) == Some(reference),
                })
            };
            if row.query_row([seq], matches).optional()?.unwrap_or(false) {
                seqs.push(seq);
            }
        }
        let identified = self.identified_events(reference)?;
        if !identified.is_empty() {
            seqs.extend(identified);
            seqs.sort_unstable();
            seqs.dedup();
        }
        Ok(seqs)
    }

    /// Expired keys count too.
    pub fn look_up_keys(&self, lookup: &KeyLookup) -> rusqlite::Result<FoundKeys> {
        let mut found = FoundKeys::default();
        for key in &lookup.keys {
            let key = self.key_store.key_digest(*key);
            for seq in self.indexes.keys.candidates(self.connection, prefix(&key.0))? {
                if self.owner(seq)?.is_some_and(|owner| owner.key == key) {
                    found.seqs.push(seq);
                }
            }
        }
        for contact in &lookup.contacts {
            if let Some(id) = self.find_contact(&self.key_store.digest("contact", &contact.0))? {
                found.contact_events.extend(self.events_of(EventRef::ContactKey(id))?);
            }
        }
        Ok(found)
    }
}

fn seal_body(sealer: &Sealer, place: SealContext<'_>, body: &EventBody) -> Vec<u8> {
    let (lengths, [headers, raw, normalized]) = row::body_parts(body);
    sealer.seal(place, &[&lengths, headers, raw, normalized])
}

fn key_clash(first: &Owner) -> Quarantine {
    let message = format!(
        "{} has the same idempotency key and another content; compare the two, then replay or drop this",
        first.id
    );
    Quarantine { failure: Failure::new(FailureClass::Conflict, "key-clash", message) }
}
