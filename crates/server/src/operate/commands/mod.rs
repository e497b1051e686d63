//! Commands of operators. Every command leaves an audit entry.

mod approvals;
mod change;
mod guards;
mod jobs;
mod keys;
mod pauses;

use super::operator::OperateError;

pub use approvals::{DecisionRequest, DecisionsRequest};
pub use change::{ApplyRequest, Wanted};
pub use guards::{SafeModeRequest, SuppressRequest};
pub use jobs::{ReplayRequest, Selection};
pub use keys::RotateRequest;

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}

pub(super) fn or_unknown(actor: &str) -> String {
    if actor.trim().is_empty() { "unknown".to_owned() } else { actor.trim().to_owned() }
}
