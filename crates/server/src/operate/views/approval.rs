//! Approvals.

use serde::{Deserialize, Serialize};
use sluice_domain::mask;
use sluice_ledger::ApprovalRecord;
use utoipa::ToSchema;

/// Approval.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalView {
    pub id: String,
    /// pending, approved or rejected.
    pub state: String,
    /// Masked.
    pub title: String,
    /// Masked.
    pub summary: String,
    pub job: String,
    pub worker: String,
    pub step: String,
    pub asked_at: String,
    /// When `default` applies.
    pub expires_at: String,
    pub default: String,
    pub decided_at: Option<String>,
    /// Actor; `expiry` if it expired.
    pub decided_by: Option<String>,
    pub reason: Option<String>,
}

impl From<ApprovalRecord> for ApprovalView {
    fn from(record: ApprovalRecord) -> ApprovalView {
        ApprovalView {
            id: record.id.to_string(),
            state: record.state.as_str().to_owned(),
            title: mask::text(&record.title).into_owned(),
            summary: mask::text(&record.summary).into_owned(),
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
