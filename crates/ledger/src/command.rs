//! Commands with an idempotency key: what is asked of the ledger about them.

use sluice_domain::idempotent_command::{CommandDigest, CommandResponse};
use sluice_domain::job::Term;
use sluice_domain::time::Time;

/// Claims a key for a request.
#[derive(Clone, Debug)]
pub struct ClaimCommand {
    /// Digest of the caller and the key.
    pub key: CommandDigest,
    pub request: CommandDigest,
    /// The process that asks.
    pub term: Term,
    pub at: Time,
}

/// Ends a command that was claimed.
#[derive(Clone, Debug)]
pub struct FinishCommand {
    pub key: CommandDigest,
    /// `None` frees the key: nothing was done, and the same request may be made again.
    pub response: Option<CommandResponse>,
}
