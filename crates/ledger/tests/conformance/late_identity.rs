//! Events that are quarantined without an identity: who supplies one, and what is released.

use serde_json::{Value, json};
use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{
    ContactId, Correlation, IDENTITY_CONFLICT, IDENTITY_MISSING, Link, Observation, ObservedValue, OnConflict,
    SuppliedBy, SuppliedIdentity, WAITING_PER_LINK_MAX, WriteSlot,
};
use sluice_domain::job::{EffectKey, EffectState, JobState, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{
    Accepted, DropJobs, EventFilter, Fence, Identified, IdentifyEvent, IdentityLookupEnded, IdentityLookupRecord,
    JobRecord, NewEvent, Page, Prune, Quarantine, Replay, StepResult,
};

use crate::driver::{Driver, Fixture, open};
use crate::fixtures::{DAY, START, event};

const PAGE: Page = Page { after: None, limit: 100 };

fn email(text: &str) -> Identifier {
    Identifier { kind: "email".to_owned(), digest: KeyDigest::new("t", "email", text), single: false }
}

fn external_id(text: &str) -> Identifier {
    Identifier { kind: "external_id".to_owned(), digest: KeyDigest::new("t", "external_id", text), single: true }
}

/// What an event of this session says: the name, at a time.
fn said(session: &str, name: &str, occurred_at: i64) -> Observation {
    let value = ObservedValue { field: "attributes.name".to_owned(), value: json!(name), trust: 50, guarded: false };
    let digest = KeyDigest::new("t", "session_id of website", session);
    let link = Link { digest, expires_at: Time(START.0 + DAY) };
    let correlation = Correlation { links: vec![link], mapping_version: "2".to_owned(), ..Correlation::default() };
    Observation {
        values: vec![value],
        source: "website".into(),
        occurred_at: Some(Time(START.0 + occurred_at)),
        received_at: START,
        correlation: Some(Box::new(correlation)),
        ..Observation::default()
    }
}

fn missing() -> Quarantine {
    Quarantine::new(Failure::new(FailureClass::Identity, IDENTITY_MISSING, "no identity"))
}

/// An event of this session that identifies nobody.
fn anonymous(key: &str, session: &str, name: &str) -> NewEvent {
    let observation = Some(Box::new(said(session, name, -100)));
    NewEvent { observation, quarantine: Some(missing()), entity: 99, contact: None, ..event(key) }
}

/// An event of this session with an email address.
fn identified(key: &str, session: &str, address: &str, name: &str) -> NewEvent {
    let mut observation = said(session, name, 0);
    observation.identifiers = vec![email(address)];
    if let Some(correlation) = &mut observation.correlation {
        correlation.identity.insert("email".to_owned(), json!(address));
    }
    let contact = Some(KeyDigest::new("t", "contact:email", address));
    NewEvent { observation: Some(Box::new(observation)), contact, ..event(key) }
}

/// An operator says whose event it is.
fn by_operator(accepted: &Accepted, identifiers: Vec<Identifier>) -> IdentifyEvent {
    let by = SuppliedBy::Operator { actor: "ann".to_owned(), reason: "called".to_owned() };
    let identity = json!({"email": "ada@x"}).as_object().cloned().unwrap();
    IdentifyEvent {
        seq: accepted.seq,
        observation: Observation { identifiers, ..said("none", "Operator", -100) },
        supplied: SuppliedIdentity { identity, by, mapping_version: "2".to_owned(), at: START },
        contact: Some(KeyDigest::new("t", "contact:email", "ada@x")),
        outputs: vec![],
    }
}

/// A lookup says whose event it is, with its output.
fn by_lookup(accepted: &Accepted, job: &JobRecord, identifiers: Vec<Identifier>) -> IdentifyEvent {
    let by = SuppliedBy::Enrichment { worker: job.worker.to_string(), step: "person".to_owned() };
    let output = StepResult {
        job: job.id,
        n: job.attempts_total,
        fence: Fence { owner: Term(1), expected: job.term },
        step: 0,
        step_id: "person".into(),
        key: EffectKey::new(accepted.id, &job.worker, "person"),
        action: "enrich.http",
        state: EffectState::Applied,
        result: json!({"found": true, "email": "ada@x"}),
        warning: None,
        at: START,
    };
    let identify = by_operator(accepted, identifiers);
    let supplied = SuppliedIdentity { by, ..identify.supplied };
    IdentifyEvent { supplied, outputs: vec![output], ..identify }
}

/// An event that identifies nobody, whose lookups may.
fn looked_up(key: &str, session: &str) -> NewEvent {
    let quarantine = Some(Quarantine { looks_up_identity: true, ..missing() });
    NewEvent { quarantine, ..anonymous(key, session, "Ada") }
}

impl<D: Driver> Fixture<D> {
    async fn contact_id(&self, accepted: &Accepted) -> Option<ContactId> {
        let slot = WriteSlot::new("crm", "create");
        self.ledger.contact_of_event(accepted.seq, slot).await.unwrap().map(|contact| contact.id)
    }

    async fn state_of(&self, accepted: &Accepted) -> JobState {
        self.jobs_of(accepted).await[0].state
    }

    async fn normalized(&self, accepted: &Accepted) -> Value {
        let body = self.ledger.events(vec![accepted.seq]).await.unwrap().remove(0).1.unwrap();
        serde_json::from_str(&body.normalized).unwrap()
    }

    fn released(&mut self) -> usize {
        std::iter::from_fn(|| self.requeued.try_recv().ok()).map(|jobs| jobs.len()).sum()
    }
}

pub(crate) async fn a_later_event_with_the_same_link_releases_the_waiting_one<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    assert!(first.quarantined);
    assert_eq!((fixture.contact_id(&first).await, fixture.state_of(&first).await), (None, JobState::Dead));
    assert!(fixture.ledger.contacts(false, PAGE).await.unwrap().is_empty(), "nothing is created");
    let identity = fixture.ledger.event_identity(first.seq).await.unwrap();
    assert_eq!((identity.supplied, identity.waits_until), (None, Some(Time(START.0 + DAY))));

    let later = fixture.accept_event(identified("2", "s-1", "ada@x", "King")).await;
    let contact = fixture.contact_id(&later).await.unwrap();
    assert_eq!(fixture.contact_id(&first).await, Some(contact));
    let (job, other) = (fixture.jobs_of(&first).await.remove(0), fixture.jobs_of(&later).await.remove(0));
    assert_eq!((job.state, job.entity, &*job.revision), (JobState::Queued, other.entity, "r1"));
    assert_eq!((job.step, &*job.destination, job.failure, job.dead_letter_queue), (0, "", None, None));
    assert_eq!(fixture.released(), 1);
    assert_eq!(fixture.normalized(&first).await["identity"]["email"], "ada@x", "its runs see the identity");
    let loaded = fixture.ledger.load_jobs(vec![job.id], usize::MAX).await.unwrap().remove(0);
    assert!(loaded.body.normalized.contains("ada@x"));
    let record = fixture.ledger.contact(contact).await.unwrap().unwrap();
    assert_eq!(record.state.value("attributes.name"), Some(&json!("King")), "the older event overwrites nothing");
    assert_eq!(fixture.ledger.contact_events(contact, PAGE).await.unwrap(), [later.seq, first.seq]);
}

