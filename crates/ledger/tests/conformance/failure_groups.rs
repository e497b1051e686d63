//! Failure groups follow every dead letter, and keep what operators said.

use sluice_domain::failure_group::{EMPTY_KEPT, FailureGroup, GroupId, GroupState};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_ledger::{
    DropJobs, GroupQuery, JobUpdate, MarkGroup, MarkedGroup, NewEvent, NewJob, Prune, Quarantine, Replay, Settlement,
};

use crate::driver::{Driver, Fixture, at, open, settlement};
use crate::fixtures::{DAY, START, event};

fn all() -> GroupQuery {
    GroupQuery { limit: 100, ..GroupQuery::default() }
}

async fn groups<D: Driver>(fixture: &Fixture<D>) -> Vec<FailureGroup> {
    fixture.ledger.failure_groups(all()).await.unwrap()
}

/// Code, state, dead letters now and ever.
async fn shown<D: Driver>(fixture: &Fixture<D>) -> Vec<(String, GroupState, u64, u64)> {
    let shown = |group: FailureGroup| (group.key.code.to_string(), group.state, group.count, group.total);
    groups(fixture).await.into_iter().map(shown).collect()
}

/// A job that dies in its attempt `n`, with this code.
async fn die<D: Driver>(fixture: &Fixture<D>, job: JobId, n: u32, code: &str) {
    fixture.begin(job, n).await;
    let settlement = settlement(job, n, JobState::Dead);
    let failure = Some(Failure::new(FailureClass::Permanent, code, "what the destination said"));
    let next = JobUpdate { failure, ..settlement.next.clone() };
    assert!(fixture.settle_with(Settlement { next, ..settlement }).await);
}

fn mark(group: GroupId, state: GroupState) -> MarkGroup {
    MarkGroup { group, state, actor: "ann".into(), reason: "the field is longer now".into(), at: at(100) }
}

fn replay(jobs: &[JobId]) -> Replay {
    Replay { jobs: jobs.to_vec(), actor: "ann".into(), reason: "fixed".into(), revision: None, at: at(50) }
}

pub(crate) async fn dead_letters_are_grouped_by_why_they_died<D: Driver>() {
    let fixture = open::<D>();
    assert!(groups(&fixture).await.is_empty());
    let jobs = [fixture.job("a").await.id, fixture.job("b").await.id, fixture.job("c").await.id];
    die(&fixture, jobs[0], 1, "TOO_LONG").await;
    die(&fixture, jobs[1], 1, "NO_FIELD").await;
    assert_eq!(shown(&fixture).await[0].0, "NO_FIELD", "the newest of one time is first");
    fixture.attempt(jobs[2], 1, JobState::Retrying).await;
    die(&fixture, jobs[2], 2, "TOO_LONG").await;
    let open = GroupState::Open;
    let expected = [("TOO_LONG".to_owned(), open, 2, 2), ("NO_FIELD".to_owned(), open, 1, 1)];
    assert_eq!(shown(&fixture).await, expected);
    let fixture = fixture.reopen().await;
    assert_eq!(shown(&fixture).await, expected);
    let group = groups(&fixture).await.remove(0);
    assert_eq!((&*group.key.worker, group.key.class, group.last_job), ("crm", "permanent", jobs[2]));
    assert!(group.first_at < group.last_at);
    assert_eq!(fixture.ledger.failure_group(group.id).await.unwrap(), Some(group));
    assert_eq!(fixture.ledger.failure_group(GroupId(99)).await.unwrap(), None);
    assert_eq!(fixture.ledger.failure_group_counts().await.unwrap(), [(open, 2)]);
}

pub(crate) async fn a_group_follows_replays_drops_and_unknown_outcomes<D: Driver>() {
    let fixture = open::<D>();
    let jobs = [fixture.job("a").await.id, fixture.job("b").await.id, fixture.job("c").await.id];
    for job in jobs {
        die(&fixture, job, 1, "TOO_LONG").await;
    }
    fixture.ledger.replay(replay(&jobs[..2])).await.unwrap();
    fixture.ledger.replay(replay(&jobs[..2])).await.unwrap();
    assert_eq!(shown(&fixture).await, [("TOO_LONG".to_owned(), GroupState::Open, 1, 3)]);
    die(&fixture, jobs[0], 2, "NO_FIELD").await;
    fixture.attempt(jobs[1], 2, JobState::Unknown).await;
    let drop = DropJobs { jobs: jobs.to_vec(), actor: "ann".into(), reason: "spam".into(), at: at(60) };
    fixture.ledger.drop_jobs(drop.clone()).await.unwrap();
    fixture.ledger.drop_jobs(drop).await.unwrap();
    let mut found = shown(&fixture).await;
    found.sort();
    let expected = [("NO_FIELD".to_owned(), GroupState::Open, 0, 1), ("TOO_LONG".to_owned(), GroupState::Open, 0, 3)];
    assert_eq!(found, expected, "an unknown outcome is not a dead letter");
    assert!(fixture.ledger.failure_group_counts().await.unwrap().is_empty());
    let with_dead_letters = GroupQuery { with_dead_letters: true, ..all() };
    assert!(fixture.ledger.failure_groups(with_dead_letters).await.unwrap().is_empty());
}

