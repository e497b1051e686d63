//! Every known mistake is noticed by the simulation, within a bounded number of events.
#![allow(clippy::unwrap_used)]

use sluice_domain::mutant::Mutant;
use sluice_simulation::{Options, Profile, run};

const SEEDS: u64 = 200;
const EVENTS: u32 = 500;

#[test]
fn every_mutant_is_detected() {
    let mut unnoticed = Vec::new();
    for mutant in Mutant::ALL {
        let mut events = 0;
        let caught = mutant.while_on(|| {
            (1..=SEEDS).find_map(|seed| {
                let report = run(Options { seed, events: EVENTS, profile: Profile::Mixed });
                events += report.events;
                report.violation
            })
        });
        match caught {
            Some(violation) => println!("{mutant:?}: after {events} events: {}", violation.invariant),
            None => unnoticed.push(mutant),
        }
    }
    assert_eq!(unnoticed, [], "of {}", Mutant::ALL.len());
}

#[test]
fn no_mutant_means_no_violation() {
    for seed in 1..=60 {
        let report = run(Options { seed, events: EVENTS, profile: Profile::Mixed });
        assert!(report.violation.is_none(), "{:?}", report.violation);
    }
}
