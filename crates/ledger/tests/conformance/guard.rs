//! What stands between a step and its effect: exact caps, consent, suppression, questions to people, safe mode.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice, EXPIRY};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::policy::{Cap, CapReservation, Contact, ContactFacts};
use sluice_domain::time::Time;
use sluice_ledger::{
    ApprovalFilter, BeginResult, CappedBeginResult, DecideApproval, Decided, JobRecord, Page, Prune, Pruned,
    RequestApproval, Resolution, Resolve, SafeModeRecord, SetConsent, SetSafeMode, Settlement, Skip, Suppress,
    Unsuppress,
};

use crate::driver::{Driver, Fixture, at, begin, effect_key, open, settlement};
use crate::fixtures::fence;

const HOUR: Duration = Duration::from_secs(3600);
const PAGE: Page = Page { after: None, limit: 50 };

fn contact(text: &str) -> Contact {
    Contact::new(text).unwrap()
}

fn cap(rule: &str, max: u32, window: Duration) -> CapReservation {
    CapReservation {
        policy: "marketing".into(),
        rule: rule.into(),
        channel: "email".into(),
        contact: contact("ada@example.com").digest(),
        cap: Cap { max, window },
    }
}

async fn begin_within<D: Driver>(
    fixture: &Fixture<D>,
    job: JobId,
    n: u32,
    caps: &[CapReservation],
) -> CappedBeginResult {
    fixture.begin_under(begin(job, n), caps).await
}

const GO: CappedBeginResult = CappedBeginResult::Begun(BeginResult::Go);

/// A settlement after which the effect stands so and the job is in this state.
fn ended(job: JobId, n: u32, effect: EffectState, state: JobState) -> Settlement {
    let mut settlement = settlement(job, n, state);
    if let Some(settled) = &mut settlement.effect {
        settled.state = effect;
    }
    settlement
}