pub(crate) async fn a_quarantined_event_is_in_a_group_until_it_is_replayed<D: Driver>() {
    let fixture = open::<D>();
    let failure = Failure::new(FailureClass::Mapping, "schema", "email: is missing");
    let jobs = vec![NewJob::new("crm", "default"), NewJob::new("mail", "default")];
    let quarantined = NewEvent { quarantine: Some(Quarantine::new(failure)), jobs, ..event("a") };
    let accepted = fixture.accept_event(quarantined).await;
    let mut workers: Vec<String> = groups(&fixture).await.iter().map(|group| group.key.worker.to_string()).collect();
    workers.sort();
    assert_eq!(workers, ["crm", "mail"]);
    let crm = fixture.jobs_of(&accepted).await.remove(0);
    fixture.ledger.replay(replay(&[crm.id])).await.unwrap();
    assert_eq!(fixture.ledger.failure_group_counts().await.unwrap(), [(GroupState::Open, 1)]);
    let of_crm = GroupQuery { worker: Some("crm".into()), ..all() };
    let found = fixture.ledger.failure_groups(of_crm).await.unwrap();
    assert_eq!((found.len(), found[0].count, found[0].first_at), (1, 0, START));
}

pub(crate) async fn a_resolved_group_opens_again_by_itself<D: Driver>() {
    let fixture = open::<D>();
    let jobs = [fixture.job("a").await.id, fixture.job("b").await.id];
    die(&fixture, jobs[0], 1, "TOO_LONG").await;
    let id = groups(&fixture).await[0].id;
    let MarkedGroup::Done(group) = fixture.ledger.mark_group(mark(id, GroupState::Acknowledged)).await.unwrap() else {
        panic!("it can be acknowledged");
    };
    assert_eq!((group.state, group.actor.as_str(), group.changed_at), (GroupState::Acknowledged, "ann", at(100)));
    let resolved = fixture.ledger.mark_group(mark(id, GroupState::Resolved)).await.unwrap();
    assert!(matches!(resolved, MarkedGroup::Done(_)), "{resolved:?}");
    let refused = fixture.ledger.mark_group(mark(id, GroupState::Acknowledged)).await.unwrap();
    assert_eq!(refused, MarkedGroup::Refused(GroupState::Resolved));
    let absent = fixture.ledger.mark_group(mark(GroupId(99), GroupState::Resolved)).await.unwrap();
    assert_eq!(absent, MarkedGroup::NotFound);
    let fixture = fixture.reopen().await;
    assert_eq!(shown(&fixture).await, [("TOO_LONG".to_owned(), GroupState::Resolved, 1, 1)]);
    die(&fixture, jobs[1], 1, "TOO_LONG").await;
    let group = groups(&fixture).await.remove(0);
    assert_eq!((group.state, group.actor.as_str(), group.count), (GroupState::Open, "", 2));
    let lines = fixture.audit_lines().await;
    let expected =
        [format!("ann acknowledge {id} the field is longer now"), format!("ann resolve {id} the field is longer now")];
    assert_eq!(lines, expected);
}

pub(crate) async fn groups_are_read_page_by_page_and_empty_ones_expire<D: Driver>() {
    let fixture = open::<D>();
    for n in 0..5 {
        let job = fixture.job(&format!("event {n}")).await.id;
        die(&fixture, job, 1, &format!("CODE_{n}")).await;
    }
    let mut found: Vec<String> = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.ledger.failure_groups(GroupQuery { after, limit: 2, ..all() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.last_at, last.id));
        found.extend(page.iter().map(|group| group.key.code.to_string()));
    }
    assert_eq!(found, ["CODE_4", "CODE_3", "CODE_2", "CODE_1", "CODE_0"]);
    let by_code = GroupQuery { code: Some("CODE_3".into()), state: Some(GroupState::Open), ..all() };
    assert_eq!(fixture.ledger.failure_groups(by_code).await.unwrap().len(), 1);
    let ids: Vec<JobId> = groups(&fixture).await.iter().map(|group| group.last_job).collect();
    fixture.ledger.replay(replay(&ids[..2])).await.unwrap();
    let now = fixture.clock.advance(i64::try_from(EMPTY_KEPT.as_millis()).unwrap() + DAY);
    let prune = Prune { bodies_before: START, events_before: START, rows_max: 100, at: now };
    fixture.ledger.prune(prune).await.unwrap();
    let left: Vec<String> = groups(&fixture).await.iter().map(|group| group.key.code.to_string()).collect();
    assert_eq!(left, ["CODE_2", "CODE_1", "CODE_0"], "groups with dead letters stay");
    assert_eq!(fixture.ledger.pruned_totals().await.unwrap().get("failure_group"), Some(&2));
}
