//! Filters and pages of lists.

use serde::{Deserialize, Serialize};
use sluice_domain::approval::ApprovalState;
use sluice_domain::job::JobState;
use sluice_domain::ops::ApprovalRecord;
use sluice_domain::time::Time;

/// Selects jobs, for lists and for bulk commands. An absent field does not restrict.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Any of these; empty means all.
    pub states: Vec<JobState>,
    pub worker: Option<String>,
    pub queue: Option<String>,
    pub dead_letter_queue: Option<String>,
    pub source: Option<String>,
    /// Failure class.
    pub class: Option<String>,
    /// Failure code.
    pub code: Option<String>,
    /// Changed at or after this time.
    pub since: Option<Time>,
    /// Changed before this time.
    pub until: Option<Time>,
}

/// Selects approvals.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    pub state: Option<ApprovalState>,
    pub worker: Option<String>,
    pub asked_before: Option<Time>,
}

impl ApprovalFilter {
    pub(crate) fn matches(&self, record: &ApprovalRecord) -> bool {
        self.state.is_none_or(|state| record.state == state)
            && self.worker.as_deref().is_none_or(|worker| record.worker == worker)
            && self.asked_before.is_none_or(|before| record.asked_at < before)
    }
}

/// A part of a list, newest first unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only entries behind the one with this number: a job id or a sequence number.
    pub after: Option<i64>,
    pub limit: u32,
}
