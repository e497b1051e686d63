//! What lies on the disk says nothing without the root key, and a value that was touched is noticed.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass};
use sluice_domain::worker::LaneOrder;
use sluice_ledger::{
    Acceptance, Accepted, AttemptKind, AttemptSettlement, Begin, ChargeResult, EffectSettlement, Error, EventBody,
    JobUpdate, Ledger, LedgerOptions, NewEvent, Quarantine, RootKey, Settlement,
};

use fixtures::{START, alone, event, fence, root_key};

/// Stands in everything that is personal, so that it can be looked for in the files.
const SECRET: &str = "ann.unmistakable@example.com";

fn options(root_key: RootKey) -> LedgerOptions {
    LedgerOptions { recent_keys_max: Some(64), ..LedgerOptions::quiet(Arc::new(|| START)) }.with_root_key(root_key)
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(directory, options(root_key())).unwrap()
}

fn contact(name: &str) -> Option<KeyDigest> {
    Some(KeyDigest::new("default", "contact", name))
}

/// An event about a contact, full of what nobody else may read.
fn personal(key: &str) -> NewEvent {
    NewEvent {
        key_text: format!("{SECRET}|{key}"),
        body: Arc::new(EventBody {
            headers: format!("{{\"x-sender\":\"{SECRET}\"}}"),
            raw: format!("{{\"email\":\"{SECRET}\",\"key\":\"{key}\"}}").into_bytes(),
            normalized: format!("{{\"identity\":{{\"email\":\"{SECRET}\"}}}}"),
            ..EventBody::default()
        }),
        contact: contact(SECRET),
        ..event(key)
    }
}

async fn accept(ledger: &Ledger, event: NewEvent) -> Accepted {
    match ledger.accept(event).await.unwrap() {
        Acceptance::Accepted(accepted) => accepted,
        other => panic!("not accepted: {other:?}"),
    }
}

/// One attempt at the only step of a job, with something personal in all that comes of it.
async fn attempt(ledger: &Ledger, job: JobId, n: u32, state: JobState) {
    let key = EffectKey([100 + u8::try_from(job.0 % 100).unwrap(); 16]);
    let failure = || Some(Failure::new(FailureClass::Permanent, "no-such-field", format!("{SECRET} is refused")));
    let begin = Begin {
        identity: None,
        job,
        n,
        fence: fence(1, n - 1),
        step: 0,
        step_id: "create".into(),
        key,
        class: EffectClass::Keyed,
        action: "http.post",
        destination: "crm".into(),
        at: START,
    };
    ledger.begin(begin, vec![]).await.unwrap();
    let result = Some(Arc::new(serde_json::json!({ "email": SECRET })));
    let settlement = Settlement {
        job,
        n,
        fence: fence(1, 1),
        effect: Some(EffectSettlement {
            key,
            step: 0,
            state: if state == JobState::Succeeded { EffectState::Applied } else { EffectState::NotApplied },
            result: result.clone(),
            absent_reads: 0,
            reads: 0,
            late_until: None,
        }),
        attempt: Some(AttemptSettlement {
            step_id: "create".into(),
            kind: AttemptKind::Call,
            started_at: START,
            outcome: "reject",
            failure: failure(),
        }),
        write: None,
        next: JobUpdate {
            state,
            step: 1,
            attempts: n,
            due_at: START,
            verifying: false,
            failure: (state != JobState::Succeeded).then(failure).flatten(),
            dead_letter_queue: None,
            result: (state == JobState::Succeeded).then_some(result).flatten(),
            destination: "".into(),
            order: LaneOrder::Fifo,
        },
        at: START,
    };
    assert_eq!(ledger.settle(alone(settlement)).await.unwrap(), ChargeResult::Settled);
}

async fn job_of(ledger: &Ledger, accepted: &Accepted) -> JobId {
    ledger.events(vec![accepted.seq]).await.unwrap()[0].0.first_job
}

