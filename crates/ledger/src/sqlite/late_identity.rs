//! Events that wait for an identity, and the identities that were supplied for them.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Map;
use sluice_domain::contact::{
    ContactId, Link, Observation, SuppliedBy, SuppliedIdentity, WAITING_EVENTS_MAX, WAITING_PER_LINK_MAX,
    awaits_identity,
};
use sluice_domain::event::EventId;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::key_index::{EventRef, prefix};
use super::key_store::Sealer;
use super::read_pool::Reader;
use super::row::place;
use super::totals::TotalRef;
use crate::op::{Identified, IdentifyEvent, IdentityLookupEnded, Replay};
use crate::record::{EventIdentity, EventRecord, EventSeq, IdentityLookupRecord, IdentityRecord, NewEvent};

/// The links that events wait under, in memory: an accept reads the table only if one of its links may be there.
#[derive(Debug)]
pub(super) struct WaitingLinks {
    /// Prefixes of the digests. Those of released events stay until the next reload: a hit is a candidate.
    prefixes: HashSet<u64>,
    events: usize,
    /// Something was released, removed or rolled back since the last reload.
    is_stale: bool,
    /// A rolled-back batch may have removed a prefix or miscounted: every link is looked up.
    is_complete: bool,
}

impl WaitingLinks {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<WaitingLinks> {
        let mut statement = connection.prepare_cached(include_str!("sql/waiting_digests.sql"))?;
        let digests = statement.query_map([], |row| row.get::<_, [u8; 16]>(0))?;
        let prefixes = digests.map(|digest| digest.map(|digest| prefix(&digest))).collect::<rusqlite::Result<_>>()?;
        let events: i64 = connection.query_row(include_str!("sql/waiting_count.sql"), [], |row| row.get(0))?;
        let events = usize::try_from(events).unwrap_or(usize::MAX);
        Ok(WaitingLinks { prefixes, events, is_stale: false, is_complete: true })
    }

    fn may_contain(&self, digest: &[u8; 16]) -> bool {
        !self.is_complete || self.prefixes.contains(&prefix(digest))
    }

    /// The transaction was rolled back: what is here may be wrong until the next reload.
    pub(super) fn roll_back(&mut self) {
        (self.is_stale, self.is_complete) = (true, false);
    }
}

/// Where a released event belongs.
#[derive(Clone, Copy, Debug)]
struct ReleaseTarget {
    contact: ContactId,
    /// Digest of the contact's lane, as it is stored.
    entity: u64,
    /// Whose key seals the identity.
    contact_key: Option<i64>,
}

/// An event that supplies its identity to those that wait.
pub(super) struct SupplyingEvent<'a> {
    pub event: &'a NewEvent,
    pub id: EventId,
    pub contact: ContactId,
    pub entity: u64,
    pub contact_key: Option<i64>,
}

impl Batch<'_, '_> {
    fn link_digest(&self, link: &Link) -> [u8; 16] {
        self.key_store.digest("link", &link.digest.0)
    }

    /// Lets a quarantined event wait for an identity. Returns the number of events that it releases: none.
    pub(super) fn await_identity(&mut self, event: &NewEvent, seq: EventSeq, id: EventId) -> rusqlite::Result<u32> {
        let Some(quarantine) = event.quarantine.as_ref().filter(|_| !event.jobs.is_empty()) else { return Ok(0) };
        if quarantine.looks_up_identity {
            self.cached(include_str!("sql/insert_identity_lookup.sql"))?.execute(params![seq, self.now.0])?;
        }
        self.await_later_event(event, seq, id)?;
        Ok(0)
    }

