//! Every target survives its kept corpus, and a bounded number of inputs that are made from it. The same ones each time.

use sluice_fuzz_targets::{TARGETS, drive};

const SEED: u64 = 7;

fn bounded(name: &str) {
    let target = sluice_fuzz_targets::target(name).expect("a target of this name");
    let kept = drive::kept(target).expect("a corpus");
    assert!(kept.len() >= 3, "{name} has {} kept inputs", kept.len());
    let rounds = u64::from(target.rounds);
    if let Err(crash) = drive::drive(target, &kept, SEED, &mut |done| done < rounds) {
        panic!("{name}: {}\n{}", crash.said, crash.input.escape_ascii());
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { bounded(stringify!($name)); })*

        #[test]
        fn every_target_is_run_here_and_has_kept_inputs() {
            let here = [$(stringify!($name)),*];
            assert_eq!(here.to_vec(), TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
            for name in here {
                let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
                assert!(kept.read_dir().is_ok_and(|mut kept| kept.next().is_some()), "{} is empty", kept.display());
            }
        }
    };
}

targets! {
    configuration expression unit path mask json form multipart encoding key signature tampering retry_after smtp_reply answer
}
