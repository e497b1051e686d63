//! Commands of operators. Every command leaves an audit entry.

mod alerts;
mod approvals;
mod change;
mod clock;
mod contacts;
mod guards;
mod identify;
mod jobs;
mod keys;
mod pauses;
mod replays;
mod users;

use super::operator::OperateError;

pub use alerts::AlertRequest;
pub use approvals::{DecisionRequest, DecisionsRequest};
pub use change::{ApplyRequest, Stranding, Wanted};
pub use clock::AcceptClockRequest;
pub use contacts::{MergeContactRequest, SplitContactRequest};
pub use guards::{SafeModeRequest, SuppressRequest};
pub use identify::IdentifyRequest;
pub use jobs::Selection;
pub use keys::RotateRequest;
pub use replays::ReplayRequest;
pub use users::{TokenRequest, UserRequest};

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}