    /// Lets an event wait under its links, if something links it with later events and there is room.
    fn await_later_event(&mut self, event: &NewEvent, seq: EventSeq, id: EventId) -> rusqlite::Result<()> {
        let Some(observation) = event.observation.as_deref().filter(|said| said.identifiers.is_empty()) else {
            return Ok(());
        };
        let Some(correlation) = &observation.correlation else { return Ok(()) };
        if self.waiting.events >= WAITING_EVENTS_MAX {
            return Ok(());
        }
        let mut expires_at = None;
        for link in &correlation.links {
            let digest = self.link_digest(link);
            if self.waiting_under(&digest, Time(i64::MIN))?.len() >= WAITING_PER_LINK_MAX {
                continue;
            }
            let insert = include_str!("sql/insert_waiting_link.sql");
            self.cached(insert)?.execute(params![digest, seq, link.expires_at.0])?;
            self.waiting.prefixes.insert(prefix(&digest));
            expires_at = expires_at.max(Some(link.expires_at));
        }
        let Some(expires_at) = expires_at else { return Ok(()) };
        let sealer = self.sealer(None)?;
        self.waiting.events += 1;
        self.insert_waiting(observation, (seq, id), expires_at, &sealer)
    }

    fn insert_waiting(
        &mut self,
        observation: &Observation,
        (seq, id): (EventSeq, EventId),
        expires_at: Time,
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let text = serde_json::to_vec(observation).expect("an observation has a JSON form");
        let sealed = sealer.seal(place::waiting_event(seq, id), &[&text]);
        self.cached(include_str!("sql/insert_waiting_event.sql"))?.execute(params![seq, expires_at.0, sealed])?;
        Ok(())
    }

    /// Keeps what an event with identifiers says that is quarantined for another reason. It counts once the event is replayed.
    pub(super) fn keep_quarantined(
        &mut self,
        event: &NewEvent,
        seq_and_id: (EventSeq, EventId),
        sealer: &Sealer,
    ) -> rusqlite::Result<()> {
        let said = event.observation.as_deref().filter(|said| !said.identifiers.is_empty() && !event.jobs.is_empty());
        match said {
            Some(observation) => self.insert_waiting(observation, seq_and_id, Time::NEVER, sealer),
            None => Ok(()),
        }
    }

    /// Assigns the quarantined event of a job that is replayed to its contact, with what it says: without it the job would write its own
    /// values over newer ones, beside the lane of the contact. An event whose identifiers conflict still belongs to none.
    pub(super) fn identify_replayed(&mut self, job: JobId, replay: &Replay) -> rusqlite::Result<()> {
        let of_job = include_str!("sql/waiting_event_of_job.sql");
        let row = |row: &Row<'_>| Ok((row.get::<_, EventSeq>(0)?, row.get::<_, Option<i64>>(1)?));
        let found = self.cached(of_job)?.query_row([job.0], row).optional()?;
        let Some((seq, contact_key)) = found else { return Ok(()) };
        let said = self.reader().waiting_event(seq)?.map(|(said, _)| said);
        let Some(observation) = said.filter(|said| !said.identifiers.is_empty()) else { return Ok(()) };
        let Some(event) = self.reader().event_record(seq)? else { return Ok(()) };
        let Some((contact, entity)) = self.assign_unless_refused(&observation, seq, contact_key)? else {
            return Ok(());
        };
        self.forget_waiting(seq)?;
        let jobs = self.reader().jobs_of_event(&event)?;
        for job in jobs.iter().filter(|job| !job.state.is_live()) {
            self.set_lane(job.id, entity)?;
        }
        let (actor, reason) = (replay.actor.clone(), replay.reason.clone());
        let by = SuppliedBy::Operator { actor, reason };
        let supplied = SuppliedIdentity { identity: Map::new(), by, mapping_version: String::new(), at: replay.at };
        self.record_identity(&event, ReleaseTarget { contact, entity, contact_key }, &supplied)
    }

    fn set_lane(&mut self, id: JobId, entity: u64) -> rusqlite::Result<()> {
        let Some(mut head) = self.job_head(id)? else { return Ok(()) };
        head.entity = entity as i64;
        let mac = head.mac(self.key_store);
        self.cached(include_str!("sql/set_job_entity.sql"))?.execute(params![id.0, head.entity, mac])?;
        Ok(())
    }

