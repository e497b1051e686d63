//! Killed while quarantined events are released, by later events and by lookups: every event waits, or was released once and whole.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;
use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{
    Correlation, IDENTITY_MISSING, Link, Observation, SuppliedBy, SuppliedIdentity, awaits_identity,
};
use sluice_domain::job::{EffectKey, EffectState, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::random::Random;
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, Accepted, Fence, Identified, IdentifyEvent, Ledger, LedgerOptions, NewEvent, Quarantine, StepResult,
};

use fixtures::{DAY, START, event, root_key};

const KILLS: u64 = 25;
/// Releases that are acknowledged between two kills, at the most.
const RELEASES_MAX: u64 = 300;
const SENDERS: u64 = 24;
const DIRECTORY: &str = "SLUICE_RELEASE_DIRECTORY";
const ROUND: &str = "SLUICE_RELEASE_ROUND";

fn options() -> LedgerOptions {
    LedgerOptions::quiet(Arc::new(|| START)).with_root_key(root_key())
}

fn email(person: &str) -> Identifier {
    Identifier { kind: "email".to_owned(), digest: KeyDigest::new("t", "email", person), single: false }
}

fn said(session: &str, identifiers: Vec<Identifier>) -> Observation {
    let link = Link { digest: KeyDigest::new("t", "session", session), expires_at: Time(START.0 + DAY) };
    let identity = match identifiers.is_empty() {
        true => Default::default(),
        false => json!({ "email": session }).as_object().cloned().unwrap(),
    };
    let correlation = Correlation { links: vec![link], identity, mapping_version: "1".to_owned() };
    let correlation = Some(Box::new(correlation));
    Observation { identifiers, source: "website".into(), received_at: START, correlation, ..Observation::default() }
}

/// An event of this session that identifies nobody; its lookups may.
fn anonymous(session: &str) -> NewEvent {
    let failure = Failure::new(FailureClass::Identity, IDENTITY_MISSING, "no identity");
    let quarantine = Some(Quarantine { failure, looks_up_identity: true });
    let observation = Some(Box::new(said(session, vec![])));
    NewEvent { observation, quarantine, contact: None, ..event(&format!("{session}.anonymous")) }
}

fn identified(session: &str) -> NewEvent {
    let contact = Some(KeyDigest::new("t", "contact:email", session));
    let observation = Some(Box::new(said(session, vec![email(session)])));
    NewEvent { observation, contact, ..event(&format!("{session}.identified")) }
}

async fn accept(ledger: &Ledger, new: NewEvent) -> Accepted {
    match ledger.accept(new).await.unwrap() {
        Acceptance::Accepted(accepted) => accepted,
        other => panic!("never sent before: {other:?}"),
    }
}

/// What a lookup has found for the event.
async fn found(ledger: &Ledger, accepted: &Accepted, session: &str) -> IdentifyEvent {
    let (record, _) = ledger.events(vec![accepted.seq]).await.unwrap().remove(0);
    let job = ledger.jobs_of_event(record).await.unwrap().remove(0);
    let by = SuppliedBy::Enrichment { worker: job.worker.to_string(), step: "person".to_owned() };
    let identity = json!({ "email": session }).as_object().cloned().unwrap();
    let output = StepResult {
        job: job.id,
        n: 0,
        fence: Fence { owner: ledger.term(), expected: job.term },
        step: 0,
        step_id: "person".into(),
        key: EffectKey::new(accepted.id, &job.worker, "person"),
        action: "enrich.http",
        state: EffectState::Applied,
        result: json!({ "found": true, "email": session }),
        warning: None,
        at: START,
    };
    IdentifyEvent {
        seq: accepted.seq,
        observation: said(session, vec![email(session)]),
        supplied: SuppliedIdentity { identity, by, mapping_version: "1".to_owned(), at: START },
        contact: Some(KeyDigest::new("t", "contact:email", session)),
        outputs: vec![output],
    }
}

