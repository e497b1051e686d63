//! Commands of operators with an idempotency key: a repeated one gets the first response, and nothing is done again.
//!
//! A key is claimed before the command and finished with its response after it. If the process dies in between, nobody knows whether
//! the command was done: a repeat is told so instead of being done a second time.

use std::time::Duration;

use crate::job::Term;
use crate::pseudonym::PseudonymKey;

/// How long a response is kept. A key that is used again later is a new one.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Responses that are kept; retention removes the oldest beyond them.
pub const RESPONSES_MAX: u32 = 10_000;
/// Longest body that is kept, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// A digest of the caller and the key, or of the request.
pub type CommandDigest = [u8; 32];

/// Digest of these parts. Without the key of the ledger, what a request contains (a password, an address) cannot be found by guessing.
pub fn digest(key: &PseudonymKey, parts: &[&[u8]]) -> CommandDigest {
    let mut hasher = key.hasher();
    hasher.update(b"command");
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The response of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResponse {
    /// HTTP status.
    pub status: u16,
    pub content_type: String,
    /// `None` if it must not be kept, or is too long.
    pub body: Option<Vec<u8>>,
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEntry {
    pub request: CommandDigest,
    /// The process that serves, or served, the first request.
    pub term: Term,
    /// `None` while the first request is served.
    pub response: Option<CommandResponse>,
}

/// What a request with a key is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the first: do it, then finish it.
    First,
    Done(CommandResponse),
    /// This process serves the first one.
    InProgress,
    /// A process that has ended served the first one: it may have been done.
    InDoubt,
    /// The key belongs to another request.
    OtherRequest,
}

/// Decides what a request does, by what is stored under its key. The owner is the process that asks.
pub fn claim(entry: Option<CommandEntry>, request: &CommandDigest, owner: Term) -> Claim {
    match entry {
        None => Claim::First,
        Some(entry) if entry.request != *request => Claim::OtherRequest,
        Some(CommandEntry { response: Some(response), .. }) => Claim::Done(response),
        Some(entry) if entry.term == owner => Claim::InProgress,
        Some(_) => Claim::InDoubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_needs_the_key_and_its_parts_do_not_run_together() {
        let (key, other) = (PseudonymKey::new([7; 32]), PseudonymKey::new([8; 32]));
        assert_eq!(digest(&key, &[b"ab", b"c"]), digest(&key, &[b"ab", b"c"]));
        assert_ne!(digest(&key, &[b"ab", b"c"]), digest(&key, &[b"a", b"bc"]));
        assert_ne!(digest(&key, &[b"a guessable password"]), digest(&other, &[b"a guessable password"]));
    }

    #[test]
    fn request_is_done_once_and_a_lost_one_is_in_doubt() {
        let (request, term) = ([1; 32], Term(3));
        let response = CommandResponse { status: 200, content_type: "application/json".into(), body: Some(vec![1]) };
        let entry = |term, response| Some(CommandEntry { request, term, response });
        assert_eq!(claim(None, &request, term), Claim::First);
        assert_eq!(claim(entry(term, None), &request, term), Claim::InProgress);
        assert_eq!(claim(entry(Term(2), None), &request, term), Claim::InDoubt);
        assert_eq!(claim(entry(Term(2), Some(response.clone())), &request, term), Claim::Done(response.clone()));
        assert_eq!(claim(entry(term, Some(response)), &[2; 32], term), Claim::OtherRequest);
    }
}
