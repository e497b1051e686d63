//! API views. Personal data is masked here.

mod access;
mod alert;
mod approval;
mod change;
mod clash;
mod clock;
mod contact;
mod event;
mod guard;
mod history;
mod import;
mod job;
mod keys;
mod node;
mod replay;
mod response;
mod shadow;
mod shape;
mod source;
mod trial;
mod wait;
mod worker;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::access::{CallerView, LinkView, NewTokenView, SessionView, TokenView, UserView};
pub use self::alert::{AlertRuleView, AlertView};
pub use self::approval::ApprovalView;
pub use self::change::{AppliedView, RevisionDetail, RevisionView};
pub use self::clash::{ChangeView, ClashView, VariantView};
pub use self::clock::ClockView;
pub use self::contact::{
    ConflictView, ContactFieldView, ContactValueView, ContactView, IdentifiedView, TraceEntry, TraceView,
};
pub use self::event::{EventDetail, EventView, EventWarningView, JobBrief};
pub(super) use self::event::{preview, show};
pub use self::guard::{SafeModeView, SuppressedView, SuppressionView};
pub use self::history::{CounterView, HistoryView, LatencyView, PointView, SeriesView};
pub use self::import::{ImportStepView, ImportView, RowView};
pub use self::job::{AttemptView, EffectView, FailureView, JobDetail, JobView, ReasonView};
pub use self::keys::KeysView;
pub use self::node::{
    AuditView, CallsTodayView, DestinationDetail, DestinationView, FailureRuleView, FlowView, PauseView, RefusalView,
    RefusedView, SourceView, Status,
};
pub(crate) use self::replay::rate_text;
pub use self::replay::{DestinationCalls, ForecastFailure, ReplayPreview, ReplayResult, ReplayView};
pub use self::response::{ResponseCountView, ResponseView};
pub use self::shadow::ShadowView;
pub use self::shape::{NoticeView, ShapeFieldView, ShapeView};
pub use self::source::{KeyAdvice, LatenessView, LifetimeView, LimitView, MappingWarningView, SourceDetail};
pub use self::trial::TrialView;
pub use self::wait::{WaitView, WaitingView, WarningView};
pub use self::worker::WorkerView;

/// Page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Rows, newest first.
    pub items: Vec<T>,
    /// Cursor for `after`; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// Result of a bulk command.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Selected jobs.
    pub matched: u64,
    /// Changed jobs; with `dry_run`, those that would be changed.
    pub changed: u64,
    /// Unchanged jobs with the reason.
    pub skipped: Vec<SkippedJob>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// Unchanged job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SkippedJob {
    pub job: String,
    pub reason: String,
}
