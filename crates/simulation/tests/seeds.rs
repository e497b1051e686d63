//! The engine under simulation: hundreds of seeds and a million events without a broken invariant.
#![allow(clippy::unwrap_used)]

use sluice_simulation::{Campaign, Options, Profile, run};

fn campaign(seed: u64, seeds: u64, events: u32, profile: Profile) {
    assert_eq!(unbroken(seed, seeds, events, profile), Vec::<String>::new(), "never reached");
}

/// Returns what was never reached.
fn unbroken(seed: u64, seeds: u64, events: u32, profile: Profile) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let totals = Campaign { seed, seeds, events, profile, threads }.run(|_| {});
    if let Some(broken) = &totals.violation {
        panic!("{}\n{}\n{}\n{}", broken.invariant, broken.detail, broken.trace.join("\n"), broken.reproduce);
    }
    assert_eq!((totals.seeds, totals.events), (seeds, seeds * u64::from(events)));
    totals.missing
}

#[test]
fn seeds_break_nothing_and_reach_everything() {
    campaign(1, 1_000, 1_500, Profile::Mixed);
}

/// In a small world operators, crashes and clocks meet the same few jobs again and again.
#[test]
fn small_worlds_break_nothing() {
    unbroken(1, 700, 250, Profile::Mixed);
    unbroken(1, 1_000, 60, Profile::Mixed);
}

#[test]
fn every_other_profile_breaks_nothing() {
    for profile in [Profile::Calm, Profile::Network, Profile::Crashes, Profile::Disk, Profile::Liar] {
        campaign(10_000, 100, 1_050, profile);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..30 {
        let options = Options { seed, events: 400, profile: Profile::Mixed };
        let (first, second) = (run(options), run(options));
        assert_eq!((first.hash, first.steps), (second.hash, second.steps), "seed {seed}");
        let other = run(Options { seed: seed + 1, ..options });
        assert_ne!(first.hash, other.hash);
    }
}