pub(crate) async fn a_release_is_recorded_shown_and_kept_over_a_restart<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    let fixture = fixture.reopen().await;
    let later = fixture.accept_event(identified("2", "s-1", "ada@x", "King")).await;
    let contact = fixture.contact_id(&later).await.unwrap();
    let fixture = fixture.reopen().await;
    let identity = fixture.ledger.event_identity(first.seq).await.unwrap();
    let record = identity.supplied.unwrap();
    assert_eq!((record.event, record.contact, identity.waits_until), (first.id, contact, None));
    let supplied = record.supplied.clone().unwrap();
    assert_eq!((supplied.by, supplied.mapping_version), (SuppliedBy::Event(later.id.to_string()), "2".to_owned()));
    assert_eq!(fixture.ledger.supplied_identities(contact, 10).await.unwrap(), [record]);
    let lines = fixture.ledger.audit_trail(PAGE).await.unwrap();
    let line = lines.iter().find(|line| line.action == "identify").unwrap();
    assert_eq!((line.actor.as_str(), &line.object), ("contacts", &format!("{} as {contact}", first.id)));
    assert_eq!(fixture.ledger.contact_events(contact, PAGE).await.unwrap(), [later.seq, first.seq]);
    let contacts = Some(vec![KeyDigest::new("t", "contact:email", "ada@x")]);
    let found =
        fixture.ledger.find_events(EventFilter { contacts, ..EventFilter::default() }, PAGE).await.unwrap().rows;
    let found: Vec<_> = found.iter().map(|listed| listed.event.seq).collect();
    assert_eq!(found, [later.seq, first.seq], "it is found by the person");
    assert_eq!(fixture.normalized(&first).await["identity"]["email"], "ada@x");
    assert!(fixture.normalized(&later).await["identity"]["email"].is_null(), "the supplying event is as it was");
}

