//! The loop that throws bytes: a kept corpus, and what a small mutator makes of it. The same seed throws the same bytes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sluice_domain::random::Random;

use crate::Target;

/// The longest input.
const BYTES_MAX: usize = 4_096;

/// Words that parsers know. A few of them get further into one than any bit that is turned over.
const WORDS: &[&str] = &[
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

/// Where the corpus of a target lies.
pub fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target.name)
}

/// The kept inputs of a target, in the order of their names.
pub fn kept(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(corpus(target))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// An input that a target did not survive, and what it said.
#[derive(Clone, Debug)]
pub struct Crash {
    /// The bytes.
    pub input: Vec<u8>,
    /// The words of the panic.
    pub said: String,
}

/// Runs one input.
pub fn try_one(target: &Target, input: &[u8]) -> Result<(), Crash> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Crash { input: input.to_vec(), said }
    })
}

/// Runs the corpus, and then changed inputs for as long as `goes_on` says so. It is told how many there were.
pub fn drive(target: &Target, kept: &[Vec<u8>], seed: u64, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<u64, Crash> {
    for input in kept {
        try_one(target, input)?;
    }
    let mut random = Random::seeded(seed);
    let mut rounds = 0;
    while goes_on(rounds) {
        rounds += 1;
        try_one(target, &mutated(kept, &mut random))?;
    }
    Ok(rounds)
}

fn mutated(kept: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let place = |random: &mut Random, length: usize| random.below(length as u64 + 1) as usize;
    let pick = |random: &mut Random| kept.get(random.below(kept.len() as u64) as usize).cloned().unwrap_or_default();
    let mut input = pick(random);
    for _ in 0..=random.below(5) {
        let length = input.len();
        match random.below(9) {
            0 if length > 0 => {
                let bit = random.below(length as u64 * 8) as usize;
                input[bit / 8] ^= 1 << (bit % 8);
            }
            1 if length > 0 => input[random.below(length as u64) as usize] = random.next_u64() as u8,
            2 => input.truncate(place(random, length)),
            3 => {
                let (from, to) = (place(random, length), place(random, length));
                let piece = input[from.min(to)..from.max(to)].to_vec();
                let at = place(random, length);
                input.splice(at..at, piece);
            }
            4 => {
                let (from, to) = (place(random, length), place(random, length));
                input.drain(from.min(to)..from.max(to));
            }
            5 => {
                let other = pick(random);
                let (at, from) = (place(random, length), place(random, other.len()));
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => {
                let at = place(random, length);
                let byte = random.next_u64() as u8;
                input.insert(at, byte);
            }
            _ => {
                let word = WORDS[random.below(WORDS.len() as u64) as usize];
                let at = place(random, length);
                let times = if random.below(16) == 0 { 1 + random.below(200) as usize } else { 1 };
                input.splice(at..at, word.repeat(times).into_bytes());
            }
        }
    }
    input.truncate(BYTES_MAX);
    input
}
