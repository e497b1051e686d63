//! Accepting: who owns a key, what a repeat is told, and what becomes of another content under the same key.

use std::ops::Deref;

use rusqlite::{OptionalExtension, params};
use sluice_domain::duplicate_stats;
use sluice_domain::event::EventId;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;

use super::apply::{Batch, Lateness, sealed_failure};
use super::key_index::prefix;
use super::key_store::Sealer;
use super::new_jobs::InsertedEvent;
use super::row::{self, place};
use super::statements::StatementId;
use crate::op::{Acceptance, Accepted, Duplicate, MatchedBy};
use crate::record::{ClashPolicy, EventBody, EventRecord, JobRecord, NewEvent, Quarantine};
use crate::seal::SealContext;

/// Other contents under one key that are kept to be looked at. Beyond them they are counted.
const VARIANTS_MAX: i64 = 8;

/// An event at the door. Its own digests can be guessed by whoever guesses what it says; these, which only the tenant's
/// key makes, stand before them.
#[derive(Debug)]
struct KeyedEvent<'a> {
    event: &'a NewEvent,
    key: KeyDigest,
    fingerprint: [u8; 16],
    entity: u64,
}

impl Deref for KeyedEvent<'_> {
    type Target = NewEvent;

    fn deref(&self) -> &NewEvent {
        self.event
    }
}

/// The event that owns a key, or has a content.
#[derive(Debug)]
struct Owner {
    ord: i64,
    id: EventId,
    key: KeyDigest,
    generation: u32,
    expires_at: Time,
    fingerprint: [u8; 16],
    flow: String,
    received_at: Time,
}

/// Whether a key can be had.
#[derive(Debug)]
enum Claim {
    /// It has an owner.
    Owned(Owner),
    /// Nobody has it; the last owner, if there is one, had it until it expired.
    Free(Option<Owner>),
}

/// What an event is let in as.
#[derive(Debug)]
struct EventInsert<'a> {
    key: KeyDigest,
    generation: u32,
    /// The event with the same key and another content.
    variant_of: Option<&'a Owner>,
    quarantine: Option<&'a Quarantine>,
}

impl Batch<'_, '_> {
    pub fn accept(&mut self, event: &NewEvent) -> rusqlite::Result<Acceptance> {
        let arrival = KeyedEvent {
            event,
            key: self.vault.key_digest(event.key),
            fingerprint: self.vault.digest("content", &event.fingerprint),
            entity: prefix(&self.vault.digest("entity", &event.entity.to_be_bytes())),
        };
        self.admit(&arrival)
    }

    fn admit(&mut self, event: &KeyedEvent<'_>) -> rusqlite::Result<Acceptance> {
        if let Some(window) = event.content_window
            && self.net.widen(window)
        {
            let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
            self.cached(include_str!("sql/keep_second_net.sql"))?.execute([millis])?;
        }
        let expired = match self.claim(event.key, event)? {
            Claim::Owned(owner) => return self.repeat(event, owner, MatchedBy::Key),
            Claim::Free(expired) => expired,
        };
        for near in &event.adjacent_keys {
            if let Claim::Owned(owner) = self.claim(self.vault.key_digest(*near), event)? {
                return self.repeat(event, owner, MatchedBy::NearKey);
            }
        }
        if let Some(owner) = self.same_content(event)? {
            return self.duplicate(event, &owner, MatchedBy::Content);
        }
        if let Some(owner) = &expired {
            self.note_lateness(event, owner, Lateness::AfterExpiry);
        }
        let generation = expired.map_or(0, |owner| owner.generation + 1);
        self.take_in(
            event,
            EventInsert { key: event.key, generation, variant_of: None, quarantine: event.quarantine.as_ref() },
        )
    }

