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

pub(crate) use alerts::{AlertRequest, TestAlertRequest};
pub(crate) use approvals::{DecisionRequest, DecisionsRequest};
pub(crate) use change::{ApplyRequest, Stranding, Wanted};
pub(super) use clock::AcceptClockRequest;
pub(crate) use contacts::{MergeContactRequest, SplitContactRequest};
pub(crate) use event_edits::EditRequest;
pub(crate) use failure_groups::GroupRequest;
pub(crate) use guards::{SafeModeRequest, SuppressRequest};
pub(crate) use identify::IdentifyRequest;
pub(super) use imports::{CheckRowsRequest, ImportRowsRequest, StartImportRequest};
pub use jobs::Selection;
pub(super) use keys::RotateRequest;
pub use replays::ReplayRequest;
pub(crate) use shadow::{ShadowRequest, StopShadowRequest};
pub(crate) use shapes::AcceptShapeRequest;
pub(super) use trials::TrialRequest;
pub(crate) use users::{TokenRequest, UserRequest};

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}
