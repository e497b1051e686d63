//! Operate: what people do with a running node.
//!
//! In: API requests; the CLI in the same process.
//! Out: JSON.
//! Touches: ledger: read and operate verbs; the scheduler's and the door's handles.
//! Never: SQL, connectors.
//! If the process dies here: an act is whole, with its audit line, or has not happened.

mod acts;
mod advice;
mod api;
pub mod approvals;
pub mod change;
mod clash;
pub mod guards;
pub mod keys;
mod operator;
mod questions;
pub mod view;

pub use api::{Window, openapi};
pub use operator::{OperateError, Operator, ReplayOrder, Rooms, Selection};
pub use questions::Reveal;
