//! Events about persons, and the records that their merged states are written to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};
use sluice_domain::contact::{CLOCK_SKEW_MAX, ContactId, ContactRules, IdentifierRule, Observation, SourceTrust};
use sluice_domain::event::{Audit, Event};
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::record::{EventDraft, JobRecord, NewEvent};
use sluice_domain::run::StepCall;
use sluice_domain::time::Time;
use sluice_ledger::memory::EffectStatus;
use sluice_ledger::{ContactRecord, Page};

use super::checker::ObservedJob;
use super::invariants::Invariant;
use super::plan::ENTITIES;
use super::trace::About;
use super::world::Simulation;

/// Persons that events are about.
const PERSONS: u32 = 6;
/// Operators name contacts up to this number: every person has one, and some do not exist.
pub(super) const CONTACTS_ASKED: u64 = PERSONS as u64 + 1;
const ALL: Page = Page { after: None, limit: u32::MAX };
/// The fields of a record, by the attribute that each is filled with.
pub(super) const FIELDS: [&str; 3] = ["name", "city", "score"];

/// The lanes that the checker tells apart: those of entities, then those of contacts.
pub(super) const LANES: u64 = 2 * ENTITIES;

/// The number of the lane of an entity.
pub(super) fn lane_number(entity: u64) -> u64 {
    static CONTACTS: LazyLock<BTreeMap<u64, u64>> =
        LazyLock::new(|| (0..ENTITIES).map(|n| (ContactId(n as i64 + 1).entity(), ENTITIES + n)).collect());
    CONTACTS.get(&entity).copied().unwrap_or(entity) % LANES
}

/// How the sources of the simulation are trusted.
pub(super) static RULES: LazyLock<ContactRules> = LazyLock::new(|| {
    let fields = BTreeMap::from([("score".to_owned(), 90)]);
    let website = SourceTrust { trust: Some(20), fields };
    let shop = SourceTrust { trust: Some(60), fields: BTreeMap::new() };
    ContactRules {
        identifiers: ["external_id", "email"].map(IdentifierRule::new).to_vec(),
        trust: 50,
        sources: [("website".to_owned(), website), ("shop".to_owned(), shop)].into(),
        ..ContactRules::default()
    }
});

/// A request about a person.
#[derive(Clone, Copy, Debug)]
pub(super) struct PersonRequest<'a> {
    pub key: u32,
    pub key_text: &'a str,
    pub source: &'a Arc<str>,
    pub received_at: Time,
}

/// The event of a request about a person. Its values and its time follow from its key, so that a repeat says the same; the time is
/// up to an hour before or after the arrival.
pub(super) fn person_event(request: PersonRequest<'_>) -> NewEvent {
    let PersonRequest { key, key_text, source, received_at } = request;
    let person = key % PERSONS;
    let mut identity = json!({ "email": format!("p{person}@example.org") });
    if key % 5 == 0 {
        identity["external_id"] = json!(format!("{source}-{person}"));
    }
    let mut attributes = json!({ "profile": true, "name": format!("n{}", key % 7) });
    if key % 2 == 0 {
        attributes["city"] = json!(format!("c{}", key % 3));
    }
    if key % 3 == 0 {
        attributes["score"] = json!(key % 4);
    }
    let offset = (i64::from(key) * 7_919) % 7_200_000 - 3_600_000;
    let members = |value: Value| value.as_object().cloned().unwrap_or_default();
    let event = Event {
        schema_version: "1".into(),
        event_id: String::new(),
        event_type: "simulated".into(),
        source: source.to_string(),
        occurred_at: Some(Time(received_at.0 + offset)),
        idempotency_key: key_text.to_owned(),
        identity: members(identity),
        attributes: members(attributes),
        routing: Map::new(),
        audit: Audit { received_at, mapping_version: "1".into(), ..Audit::default() },
    };
    let observation = Some(Box::new(RULES.observe(&event)));
    let draft = EventDraft {
        flow: super::senders::FLOW,
        source,
        expires_at: Time(0),
        revision: &Arc::from(""),
        trace: "",
        fingerprint: [0; 16],
        headers: "{}".to_owned(),
        raw: b"{}".to_vec(),
        event: &event,
        jobs: vec![],
    };
    let new = NewEvent { contact: None, observation, ..NewEvent::new(draft) };
    // As intake does.
    new.body.decoded.put(event);
    new
}

/// What was observed of persons.
#[derive(Debug, Default)]
pub(super) struct People {
    /// What every accepted event says and the contact that it belongs to, by its sequence number.
    said: BTreeMap<i64, (ContactId, Observation)>,
    /// The contact that each merged contact is merged into.
    parents: BTreeMap<ContactId, ContactId>,
    /// The newest event when a contact was last merged or split.
    changed: BTreeMap<ContactId, i64>,
    /// The records at the destination, by their ids.
    records: BTreeMap<String, Map<String, Value>>,
    /// Contacts whose record the destination refused to repair.
    unrepaired: BTreeSet<ContactId>,
    /// Events that were edited.
    edited: BTreeSet<i64>,
}

