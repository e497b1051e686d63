//! Approvals.

use serde::{Deserialize, Serialize};
use sluice_ledger::ApprovalRecord;
use utoipa::ToSchema;

/// A question to a person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalView {
    /// Its name.
    pub id: String,
    /// pending, approved or rejected.
    pub state: String,
    /// What is asked, in one line.
    pub title: String,
    /// And in more words.
    pub summary: String,
    /// The job that waits.
    pub job: String,
    /// Its worker.
    pub worker: String,
    /// The step that asks.
    pub step: String,
    /// When it was asked.
    pub asked_at: String,
    /// When the default answer counts.
    pub expires_at: String,
    /// The default answer.
    pub default: String,
    /// When it was answered.
    pub decided_at: Option<String>,
    /// By whom; `expiry` when nobody answered in time.
    pub decided_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl From<ApprovalRecord> for ApprovalView {
    fn from(record: ApprovalRecord) -> ApprovalView {
        ApprovalView {
            id: record.id.to_string(),
            state: record.state.as_str().to_owned(),
            title: record.title,
            summary: record.summary,
            job: record.job.to_string(),
            worker: record.worker,
            step: record.step_id,
            asked_at: record.asked_at.to_string(),
            expires_at: record.expires_at.to_string(),
            default: record.default.as_str().to_owned(),
            decided_at: record.decided_at.map(|at| at.to_string()),
            decided_by: record.decided_by,
            reason: record.reason,
        }
    }
}
