//! A ledger of an older version opens: its rows are migrated, and its sealed values still open.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, params};
use sluice_domain::job::{JobId, JobState, Term};
use sluice_domain::outcome::FailureClass;
use sluice_domain::time::Time;

use super::key_store::KeyStore;
use super::row::body_parts;
use super::{FILE_NAME, MIGRATIONS};
use crate::op::{Begin, BeginResult, CappedBeginResult, Fence};
use crate::record::EventBody;
use crate::seal::{RootKey, SealContext};
use crate::{Inspector, JobFilter, Ledger, LedgerOptions, Page, Replay};

/// The layout before terms, totals and MACs.
const OLD_VERSION: usize = 5;
const AT: Time = Time(1_772_323_200_000);

fn root_key() -> RootKey {
    RootKey::parse(&"3c".repeat(32)).unwrap()
}

fn body() -> EventBody {
    EventBody { raw: b"raw".to_vec(), normalized: "{}".into(), headers: "{}".into(), ..EventBody::default() }
}

/// Two events: one with a live job, one with a dead letter that has an effect and an attempt.
fn write_old_ledger(directory: &Path) {
    let mut file = Connection::open(directory.join(FILE_NAME)).unwrap();
    MIGRATIONS[..OLD_VERSION].iter().for_each(|sql| file.execute_batch(sql).unwrap());
    file.execute_batch(&format!("PRAGMA user_version = {OLD_VERSION}; PRAGMA journal_mode = WAL")).unwrap();
    let keys = KeyStore::open(&mut file, Some(root_key()), AT).unwrap();
    let tenant = keys.tenant(&Default::default());
    let sealed = |table, row, column, text: &[u8]| tenant.seal(SealContext::new(table, row, column), &[text]);
    for seq in 1..=2i64 {
        let body = body();
        let (lengths, [headers, raw, normalized]) = body_parts(&body);
        let context = SealContext::new("event_body", seq, "sealed");
        let body = tenant.seal(context, &[&lengths, headers, raw, normalized]);
        let id = [u8::try_from(seq).unwrap(); 16];
        file.execute(
            "INSERT INTO event (ord, id, key, generation, key_text, flow, source, event_type, received_at, persisted_at, expires_at,
                                revision, trace, fingerprint, first_job, jobs)
             VALUES (?1, ?2, ?2, 0, ?3, 'leads', 'website', 'lead', ?4, ?4, ?5, 'r1', '', x'00', ?1, 1)",
            params![seq, id, sealed("event", seq, "key_text", b"the key"), AT.0, i64::MAX],
        )
        .unwrap();
        file.execute("INSERT INTO event_body (ord, sealed) VALUES (?1, ?2)", params![seq, body]).unwrap();
    }
    file.execute_batch(
        "INSERT INTO revision VALUES ('r1', 0, 'ann', '[]'); INSERT INTO tally VALUES ('2026-03-01', 'website', 2, 0, 0, 0);",
    )
    .unwrap();
    let insert =
        "INSERT INTO job (id, ord, worker, queue, revision, entity, state, step, attempts, tries, due_at, verifying,
                                   created_at, updated_at, finished_at, replays, failure, message, dead_letter_queue)
                  VALUES (?1, ?1, 'crm', 'default', 'r1', 7, ?2, 0, 0, ?3, ?4, 0, ?4, ?4, ?5, 0, ?6, ?7, ?8)";
    file.execute(insert, params![1, 0, 0, AT.0, None::<i64>, None::<String>, None::<Vec<u8>>, None::<String>]).unwrap();
    let failure = r#"{"class":"maybe","code":"locked","message":""}"#;
    let message = sealed("job", 2, "message", b"the message");
    file.execute(insert, params![2, 10, 1, AT.0, AT.0, failure, message, "leads-dead"]).unwrap();
    let key = sluice_domain::job::EffectKey::new(sluice_domain::event::EventId([2; 16]), "crm", "create");
    file.execute(
        "INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, n, first_at, last_at)
         VALUES (2, 0, 'create', ?1, 'http.post', 'crm', 'keyed', 'not_applied', 1, 0, 0, 1, 0, 0)",
        [key.0],
    )
    .unwrap();
    file.execute("INSERT INTO attempt VALUES (2, 1, 0, 'create', 'call', 0, 0, 'reject', ?1, NULL)", [failure])
        .unwrap();
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(directory, LedgerOptions::quiet(Arc::new(|| AT)).with_root_key(root_key())).unwrap()
}

