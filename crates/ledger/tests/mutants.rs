//! Every known mistake of the ledger on disk is noticed: what was acknowledged is gone after a power cut, or the log has no end.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_domain::event::EventId;
use sluice_domain::mutant::Mutant;
use sluice_faulty_vfs::{CrashSurvival, Disk, DiskFault, Image};
use sluice_ledger::{Acceptance, Ledger, LedgerOptions};

use fixtures::{START, event, root_key};

const EVENTS: usize = 12;
/// The log is written from its beginning again when it has so many pages.
const WAL_PAGES_MAX: u64 = 64;

fn options() -> LedgerOptions {
    let few = LedgerOptions { wal_pages_max: Some(WAL_PAGES_MAX), ..LedgerOptions::quiet(Arc::new(|| START)) };
    few.with_root_key(root_key())
}

/// A ledger that was made and closed.
async fn made(directory: &Path) -> Image {
    let disk = Disk::default();
    disk.mount(directory);
    Ledger::open(directory, options()).unwrap().close().await;
    disk.image(CrashSurvival::Everything, 0)
}

/// Accepts events until the disk fails, if it does, and cuts the power. Answers what is gone of what was acknowledged.
async fn power_cut(directory: &Path, start: &Image, fails_at: Option<u64>) -> Option<String> {
    let disk = Disk::from_image(start);
    disk.mount(directory);
    let ledger = Ledger::open(directory, options()).unwrap();
    if let Some(number) = fails_at {
        disk.fail_at(number, DiskFault::Error, number);
    }
    let mut acknowledged: Vec<(usize, EventId)> = Vec::new();
    for n in 0..EVENTS {
        match ledger.accept(event(&format!("key {n}"))).await {
            Ok(Acceptance::Accepted(accepted)) => acknowledged.push((n, accepted.id)),
            Ok(_) => return Some(format!("key {n} was never sent before")),
            // The process ends here.
            Err(_) => break,
        }
    }
    disk.power_off();
    ledger.close().await;
    let found = Disk::from_image(&disk.image(CrashSurvival::Nothing, 1));
    found.mount(directory);
    let ledger = Ledger::open(directory, options()).unwrap();
    let mut gone = None;
    for (n, id) in acknowledged {
        match ledger.accept(event(&format!("key {n}"))).await.unwrap() {
            Acceptance::Duplicate(repeat) if repeat.id == id => {}
            _ => gone = gone.or(Some(format!("key {n} was acknowledged and is gone"))),
        }
    }
    ledger.close().await;
    gone
}

/// How large the log grows. Answers if that is too large.
async fn long_log(directory: &Path, start: &Image) -> Option<String> {
    Disk::from_image(start).mount(directory);
    let ledger = Ledger::open(directory, options()).unwrap();
    for n in 0..400 {
        ledger.accept(event(&format!("key {n}"))).await.unwrap();
    }
    let pages = ledger.stats().wal_pages.load(Ordering::Relaxed);
    ledger.close().await;
    (pages > 2 * WAL_PAGES_MAX).then(|| format!("the log has {pages} pages, and is to begin anew at {WAL_PAGES_MAX}"))
}

/// What is wrong, if anything: with a power cut at any time, with an I/O that fails before it, and with the log.
fn problem() -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let start = made(directory.path()).await;
        for fails_at in std::iter::once(None).chain((0..40).map(Some)) {
            if let Some(problem) = power_cut(directory.path(), &start, fails_at).await {
                return Some(problem);
            }
        }
        long_log(directory.path(), &start).await
    })
}

#[test]
fn every_mutant_of_the_ledger_on_disk_is_detected_and_no_violation_without_one() {
    assert_eq!(problem(), None);
    for mutant in Mutant::DISK {
        let noticed = mutant.while_on_everywhere(problem);
        println!("{mutant:?}: {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?}");
    }
}