    fn waiting_under(&self, digest: &[u8; 16], after: Time) -> rusqlite::Result<Vec<EventSeq>> {
        let limit = i64::try_from(WAITING_PER_LINK_MAX).unwrap_or(i64::MAX);
        self.cached(include_str!("sql/waiting_under_link.sql"))?
            .query_map(params![digest, after.0, limit], |row| row.get(0))?
            .collect()
    }

    /// Releases the events that wait under a link of this one: they belong to its contact. Returns their number.
    pub(super) fn release_waiting(&mut self, supplying: &SupplyingEvent<'_>) -> rusqlite::Result<u32> {
        let SupplyingEvent { event, id, contact, entity, contact_key } = *supplying;
        let correlation = event.observation.as_deref().and_then(|observation| observation.correlation.as_deref());
        let Some(correlation) = correlation.filter(|correlation| !correlation.identity.is_empty()) else {
            return Ok(0);
        };
        let mut released = 0;
        let mut seqs = Vec::new();
        for digest in correlation.links.iter().map(|link| self.link_digest(link)).collect::<Vec<_>>() {
            if self.waiting.may_contain(&digest) {
                seqs.extend(self.waiting_under(&digest, event.received_at)?);
            }
        }
        seqs.sort_unstable();
        seqs.dedup();
        let target = ReleaseTarget { contact, entity, contact_key };
        for seq in seqs {
            let Some((observation, _)) = self.reader().waiting_event(seq)? else { continue };
            let supplied = SuppliedIdentity {
                identity: correlation.identity.clone(),
                by: SuppliedBy::Event(id.to_string()),
                mapping_version: correlation.mapping_version.clone(),
                at: self.now,
            };
            if self.release(seq, target, &supplied)? {
                self.observe(contact, &observation, seq)?;
                released += 1;
            }
        }
        Ok(released)
    }

    /// Releases an event with the identity that an operator or a lookup supplies.
    pub(super) fn identify_event(&mut self, identify: &IdentifyEvent) -> rusqlite::Result<Identified> {
        let IdentifyEvent { seq, observation, supplied, contact, outputs } = identify;
        let Some(event) = self.reader().event_record(*seq)? else { return Ok(Identified::NotFound) };
        if !self.reader().jobs_of_event(&event)?.iter().any(awaits_identity) {
            return Ok(Identified::NotWaiting);
        }
        let contact_key = self.contact_key(*contact)?;
        let (contact, entity) = match self.assign_unless_conflict(observation, *seq, contact_key)? {
            Ok(assigned) => assigned,
            Err(conflicts) => return Ok(Identified::Conflict(conflicts)),
        };
        self.release(*seq, ReleaseTarget { contact, entity, contact_key }, supplied)?;
        for output in outputs {
            self.record_output(output, contact_key)?;
        }
        Ok(Identified::Done(contact))
    }

    /// Requeues the jobs of an event that wait for an identity, in the lane of the contact. Returns whether there were any: a
    /// repeat finds none.
    fn release(&mut self, seq: EventSeq, target: ReleaseTarget, supplied: &SuppliedIdentity) -> rusqlite::Result<bool> {
        self.forget_waiting(seq)?;
        self.cached(include_str!("sql/delete_identity_lookup.sql"))?.execute([seq])?;
        let Some(event) = self.reader().event_record(seq)? else { return Ok(false) };
        let jobs = self.reader().jobs_of_event(&event)?;
        let jobs: Vec<JobId> = jobs.iter().filter(|job| awaits_identity(job)).map(|job| job.id).collect();
        for job in &jobs {
            self.release_job(*job, target.entity)?;
        }
        if jobs.is_empty() {
            return Ok(false);
        }
        self.record_identity(&event, target, supplied)?;
        Ok(true)
    }

