//! What a rolled-back transaction leaves in the memory of the writer.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{Correlation, IDENTITY_MISSING, Link, Observation};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, Inspector, Ledger, LedgerOptions, MatchedBy, NewEvent, NewRevision, Prune, Quarantine,
};

use fixtures::{START, event, root_key};

fn open(directory: &Path) -> Ledger {
    Ledger::open(directory, LedgerOptions::quiet(Arc::new(|| START)).with_root_key(root_key())).unwrap()
}

/// An event of a flow with a content window. All of them have the same content.
fn with_window(key: &str) -> NewEvent {
    NewEvent { content_window: Some(Duration::from_secs(900)), ..event(key) }
}

#[tokio::test]
async fn a_content_window_of_a_rolled_back_accept_is_not_lost_at_the_next_restart() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON job BEGIN SELECT raise(ABORT, 'refused'); END";
    file.execute_batch(refuse).unwrap();
    ledger.accept(with_window("refused")).await.unwrap_err();
    file.execute_batch("DROP TRIGGER refuse").unwrap();

    let Acceptance::Accepted(first) = ledger.accept(with_window("first")).await.unwrap() else {
        panic!("the rolled-back event left its content")
    };
    ledger.close().await;
    let ledger = open(directory.path());
    let Acceptance::Duplicate(again) = ledger.accept(with_window("again")).await.unwrap() else {
        panic!("the content is not recognised after a restart")
    };
    assert_eq!((again.id, again.by), (first.id, MatchedBy::Content));
    ledger.close().await;
}

/// An event of one session, with or without an identity.
fn of_session(key: &str, email: Option<&str>) -> NewEvent {
    let link = Link { digest: KeyDigest::new("t", "session", "s-1"), expires_at: START + Duration::from_secs(60) };
    let mut correlation = Correlation { links: vec![link], ..Correlation::default() };
    correlation.identity.extend(email.map(|email| ("email".to_owned(), email.into())));
    let identifier =
        |email| Identifier { kind: "email".to_owned(), digest: KeyDigest::new("t", "email", email), single: false };
    let observation = Observation {
        identifiers: email.map(identifier).into_iter().collect(),
        received_at: START,
        correlation: Some(Box::new(correlation)),
        ..Observation::default()
    };
    let failure = Failure::new(FailureClass::Identity, IDENTITY_MISSING, "no identity");
    let quarantine = email.is_none().then_some(Quarantine::new(failure));
    NewEvent { observation: Some(Box::new(observation)), quarantine, ..event(key) }
}

#[tokio::test]
async fn a_release_that_is_rolled_back_happens_with_the_next_event() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path());
    let (actor, reason) = ("ann".to_owned(), String::new());
    let revision = NewRevision { hash: "r1".into(), files: "[]".into(), actor, reason, at: START };
    ledger.activate_revision(revision).await.unwrap();
    ledger.accept(of_session("1", None)).await.unwrap();
    let file = rusqlite::Connection::open(directory.path().join("ledger.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON event_identity BEGIN SELECT raise(ABORT, 'refused'); END";
    file.execute_batch(refuse).unwrap();
    ledger.accept(of_session("2", Some("ada@x"))).await.unwrap_err();
    let state = async || ledger.job(JobId(1)).await.unwrap().unwrap().state;
    assert_eq!(state().await, JobState::Dead);
    // Maintenance reads the links again.
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 10, at: START };
    ledger.prune(prune).await.unwrap();
    file.execute_batch("DROP TRIGGER refuse").unwrap();
    ledger.accept(of_session("2", Some("ada@x"))).await.unwrap();
    assert_eq!(state().await, JobState::Queued);
    let identity = ledger.event_identity(1).await.unwrap();
    assert!(identity.supplied.is_some() && identity.waits_until.is_none());
    ledger.close().await;
    let inspector = Inspector::open(directory.path()).unwrap().with_root_key(root_key()).unwrap();
    let verified = inspector.verify(|_, _| {}).unwrap();
    assert!(verified.broken.is_empty(), "{:?}", verified.broken);
}
