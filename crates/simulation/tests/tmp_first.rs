use sluice_simulation::{Options, Profile, run, trace};
#[test]
fn first() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let events: u32 = std::env::var("EVENTS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let profile = match std::env::var("P").as_deref() { Ok("mixed") => Profile::Mixed, Ok("network") => Profile::Network, Ok("crashes") => Profile::Crashes, Ok("disk") => Profile::Disk, _ => Profile::Calm };
    if std::env::var("T").is_ok() {
        for l in trace(Options { seed, events, profile }) { println!("{l}"); }
        return;
    }
    for seed in seed..seed + seeds {
        let report = run(Options { seed, events, profile });
        if let Some(v) = report.violation { panic!("{profile:?} {seed}: {}\n{}\n{}\n{}", v.invariant, v.detail, v.about, v.trace.join("\n")); }
    }
}
