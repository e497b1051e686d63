//! Accepts: the owner of a key, duplicates, and other contents under the same key.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::contact::{ContactId, Observation};
use sluice_domain::duplicate_stats::{self, DuplicateRequest, DuplicateStats, EventDuplicates};
use sluice_domain::event::{EventId, next_generation};
use sluice_domain::history::Measure;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;

use super::lanes::LanePlace;
use super::late_identity::SupplyingEvent;
use super::{BindingRow, DAY_MS, EventRow, JobRow, ProofRow, Store};
use crate::op::{Acceptance, Accepted, Duplicate, MatchedBy};
use crate::record::{
    ClashPolicy, EventRecord, EventSeq, JobRecord, MappingWarningCount, NewEvent, NewJob, Proof, Quarantine,
    SourceDayCounts, VariantRecord, Variants,
};

/// Variants of an event that are stored; further ones are counted.
const VARIANTS_MAX: usize = 8;

/// Whether a key is free.
enum Claim {
    Owned(EventSeq),
    /// With the last owner, whose lifetime has expired.
    Free {
        expired: Option<EventSeq>,
        generation: u32,
    },
}

impl Store {
    /// Accepts an event at a time of the wall clock.
    pub fn accept(&mut self, now: Time, event: NewEvent) -> Acceptance {
        match self.may_use_proof(std::slice::from_ref(&event)) {
            true => self.accept_boxed(now, Box::new(event)),
            false => Acceptance::ProofUsed,
        }
    }

    /// Accepts the events of one request, in their order.
    pub fn accept_all(&mut self, now: Time, events: Vec<NewEvent>) -> Vec<Acceptance> {
        match self.may_use_proof(&events) {
            true => events.into_iter().map(|event| self.accept_boxed(now, Box::new(event))).collect(),
            false => events.iter().map(|_| Acceptance::ProofUsed).collect(),
        }
    }

    /// Whether the request with these events has no proof, or one that no other request has used.
    fn may_use_proof(&mut self, events: &[NewEvent]) -> bool {
        let Some((proof, at)) = events.first().and_then(|first| Some((first.proof?, first.received_at))) else {
            return true;
        };
        let request = Proof::request(events);
        if let Some(used) = self.proofs.get(&proof.digest.0).filter(|used| used.expires_at > at) {
            return used.request == request;
        }
        self.proofs.insert(proof.digest.0, ProofRow { request, expires_at: proof.expires_at });
        true
    }

    pub(super) fn prune_proofs(&mut self, at: Time, limit: usize) -> usize {
        let expired = self.proofs.iter().filter(|(_, proof)| proof.expires_at <= at);
        let expired: Vec<_> = expired.map(|(digest, _)| *digest).take(limit).collect();
        for digest in &expired {
            self.proofs.remove(digest);
        }
        expired.len()
    }

    pub(super) fn prune_bindings(&mut self, at: Time, limit: usize) -> usize {
        let expired = self.bindings.iter().filter(|(_, binding)| binding.expires_at <= at);
        let expired: Vec<_> = expired.map(|(key, _)| *key).take(limit).collect();
        for key in &expired {
            self.bindings.remove(key);
        }
        expired.len()
    }

    fn accept_boxed(&mut self, now: Time, event: Box<NewEvent>) -> Acceptance {
        self.window = self.window.max(event.content_window.unwrap_or(Duration::ZERO));
        let (expired, generation) = match self.claim(event.key, &event) {
            Claim::Owned(owner) => return self.match_owner(now, event, owner, MatchedBy::Key),
            Claim::Free { expired, generation } => (expired, generation),
        };
        for adjacent in &event.adjacent_keys {
            if let Claim::Owned(owner) = self.claim(*adjacent, &event) {
                return self.match_owner(now, event, owner, MatchedBy::AdjacentKey);
            }
        }
        if let Some(owner) = self.content_owner(&event) {
            self.bind_key(&event, owner);
            return self.duplicate(now, &event, owner, MatchedBy::Content);
        }
        if let Some(owner) = expired.filter(|_| !event.imported) {
            self.history.add(Measure::LateDuplicates, &event.source, "");
            self.note_lateness(&event, owner, true);
        }
        let quarantine = event.quarantine.clone();
        self.insert_event(now, event, generation, None, quarantine)
    }

    fn source_day(&mut self, now: Time, event: &NewEvent) -> &mut SourceDayCounts {
        self.source_days.entry((now.0.div_euclid(DAY_MS), event.source.clone())).or_default()
    }

