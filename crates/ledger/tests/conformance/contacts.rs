//! Which contact an event belongs to, what is known of it, and what was written of it.

use serde_json::{Value, json};
use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{
    ContactId, ContactWrite, MEMBERS_MAX, Observation, ObservedValue, OnConflict, WriteRecord, WriteSlot,
};
use sluice_domain::job::{EffectState, JobId, JobState, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{
    Accepted, Begin, BeginResult, ContactChange, ContactRecord, EventLookup, MergeContacts, NewEvent, Page, Quarantine,
    Recheck, Replay, Settlement, SplitContact,
};

use crate::driver::{Driver, Fixture, at, begin, open, open_with_few_recent_keys, settlement};
use crate::fixtures::{START, event};

const PAGE: Page = Page { after: None, limit: 100 };

fn slot() -> WriteSlot {
    WriteSlot::new("crm", "create")
}

fn identifier(text: &str) -> Identifier {
    let kind = if text.contains('@') { "email" } else { "external_id" };
    Identifier { kind: kind.to_owned(), digest: KeyDigest::new("t", kind, text), single: kind == "external_id" }
}

/// An event of a person with these identifiers, who has this name.
fn about(key: &str, identifiers: &[&str], name: &str) -> NewEvent {
    let value = ObservedValue { field: "attributes.name".to_owned(), value: json!(name), trust: 50, guarded: false };
    let observation = Observation {
        identifiers: identifiers.iter().map(|text| identifier(text)).collect(),
        values: vec![value],
        source: "website".into(),
        occurred_at: None,
        received_at: START,
        ..Observation::default()
    };
    NewEvent { observation: Some(Box::new(observation)), ..event(key) }
}

impl<D: Driver> Fixture<D> {
    async fn contact_of(&self, accepted: &Accepted) -> ContactId {
        self.ledger.contact_of_event(accepted.seq, slot()).await.unwrap().unwrap().id
    }

    async fn contact(&self, id: ContactId) -> ContactRecord {
        self.ledger.contact(id).await.unwrap().unwrap()
    }

    async fn name_of(&self, id: ContactId) -> Value {
        self.contact(id).await.state.value("attributes.name").cloned().unwrap()
    }

    async fn entity_of(&self, accepted: &Accepted) -> u64 {
        self.jobs_of(accepted).await[0].entity
    }

    async fn finish(&self, accepted: &Accepted) -> JobId {
        let job = self.jobs_of(accepted).await[0].id;
        self.attempt(job, 1, JobState::Succeeded).await;
        job
    }

    async fn merge(&self, contact: ContactId, into: ContactId) -> ContactChange {
        let (actor, reason) = ("ann".to_owned(), "same person".to_owned());
        self.ledger.merge_contacts(MergeContacts { into, contact, actor, reason, at: START }).await.unwrap()
    }

    async fn split(&self, contact: ContactId) -> ContactChange {
        let (actor, reason) = ("ann".to_owned(), "two persons".to_owned());
        self.ledger.split_contact(SplitContact { contact, actor, reason, at: START }).await.unwrap()
    }
}

pub(crate) async fn every_identifier_leads_to_one_contact_and_one_lane<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(about("1", &["shop-1", "ann@x"], "Ann")).await;
    let by_email = fixture.accept_event(about("2", &["ann@x"], "Anna")).await;
    let by_id = fixture.accept_event(about("3", &["shop-1", "a@work"], "Annie")).await;
    let by_work = fixture.accept_event(about("4", &["a@work"], "A.")).await;
    let other = fixture.accept_event(about("5", &["bob@x"], "Bob")).await;
    let contact = fixture.contact_of(&first).await;
    let lane = fixture.entity_of(&first).await;
    for accepted in [&by_email, &by_id, &by_work] {
        assert_eq!((fixture.contact_of(accepted).await, fixture.entity_of(accepted).await), (contact, lane));
    }
    assert_ne!(fixture.contact_of(&other).await, contact);
    assert_ne!(fixture.entity_of(&other).await, lane);
    assert_eq!(fixture.name_of(contact).await, json!("A."));
    let events = fixture.ledger.contact_events(contact, PAGE).await.unwrap();
    assert_eq!(events, [by_work.seq, by_id.seq, by_email.seq, first.seq]);
    let found = fixture.ledger.find_contacts(vec![identifier("a@work").digest, identifier("none@x").digest]).await;
    assert_eq!(found.unwrap(), [contact]);
}

