//! Contacts: the one that an event belongs to, what is known of it, and what was written of it.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};
use sluice_domain::contact::identity::{Identifier, Owner, Resolution, resolve};
use sluice_domain::contact::{
    Conflict, ContactId, ContactState, ContactView, ContactWrite, MEMBERS_MAX, Observation, WriteRecord, WriteSlot,
};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;

use super::backlog::json_array;
use super::batch::Batch;
use super::key_index::{EventRef, prefix};
use super::read_pool::Reader;
use super::row::{place, wrong};
use crate::filter::Page;
use crate::op::{ContactChange, MergeContacts, SplitContact, merge_problem};
use crate::record::{ContactRecord, EventSeq};
use crate::seal::SealContext;

/// A contact as it is stored.
struct ContactRow {
    id: ContactId,
    merged_into: Option<ContactId>,
    /// Whose key seals it.
    contact_key: Option<i64>,
    created_at: Time,
    state: ContactState,
}

/// The contact that identifiers lead to, and the rows of every contact that has one of them, each with its root.
struct FoundOwners {
    resolution: Resolution,
    rows: Vec<(ContactId, ContactRow)>,
}

/// The digest under which the jobs of a contact are kept in order.
fn entity(batch: &Batch<'_, '_>, owner: Owner) -> u64 {
    prefix(&batch.key_store.digest("entity", &owner.lane().entity().to_be_bytes()))
}

impl Batch<'_, '_> {
    /// Finds or creates the contact of an event and merges what the event says. Returns the contact and the entity of the jobs, or
    /// why the event is quarantined.
    pub(super) fn identify(
        &mut self,
        observation: &Observation,
        seq: EventSeq,
        contact_key: Option<i64>,
    ) -> rusqlite::Result<Result<(ContactId, u64), Failure>> {
        let found = self.find_owners(&observation.identifiers)?;
        if let Some(refusal) = found.resolution.refusal(&observation.identifiers, observation.on_conflict) {
            if let Some((_, mut row)) = found.rows.into_iter().find(|(root, _)| *root == refusal.shown_on) {
                refusal.record(&mut row.state, seq);
                self.write_contact(&row, false)?;
            }
            return Ok(Err(refusal.failure));
        }
        self.assign(observation, seq, contact_key, found).map(Ok)
    }

    /// The same for an event that is quarantined. `None` if it stays so, and nothing is written.
    pub(super) fn assign_unless_refused(
        &mut self,
        observation: &Observation,
        seq: EventSeq,
        contact_key: Option<i64>,
    ) -> rusqlite::Result<Option<(ContactId, u64)>> {
        let found = self.find_owners(&observation.identifiers)?;
        match found.resolution.refusal(&observation.identifiers, observation.on_conflict) {
            None => self.assign(observation, seq, contact_key, found).map(Some),
            Some(_) => Ok(None),
        }
    }

    /// The same for the identity that an operator supplies: a conflict is returned, and nothing is written.
    pub(super) fn assign_unless_conflict(
        &mut self,
        observation: &Observation,
        seq: EventSeq,
        contact_key: Option<i64>,
    ) -> rusqlite::Result<Result<(ContactId, u64), Vec<Conflict>>> {
        let found = self.find_owners(&observation.identifiers)?;
        match found.resolution.conflicts.is_empty() {
            true => self.assign(observation, seq, contact_key, found).map(Ok),
            false => Ok(Err(found.resolution.conflicts)),
        }
    }

    /// The conflicts of what an event says, before anything is written.
    pub(super) fn check_owners(&self, observation: &Observation) -> rusqlite::Result<Result<(), Vec<Conflict>>> {
        let conflicts = self.find_owners(&observation.identifiers)?.resolution.conflicts;
        Ok(if conflicts.is_empty() { Ok(()) } else { Err(conflicts) })
    }

    /// Forgets what an event said about its contact.
    pub(super) fn retract(&self, contact: ContactId, seq: EventSeq) -> rusqlite::Result<()> {
        let Some(mut row) = self.reader().contact_row(contact)? else { return Ok(()) };
        row.state.retract(seq);
        self.write_contact(&row, false)
    }

