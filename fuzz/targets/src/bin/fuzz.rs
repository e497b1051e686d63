//! `fuzz TARGET SECONDS [SEED]`: fuzzes a target for that long, on a stable toolchain. `fuzz list` lists the targets.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluice_fuzz_targets::{TARGETS, runner, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let Some(target) = arguments.first().and_then(|name| target(name)) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        println!("{}", names.join("\n"));
        let listed = arguments.first().is_some_and(|word| word == "list");
        return if listed { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    let seconds = number(1).unwrap_or(60);
    let seed = number(2).unwrap_or_else(|| jiff::Timestamp::now().as_nanosecond() as u64);
    let inputs = match runner::corpus(target) {
        Ok(inputs) => inputs,
        Err(error) => {
            eprintln!("cannot read the corpus {}: {error}", runner::corpus_directory(target).display());
            return ExitCode::FAILURE;
        }
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    match runner::run(target, &inputs, seed, &mut |_| Instant::now() < end) {
        Ok(rounds) => {
            println!("{}: {rounds} inputs in {seconds} s, seed {seed}: no crash", target.name);
            ExitCode::SUCCESS
        }
        Err(crash) => {
            let file = std::env::temp_dir().join(format!("sluice-fuzz-{}-{seed}", target.name));
            let saved = std::fs::write(&file, &crash.input);
            eprintln!("{} crashed with seed {seed}: {}\n{}", target.name, crash.message, crash.input.escape_ascii());
            if saved.is_ok() {
                eprintln!(
                    "input saved as {}; fix the cause, then move it to {}",
                    file.display(),
                    runner::corpus_directory(target).display()
                );
            }
            ExitCode::FAILURE
        }
    }
}
