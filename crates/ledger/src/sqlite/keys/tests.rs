use std::collections::HashMap;

use super::*;
use sluice_domain::random::Random;

fn open() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("../sql/0001_ledger.sql")).unwrap();
    connection
}

fn tend(keys: &mut Keys, connection: &Connection, now: Time) {
    while keys.wants_tending(now) {
        keys.tend(connection, now).unwrap();
    }
}

#[test]
fn every_key_is_found_wherever_it_lies_and_no_other_is() {
    let connection = open();
    let mut keys = Keys::load(&connection, 500).unwrap();
    let mut random = Random::seeded(11);
    let mut truth: HashMap<u64, Vec<i64>> = HashMap::new();
    for ord in 1..=60_000i64 {
        // Now and then the same prefix again: a later generation of a key.
        let prefix = if ord % 97 == 0 { *truth.keys().next().unwrap() } else { random.next_u64() };
        keys.insert(prefix, ord, Time(1_000_000));
        truth.entry(prefix).or_default().push(ord);
        if ord % 500 == 0 {
            for _ in 0..random.below(4) {
                keys.tend(&connection, Time(0)).unwrap();
            }
        }
        if ord % 7_001 == 0 {
            for (prefix, ords) in truth.iter().take(300) {
                assert_eq!(&keys.candidates(&connection, *prefix).unwrap(), ords);
            }
        }
    }
    tend(&mut keys, &connection, Time(0));
    for (prefix, ords) in &truth {
        assert_eq!(&keys.candidates(&connection, *prefix).unwrap(), ords);
    }
    for _ in 0..10_000 {
        assert!(keys.candidates(&connection, random.next_u64()).unwrap().is_empty());
    }
    assert!(keys.runs.len() < 2 * MERGE_RUNS + 3, "{} runs", keys.runs.len());
    assert!(keys.recent_len() < 500);
    let again = Run::load(&connection).unwrap();
    assert_eq!(again.len(), keys.runs.len());
    let mut found = Vec::new();
    let (prefix, ords) = truth.iter().next().unwrap();
    again.iter().for_each(|run| run.find(&connection, *prefix, &mut found).unwrap());
    assert!(found.iter().all(|ord| ords.contains(ord)));
}

#[test]
fn a_run_whose_keys_have_expired_is_dropped_whole() {
    let connection = open();
    let mut keys = Keys::load(&connection, 100).unwrap();
    for n in 0..100u64 {
        keys.insert(n << 50, n as i64 + 1, Time(5_000));
    }
    tend(&mut keys, &connection, Time(0));
    assert_eq!(keys.candidates(&connection, 7 << 50).unwrap(), [8]);
    tend(&mut keys, &connection, Time(5_001));
    assert!(keys.candidates(&connection, 7 << 50).unwrap().is_empty());
    let pages: i64 = connection.query_row("SELECT count(*) FROM key_page", [], |row| row.get(0)).unwrap();
    assert_eq!(pages, 0);
}

#[test]
fn pages_of_a_run_that_was_never_finished_are_swept_away() {
    let connection = open();
    let mut keys = Keys::load(&connection, 20_000).unwrap();
    for n in 0..20_000u64 {
        keys.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n as i64, Time(1));
    }
    keys.tend(&connection, Time(0)).unwrap();
    let count = || connection.query_row("SELECT count(*) FROM key_page", [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(count() > 0);
    let keys = Keys::load(&connection, 20_000).unwrap();
    assert_eq!((count(), keys.runs.len()), (0, 0));
}

#[test]
fn a_rolled_back_key_is_forgotten() {
    let connection = open();
    let mut keys = Keys::load(&connection, 1_000).unwrap();
    keys.insert(5, 1, Time(9));
    keys.insert(5, 2, Time(9));
    keys.forget(5, 2);
    assert_eq!(keys.candidates(&connection, 5).unwrap(), [1]);
    keys.forget(5, 1);
    assert!(keys.candidates(&connection, 5).unwrap().is_empty());
}
