//! Contacts: the one that an event belongs to, what is known of it, and what was written of it.

use std::collections::{BTreeMap, BTreeSet};

use sluice_domain::contact::identity::{Identifier, Owner, Resolution, resolve};
use sluice_domain::contact::{
    Conflict, ContactId, ContactState, ContactView, ContactWrite, MEMBERS_MAX, Observation, WriteRecord, WriteSlot,
};
use sluice_domain::job::JobId;
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;

use super::Store;
use crate::filter::Page;
use crate::op::{ContactChange, MergeContacts, SplitContact, merge_problem};
use crate::record::{ContactRecord, EventSeq};

#[derive(Clone, Debug, Default)]
pub(super) struct Contacts {
    pub(super) rows: BTreeMap<ContactId, ContactRow>,
    identifiers: BTreeMap<[u8; 16], ContactId>,
    writes: BTreeMap<(ContactId, WriteSlot), ContactWrite>,
    /// The contact of each event, as it was when the event was accepted.
    pub(super) events: BTreeMap<EventSeq, ContactId>,
}

#[derive(Clone, Debug)]
pub(super) struct ContactRow {
    merged_into: Option<ContactId>,
    created_at: Time,
    pub(super) state: ContactState,
}

impl Contacts {
    pub(super) fn owner(&self, contact: ContactId) -> Owner {
        let mut root = contact;
        while let Some(parent) = self.rows.get(&root).and_then(|row| row.merged_into) {
            root = parent;
        }
        Owner { contact, root }
    }

    /// A contact and everything that is merged into it.
    fn members(&self, root: ContactId) -> Vec<ContactId> {
        let mut members = vec![root];
        let mut at = 0;
        while let Some(parent) = members.get(at).copied() {
            members.extend(self.rows.iter().filter(|(_, row)| row.merged_into == Some(parent)).map(|(id, _)| *id));
            at += 1;
        }
        members
    }

    /// The contact that identifiers lead to.
    pub(super) fn resolution(&self, identifiers: &[Identifier]) -> Resolution {
        let owner = |digest: KeyDigest| self.identifiers.get(&digest.0).map(|contact| self.owner(*contact));
        let owners: Vec<Option<Owner>> = identifiers.iter().map(|identifier| owner(identifier.digest)).collect();
        let holds = |root: ContactId, kind: &str| {
            let mut held = owners.iter().flatten().filter(|owner| owner.root == root);
            held.any(|owner| self.rows.get(&owner.contact).is_some_and(|row| row.state.holds(kind)))
        };
        resolve(identifiers, &owners, holds)
    }

    fn merged_state(&self, members: &[ContactId]) -> ContactState {
        let mut state = ContactState::default();
        members.iter().filter_map(|id| self.rows.get(id)).for_each(|row| state.join(&row.state));
        state
    }
}

impl Store {
    /// Finds or creates the contact of an event and merges what the event says. Returns the contact and the entity of the jobs, or
    /// why the event is quarantined.
    pub(super) fn identify(
        &mut self,
        now: Time,
        observation: &Observation,
        seq: EventSeq,
    ) -> Result<(ContactId, u64), Failure> {
        let resolution = self.contacts.resolution(&observation.identifiers);
        if let Some(refusal) = resolution.refusal(&observation.identifiers, observation.on_conflict) {
            if let Some(row) = self.contacts.rows.get_mut(&refusal.shown_on) {
                refusal.record(&mut row.state, seq);
            }
            return Err(refusal.failure);
        }
        Ok(self.assign(now, observation, seq, &resolution))
    }

    /// The same for an event that is quarantined. `None` if it stays so, and nothing is written.
    pub(super) fn assign_unless_refused(
        &mut self,
        now: Time,
        observation: &Observation,
        seq: EventSeq,
    ) -> Option<(ContactId, u64)> {
        let resolution = self.contacts.resolution(&observation.identifiers);
        let refusal = resolution.refusal(&observation.identifiers, observation.on_conflict);
        refusal.is_none().then(|| self.assign(now, observation, seq, &resolution))
    }

    /// The same for the identity that an operator supplies: a conflict is returned, and nothing is written.
    pub(super) fn assign_unless_conflict(
        &mut self,
        now: Time,
        observation: &Observation,
        seq: EventSeq,
    ) -> Result<(ContactId, u64), Vec<Conflict>> {
        let resolution = self.contacts.resolution(&observation.identifiers);
        match resolution.conflicts.is_empty() {
            true => Ok(self.assign(now, observation, seq, &resolution)),
            false => Err(resolution.conflicts),
        }
    }