    fn claim(&self, key: KeyDigest, event: &NewEvent) -> Claim {
        let newest = self.owners.get(&key.0).and_then(|seqs| seqs.last()).and_then(|seq| self.events.get(seq));
        let is_expired = newest.is_none_or(|owner| owner.new.expires_at <= event.received_at);
        if is_expired && let Some(owner) = self.bound_owner(key, event.received_at) {
            return Claim::Owned(owner);
        }
        match newest {
            None => Claim::Free { expired: None, generation: 0 },
            Some(owner) if owner.new.expires_at <= event.received_at => {
                Claim::Free { expired: Some(owner.seq), generation: next_generation(Some(owner.generation)) }
            }
            Some(owner) => Claim::Owned(owner.seq),
        }
    }

    /// The event that a key was bound to, as the key of a duplicate.
    fn bound_owner(&self, key: KeyDigest, at: Time) -> Option<EventSeq> {
        let binding = self.bindings.get(&key.0).filter(|binding| binding.expires_at > at)?;
        self.events.get(&binding.seq).map(|owner| owner.seq)
    }

    /// Binds the key of a duplicate to the event whose content it has, for the lifetime of that event's key: beyond the
    /// content window the same request must not become an event. Signed content needs no binding, since it stays owned.
    fn bind_key(&mut self, event: &NewEvent, owner: EventSeq) {
        let Some(first) = self.events.get(&owner) else { return };
        let by_signed_content = event.signed_content.is_some() && event.signed_content == first.new.signed_content;
        let expires_at = first.new.expires_at;
        if !by_signed_content && expires_at > event.received_at {
            self.bindings.insert(event.key.0, BindingRow { seq: owner, expires_at });
        }
    }

    /// The event that owns the content, under another key.
    fn content_owner(&self, event: &NewEvent) -> Option<EventSeq> {
        self.signed_content_owner(event).or_else(|| self.same_content(event))
    }

    fn signed_content_owner(&self, event: &NewEvent) -> Option<EventSeq> {
        let owner = self.events.get(self.signed_contents.get(&event.signed_content?.0)?)?;
        (owner.new.expires_at > event.received_at).then_some(owner.seq)
    }

    /// The event of this flow with the same type and content within the window, under another key.
    fn same_content(&self, event: &NewEvent) -> Option<EventSeq> {
        let window = event.content_window?;
        let seq = self.contents.get(&(event.flow.clone(), event.event_type.clone(), event.fingerprint))?;
        let owner = self.events.get(seq)?;
        let is_near = event.received_at.since(owner.new.received_at) <= window;
        (owner.new.key != event.key && is_near).then_some(*seq)
    }

    /// Key taken: duplicate, or key clash if fingerprints differ.
    fn match_owner(&mut self, now: Time, mut event: Box<NewEvent>, owner: EventSeq, by: MatchedBy) -> Acceptance {
        let Some(first) = self.events.get(&owner) else { unreachable!("an owner is a stored event") };
        let (first_id, first_key) = (first.id, first.new.key);
        if first.new.fingerprint == event.fingerprint {
            self.note_lateness(&event, owner, false);
            return self.duplicate(now, &event, owner, by);
        }
        if event.clash == ClashPolicy::Drop {
            self.count_clash(now, &event);
            self.keep_variant(&event, owner, None);
            let mut answer = self.duplicate(now, &event, owner, by);
            if let Acceptance::Duplicate(duplicate) = &mut answer {
                duplicate.clash = true;
            }
            return answer;
        }
        // Derived from the owner's key, so that a variant is the same on both sides of a bucket edge.
        let key = first_key.variant(event.fingerprint);
        let generation = match self.claim(key, &event) {
            Claim::Owned(variant) => {
                self.note_lateness(&event, variant, false);
                if let Some(slot) = self.variant_slot(&event, owner) {
                    slot.times += 1;
                }
                return self.duplicate(now, &event, variant, by);
            }
            Claim::Free { generation, .. } => generation,
        };
        if let Some(same) = self.content_owner(&event) {
            return self.duplicate(now, &event, same, MatchedBy::Content);
        }
        self.count_clash(now, &event);
        self.keep_variant(&event, owner, Some(self.last_seq + 1));
        let clash = (event.clash == ClashPolicy::Quarantine).then(|| key_clash(first_id));
        let quarantine = event.quarantine.clone().or(clash);
        event.key = key;
        self.insert_event(now, event, generation, Some(owner), quarantine)
    }

