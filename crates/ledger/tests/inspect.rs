//! A ledger looked at from outside, whole and tampered with.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;

use sluice_domain::job::{EffectKey, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_ledger::{Acceptance, Begin, ChargeResult, Inspector, Ledger, LedgerOptions, NewRevision};

use fixtures::{START, alone, event, fence, root_key, settled};

fn open(directory: &Path) -> Ledger {
    Ledger::open(directory, LedgerOptions::quiet(Arc::new(|| START)).with_root_key(root_key())).unwrap()
}

/// One attempt at the only step of a new job.
async fn job(ledger: &Ledger, key: &str, state: JobState) -> JobId {
    let Acceptance::Accepted(accepted) = ledger.accept(event(key)).await.unwrap() else { panic!("{key} is a repeat") };
    let id = JobId(accepted.seq);
    if state == JobState::Queued {
        return id;
    }
    let effect = EffectKey::new(accepted.id, "crm", "create");
    let begin = Begin {
        job: id,
        n: 1,
        fence: fence(1, 0),
        step: 0,
        step_id: "create".into(),
        key: effect,
        class: EffectClass::Keyed,
        action: "http.post",
        destination: "crm".into(),
        at: START,
    };
    ledger.begin(begin, vec![]).await.unwrap();
    assert_eq!(ledger.settle(alone(settled(id, effect, state))).await.unwrap(), ChargeResult::Settled);
    id
}

/// Some of everything.
async fn filled(directory: &Path) -> Ledger {
    let ledger = open(directory);
    let (actor, reason) = ("ann".to_owned(), String::new());
    let revision = NewRevision { hash: "r1".into(), files: "[]".into(), actor, reason, at: START };
    ledger.activate_revision(revision).await.unwrap();
    for n in 0..5 {
        job(&ledger, &format!("done {n}"), JobState::Succeeded).await;
    }
    job(&ledger, "dead", JobState::Dead).await;
    job(&ledger, "unknown", JobState::Unknown).await;
    job(&ledger, "queued", JobState::Queued).await;
    ledger.accept(event("queued")).await.unwrap();
    let mut nothing = event("nothing to do");
    nothing.jobs.clear();
    ledger.accept(nothing).await.unwrap();
    ledger
}

#[tokio::test]
async fn a_ledger_is_whole_while_it_is_in_use_and_after() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let mut heard = Vec::new();
    let found = Inspector::open(directory.path()).unwrap().verify(|done, total| heard.push((done, total))).unwrap();
    assert_eq!((found.broken, found.events, found.jobs), (vec![], 9, 8));
    assert!(heard.last().is_some_and(|(done, total)| done == total), "{heard:?}");
    ledger.close().await;
    assert_eq!(Inspector::open(directory.path()).unwrap().verify(|_, _| {}).unwrap().broken, []);
}

#[tokio::test]
async fn a_row_that_somebody_touched_is_named() {
    for (touch, number, named) in [
        ("DELETE FROM job WHERE id = 3", 2, "event 3 says that it has 1 jobs, and has 0"),
        ("UPDATE job SET seq = 999 WHERE id = 4", 2, "event 4 says that it has 1 jobs, and has 0"),
        ("UPDATE job SET state = 7 WHERE id = 2", 36, "job_2 is in state 7, and has an end"),
        ("UPDATE job SET failure = NULL WHERE id = 6", 21, "job_6 is a dead letter without a reason"),
        (
            "UPDATE effect SET n = 9 WHERE job = 1",
            22,
            "the effect `create` of job_1 is of try 9, and the job is at try 1",
        ),
        (
            "UPDATE effect SET state = 'intent' WHERE job = 1",
            9,
            "the effect `create` of job_1 is intent, and the job is not under way",
        ),
        (
            "UPDATE effect SET step_id = 'other' WHERE job = 1",
            14,
            "the effect `other` of job_1 has another key than it must",
        ),
        (
            "UPDATE event SET id = (SELECT id FROM event WHERE seq = 1) WHERE seq = 9",
            3,
            "the events 1 and 9 have one name",
        ),
        ("DELETE FROM event_body WHERE seq = 8", 20, "event 8 has no body, and one of its jobs is alive"),
        (
            "DELETE FROM source_day_count",
            20,
            "on 2026-03-01 the source website has 9 events, and 0 were counted as accepted",
        ),
        ("DELETE FROM revision", 29, "event 1 was accepted under the revision r1, which is not kept"),
        (
            "INSERT INTO attempt (job, n, seq, step_id, kind, started_at, ended_at, outcome) VALUES (1, 2, 0, 'create', 'call', 0, 0, 'done')",
            12,
            "the effect `create` of job_1 was applied at try 1 and called again at try 2",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path()).await.close().await;
        let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
        file.execute_batch(touch).unwrap();
        let broken = Inspector::open(directory.path()).unwrap().verify(|_, _| {}).unwrap().broken;
        let found = broken.iter().find(|broken| broken.number == number && broken.row == named);
        assert!(found.is_some(), "{touch}: {broken:?}");
    }
}

#[tokio::test]
async fn the_books_balance_and_what_is_missing_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let lines = Inspector::open(directory.path()).unwrap().balance(START).unwrap();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.day.as_str(), line.source.as_str()), ("2026-03-01", "website"));
    assert_eq!((line.accepted, line.duplicate, line.done, line.noop), (10, 1, 5, 1));
    assert_eq!((line.dead, line.waiting, line.unknown, line.dropped, line.remainder), (1, 1, 1, 0, 0));
    ledger.close().await;
    let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
    file.execute_batch("DELETE FROM event WHERE seq = 2").unwrap();
    let lines = Inspector::open(directory.path()).unwrap().balance(START).unwrap();
    assert_eq!((lines[0].done, lines[0].remainder), (4, 1));
}

#[tokio::test]
async fn every_try_is_told_with_what_came_of_it() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await.close().await;
    let tries = Inspector::open(directory.path()).unwrap().tries().unwrap();
    let told: Vec<(i64, u32, &str)> =
        tries.iter().map(|tried| (tried.job.0, tried.n, tried.outcome.as_str())).collect();
    let done = (1..=5).map(|job| (job, 1, "done"));
    assert_eq!(told, done.chain([(6, 1, "reject"), (7, 1, "reject")]).collect::<Vec<_>>(), "what is queued has none");
}