    fn assign(
        &mut self,
        now: Time,
        observation: &Observation,
        seq: EventSeq,
        resolution: &Resolution,
    ) -> (ContactId, u64) {
        let contacts = &mut self.contacts;
        let identifiers = &observation.identifiers;
        let id = match resolution.owner {
            Some(owner) => owner.contact,
            None => ContactId(contacts.rows.last_key_value().map_or(0, |(last, _)| last.0) + 1),
        };
        let row = contacts.rows.entry(id).or_insert_with(|| ContactRow {
            merged_into: None,
            created_at: now,
            state: ContactState::default(),
        });
        row.state.observe(observation, seq);
        resolution.record(identifiers, &mut row.state, seq);
        for identifier in resolution.links.iter().filter_map(|place| identifiers.get(*place)) {
            contacts.identifiers.insert(identifier.digest.0, id);
        }
        contacts.events.insert(seq, id);
        (id, contacts.owner(id).lane().entity())
    }

    /// Merges what an event says into a contact that it is assigned to already.
    pub(super) fn observe(&mut self, contact: ContactId, observation: &Observation, seq: EventSeq) {
        if let Some(row) = self.contacts.rows.get_mut(&contact) {
            row.state.observe(observation, seq);
        }
    }

    pub(super) fn set_contact_of_event(&mut self, seq: EventSeq, contact: ContactId) {
        self.contacts.events.insert(seq, contact);
    }

    /// The contact of an event, as the one that it is merged into.
    pub fn contact_id_of_event(&self, event: EventSeq) -> Option<ContactId> {
        self.contacts.events.get(&event).map(|contact| self.contacts.owner(*contact).root)
    }

    /// The contact that an event is assigned to, whatever it is merged into.
    pub fn assigned_contact(&self, event: EventSeq) -> Option<ContactId> {
        self.contacts.events.get(&event).copied()
    }

    /// A contact and everything that is merged into it.
    pub fn contact_members(&self, contact: ContactId) -> Vec<ContactId> {
        self.contacts.members(contact)
    }

    /// The version of the state of a contact, merged with everything that is merged into it.
    pub fn contact_version(&self, contact: ContactId) -> Option<EventSeq> {
        let rows = self.contacts.members(contact).into_iter().filter_map(|id| self.contacts.rows.get(&id));
        rows.map(|row| row.state.version).max()
    }

    /// Number of contacts, merged ones included.
    pub fn contact_count(&self) -> usize {
        self.contacts.rows.len()
    }

