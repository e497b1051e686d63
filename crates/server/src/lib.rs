//! A Sluice node: its components, their wiring, and the commands that operate it. The binary is the crate `sluice`.
//!
//! ```text
//! HTTP → intake → ledger.accept → schedule → work → effect → connector → ledger.settle
//! ```
//!
//! A folder is a component. Components communicate through the ledger, or through a handle that the other component's
//! `mod.rs` declares. Only [`run`] knows every component. `pub` is what the harness, the binary, the fuzz targets or the
//! tests name.

mod access;
pub mod admin_token;
mod change;
mod change_follower;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
mod dry_run;
mod enrich;
mod identify;
pub mod intake;
mod levels;
pub mod maintain;
mod observe;
pub mod operate;
mod pauses;
mod payloads;
pub mod recorded_answers;
mod replays;
pub mod revisions;
pub mod root_key;
pub mod run;
mod safe_mode;
mod schedule;
mod trials;
mod unclean_shutdown;
mod watch;
pub mod work;

/// Actor of what a node does by itself, such as a pause after rejected credentials.
pub const OWN_ACTOR: &str = "sluice";