fn violations(directory: &Path) -> Vec<crate::InvariantViolation> {
    Inspector::open(directory).unwrap().with_root_key(root_key()).unwrap().verify(|_, _| {}).unwrap().broken
}

#[tokio::test]
async fn a_dead_letter_of_the_former_class_maybe_is_found_as_conflict() {
    let directory = tempfile::tempdir().unwrap();
    write_old_ledger(directory.path());
    let ledger = open(directory.path());
    let filter = JobFilter { class: Some("conflict".into()), ..JobFilter::default() };
    let page = Page { after: None, limit: 10 };
    let found: Vec<JobId> =
        ledger.list_jobs(filter, page).await.unwrap().rows.into_iter().map(|(job, _)| job.id).collect();
    assert_eq!(found, [JobId(2)]);
    let reasons = ledger.dead_reasons(Time(0), 10).await.unwrap();
    assert_eq!((reasons[0].class.as_str(), reasons[0].count), ("conflict", 1));
    let attempt = ledger.attempts(JobId(2)).await.unwrap().remove(0);
    assert_eq!(attempt.failure.unwrap().class, FailureClass::Conflict);
    ledger.close().await;
    let file = Connection::open(directory.path().join(FILE_NAME)).unwrap();
    let former = "SELECT (SELECT count(*) FROM job WHERE failure LIKE '%maybe%') + (SELECT count(*) FROM attempt WHERE failure LIKE '%maybe%')";
    assert_eq!(file.query_row(former, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_ledger_of_an_older_version_is_migrated_and_still_opens() {
    let directory = tempfile::tempdir().unwrap();
    write_old_ledger(directory.path());
    let ledger = open(directory.path());
    let loaded = ledger.load_jobs(vec![JobId(1)], usize::MAX).await.unwrap().remove(0);
    assert_eq!((&*loaded.body, loaded.event.key_text.as_str()), (&body(), "the key"));
    assert_eq!((&*loaded.job.destination, loaded.job.term), ("", Term(0)));
    let dead = ledger.job(JobId(2)).await.unwrap().unwrap();
    assert_eq!(dead.failure.unwrap().message, "the message");
    let counts = ledger.job_counts().await.unwrap();
    assert_eq!(counts, [(JobState::Queued, 1), (JobState::Dead, 1)]);
    assert_eq!((ledger.event_count().await.unwrap(), ledger.term()), (2, Term(1)));
    assert_eq!(violations(directory.path()), []);

    let replay = Replay { jobs: vec![JobId(2)], actor: "ann".into(), reason: "fixed".into(), revision: None, at: AT };
    assert_eq!(ledger.replay(replay).await.unwrap().len(), 1);
    let effect = ledger.effects(JobId(2)).await.unwrap().remove(0);
    let begin = Begin {
        job: JobId(2),
        n: 2,
        fence: Fence { owner: ledger.term(), expected: Term(0) },
        step: 0,
        step_id: "create".into(),
        key: effect.key,
        class: effect.class,
        action: "http.post",
        destination: "crm".into(),
        identity: None,
        at: AT,
    };
    assert_eq!(ledger.begin(begin, vec![]).await.unwrap(), CappedBeginResult::Begun(BeginResult::Go));
    ledger.close().await;
    assert_eq!(violations(directory.path()), [], "old and new rows together");
    let ledger = open(directory.path());
    assert_eq!(ledger.term(), Term(2));
    ledger.close().await;
}
