//! Operate: what people do with a running node.
//!
//! In: API requests; the CLI in the same process.
//! Out: JSON.
//! Touches: ledger: read and operate verbs; the scheduler's and the door's handles.
//! Never: SQL, connectors.
//! If the process dies here: an act is whole, with its audit line, or has not happened.

mod api;
pub mod approvals;
pub mod change;
mod clash;
mod commands;
pub mod guards;
mod key_ttl_advice;
pub mod keys;
mod operator;
mod queries;
pub mod view;

pub use api::{AdminServer, openapi};
pub use operator::{NodeHandles, OperateError, Operator, ReplayRequest, Selection};
pub use queries::Reveal;