pub(crate) async fn an_event_without_an_observation_has_no_contact<D: Driver>() {
    let fixture = open::<D>();
    let plain = fixture.accept("1").await;
    assert_eq!(fixture.ledger.contact_of_event(plain.seq, slot()).await.unwrap(), None);
    let failure = Failure::new(FailureClass::Identity, "identity-missing", "no identity");
    let quarantined = NewEvent { quarantine: Some(Quarantine::new(failure)), ..about("2", &["ann@x"], "Ann") };
    let quarantined = fixture.accept_event(quarantined).await;
    assert_eq!(fixture.ledger.contact_of_event(quarantined.seq, slot()).await.unwrap(), None);
    assert!(fixture.ledger.contacts(false, PAGE).await.unwrap().is_empty());
}

pub(crate) async fn a_repeat_says_nothing_about_a_contact<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(about("1", &["ann@x"], "Ann")).await;
    fixture.repeat(about("1", &["ann@x", "other@x"], "Other")).await;
    assert_eq!(fixture.name_of(fixture.contact_of(&first).await).await, json!("Ann"));
    assert!(fixture.ledger.find_contacts(vec![identifier("other@x").digest]).await.unwrap().is_empty());
}

pub(crate) async fn contacts_are_known_after_a_restart_and_after_they_left_memory<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(8);
    for n in 0..100 {
        let id = format!("shop-{n}");
        let email = format!("{n}@x");
        fixture.accept_event(about(&format!("key {n}"), &[&id, &email], &n.to_string())).await;
    }
    let fixture = fixture.reopen().await;
    for n in [0, 17, 99] {
        let again = fixture.accept_event(about(&format!("again {n}"), &[&format!("{n}@x")], "again")).await;
        let contact = fixture.contact_of(&again).await;
        assert_eq!(contact, ContactId(n + 1));
        assert_eq!(fixture.ledger.contact_events(contact, PAGE).await.unwrap().len(), 2);
    }
    assert_eq!(fixture.ledger.contacts(false, PAGE).await.unwrap().len(), 100);
    let page = Page { after: Some(100), limit: 2 };
    let ids: Vec<_> = fixture.ledger.contacts(false, page).await.unwrap().iter().map(|contact| contact.id).collect();
    assert_eq!(ids, [ContactId(99), ContactId(98)]);
}

pub(crate) async fn events_are_found_by_their_trace_and_by_the_record_that_they_wrote<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(8);
    let trace = |n: u32| format!("{n:016x}{:016x}", 7);
    for n in 0..40 {
        let event = NewEvent { trace: trace(n / 2), ..event(&format!("key {n}")) };
        let accepted = fixture.accept_event(event).await;
        let job = fixture.jobs_of(&accepted).await[0].id;
        fixture.begin(job, 1).await;
        let mut done = settlement(job, 1, JobState::Succeeded);
        if let Some(effect) = &mut done.effect {
            effect.result = Some(std::sync::Arc::new(json!({ "id": format!("00Q{}", n / 4) })));
        }
        assert!(fixture.settle_with(done).await);
    }
    let fixture = fixture.reopen().await;
    let found = async |lookup| fixture.ledger.find_referenced(lookup).await.unwrap();
    assert_eq!(found(EventLookup::Trace(trace(3))).await, [8, 7]);
    assert_eq!(found(EventLookup::Record("00Q2".to_owned())).await, [12, 11, 10, 9]);
    assert!(found(EventLookup::Record("00q2".to_owned())).await.is_empty());
    for wrong in [trace(99), "7".to_owned(), String::new(), "é".repeat(16)] {
        assert!(found(EventLookup::Trace(wrong)).await.is_empty());
    }
}

