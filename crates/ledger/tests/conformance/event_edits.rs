//! An edited event is a revision beside the one that was accepted, and its jobs run again with it.

use serde_json::json;
use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{ContactId, Observation, ObservedValue, WriteSlot};
use sluice_domain::event_edit::{BusyJob, REVISIONS_MAX};
use sluice_domain::job::{EffectKey, EffectState, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass};
use sluice_domain::replay::Reapply;
use sluice_domain::time::Time;
use sluice_ledger::{
    Accepted, ContactChange, EditEvent, Edited, JobRecord, Mark, MergeContacts, NewEvent, Page, Prune, Quarantine,
    Replay, StepResult,
};

use crate::driver::{Driver, Fixture, at, open};
use crate::fixtures::{DAY, START, event};

const EDITED: &str = r#"{"key":"edited"}"#;

fn edit(accepted: &Accepted, base: u32) -> EditEvent {
    EditEvent {
        seq: accepted.seq,
        base,
        normalized: EDITED.to_owned(),
        fields: vec!["attributes.name".to_owned()],
        contact: None,
        entity: 7,
        observation: None,
        reapply: Reapply::default(),
        actor: "ann".into(),
        reason: "a typo".into(),
        at: at(50),
    }
}

impl<D: Driver> Fixture<D> {
    async fn edited(&self, edit: EditEvent) -> Edited {
        self.ledger.edit_event(edit).await.unwrap()
    }

    async fn edited_text(&self, job: &JobRecord) -> (String, u32) {
        let loaded = self.ledger.load_jobs(vec![job.id], usize::MAX).await.unwrap().remove(0);
        (loaded.body.normalized.clone(), loaded.body.edits)
    }
}

fn revision_of(edited: &Edited) -> u32 {
    match edited {
        Edited::Done { revision, .. } => *revision,
        other => panic!("not edited: {other:?}"),
    }
}

