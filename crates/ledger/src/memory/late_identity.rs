//! Events that wait for an identity, and the identities that were supplied for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Map;
use sluice_domain::contact::{
    ContactId, Observation, SuppliedBy, SuppliedIdentity, WAITING_EVENTS_MAX, WAITING_PER_LINK_MAX, awaits_identity,
};
use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
use sluice_domain::key::KeyDigest;
use sluice_domain::record::EventBody;
use sluice_domain::time::Time;

use super::Store;
use super::operate::{move_to_step, requeue};
use crate::op::{ChangedJob, Identified, IdentifyEvent, IdentityLookupEnded, Replay};
use crate::record::{EventIdentity, EventSeq, IdentityLookupRecord, IdentityRecord};

#[derive(Clone, Debug, Default)]
pub(super) struct LateIdentities {
    waiting: BTreeMap<EventSeq, WaitingEvent>,
    /// What events with identifiers say that are quarantined for another reason.
    quarantined: BTreeMap<EventSeq, Observation>,
    supplied: BTreeMap<EventSeq, IdentityRecord>,
    lookups: BTreeMap<EventSeq, IdentityLookupRecord>,
    /// Released since they were last taken.
    requeued: Vec<ChangedJob>,
}

#[derive(Clone, Debug)]
struct WaitingEvent {
    observation: Observation,
    /// By digest: until when.
    links: BTreeMap<[u8; 16], Time>,
}

impl WaitingEvent {
    fn expires_at(&self) -> Time {
        self.links.values().copied().max().unwrap_or(Time(i64::MIN))
    }
}

/// Where a released event belongs.
#[derive(Clone, Copy, Debug)]
struct ReleaseTarget {
    contact: ContactId,
    entity: u64,
    /// Digest of the person.
    person: Option<KeyDigest>,
}

/// An event that supplies its identity to those that wait.
pub(super) struct SupplyingEvent<'a> {
    pub observation: &'a Observation,
    pub id: EventId,
    pub contact: ContactId,
    pub entity: u64,
    pub person: Option<KeyDigest>,
}

impl Store {
    /// Lets a quarantined event wait for an identity, if something links it with later events and there is room.
    pub(super) fn await_identity(&mut self, observation: &Observation, seq: EventSeq) {
        let waiting = &mut self.late_identities.waiting;
        let Some(correlation) = observation.correlation.as_ref().filter(|_| observation.identifiers.is_empty()) else {
            return;
        };
        let has_room = |digest: &[u8; 16]| {
            waiting.values().filter(|event| event.links.contains_key(digest)).count() < WAITING_PER_LINK_MAX
        };
        let links: BTreeMap<[u8; 16], Time> = (correlation.links.iter())
            .map(|link| (link.digest.0, link.expires_at))
            .filter(|(digest, _)| has_room(digest))
            .collect();
        if !links.is_empty() && waiting.len() < WAITING_EVENTS_MAX {
            let observation = Observation { correlation: None, ..observation.clone() };
            waiting.insert(seq, WaitingEvent { observation, links });
        }
    }

    /// Keeps what an event with identifiers says that is quarantined for another reason. It counts once the event is replayed.
    pub(super) fn keep_quarantined(&mut self, observation: &Observation, seq: EventSeq) {
        if !observation.identifiers.is_empty() {
            let observation = Observation { correlation: None, ..observation.clone() };
            self.late_identities.quarantined.insert(seq, observation);
        }
    }

    /// Assigns the quarantined event of a job that is replayed to its contact, with what it says. An event whose identifiers conflict
    /// still belongs to none.
    pub(super) fn identify_replayed(&mut self, job: JobId, replay: &Replay) {
        let Some(seq) = self.job(job).map(|job| job.seq) else { return };
        let Some(observation) = self.late_identities.quarantined.get(&seq).cloned() else { return };
        let Some((contact, entity)) = self.assign_unless_refused(replay.at, &observation, seq) else { return };
        self.late_identities.quarantined.remove(&seq);
        let Some(event) = self.events.get(&seq) else { return };
        let id = event.id;
        let jobs: Vec<JobId> = event.job_ids().collect();
        for id in jobs {
            if self.job(id).is_some_and(|job| !job.state.is_live()) {
                self.change(id, |job| job.entity = entity);
            }
        }
        let by = SuppliedBy::Operator { actor: replay.actor.clone(), reason: replay.reason.clone() };
        let supplied = SuppliedIdentity { identity: Map::new(), by, mapping_version: String::new(), at: replay.at };
        self.record_identity((seq, id), contact, supplied);
    }

