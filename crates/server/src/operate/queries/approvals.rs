//! Approvals.

use sluice_domain::approval::{ApprovalId, ApprovalState};
use sluice_ledger::{ApprovalFilter, Page};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{ApprovalView, List};

impl Operator {
    /// Questions, newest first.
    pub async fn approvals(
        &self,
        filter: ApprovalFilter,
        after: Option<i64>,
        limit: u32,
    ) -> Result<List<ApprovalView>, OperateError> {
        let limit = limit.clamp(1, 1_000);
        let records = self.ledger.approvals(filter, Page { after, limit }).await?;
        let next = (records.len() == limit as usize).then(|| records.last().map(|last| last.n.to_string())).flatten();
        Ok(List { items: records.into_iter().map(ApprovalView::from).collect(), next })
    }

    /// How many wait for a person; a thousand means a thousand or more.
    pub async fn approvals_pending(&self) -> Result<u64, OperateError> {
        let filter = ApprovalFilter { state: Some(ApprovalState::Pending), ..ApprovalFilter::default() };
        Ok(self.ledger.approvals(filter, Page { after: None, limit: 1_000 }).await?.len() as u64)
    }

    /// One question.
    pub async fn approval(&self, id: &str) -> Result<ApprovalView, OperateError> {
        let found = self.ledger.approval(parse_approval(id)?).await?;
        found.map(ApprovalView::from).ok_or_else(|| unknown_approval(id))
    }
}

pub(in crate::operate) fn parse_approval(id: &str) -> Result<ApprovalId, OperateError> {
    ApprovalId::parse(id)
        .ok_or_else(|| OperateError::Invalid(format!("`{id}` names no question; those look like apr_…")))
}

pub(in crate::operate) fn unknown_approval(id: &str) -> OperateError {
    OperateError::NotFound(format!("there is no question {id}; its job may be past its retention"))
}