pub(crate) async fn an_edit_is_kept_beside_the_event_and_its_jobs_run_again<D: Driver>() {
    let mut fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Dead).await;
    let done = fixture.edited(edit(&accepted, 0)).await;
    assert_eq!(done, Edited::Done { revision: 1, jobs: vec![(job.id, "crm".into())] });
    assert_eq!(fixture.requeued.recv().await.unwrap(), [(job.id, "crm".into())], "the scheduler hears of it");
    let again = fixture.read(job.id).await;
    assert_eq!((again.state, again.step, again.replays, again.failure), (JobState::Queued, 0, 1, None));
    assert_eq!(fixture.effect_state(job.id).await, EffectState::Abandoned, "its key was used for other content");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.edited_text(&job).await, (EDITED.to_owned(), 1));
    let revisions = fixture.ledger.event_revisions(accepted.seq).await.unwrap();
    let shown: Vec<(u32, &str, Option<&str>)> = (revisions.iter())
        .map(|revision| (revision.n, revision.actor.as_str(), revision.normalized.as_deref()))
        .collect();
    assert_eq!(shown, [(0, "", Some(r#"{"key":"a"}"#)), (1, "ann", Some(EDITED))]);
    let (record, body) = fixture.ledger.events(vec![accepted.seq]).await.unwrap().remove(0);
    assert_eq!((record.id, body.unwrap().raw), (accepted.id, b"raw a".to_vec()), "the request stays");
    let lines = fixture.audit_lines().await;
    let expected = format!("ann edit {} revision 1 of attributes.name: a typo", accepted.id);
    assert_eq!(lines.last(), Some(&expected));
    assert!(fixture.ledger.failure_group_counts().await.unwrap().is_empty(), "it is no dead letter any more");
    assert!(fixture.ledger.event_revisions(99).await.unwrap().is_empty());
}

pub(crate) async fn an_event_whose_jobs_run_or_are_in_doubt_is_not_edited<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    let busy = |state| Edited::Busy(BusyJob { job: job.id, state });
    assert_eq!(fixture.edited(edit(&accepted, 0)).await, busy(JobState::Queued));
    fixture.begin(job.id, 1).await;
    assert_eq!(fixture.edited(edit(&accepted, 0)).await, busy(JobState::Running));
    fixture.settle(job.id, 1, JobState::Retrying).await;
    assert_eq!(fixture.edited(edit(&accepted, 0)).await, busy(JobState::Retrying));
    fixture.attempt(job.id, 2, JobState::Unknown).await;
    assert_eq!(fixture.edited(edit(&accepted, 0)).await, busy(JobState::Unknown));
    assert_eq!(fixture.edited_text(&job).await, (r#"{"key":"a"}"#.to_owned(), 0));
    assert!(matches!(fixture.edited(EditEvent { seq: 99, ..edit(&accepted, 0) }).await, Edited::NotFound));
}

pub(crate) async fn of_two_edits_of_one_revision_the_second_is_refused<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept_event(NewEvent { jobs: vec![], ..event("a") }).await;
    assert_eq!(revision_of(&fixture.edited(edit(&accepted, 0)).await), 1);
    assert_eq!(fixture.edited(edit(&accepted, 0)).await, Edited::Outdated(1));
    for base in 1..REVISIONS_MAX {
        assert_eq!(revision_of(&fixture.edited(edit(&accepted, base)).await), base + 1);
    }
    assert_eq!(fixture.edited(edit(&accepted, REVISIONS_MAX)).await, Edited::TooMany);
}

pub(crate) async fn applied_effects_are_repeated_only_if_their_class_is_asked_for<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Succeeded).await;
    let overwriting = Reapply(Reapply::OVERWRITING.to_vec());
    let first = EditEvent { reapply: overwriting, ..edit(&accepted, 0) };
    assert_eq!(revision_of(&fixture.edited(first).await), 1);
    assert_eq!(fixture.effect_state(job.id).await, EffectState::Applied, "a keyed effect was sent");
    assert!(
        fixture
            .settle_with(sluice_ledger::Settlement {
                effect: None,
                attempt: None,
                ..crate::driver::settlement(job.id, 1, JobState::Succeeded)
            })
            .await
    );
    let keyed = Reapply(vec![EffectClass::Keyed]);
    assert_eq!(revision_of(&fixture.edited(EditEvent { reapply: keyed, ..edit(&accepted, 1) }).await), 2);
    assert_eq!(fixture.effect_state(job.id).await, EffectState::Superseded);
    // A replay later uses the newest revision; the first one comes back as a further edit.
    assert_eq!(fixture.edited_text(&job).await.1, 2);
}

pub(crate) async fn a_mark_belongs_to_the_effect_that_takes_the_place_of_its_owner<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    let label = |label: &str| EffectKey::new(accepted.id, "crm", label);
    let mark = async |step: &str, n: u32| {
        let result = StepResult {
            job: job.id,
            n,
            fence: fixture.fence(job.id).await,
            step: 0,
            step_id: step.into(),
            key: label(step),
            action: "store.setnx",
            state: EffectState::Applied,
            result: json!(null),
            warning: None,
            at: at(n),
        };
        let (store, key) = ("default".to_owned(), KeyDigest::new("tenant", "mark:default", "ada"));
        let mark = Mark { result, store, key, adjacent: vec![], event: accepted.id, expires_at: at(9_000) };
        fixture.ledger.set_mark(mark).await.unwrap().unwrap().set
    };
    assert!(mark("once", 0).await);
    assert!(
        fixture
            .settle_with(sluice_ledger::Settlement {
                effect: None,
                attempt: None,
                ..crate::driver::settlement(job.id, 0, JobState::Succeeded)
            })
            .await
    );
    assert_eq!(revision_of(&fixture.edited(edit(&accepted, 0)).await), 1);
    assert!(mark("once@2", 0).await, "it is the same job's mark");
    assert!(!mark("twice", 0).await, "another step finds it set");
}

