//! Operate: commands and queries of operators.
//!
//! In: API requests; the CLI in the same process.
//! Out: JSON.
//! Touches: ledger: read and operate verbs; the handles of the scheduler and the intake.
//! Never: SQL, connectors.
//! If the process dies here: a command is committed with its audit entry, or has not happened.

mod commands;
mod listener;
mod operator;
mod queries;
mod routes;
pub mod views;

pub(crate) use commands::Stranding;
pub(crate) use commands::{
    AcceptShapeRequest, AlertRequest, ApplyRequest, DecisionsRequest, EditRequest, GroupRequest, IdentifyRequest,
    MergeContactRequest, SafeModeRequest, SplitContactRequest, StopShadowRequest, SuppressRequest, TestAlertRequest,
    TokenRequest, UserRequest, Wanted,
};
pub use commands::{ReplayRequest, Selection};
pub use listener::AdminSettings;
pub(crate) use listener::{AdminServer, Peer};
pub(crate) use operator::NodeHandles;
pub use operator::{OperateError, Operator};
pub(crate) use queries::{Account, Effort, EventsRequest, Reveal, SeriesRequest};
pub(crate) use routes::moment;
pub use routes::openapi;