    pub fn find_contacts(&self, identifiers: &[KeyDigest]) -> Vec<ContactId> {
        let owner = |digest: &KeyDigest| self.contacts.identifiers.get(&digest.0);
        let mut found: Vec<ContactId> =
            identifiers.iter().filter_map(owner).map(|contact| self.contacts.owner(*contact).root).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    pub(super) fn record_write(&mut self, job: JobId, record: WriteRecord) {
        let seq = self.jobs.get(&job).map(|job| job.record.seq);
        let Some(contact) = seq.and_then(|seq| self.contacts.events.get(&seq)) else { return };
        let key = (self.contacts.owner(*contact).root, record.slot);
        match record.write {
            Some(write) => {
                self.contacts.writes.insert(key, write);
            }
            None => {
                if let Some(write) = self.contacts.writes.get_mut(&key) {
                    write.term = ContactWrite::IN_DOUBT;
                }
            }
        }
    }

    pub fn merge_contacts(&mut self, merge: &MergeContacts) -> ContactChange {
        let parent = |id: ContactId| self.contacts.rows.get(&id).map(|row| (id, row.merged_into));
        let (Some(into), Some(other)) = (parent(merge.into), parent(merge.contact)) else {
            return ContactChange::NotFound;
        };
        if let Some(problem) = merge_problem(into, other) {
            return problem;
        }
        let (into, other) = (into.0, other.0);
        let members = (self.contacts.members(into), self.contacts.members(other));
        if members.0.len() + members.1.len() > MEMBERS_MAX {
            return ContactChange::TooMany;
        }
        let live = self.live_jobs_of(members.0.iter().chain(&members.1));
        if live > 0 {
            return ContactChange::Busy { jobs: live };
        }
        self.set_parent(other, Some(into));
        self.move_lanes(&members.1, into);
        self.forget_writes([into, other]);
        self.log(merge.at, &merge.actor, "merge contacts", &format!("{other} into {into}"), &merge.reason);
        ContactChange::Done
    }

    pub fn split_contact(&mut self, split: &SplitContact) -> ContactChange {
        let id = split.contact;
        match self.contacts.rows.get(&id) {
            None => return ContactChange::NotFound,
            Some(row) if row.merged_into.is_none() => return ContactChange::NotMerged,
            Some(_) => {}
        }
        let root = self.contacts.owner(id).root;
        let live = self.live_jobs_of(&self.contacts.members(root));
        if live > 0 {
            return ContactChange::Busy { jobs: live };
        }
        self.set_parent(id, None);
        self.move_lanes(&self.contacts.members(id), id);
        self.forget_writes([root, id]);
        self.log(split.at, &split.actor, "split contact", &format!("{id} from {root}"), &split.reason);
        ContactChange::Done
    }

    fn set_parent(&mut self, contact: ContactId, parent: Option<ContactId>) {
        if let Some(row) = self.contacts.rows.get_mut(&contact) {
            row.merged_into = parent;
        }
    }

    fn forget_writes(&mut self, contacts: [ContactId; 2]) {
        self.contacts.writes.retain(|(contact, _), _| !contacts.contains(contact));
    }

    fn jobs_of_contact(&self, contact: ContactId) -> Vec<JobId> {
        let events = self.contacts.events.iter().filter(|(_, other)| **other == contact);
        events.filter_map(|(seq, _)| self.events.get(seq)).flat_map(|event| event.job_ids()).collect()
    }

    /// Jobs that have not ended, or in whose lane a call may still be applied: it would not be looked for in another lane.
    fn live_jobs_of<'c>(&self, contacts: impl IntoIterator<Item = &'c ContactId>) -> u64 {
        let pending = self.stragglers.values().filter(|straggler| !straggler.is_compared());
        let pending: BTreeSet<JobId> = pending.map(|straggler| straggler.job).collect();
        let is_live = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.record.state.is_live());
        let jobs = contacts.into_iter().flat_map(|contact| self.jobs_of_contact(*contact));
        jobs.filter(|id| is_live(id) || pending.contains(id)).count() as u64
    }

    /// The finished jobs of these contacts run in the lane of `root` should they be replayed.
    fn move_lanes(&mut self, contacts: &[ContactId], root: ContactId) {
        for contact in contacts {
            let entity = Owner { contact: *contact, root }.lane().entity();
            for job in self.jobs_of_contact(*contact) {
                self.change(job, |record| record.entity = entity);
            }
        }
    }

    /// The contact of an event with the last confirmed write of a step.
    pub fn contact_of_event(&self, event: EventSeq, slot: WriteSlot) -> Option<ContactView> {
        let root = self.contacts.owner(*self.contacts.events.get(&event)?).root;
        let state = self.contacts.merged_state(&self.contacts.members(root));
        Some(ContactView { id: root, state, write: self.contacts.writes.get(&(root, slot)).cloned() })
    }

    pub fn contact(&self, id: ContactId) -> Option<ContactRecord> {
        let row = self.contacts.rows.get(&id)?;
        let members = self.contacts.members(id);
        let state = self.contacts.merged_state(&members);
        Some(ContactRecord { id, merged_into: row.merged_into, members, created_at: row.created_at, state })
    }

    /// Contacts, newest first: those that are not merged into another one, or all that have conflicts.
    pub fn contacts(&self, conflicts_only: bool, page: Page) -> Vec<ContactRecord> {
        let is_listed = |row: &ContactRow| match conflicts_only {
            true => row.state.conflicts().next().is_some(),
            false => row.merged_into.is_none(),
        };
        let rows = self
            .contacts
            .rows
            .iter()
            .rev()
            .filter(|(id, row)| page.after.is_none_or(|after| id.0 < after) && is_listed(row));
        rows.take(page.limit as usize).filter_map(|(id, _)| self.contact(*id)).collect()
    }

    /// Events of a contact and of those that are merged into it, newest first.
    pub fn contact_events(&self, id: ContactId, page: Page) -> Vec<EventSeq> {
        let members = self.contacts.members(id);
        let events = self
            .contacts
            .events
            .iter()
            .rev()
            .filter(|(seq, contact)| page.after.is_none_or(|after| **seq < after) && members.contains(contact));
        events.map(|(seq, _)| *seq).filter(|seq| self.events.get(seq).is_some()).take(page.limit as usize).collect()
    }
}