pub(crate) async fn an_event_is_released_once<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    let later = fixture.accept_event(identified("2", "s-1", "ada@x", "King")).await;
    fixture.repeat(identified("2", "s-1", "ada@x", "King")).await;
    fixture.accept_event(identified("3", "s-1", "bob@x", "Bob")).await;
    let by_hand = fixture.ledger.identify(by_operator(&first, vec![email("bob@x")])).await.unwrap();
    assert_eq!((by_hand, fixture.released()), (Identified::NotWaiting, 1));
    assert_eq!(fixture.contact_id(&first).await, fixture.contact_id(&later).await);
    // A duplicate of the waiting event does not let it wait again.
    fixture.repeat(anonymous("1", "s-1", "Ada")).await;
    let job = fixture.jobs_of(&first).await[0].id;
    fixture.attempt(job, 1, JobState::Succeeded).await;
    fixture.accept_event(identified("4", "s-1", "ada@x", "King")).await;
    assert_eq!((fixture.read(job).await.state, fixture.released()), (JobState::Succeeded, 0));
    assert_eq!(fixture.read(job).await.replays, 1);
}

pub(crate) async fn only_the_same_link_in_time_releases<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    fixture.accept_event(identified("2", "s-2", "bob@x", "Bob")).await;
    let mut plain = identified("3", "s-1", "bob@x", "Bob");
    plain.observation.as_mut().unwrap().correlation = None;
    fixture.accept_event(plain).await;
    let quarantined = NewEvent { quarantine: Some(missing()), ..identified("4", "s-1", "bob@x", "Bob") };
    fixture.accept_event(quarantined).await;
    fixture.accept_event(anonymous("5", "s-1", "Also nobody")).await;
    let mut late = NewEvent { received_at: Time(START.0 + DAY), ..identified("6", "s-1", "bob@x", "Bob") };
    late.observation.as_mut().unwrap().received_at = Time(START.0 + DAY);
    fixture.accept_event(late).await;
    assert_eq!((fixture.state_of(&first).await, fixture.released()), (JobState::Dead, 0));
    assert_eq!(fixture.ledger.event_identity(first.seq).await.unwrap().supplied, None);
}

pub(crate) async fn a_waiting_event_that_an_operator_has_dropped_or_replayed_is_not_released<D: Driver>() {
    let mut fixture = open::<D>();
    let dropped = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    let replayed = fixture.accept_event(anonymous("2", "s-1", "Ada")).await;
    let (actor, reason) = ("ann".to_owned(), "no lead".to_owned());
    let drop = DropJobs { jobs: vec![fixture.jobs_of(&dropped).await[0].id], actor, reason, at: START };
    fixture.ledger.drop_jobs(drop).await.unwrap();
    let (actor, reason) = ("ann".to_owned(), "as it is".to_owned());
    let job = fixture.jobs_of(&replayed).await[0].id;
    let replay = Replay { jobs: vec![job], actor, reason, revision: None, at: START };
    fixture.ledger.replay(replay).await.unwrap();
    assert_eq!(fixture.ledger.event_identity(dropped.seq).await.unwrap().waits_until, None);
    fixture.accept_event(identified("3", "s-1", "ada@x", "King")).await;
    assert_eq!((fixture.state_of(&dropped).await, fixture.contact_id(&dropped).await), (JobState::Dropped, None));
    assert_eq!((fixture.contact_id(&replayed).await, fixture.released()), (None, 0));
    let identity = fixture.ledger.event_identity(replayed.seq).await.unwrap();
    assert_eq!((identity.supplied, identity.waits_until), (None, None));
}