/// Everything personal about these events can be read.
async fn assert_readable(ledger: &Ledger, events: &[Accepted]) {
    for accepted in events {
        let (event, body) = ledger.events(vec![accepted.seq]).await.unwrap().remove(0);
        assert!(event.key_text.contains(SECRET));
        assert!(String::from_utf8_lossy(&body.unwrap().raw).contains(SECRET));
        let job = ledger.job(event.first_job).await.unwrap().unwrap();
        let said = job.result.map(|result| result.to_string()).or(job.failure.map(|failure| failure.message));
        assert!(said.is_none_or(|said| said.contains(SECRET)));
        for attempt in ledger.attempts(event.first_job).await.unwrap() {
            assert!(attempt.failure.unwrap().message.contains(SECRET));
        }
        for effect in ledger.effects(event.first_job).await.unwrap() {
            assert!(effect.result.unwrap().to_string().contains(SECRET));
        }
    }
}

/// A bit of everything: with and without a contact, finished, dead, quarantined, clashing.
async fn fill(ledger: &Ledger) -> Vec<Accepted> {
    let finished = accept(ledger, personal("finished")).await;
    attempt(ledger, job_of(ledger, &finished).await, 1, JobState::Succeeded).await;
    let dead = accept(ledger, NewEvent { contact: None, ..personal("dead") }).await;
    attempt(ledger, job_of(ledger, &dead).await, 1, JobState::Dead).await;
    let failure = Failure::new(FailureClass::Mapping, "schema", format!("{SECRET} has no name"));
    let quarantine = Some(Quarantine::new(failure));
    let quarantined = accept(ledger, NewEvent { quarantine, ..personal("quarantined") }).await;
    let clash = ledger.accept(NewEvent { fingerprint: [9; 16], ..personal("finished") }).await.unwrap();
    assert!(
        matches!(clash, Acceptance::Duplicate(duplicate) if duplicate.clash && duplicate.key_text.contains(SECRET))
    );
    vec![finished, dead, quarantined]
}

