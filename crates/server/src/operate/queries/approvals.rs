//! Approvals.

use sluice_domain::approval::{ApprovalId, ApprovalState};
use sluice_ledger::{ApprovalFilter, Page};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{ApprovalView, List};

impl Operator {
    /// Newest first.
    pub async fn approvals(
        &self,
        filter: ApprovalFilter,
        after: Option<i64>,
        limit: u32,
    ) -> Result<List<ApprovalView>, OperateError> {
        let limit = limit.clamp(1, 1_000);
        let records = self.ledger.approvals(filter, Page { after, limit }).await?;
        let next = (records.len() == limit as usize).then(|| records.last().map(|last| last.n.to_string())).flatten();
        Ok(List::new(records.into_iter().map(ApprovalView::from).collect(), next))
    }

    /// Number of pending approvals, at most 1,000.
    pub async fn approvals_pending(&self) -> Result<u64, OperateError> {
        let filter = ApprovalFilter { state: Some(ApprovalState::Pending), ..ApprovalFilter::default() };
        Ok(self.ledger.approvals(filter, Page { after: None, limit: 1_000 }).await?.len() as u64)
    }

    pub async fn approval(&self, id: &str) -> Result<ApprovalView, OperateError> {
        let found = self.ledger.approval(parse_approval(id)?).await?;
        found.map(ApprovalView::from).ok_or_else(|| unknown_approval(id))
    }
}

pub(in crate::operate) fn parse_approval(id: &str) -> Result<ApprovalId, OperateError> {
    ApprovalId::parse(id).ok_or_else(|| OperateError::Invalid(format!("`{id}` is not an approval id, such as apr_…")))
}

pub(in crate::operate) fn unknown_approval(id: &str) -> OperateError {
    OperateError::NotFound(format!("unknown approval {id}; its job may have been deleted by retention"))
}