    fn duplicate(&mut self, now: Time, event: &NewEvent, owner: EventSeq, by: MatchedBy) -> Acceptance {
        let Some(first) = self.events.get(&owner) else { unreachable!("an owner is a stored event") };
        let duplicate = Duplicate {
            id: first.id,
            key_text: first.new.key_text.clone(),
            received_at: first.new.received_at,
            source: first.new.source.clone(),
            verified_by: first.new.verified_by.clone(),
            by,
            clash: false,
            jobs: first.job_ids().filter_map(|id| self.jobs.get(&id)).map(|job| job.record.clone()).collect(),
        };
        let differs = by.difference(first.new.fingerprint == event.fingerprint);
        let request = DuplicateRequest::new(event.received_at, differs, &event.trace);
        let known = self.duplicates.remove(&owner);
        self.duplicates.extend(EventDuplicates::add(known, vec![request]).map(|all| (owner, all)));
        self.history.add(Measure::Duplicates, &event.source, "");
        let counts = self.source_day(now, event);
        counts.duplicates += 1;
        counts.by_content += u64::from(by == MatchedBy::Content);
        Acceptance::Duplicate(duplicate)
    }

    fn count_clash(&mut self, now: Time, event: &NewEvent) {
        self.history.add(Measure::Clashes, &event.source, "");
        self.source_day(now, event).clashes += 1;
    }

    fn note_lateness(&mut self, event: &NewEvent, owner: EventSeq, after_expiry: bool) {
        let Some(first) = self.events.get(&owner).filter(|_| !event.imported) else { return };
        let bucket = duplicate_stats::bucket(event.received_at.since(first.new.received_at));
        let counts = self.lateness.entry(event.source.clone()).or_default();
        *counts[usize::from(after_expiry)].entry(bucket).or_default() += 1;
    }

    fn variant_slot(&mut self, event: &NewEvent, first: EventSeq) -> Option<&mut VariantRecord> {
        self.variants.get_mut(&first)?.kept.iter_mut().find(|variant| variant.fingerprint == event.fingerprint)
    }

    fn keep_variant(&mut self, event: &NewEvent, first: EventSeq, became: Option<EventSeq>) {
        if let Some(slot) = self.variant_slot(event, first) {
            slot.times += 1;
            return;
        }
        let variants = self.variants.entry(first).or_default();
        if variants.kept.len() >= VARIANTS_MAX {
            variants.further += 1;
            return;
        }
        variants.kept.push(VariantRecord {
            received_at: event.received_at,
            fingerprint: event.fingerprint,
            times: 1,
            event: became,
            body: became.is_none().then(|| (*event.body).clone()),
        });
    }

    fn insert_event(
        &mut self,
        now: Time,
        mut event: Box<NewEvent>,
        generation: u32,
        variant_of: Option<EventSeq>,
        quarantine: Option<Quarantine>,
    ) -> Acceptance {
        let id = EventId::new(event.key, generation);
        self.last_seq += 1;
        let seq = self.last_seq;
        let observation = event.observation.take();
        let (contact, quarantine) = self.place(now, (&mut event, seq), observation.as_deref(), quarantine);
        let first_job = JobId(self.last_job + 1);
        self.responses.extend(event.response_clock(seq, id, first_job).map(|clock| (seq, clock)));
        let jobs = std::mem::take(&mut event.jobs);
        self.insert_jobs(now, (&event, seq), &jobs, quarantine.as_ref());
        self.owners.entry(event.key.0).or_default().push(seq);
        if generation > 0 {
            self.later_ids.insert(id, seq);
        }
        if !self.window.is_zero() {
            self.contents.insert((event.flow.clone(), event.event_type.clone(), event.fingerprint), seq);
        }
        if let Some(content) = event.signed_content {
            self.signed_contents.insert(content.0, seq);
        }
        self.history.add(Measure::Accepted, &event.source, "");
        self.source_day(now, &event).accepted += 1;
        for warning in &event.warnings {
            let (count, last_at) = self.mapping_warnings.entry((event.source.clone(), warning.clone())).or_default();
            (*count, *last_at) = (*count + 1, now);
        }
        let body = Some(event.body.clone());
        let jobs = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let record = Arc::new(EventRecord {
            seq,
            generation,
            persisted_at: now,
            first_job,
            jobs,
            variant_of,
            ..event.record(id)
        });
        let row = EventRow { seq, id, generation, first_job, jobs, new: event, record, body };
        self.events.push(seq, row);
        let released = observation.map_or(0, |observation| self.link_waiting(now, seq, contact, &observation));
        self.await_lookup(now, seq);
        let variant_of = variant_of.and_then(|first| self.events.get(&first)).map(|first| first.id);
        Acceptance::Accepted(Accepted { seq, id, variant_of, quarantined: quarantine.is_some(), released })
    }