pub(crate) async fn an_event_that_links_two_contacts_is_a_conflict_and_merges_nothing<D: Driver>() {
    let fixture = open::<D>();
    let shop = fixture.accept_event(about("1", &["shop-1"], "Ann")).await;
    let mail = fixture.accept_event(about("2", &["ann@x"], "Anna")).await;
    assert!(fixture.ledger.contacts(true, PAGE).await.unwrap().is_empty());
    let both = fixture.accept_event(about("3", &["shop-1", "ann@x"], "Annie")).await;
    let (shop, mail) = (fixture.contact_of(&shop).await, fixture.contact_of(&mail).await);
    assert_eq!(fixture.contact_of(&both).await, shop, "the first identifier decides");
    assert_ne!(shop, mail);
    assert_eq!(fixture.name_of(mail).await, json!("Anna"));
    let conflicting = fixture.ledger.contacts(true, PAGE).await.unwrap();
    let conflicts: Vec<_> = conflicting[0].state.conflicts().collect();
    assert_eq!((conflicting[0].id, conflicts[0].0, conflicts[0].1.other()), (shop, both.seq, Some(mail)));
    // One email and two external ids.
    let second = fixture.accept_event(about("4", &["shop-2", "ann@x"], "Other")).await;
    assert_eq!(fixture.contact_of(&second).await, mail, "it has no external id yet");
    let third = fixture.accept_event(about("5", &["shop-3", "ann@x"], "Third")).await;
    assert!(![shop, mail].contains(&fixture.contact_of(&third).await));
}

pub(crate) async fn a_merge_is_one_lane_and_one_state_and_a_split_takes_it_back<D: Driver>() {
    let fixture = open::<D>();
    let shop = fixture.accept_event(about("1", &["shop-1"], "Ann")).await;
    let mail = fixture.accept_event(about("2", &["ann@x"], "Anna")).await;
    let (a, b) = (fixture.contact_of(&shop).await, fixture.contact_of(&mail).await);
    assert_eq!(fixture.merge(b, a).await, ContactChange::Busy { jobs: 2 }, "two lanes of one contact have no order");
    let (shop_job, mail_job) = (fixture.finish(&shop).await, fixture.finish(&mail).await);
    assert_eq!(fixture.merge(a, a).await, ContactChange::Same);
    assert_eq!(fixture.merge(ContactId(99), a).await, ContactChange::NotFound);
    assert_eq!(fixture.merge(b, a).await, ContactChange::Done);
    assert_eq!(fixture.merge(b, a).await, ContactChange::MergedInto(a));
    let lane = fixture.read(shop_job).await.entity;
    assert_eq!(fixture.read(mail_job).await.entity, lane, "a replayed job runs in the lane of its contact");
    assert_eq!(fixture.contact(a).await.members, [a, b]);
    assert_eq!((fixture.contact_of(&mail).await, fixture.name_of(a).await), (a, json!("Anna")));
    let by_mail = fixture.accept_event(about("3", &["ann@x"], "Annie")).await;
    assert_eq!((fixture.entity_of(&by_mail).await, fixture.contact_of(&by_mail).await), (lane, a));
    let linking = fixture.accept_event(about("4", &["shop-1", "ann@x"], "A.")).await;
    assert!(fixture.ledger.contacts(true, PAGE).await.unwrap().is_empty(), "they are one contact");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.contact(a).await.members, [a, b]);
    assert_eq!(fixture.split(b).await, ContactChange::Busy { jobs: 2 });
    for accepted in [&by_mail, &linking] {
        let job = fixture.jobs_of(accepted).await[0].id;
        fixture.attempt(job, 1, JobState::Succeeded).await;
    }
    assert_eq!(fixture.split(b).await, ContactChange::Done);
    assert_eq!(fixture.split(b).await, ContactChange::NotMerged);
    assert_eq!((fixture.name_of(a).await, fixture.name_of(b).await), (json!("A."), json!("Annie")));
    assert_ne!(fixture.read(mail_job).await.entity, fixture.read(shop_job).await.entity);
    let lines = fixture.audit_lines().await.join("\n");
    assert!(lines.contains("merge contacts") && lines.contains("split contact"), "{lines}");
}

fn quarantined(event: NewEvent) -> NewEvent {
    let failure = Failure::new(FailureClass::Mapping, "schema-mismatch", "the body does not match the schema");
    NewEvent { quarantine: Some(Quarantine::new(failure)), ..event }
}

