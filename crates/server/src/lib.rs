//! Runs: the `sluice` binary, its rooms and their wiring.
//!
//! ```text
//! HTTP → intake → ledger.accept → schedule → work → effect → connector → ledger.settle
//! ```
//!
//! A folder is a room. Rooms meet in the ledger, or through a handle that the other room's `mod.rs` declares. Only
//! [`run`] knows every room.

pub mod change;
pub mod cli;
pub mod clock;
pub mod config;
pub mod intake;
pub mod maintain;
pub mod observe;
pub mod operate;
pub mod revisions;
pub mod root_key;
pub mod run;
pub mod safe_mode;
pub mod schedule;
pub mod unclean_shutdown;
pub mod work;