impl People {
    /// Whether a record has the values of this call.
    pub(crate) fn shows(&self, call: &StepCall) -> bool {
        let record = self.records.get(call.with["external_id"].as_str().unwrap_or_default());
        let mut fields = call.with["fields"].as_object().into_iter().flatten();
        fields.all(|(field, value)| record.is_some_and(|record| record.get(field) == Some(value)))
    }

    /// A write is applied at the destination.
    pub(crate) fn apply(&mut self, call: &StepCall) {
        let id = call.with["external_id"].as_str().unwrap_or_default().to_owned();
        let fields = call.with["fields"].as_object().cloned().unwrap_or_default();
        self.records.entry(id).or_default().extend(fields);
    }

    /// Contacts that are merged into another one.
    pub(crate) fn merged(&self) -> Vec<ContactId> {
        self.parents.keys().copied().collect()
    }

    fn root(&self, contact: ContactId) -> ContactId {
        let mut root = contact;
        while let Some(parent) = self.parents.get(&root) {
            root = *parent;
        }
        root
    }

    /// The entity that the jobs of an event have to run under; `None` if the event is not about a person.
    pub(crate) fn lane(&self, seq: i64) -> Option<u64> {
        let (contact, _) = self.said.get(&seq)?;
        Some(self.root(*contact).entity())
    }

    fn reshaped(&mut self, contacts: [ContactId; 2]) {
        let newest = self.said.last_key_value().map_or(0, |(seq, _)| *seq);
        self.changed.extend(contacts.map(|contact| (contact, newest)));
    }

    /// The value of a field of a contact, found by comparing all events of it and of what is merged into it.
    fn winner(&self, contact: ContactId, field: &str) -> Option<Value> {
        let said = self.said.iter().filter(|(_, (of, _))| self.root(*of) == contact);
        let ranked = said.filter_map(|(seq, (_, observation))| {
            let value = observation.values.iter().find(|value| value.field == field)?;
            let latest = observation.received_at + CLOCK_SKEW_MAX;
            let at = observation.occurred_at.unwrap_or(observation.received_at).min(latest);
            Some(((value.trust, at, *seq), value.value.clone()))
        });
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, value)| value)
    }
}

impl Simulation {
    /// An event became durable.
    pub(super) fn note_person(&mut self, seq: i64, observation: Option<Box<Observation>>) {
        let Some(observation) = observation else { return };
        let Some(root) = self.store.contact_id_of_event(seq) else { return };
        // The contact of the event and every contact that it is part of have seen it; the contact itself has the fewest members.
        let members = self.store.contact_members(root).into_iter();
        let has_seen = members.filter(|id| self.store.contact_version(*id) == Some(seq));
        let Some(contact) = has_seen.min_by_key(|id| self.store.contact_members(*id).len()) else { return };
        self.checker.people.said.insert(seq, (contact, *observation));
        if self.checker.people.root(contact) != root {
            let detail = || format!("event {seq} of {contact} belongs to {root}");
            self.checker.fail(self.now, Invariant::MergeLaws, About::Nothing, detail);
        }
    }

    /// The destination left a record alone that was overwritten.
    pub(super) fn repair_declined(&mut self, id: JobId) {
        let people = &mut self.checker.people;
        let said = self.store.job(id).and_then(|job| people.said.get(&job.seq));
        people.unrepaired.extend(said.map(|(contact, _)| *contact));
    }

    /// An edit of an event about a person became durable: it says something else from now on.
    pub(super) fn note_edited_person(&mut self, seq: i64, observation: Option<Box<Observation>>) {
        let (Some(contact), Some(observation)) = (self.store.assigned_contact(seq), observation) else { return };
        self.checker.people.said.insert(seq, (contact, *observation));
        self.checker.people.edited.insert(seq);
    }

    /// Whether every edited event of a contact was written since, as far as the destination wanted it.
    fn are_edits_written(&self, contact: ContactId) -> bool {
        let edited = &self.checker.people.edited;
        let events = self.store.contact_events(contact, ALL).into_iter().filter(|seq| edited.contains(seq));
        let is_written = |job: &JobRecord| {
            let skipped = |effect: EffectStatus<'_>| effect.state == EffectState::Skipped && effect.n > 0;
            matches!(job.state, JobState::Succeeded | JobState::Noop) && !self.store.effect_states(job.id).any(skipped)
        };
        events.into_iter().all(|seq| self.store.jobs_of(seq).any(is_written))
    }

