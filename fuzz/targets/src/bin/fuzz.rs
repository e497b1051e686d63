//! `fuzz TARGET SECONDS [SEED]`: throws bytes at a target for a while, on any toolchain. `fuzz list` names the targets.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluice_fuzz_targets::{TARGETS, drive, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<u64>().ok());
    let Some(target) = arguments.first().and_then(|name| target(name)) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        println!("{}", names.join("\n"));
        let listed = arguments.first().is_some_and(|word| word == "list");
        return if listed { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    let seconds = number(1).unwrap_or(60);
    let seed = number(2).unwrap_or_else(|| jiff::Timestamp::now().as_nanosecond() as u64);
    let kept = match drive::kept(target) {
        Ok(kept) => kept,
        Err(error) => {
            eprintln!("{} cannot be read: {error}", drive::corpus(target).display());
            return ExitCode::FAILURE;
        }
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    match drive::drive(target, &kept, seed, &mut |_| Instant::now() < end) {
        Ok(rounds) => {
            println!("{}: {rounds} inputs in {seconds} s, seed {seed}: nothing broke", target.name);
            ExitCode::SUCCESS
        }
        Err(crash) => {
            let file = std::env::temp_dir().join(format!("sluice-fuzz-{}-{seed}", target.name));
            let kept = std::fs::write(&file, &crash.input);
            eprintln!("{} broke with seed {seed}: {}\n{}", target.name, crash.said, crash.input.escape_ascii());
            if kept.is_ok() {
                eprintln!("kept as {}; mend it, then put it into {}", file.display(), drive::corpus(target).display());
            }
            ExitCode::FAILURE
        }
    }
}
