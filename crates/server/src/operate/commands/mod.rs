//! Commands of operators. Every command leaves an audit entry.

mod alerts;
mod approvals;
mod change;
mod clock;
mod contacts;
mod event_edits;
mod failure_groups;
mod guards;
mod identify;
mod imports;
mod jobs;
mod keys;
mod pauses;
mod replays;
mod shadow;
mod shapes;
mod trials;
mod users;

use super::operator::OperateError;

pub use alerts::{AlertRequest, TestAlertRequest};
pub use approvals::{DecisionRequest, DecisionsRequest};
pub use change::{ApplyRequest, Stranding, Wanted};
pub use clock::AcceptClockRequest;
pub use contacts::{MergeContactRequest, SplitContactRequest};
pub use event_edits::EditRequest;
pub use failure_groups::GroupRequest;
pub use guards::{SafeModeRequest, SuppressRequest};
pub use identify::IdentifyRequest;
pub use imports::{CheckRowsRequest, ImportRowsRequest, StartImportRequest};
pub use jobs::Selection;
pub use keys::RotateRequest;
pub use replays::ReplayRequest;
pub use shadow::{ShadowRequest, StopShadowRequest};
pub use shapes::AcceptShapeRequest;
pub use trials::TrialRequest;
pub use users::{TokenRequest, UserRequest};

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}