    /// The contact of a new event, and why it is quarantined.
    fn place(
        &mut self,
        now: Time,
        (event, seq): (&mut NewEvent, EventSeq),
        observation: Option<&Observation>,
        quarantine: Option<Quarantine>,
    ) -> (Option<ContactId>, Option<Quarantine>) {
        let Some(observation) = observation.filter(|_| quarantine.is_none()) else { return (None, quarantine) };
        match self.identify(now, observation, seq) {
            Ok((contact, entity)) => {
                event.entity = entity;
                (Some(contact), None)
            }
            Err(failure) => (None, Some(Quarantine::new(failure))),
        }
    }

    /// Requests that were answered as duplicates of an event.
    pub fn event_duplicates(&self, event: EventSeq) -> Option<EventDuplicates> {
        self.duplicates.get(&event).cloned()
    }

    /// Lets a new event wait for an identity, or releases those that wait for its own. Returns the number of released events.
    fn link_waiting(&mut self, now: Time, seq: EventSeq, contact: Option<ContactId>, observation: &Observation) -> u32 {
        let Some(event) = self.events.get(&seq) else { return 0 };
        let (id, person, entity) = (event.id, event.new.contact, event.new.entity);
        match contact {
            Some(contact) => self.release_waiting(now, &SupplyingEvent { observation, id, contact, entity, person }),
            None => {
                let has_jobs = event.jobs > 0;
                if event.new.quarantine.is_some() && has_jobs {
                    self.await_identity(observation, seq);
                }
                if has_jobs {
                    self.keep_quarantined(observation, seq);
                }
                0
            }
        }
    }

    fn insert_jobs(
        &mut self,
        now: Time,
        (event, seq): (&NewEvent, EventSeq),
        jobs: &[NewJob],
        quarantine: Option<&Quarantine>,
    ) {
        let state = if quarantine.is_some() { JobState::Dead } else { JobState::Queued };
        for job in jobs {
            self.last_job += 1;
            let record = JobRecord {
                seq,
                state,
                finished_at: quarantine.is_some().then_some(now),
                failure: quarantine.map(|quarantine| quarantine.failure.clone()),
                dead_letter_queue: quarantine.and(job.dead_letter_queue.as_deref()).map(str::to_owned),
                ..event.queued(job, JobId(self.last_job), now)
            };
            self.lanes.update(None, LanePlace::of(&record));
            self.failure_groups.update(None, &record);
            self.count_job(None, Some(state));
            if let Some(measure) = Measure::of_job_end(state, 0) {
                self.history.add(measure, &record.worker, state.as_str());
            }
            self.jobs.push(record.id, JobRow { record, effects: Vec::new(), attempts: Vec::new() });
        }
    }

    /// Other contents that were received under the key of an event.
    pub fn variants(&self, seq: EventSeq) -> Variants {
        let mut variants = self.variants.get(&seq).cloned().unwrap_or_default();
        for variant in &mut variants.kept {
            if let Some(event) = variant.event {
                variant.body = self.events.get(&event).and_then(|event| event.body.as_deref().cloned());
            }
        }
        variants
    }

    /// Fields of a source's events whose conversion lost something.
    pub fn mapping_warnings(&self, source: &str) -> Vec<MappingWarningCount> {
        let counts = self.mapping_warnings.iter().filter(|((of, _), _)| &**of == source);
        counts
            .map(|((_, warning), (count, last_at))| MappingWarningCount {
                warning: warning.clone(),
                count: *count,
                last_at: *last_at,
            })
            .collect()
    }

    /// How often and how late a source sends duplicates.
    pub fn duplicate_stats(&self, source: &str) -> DuplicateStats {
        self.lateness
            .get(&Arc::from(source))
            .map_or_else(DuplicateStats::default, |[within, after_expiry]| DuplicateStats::new(within, after_expiry))
    }
}

fn key_clash(first: EventId) -> Quarantine {
    let message =
        format!("{first} has the same idempotency key and another content; compare the two, then replay or drop this");
    Quarantine::new(Failure::new(FailureClass::Conflict, "key-clash", message))
}
