//! Accepts: the owner of a key, duplicates, and other contents under the same key.

mod insert;
mod variants;

use std::ops::Deref;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use sluice_domain::duplicate_stats::{self, DuplicateRequest};
use sluice_domain::event::{EventId, next_generation};
use sluice_domain::history::Measure;
use sluice_domain::key::KeyDigest;
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;

use super::batch::{Batch, Lateness};
use super::key_index::prefix;
use crate::op::{Acceptance, Duplicate, MatchedBy};
use crate::record::{ClashPolicy, NewEvent, Proof, Quarantine};
use insert::EventInsert;

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

impl Batch<'_, '_> {
    /// Accepts the events of one request, in their order.
    pub(super) fn accept_events(&mut self, events: &[NewEvent]) -> rusqlite::Result<Vec<Acceptance>> {
        if let Some(first) = events.first()
            && let Some(proof) = first.proof
            && !self.claim_proof(proof, Proof::request(events), first.received_at)?
        {
            return Ok(events.iter().map(|_| Acceptance::ProofUsed).collect());
        }
        events.iter().map(|event| self.accept_event(event)).collect()
    }

    fn accept_event(&mut self, event: &NewEvent) -> rusqlite::Result<Acceptance> {
        let keyed = KeyedEvent {
            event,
            key: self.key_store.key_digest(event.key),
            signed_content: event.signed_content.map(|content| self.key_store.key_digest(content)),
            fingerprint: self.key_store.digest("content", &event.fingerprint),
            entity: prefix(&self.key_store.digest("entity", &event.entity.to_be_bytes())),
        };
        self.admit(&keyed)
    }

    /// Whether a proof may be used by this request: no other request has used it.
    fn claim_proof(&self, proof: Proof, request: KeyDigest, at: Time) -> rusqlite::Result<bool> {
        let digest = self.key_store.digest("proof", &proof.digest.0);
        let request = self.key_store.key_digest(request).0;
        let used: Option<[u8; 16]> = self
            .cached(include_str!("../sql/proof.sql"))?
            .query_row(params![digest, at.0], |row| row.get(0))
            .optional()?;
        if let Some(used) = used {
            return Ok(used == request);
        }
        let claim = include_str!("../sql/claim_proof.sql");
        self.cached(claim)?.execute(params![digest, request, proof.expires_at.0])?;
        Ok(true)
    }

    fn admit(&mut self, event: &KeyedEvent<'_>) -> rusqlite::Result<Acceptance> {
        if let Some(window) = event.content_window
            && self.contents.widen(window)
        {
            let millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
            self.cached(include_str!("../sql/keep_content_window.sql"))?.execute([millis])?;
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
        self.cached(include_str!("../sql/event_key.sql"))?.query_row([seq], owner).optional()
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
        let first = self
            .cached(include_str!("../sql/event.sql"))?
            .query_row([owner.seq], |row| self.reader().event_row(row))?;
        let jobs = self.reader().jobs_of_event(&first)?;
        let differs = by.difference(owner.fingerprint == event.fingerprint);
        let request = DuplicateRequest::new(event.received_at, differs, &event.trace);
        self.duplicates.entry(owner.seq).or_default().push(request);
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
}

fn key_clash(first: &Owner) -> Quarantine {
    let message = format!(
        "{} has the same idempotency key and another content; compare the two, then replay or drop this",
        first.id
    );
    Quarantine::new(Failure::new(FailureClass::Conflict, "key-clash", message))
}