pub(crate) async fn a_cap_is_exact_however_many_ask_at_once<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = vec![];
    for n in 0..40 {
        jobs.push(fixture.job(&format!("k{n}")).await.id);
    }
    let asked: Vec<_> = jobs
        .iter()
        .map(|job| {
            let (ledger, begin) = (fixture.ledger.clone(), begin(*job, 1));
            tokio::spawn(async move { ledger.begin(begin, vec![cap("daily", 3, 24 * HOUR)]).await.unwrap() })
        })
        .collect();
    let mut gone = 0;
    for asked in asked {
        match asked.await.unwrap() {
            GO => gone += 1,
            CappedBeginResult::Refused(place) => assert_eq!(place, 0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, 3);
    assert_eq!(fixture.ledger.cap_used(cap("daily", 3, 24 * HOUR), at(0)).await.unwrap(), 3);
}

pub(crate) async fn who_is_refused_is_not_begun<D: Driver>() {
    let fixture = open::<D>();
    let caps = [cap("weekly", 5, 168 * HOUR), cap("daily", 1, 24 * HOUR)];
    let (first, second) = (fixture.job("a").await.id, fixture.job("b").await.id);
    assert_eq!(begin_within(&fixture, first, 1, &caps).await, GO);
    assert_eq!(begin_within(&fixture, second, 1, &caps).await, CappedBeginResult::Refused(1));
    let job = fixture.read(second).await;
    assert_eq!((job.state, job.attempts_total), (JobState::Queued, 0));
    assert!(fixture.ledger.effects(second).await.unwrap().is_empty());
    let others = CapReservation { contact: contact("eve@example.com").digest(), ..cap("daily", 1, 24 * HOUR) };
    assert_eq!(begin_within(&fixture, second, 1, &[others]).await, GO, "another contact has places of their own");
}

pub(crate) async fn one_effect_takes_one_place_however_often_it_is_tried<D: Driver>() {
    let fixture = open::<D>();
    let caps = [cap("daily", 1, 24 * HOUR)];
    let job = fixture.job("a").await.id;
    assert_eq!(begin_within(&fixture, job, 1, &caps).await, GO);
    assert_eq!(begin_within(&fixture, job, 1, &caps).await, CappedBeginResult::Begun(BeginResult::Stale));
    assert!(fixture.settle_with(ended(job, 1, EffectState::Unknown, JobState::Retrying)).await);
    assert_eq!(begin_within(&fixture, job, 2, &caps).await, GO, "it holds its place");
    assert_eq!(fixture.ledger.cap_used(caps[0].clone(), at(0)).await.unwrap(), 1);
}

pub(crate) async fn what_did_not_happen_gives_its_place_back<D: Driver>() {
    let fixture = open::<D>();
    let caps = [cap("daily", 1, 24 * HOUR)];
    let (first, second, third) = (fixture.job("a").await.id, fixture.job("b").await.id, fixture.job("c").await.id);
    assert_eq!(begin_within(&fixture, first, 1, &caps).await, GO);
    assert!(fixture.settle_with(ended(first, 1, EffectState::NotApplied, JobState::Dead)).await);
    assert_eq!(begin_within(&fixture, second, 1, &caps).await, GO);
    // Nobody knows: the place is taken until somebody does.
    assert!(fixture.settle_with(ended(second, 1, EffectState::Unknown, JobState::Unknown)).await);
    assert_eq!(begin_within(&fixture, third, 1, &caps).await, CappedBeginResult::Refused(0));
    let (actor, reason) = ("ann".to_owned(), "looked".to_owned());
    let resolve = Resolve { job: second, resolution: Resolution::NotHappened, actor, reason, at: at(5) };
    fixture.ledger.resolve(resolve).await.unwrap();
    assert_eq!(begin_within(&fixture, third, 1, &caps).await, GO);
    assert!(fixture.settle_with(ended(third, 1, EffectState::Applied, JobState::Succeeded)).await);
    assert_eq!(begin_within(&fixture, second, 2, &caps).await, CappedBeginResult::Refused(0), "what happened keeps it");
}

pub(crate) async fn a_window_moves_on_and_old_places_are_pruned<D: Driver>() {
    let fixture = open::<D>();
    let caps = [cap("daily", 1, 24 * HOUR)];
    let (first, second) = (fixture.job("a").await.id, fixture.job("b").await.id);
    assert_eq!(begin_within(&fixture, first, 1, &caps).await, GO);
    assert!(fixture.settle_with(ended(first, 1, EffectState::Applied, JobState::Succeeded)).await);
    let later = begin(second, 1).at + 24 * HOUR;
    let early = sluice_ledger::Begin { at: later - Duration::from_millis(1), ..begin(second, 1) };
    assert_eq!(fixture.begin_under(early, &caps).await, CappedBeginResult::Refused(0));
    let due = sluice_ledger::Begin { at: later, ..begin(second, 1) };
    assert_eq!(fixture.begin_under(due, &caps).await, GO);
    let never = Time(0);
    let prune = Prune { bodies_before: never, events_before: never, rows_max: 10, at: later };
    assert_eq!(fixture.ledger.prune(prune.clone()).await.unwrap(), Pruned { rows: 1, more: false });
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 0, more: false });
}

pub(crate) async fn caps_hold_over_a_restart<D: Driver>() {
    let fixture = open::<D>();
    let caps = [cap("daily", 1, 24 * HOUR)];
    let (first, second) = (fixture.job("a").await.id, fixture.job("b").await.id);
    assert_eq!(begin_within(&fixture, first, 1, &caps).await, GO);
    let fixture = fixture.reopen().await;
    assert_eq!(begin_within(&fixture, second, 1, &caps).await, CappedBeginResult::Refused(0));
}

fn skip(job: JobId, n: u32) -> Skip {
    Skip {
        job,
        n,
        fence: fence(1, u32::from(n > 0)),
        step: 0,
        step_id: "send".into(),
        key: effect_key(job),
        class: EffectClass::Blind,
        action: "email.send",
        destination: "mail".into(),
        result: json!({"noop": "refused by policy", "rule": "consent"}),
        at: at(3),
    }
}

