use std::collections::HashMap;

use super::*;
use sluice_domain::random::Random;

fn open() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    crate::sqlite::MIGRATIONS.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
    connection
}

/// An event whose key begins with its place.
fn insert_event(connection: &Connection, seq: i64) {
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&(seq as u64).to_be_bytes());
    connection
        .execute(
            "INSERT INTO event (seq, id, key, generation, key_text, flow, source, event_type, received_at, persisted_at,
                                expires_at, revision, trace, fingerprint, first_job, jobs)
             VALUES (?1, ?2, ?2, 0, x'', '', '', '', 0, 0, 0, '', '', x'', 0, 0)",
            params![seq, key],
        )
        .unwrap();
}

fn count_pages(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM key_page", [], |row| row.get(0)).unwrap()
}

fn tend(keys: &mut KeyIndex, connection: &Connection) {
    while keys.needs_compaction() {
        keys.compact_slice(connection).unwrap();
    }
}

#[test]
fn every_key_is_found_wherever_it_lies_and_no_other_is() {
    let connection = open();
    let mut keys = KeyIndex::load(&connection, &EVENTS, 500).unwrap();
    // There are no event rows here.
    keys.pruned = false;
    let mut random = Random::seeded(11);
    let mut truth: HashMap<u64, Vec<i64>> = HashMap::new();
    for seq in 1..=60_000i64 {
        // Now and then the same prefix again: a later generation of a key.
        let prefix = if seq % 97 == 0 { *truth.keys().next().unwrap() } else { random.next_u64() };
        keys.insert(prefix, seq);
        truth.entry(prefix).or_default().push(seq);
        if seq % 500 == 0 {
            for _ in 0..random.below(4) {
                keys.compact_slice(&connection).unwrap();
            }
        }
        if seq % 7_001 == 0 {
            for (prefix, seqs) in truth.iter().take(300) {
                assert_eq!(&keys.candidates(&connection, *prefix).unwrap(), seqs);
            }
        }
    }
    tend(&mut keys, &connection);
    for (prefix, seqs) in &truth {
        assert_eq!(&keys.candidates(&connection, *prefix).unwrap(), seqs);
    }
    for _ in 0..10_000 {
        assert!(keys.candidates(&connection, random.next_u64()).unwrap().is_empty());
    }
    assert!(keys.runs.len() < 2 * MERGE_RUNS + 3, "{} runs", keys.runs.len());
    assert!(keys.recent_len() < 500);
    let again = Run::load(&connection, &EVENTS).unwrap();
    assert_eq!(again.len(), keys.runs.len());
    let mut found = Vec::new();
    let (prefix, seqs) = truth.iter().next().unwrap();
    again.iter().for_each(|run| run.find(&connection, &EVENTS, *prefix, &mut found).unwrap());
    assert!(found.iter().all(|seq| seqs.contains(seq)));
}

#[test]
fn a_run_is_dropped_whole_once_its_events_are_pruned_and_not_before() {
    let connection = open();
    let mut keys = KeyIndex::load(&connection, &EVENTS, 100).unwrap();
    for n in 1..=100i64 {
        insert_event(&connection, n);
        keys.insert((n as u64) << 50, n);
    }
    tend(&mut keys, &connection);
    connection.execute("DELETE FROM event WHERE seq <> 50", []).unwrap();
    keys.note_pruned();
    tend(&mut keys, &connection);
    assert_eq!(keys.candidates(&connection, 50 << 50).unwrap(), [50]);
    connection.execute("DELETE FROM event", []).unwrap();
    keys.note_pruned();
    tend(&mut keys, &connection);
    assert!(keys.candidates(&connection, 50 << 50).unwrap().is_empty());
    assert_eq!(count_pages(&connection), 0);
}

#[test]
fn pages_of_a_run_that_was_never_finished_are_swept_away() {
    let connection = open();
    let mut keys = KeyIndex::load(&connection, &EVENTS, 20_000).unwrap();
    for n in 0..20_000u64 {
        keys.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n as i64);
    }
    keys.compact_slice(&connection).unwrap();
    assert!(count_pages(&connection) > 0);
    let mut keys = KeyIndex::load(&connection, &EVENTS, 20_000).unwrap();
    assert_eq!(keys.runs.len(), 0);
    let left_over = keys.doomed[0].0;
    assert!(keys.take_run() > left_over, "a new run must not meet the pages of the old one");
    tend(&mut keys, &connection);
    assert_eq!(count_pages(&connection), 0);
}

#[test]
fn a_run_does_not_claim_the_places_of_a_batch_that_was_rolled_back() {
    let connection = open();
    let mut keys = KeyIndex::load(&connection, &EVENTS, 3).unwrap();
    (1..=3i64).for_each(|seq| keys.insert(seq as u64, seq));
    keys.commit();
    (4..=9i64).for_each(|seq| keys.insert(seq as u64, seq));
    keys.roll_back();
    for seq in 1..=9 {
        insert_event(&connection, seq);
    }
    tend(&mut keys, &connection);
    let reloaded = KeyIndex::load(&connection, &EVENTS, 100).unwrap();
    assert_eq!(reloaded.runs[0].last_seq, 3);
    for seq in 1..=9 {
        assert_eq!(reloaded.candidates(&connection, seq as u64).unwrap(), [seq]);
    }
}

#[test]
fn a_rolled_back_key_is_forgotten() {
    for tables in [&*EVENTS, &*EVENT_REFS] {
        let connection = open();
        let mut keys = KeyIndex::load(&connection, tables, 1_000).unwrap();
        keys.insert(5, 1);
        assert!(keys.commit());
        keys.insert(5, 2);
        keys.insert(6, 2);
        assert!(keys.is_uncommitted(2) && !keys.is_uncommitted(1));
        keys.roll_back();
        assert_eq!(keys.candidates(&connection, 5).unwrap(), [1]);
        assert_eq!((keys.candidates(&connection, 6).unwrap(), keys.recent_len()), (vec![], 1));
        assert!(!keys.commit());
    }
}

#[test]
fn references_are_found_in_memory_and_in_runs() {
    let connection = open();
    let mut refs = KeyIndex::load(&connection, &EVENT_REFS, 100).unwrap();
    refs.pruned = false;
    for seq in 1..=1_000i64 {
        refs.insert(seq as u64 % 10, seq);
        refs.commit();
        while seq % 250 == 0 && refs.needs_compaction() {
            refs.compact_slice(&connection).unwrap();
        }
    }
    (1_001..=1_009).for_each(|seq| refs.insert(seq as u64 % 10, seq));
    for prefix in 0..10 {
        let expected: Vec<i64> = (1..=1_009).filter(|seq| *seq as u64 % 10 == prefix).collect();
        assert_eq!(refs.candidates(&connection, prefix).unwrap(), expected);
    }
}

#[test]
fn every_contact_has_a_prefix_of_its_own() {
    let both = |id| [EventRef::ContactKey(id), EventRef::Contact(id)];
    let prefixes: std::collections::HashSet<u64> = (1..20_000).flat_map(both).map(ref_prefix).collect();
    assert_eq!(prefixes.len(), 2 * 19_999);
}
