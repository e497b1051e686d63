//! Operate: what people do with a running node.
//!
//! In: API requests; the CLI in the same process.
//! Out: JSON.
//! Touches: ledger: read and operate verbs; the scheduler's and the door's handles.
//! Never: SQL, connectors.
//! If the process dies here: an act is whole, with its audit line, or has not happened.

mod commands;
mod operator;
mod queries;
mod routes;
pub mod views;

pub use commands::{ReplayRequest, Selection};
pub(crate) use operator::NodeHandles;
pub use operator::{OperateError, Operator};
pub(crate) use routes::AdminServer;
pub use routes::openapi;
