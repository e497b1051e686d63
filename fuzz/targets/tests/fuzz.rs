//! Runs every target on its corpus and on a fixed number of mutated inputs, with a fixed seed.

use sluice_fuzz_targets::{TARGETS, runner};

const SEED: u64 = 7;

fn bounded(name: &str) {
    let target = sluice_fuzz_targets::target(name).expect("the target exists");
    let inputs = runner::corpus(target).expect("the corpus is readable");
    assert!(inputs.len() >= 3, "{name} has {} inputs", inputs.len());
    let rounds = u64::from(target.rounds);
    if let Err(crash) = runner::run(target, &inputs, SEED, &mut |done| done < rounds) {
        panic!("{name}: {}\n{}", crash.message, crash.input.escape_ascii());
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { bounded(stringify!($name)); })*

        #[test]
        fn every_target_is_tested_and_has_a_corpus() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(tested.to_vec(), TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
            for name in tested {
                let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
                assert!(corpus.read_dir().is_ok_and(|mut files| files.next().is_some()), "{} is empty", corpus.display());
            }
        }
    };
}

targets! {
    configuration expression unit path mask json form multipart encoding key import_row signature tampering id_token retry_after smtp_reply
    response
}
