//! What is kept beside the jobs, and what is removed when its time has come.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::ledger_clock::{ClockRecord, Steady};
use sluice_domain::time::Time;
use sluice_ledger::{
    AuditEntry, AuditFilter, ClockConfirmation, DropJobs, KeepClock, NewJob, NewRevision, Page, Pause, PauseRecord,
    Prune, Pruned, RETENTION, Resume,
};

use crate::driver::{Driver, Fixture, at, open};
use crate::fixtures::{DAY, START, event};

fn pause(target: &str, actor: &str, reason: &str, at: Time) -> Pause {
    Pause { target: target.into(), actor: actor.into(), reason: reason.into(), at }
}

pub(crate) async fn a_pause_lasts_over_restarts_until_it_is_resumed<D: Driver>() {
    let fixture = open::<D>();
    fixture.ledger.pause(pause("destination:crm", "ann", "maintenance", at(1))).await.unwrap();
    fixture.ledger.pause(pause("worker:mail", "ann", "wrong text", at(2))).await.unwrap();
    fixture.ledger.pause(pause("destination:crm", "bob", "still", at(3))).await.unwrap();
    let fixture = fixture.reopen().await;
    let crm = PauseRecord { target: "destination:crm".into(), at: at(3), actor: "bob".into(), reason: "still".into() };
    let mail =
        PauseRecord { target: "worker:mail".into(), at: at(2), actor: "ann".into(), reason: "wrong text".into() };
    assert_eq!(fixture.ledger.pauses().await.unwrap(), [crm, mail.clone()]);
    let resume = Resume { target: "destination:crm".into(), actor: "ann".into(), reason: "mended".into(), at: at(4) };
    fixture.ledger.resume(resume).await.unwrap();
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.pauses().await.unwrap(), [mail]);
    let lines = fixture.audit_lines().await;
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2..], ["bob pause destination:crm still", "ann resume destination:crm mended"]);
}

fn revision(hash: &str, files: &str, actor: &str, reason: &str, at: Time) -> NewRevision {
    NewRevision { hash: hash.into(), files: files.into(), actor: actor.into(), reason: reason.into(), at }
}

pub(crate) async fn a_revision_is_kept_as_it_was_first_given<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.revision("r1".into()).await.unwrap(), None);
    fixture.ledger.activate_revision(revision("r1", "[1]", "ann", "", at(1))).await.unwrap();
    fixture.ledger.activate_revision(revision("r1", "[2]", "bob", "", at(2))).await.unwrap();
    fixture.ledger.activate_revision(revision("r2", "[3]", "bob", "slower", at(3))).await.unwrap();
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.revision("r1".into()).await.unwrap().as_deref(), Some("[1]"));
    assert_eq!(fixture.ledger.revision("r2".into()).await.unwrap().as_deref(), Some("[3]"));
    assert_eq!(fixture.audit_lines().await, ["ann configure r1 ", "bob configure r2 slower"]);
}

pub(crate) async fn a_revision_that_comes_back_is_in_force_a_second_time<D: Driver>() {
    let fixture = open::<D>();
    for (hash, second) in [("r1", 1), ("r2", 2), ("r2", 3), ("r1", 4)] {
        fixture.ledger.activate_revision(revision(hash, hash, "ann", "why not", at(second))).await.unwrap();
    }
    let fixture = fixture.reopen().await;
    let all = fixture.ledger.revision_history(Page { after: None, limit: 10 }).await.unwrap();
    let told: Vec<_> = all.iter().map(|line| (line.n, line.hash.as_str(), line.at)).collect();
    assert_eq!(told, [(3, "r1", at(4)), (2, "r2", at(2)), (1, "r1", at(1))]);
    assert_eq!((all[0].actor.as_str(), all[0].reason.as_str()), ("ann", "why not"));
    let older = fixture.ledger.revision_history(Page { after: Some(3), limit: 1 }).await.unwrap();
    assert_eq!(older, all[1..2]);
}

