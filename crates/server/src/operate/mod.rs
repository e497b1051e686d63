//! Operate: commands and queries of operators.
//!
//! In: API requests; the CLI in the same process.
//! Out: JSON.
//! Touches: ledger: read and operate verbs; the handles of the scheduler and the intake.
//! Never: SQL, connectors.
//! If the process dies here: a command is committed with its audit entry, or has not happened.

mod access;
mod commands;
mod listener;
mod operator;
mod queries;
mod routes;
pub mod views;

pub use access::AdminSettings;
pub use commands::{ReplayRequest, Selection, Stranding};
pub(crate) use listener::AdminServer;
pub(crate) use operator::NodeHandles;
pub use operator::{OperateError, Operator};
pub use routes::openapi;