fn holds(directory: &Path, needle: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(needle.len()).any(|window| window == needle) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_contains_personal_data() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let events = fill(&ledger).await;
    // Digests that can be guessed would tell as much.
    let guessable: Vec<Vec<u8>> = vec![
        SECRET.into(),
        "unmistakable".into(),
        personal("finished").key.0.to_vec(),
        contact(SECRET).unwrap().0.to_vec(),
        personal("finished").fingerprint.to_vec(),
        root_key().to_hex().into_bytes(),
        vec![0x3c; 32],
    ];
    for needle in &guessable {
        assert_eq!(holds(directory.path(), needle), [""; 0], "while it is open");
    }
    assert_readable(&ledger, &events).await;
    let variants = ledger.variants(events[0].seq).await.unwrap();
    assert_eq!(variants.kept[0].body.as_ref(), Some(&*personal("finished").body));
    ledger.close().await;
    for needle in &guessable {
        assert_eq!(holds(directory.path(), needle), [""; 0], "when it is closed");
    }
    assert!(!holds(directory.path(), b"no-such-field").is_empty(), "the search itself works");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_a_missing_root_key_is_one_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let events = fill(&ledger).await;
    ledger.close().await;
    let wrong = RootKey::generate();
    let error = Ledger::open(directory.path(), options(wrong.clone())).unwrap_err();
    assert!(matches!(error, Error::RootKeyWrong { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "the root key {} does not open this ledger; give the one that it was sealed with, or restore it from your backup: \
             without it nothing in the ledger can be read",
            wrong.id()
        )
    );
    let error = Ledger::open(directory.path(), LedgerOptions::quiet(Arc::new(|| START))).unwrap_err();
    assert_eq!(error.to_string(), "the ledger is sealed and no root key was given");
    // Neither of them has left anything behind.
    let ledger = open(directory.path());
    assert_readable(&ledger, &events).await;
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_was_changed_or_moved_is_named_and_never_read() {
    for (tamper, table, column) in [
        ("UPDATE event_body SET sealed = zeroblob(length(sealed))", "event_body", "sealed"),
        (
            "UPDATE event_body SET sealed = (SELECT b.sealed FROM event_body b WHERE b.seq = 2) WHERE seq = 1",
            "event_body",
            "sealed",
        ),
        (
            "UPDATE event SET key_text = CAST(substr(key_text, 1, length(key_text) - 1) || x'00' AS BLOB)",
            "event",
            "key_text",
        ),
        ("UPDATE job SET result = (SELECT message FROM job WHERE id = 2) WHERE id = 1", "job", "result"),
        (
            "UPDATE job SET message = (SELECT result FROM job WHERE id = 1), failure = (SELECT failure FROM job WHERE id = 2) WHERE id = 1",
            "job",
            "message",
        ),
        (
            "UPDATE contact_key SET wrapped = (SELECT wrapped FROM tenant_key WHERE version = 1)",
            "contact_key",
            "wrapped",
        ),
        ("UPDATE contact_key SET wrapped = NULL", "event", "key_text"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let ledger = open(directory.path());
        fill(&ledger).await;
        ledger.close().await;
        rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap().execute_batch(tamper).unwrap();
        let ledger = open(directory.path());
        let error = match table {
            "job" => ledger.job(JobId(1)).await.unwrap_err(),
            _ => ledger.events(vec![1]).await.unwrap_err(),
        };
        let named = matches!(error, Error::Sealed { table: t, row: 1, column: c } if t == table && c == column);
        assert!(named, "{tamper}: {error}");
        assert!(error.to_string().starts_with(&format!("{table} 1: {column} cannot be opened")), "{error}");
        ledger.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_root_key_opens_everything_and_the_old_one_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let mut events = fill(&ledger).await;
    let new = RootKey::generate();
    let bodies = file_bytes(directory.path(), "SELECT hex(sealed) FROM event_body WHERE seq = 1");
    // All at once, as when it is asked for while everything else goes on.
    let (first, second, tenant) = tokio::join!(
        ledger.rotate_root(RootKey::generate(), "ann".into(), START),
        ledger.rotate_root(new.clone(), "ann".into(), START),
        ledger.rotate_tenant("ann".into(), START),
    );
    first.unwrap();
    second.unwrap();
    assert_eq!(tenant.unwrap(), 2);
    assert_eq!(ledger.keys().await.unwrap().root, new.id());
    assert_readable(&ledger, &events).await;
    events.push(accept(&ledger, personal("afterwards")).await);
    ledger.close().await;

    let old = Ledger::open(directory.path(), options(root_key())).unwrap_err();
    assert!(matches!(old, Error::RootKeyWrong { .. }), "{old}");
    let ledger = Ledger::open(directory.path(), options(new)).unwrap();
    assert_readable(&ledger, &events).await;
    let repeat = ledger.accept(personal("finished")).await.unwrap();
    assert!(matches!(repeat, Acceptance::Duplicate(_)), "digests outlive the root key");
    ledger.close().await;
    assert_eq!(
        file_bytes(directory.path(), "SELECT hex(sealed) FROM event_body WHERE seq = 1"),
        bodies,
        "no body is touched"
    );
}

fn file_bytes(directory: &Path, sql: &str) -> String {
    rusqlite::Connection::open(directory.join("ledger.db")).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_tenant_key_seals_new_values_and_rewraps_contacts_in_slices() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let mut events = fill(&ledger).await;
    for n in 0..10 {
        let about = NewEvent { contact: contact(&n.to_string()), ..personal(&format!("before {n}")) };
        events.push(accept(&ledger, about).await);
    }
    assert_eq!(ledger.rotate_tenant("ann".into(), START).await.unwrap(), 2);
    let keys = ledger.keys().await.unwrap();
    assert_eq!((keys.tenant.len(), keys.contacts, keys.to_rewrap), (2, 11, 11));
    events.push(accept(&ledger, NewEvent { contact: None, ..personal("after") }).await);
    assert_eq!(ledger.rewrap_contacts(4, START).await.unwrap(), 4);
    ledger.close().await;

    // It goes on where it stopped.
    let ledger = open(directory.path());
    assert_eq!(ledger.keys().await.unwrap().to_rewrap, 7);
    assert_readable(&ledger, &events).await;
    let mut slices = Vec::new();
    loop {
        slices.push(ledger.rewrap_contacts(4, START).await.unwrap());
        if slices.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(slices, [4, 3, 0]);
    assert_eq!(ledger.rewrap_contacts(4, START).await.unwrap(), 0);
    ledger.close().await;
    let old = file_bytes(
        directory.path(),
        "SELECT CAST(count(*) AS TEXT) FROM contact_key WHERE hex(substr(wrapped, 2, 8)) = 'FFFFFFFFFFFFFFFE'",
    );
    assert_eq!(old, "0", "no contact is wrapped by the first version any more");
    let ledger = open(directory.path());
    assert_readable(&ledger, &events).await;
    events.push(accept(&ledger, personal("later")).await);
    assert_readable(&ledger, &events[events.len() - 1..]).await;
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contacts_are_found_in_a_large_index() {
    const CONTACTS: usize = 10_000;
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let about = |round: usize, n: usize| NewEvent {
        contact: contact(&n.to_string()),
        body: Arc::new(EventBody {
            headers: "{}".into(),
            raw: n.to_string().into_bytes(),
            normalized: "{}".into(),
            ..EventBody::default()
        }),
        ..event(&format!("{round}.{n}"))
    };
    let mut senders = tokio::task::JoinSet::new();
    for n in 0..CONTACTS {
        let (ledger, event) = (ledger.clone(), about(0, n));
        senders.spawn(async move { ledger.accept(event).await.map(drop) });
        if senders.len() >= 256 {
            senders.join_next().await.unwrap().unwrap().unwrap();
        }
    }
    while let Some(sender) = senders.join_next().await {
        sender.unwrap().unwrap();
    }
    assert_eq!(ledger.keys().await.unwrap().contacts, CONTACTS as u64);
    // While they are moved out of memory and merged, and after a restart, each of them is found again.
    for n in (0..CONTACTS).step_by(37) {
        accept(&ledger, about(1, n)).await;
    }
    ledger.close().await;
    let ledger = open(directory.path());
    for n in (0..CONTACTS).step_by(41) {
        accept(&ledger, about(2, n)).await;
    }
    assert_eq!(ledger.keys().await.unwrap().contacts, CONTACTS as u64, "no contact has a second key");
    let ords: Vec<i64> = (1..=ledger.event_count().await.unwrap() as i64).collect();
    for slice in ords.chunks(500) {
        for (event, body) in ledger.events(slice.to_vec()).await.unwrap() {
            let name = event.key_text.split('.').nth(1).unwrap().to_owned();
            assert_eq!(body.unwrap().raw, name.into_bytes());
        }
    }
    ledger.close().await;
}

/// The clash and its neighbours: nothing of the batch that is refused may be left in memory.
#[tokio::test(flavor = "multi_thread")]
async fn contact_of_a_rejected_event_gets_a_new_key() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    fill(&ledger).await;
    ledger.close().await;
    // The second of these two meets a row that cannot be opened, so that neither is written.
    rusqlite::Connection::open(directory.path().join("ledger.db"))
        .unwrap()
        .execute_batch("UPDATE event SET key_text = x'00' WHERE seq = 2")
        .unwrap();
    let ledger = open(directory.path());
    let new = NewEvent { contact: contact("bob"), ..personal("bob") };
    let repeat = NewEvent { contact: None, ..personal("dead") };
    let refused = ledger.accept_all(vec![new, repeat]).await.unwrap_err();
    assert!(matches!(refused, Error::Sealed { table: "event", row: 2, .. }), "{refused}");
    let eve = accept(&ledger, NewEvent { contact: contact("eve"), ..personal("eve") }).await;
    let bob = accept(&ledger, NewEvent { contact: contact("bob"), ..personal("bob") }).await;
    ledger.close().await;
    let ledger = open(directory.path());
    assert_readable(&ledger, &[eve, bob]).await;
    ledger.close().await;
}

#[test]
fn options_do_not_show_the_key() {
    let shown = format!("{:?}", options(root_key()));
    assert!(!shown.contains("3c3c"), "{shown}");
}
