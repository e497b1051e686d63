//! Many seeds on several threads. The result does not depend on their number.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use super::{Coverage, Options, Profile, Report, Violation, run};

/// From so many events on, everything has to be reached.
pub const FULL_COVERAGE_EVENTS: u64 = 200_000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub seed: u64,
    /// How many, one after the other.
    pub seeds: u64,
    /// Events in each.
    pub events: u32,
    /// What goes wrong.
    pub profile: Profile,
    /// How many run at once.
    pub threads: usize,
}

/// What came of all of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Seeds that were run.
    pub seeds: u64,
    /// Different events of senders.
    pub events: u64,
    /// Requests, repeats included.
    pub requests: u64,
    /// Calls that destinations saw.
    pub calls: u64,
    pub crashes: u64,
    /// Faults of every kind, and acts of operators.
    pub faults: u64,
    /// Transitions of jobs, effects and gates.
    pub transitions: u64,
    pub steps: u64,
    pub simulated_days: f64,
    /// Effects that came about twice because a destination denied the first.
    pub doubled_by_lies: u64,
    /// All hashes as one.
    pub hash: u64,
    /// How often each thing was reached.
    pub coverage: Coverage,
    /// What was never reached, though there were enough events to.
    pub missing: Vec<String>,
    /// The first broken invariant, by seed.
    pub violation: Option<Violation>,
}

impl Totals {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.events += report.events;
        self.requests += report.requests;
        self.calls += report.calls;
        self.crashes += report.crashes;
        self.steps += report.steps;
        self.doubled_by_lies += report.doubled_by_lies;
        self.simulated_days += report.simulated_ms as f64 / 86_400_000.0;
        self.hash = (self.hash ^ report.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.coverage.add(&report.coverage);
        if self.violation.is_none() {
            self.violation = report.violation;
        }
    }

    /// Whether nothing broke and nothing that had to be reached was missed.
    pub fn is_good(&self) -> bool {
        self.violation.is_none() && self.missing.is_empty()
    }
}

impl Campaign {
    /// Runs every seed, or until the first one breaks something. `progress` hears how many events are done.
    pub fn run(self, progress: impl Fn(u64) + Sync) -> Totals {
        self.run_each(run, progress)
    }

    /// The same with another way to run a seed.
    pub fn run_each(self, run: impl Fn(Options) -> Report + Sync, progress: impl Fn(u64) + Sync) -> Totals {
        let next = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let broken = AtomicBool::new(false);
        let reports = Mutex::new(Vec::new());
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.seeds || broken.load(Ordering::Relaxed) {
                    return;
                }
                let seed = self.seed.wrapping_add(index);
                let report = run(Options { seed, events: self.events, profile: self.profile });
                broken.fetch_or(report.violation.is_some(), Ordering::Relaxed);
                progress(done.fetch_add(report.events, Ordering::Relaxed) + report.events);
                reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, report));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        let mut reports = reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        reports.sort_by_key(|(index, _)| *index);
        let mut totals = Totals::default();
        for (_, report) in reports {
            totals.add(report);
        }
        totals.faults = totals.coverage.faults_total();
        totals.transitions = totals.coverage.transitions_total();
        if totals.violation.is_none() && totals.events >= FULL_COVERAGE_EVENTS {
            totals.missing = totals.coverage.missing(self.profile);
        }
        totals
    }
}