    /// Records whose event it is, and who said so.
    fn record_identity(
        &mut self,
        event: &EventRecord,
        target: ReleaseTarget,
        supplied: &SuppliedIdentity,
    ) -> rusqlite::Result<()> {
        let seq = event.seq;
        self.cached(include_str!("sql/set_event_contact.sql"))?.execute(params![seq, target.contact.0])?;
        let text = serde_json::to_vec(supplied).expect("an identity has a JSON form");
        let sealed = self.sealer(target.contact_key)?.seal(place::event_identity(seq, event.id), &[&text]);
        self.cached(include_str!("sql/insert_event_identity.sql"))?.execute(params![
            seq,
            target.contact.0,
            target.contact_key,
            supplied.at.0,
            sealed
        ])?;
        let (actor, detail) = supplied.by.audit();
        let object = format!("{} as {}", event.id, target.contact);
        self.log(supplied.at, actor, "identify", &object, &detail)
    }

    /// The lookups of an event ended without an identity. `false` if it was identified meanwhile.
    pub(super) fn end_identity_lookup(&mut self, ended: &IdentityLookupEnded) -> rusqlite::Result<bool> {
        let IdentityLookupEnded { seq, tries, due_at, last } = ended;
        let due_at = due_at.map(|at| at.0);
        let before = tries.saturating_sub(1);
        let keep = include_str!("sql/keep_identity_lookup.sql");
        Ok(self.cached(keep)?.execute(params![seq, tries, due_at, last, before])? > 0)
    }

    fn release_job(&mut self, id: JobId, entity: u64) -> rusqlite::Result<()> {
        let Some(mut head) = self.job_head(id)? else { return Ok(()) };
        head.entity = entity as i64;
        let mac = head.mac(self.key_store);
        self.cached(include_str!("sql/set_job_entity.sql"))?.execute(params![id.0, head.entity, mac])?;
        self.note_revival(&head)?;
        // Its route was chosen without the identity.
        let (destination, restarts) = ("", true);
        let revision = head.total.revision.clone();
        self.cached(include_str!("sql/replay_job.sql"))?.execute(params![
            id.0,
            self.now.0,
            revision.as_ref(),
            destination,
            restarts
        ])?;
        let (state, dead_letter_queue) = (JobState::Queued, "");
        let queued = TotalRef { state, destination, dead_letter_queue, wait: "", ..head.total.as_ref() };
        self.move_total(&head, queued);
        self.requeued.push((id, head.total.worker));
        Ok(())
    }

    pub(super) fn forget_waiting(&mut self, seq: EventSeq) -> rusqlite::Result<()> {
        let delete = include_str!("sql/delete_waiting_event.sql");
        let expires_at = self.cached(delete)?.query_row([seq], |row| row.get(0).map(Time)).optional()?;
        // One that waits for a replay has no links.
        if expires_at.is_some_and(|expires_at| expires_at != Time::NEVER) {
            self.cached(include_str!("sql/delete_waiting_links.sql"))?.execute([seq])?;
            self.waiting.events = self.waiting.events.saturating_sub(1);
            self.waiting.is_stale = true;
        }
        Ok(())
    }

    /// Removes events that have waited long enough; they stay dead letters. Returns their number.
    pub(super) fn prune_waiting(&mut self, at: Time, rows_max: u32) -> rusqlite::Result<usize> {
        let expired: Vec<EventSeq> = self
            .cached(include_str!("sql/expired_waiting_events.sql"))?
            .query_map(params![at.0, rows_max], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for seq in &expired {
            self.forget_waiting(*seq)?;
        }
        if self.waiting.is_stale {
            *self.waiting = WaitingLinks::load(self.connection)?;
        }
        Ok(expired.len())
    }

    /// Events that were identified as this contact after they were accepted: the index of contacts may not have them.
    pub(super) fn identified_events(&self, reference: EventRef) -> rusqlite::Result<Vec<EventSeq>> {
        let (sql, id) = match reference {
            EventRef::Contact(id) => (include_str!("sql/identified_events_of_contact.sql"), id),
            EventRef::ContactKey(id) => (include_str!("sql/identified_events_of_key.sql"), id),
            EventRef::Trace(_) => return Ok(vec![]),
        };
        self.cached(sql)?.query_map([id], |row| row.get(0))?.collect()
    }
}

impl Reader<'_> {
    pub(crate) fn event_record(&self, seq: EventSeq) -> rusqlite::Result<Option<EventRecord>> {
        self.prepare_cached(include_str!("sql/event.sql"))?.query_row([seq], |row| self.event_row(row)).optional()
    }