pub(crate) async fn an_effect_that_does_not_happen_says_why<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    assert!(fixture.ledger.skip(skip(job, 0)).await.unwrap());
    assert!(
        fixture.ledger.skip(Skip { result: json!({"noop": "other"}), ..skip(job, 0) }).await.unwrap(),
        "a repeat does no harm"
    );
    let effects = fixture.ledger.effects(job).await.unwrap();
    assert_eq!((effects.len(), effects[0].state, effects[0].attempts), (1, EffectState::Skipped, 0));
    assert_eq!(effects[0].result.as_deref(), Some(&json!({"noop": "refused by policy", "rule": "consent"})));
    assert_eq!(fixture.begin(job, 1).await, BeginResult::AlreadyApplied, "it is final");
    assert!(!fixture.ledger.skip(skip(job, 1)).await.unwrap(), "another attempt");
    let older = Skip { fence: fence(2, 1), ..skip(job, 0) };
    assert!(!fixture.ledger.skip(older).await.unwrap(), "another owner");
}

pub(crate) async fn what_was_said_last_about_consent_counts<D: Driver>() {
    let fixture = open::<D>();
    let who = contact("ada@example.com").digest();
    let say = |granted, at| SetConsent { contact: who, purpose: "news".into(), granted, at };
    let ask = || fixture.ledger.contact_facts(who, "email".into(), vec!["news".into(), "sms".into()]);
    assert_eq!(ask().await.unwrap().consent, vec![]);
    for (granted, moment, known) in [(true, 10, true), (false, 20, false), (true, 15, false), (true, 30, true)] {
        fixture.ledger.set_consent(say(granted, at(moment))).await.unwrap();
        assert_eq!(ask().await.unwrap().consent, vec![(Arc::from("news"), known)], "{granted} at {moment}");
    }
}

pub(crate) async fn suppressed_contacts_are_known_and_shown_masked<D: Driver>() {
    let fixture = open::<D>();
    let who = |text: &str| contact(text).digest();
    let suppress = |text: &str, channel: &str| Suppress {
        contacts: vec![(who(text), "a***@example.com".into())],
        channel: channel.into(),
        actor: "ann".into(),
        reason: "asked".into(),
        at: at(1),
    };
    assert_eq!(fixture.ledger.suppress(suppress("ada@example.com", "")).await.unwrap(), 1);
    assert_eq!(fixture.ledger.suppress(suppress("ada@example.com", "")).await.unwrap(), 0);
    assert_eq!(fixture.ledger.suppress(suppress("bob@example.com", "sms")).await.unwrap(), 1);
    let known = async |text: &str, channel: &str| {
        fixture.ledger.contact_facts(who(text), channel.into(), vec![]).await.unwrap() == suppressed(true)
    };
    assert!(known("ada@example.com", "email").await && known("bob@example.com", "sms").await);
    assert!(!known("bob@example.com", "email").await && !known("eve@example.com", "email").await);
    let listed = fixture.ledger.suppressions(PAGE).await.unwrap();
    assert_eq!((listed.len(), listed[0].label.as_str(), listed[0].reason.as_str()), (2, "a***@example.com", "asked"));
    assert_eq!((listed[0].channel.as_str(), listed[1].channel.as_str()), ("sms", ""), "the newest one is first");
    let next = Page { after: Some(listed[0].id), limit: 10 };
    assert_eq!(fixture.ledger.suppressions(next).await.unwrap(), listed[1..]);
    let contacts = vec![who("ada@example.com"), who("eve@example.com")];
    let release =
        Unsuppress { contacts, channel: String::new(), actor: "ann".into(), reason: "back".into(), at: at(2) };
    assert_eq!(fixture.ledger.unsuppress(release).await.unwrap(), 1);
    assert!(!known("ada@example.com", "email").await);
    let audit = fixture.ledger.audit_trail(PAGE).await.unwrap();
    assert_eq!((audit[0].action.as_str(), audit[0].object.as_str()), ("release", "2 contacts"));
}

fn suppressed(suppressed: bool) -> ContactFacts {
    ContactFacts { consent: vec![], suppressed }
}

fn approval_id(job: JobId) -> ApprovalId {
    EffectKey(effect_key(job).0).into()
}

