//! Remembers: the only crate that speaks SQL to Sluice's own store.
//!
//! Callers hold a [`Ledger`]: concrete, cheap to clone, with verbs instead of tables. The neutral modules define the verbs
//! and their data; the drivers `sqlite` and `memory` implement them and know nothing of each other.

mod access;
mod audit;
mod balance;
pub mod bench;
mod command;
mod error;
mod event_edit;
mod failure_group;
mod fence;
mod filter;
mod import;
mod ledger;
pub mod memory;
mod op;
mod options;
pub mod private_files;
mod read_store;
mod record;
mod seal;
mod sqlite;
mod straggler;
mod submission_queue;
mod write_store;

pub use access::{
    CredentialRecord, NewCredential, ProviderIdentity, PutUser, RemoveUser, RevokeCredential, SecretDigest, TakeLink,
    UseCredential, UserRecord, secret_digest,
};
pub use audit::AuditFilter;
pub use balance::{BalanceOutcome, BalancePart};
pub use command::{ClaimCommand, FinishCommand};
pub use error::Error;
pub use event_edit::{EditEvent, Edited, EventRevisionRecord};
pub use failure_group::{GroupQuery, MarkGroup, MarkedGroup};
pub use filter::{ApprovalFilter, EventFilter, EventQuery, JobFilter, ListPage, Page, StoredQuery};
pub use import::{CancelImport, ImportStep, NewImport};
pub use ledger::Ledger;
pub use op::*;
pub use options::{ClockFn, LedgerOptions, Stats};
pub use record::*;
pub use seal::{RootKey, RootKeyProblem, random_token};
pub use sqlite::{AttemptEntry, Balance, Inspector, InvariantViolation, Verification};
