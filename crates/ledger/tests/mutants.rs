//! Every known mistake of the ledger on disk is noticed: what was acknowledged is gone after a power cut, the log has no end, a key
//! has two owners, or a restart forgets what was counted.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::time::Time;
use sluice_faulty_vfs::{CrashSurvival, Disk, DiskFault, Image};
use sluice_ledger::{Acceptance, ChargeResult, Ledger, LedgerOptions, RetryCharge, Settle, Settlement};

use fixtures::{DAY, START, event, fence, root_key, settled};

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

/// Whether a key has two owners if its events arrive together.
async fn two_owners(directory: &Path, start: &Image) -> Option<String> {
    Disk::from_image(start).mount(directory);
    let ledger = Ledger::open(directory, options()).unwrap();
    let answers = ledger.accept_all(vec![event("together"), event("together")]).await.unwrap();
    ledger.close().await;
    let owners = answers.iter().filter(|answer| matches!(answer, Acceptance::Accepted(_))).count();
    (owners != 1).then(|| format!("{owners} events own one key"))
}

/// A retry of the first job that counts against a budget of one, without an attempt.
async fn charge(ledger: &Ledger, owner: u32, expected: u32) -> ChargeResult {
    let job = JobId(1);
    let retrying = settled(job, EffectKey([1; 16]), JobState::Retrying);
    let settlement = Settlement { n: 0, fence: fence(owner, expected), effect: None, attempt: None, ..retrying };
    let otherwise = settled(job, EffectKey([1; 16]), JobState::Dead).next;
    let charge = Some(RetryCharge { retries: 1, until: Time(START.0 + DAY), otherwise });
    ledger.settle(Settle { settlement, charge, begin: None }).await.unwrap()
}

/// Whether a retry counts although the budget was used up before the ledger was opened again.
async fn budget_reset(directory: &Path, start: &Image) -> Option<String> {
    Disk::from_image(start).mount(directory);
    let ledger = Ledger::open(directory, options()).unwrap();
    ledger.accept(event("retried")).await.unwrap();
    assert_eq!(charge(&ledger, 1, 0).await, ChargeResult::Settled);
    ledger.close().await;
    let ledger = Ledger::open(directory, options()).unwrap();
    let result = charge(&ledger, 2, 1).await;
    ledger.close().await;
    (result != ChargeResult::Exhausted).then(|| format!("a retry beyond the budget is {result:?}"))
}

/// What is wrong, if anything: with keys and budgets, with a power cut at any time, with an I/O that fails before it, and with the log.
fn problem() -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let start = made(directory.path()).await;
        if let Some(problem) = two_owners(directory.path(), &start).await {
            return Some(problem);
        }
        if let Some(problem) = budget_reset(directory.path(), &start).await {
            return Some(problem);
        }
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
    for mutant in Mutant::SQLITE.into_iter().chain(Mutant::DISK) {
        let noticed = mutant.while_on_everywhere(problem);
        println!("{mutant:?}: {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?}");
    }
}
