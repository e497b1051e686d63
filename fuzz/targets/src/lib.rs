//! What is thrown bytes at: one target for each parser and verifier. A target panics where a promise is broken, and returns
//! otherwise. [`drive`] drives them.

mod answers;
mod bodies;
pub mod drive;
mod proofs;
mod texts;

/// A name and what it throws bytes at.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&[u8]),
    /// How often the test suite runs it, beside its corpus. A second or two of each.
    pub rounds: u32,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "configuration", run: texts::configuration, rounds: 4_500 },
    Target { name: "expression", run: texts::expression, rounds: 18_000 },
    Target { name: "unit", run: texts::unit, rounds: 180_000 },
    Target { name: "path", run: texts::path, rounds: 180_000 },
    Target { name: "mask", run: texts::mask, rounds: 120_000 },
    Target { name: "json", run: bodies::json, rounds: 120_000 },
    Target { name: "form", run: bodies::form, rounds: 120_000 },
    Target { name: "multipart", run: bodies::multipart, rounds: 120_000 },
    Target { name: "encoding", run: bodies::encoding, rounds: 18_000 },
    Target { name: "key", run: bodies::key, rounds: 9_000 },
    Target { name: "signature", run: proofs::signature, rounds: 60_000 },
    Target { name: "tampering", run: proofs::tampering, rounds: 18_000 },
    Target { name: "retry_after", run: answers::retry_after, rounds: 180_000 },
    Target { name: "smtp_reply", run: answers::smtp_reply, rounds: 120_000 },
    Target { name: "answer", run: answers::answer, rounds: 30_000 },
];

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The first byte, and the rest.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

/// The first line, and the rest.
fn line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[]),
    }
}