    /// Lets a quarantined event wait for its lookups.
    pub(super) fn await_lookup(&mut self, now: Time, seq: EventSeq) {
        let Some(event) = self.events.get(&seq).filter(|event| event.jobs > 0) else { return };
        if event.new.quarantine.as_ref().is_some_and(|quarantine| quarantine.looks_up_identity) {
            let record = IdentityLookupRecord { seq, tries: 0, due_at: Some(now), last: None };
            self.late_identities.lookups.insert(seq, record);
        }
    }

    pub(crate) fn due_identity_lookups(&self, at: Time, limit: u32) -> Vec<(EventSeq, u32)> {
        let due = self.late_identities.lookups.values().filter(|lookup| lookup.due_at.is_some_and(|due| due <= at));
        let mut due: Vec<&IdentityLookupRecord> = due.collect();
        due.sort_by_key(|lookup| lookup.due_at);
        due.into_iter().take(limit as usize).map(|lookup| (lookup.seq, lookup.tries)).collect()
    }

    pub(crate) fn end_identity_lookup(&mut self, ended: &IdentityLookupEnded) -> bool {
        let IdentityLookupEnded { seq, tries, due_at, last } = ended;
        let lookup = self.late_identities.lookups.get_mut(seq).filter(|lookup| lookup.tries + 1 == *tries);
        let Some(lookup) = lookup else { return false };
        (lookup.tries, lookup.due_at, lookup.last) = (*tries, *due_at, Some(last.clone()));
        true
    }

    /// Releases the events that wait under a link of this one: they belong to its contact. Returns their number.
    pub(super) fn release_waiting(&mut self, now: Time, supplying: &SupplyingEvent<'_>) -> u32 {
        let SupplyingEvent { observation, id, contact, entity, person } = *supplying;
        let Some(correlation) = observation.correlation.as_ref().filter(|found| !found.identity.is_empty()) else {
            return 0;
        };
        let mut released = 0;
        let is_linked = |event: &WaitingEvent| {
            let until = correlation.links.iter().filter_map(|link| event.links.get(&link.digest.0));
            until.into_iter().any(|until| *until > observation.received_at)
        };
        let waiting = &self.late_identities.waiting;
        let seqs: Vec<EventSeq> = waiting.iter().filter(|(_, event)| is_linked(event)).map(|(seq, _)| *seq).collect();
        for seq in seqs {
            let Some(waiting) = self.late_identities.waiting.get(&seq).cloned() else { continue };
            let supplied = SuppliedIdentity {
                identity: correlation.identity.clone(),
                by: SuppliedBy::Event(id.to_string()),
                mapping_version: correlation.mapping_version.clone(),
                at: now,
            };
            if self.release(now, seq, ReleaseTarget { contact, entity, person }, supplied) {
                self.observe(contact, &waiting.observation, seq);
                released += 1;
            }
        }
        released
    }

    /// Releases an event with the identity that an operator or a lookup supplies.
    pub(crate) fn identify_event(&mut self, now: Time, identify: &IdentifyEvent) -> Identified {
        let IdentifyEvent { seq, observation, supplied, contact: person, outputs } = identify;
        if self.events.get(seq).is_none() {
            return Identified::NotFound;
        }
        if self.jobs_awaiting_identity(*seq).is_empty() {
            return Identified::NotWaiting;
        }
        let (contact, entity) = match self.assign_unless_conflict(now, observation, *seq) {
            Ok(assigned) => assigned,
            Err(conflicts) => return Identified::Conflict(conflicts),
        };
        self.release(now, *seq, ReleaseTarget { contact, entity, person: *person }, supplied.clone());
        for output in outputs {
            self.record_step(output.clone());
        }
        Identified::Done(contact)
    }

    fn jobs_awaiting_identity(&self, seq: EventSeq) -> Vec<JobId> {
        let Some(event) = self.events.get(&seq) else { return vec![] };
        let jobs = event.job_ids().filter_map(|id| self.job(id));
        jobs.filter(|job| awaits_identity(job)).map(|job| job.id).collect()
    }