    /// The entity of a contact's lane, as it is stored.
    pub(super) fn entity_of(&self, contact: ContactId) -> rusqlite::Result<u64> {
        Ok(entity(self, self.reader().owner(contact)?))
    }

    fn find_owners(&self, identifiers: &[Identifier]) -> rusqlite::Result<FoundOwners> {
        let mut owners = Vec::with_capacity(identifiers.len());
        let mut rows: Vec<(ContactId, ContactRow)> = Vec::new();
        for identifier in identifiers {
            let owner = self.identifier_owner(identifier.digest)?;
            let owner = owner.map(|contact| self.reader().owner(contact)).transpose()?;
            if let Some(owner) = owner.filter(|owner| rows.iter().all(|(_, row)| row.id != owner.contact))
                && let Some(row) = self.reader().contact_row(owner.contact)?
            {
                rows.push((owner.root, row));
            }
            owners.push(owner);
        }
        let holds =
            |root: ContactId, kind: &str| rows.iter().any(|(other, row)| *other == root && row.state.holds(kind));
        let resolution = resolve(identifiers, &owners, holds);
        Ok(FoundOwners { resolution, rows })
    }

    fn assign(
        &mut self,
        observation: &Observation,
        seq: EventSeq,
        contact_key: Option<i64>,
        found: FoundOwners,
    ) -> rusqlite::Result<(ContactId, u64)> {
        let FoundOwners { resolution, rows } = found;
        let identifiers = &observation.identifiers;
        let known = resolution.owner.and_then(|owner| rows.into_iter().find(|(_, row)| row.id == owner.contact));
        let is_new = known.is_none();
        let (root, mut row) = match known {
            Some(known) => known,
            None => {
                let id = ContactId(self.counters.next_contact_id);
                self.counters.next_contact_id += 1;
                let state = ContactState::default();
                (id, ContactRow { id, merged_into: None, contact_key, created_at: self.now, state })
            }
        };
        row.state.observe(observation, seq);
        resolution.record(identifiers, &mut row.state, seq);
        self.write_contact(&row, is_new)?;
        for identifier in resolution.links.iter().filter_map(|place| identifiers.get(*place)) {
            self.link(identifier, row.id)?;
        }
        Ok((row.id, entity(self, Owner { contact: row.id, root })))
    }

    /// Merges what an event says into a contact that it is assigned to already.
    pub(super) fn observe(&self, contact: ContactId, observation: &Observation, seq: EventSeq) -> rusqlite::Result<()> {
        let Some(mut row) = self.reader().contact_row(contact)? else { return Ok(()) };
        row.state.observe(observation, seq);
        self.write_contact(&row, false)
    }

    fn write_contact(&self, row: &ContactRow, is_new: bool) -> rusqlite::Result<()> {
        let state = serde_json::to_vec(&row.state).expect("a state has a JSON form");
        let sealed = self.sealer(row.contact_key)?.seal(place::contact_state(row.id.0), &[&state]);
        let conflicts = i64::try_from(row.state.conflicts().count()).unwrap_or(i64::MAX);
        let version = row.state.version;
        match is_new {
            true => self.cached(include_str!("sql/insert_contact.sql"))?.execute(params![
                row.id.0,
                row.contact_key,
                version,
                conflicts,
                row.created_at.0,
                sealed
            ])?,
            false => self
                .cached(include_str!("sql/update_contact.sql"))?
                .execute(params![row.id.0, version, conflicts, sealed])?,
        };
        Ok(())
    }

    fn identifier_digest(&self, digest: KeyDigest) -> [u8; 16] {
        self.key_store.digest("identifier", &digest.0)
    }

    fn identifier_owner(&self, digest: KeyDigest) -> rusqlite::Result<Option<ContactId>> {
        let digest = self.identifier_digest(digest);
        for id in self.indexes.identifiers.candidates(self.connection, prefix(&digest))?.into_iter().rev() {
            let row = |row: &rusqlite::Row<'_>| Ok((ContactId(row.get(0)?), row.get::<_, [u8; 16]>(1)?));
            let found = self.cached(include_str!("sql/identifier.sql"))?.query_row([id], row).optional()?;
            if let Some((contact, _)) = found.filter(|(_, stored)| *stored == digest) {
                return Ok(Some(contact));
            }
        }
        Ok(None)
    }