    /// A merge became durable.
    pub(super) fn note_merge(&mut self, contact: ContactId, into: ContactId) {
        self.checker.people.parents.insert(contact, into);
        self.checker.people.reshaped([contact, into]);
        self.check_lanes();
    }

    /// A split became durable.
    pub(super) fn note_split(&mut self, contact: ContactId) {
        let root = self.checker.people.root(contact);
        self.checker.people.parents.remove(&contact);
        self.checker.people.reshaped([contact, root]);
        self.check_lanes();
    }

    /// Of all jobs about persons. Also of finished ones: they may be replayed.
    fn check_lanes(&mut self) {
        let jobs = self.checker.people.said.keys().flat_map(|seq| self.store.jobs_of(*seq));
        let lanes: Vec<(JobId, u64, u64)> =
            jobs.filter_map(|job| Some((job.id, job.entity, self.checker.people.lane(job.seq)?))).collect();
        lanes.into_iter().for_each(|(job, entity, lane)| self.check_lane(job, entity, lane));
    }

    /// A job about a person has the lane of the contact that the person's contact is merged into.
    pub(super) fn check_lane(&mut self, id: JobId, entity: u64, lane: u64) {
        if lane != entity {
            let detail = || format!("its lane is that of entity {entity:x}; its contact has {lane:x}");
            self.checker.fail(self.now, Invariant::OneLanePerContact, About::Job(id), detail);
        }
    }

    /// At the end: a contact is the merge of its events, and its record is the contact as far as its newest job has written it.
    pub(super) fn check_people(&mut self) {
        for contact in self.store.contacts(false, ALL) {
            let mut expected = Map::new();
            for field in FIELDS {
                let name = format!("attributes.{field}");
                let value = self.checker.people.winner(contact.id, &name);
                if contact.state.value(&name) != value.as_ref() {
                    let found = contact.state.value(&name).cloned();
                    let detail = format!("{name} of {} is {found:?}; its events say {value:?}", contact.id);
                    return self.checker.fail(self.now, Invariant::MergeLaws, About::Nothing, || detail);
                }
                expected.extend(value.map(|value| (field.to_owned(), value)));
            }
            let ahead = contact.state.fields().flat_map(|(_, registers)| registers).find(|register| {
                let said = self.checker.people.said.get(&register.seq);
                said.is_some_and(|(_, said)| register.occurred_at > said.received_at + CLOCK_SKEW_MAX)
            });
            if let Some(register) = ahead {
                let detail = format!("{} has a value of {}", contact.id, register.occurred_at);
                return self.checker.fail(self.now, Invariant::ClockSkewClamped, About::Nothing, || detail);
            }
            self.check_person_record(&contact, expected);
        }
    }

    /// The record of a contact is the contact, if its newest job has ended well.
    fn check_person_record(&mut self, contact: &ContactRecord, mut expected: Map<String, Value>) {
        let people = &self.checker.people;
        let newest = self.store.contact_events(contact.id, ALL).into_iter().next();
        let Some(job) = newest.and_then(|seq| self.store.jobs().find(|job| job.seq == seq)) else { return };
        if !matches!(job.state, JobState::Succeeded | JobState::Noop) || job.seq != contact.state.version {
            return;
        }
        let changed = contact.members.iter().filter_map(|member| people.changed.get(member)).max();
        if changed.is_some_and(|changed| job.seq <= *changed) {
            // The next event writes the contact as it is since then.
            return;
        }
        let jobs = self.store.contact_events(contact.id, ALL).into_iter().flat_map(|seq| self.store.jobs_of(seq));
        let is_unrepaired =
            |job: &JobRecord| self.checker.jobs.get(job.id.0 as usize).is_some_and(ObservedJob::is_unrepaired);
        if !self.are_edits_written(contact.id)
            || contact.members.iter().any(|member| people.unrepaired.contains(member))
            || jobs.into_iter().any(is_unrepaired)
        {
            return;
        }
        let email = contact.state.value("identity.email").and_then(Value::as_str).unwrap_or_default();
        // A destination that has nothing to do confirms nothing.
        let Some(record) = people.records.get(email) else { return };
        let noop_by_destination =
            self.store.effect_states(job.id).any(|effect| effect.state == EffectState::Skipped && effect.n > 0);
        if changed.is_some() {
            // A field that was written while the contact was another one, and that it does not have, stays at the destination.
            let left = record.iter().filter(|(field, _)| !expected.contains_key(*field));
            let left: Vec<_> = left.map(|(field, value)| (field.clone(), value.clone())).collect();
            expected.extend(left);
        }
        if *record != expected && !noop_by_destination {
            let (id, detail) =
                (job.id, format!("the record of {} is {record:?}; the contact is {expected:?}", contact.id));
            self.checker.fail(self.now, Invariant::CoalescingLosesNothing, About::Job(id), || detail);
        }
    }
}
