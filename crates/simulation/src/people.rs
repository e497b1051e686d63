//! Events about persons, and the records that their merged states are written to.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};
use sluice_domain::contact::{
    CLOCK_SKEW_MAX, ContactId, ContactRules, IdentifierRule, Observation, SourceTrust, WriteSlot,
};
use sluice_domain::event::{Audit, Event};
use sluice_domain::job::JobState;
use sluice_domain::record::{EventDraft, NewEvent};
use sluice_domain::run::StepCall;
use sluice_domain::time::Time;
use sluice_ledger::Page;

use super::invariants::Invariant;
use super::plan::ENTITIES;
use super::trace::About;
use super::world::Simulation;

/// Persons that events are about.
const PERSONS: u32 = 6;
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
fn rules() -> ContactRules {
    let fields = BTreeMap::from([("score".to_owned(), 90)]);
    let website = SourceTrust { trust: Some(20), fields };
    let shop = SourceTrust { trust: Some(60), fields: BTreeMap::new() };
    ContactRules {
        identifiers: ["external_id", "email"].map(IdentifierRule::new).to_vec(),
        trust: 50,
        sources: [("website".to_owned(), website), ("shop".to_owned(), shop)].into(),
        ..ContactRules::default()
    }
}

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
    let observation = Some(Box::new(rules().observe(&event)));
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
    NewEvent { contact: None, observation, ..NewEvent::new(draft) }
}

/// What was observed of persons.
#[derive(Debug, Default)]
pub(super) struct People {
    /// What every accepted event says, by its sequence number.
    said: BTreeMap<i64, (ContactId, Observation)>,
    /// The records at the destination, by their ids.
    records: BTreeMap<String, Map<String, Value>>,
}

impl People {
    /// A write is applied at the destination.
    pub fn apply(&mut self, call: &StepCall) {
        let id = call.with["external_id"].as_str().unwrap_or_default().to_owned();
        let fields = call.with["fields"].as_object().cloned().unwrap_or_default();
        self.records.entry(id).or_default().extend(fields);
    }

    /// The value of a field of a contact, found by comparing all of its events.
    fn winner(&self, contact: ContactId, field: &str) -> Option<Value> {
        let said = self.said.iter().filter(|(_, (of, _))| *of == contact).filter_map(|(seq, (_, observation))| {
            let value = observation.values.iter().find(|value| value.field == field)?;
            let latest = observation.received_at + CLOCK_SKEW_MAX;
            let at = observation.occurred_at.unwrap_or(observation.received_at).min(latest);
            Some(((value.trust, at, *seq), value.value.clone()))
        });
        said.max_by_key(|(rank, _)| *rank).map(|(_, value)| value)
    }
}

impl Simulation {
    /// An event became durable.
    pub(super) fn note_person(&mut self, seq: i64, observation: Option<&Observation>) {
        let Some(contact) = self.store.contact_of_event(seq, WriteSlot::new("", "")) else { return };
        if let Some(observation) = observation {
            self.checker.people.said.insert(seq, (contact.id, observation.clone()));
        }
    }

    /// At the end: a contact is the merge of its events, and its record is the contact as far as its newest job has written it.
    pub(super) fn check_people(&mut self) {
        let page = Page { after: None, limit: u32::MAX };
        for contact in self.store.contacts(false, page) {
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
            let newest = self.store.contact_events(contact.id, page).into_iter().next();
            let Some(job) = newest.and_then(|seq| self.store.jobs().find(|job| job.seq == seq)) else { continue };
            if !matches!(job.state, JobState::Succeeded | JobState::Noop) || job.seq != contact.state.version {
                continue;
            }
            let email = contact.state.value("identity.email").and_then(Value::as_str).unwrap_or_default();
            // A destination that has nothing to do confirms nothing.
            let Some(record) = self.checker.people.records.get(email) else { continue };
            let noop_by_destination = self
                .store
                .effect_states(job.id)
                .any(|effect| effect.state == sluice_domain::job::EffectState::Skipped && effect.n > 0);
            if *record != expected && !noop_by_destination {
                let detail = format!("the record of {} is {record:?}; the contact is {expected:?}", contact.id);
                return self.checker.fail(self.now, Invariant::CoalescingLosesNothing, About::Job(job.id), || detail);
            }
        }
    }
}