pub(crate) async fn an_operator_identifies_an_event<D: Driver>() {
    let mut fixture = open::<D>();
    // Nothing links it with another one.
    let first = NewEvent { observation: None, ..anonymous("1", "s-1", "Ada") };
    let first = fixture.accept_event(first).await;
    let unknown = IdentifyEvent { seq: 999, ..by_operator(&first, vec![email("ada@x")]) };
    assert_eq!(fixture.ledger.identify(unknown).await.unwrap(), Identified::NotFound);
    let known = fixture.accept_event(identified("2", "s-9", "ada@x", "King")).await;
    let contact = fixture.contact_id(&known).await.unwrap();
    let done = fixture.ledger.identify(by_operator(&first, vec![email("ada@x")])).await.unwrap();
    assert_eq!((done, fixture.released()), (Identified::Done(contact), 1));
    assert_eq!((fixture.contact_id(&first).await, fixture.state_of(&first).await), (Some(contact), JobState::Queued));
    assert_eq!(fixture.jobs_of(&first).await[0].entity, fixture.jobs_of(&known).await[0].entity);
    let again = fixture.ledger.identify(by_operator(&first, vec![email("ada@x")])).await.unwrap();
    assert_eq!((again, fixture.released()), (Identified::NotWaiting, 0));
    let line = &fixture.ledger.audit_trail(PAGE).await.unwrap()[0];
    assert_eq!((line.actor.as_str(), line.action.as_str(), line.detail.as_str()), ("ann", "identify", "called"));
    let record = fixture.ledger.contact(contact).await.unwrap().unwrap();
    assert_eq!(record.state.value("attributes.name"), Some(&json!("King")), "the event keeps its own time");
}

pub(crate) async fn an_operator_cannot_identify_an_event_as_two_contacts<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(anonymous("1", "s-1", "Ada")).await;
    fixture.accept_event(identified("2", "s-8", "ada@x", "Ada")).await;
    fixture.accept_event(identified("3", "s-9", "bob@x", "Bob")).await;
    let both = by_operator(&first, vec![email("ada@x"), email("bob@x")]);
    let Identified::Conflict(conflicts) = fixture.ledger.identify(both).await.unwrap() else { panic!("no conflict") };
    assert_eq!(conflicts[0].other(), Some(ContactId(2)));
    assert_eq!((fixture.state_of(&first).await, fixture.contact_id(&first).await), (JobState::Dead, None));
    assert!(fixture.ledger.contacts(true, PAGE).await.unwrap().is_empty(), "nothing is recorded");
}

pub(crate) async fn only_so_many_events_wait_under_a_link_and_not_for_ever<D: Driver>() {
    let mut fixture = open::<D>();
    let mut accepted = Vec::new();
    for n in 0..=WAITING_PER_LINK_MAX {
        accepted.push(fixture.accept_event(anonymous(&n.to_string(), "s-1", "Ada")).await);
    }
    let last = accepted.last().unwrap().seq;
    assert_eq!(fixture.ledger.event_identity(last).await.unwrap().waits_until, None);
    let old = fixture.accept_event(anonymous("old", "s-2", "Ada")).await;
    fixture.accept_event(identified("by", "s-1", "ada@x", "King")).await;
    assert_eq!(fixture.released(), WAITING_PER_LINK_MAX);
    let at = Time(START.0 + DAY);
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 10, at };
    assert_eq!(fixture.ledger.prune(prune.clone()).await.unwrap().rows, 1);
    assert_eq!(fixture.ledger.prune(prune).await.unwrap().rows, 0);
    assert_eq!(fixture.ledger.event_identity(old.seq).await.unwrap().waits_until, None);
    fixture.accept_event(identified("late", "s-2", "ada@x", "King")).await;
    assert_eq!((fixture.state_of(&old).await, fixture.released()), (JobState::Dead, 0));
}