pub(crate) async fn the_audit_trail_is_read_newest_first_page_by_page<D: Driver>() {
    let fixture = open::<D>();
    for n in 1..=5 {
        let (actor, action, detail) = ("ann".into(), "look".into(), "why not".into());
        let entry = AuditEntry { at: at(n), actor, action, object: format!("page {n}"), detail };
        fixture.ledger.audit(entry).await.unwrap();
    }
    let first = fixture.ledger.audit_trail(Page { after: None, limit: 2 }).await.unwrap();
    assert_eq!(first.iter().map(|line| line.object.as_str()).collect::<Vec<_>>(), ["page 5", "page 4"]);
    assert_eq!((first[0].at, first[0].actor.as_str(), first[0].detail.as_str()), (at(5), "ann", "why not"));
    let rest = fixture.ledger.audit_trail(Page { after: Some(first[1].id), limit: 10 }).await.unwrap();
    assert_eq!(rest.iter().map(|line| line.object.as_str()).collect::<Vec<_>>(), ["page 3", "page 2", "page 1"]);
}

/// Long after the start, everything that may go has to go.
fn prune_all(at: Time) -> Prune {
    Prune { bodies_before: at, events_before: at, rows_max: 1000, at }
}

async fn bodies<D: Driver>(fixture: &Fixture<D>, ords: &[i64]) -> Vec<bool> {
    let events = fixture.ledger.events(ords.to_vec()).await.unwrap();
    events.into_iter().map(|(_, body)| body.is_some()).collect()
}

pub(crate) async fn what_is_live_dead_or_parked_is_never_pruned<D: Driver>() {
    let fixture = open::<D>();
    let mut kept = vec![fixture.job("queued").await];
    let running = fixture.job("running").await;
    fixture.begin(running.id, 1).await;
    kept.push(fixture.read(running.id).await);
    for state in [JobState::Retrying, JobState::Waiting, JobState::Dead, JobState::Unknown] {
        kept.push(fixture.job_that_is(state.as_str(), state).await);
    }
    // One finished job does not let go of an event that another one still needs.
    let mut two = event("two jobs");
    two.jobs.push(NewJob::new("mail", "slow"));
    let two = fixture.accept_event(two).await;
    let jobs = fixture.jobs_of(&two).await;
    fixture.attempt(jobs[0].id, 1, JobState::Succeeded).await;
    kept.push(fixture.read(jobs[1].id).await);

    let now = fixture.clock.advance(365 * DAY);
    assert_eq!(fixture.ledger.prune(prune_all(now)).await.unwrap(), Pruned { rows: 0, more: false });
    for job in &kept {
        assert_eq!(fixture.read(job.id).await, *job);
        assert_eq!(bodies(&fixture, &[job.seq]).await, [true], "{}", job.state);
    }
    assert_eq!(fixture.ledger.effects(kept[4].id).await.unwrap().len(), 1);
    assert_eq!(fixture.ledger.attempts(kept[4].id).await.unwrap().len(), 1);
}

pub(crate) async fn finished_events_go_with_everything_that_belongs_to_them<D: Driver>() {
    let fixture = open::<D>();
    let mut gone = Vec::new();
    for state in [JobState::Succeeded, JobState::Noop, JobState::Dead] {
        gone.push(fixture.job_that_is(state.as_str(), state).await);
    }
    let dead = gone[2].id;
    let drop = DropJobs { jobs: vec![dead], actor: "ann".into(), reason: "spam".into(), at: at(9) };
    fixture.ledger.drop_jobs(drop).await.unwrap();
    let stays = fixture.job("queued").await;
    let now = fixture.clock.advance(365 * DAY);
    assert_eq!(fixture.ledger.prune(prune_all(now)).await.unwrap(), Pruned { rows: 7, more: false });
    for job in gone {
        assert_eq!(fixture.ledger.job(job.id).await.unwrap(), None);
        assert!(fixture.ledger.events(vec![job.seq]).await.unwrap().is_empty());
        assert!(fixture.ledger.effects(job.id).await.unwrap().is_empty());
        assert!(fixture.ledger.attempts(job.id).await.unwrap().is_empty());
    }
    assert_eq!(fixture.read(stays.id).await, stays);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 1);
    // A year later its key may be used again.
    let mut again = event("succeeded");
    again.received_at = now;
    fixture.accept_event(again).await;
}