impl<D: Driver> Fixture<D> {
    async fn replay_again(&self, accepted: &Accepted, n: u32) -> JobId {
        let job = self.jobs_of(accepted).await[0].id;
        let (actor, reason) = ("ann".to_owned(), "looked at it".to_owned());
        let replay = Replay { jobs: vec![job], actor, reason, revision: None, at: at(70) };
        assert_eq!(self.ledger.replay(replay).await.unwrap().len(), 1);
        assert_eq!(self.read(job).await.state, JobState::Queued);
        if n > 0 {
            self.attempt(job, n, JobState::Dead).await;
        }
        job
    }

    async fn assigned(&self, accepted: &Accepted) -> Option<ContactId> {
        self.ledger.contact_of_event(accepted.seq, slot()).await.unwrap().map(|view| view.id)
    }
}

pub(crate) async fn a_quarantined_event_belongs_to_its_contact_once_it_is_replayed<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(about("1", &["ann@x"], "Ann")).await;
    let (contact, lane) = (fixture.contact_of(&first).await, fixture.entity_of(&first).await);
    let flawed = fixture.accept_event(quarantined(about("2", &["ann@x", "shop-1"], "Anna"))).await;
    assert_eq!(fixture.assigned(&flawed).await, None, "nobody has looked at it yet");
    assert!(fixture.ledger.find_contacts(vec![identifier("shop-1").digest]).await.unwrap().is_empty());
    let fixture = fixture.reopen().await;
    fixture.replay_again(&flawed, 1).await;
    assert_eq!((fixture.assigned(&flawed).await, fixture.entity_of(&flawed).await), (Some(contact), lane));
    assert_eq!(fixture.name_of(contact).await, json!("Anna"), "it arrived later");
    assert_eq!(fixture.ledger.find_contacts(vec![identifier("shop-1").digest]).await.unwrap(), [contact]);
    assert_eq!(fixture.ledger.contact_events(contact, PAGE).await.unwrap(), [flawed.seq, first.seq]);
    let fixture = fixture.reopen().await;
    fixture.replay_again(&flawed, 0).await;
    assert_eq!((fixture.assigned(&flawed).await, fixture.entity_of(&flawed).await), (Some(contact), lane));
    let lines = fixture.audit_lines().await;
    let identified = lines.iter().filter(|line| line.contains(" identify ")).count();
    assert_eq!(identified, 1, "{lines:?}");
}

pub(crate) async fn a_quarantined_conflict_has_no_contact_until_the_contacts_are_one<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(about("1", &["shop-1", "ann@x"], "Ann")).await;
    let second = fixture.accept_event(about("2", &["a@work"], "A.")).await;
    let (a, b) = (fixture.contact_of(&first).await, fixture.contact_of(&second).await);
    fixture.finish(&first).await;
    fixture.finish(&second).await;
    let mut both = about("3", &["shop-1", "a@work"], "Both");
    both.observation.as_mut().unwrap().on_conflict = OnConflict::Quarantine;
    let both = fixture.accept_event(both).await;
    assert!(both.quarantined);
    fixture.replay_again(&both, 1).await;
    assert_eq!(fixture.assigned(&both).await, None);
    assert_eq!(fixture.contact(a).await.state.conflicts().count(), 1, "shown once");
    assert_eq!(fixture.merge(b, a).await, ContactChange::Done);
    fixture.replay_again(&both, 0).await;
    assert_eq!(fixture.assigned(&both).await, Some(a));
}

pub(crate) async fn contacts_are_not_merged_while_a_call_of_them_may_be_applied_late<D: Driver>() {
    let fixture = open::<D>();
    let shop = fixture.accept_event(about("1", &["shop-1"], "Ann")).await;
    let mail = fixture.accept_event(about("2", &["ann@x"], "Anna")).await;
    let (a, b) = (fixture.contact_of(&shop).await, fixture.contact_of(&mail).await);
    fixture.finish(&mail).await;
    let job = fixture.jobs_of(&shop).await[0].id;
    let begin = Begin { class: EffectClass::Natural, ..begin(job, 1) };
    assert_eq!(fixture.begin_with(begin).await, BeginResult::Go);
    let mut dead = settlement(job, 1, JobState::Dead);
    let effect = dead.effect.as_mut().unwrap();
    (effect.state, effect.late_until) = (EffectState::Unknown, Some(at(100)));
    assert!(fixture.settle_with(dead).await);
    assert_eq!(fixture.merge(b, a).await, ContactChange::Busy { jobs: 1 }, "its lane would not be compared any more");
    let recheck = Recheck { at: at(100), due_at: at(100), jobs_max: 10 };
    assert_eq!(fixture.ledger.recheck(recheck).await.unwrap(), []);
    assert_eq!(fixture.merge(b, a).await, ContactChange::Done);
}