pub(crate) async fn a_conflict_is_quarantined_where_the_rule_says_so_and_an_operator_decides<D: Driver>() {
    let fixture = open::<D>();
    let conflicting = |key: &str, identifiers: Vec<Identifier>| {
        let on_conflict = OnConflict::Quarantine;
        let observation = Observation { identifiers, on_conflict, correlation: None, ..said("none", "Both", 0) };
        NewEvent { observation: Some(Box::new(observation)), ..event(key) }
    };
    let ada = fixture.accept_event(identified("1", "s-1", "ada@x", "Ada")).await;
    let bob = fixture.accept_event(identified("2", "s-2", "bob@x", "Bob")).await;
    let (ada, bob) = (fixture.contact_id(&ada).await.unwrap(), fixture.contact_id(&bob).await.unwrap());
    let both = fixture.accept_event(conflicting("3", vec![email("ada@x"), email("bob@x")])).await;
    assert!(both.quarantined);
    let job = fixture.jobs_of(&both).await.remove(0);
    let failure = job.failure.unwrap();
    assert_eq!((job.state, failure.code.as_str()), (JobState::Dead, IDENTITY_CONFLICT));
    assert!(failure.message.contains(&format!("its email belongs to {bob}")), "{}", failure.message);
    let shown = fixture.ledger.contacts(true, PAGE).await.unwrap();
    let conflicts: Vec<_> = shown[0].state.conflicts().map(|(seq, conflict)| (seq, conflict.other())).collect();
    assert_eq!((shown[0].id, conflicts), (ada, vec![(both.seq, Some(bob))]));
    assert_eq!(shown[0].state.value("attributes.name"), Some(&json!("Ada")), "nothing is merged");
    // A second id of a known person creates no contact.
    let first_id = fixture.accept_event(conflicting("4", vec![external_id("7"), email("ada@x")])).await;
    assert_eq!((first_id.quarantined, fixture.contact_id(&first_id).await), (false, Some(ada)));
    let second_id = fixture.accept_event(conflicting("5", vec![external_id("8"), email("ada@x")])).await;
    assert!(second_id.quarantined);
    assert_eq!(fixture.ledger.contacts(false, PAGE).await.unwrap().len(), 2);
    assert!(fixture.ledger.find_contacts(vec![external_id("8").digest]).await.unwrap().is_empty());
    // An operator decides.
    let done = fixture.ledger.identify(by_operator(&both, vec![email("bob@x")])).await.unwrap();
    assert_eq!((done, fixture.contact_id(&both).await), (Identified::Done(bob), Some(bob)));
    assert_eq!(fixture.state_of(&both).await, JobState::Queued);
}