fn identifier(text: &str) -> Identifier {
    Identifier { kind: "email".to_owned(), digest: KeyDigest::new("t", "email", text), single: false }
}

fn said(email: &str, name: &str) -> Observation {
    let value = |field: &str, value: &str, guarded| ObservedValue {
        field: field.to_owned(),
        value: json!(value),
        trust: 50,
        guarded,
    };
    Observation {
        identifiers: vec![identifier(email)],
        values: vec![value("identity.email", email, true), value("attributes.name", name, false)],
        source: "website".into(),
        received_at: START,
        ..Observation::default()
    }
}

fn about(key: &str, email: &str, name: &str) -> NewEvent {
    NewEvent { observation: Some(Box::new(said(email, name))), ..event(key) }
}

pub(crate) async fn an_edited_identity_moves_the_event_to_its_contact<D: Driver>() {
    let fixture = open::<D>();
    let right = fixture.accept_event(about("a", "ada@example.com", "Ada")).await;
    let wrong = fixture.accept_event(about("b", "ada@exmaple.com", "Adda")).await;
    let slot = || WriteSlot::new("crm", "create");
    let contact_of = async |accepted: &Accepted| -> ContactId {
        fixture.ledger.contact_of_event(accepted.seq, slot()).await.unwrap().unwrap().id
    };
    let (known, former) = (contact_of(&right).await, contact_of(&wrong).await);
    assert_ne!(known, former);
    let job = fixture.jobs_of(&wrong).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Dead).await;
    let observation = Some(Box::new(said("ada@example.com", "Ada L")));
    assert_eq!(revision_of(&fixture.edited(EditEvent { observation, ..edit(&wrong, 0) }).await), 1);
    assert_eq!(contact_of(&wrong).await, known);
    let lane = fixture.jobs_of(&right).await[0].entity;
    assert_eq!(fixture.read(job.id).await.entity, lane, "its job runs in the lane of the contact");
    let state = fixture.ledger.contact(known).await.unwrap().unwrap().state;
    assert_eq!(state.value("attributes.name"), Some(&json!("Ada L")), "it arrived later than the other event");
    let left = fixture.ledger.contact(former).await.unwrap().unwrap().state;
    assert_eq!(left.value("attributes.name"), None, "what it said before is taken back");
    let page = Page { after: None, limit: 10 };
    assert_eq!(fixture.ledger.contact_events(known, page).await.unwrap(), [wrong.seq, right.seq]);
    assert!(fixture.ledger.contact_events(former, page).await.unwrap().is_empty());
}

pub(crate) async fn an_event_that_was_moved_twice_is_in_the_lane_of_its_last_contact<D: Driver>() {
    let fixture = open::<D>();
    let mut others = Vec::new();
    for (key, address) in [("a", "ada@example.com"), ("b", "bob@example.com"), ("c", "eve@example.com")] {
        let accepted = fixture.accept_event(about(key, address, key)).await;
        let job = fixture.jobs_of(&accepted).await.remove(0);
        fixture.attempt(job.id, 1, JobState::Dead).await;
        let slot = WriteSlot::new("crm", "create");
        let contact = fixture.ledger.contact_of_event(accepted.seq, slot).await.unwrap().unwrap().id;
        others.push((contact, job.entity));
    }
    let moved = fixture.accept_event(about("d", "who@example.com", "Who")).await;
    let job = fixture.jobs_of(&moved).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Dead).await;
    for (base, attempt, address) in [(0, 2, "ada@example.com"), (1, 3, "bob@example.com")] {
        let observation = Some(Box::new(said(address, "Who")));
        assert_eq!(revision_of(&fixture.edited(EditEvent { observation, ..edit(&moved, base) }).await), base + 1);
        fixture.attempt(job.id, attempt, JobState::Dead).await;
    }
    let [(ada, _), (bob, lane), (eve, _)] = others[..] else { panic!("three contacts") };
    let page = Page { after: None, limit: 10 };
    assert!(!fixture.ledger.contact_events(ada, page).await.unwrap().contains(&moved.seq));
    assert!(fixture.ledger.contact_events(bob, page).await.unwrap().contains(&moved.seq));
    let (actor, reason) = ("ann".to_owned(), "same person".to_owned());
    let merge = MergeContacts { into: eve, contact: ada, actor, reason, at: at(60) };
    assert_eq!(fixture.ledger.merge_contacts(merge).await.unwrap(), ContactChange::Done);
    assert_eq!(fixture.read(job.id).await.entity, lane, "the event is not one of the merged contacts");
}

