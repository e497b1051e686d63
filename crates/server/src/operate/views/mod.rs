//! What operators see. Personal data is masked here, before anything leaves the room.

mod approval;
mod change;
mod clash;
mod event;
mod guard;
mod job;
mod keys;
mod node;
mod source;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::approval::ApprovalView;
pub use self::change::{AppliedView, RevisionDetail, RevisionView};
pub use self::clash::{ChangeView, ClashView, VariantView};
pub use self::event::{EventDetail, EventView, JobBrief};
pub(super) use self::event::{preview, show};
pub use self::guard::{SafeModeView, SuppressedView, SuppressionView};
pub use self::job::{AttemptView, EffectView, FailureView, JobDetail, JobView, ReasonView};
pub use self::keys::KeysView;
pub use self::node::{AuditView, DestinationView, FlowView, PauseView, RefusalView, RefusedView, SourceView, Status};
pub use self::source::{KeyAdvice, LatenessView, LifetimeView, LimitView, SourceDetail};

/// A stretch of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The rows, newest first.
    pub items: Vec<T>,
    /// Pass this as `after` to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// What a replay or a drop came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Jobs that were asked for.
    pub matched: u64,
    /// Jobs that were changed; with `dry_run`, those that would be.
    pub changed: u64,
    /// Jobs that were left alone, with the reason.
    pub skipped: Vec<SkippedJob>,
    /// Whether nothing was changed because it was only tried.
    pub dry_run: bool,
}

/// A job that was left alone.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SkippedJob {
    /// Which.
    pub job: String,
    /// Why.
    pub reason: String,
}