    fn link(&mut self, identifier: &Identifier, contact: ContactId) -> rusqlite::Result<()> {
        let digest = self.identifier_digest(identifier.digest);
        let id = self.counters.next_identifier;
        self.cached(include_str!("sql/insert_identifier.sql"))?.execute(params![id, contact.0, digest])?;
        self.counters.next_identifier += 1;
        self.indexes.identifiers.insert(prefix(&digest), id);
        Ok(())
    }

    pub(super) fn contacts_with(&self, identifiers: &[KeyDigest]) -> rusqlite::Result<Vec<ContactId>> {
        let mut found = Vec::new();
        for digest in identifiers {
            if let Some(contact) = self.identifier_owner(*digest)? {
                found.push(self.reader().owner(contact)?.root);
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Records a confirmed write of the contact's merged state, or that its outcome is in doubt.
    pub(super) fn record_write(&self, job: JobId, record: &WriteRecord) -> rusqlite::Result<()> {
        let contact: Option<i64> =
            self.cached(include_str!("sql/contact_of_job.sql"))?.query_row([job.0], |row| row.get(0))?;
        let Some(contact) = contact.map(ContactId) else { return Ok(()) };
        let root = self.reader().owner(contact)?.root;
        let write = match &record.write {
            Some(write) => Some(write.clone()),
            None => {
                let earlier = self.reader().contact_write(root, record.slot)?;
                earlier.map(|write| ContactWrite { term: ContactWrite::IN_DOUBT, ..write })
            }
        };
        let Some(write) = write else { return Ok(()) };
        let contact_key = self.reader().contact_row(root)?.and_then(|row| row.contact_key);
        let text = serde_json::to_vec(&write).expect("a write has a JSON form");
        let sealed = self.sealer(contact_key)?.seal(place::contact_write(root.0, &record.slot.0), &[&text]);
        self.cached(include_str!("sql/put_contact_write.sql"))?.execute(params![root.0, record.slot.0, sealed])?;
        Ok(())
    }

    pub(super) fn merge_contact(&mut self, merge: &MergeContacts) -> rusqlite::Result<ContactChange> {
        let reader = self.reader();
        let (into, other) = (reader.contact_row(merge.into)?, reader.contact_row(merge.contact)?);
        let (Some(into), Some(other)) = (into, other) else { return Ok(ContactChange::NotFound) };
        let members = (reader.members(into.id)?, reader.members(other.id)?);
        if let Some(problem) = merge_problem((into.id, into.merged_into), (other.id, other.merged_into)) {
            return Ok(problem);
        }
        if members.0.len() + members.1.len() > MEMBERS_MAX {
            return Ok(ContactChange::TooMany);
        }
        let live = self.live_jobs(members.0.iter().chain(&members.1))?;
        if live > 0 {
            return Ok(ContactChange::Busy { jobs: live });
        }
        self.set_parent(other.id, Some(into.id))?;
        self.move_lanes(&members.1, into.id)?;
        self.forget_writes([into.id, other.id])?;
        let object = format!("{} into {}", other.id, into.id);
        self.log(merge.at, &merge.actor, "merge contacts", &object, &merge.reason)?;
        Ok(ContactChange::Done)
    }

    pub(super) fn split_contact_off(&mut self, split: &SplitContact) -> rusqlite::Result<ContactChange> {
        let Some(row) = self.reader().contact_row(split.contact)? else { return Ok(ContactChange::NotFound) };
        if row.merged_into.is_none() {
            return Ok(ContactChange::NotMerged);
        }
        let root = self.reader().owner(row.id)?.root;
        let live = self.live_jobs(&self.reader().members(root)?)?;
        if live > 0 {
            return Ok(ContactChange::Busy { jobs: live });
        }
        self.set_parent(row.id, None)?;
        let members = self.reader().members(row.id)?;
        self.move_lanes(&members, row.id)?;
        self.forget_writes([root, row.id])?;
        let object = format!("{} from {root}", row.id);
        self.log(split.at, &split.actor, "split contact", &object, &split.reason)?;
        Ok(ContactChange::Done)
    }

    fn set_parent(&self, contact: ContactId, parent: Option<ContactId>) -> rusqlite::Result<()> {
        let parent = parent.map(|parent| parent.0);
        self.cached(include_str!("sql/set_contact_parent.sql"))?.execute(params![contact.0, parent])?;
        Ok(())
    }

    /// The next write of these contacts sends every field: their records may not be the same any more.
    fn forget_writes(&self, contacts: [ContactId; 2]) -> rusqlite::Result<()> {
        for contact in contacts {
            self.cached(include_str!("sql/delete_contact_writes.sql"))?.execute([contact.0])?;
        }
        Ok(())
    }

    fn jobs_of(&self, contact: ContactId) -> rusqlite::Result<Vec<(JobId, Option<JobState>)>> {
        let row = |row: &rusqlite::Row<'_>| Ok((JobId(row.get(0)?), JobState::from_code(row.get(1)?)));
        let events = json_array(self.events_of(EventRef::Contact(contact.0))?.into_iter());
        self.cached(include_str!("sql/jobs_of_events.sql"))?.query_map([events], row)?.collect()
    }

    /// Newest first.
    pub(super) fn events_of_contact(&self, id: ContactId, page: Page) -> rusqlite::Result<Vec<EventSeq>> {
        let mut seqs = Vec::new();
        for member in self.reader().members(id)? {
            seqs.extend(self.events_of(EventRef::Contact(member.0))?);
        }
        seqs.retain(|seq| page.after.is_none_or(|after| *seq < after));
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        let mut exists = self.cached(include_str!("sql/has_events.sql"))?;
        let mut found = Vec::new();
        for seq in seqs {
            if found.len() == page.limit as usize {
                break;
            }
            if exists.query_row([seq, seq], |row| row.get(0))? {
                found.push(seq);
            }
        }
        Ok(found)
    }

    /// Jobs that have not ended, or in whose lane a call may still be applied: it would not be looked for in another lane.
    fn live_jobs<'c>(&self, contacts: impl IntoIterator<Item = &'c ContactId>) -> rusqlite::Result<u64> {
        let row = |row: &rusqlite::Row<'_>| Ok(JobId(row.get(0)?));
        let mut pending = self.cached(include_str!("sql/pending_stragglers.sql"))?;
        let pending: BTreeSet<JobId> = pending.query_map([Time::NEVER.0], row)?.collect::<rusqlite::Result<_>>()?;
        let is_live =
            |(job, state): &(JobId, Option<JobState>)| state.is_none_or(JobState::is_live) || pending.contains(job);
        let mut live = 0;
        for contact in contacts {
            live += self.jobs_of(*contact)?.iter().filter(|job| is_live(job)).count() as u64;
        }
        Ok(live)
    }

    /// The finished jobs of these contacts run in the lane of `root` should they be replayed.
    fn move_lanes(&mut self, contacts: &[ContactId], root: ContactId) -> rusqlite::Result<()> {
        for contact in contacts {
            let entity = entity(self, Owner { contact: *contact, root }) as i64;
            for (job, _) in self.jobs_of(*contact)? {
                let Some(mut head) = self.job_head(job)? else { continue };
                head.entity = entity;
                let mac = head.mac(self.key_store);
                self.cached(include_str!("sql/set_job_entity.sql"))?.execute(params![job.0, entity, mac])?;
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn contact_row(&self, id: ContactId) -> rusqlite::Result<Option<ContactRow>> {
        let mut statement = self.prepare_cached(include_str!("sql/contact.sql"))?;
        let mut rows = statement.query([id.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let contact_key: Option<i64> = row.get(2)?;
        let sealed: Vec<u8> = row.get(4)?;
        let state = match self.is_destroyed(contact_key)? {
            true => ContactState::default(),
            false => self.opened_as(place::contact_state(id.0), &sealed)?,
        };
        Ok(Some(ContactRow {
            id,
            merged_into: row.get::<_, Option<i64>>(1)?.map(ContactId),
            contact_key,
            created_at: Time(row.get(3)?),
            state,
        }))
    }

    /// Whether the key was destroyed: what it sealed is gone for good.
    pub(crate) fn is_destroyed(&self, contact_key: Option<i64>) -> rusqlite::Result<bool> {
        let Some(id) = contact_key else { return Ok(false) };
        Ok(self.key_store.contact(self.connection, self.changes, id)?.is_none())
    }

    pub(crate) fn opened_as<T: serde::de::DeserializeOwned>(
        &self,
        place: SealContext<'_>,
        sealed: &[u8],
    ) -> rusqlite::Result<T> {
        let opened = self.key_store.unseal(self.connection, self.changes, place, sealed)?;
        serde_json::from_slice(&opened).map_err(|error| wrong(0, &error.to_string()))
    }

    fn owner(&self, contact: ContactId) -> rusqlite::Result<Owner> {
        let mut root = contact;
        for _ in 0..MEMBERS_MAX {
            let parent: Option<Option<i64>> = self
                .prepare_cached(include_str!("sql/contact_parent.sql"))?
                .query_row([root.0], |row| row.get(0))
                .optional()?;
            match parent.flatten() {
                Some(parent) => root = ContactId(parent),
                None => break,
            }
        }
        Ok(Owner { contact, root })
    }

    /// A contact and everything that is merged into it.
    pub(crate) fn members(&self, root: ContactId) -> rusqlite::Result<Vec<ContactId>> {
        let mut members = vec![root];
        let mut at = 0;
        while let Some(parent) = members.get(at) {
            let mut statement = self.prepare_cached(include_str!("sql/contact_members.sql"))?;
            let children: Vec<ContactId> =
                statement.query_map([parent.0], |row| row.get(0).map(ContactId))?.collect::<rusqlite::Result<_>>()?;
            members.extend(children);
            at += 1;
        }
        Ok(members)
    }

    /// The state of a contact and everything that is merged into it.
    fn merged_state(&self, members: &[ContactId]) -> rusqlite::Result<ContactState> {
        let mut state = ContactState::default();
        for member in members {
            if let Some(row) = self.contact_row(*member)? {
                state.join(&row.state);
            }
        }
        Ok(state)
    }

    fn contact_write(&self, root: ContactId, slot: WriteSlot) -> rusqlite::Result<Option<ContactWrite>> {
        let sealed: Option<Vec<u8>> = self
            .prepare_cached(include_str!("sql/contact_write.sql"))?
            .query_row(params![root.0, slot.0], |row| row.get(0))
            .optional()?;
        let Some(sealed) = sealed else { return Ok(None) };
        let contact_key = self.contact_row(root)?.and_then(|row| row.contact_key);
        match self.is_destroyed(contact_key)? {
            true => Ok(None),
            false => self.opened_as(place::contact_write(root.0, &slot.0), &sealed).map(Some),
        }
    }

    pub(crate) fn contact_of_event(&self, event: &EventSeq, slot: &WriteSlot) -> rusqlite::Result<Option<ContactView>> {
        let contact: Option<Option<i64>> = self
            .prepare_cached(include_str!("sql/contact_of_event.sql"))?
            .query_row([event], |row| row.get(0))
            .optional()?;
        let Some(contact) = contact.flatten() else { return Ok(None) };
        let root = self.owner(ContactId(contact))?.root;
        let state = self.merged_state(&self.members(root)?)?;
        Ok(Some(ContactView { id: root, state, write: self.contact_write(root, *slot)? }))
    }

    pub(crate) fn contact(&self, id: &ContactId) -> rusqlite::Result<Option<ContactRecord>> {
        let Some(row) = self.contact_row(*id)? else { return Ok(None) };
        let members = self.members(*id)?;
        let state = self.merged_state(&members)?;
        let ContactRow { id, merged_into, created_at, .. } = row;
        Ok(Some(ContactRecord { id, merged_into, members, created_at, state }))
    }

    pub(crate) fn contacts(&self, conflicts_only: &bool, page: &Page) -> rusqlite::Result<Vec<ContactRecord>> {
        let sql = match conflicts_only {
            true => include_str!("sql/list_contact_conflicts.sql"),
            false => include_str!("sql/list_contacts.sql"),
        };
        let ids: Vec<ContactId> = self
            .prepare_cached(sql)?
            .query_map(params![page.after, page.limit], |row| row.get(0).map(ContactId))?
            .collect::<rusqlite::Result<_>>()?;
        let mut contacts = Vec::with_capacity(ids.len());
        for id in ids {
            contacts.extend(self.contact(&id)?);
        }
        Ok(contacts)
    }
}