pub(crate) async fn an_edit_with_identifiers_of_two_contacts_is_refused<D: Driver>() {
    let fixture = open::<D>();
    fixture.accept_event(about("a", "ada@example.com", "Ada")).await;
    fixture.accept_event(about("b", "bob@example.com", "Bob")).await;
    let accepted = fixture.accept_event(about("c", "eve@example.com", "Eve")).await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Dead).await;
    let mut two = said("ada@example.com", "Ada");
    two.identifiers.push(identifier("bob@example.com"));
    let refused = fixture.edited(EditEvent { observation: Some(Box::new(two)), ..edit(&accepted, 0) }).await;
    assert!(matches!(refused, Edited::Conflict(_)), "{refused:?}");
    assert_eq!(fixture.edited_text(&job).await.1, 0, "nothing is written");
    assert_eq!(fixture.read(job.id).await.state, JobState::Dead);
}

pub(crate) async fn revisions_go_with_their_event<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let job = fixture.jobs_of(&accepted).await.remove(0);
    fixture.attempt(job.id, 1, JobState::Succeeded).await;
    fixture.edited(edit(&accepted, 0)).await;
    let settled = crate::driver::settlement(job.id, 1, JobState::Succeeded);
    assert!(fixture.settle_with(sluice_ledger::Settlement { effect: None, attempt: None, ..settled }).await);
    let replay = Replay { jobs: vec![job.id], actor: "ann".into(), reason: "again".into(), revision: None, at: at(70) };
    assert_eq!(fixture.ledger.replay(replay).await.unwrap().len(), 1);
    assert_eq!(fixture.edited_text(&job).await, (EDITED.to_owned(), 1), "a replay runs the newest revision");
    let settled = crate::driver::settlement(job.id, 1, JobState::Succeeded);
    assert!(fixture.settle_with(sluice_ledger::Settlement { effect: None, attempt: None, ..settled }).await);
    let now = fixture.clock.advance(365 * DAY);
    let bodies = Prune { bodies_before: now, events_before: START, rows_max: 100, at: now };
    fixture.ledger.prune(bodies).await.unwrap();
    assert_eq!(fixture.edited(edit(&accepted, 1)).await, Edited::BodyRemoved);
    let revisions = fixture.ledger.event_revisions(accepted.seq).await.unwrap();
    assert_eq!(revisions.iter().map(|revision| &revision.normalized).collect::<Vec<_>>(), [&None]);
    fixture.ledger.prune(Prune { bodies_before: now, events_before: now, rows_max: 100, at: now }).await.unwrap();
    assert!(fixture.ledger.event_revisions(accepted.seq).await.unwrap().is_empty());
}

pub(crate) async fn an_edited_event_is_not_looked_up_any_more<D: Driver>() {
    let fixture = open::<D>();
    let failure = Failure::new(FailureClass::Identity, "identity-missing", "no identity");
    let quarantine = Some(Quarantine { looks_up_identity: true, ..Quarantine::new(failure) });
    let accepted = fixture.accept_event(NewEvent { quarantine, ..event("a") }).await;
    let due = async || fixture.ledger.due_identity_lookups(Time(i64::MAX), 10).await.unwrap();
    assert_eq!(due().await.len(), 1);
    assert!(matches!(fixture.edited(edit(&accepted, 0)).await, Edited::Done { .. }));
    assert_eq!(due().await, []);
}
