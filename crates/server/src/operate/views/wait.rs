//! Why jobs wait, and warnings about the node.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a live job does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitView {
    /// `worker-paused`, `destination-paused`, `unauthorized`, `breaker`, `retry-after`, `rate`, `destination-slot`, `worker-slot`,
    /// `lane`, `retry`, `load`, `shutdown`, `approval`, `policy`, `safe-mode`, `read-back`, `delay` or `no-node`.
    pub reason: String,
    /// What it waits for: `destination:crm`, `worker:lead-to-crm`, `job_17`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// Earliest time at which it can run, if that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
    /// One sentence for people, without the time.
    pub message: String,
}

/// Live jobs that do not run for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingView {
    #[serde(flatten)]
    pub wait: WaitView,
    /// Number of jobs.
    pub jobs: u64,
}

/// Something about the node that an operator should know or change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WarningView {
    /// Stable: `breaker-open`, `unauthorized`, `config-broken`, `config-not-active`, `lane-stuck`, `disk-full`.
    pub code: String,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    pub action: String,
}

impl WarningView {
    pub fn new(code: &str, message: impl Into<String>, action: impl Into<String>) -> WarningView {
        WarningView { code: code.to_owned(), message: message.into(), action: action.into() }
    }
}