pub(crate) async fn bodies_may_go_before_their_events<D: Driver>() {
    let fixture = open::<D>();
    let old = fixture.job_that_is("old", JobState::Succeeded).await;
    let cut = fixture.clock.advance(DAY);
    let young = fixture.job_that_is("young", JobState::Succeeded).await;
    let prune =
        Prune { bodies_before: cut, events_before: Time(0), rows_max: 100, at: fixture.clock.advance(365 * DAY) };
    assert_eq!(fixture.ledger.prune(prune.clone()).await.unwrap(), Pruned { rows: 1, more: false });
    assert_eq!(bodies(&fixture, &[old.seq, young.seq]).await, [false, true]);
    assert_eq!(
        fixture.ledger.prune(prune).await.unwrap(),
        Pruned { rows: 0, more: false },
        "a second time there is nothing left to do"
    );
}

pub(crate) async fn an_event_stays_while_its_key_is_remembered<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await;
    let day_29 = Time(START.0 + 29 * DAY);
    let prune = Prune { bodies_before: Time(0), events_before: day_29, rows_max: 100, at: day_29 };
    assert_eq!(fixture.ledger.prune(prune.clone()).await.unwrap(), Pruned { rows: 0, more: false });
    assert_eq!(fixture.read(job.id).await, job);
    let day_31 = Time(START.0 + 31 * DAY);
    assert_eq!(fixture.ledger.prune(Prune { at: day_31, ..prune }).await.unwrap(), Pruned { rows: 1, more: false });
}

pub(crate) async fn pruning_goes_slice_by_slice<D: Driver>() {
    let fixture = open::<D>();
    for n in 0..5 {
        fixture.job_that_is(&format!("key {n}"), JobState::Succeeded).await;
    }
    let now = fixture.clock.advance(365 * DAY);
    let slice = Prune { rows_max: 2, ..prune_all(now) };
    let mut left = Vec::new();
    loop {
        let Pruned { more, .. } = fixture.ledger.prune(slice.clone()).await.unwrap();
        left.push(fixture.ledger.event_count().await.unwrap());
        if !more {
            break;
        }
    }
    assert_eq!(left, [3, 1, 0]);
}

pub(crate) async fn pruning_passes_events_that_must_stay_in_bounded_slices<D: Driver>() {
    let fixture = open::<D>();
    for n in 0..300 {
        fixture.job(&format!("live {n}")).await;
    }
    fixture.job_that_is("done", JobState::Succeeded).await;
    let now = fixture.clock.advance(365 * DAY);
    for round in [300, 300] {
        let mut slices = 1;
        while fixture.ledger.prune(Prune { rows_max: 2, ..prune_all(now) }).await.unwrap().more {
            slices += 1;
        }
        assert!(slices < 20, "{slices} slices");
        assert_eq!(fixture.ledger.event_count().await.unwrap(), round, "the whole ledger is walked each time");
    }
}

pub(crate) async fn numbers_of_pruned_jobs_are_not_given_out_again<D: Driver>() {
    let fixture = open::<D>();
    let last = fixture.job_that_is("a", JobState::Succeeded).await;
    let now = fixture.clock.advance(365 * DAY);
    fixture.ledger.prune(prune_all(now)).await.unwrap();
    let fixture = fixture.reopen().await;
    let next = fixture.job("b").await;
    assert_eq!((next.id, next.seq), (JobId(last.id.0 + 1), last.seq + 1));
}

pub(crate) async fn every_pruned_row_is_counted<D: Driver>() {
    let fixture = open::<D>();
    for state in [JobState::Succeeded, JobState::Dead] {
        fixture.job_that_is(state.as_str(), state).await;
    }
    let dead = fixture.job_that_is("kept", JobState::Dead).await;
    let old = vec![JobId(2)];
    let drop = DropJobs { jobs: old, actor: RETENTION.into(), reason: "old".into(), at: at(9) };
    fixture.ledger.drop_jobs(drop).await.unwrap();
    let now = fixture.clock.advance(365 * DAY);
    fixture.ledger.prune(prune_all(now)).await.unwrap();
    let counted: BTreeMap<String, u64> =
        [("attempt", 2), ("body", 2), ("dead_letter", 1), ("effect", 2), ("event", 2), ("job", 2)]
            .map(|(kind, count)| (kind.to_owned(), count))
            .into();
    assert_eq!(fixture.ledger.pruned_totals().await.unwrap(), counted);
    let days = fixture.ledger.source_day_counts(String::new()).await.unwrap();
    assert_eq!(days.iter().map(|day| (day.accepted, day.pruned)).collect::<Vec<_>>(), [(3, 2)]);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 1);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.pruned_totals().await.unwrap(), counted, "also after a restart");
    assert_eq!(fixture.read(dead.id).await, dead);
}

