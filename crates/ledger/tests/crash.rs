//! Killed at any moment, the ledger still has every event that it said it had, once.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use sluice_domain::event::EventId;
use sluice_domain::key::KeyDigest;
use sluice_domain::random::Random;
use sluice_ledger::{Acceptance, Ledger, LedgerOptions, NewEvent};

use fixtures::{START, event, root_key};

const KILLS: u64 = 60;
/// Acknowledgements between two kills, at the most.
const ACKNOWLEDGED_MAX: u64 = 2_500;
const SENDERS: u64 = 48;
/// So few that keys are moved out of memory and merged all the time, and so many that the largest merge takes two slices.
const RECENT_KEYS_MAX: usize = 144;
const DIRECTORY: &str = "SLUICE_CRASH_DIRECTORY";
const ROUND: &str = "SLUICE_CRASH_ROUND";

fn options() -> LedgerOptions {
    LedgerOptions { recent_keys_max: Some(RECENT_KEYS_MAX), ..LedgerOptions::quiet(Arc::new(|| START)) }
        .with_root_key(root_key())
}

/// Sends as fast as it can and says so on standard error once it is acknowledged, until somebody kills it.
#[test]
#[ignore = "started by the test that kills it"]
fn sends_until_it_is_killed() {
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
                    let key = format!("{round}.{sender}.{n}");
                    match ledger.accept(about(&key, n)).await.unwrap() {
                        Acceptance::Accepted(accepted) => say(&format!("{key} {}", accepted.id)),
                        _ => panic!("{key} was never sent before"),
                    }
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
    });
}

/// An event about one of many contacts, some of whom have been here before.
fn about(key: &str, n: u64) -> NewEvent {
    let contact = KeyDigest::new("tenant", "contact", &(n % 1_000).to_string());
    NewEvent { contact: Some(contact), ..event(key) }
}

/// One line in one write, which a pipe takes whole or not at all.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Lets a sender run until it has acknowledged so many keys, kills it, and answers with all that it had acknowledged.
fn kill_after(directory: &Path, round: u64, acknowledged: u64) -> Vec<(String, String)> {
    let mut sender = Command::new(std::env::current_exe().unwrap())
        .args(["sends_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sender.stderr.take().unwrap());
    let mut keys = Vec::new();
    let mut line = String::new();
    let mut lines = 0;
    while said.read_line(&mut line).unwrap() > 0 {
        if line.trim_end() != "started" {
            let (key, id) = line.trim_end().split_once(' ').unwrap_or_else(|| panic!("the sender failed: {line}"));
            assert!(id.starts_with("evt_"), "the sender failed: {line}");
            keys.push((key.to_owned(), id.to_owned()));
        }
        if lines == acknowledged {
            // From here on it goes on sending until the signal arrives; what it says meanwhile is read as well.
            sender.kill().unwrap();
        }
        lines += 1;
        line.clear();
    }
    let status = sender.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "it was killed, and not before it was: {status}"
    );
    keys
}

#[test]
fn every_acknowledged_event_survives_being_killed_and_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::seeded(0x51_0c_e5);
    let mut acknowledged = HashMap::new();
    for round in 0..KILLS {
        // Now and then before the first acknowledgement, while it is still opening.
        let after = if round % 5 == 4 { 0 } else { random.below(ACKNOWLEDGED_MAX) };
        for (key, id) in kill_after(directory.path(), round, after) {
            assert_eq!(acknowledged.insert(key, id), None, "acknowledged twice");
        }
    }
    println!("{KILLS} kills, {} keys acknowledged", acknowledged.len());
    assert!(acknowledged.len() as u64 > KILLS * ACKNOWLEDGED_MAX / 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(repeat_all(directory.path(), &acknowledged));
    check_file(directory.path(), &acknowledged);
}

/// Every acknowledged key is recognised, with the id that its sender was told.
async fn repeat_all(directory: &Path, acknowledged: &HashMap<String, String>) {
    let ledger = Ledger::open(directory, options()).unwrap();
    let events = ledger.event_count().await.unwrap();
    let jobs: u64 = ledger.job_counts().await.unwrap().iter().map(|(_, count)| count).sum();
    assert_eq!(events, jobs, "one job for each event");
    assert!(events >= acknowledged.len() as u64);
    assert!(
        events <= acknowledged.len() as u64 + KILLS * SENDERS,
        "only what was under way may be there unacknowledged"
    );
    let mut keys: Vec<_> = acknowledged.iter().collect();
    keys.sort();
    for some in keys.chunks(512) {
        let mut repeats = tokio::task::JoinSet::new();
        for (key, id) in some {
            let (ledger, key, id) = (ledger.clone(), (*key).clone(), (*id).clone());
            repeats.spawn(async move {
                match ledger.accept(event(&key)).await.unwrap() {
                    Acceptance::Duplicate(repeat) => {
                        assert_eq!((repeat.id.to_string(), repeat.key_text, repeat.jobs.len()), (id, key, 1));
                    }
                    _ => panic!("{key} was acknowledged and is gone"),
                }
            });
        }
        while let Some(repeat) = repeats.join_next().await {
            repeat.unwrap();
        }
    }
    assert_eq!(ledger.event_count().await.unwrap(), events);
    ledger.close().await;
}

/// What lies on the disk is whole, and no key has two owners.
fn check_file(directory: &Path, acknowledged: &HashMap<String, String>) {
    let file = rusqlite::Connection::open(directory.join("ledger.db")).unwrap();
    let one = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let mut owners = HashSet::new();
    let mut ids = HashSet::new();
    let mut statement = file.prepare("SELECT key, id FROM event").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, [u8; 16]>(0)?, EventId(row.get(1)?)))).unwrap();
    for (key, id) in rows.map(Result::unwrap) {
        assert!(owners.insert(key), "the key of {id} has two owners");
        ids.insert(id.to_string());
    }
    assert!(acknowledged.values().all(|id| ids.contains(id)));
    assert_eq!(one("SELECT count(*) - count(DISTINCT digest) FROM contact_key"), 0, "a contact has one key");
    assert_eq!(
        one("SELECT count(*) FROM event e LEFT JOIN contact_key c ON c.id = e.contact WHERE c.id IS NULL"),
        0,
        "what was sealed can be opened"
    );
    assert_eq!(one("SELECT count(*) FROM event e LEFT JOIN event_body b ON b.seq = e.seq WHERE b.seq IS NULL"), 0);
    assert_eq!(
        one("SELECT count(*) FROM event e LEFT JOIN job j ON j.seq = e.seq AND j.id = e.first_job WHERE j.id IS NULL"),
        0
    );
    assert_eq!(
        one("SELECT sum(accepted) FROM source_day_count"),
        one("SELECT count(*) FROM event"),
        "counts commit with what they count"
    );
    // Otherwise the kills have not met what they were meant to meet.
    assert!(one("SELECT max(level) FROM key_run") >= 2, "keys were merged twice over");
}
