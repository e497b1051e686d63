//! What a rolled-back transaction leaves in the memory of the writer.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluice_ledger::{Acceptance, Ledger, LedgerOptions, MatchedBy, NewEvent};

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
