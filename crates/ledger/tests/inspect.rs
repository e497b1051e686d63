//! Inspection of a ledger, intact and tampered with.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;

use sluice_domain::job::{EffectKey, JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, Begin, ChargeResult, Inspector, InvariantViolation, Ledger, LedgerOptions, NewEvent, NewRevision,
    Prune, Pruned,
};

use fixtures::{START, alone, event, fence, root_key, settled};

/// With the root key, so that MACs are compared.
fn inspector(directory: &Path) -> Inspector {
    Inspector::open(directory).unwrap().with_root_key(root_key()).unwrap()
}

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
        identity: None,
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
    let mut settlement = settled(id, effect, state);
    let result = Some(Arc::new(serde_json::json!({ "key": key })));
    (settlement.next.result, settlement.effect.as_mut().unwrap().result) = (result.clone(), result);
    assert_eq!(ledger.settle(alone(settlement)).await.unwrap(), ChargeResult::Settled);
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
async fn intact_ledger_verifies_during_and_after_use() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let mut heard = Vec::new();
    let found = inspector(directory.path()).verify(|done, total| heard.push((done, total))).unwrap();
    assert_eq!((found.broken, found.events, found.jobs), (vec![], 9, 8));
    assert!(heard.last().is_some_and(|(done, total)| done == total), "{heard:?}");
    ledger.close().await;
    assert_eq!(inspector(directory.path()).verify(|_, _| {}).unwrap().broken, []);
}

#[tokio::test]
async fn a_row_that_violates_an_invariant_is_named() {
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
            "on 2026-03-01 the source website has 9 events, 0 were counted as accepted and 0 as pruned",
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
        let broken = inspector(directory.path()).verify(|_, _| {}).unwrap().broken;
        let found = broken.iter().find(|broken| broken.number == number && broken.row == named);
        assert!(found.is_some(), "{touch}: {broken:?}");
    }
}

/// Applies SQL to a filled ledger and returns what `verify` finds.
async fn tampered(sql: &str) -> Vec<InvariantViolation> {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await.close().await;
    rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap().execute_batch(sql).unwrap();
    inspector(directory.path()).verify(|_, _| {}).unwrap().broken
}

#[tokio::test]
async fn a_row_that_was_altered_or_deleted_is_named() {
    const ALTERED_JOB: &str = "job_1 was altered: its identity, its result or its counts";
    for (sql, number, row) in [
        ("DELETE FROM effect WHERE job = 1", 37, "job_1 counts 1 effects, and has 0"),
        ("DELETE FROM attempt WHERE job = 1", 37, "job_1 counts 1 attempts, and has 0"),
        ("DELETE FROM effect WHERE job = 1; UPDATE job SET effect_rows = 0 WHERE id = 1", 39, ALTERED_JOB),
        ("DELETE FROM attempt WHERE job = 1; UPDATE job SET attempt_rows = 0 WHERE id = 1", 39, ALTERED_JOB),
        ("UPDATE effect SET destination = 'other' WHERE job = 2", 39, "the effect `create` of job_2 was altered"),
        ("UPDATE effect SET last_at = 1, mac = NULL WHERE job = 2", 39, "the effect `create` of job_2 was altered"),
        ("UPDATE attempt SET outcome = 'noop' WHERE job = 3", 39, "attempt 1 of job_3 was altered"),
        (
            "UPDATE attempt SET message = (SELECT message FROM attempt WHERE job = 7) WHERE job = 6",
            39,
            "attempt 1 of job_6 was altered",
        ),
        (
            "UPDATE effect SET result = (SELECT f.result FROM effect f WHERE f.job = 2) WHERE job = 1",
            39,
            "the effect `create` of job_1 was altered",
        ),
        ("UPDATE job SET result = (SELECT j.result FROM job j WHERE j.id = 2) WHERE id = 1", 39, ALTERED_JOB),
        ("UPDATE job SET worker = 'other' WHERE id = 1", 39, ALTERED_JOB),
        ("UPDATE effect SET mac = x'00' WHERE job = 2", 39, "the effect `create` of job_2 was altered"),
        (
            "UPDATE effect SET key = x'00' WHERE job = 2",
            39,
            "a row of job_2 was altered: its column `key` cannot be read",
        ),
        (
            "UPDATE attempt SET term = -1 WHERE job = 2",
            39,
            "a row of job_2 was altered: its column `term` cannot be read",
        ),
        ("DELETE FROM event_body WHERE seq = 1", 39, "event 1 has lost its body"),
        (
            "DELETE FROM event_body WHERE seq = 1; UPDATE event SET body_pruned = zeroblob(16) WHERE seq = 1",
            39,
            "event 1 has lost its body",
        ),
        ("UPDATE job SET effect_rows = 0, attempt_rows = 0, result = NULL, mac = NULL WHERE id = 1", 39, ALTERED_JOB),
        (
            "UPDATE event_body SET sealed = (SELECT b.sealed FROM event_body b WHERE b.seq = 2) WHERE seq = 1",
            39,
            "the body of event 1 was altered",
        ),
        (
            "UPDATE event_body SET sealed = zeroblob(length(sealed)) WHERE seq = 3",
            39,
            "the body of event 3 was altered",
        ),
        (
            "UPDATE job_total SET count = count + 1 WHERE state = 8",
            38,
            "6 jobs of worker crm for destination `` are counted in state 8, and there are 5",
        ),
        (
            "UPDATE failure_group SET count = 2, total = 2",
            38,
            "2 dead letters of worker crm are counted with the failure permanent no-such-field, and there are 1",
        ),
        (
            "DELETE FROM failure_group",
            38,
            "0 dead letters of worker crm are counted with the failure permanent no-such-field, and there are 1",
        ),
        ("INSERT INTO deferred VALUES (8, 'crm', 'crm', 7, 0)", 38, "job_8 is in state 0, and is listed as deferred"),
        (
            "UPDATE pruned_total SET count = 1 WHERE kind = 'event'",
            38,
            "by the counts of sources 0 events were pruned, and by the total 1",
        ),
    ] {
        let broken = tampered(sql).await;
        let found = broken.iter().any(|violation| violation.number == number && violation.row == row);
        assert!(found, "{sql}: {broken:?}");
    }
}

