//! Simulation: the production core with faults of every kind, deterministic by seed.
//!
//! In: a seed.
//! Out: a report: what was reached, a hash of every step, and the first broken invariant, if any.
//! Touches: `sluice_domain` (scheduler, gates, settlement, retries, keys) over `sluice_ledger::memory`; nothing outside the process.
//! Never: reads a clock or draws a number that does not come from the seed.
//! If the process dies here: nothing is lost; the same seed runs again.

mod accounts;
mod agenda;
mod call_budget;
mod calls;
mod campaign;
mod checker;
mod coverage;
mod destinations;
mod edits;
mod fault_rates;
mod gates;
mod guards;
mod invariants;
mod node;
mod observed;
mod operators;
mod ops;
mod people;
mod plan;
mod promises;
mod records;
mod run;
mod scheduling;
mod senders;
mod shadow_ledger;
#[cfg(test)]
mod starvation;
mod trace;
mod watching;
mod world;
mod writer;

use serde::Serialize;

pub use campaign::{Campaign, FULL_COVERAGE_EVENTS, Totals};
pub use coverage::{Coverage, Fault};
pub use invariants::Invariant;
pub use shadow_ledger::{Ground, scratch};
use trace::About;
use world::Simulation;

/// Which faults a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// All of them, each seed with its own mix.
    #[default]
    Mixed,
    /// Only senders that repeat themselves.
    Calm,
    /// Mostly destinations and the network.
    Network,
    Crashes,
    /// Mostly the disk.
    Disk,
    /// Destinations that deny what they did: what the proof does not cover is counted instead of reported.
    Liar,
}

impl Profile {
    pub const ALL: [Profile; 6] =
        [Profile::Mixed, Profile::Calm, Profile::Network, Profile::Crashes, Profile::Disk, Profile::Liar];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Mixed => "mixed",
            Profile::Calm => "calm",
            Profile::Network => "network",
            Profile::Crashes => "crashes",
            Profile::Disk => "disk",
            Profile::Liar => "liar",
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The same seed gives the same run.
    pub seed: u64,
    /// How many different events senders have.
    pub events: u32,
    /// What goes wrong.
    pub profile: Profile,
}

/// A broken invariant.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// Its number and name.
    pub invariant: String,
    /// What was found.
    pub detail: String,
    /// When, in simulated milliseconds.
    pub at_ms: i64,
    /// The job or key that it happened to.
    pub about: String,
    /// The command that reproduces it.
    pub reproduce: String,
    /// The last steps that touched it.
    pub trace: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    /// Different events of senders.
    pub events: u64,
    /// Requests, repeats included.
    pub requests: u64,
    /// Calls that destinations saw.
    pub calls: u64,
    pub crashes: u64,
    /// Effects that came about twice because a destination denied the first.
    pub doubled_by_lies: u64,
    /// Steps of the simulation.
    pub steps: u64,
    pub simulated_ms: i64,
    /// Hash of every step.
    pub hash: u64,
    /// What was reached.
    #[serde(skip)]
    pub coverage: Coverage,
    /// The first broken invariant.
    pub violation: Option<Violation>,
}

/// Steps of the trace that are shown with a violation.
const TRACE_LINES_MAX: usize = 60;

/// Runs a seed. A violation is run once more, for its trace.
pub fn run(options: Options) -> Report {
    let mut world = Simulation::new(options, false);
    world.play();
    let Some(broken) = world.checker.broken.take() else { return world.report(None) };
    let mut again = Simulation::new(options, true);
    again.play();
    let about = (broken.about != About::Nothing).then_some(broken.about);
    let violation = Violation {
        invariant: broken.invariant.to_string(),
        detail: broken.detail,
        at_ms: broken.at,
        about: broken.about.to_string(),
        reproduce: command(options),
        trace: again.trace.lines(about, TRACE_LINES_MAX),
    };
    world.report(Some(violation))
}

/// Runs a seed with a real ledger beside the simulated one: both are given the same operations, and must have the same replies
/// and content, over every crash.
pub fn run_beside(options: Options, ground: std::io::Result<Box<dyn Ground>>) -> Report {
    let mut world = Simulation::new(options, false);
    world.attach_shadow(ground);
    world.play();
    world.compare_shadow();
    let Some(broken) = world.checker.broken.take() else { return world.report(None) };
    let violation = Violation {
        invariant: broken.invariant.to_string(),
        detail: broken.detail,
        at_ms: broken.at,
        about: broken.about.to_string(),
        reproduce: format!("{} --store sqlite", command(options)),
        trace: vec![],
    };
    world.report(Some(violation))
}

fn command(Options { seed, events, profile }: Options) -> String {
    format!("sluice simulate --seed {seed} --events {events} --profile {}", profile.as_str())
}

/// Runs a seed and returns every step as text.
pub fn trace(options: Options) -> Vec<String> {
    let mut world = Simulation::new(options, true);
    world.play();
    world.trace.lines(None, usize::MAX)
}