/// Releases as fast as it can, in turns by a later event and by a lookup, and says so, until it is killed.
#[test]
#[ignore = "started by the test that kills it"]
fn releases_until_it_is_killed() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let round = std::env::var(ROUND).unwrap();
    say("started");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let ledger = Ledger::open(&directory, options()).unwrap();
        let mut senders = tokio::task::JoinSet::new();
        for sender in 0..SENDERS {
            let (ledger, round) = (ledger.clone(), round.clone());
            senders.spawn(async move {
                for n in 0.. {
                    let session = format!("{round}.{sender}.{n}");
                    let accepted = accept(&ledger, anonymous(&session)).await;
                    say(&format!("quarantined {session} {}", accepted.seq));
                    match n % 2 {
                        0 => assert_eq!(accept(&ledger, identified(&session)).await.released, 1),
                        _ => {
                            let identify = found(&ledger, &accepted, &session).await;
                            let done = ledger.identify(identify).await.unwrap();
                            assert!(matches!(done, Identified::Done(_)), "{done:?}");
                        }
                    }
                    say(&format!("released {session} {}", accepted.seq));
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
    });
}

/// One line in one write, which a pipe takes whole or not at all.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Lets it run until it has acknowledged so many releases, and kills it. Answers with what it had said, by session.
fn kill_after(directory: &Path, round: u64, releases: u64) -> Vec<(String, i64, bool)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["releases_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut events, mut released, mut killed) = (std::collections::BTreeMap::new(), 0, false);
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["started"] => {}
            ["quarantined", session, seq] => {
                events.insert(session.to_owned(), (seq.parse::<i64>().unwrap(), false));
            }
            ["released", session, seq] => {
                events.insert(session.to_owned(), (seq.parse().unwrap(), true));
                released += 1;
            }
            _ => panic!("the child failed: {line}"),
        }
        if released >= releases && !killed {
            // From here on it goes on until the signal arrives; what it says meanwhile is read as well.
            child.kill().unwrap();
            killed = true;
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    events.into_iter().map(|(session, (seq, released))| (session, seq, released)).collect()
}

#[test]
fn killed_releases_are_whole_or_have_not_happened() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::seeded(0x1d_e4_71);
    let mut events = Vec::new();
    for round in 0..KILLS {
        let after = if round % 5 == 4 { 0 } else { random.below(RELEASES_MAX) };
        events.extend(kill_after(directory.path(), round, after));
    }
    let acknowledged = events.iter().filter(|(_, _, released)| *released).count();
    println!("{KILLS} kills, {} events quarantined, {acknowledged} releases acknowledged", events.len());
    assert!(acknowledged as u64 > KILLS * RELEASES_MAX / 5);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let ledger = Ledger::open(directory.path(), options()).unwrap();
        let mut waiting = 0;
        for (session, seq, acknowledged) in &events {
            let released = check(&ledger, session, *seq).await;
            assert!(released || !acknowledged, "{session} was acknowledged as released");
            if !released {
                waiting += 1;
                // Nothing is lost: it is released now, once.
                assert_eq!(
                    accept(&ledger, NewEvent { key: KeyDigest::new("t", "late", session), ..identified(session) })
                        .await
                        .released,
                    1
                );
                assert!(check(&ledger, session, *seq).await);
            }
        }
        println!("{waiting} events were still waiting");
        // What was accepted without an acknowledgement may wait; of the others nothing is left.
        let due = ledger.due_identity_lookups(Time(i64::MAX), u32::MAX).await.unwrap();
        assert!(due.len() as u64 <= KILLS * SENDERS, "{}", due.len());
        assert!(!due.iter().any(|(due, _)| events.iter().any(|(_, seq, _)| seq == due)));
        ledger.close().await;
    });
}

/// Whether the event was released; everything that belongs to it is there, or nothing.
async fn check(ledger: &Ledger, session: &str, seq: i64) -> bool {
    let (record, body) = ledger.events(vec![seq]).await.unwrap().remove(0);
    let job = ledger.jobs_of_event(record).await.unwrap().remove(0);
    let identity = ledger.event_identity(seq).await.unwrap();
    let effects = ledger.effects(job.id).await.unwrap();
    let Some(supplied) = identity.supplied.and_then(|record| record.supplied) else {
        assert!(awaits_identity(&job) && effects.is_empty(), "{session}: {job:?}");
        assert!(identity.waits_until.is_some() && identity.lookup.is_some(), "{session} waits");
        return false;
    };
    assert_eq!((job.state, job.replays, identity.lookup), (JobState::Queued, 1, None), "{session}");
    let by_lookup = matches!(supplied.by, SuppliedBy::Enrichment { .. });
    assert_eq!(effects.len(), usize::from(by_lookup), "{session}: the output is recorded with the release");
    assert!(body.unwrap().normalized.contains("\"identity\""), "{session}: its runs see the identity");
    let contacts = ledger.find_contacts(vec![email(session).digest]).await.unwrap();
    let events = ledger.contact_events(contacts[0], sluice_ledger::Page { after: None, limit: 10 }).await.unwrap();
    assert!(events.contains(&seq), "{session} belongs to its contact");
    true
}
