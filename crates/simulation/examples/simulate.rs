//! `sluice simulate` without the rest of the binary: builds in seconds, for whoever makes the simulation faster or lets it run for long.
//!
//! `cargo run --release -p sluice-simulation --example simulate -- [SEEDS] [EVENTS] [FIRST SEED] [PROFILE] [trace]`
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use sluice_simulation::{Campaign, Options, Profile, trace};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(otherwise, |text| text.parse().unwrap());
    let (seeds, events, seed) = (number(200), number(2_000) as u32, number(1));
    let profile = arguments.next().map_or(Profile::Mixed, |word| {
        Profile::ALL.into_iter().find(|profile| profile.as_str() == word).expect("the name of a profile")
    });
    if arguments.next().is_some() {
        trace(Options { seed, events, profile }).iter().for_each(|line| println!("{line}"));
        return;
    }
    let started = Instant::now();
    let totals = Campaign { seed, seeds, events, profile, threads: 1 }.run(|_| {});
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} events, {} requests, {} calls, {} crashes, {} faults, {} transitions, {} steps, {:.1} simulated days",
        totals.seeds,
        totals.events,
        totals.requests,
        totals.calls,
        totals.crashes,
        totals.faults,
        totals.transitions,
        totals.steps,
        totals.simulated_days,
    );
    println!(
        "hash {:016x}; {seconds:.1} s; {:.2} million events a minute",
        totals.hash,
        totals.events as f64 * 60e-6 / seconds
    );
    println!("never reached: {:?}", totals.missing);
    if let Some(broken) = &totals.violation {
        println!("{}\n{}\n{}\n{}", broken.invariant, broken.detail, broken.trace.join("\n"), broken.reproduce);
    }
    std::process::exit(i32::from(!totals.is_good()));
}