/// Asks, and lets the job wait.
fn ask(job: JobId, n: u32) -> RequestApproval {
    let mut waits = settlement(job, n, JobState::Waiting);
    (waits.effect, waits.attempt, waits.next.due_at) = (None, None, at(1000));
    RequestApproval {
        id: approval_id(job),
        job,
        worker: "crm".into(),
        step_id: "approve".into(),
        title: "Send to Ada?".into(),
        summary: "A cart of 42".into(),
        expires_at: at(100),
        default: Choice::Reject,
        at: at(1),
        waits: Some(waits),
    }
}

/// The same by an owner that has written the job before.
fn ask_again(job: JobId, n: u32) -> RequestApproval {
    let mut request = ask(job, n);
    request.waits.as_mut().unwrap().fence = fence(1, 1);
    request
}

fn decide(jobs: &[JobId], choice: Choice, moment: u32) -> DecideApproval {
    let ids = jobs.iter().map(|job| approval_id(*job)).collect();
    DecideApproval { ids, choice, actor: "ann".into(), reason: "fine".into(), at: at(moment) }
}

pub(crate) async fn a_question_is_asked_once_and_its_job_waits<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    let asked = fixture.ledger.request_approval(ask(job, 0)).await.unwrap().unwrap();
    assert_eq!(
        (asked.state, asked.title.as_str(), asked.summary.as_str()),
        (ApprovalState::Pending, "Send to Ada?", "A cart of 42")
    );
    let waiting = fixture.read(job).await;
    assert_eq!(
        (waiting.state, waiting.due_at, waiting.attempts_total),
        (JobState::Waiting, at(1000), 0),
        "by the steady clock, the approval expires then"
    );
    let again = fixture
        .ledger
        .request_approval(RequestApproval { title: "other".into(), expires_at: at(999), ..ask_again(job, 0) })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(again, asked);
    let moved = fixture.read(job).await.due_at;
    assert_eq!(moved, at(1000 - (999 - 100)), "the recorded approval expires earlier than the repeated request");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.approval(approval_id(job)).await.unwrap(), Some(asked));
}

pub(crate) async fn the_first_answer_counts_and_wakes_the_job<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.request_approval(ask(job, 0)).await.unwrap();
    let unknown = fixture.ledger.decide_approval(decide(&[JobId(99)], Choice::Approve, 5)).await.unwrap();
    assert_eq!(unknown[0].1, Decided::Unknown);
    let first = fixture.ledger.decide_approval(decide(&[job], Choice::Approve, 5)).await.unwrap();
    assert_eq!(first, [(approval_id(job), Decided::Counts(job, "crm".into()))]);
    assert_eq!(fixture.read(job).await.due_at, JobRecord::DUE_AT_ONCE);
    assert_eq!(fixture.ledger.decide_approval(decide(&[job], Choice::Approve, 6)).await.unwrap()[0].1, Decided::Same);
    let other = fixture.ledger.decide_approval(decide(&[job], Choice::Reject, 7)).await.unwrap().remove(0).1;
    let Decided::Conflict(record) = other else { panic!("{other:?}") };
    assert_eq!(
        (record.state, record.decided_by.as_deref(), record.reason.as_deref()),
        (ApprovalState::Approved, Some("ann"), Some("fine"))
    );
    // A later request returns the decision, and the job does not wait.
    let asked = fixture.ledger.request_approval(ask_again(job, 0)).await.unwrap().unwrap();
    assert_eq!((asked.state, fixture.read(job).await.due_at), (ApprovalState::Approved, JobRecord::DUE_AT_ONCE));
    let audit = fixture.ledger.audit_trail(PAGE).await.unwrap();
    assert_eq!((audit[0].action.as_str(), audit[0].actor.as_str(), audit.len()), ("approve", "ann", 1));
}

pub(crate) async fn when_the_time_is_over_the_default_counts<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.request_approval(ask(job, 0)).await.unwrap();
    // Too late, though nobody has written that down yet.
    let late = fixture.ledger.decide_approval(decide(&[job], Choice::Approve, 100)).await.unwrap().remove(0).1;
    let Decided::Conflict(record) = late else { panic!("{late:?}") };
    assert_eq!((record.state, record.decided_by.as_deref()), (ApprovalState::Rejected, Some(EXPIRY)));
    let other = fixture.job("b").await.id;
    fixture.ledger.request_approval(ask(other, 0)).await.unwrap();
    let expiry = DecideApproval { actor: EXPIRY.into(), ..decide(&[other], Choice::Reject, 100) };
    assert_eq!(fixture.ledger.decide_approval(expiry).await.unwrap()[0].1, Decided::Counts(other, "crm".into()));
}