#[tokio::test]
async fn a_pruned_body_and_a_destroyed_contact_key_are_no_violations() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let personal = NewEvent { contact: Some(KeyDigest([7; 16])), ..event("personal") };
    ledger.accept(personal).await.unwrap();
    let prune = Prune { bodies_before: Time::NEVER, events_before: Time(0), rows_max: 100, at: START };
    assert_eq!(ledger.prune(prune).await.unwrap(), Pruned { rows: 6, more: false });
    ledger.close().await;
    assert_eq!(inspector(directory.path()).verify(|_, _| {}).unwrap().broken, []);
    let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
    file.execute_batch("UPDATE contact_key SET wrapped = NULL").unwrap();
    assert_eq!(inspector(directory.path()).verify(|_, _| {}).unwrap().broken, []);
}

#[tokio::test]
async fn keys_that_are_rotated_during_an_inspection_are_no_violations() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let inspector = inspector(directory.path());
    ledger.rotate_tenant("ann".into(), START).await.unwrap();
    ledger.accept(event("sealed with the new key")).await.unwrap();
    while ledger.rewrap_contacts(100, START).await.unwrap() > 0 {}
    assert_eq!(inspector.verify(|_, _| {}).unwrap().broken, []);
}

#[tokio::test]
async fn every_accepted_event_is_accounted_for_and_missing_ones_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let lines = Inspector::open(directory.path()).unwrap().balance(START).unwrap();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.day.as_str(), line.source.as_str()), ("2026-03-01", "website"));
    assert_eq!((line.accepted, line.duplicate, line.done, line.noop), (9, 1, 5, 1));
    assert_eq!((line.dead, line.waiting, line.unknown, line.dropped, line.remainder), (1, 1, 1, 0, 0));
    ledger.close().await;
    let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
    file.execute_batch("DELETE FROM event WHERE seq = 2").unwrap();
    let lines = Inspector::open(directory.path()).unwrap().balance(START).unwrap();
    assert_eq!((lines[0].done, lines[0].remainder), (4, 1));
}

#[tokio::test]
async fn every_call_is_listed_with_its_outcome() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path()).await.close().await;
    let calls = Inspector::open(directory.path()).unwrap().calls().unwrap();
    let found: Vec<(i64, u32, &str)> = calls.iter().map(|call| (call.job.0, call.n, call.outcome.as_str())).collect();
    let done = (1..=5).map(|job| (job, 1, "done"));
    assert_eq!(found, done.chain([(6, 1, "reject"), (7, 1, "reject")]).collect::<Vec<_>>(), "a queued job has none");
}

#[tokio::test]
async fn rows_that_vanished_without_being_pruned_are_noticed() {
    for (touch, named) in [
        (
            "DELETE FROM event WHERE seq = 9",
            "on 2026-03-01 the source website has 8 events, 9 were counted as accepted and 0 as pruned",
        ),
        (
            "DELETE FROM job WHERE id = 8; UPDATE event SET jobs = 0 WHERE seq = 8; INSERT INTO meta VALUES ('last_job', 8)",
            "8 jobs were numbered, 0 were pruned, and there are 7",
        ),
        (
            "INSERT INTO audit (at, actor, action, object, detail) VALUES (0, 'retention', 'drop', 'job_1', '')",
            "the audit trail has 1 dead letters that retention dropped, and 0 were counted",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path()).await.close().await;
        rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap().execute_batch(touch).unwrap();
        let broken = inspector(directory.path()).verify(|_, _| {}).unwrap().broken;
        assert!(broken.iter().any(|broken| broken.row == named), "{touch}: {broken:?}");
    }
}

#[tokio::test]
async fn pruned_events_are_accounted_for() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = filled(directory.path()).await;
    let later = Time(START.0 + 365 * 86_400_000);
    let prune = Prune { bodies_before: later, events_before: later, rows_max: 1_000, at: later };
    ledger.prune(prune).await.unwrap();
    let found = inspector(directory.path()).verify(|_, _| {}).unwrap();
    assert_eq!(found.broken, []);
    assert_eq!((found.pruned["event"], found.pruned["job"]), (6, 5));
    let lines = inspector(directory.path()).balance(START).unwrap();
    assert_eq!(lines.iter().map(|line| (line.pruned, line.remainder)).collect::<Vec<_>>(), [(6, 0)]);
    ledger.close().await;
}
