//! Fuzz targets, one for each parser and verifier. A target panics if an invariant is violated and returns otherwise.
//! [`runner`] runs them.

mod bodies;
mod responses;
pub mod runner;
mod signatures;
mod texts;

#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its corpus directory.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Mutated inputs per run of the test suite; about one to two seconds.
    pub rounds: u32,
}

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
    Target { name: "import_row", run: bodies::import_row, rounds: 60_000 },
    Target { name: "signature", run: signatures::signature, rounds: 60_000 },
    Target { name: "tampering", run: signatures::tampering, rounds: 18_000 },
    Target { name: "id_token", run: signatures::id_token, rounds: 18_000 },
    Target { name: "retry_after", run: responses::retry_after, rounds: 180_000 },
    Target { name: "smtp_reply", run: responses::smtp_reply, rounds: 120_000 },
    Target { name: "response", run: responses::response, rounds: 30_000 },
];

pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Splits off the first byte.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

/// Splits off the first line.
fn line(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[]),
    }
}
