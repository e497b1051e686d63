//! The seeds of the simulation through the real SQLite: the same operations, answers and contents, over crashes that take any part of what
//! was not synced.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use sluice_faulty_vfs::{CrashSurvival, Disk};
use sluice_simulation::{Campaign, Fault, Ground, Options, Profile, run_beside};

const KEEPS: [CrashSurvival; 4] =
    [CrashSurvival::Nothing, CrashSurvival::Some, CrashSurvival::Prefix, CrashSurvival::Everything];

/// A disk that loses its power with every crash of the simulated process.
struct Faulty {
    directory: tempfile::TempDir,
    disk: Disk,
    crashes: u64,
}

impl Faulty {
    fn new() -> Faulty {
        let (directory, disk) = (tempfile::tempdir().unwrap(), Disk::default());
        disk.mount(directory.path());
        Faulty { directory, disk, crashes: 0 }
    }
}

impl Ground for Faulty {
    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.disk.power_off();
        let image = self.disk.image(KEEPS[self.crashes as usize % KEEPS.len()], self.crashes);
        self.disk = Disk::from_image(&image);
        self.disk.mount(self.directory.path());
    }
}

#[test]
fn ledger_on_disk_and_in_memory_return_and_store_the_same() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for (profile, seeds, crashes) in [(Profile::Mixed, 100, 200), (Profile::Crashes, 60, 600)] {
        let campaign = Campaign { seed: 1, seeds, events: 250, profile, threads };
        let totals = campaign.run_each(|options: Options| run_beside(options, Ok(Box::new(Faulty::new()))), |_| {});
        if let Some(broken) = totals.violation {
            panic!("{}\n{}\n{}", broken.invariant, broken.detail, broken.reproduce);
        }
        let (events, calls) = (totals.events, totals.calls);
        println!("{}: {seeds} seeds, {events} events, {calls} calls, {} crashes", profile.as_str(), totals.crashes);
        assert!(totals.crashes > crashes, "{} crashes", totals.crashes);
        for fault in [Fault::ContactsMerged, Fault::ContactSplit] {
            let counts = totals.coverage.counts();
            assert!(counts.iter().any(|(name, count)| name == fault.as_str() && *count > 0), "{}", fault.as_str());
        }
    }
}