pub(crate) async fn the_clock_is_kept_and_is_not_before_the_newest_event<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.clock().await.unwrap(), None);
    let record = ClockRecord {
        time: at(1),
        steady: Steady { boot: u64::MAX - 3, elapsed: Duration::from_millis(1_234) },
        allowance: Duration::from_secs(60),
        uncounted: Duration::from_secs(5),
        ahead: Duration::from_secs(7),
        scheduled: at(3),
        scheduled_at_boot: at(2),
    };
    fixture.ledger.keep_clock(KeepClock { record, confirmed: None }).await.unwrap();
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.clock().await.unwrap(), Some(record));
    assert!(fixture.audit_lines().await.is_empty(), "a reading is no act of an operator");
    let later = fixture.clock.advance(365 * DAY);
    fixture.job("newer").await;
    assert_eq!(fixture.ledger.clock().await.unwrap().unwrap().time, later);
    let (actor, reason) = ("ann".to_owned(), "it was off".to_owned());
    let confirmed = Some(ClockConfirmation { actor, reason, before: at(1), at: at(2) });
    fixture.ledger.keep_clock(KeepClock { record, confirmed }).await.unwrap();
    let line = format!("ann clock accept clock from {} to {}: it was off", at(1), at(2));
    assert_eq!(fixture.audit_lines().await, [line]);
}

pub(crate) async fn the_audit_trail_is_filtered_and_its_pages_end_in_time<D: Driver>() {
    let fixture = open::<D>();
    for n in 0..6 {
        let actor = if n % 2 == 0 { "ann" } else { "bob" };
        let target = if n < 3 { "destination:crm" } else { "worker:mail" };
        let (actor, target, reason) = (actor.to_owned(), target.to_owned(), String::new());
        let at = fixture.clock.advance(1000);
        match n {
            5 => fixture.ledger.resume(Resume { target, actor, reason, at }).await.unwrap(),
            _ => fixture.ledger.pause(Pause { target, actor, reason, at }).await.unwrap(),
        }
    }
    let ids = async |filter: AuditFilter, page: Page| -> Vec<i64> {
        fixture.ledger.audit_entries(filter, page).await.unwrap().rows.iter().map(|entry| entry.id).collect()
    };
    let (all, any) = (Page { after: None, limit: 10 }, AuditFilter::default());
    let time = |n: i64| Some(Time(START.0 + n * 1000));
    assert_eq!(ids(any.clone(), all).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(ids(AuditFilter { actor: Some("ann".into()), ..any.clone() }, all).await, [5, 3, 1]);
    assert_eq!(ids(AuditFilter { action: Some("resume".into()), ..any.clone() }, all).await, [6]);
    assert_eq!(ids(AuditFilter { object: Some("destination:".into()), ..any.clone() }, all).await, [3, 2, 1]);
    assert_eq!(ids(AuditFilter { object: Some("%".into()), ..any.clone() }, all).await, [0; 0]);
    assert_eq!(ids(AuditFilter { since: time(2), until: time(5), ..any.clone() }, all).await, [4, 3, 2]);
    let by_ann = AuditFilter { actor: Some("ann".into()), ..any.clone() };
    let first = fixture.ledger.audit_entries(by_ann.clone(), Page { after: None, limit: 2 }).await.unwrap();
    assert_eq!(first.next, Some(3));
    let rest = fixture.ledger.audit_entries(by_ann, Page { after: first.next, limit: 2 }).await.unwrap();
    assert_eq!((rest.rows.len(), rest.next), (1, None));
    assert_eq!(ids(any, Page { after: Some(-5), limit: 2 }).await, [0; 0]);
}
