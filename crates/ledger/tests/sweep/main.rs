//! Whatever the disk does at whichever moment, the ledger keeps its word: every I/O of a script of operations fails once, in every
//! way that it can, and the power goes at every change of the disk.
#![allow(clippy::unwrap_used)]

#[path = "../fixtures/mod.rs"]
mod fixtures;
mod script;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_faulty_vfs::{CrashSurvival, Disk, DiskFault, Image, IoKind};

use script::{Came, OLD, Stage, Step, before, script};

/// What one moment came to.
#[derive(Debug, Default)]
struct Tally {
    faults: BTreeMap<(DiskFault, IoKind), u64>,
    images: u64,
    stopped: u64,
}

/// Runs without a fault; answers with what it was told.
async fn prepare(directory: &Path) -> (Image, Stage) {
    let disk = Disk::default();
    disk.mount(directory);
    let mut stage = Stage::new(directory);
    stage.open().unwrap();
    for step in before() {
        assert!(matches!(stage.take(step).await, Came::Done), "{step:?}");
    }
    // Killed, so that the next one begins with a log to recover from.
    disk.power_off();
    stage.close().await;
    (disk.image(CrashSurvival::Everything, 0), stage)
}

/// Goes on from a step to the end, whatever happens once on the way. Answers the step at which the power went.
async fn play(disk: &mut Disk, stage: &mut Stage, steps: &[Step], tally: &mut Tally) -> Option<usize> {
    for (n, step) in steps.iter().enumerate() {
        loop {
            let came = match stage.is_open() {
                true => stage.take(*step).await,
                false => match stage.open() {
                    Ok(()) => continue,
                    Err(_) => Came::Stopped,
                },
            };
            if disk.is_powered_off() {
                stage.doubt(*step);
                return Some(n);
            }
            match came {
                Came::Done => break,
                // What was kept aside is spent, and comes back with a restart.
                Came::NotNow => stage.close().await,
                Came::Stopped => {
                    // The process ends without a word, and another one finds what the system has cached.
                    tally.stopped += 1;
                    let next = disk.crash_process();
                    stage.close().await;
                    next.mount(stage.directory());
                    *disk = next;
                }
            }
        }
    }
    None
}

/// What is found after a crash is whole, and everything goes on from there.
async fn after_crash(disk: &Disk, stage: &Stage, rest: &[Step], tally: &mut Tally, seed: u64) {
    let directory = stage.directory();
    let all = [
        CrashSurvival::Nothing,
        CrashSurvival::Some,
        CrashSurvival::Everything,
        CrashSurvival::Prefix,
        CrashSurvival::Some,
    ];
    // Where nothing is left to do, everything is synced but for what a failed sync has lost.
    let kept = if rest.is_empty() { &all[..2] } else { &all[..] };
    for (n, keep) in kept.iter().copied().enumerate() {
        let mut found = Disk::from_image(&disk.image(keep, seed ^ n as u64));
        found.mount(directory);
        let mut stage = stage.again(directory);
        stage.open().unwrap_or_else(|error| panic!("after a crash that kept {keep:?}: {error}"));
        stage.check().await;
        tally.images += 1;
        // Once is enough: what follows does not depend on what was kept.
        if n as u64 == seed % all.len() as u64 {
            assert_eq!(play(&mut found, &mut stage, rest, tally).await, None);
            stage.check().await;
        }
        stage.close().await;
    }
}

/// Says where the sweep was when something was wrong.
struct Where(u64, DiskFault);

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was {:?} at I/O {}", self.1, self.0);
        }
    }
}

/// One fault at one moment. Answers whether the moment was reached.
async fn fail(start: &(Image, Stage), steps: &[Step], number: u64, fault: DiskFault, tally: &mut Tally) -> bool {
    let _where = Where(number, fault);
    let directory = start.1.directory();
    let seed = number * 7 + fault as u64;
    let mut disk = Disk::from_image(&start.0);
    disk.mount(directory);
    disk.fail_at(number, fault, seed);
    let mut stage = start.1.again(directory);
    let cut = play(&mut disk, &mut stage, steps, tally).await;
    let reached = disk.io_count() > number;
    disk.clear_faults();
    let Some(io) = disk.failed_io() else {
        stage.close().await;
        return reached;
    };
    *tally.faults.entry((fault, io)).or_default() += 1;
    match cut {
        Some(step) => {
            stage.close().await;
            after_crash(&disk, &stage, &steps[step..], tally, seed).await;
        }
        None => {
            // The upkeep behind the last step may have met it, and then the ledger has stopped.
            assert_eq!(play(&mut disk, &mut stage, &[Step::Audit], tally).await, None);
            stage.check().await;
            // The system believed that it had written what it had not: nothing may have been built upon that.
            disk.power_off();
            stage.close().await;
            after_crash(&disk, &stage, &[], tally, seed).await;
        }
    }
    true
}

#[test]
fn ledger_that_could_not_be_created_is_created_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = (Image::default(), Stage::new(directory.path()));
    let steps = [Step::Revision, Step::Accept(OLD), Step::Accept(OLD + 1)];
    let mut tally = Tally::default();
    runtime.block_on(async {
        for number in 0.. {
            let mut reached = false;
            for fault in DiskFault::ALL {
                reached |= fail(&start, &steps, number, fault, &mut tally).await;
            }
            if !reached {
                println!("{number} I/Os, {tally:?}");
                break;
            }
        }
    });
    assert!(tally.faults.values().sum::<u64>() > 100);
}

#[test]
fn every_io_fails_once_in_every_way_and_nothing_is_lost() {
    let tally = Mutex::new(Tally::default());
    let next = AtomicU64::new(0);
    let ios = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let directory = tempfile::tempdir().unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let (start, steps) = (prepare(directory.path()).await, script());
                    let mut mine = Tally::default();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let mut reached = false;
                        for fault in DiskFault::ALL {
                            reached |= fail(&start, &steps, number, fault, &mut mine).await;
                        }
                        if !reached {
                            break;
                        }
                        ios.fetch_max(number + 1, Ordering::Relaxed);
                    }
                    let mut tally = tally.lock().unwrap();
                    tally.images += mine.images;
                    tally.stopped += mine.stopped;
                    for (what, count) in mine.faults {
                        *tally.faults.entry(what).or_default() += count;
                    }
                });
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let faults: u64 = tally.faults.values().sum();
    println!("{} I/Os, {faults} faults, {} stops, {} crash images", ios.into_inner(), tally.stopped, tally.images);
    for ((fault, io), count) in &tally.faults {
        println!("  {fault:?} at {io:?}: {count}");
    }
    for fault in DiskFault::ALL {
        for io in [IoKind::Open, IoKind::Read, IoKind::Write, IoKind::Sync, IoKind::Truncate, IoKind::Map] {
            let missing = fault.applies_to(io) && !tally.faults.contains_key(&(fault, io));
            assert!(!missing, "{fault:?} at {io:?} was never met");
        }
    }
}