    fn owner(&self, ord: i64) -> rusqlite::Result<Option<Owner>> {
        let owner = |row: &rusqlite::Row<'_>| {
            Ok(Owner {
                ord,
                id: EventId(row.get(0)?),
                key: KeyDigest(row.get(1)?),
                generation: row.get(2)?,
                expires_at: Time(row.get(3)?),
                fingerprint: row.get(4)?,
                flow: row.get(5)?,
                received_at: Time(row.get(6)?),
            })
        };
        self.cached(include_str!("sql/event_key.sql"))?.query_row([ord], owner).optional()
    }

    fn claim(&self, key: KeyDigest, event: &KeyedEvent<'_>) -> rusqlite::Result<Claim> {
        for ord in self.keys.candidates(self.connection, prefix(&key.0))?.into_iter().rev() {
            match self.owner(ord)? {
                Some(owner) if owner.key != key => {}
                Some(owner) if owner.expires_at <= event.received_at => return Ok(Claim::Free(Some(owner))),
                Some(owner) => return Ok(Claim::Owned(owner)),
                None => {}
            }
        }
        Ok(Claim::Free(None))
    }

    /// The event of this flow that said the same a moment ago, under another key.
    fn same_content(&self, event: &KeyedEvent<'_>) -> rusqlite::Result<Option<Owner>> {
        let Some(window) = event.content_window else { return Ok(None) };
        let Some(ord) = self.net.find(&event.flow, &event.fingerprint) else { return Ok(None) };
        Ok(self.owner(ord)?.filter(|owner| {
            owner.fingerprint == event.fingerprint
                && *owner.flow == *event.flow
                && owner.key != event.key
                && event.received_at.since(owner.received_at) <= window
        }))
    }

    /// The key has an owner. That decides, unless it says something else.
    fn repeat(&mut self, event: &KeyedEvent<'_>, owner: Owner, by: MatchedBy) -> rusqlite::Result<Acceptance> {
        if owner.fingerprint == event.fingerprint {
            self.note_lateness(event, &owner, Lateness::Within);
            return self.duplicate(event, &owner, by);
        }
        if event.clash == ClashPolicy::Drop {
            self.tally(&event.source).clashes += 1;
            self.keep_variant(event, &owner, None)?;
            let mut answer = self.duplicate(event, &owner, by)?;
            if let Acceptance::Duplicate(duplicate) = &mut answer {
                duplicate.clash = true;
            }
            return Ok(answer);
        }
        // From the owner's own key, so that a variant is the same one on both sides of a bucket's edge.
        let key = owner.key.variant(event.fingerprint);
        let generation = match self.claim(key, event)? {
            Claim::Owned(variant) => {
                self.note_lateness(event, &variant, Lateness::Within);
                self.count_variant(event, &owner)?;
                return self.duplicate(event, &variant, by);
            }
            Claim::Free(expired) => expired.map_or(0, |variant| variant.generation + 1),
        };
        if let Some(same) = self.same_content(event)? {
            return self.duplicate(event, &same, MatchedBy::Content);
        }
        self.tally(&event.source).clashes += 1;
        self.keep_variant(event, &owner, Some(self.counters.next_ord))?;
        let clash = (event.clash == ClashPolicy::Quarantine).then(|| key_clash(&owner));
        let quarantine = event.quarantine.as_ref().or(clash.as_ref());
        self.take_in(event, EventInsert { key, generation, variant_of: Some(&owner), quarantine })
    }

    fn duplicate(&mut self, event: &KeyedEvent<'_>, owner: &Owner, by: MatchedBy) -> rusqlite::Result<Acceptance> {
        let first =
            self.cached(include_str!("sql/event.sql"))?.query_row([owner.ord], |row| self.reader().event(row))?;
        let jobs = self.jobs_of(&first)?;
        let tally = self.tally(&event.source);
        tally.duplicates += 1;
        tally.by_content += u64::from(by == MatchedBy::Content);
        Ok(Acceptance::Duplicate(Duplicate {
            id: first.id,
            key_text: first.key_text,
            received_at: first.received_at,
            by,
            clash: false,
            jobs,
        }))
    }

    fn jobs_of(&self, event: &EventRecord) -> rusqlite::Result<Vec<JobRecord>> {
        self.cached(include_str!("sql/jobs_of_event.sql"))?
            .query_map([event.first_job.0, event.first_job.0 + i64::from(event.jobs)], |row| self.reader().job(row))?
            .collect()
    }

    fn note_lateness(&mut self, event: &KeyedEvent<'_>, owner: &Owner, kind: Lateness) {
        let bucket = duplicate_stats::bucket(event.received_at.since(owner.received_at));
        *self.lateness.entry((event.source.clone(), kind, bucket)).or_default() += 1;
    }

    /// The slot of this content among the variants of an event; otherwise how many there are.
    fn variant_slot(&self, event: &KeyedEvent<'_>, first: &Owner) -> rusqlite::Result<Result<i64, i64>> {
        let mut statement = self.cached(include_str!("sql/variant_slots.sql"))?;
        let mut rows = statement.query([first.ord])?;
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
                self.cached(include_str!("sql/repeat_variant.sql"))?.execute([first.ord, slot])?;
                return Ok(());
            }
            Err(taken) if taken >= VARIANTS_MAX => {
                self.cached(include_str!("sql/further_variant.sql"))?.execute([first.ord, VARIANTS_MAX - 1])?;
                return Ok(());
            }
            Err(taken) => taken,
        };
        let sealed = match became {
            Some(_) => None,
            None => {
                let contact = self.contact(event)?;
                Some(seal_body(&self.sealer(contact)?, place::variant(first.ord, &taken.to_be_bytes()), &event.body))
            }
        };
        self.cached(include_str!("sql/insert_variant.sql"))?.execute(params![
            first.ord,
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
            self.cached(include_str!("sql/repeat_variant.sql"))?.execute([first.ord, slot])?;
        }
        Ok(())
    }

    fn take_in(&mut self, event: &KeyedEvent<'_>, entry: EventInsert<'_>) -> rusqlite::Result<Acceptance> {
        let ord = self.counters.next_ord;
        let first_job = self.counters.next_job;
        let id = EventId::new(entry.key, entry.generation);
        let jobs = u32::try_from(event.jobs.len()).unwrap_or(u32::MAX);
        let contact = self.contact(event)?;
        let sealer = self.sealer(contact)?;
        self.often.get(StatementId::InsertEvent)?.execute(params![
            ord,
            id.0,
            entry.key.0,
            entry.generation,
            sealer.seal(place::key_text(ord), &[event.key_text.as_bytes()]),
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
            entry.variant_of.map(|first| first.ord),
            contact
        ])?;
        let body = seal_body(&sealer, place::body(ord), &event.body);
        self.often.get(StatementId::InsertBody)?.execute(params![ord, body])?;
        self.insert_jobs(event, ord, contact, &sealer, entry.quarantine)?;
        self.counters.next_ord += 1;
        self.counters.next_job += i64::from(jobs);
        self.take_key(prefix(&entry.key.0), ord);
        if id.0 != entry.key.0 {
            // A later generation has a name of its own, by which it must be found too.
            self.take_key(prefix(&id.0), ord);
        }
        self.remembered.extend(self.net.insert(&event.flow, &event.fingerprint, ord, event.received_at));
        self.tally(&event.source).accepted += 1;
        if entry.quarantine.is_none() {
            self.let_in.push(InsertedEvent {
                ord,
                id,
                generation: entry.generation,
                entity: event.entity,
                first_job: JobId(first_job),
                variant_of: entry.variant_of.map(|first| first.ord),
            });
        }
        Ok(Acceptance::Accepted(Accepted {
            seq: ord,
            id,
            variant_of: entry.variant_of.map(|first| first.id),
            quarantined: entry.quarantine.is_some(),
        }))
    }

    fn insert_jobs(
        &mut self,
        event: &KeyedEvent<'_>,
        ord: i64,
        contact: Option<i64>,
        sealer: &Sealer,
        quarantine: Option<&Quarantine>,
    ) -> rusqlite::Result<()> {
        let state = quarantine.map_or(JobState::Queued, |_| JobState::Dead);
        for (id, job) in (self.counters.next_job..).zip(&event.jobs) {
            let failure = quarantine.map(|quarantine| &quarantine.failure);
            let (failure, message) = sealed_failure(sealer, place::job_message(id), failure);
            self.often.get(StatementId::InsertJob)?.execute(params![
                id,
                ord,
                job.worker.as_ref(),
                job.queue.as_ref(),
                event.revision.as_ref(),
                event.entity as i64,
                self.now.0,
                state.code(),
                quarantine.map(|_| self.now.0),
                failure,
                message,
                quarantine.and(job.dead_letter_queue.as_deref()),
                contact
            ])?;
        }
        Ok(())
    }

    /// The contact that an event is about; a new one gets a key of its own.
    fn contact(&mut self, event: &KeyedEvent<'_>) -> rusqlite::Result<Option<i64>> {
        let Some(contact) = event.contact else { return Ok(None) };
        let digest = self.vault.digest("contact", &contact.0);
        for id in self.contacts.candidates(self.connection, prefix(&digest))?.into_iter().rev() {
            let known = self.vault.contact(self.connection, Some(&self.key_changes), id)?;
            if known.is_some_and(|known| known.digest == digest) {
                return Ok(Some(id));
            }
        }
        let id = self.counters.next_contact;
        self.vault.add_contact(self.connection, &mut self.key_changes, id, digest, self.now)?;
        self.counters.next_contact += 1;
        self.contacts.insert(prefix(&digest), id);
        self.contacts_taken.push((prefix(&digest), id));
        Ok(Some(id))
    }

    fn take_key(&mut self, key_prefix: u64, ord: i64) {
        self.keys.insert(key_prefix, ord);
        self.taken.push((key_prefix, ord));
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