pub(crate) async fn lookups_of_a_quarantined_event_are_due_until_they_end<D: Driver>() {
    let fixture = open::<D>();
    let plain = fixture.accept_event(anonymous("0", "s-0", "Nobody")).await;
    let first = fixture.accept_event(looked_up("1", "s-1")).await;
    let unused = NewEvent { jobs: vec![], ..looked_up("2", "s-2") };
    fixture.accept_event(unused).await;
    let due = fixture.ledger.due_identity_lookups(START, 10).await.unwrap();
    assert_eq!(due, [(first.seq, 0)], "only of events that have jobs and lookups");
    assert_eq!(fixture.ledger.event_identity(plain.seq).await.unwrap().lookup, None);
    let later = Time(START.0 + 10_000);
    let last = "lookup-timed-out".to_owned();
    let failed = IdentityLookupEnded { seq: first.seq, tries: 1, due_at: Some(later), last: last.clone() };
    assert!(fixture.ledger.identity_lookup_ended(failed.clone()).await.unwrap());
    assert!(!fixture.ledger.identity_lookup_ended(failed).await.unwrap(), "the same try counts once");
    let fixture = fixture.reopen().await;
    assert!(fixture.ledger.due_identity_lookups(START, 10).await.unwrap().is_empty());
    assert_eq!(fixture.ledger.due_identity_lookups(later, 10).await.unwrap(), [(first.seq, 1)]);
    let identity = fixture.ledger.event_identity(first.seq).await.unwrap();
    let record = IdentityLookupRecord { seq: first.seq, tries: 1, due_at: Some(later), last: Some(last) };
    assert_eq!((identity.lookup, identity.waits_until.is_some()), (Some(record), true));
    let ended = IdentityLookupEnded { seq: first.seq, tries: 2, due_at: None, last: "absent".to_owned() };
    assert!(fixture.ledger.identity_lookup_ended(ended).await.unwrap());
    assert!(fixture.ledger.due_identity_lookups(Time(i64::MAX), 10).await.unwrap().is_empty());
    let lookup = fixture.ledger.event_identity(first.seq).await.unwrap().lookup.unwrap();
    assert_eq!((lookup.tries, lookup.due_at, lookup.last.as_deref()), (2, None, Some("absent")), "it is still shown");
}

pub(crate) async fn a_lookup_releases_an_event_once_and_its_output_is_recorded<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(looked_up("1", "s-1")).await;
    let job = fixture.jobs_of(&first).await.remove(0);
    let identify = by_lookup(&first, &job, vec![email("ada@x")]);
    let Identified::Done(contact) = fixture.ledger.identify(identify.clone()).await.unwrap() else {
        panic!("released")
    };
    assert_eq!(fixture.ledger.identify(identify).await.unwrap(), Identified::NotWaiting);
    assert_eq!((fixture.contact_id(&first).await, fixture.released()), (Some(contact), 1));
    assert!(fixture.ledger.due_identity_lookups(Time(i64::MAX), 10).await.unwrap().is_empty());
    let ended = IdentityLookupEnded { seq: first.seq, tries: 1, due_at: None, last: "absent".to_owned() };
    assert!(!fixture.ledger.identity_lookup_ended(ended).await.unwrap(), "it is released");
    let fixture = fixture.reopen().await;
    let loaded = fixture.ledger.load_jobs(vec![job.id], usize::MAX).await.unwrap().remove(0);
    assert_eq!((loaded.job.state, loaded.job.step, loaded.effects.len()), (JobState::Queued, 0, 1));
    let effect = &loaded.effects[0];
    assert_eq!((effect.key, effect.state), (EffectKey::new(first.id, &job.worker, "person"), EffectState::Applied));
    assert_eq!(effect.result.as_deref(), Some(&json!({"found": true, "email": "ada@x"})));
    let identity = fixture.ledger.event_identity(first.seq).await.unwrap();
    let supplied = identity.supplied.unwrap().supplied.unwrap();
    assert_eq!((supplied.by.kind(), identity.lookup), ("enrichment", None));
    let line = &fixture.ledger.audit_trail(PAGE).await.unwrap()[0];
    assert!(line.detail.starts_with("by the lookup `person`") && line.actor == "contacts", "{line:?}");
}

pub(crate) async fn an_event_that_is_released_otherwise_is_not_looked_up<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(looked_up("1", "s-1")).await;
    let job = fixture.jobs_of(&first).await.remove(0);
    let later = fixture.accept_event(identified("2", "s-1", "ada@x", "King")).await;
    assert_eq!((later.released, first.released, fixture.released()), (1, 0, 1));
    assert!(fixture.ledger.due_identity_lookups(Time(i64::MAX), 10).await.unwrap().is_empty());
    let late = fixture.ledger.identify(by_lookup(&first, &job, vec![email("bob@x")])).await.unwrap();
    assert_eq!((late, fixture.released()), (Identified::NotWaiting, 0), "the answer came too late");
    assert!(fixture.ledger.effects(job.id).await.unwrap().is_empty(), "nothing is recorded");
    assert_eq!(fixture.contact_id(&first).await, fixture.contact_id(&later).await);
}
