//! Runs a target on its corpus and on mutations of it. The same seed yields the same inputs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sluice_domain::random::Random;

use crate::Target;

/// Maximum length of an input.
const BYTES_MAX: usize = 4_096;

/// Tokens of the parsed formats; inserting them reaches deeper into a parser than flipping bits.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "1e999",
    "-0",
    "null",
    "true",
    "{{ ",
    " }}",
    "${secrets.",
    "body.",
    " | lower",
    "&",
    "=",
    "%40",
    "[]",
    "\r\n",
    "\r\n\r\n",
    "--x",
    "Content-Disposition: form-data; name=",
    "t=1790000000",
    ",v1=",
    "sha256=",
    "v1,",
    "1h",
    "30d",
    "99999999999999999999",
    "250 ",
    "250-",
    "\n",
    " ",
    "\t",
    "- ",
    ": ",
    "|\n  ",
    "&a ",
    "*a",
    "name: ",
    "triggers:",
    "run:",
    "\u{feff}",
    "é",
    "\u{1f680}",
    "\0",
    "Fri, 31 Dec 1999 23:59:59 GMT",
];

pub fn corpus_directory(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target.name)
}

/// Inputs of a target's corpus, sorted by file name.
pub fn corpus(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(corpus_directory(target))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// Input that made a target panic.
#[derive(Clone, Debug)]
pub struct Crash {
    pub input: Vec<u8>,
    /// Message of the panic.
    pub message: String,
}

/// Runs one input and catches a panic.
pub fn try_one(target: &Target, input: &[u8]) -> Result<(), Crash> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message =
            message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Crash { input: input.to_vec(), message }
    })
}

/// Runs the corpus, then mutated inputs while `keep_running` returns true; it receives the number of mutated inputs.
pub fn run(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    keep_running: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, Crash> {
    for input in corpus {
        try_one(target, input)?;
    }
    let mut random = Random::seeded(seed);
    let mut rounds = 0;
    while keep_running(rounds) {
        rounds += 1;
        try_one(target, &mutated(corpus, &mut random))?;
    }
    Ok(rounds)
}

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let position = |random: &mut Random, length: usize| random.below(length as u64 + 1) as usize;
    let pick =
        |random: &mut Random| corpus.get(random.below(corpus.len() as u64) as usize).cloned().unwrap_or_default();
    let mut input = pick(random);
    for _ in 0..=random.below(5) {
        let length = input.len();
        match random.below(9) {
            0 if length > 0 => {
                let bit = random.below(length as u64 * 8) as usize;
                input[bit / 8] ^= 1 << (bit % 8);
            }
            1 if length > 0 => input[random.below(length as u64) as usize] = random.next_u64() as u8,
            2 => input.truncate(position(random, length)),
            3 => {
                let (from, to) = (position(random, length), position(random, length));
                let piece = input[from.min(to)..from.max(to)].to_vec();
                let at = position(random, length);
                input.splice(at..at, piece);
            }
            4 => {
                let (from, to) = (position(random, length), position(random, length));
                input.drain(from.min(to)..from.max(to));
            }
            5 => {
                let other = pick(random);
                let (at, from) = (position(random, length), position(random, other.len()));
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => {
                let at = position(random, length);
                let byte = random.next_u64() as u8;
                input.insert(at, byte);
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len() as u64) as usize];
                let at = position(random, length);
                let times = if random.below(16) == 0 { 1 + random.below(200) as usize } else { 1 };
                input.splice(at..at, token.repeat(times).into_bytes());
            }
        }
    }
    input.truncate(BYTES_MAX);
    input
}