    /// Requeues the jobs of an event that wait for an identity, in the lane of the contact. Returns whether there were any: a
    /// repeat finds none.
    fn release(&mut self, now: Time, seq: EventSeq, target: ReleaseTarget, supplied: SuppliedIdentity) -> bool {
        self.stop_waiting(seq);
        let jobs = self.jobs_awaiting_identity(seq);
        if jobs.is_empty() {
            return false;
        }
        for id in jobs {
            self.change(id, |job| {
                requeue(job, now);
                // Its route was chosen without the identity.
                move_to_step(job, 0);
                job.entity = target.entity;
            });
            let worker = self.job(id).map(|job| job.worker.clone()).unwrap_or_default();
            self.late_identities.requeued.push((id, worker));
        }
        self.set_contact_of_event(seq, target.contact);
        let Some(event) = self.events.get_mut(&seq) else { return false };
        event.new.contact = target.person.or(event.new.contact);
        let id = event.id;
        self.record_identity((seq, id), target.contact, supplied);
        true
    }

    /// Records whose event it is, and who said so.
    fn record_identity(&mut self, (seq, event): (EventSeq, EventId), contact: ContactId, supplied: SuppliedIdentity) {
        let (actor, detail) = supplied.by.audit();
        self.log(supplied.at, actor, "identify", &format!("{event} as {contact}"), &detail);
        let record = IdentityRecord { event, contact, at: supplied.at, supplied: Some(supplied) };
        self.late_identities.supplied.insert(seq, record);
    }

    /// The jobs that were released since this was last called.
    pub(super) fn take_requeued(&mut self) -> Vec<ChangedJob> {
        std::mem::take(&mut self.late_identities.requeued)
    }

    /// Removes events that have waited long enough; they stay dead letters.
    pub(super) fn prune_waiting(&mut self, at: Time, limit: usize) -> usize {
        let waiting = &mut self.late_identities.waiting;
        let expired = waiting.iter().filter(|(_, event)| event.expires_at() <= at);
        let expired: Vec<EventSeq> = expired.map(|(seq, _)| *seq).take(limit).collect();
        for seq in &expired {
            waiting.remove(seq);
        }
        expired.len()
    }

    pub(super) fn forget_identity(&mut self, seq: EventSeq) {
        self.late_identities.quarantined.remove(&seq);
        self.late_identities.waiting.remove(&seq);
        self.late_identities.supplied.remove(&seq);
        self.late_identities.lookups.remove(&seq);
        self.duplicates.remove(&seq);
        self.event_revisions.remove(&seq);
    }

    /// An event does not wait for an identity any more.
    pub(super) fn stop_waiting(&mut self, seq: EventSeq) {
        self.late_identities.quarantined.remove(&seq);
        self.late_identities.waiting.remove(&seq);
        self.late_identities.lookups.remove(&seq);
    }

    /// A job that is announced after the commit.
    pub(super) fn announce_requeued(&mut self, job: ChangedJob) {
        self.late_identities.requeued.push(job);
    }

    /// A body as it is read: with the identity that was supplied for its event, and as it was edited last.
    pub(super) fn identified_body(&self, seq: EventSeq, body: Arc<EventBody>) -> Arc<EventBody> {
        let body = self.supplied_body(seq, body);
        self.edited_body(seq, body)
    }

    /// A body with the identity that was supplied for its event.
    pub(super) fn supplied_body(&self, seq: EventSeq, body: Arc<EventBody>) -> Arc<EventBody> {
        let supplied = self.late_identities.supplied.get(&seq).and_then(|record| record.supplied.as_ref());
        match supplied {
            None => body,
            Some(supplied) => Arc::new(EventBody {
                normalized: supplied.apply(&body.normalized),
                supplied: supplied.identity.clone(),
                ..(*body).clone()
            }),
        }
    }

    pub(crate) fn event_identity(&self, event: EventSeq) -> EventIdentity {
        let supplied = self.late_identities.supplied.get(&event).cloned();
        if self.jobs_awaiting_identity(event).is_empty() {
            return EventIdentity { supplied, ..EventIdentity::default() };
        }
        let waits_until = self.late_identities.waiting.get(&event).map(WaitingEvent::expires_at);
        EventIdentity { supplied, waits_until, lookup: self.late_identities.lookups.get(&event).cloned() }
    }

    pub(crate) fn supplied_identities(&self, contact: ContactId, limit: u32) -> Vec<IdentityRecord> {
        let members = self.contact_members(contact);
        let newest_first = self.late_identities.supplied.values().rev();
        newest_first.filter(|record| members.contains(&record.contact)).take(limit as usize).cloned().collect()
    }
}