pub(crate) async fn only_so_many_contacts_become_one<D: Driver>() {
    let fixture = open::<D>();
    let mut contacts = Vec::new();
    for n in 0..=MEMBERS_MAX {
        let accepted = fixture.accept_event(about(&format!("key {n}"), &[&format!("{n}@x")], "Ann")).await;
        fixture.finish(&accepted).await;
        contacts.push(fixture.contact_of(&accepted).await);
    }
    for contact in &contacts[1..MEMBERS_MAX] {
        assert_eq!(fixture.merge(*contact, contacts[0]).await, ContactChange::Done);
    }
    assert_eq!(fixture.merge(contacts[MEMBERS_MAX], contacts[0]).await, ContactChange::TooMany);
    // What is merged into a contact goes with it, and comes back with it.
    assert_eq!(fixture.split(contacts[1]).await, ContactChange::Done);
    assert_eq!(fixture.merge(contacts[MEMBERS_MAX], contacts[1]).await, ContactChange::Done);
    assert_eq!(fixture.contact(contacts[1]).await.members, [contacts[1], contacts[MEMBERS_MAX]]);
}

/// The settlement of the first attempt at a job with what was written.
fn wrote(job: JobId, n: u32, write: Option<ContactWrite>) -> Settlement {
    let state = if write.is_some() { JobState::Succeeded } else { JobState::Retrying };
    Settlement { write: Some(WriteRecord { slot: slot(), write }), ..settlement(job, n, state) }
}

pub(crate) async fn a_confirmed_write_is_kept_until_it_is_in_doubt<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(about("1", &["ann@x"], "Ann")).await;
    let second = fixture.accept_event(about("2", &["ann@x"], "Anna")).await;
    let write = async |fixture: &Fixture<D>| {
        let view = fixture.ledger.contact_of_event(second.seq, slot()).await.unwrap().unwrap();
        assert_eq!(view.state.version, second.seq);
        view.write
    };
    assert_eq!(write(&fixture).await, None);
    let fields = json!({ "name": "Anna" }).as_object().cloned().unwrap();
    let confirmed = ContactWrite { target: [7; 16], version: second.seq, term: Term(1), fields };
    let job = fixture.jobs_of(&first).await[0].id;
    fixture.begin(job, 1).await;
    assert!(fixture.settle_with(wrote(job, 1, Some(confirmed.clone()))).await);
    assert_eq!(write(&fixture).await, Some(confirmed.clone()));
    let fixture = fixture.reopen().await;
    assert_eq!(write(&fixture).await, Some(confirmed.clone()));
    let job = fixture.jobs_of(&second).await[0].id;
    fixture.begin(job, 1).await;
    assert!(fixture.settle_with(wrote(job, 1, None)).await);
    assert_eq!(write(&fixture).await, Some(ContactWrite { term: ContactWrite::IN_DOUBT, ..confirmed }));
    assert!(!fixture.settle_with(wrote(job, 9, None)).await, "a stale settlement writes nothing");
}

pub(crate) async fn a_replayed_job_keeps_its_contact<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept_event(about("1", &["ann@x"], "Ann")).await;
    let contact = fixture.contact_of(&accepted).await;
    let job = fixture.jobs_of(&accepted).await[0].id;
    fixture.attempt(job, 1, JobState::Dead).await;
    let replay = Replay {
        jobs: vec![job],
        actor: "ann".to_owned(),
        reason: "fixed".to_owned(),
        revision: None,
        at: Time(START.0 + 1),
    };
    assert_eq!(fixture.ledger.replay(replay).await.unwrap().len(), 1);
    assert_eq!(fixture.contact_of(&accepted).await, contact);
}