pub(crate) async fn questions_are_listed_newest_first<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = vec![];
    for n in 0..3 {
        let job = fixture.job(&format!("k{n}")).await.id;
        fixture.ledger.request_approval(ask(job, 0)).await.unwrap();
        jobs.push(job);
    }
    fixture.ledger.decide_approval(decide(&jobs[..1], Choice::Approve, 5)).await.unwrap();
    let list = async |filter: ApprovalFilter, page: Page| -> Vec<JobId> {
        fixture.ledger.approvals(filter, page).await.unwrap().into_iter().map(|approval| approval.job).collect()
    };
    let pending = || ApprovalFilter { state: Some(ApprovalState::Pending), ..ApprovalFilter::default() };
    assert_eq!(list(ApprovalFilter::default(), PAGE).await, [jobs[2], jobs[1], jobs[0]]);
    assert_eq!(list(pending(), PAGE).await, [jobs[2], jobs[1]]);
    let newest = fixture.ledger.approvals(pending(), Page { limit: 1, ..PAGE }).await.unwrap();
    assert_eq!(list(pending(), Page { after: Some(newest[0].n), limit: 9 }).await, [jobs[1]]);
    assert_eq!(list(ApprovalFilter { worker: Some("other".into()), ..pending() }, PAGE).await, []);
    assert_eq!(list(ApprovalFilter { asked_before: Some(at(1)), ..pending() }, PAGE).await, []);
}

pub(crate) async fn an_answer_between_asking_and_waiting_is_not_lost<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job("a").await.id;
    fixture.ledger.request_approval(RequestApproval { waits: None, ..ask(job, 0) }).await.unwrap();
    assert_eq!(fixture.read(job).await.state, JobState::Queued, "asked, and not waiting yet");
    fixture.ledger.decide_approval(decide(&[job], Choice::Approve, 5)).await.unwrap();
    let asked = fixture.ledger.request_approval(ask(job, 0)).await.unwrap().unwrap();
    assert_eq!((asked.state, fixture.read(job).await.state), (ApprovalState::Approved, JobState::Queued));
    let dead = fixture.job_that_is("b", JobState::Dead).await.id;
    assert_eq!(fixture.ledger.request_approval(ask(dead, 1)).await.unwrap(), None);
}

pub(crate) async fn safe_mode_begins_and_ends_with_a_line_in_the_audit_trail<D: Driver>() {
    let fixture = open::<D>();
    let set = |worker: Option<&str>, until: Option<u32>| SetSafeMode {
        worker: worker.map(str::to_owned),
        until: until.map(at),
        actor: "ann".into(),
        reason: "holiday".into(),
        at: at(1),
    };
    fixture.ledger.set_safe_mode(set(None, Some(50))).await.unwrap();
    fixture.ledger.set_safe_mode(set(Some("crm"), Some(60))).await.unwrap();
    let fixture = fixture.reopen().await;
    let record = |worker: Option<&str>, until| SafeModeRecord {
        worker: worker.map(str::to_owned),
        at: at(1),
        until: at(until),
        actor: "ann".into(),
        reason: "holiday".into(),
    };
    assert_eq!(fixture.ledger.safe_modes().await.unwrap(), [record(None, 50), record(Some("crm"), 60)]);
    fixture.ledger.set_safe_mode(set(None, None)).await.unwrap();
    fixture.ledger.set_safe_mode(set(None, None)).await.unwrap();
    assert_eq!(fixture.ledger.safe_modes().await.unwrap(), [record(Some("crm"), 60)]);
    let audit = fixture.ledger.audit_trail(PAGE).await.unwrap();
    let lines: Vec<(&str, &str)> = audit.iter().map(|line| (line.action.as_str(), line.object.as_str())).collect();
    assert_eq!(lines, [("safe-mode off", "all"), ("safe-mode on", "worker:crm"), ("safe-mode on", "all")]);
}
