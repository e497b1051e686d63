use sluice_simulation::{Options, Profile, run};
#[test]
fn first() {
    for (profile, seeds) in [(Profile::Calm, 3u64), (Profile::Network, 5), (Profile::Mixed, 40)] {
        for seed in 1..=seeds {
            let report = run(Options { seed, events: 300, profile });
            if let Some(v) = report.violation { panic!("{profile:?} {seed}: {}\n{}\n{}\n{}", v.invariant, v.detail, v.about, v.trace.join("\n")); }
        }
    }
}
