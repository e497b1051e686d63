//! Commands of operators. Every command leaves an audit entry.

mod approvals;
mod change;
mod clock;
mod contacts;
mod guards;
mod jobs;
mod keys;
mod pauses;
mod replays;

use super::operator::OperateError;

pub use approvals::{DecisionRequest, DecisionsRequest};
pub use change::{ApplyRequest, Stranding, Wanted};
pub use clock::AcceptClockRequest;
pub use contacts::{MergeContactRequest, SplitContactRequest};
pub use guards::{SafeModeRequest, SuppressRequest};
pub use jobs::Selection;
pub use keys::RotateRequest;
pub use replays::ReplayRequest;

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}

/// Actor of a request that names none: commands always name one.
const API_ACTOR: &str = "api";

/// Actor of a request, for the audit trail.
pub(super) fn actor_of(name: &str) -> &str {
    if name.trim().is_empty() { API_ACTOR } else { name.trim() }
}
