//! Nobody hears of what is not on the disk: not who sent it, not who runs jobs, and not who reads.
#![allow(clippy::unwrap_used)]

mod given;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sluice_ledger::{Acceptance, Error, Ledger, Options};

use given::{START, event, root_key};

/// A disk that takes its time, and may fail.
#[derive(Default)]
struct Disk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holds: bool,
    waiting: bool,
    fails: bool,
}

impl Disk {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn flush(&self) -> std::io::Result<()> {
        self.change(|state| state.waiting = true);
        let mut state = self.changed.wait_while(self.state.lock().unwrap(), |state| state.holds).unwrap();
        state.waiting = false;
        if state.fails { Err(std::io::Error::other("the disk is broken")) } else { Ok(()) }
    }

    /// Until a flush is under way.
    async fn is_flushing(&self) {
        while !self.state.lock().unwrap().waiting {
            tokio::task::yield_now().await;
        }
    }
}

struct Stage {
    ledger: Ledger,
    disk: Arc<Disk>,
    announced: tokio::sync::mpsc::UnboundedReceiver<usize>,
    fatal: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

fn stage() -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let (announce, announced) = tokio::sync::mpsc::unbounded_channel();
    let (disk, fatal) = (Arc::new(Disk::default()), Arc::new(AtomicU64::new(0)));
    let (flushed, failed) = (disk.clone(), fatal.clone());
    let options = Options {
        on_fresh: Box::new(move |fresh| announce.send(fresh.len()).unwrap()),
        on_fatal: Box::new(move |_| {
            failed.fetch_add(1, Ordering::SeqCst);
        }),
        flush: Some(Box::new(move || flushed.flush())),
        ..Options::quiet(Arc::new(|| START)).with_root_key(root_key())
    };
    Stage { ledger: Ledger::open(directory.path(), options).unwrap(), disk, announced, fatal, _directory: directory }
}

impl Stage {
    fn accept(&self, key: &str) -> tokio::task::JoinHandle<Result<Acceptance, Error>> {
        let (ledger, event) = (self.ledger.clone(), event(key));
        tokio::spawn(async move { ledger.accept(event).await })
    }
}

/// Long enough for whoever does not wait.
const A_WHILE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_a_commit_before_its_flush() {
    let mut stage = stage();
    stage.disk.change(|state| state.holds = true);
    let sent = stage.accept("a");
    stage.disk.is_flushing().await;
    let read = tokio::spawn({
        let ledger = stage.ledger.clone();
        async move { ledger.event_count().await }
    });
    tokio::time::sleep(A_WHILE).await;
    assert!(!sent.is_finished(), "the sender was answered");
    assert!(stage.announced.try_recv().is_err(), "its job was announced");
    assert!(!read.is_finished(), "it was read");
    // What comes meanwhile is not told of either, and goes with the next flush.
    let next = stage.accept("b");
    tokio::time::sleep(A_WHILE).await;
    assert!(!next.is_finished());
    stage.disk.change(|state| state.holds = false);
    assert!(matches!(sent.await.unwrap(), Ok(Acceptance::Accepted(_))));
    assert!(matches!(next.await.unwrap(), Ok(Acceptance::Accepted(_))));
    assert_eq!((stage.announced.recv().await, stage.announced.recv().await), (Some(1), Some(1)));
    assert_eq!(read.await.unwrap().unwrap(), 1);
    stage.ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flush_that_failed_nothing_more_is_written_and_nothing_in_doubt_is_read() {
    let mut stage = stage();
    stage.accept("before").await.unwrap().unwrap();
    assert_eq!(stage.announced.recv().await, Some(1));
    stage.disk.change(|state| (state.holds, state.fails) = (true, true));
    let doubtful = stage.accept("a");
    stage.disk.is_flushing().await;
    let later = stage.accept("b");
    stage.disk.change(|state| state.holds = false);
    assert!(matches!(doubtful.await.unwrap(), Err(Error::InDoubt { .. })));
    assert!(matches!(later.await.unwrap(), Err(Error::Failed | Error::InDoubt { .. })));
    assert!(matches!(stage.ledger.event_count().await, Err(Error::Failed)), "nobody knows what is there");
    assert!(matches!(stage.accept("c").await.unwrap(), Err(Error::Failed)));
    assert_eq!(stage.fatal.load(Ordering::SeqCst), 1, "its owner is told once");
    assert!(stage.announced.try_recv().is_err());
    stage.ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_does_not_wait_for_ever_for_a_disk_that_stands_still() {
    let stage = stage();
    stage.disk.change(|state| state.holds = true);
    let sent = stage.accept("a");
    stage.disk.is_flushing().await;
    assert!(matches!(stage.ledger.event_count().await, Err(Error::DiskSlow)));
    stage.disk.change(|state| state.holds = false);
    sent.await.unwrap().unwrap();
    assert_eq!(stage.ledger.event_count().await.unwrap(), 1);
    stage.ledger.close().await;
}