    /// What an event says that waits, and until when it does.
    fn waiting_event(&self, seq: EventSeq) -> rusqlite::Result<Option<(Observation, Time)>> {
        let mut statement = self.prepare_cached(include_str!("sql/waiting_event.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        if self.is_destroyed(row.get(3)?)? {
            return Ok(None);
        }
        let sealed: Vec<u8> = row.get(0)?;
        let observation = self.opened_as(place::waiting_event(seq, EventId(row.get(2)?)), &sealed)?;
        Ok(Some((observation, Time(row.get(1)?))))
    }

    fn identity_row(&self, row: &Row<'_>) -> rusqlite::Result<IdentityRecord> {
        let (seq, event) = (row.get(0)?, EventId(row.get(1)?));
        let contact_key: Option<i64> = row.get(3)?;
        let sealed: Vec<u8> = row.get(5)?;
        let supplied = match self.is_destroyed(contact_key)? {
            true => None,
            false => Some(self.opened_as(place::event_identity(seq, event), &sealed)?),
        };
        Ok(IdentityRecord { event, contact: ContactId(row.get(2)?), at: Time(row.get(4)?), supplied })
    }

    /// The identity that was supplied for the event of a row with the columns of `event_body.sql`.
    pub(crate) fn supplied_of_body(&self, row: &Row<'_>) -> rusqlite::Result<Option<SuppliedIdentity>> {
        let Some(sealed) = row.get::<_, Option<Vec<u8>>>(3)? else { return Ok(None) };
        match self.is_destroyed(row.get(4)?)? {
            true => Ok(None),
            false => self.opened_as(place::event_identity(row.get(1)?, EventId(row.get(2)?)), &sealed).map(Some),
        }
    }

    pub(crate) fn event_identity(&self, event: &EventSeq) -> rusqlite::Result<EventIdentity> {
        let supplied = self
            .prepare_cached(include_str!("sql/event_identity.sql"))?
            .query_row([event], |row| self.identity_row(row))
            .optional()?;
        let waits = match self.event_record(*event)? {
            Some(record) => self.jobs_of_event(&record)?.iter().any(awaits_identity),
            None => false,
        };
        if !waits {
            return Ok(EventIdentity { supplied, ..EventIdentity::default() });
        }
        let waiting = self.waiting_event(*event)?.filter(|(said, _)| said.identifiers.is_empty());
        let waits_until = waiting.map(|(_, until)| until);
        Ok(EventIdentity { supplied, waits_until, lookup: self.identity_lookup(*event)? })
    }

    fn identity_lookup(&self, seq: EventSeq) -> rusqlite::Result<Option<IdentityLookupRecord>> {
        let row = |row: &Row<'_>| {
            let due_at = row.get::<_, Option<i64>>(1)?.map(Time);
            Ok(IdentityLookupRecord { seq, tries: row.get(0)?, due_at, last: row.get(2)? })
        };
        self.prepare_cached(include_str!("sql/identity_lookup.sql"))?.query_row([seq], row).optional()
    }

    pub(crate) fn due_identity_lookups(&self, at: &Time, limit: &u32) -> rusqlite::Result<Vec<(EventSeq, u32)>> {
        self.prepare_cached(include_str!("sql/due_identity_lookups.sql"))?
            .query_map(params![at.0, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    }

    pub(crate) fn supplied_identities(
        &self,
        contact: &ContactId,
        limit: &u32,
    ) -> rusqlite::Result<Vec<IdentityRecord>> {
        let mut found = Vec::new();
        for member in self.members(*contact)? {
            let mut statement = self.prepare_cached(include_str!("sql/event_identities.sql"))?;
            let rows =
                statement.query_map(params![member.0, limit], |row| Ok((row.get(0)?, self.identity_row(row)?)))?;
            found.extend(rows.collect::<rusqlite::Result<Vec<(EventSeq, IdentityRecord)>>>()?);
        }
        found.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        found.truncate(*limit as usize);
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }
}
