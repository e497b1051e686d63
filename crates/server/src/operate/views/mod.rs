//! API views. Personal data is masked here.

mod access;
mod alert;
mod approval;
mod balance;
mod change;
mod clash;
mod clock;
mod contact;
mod event;
mod event_revision;
mod failure_group;
mod guard;
mod history;
mod import;
mod job;
mod keys;
mod node;
mod queue;
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
pub use self::balance::{BalanceRow, BalanceView};
pub use self::change::{AppliedView, PendingPlanView, RevisionDetail, RevisionView};
pub use self::clash::{ChangeView, ClashView, VariantView};
pub use self::clock::ClockView;
pub use self::contact::{
    ConflictView, ContactFieldView, ContactValueView, ContactView, IdentifiedView, TraceEntry, TraceView,
};
pub use self::event::{
    DuplicateView, DuplicatesView, EventDetail, EventView, EventWarningView, IdentityLookupView, JobBrief,
};
pub(super) use self::event::{preview, show};
pub use self::event_revision::{EditView, EventRevisionView};
pub use self::failure_group::FailureGroupView;
pub use self::guard::{SafeModeView, SuppressedView, SuppressionView};
pub use self::history::{CounterView, HistoryView, LatencyView, PointView, SeriesView};
pub use self::import::{ImportStepView, ImportView, RowView};
pub use self::job::{AttemptView, EffectView, FailureView, JobDetail, JobView, ReasonView};
pub use self::keys::KeysView;
pub use self::node::{
    AuditView, CallsTodayView, DestinationDetail, DestinationLatencyView, DestinationView, FailureRuleView, FlowView,
    PauseView, PercentilesView, RefusalView, RefusedView, SourceView, Status,
};
pub use self::queue::{FlowDetail, QueueView};
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
    /// The time for one page was up before it was full: rows were searched back to this time. `next` continues there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scanned_to: Option<String>,
}

impl<T> List<T> {
    /// A page of a list that needs no search.
    pub fn new(items: Vec<T>, next: Option<String>) -> List<T> {
        List { items, next, scanned_to: None }
    }
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
