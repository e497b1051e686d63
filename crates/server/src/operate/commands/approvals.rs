//! Decide approvals.

use serde::{Deserialize, Serialize};
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice};
use sluice_ledger::{ApprovalFilter, ApprovalRecord, DecideApproval, Decided, Page};
use utoipa::ToSchema;

use crate::operate::commands::{need, or_unknown};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::approvals::{parse_approval, unknown_approval};
use crate::operate::views::{ApprovalView, BulkResult, SkippedJob};

/// Answers that are written in one transaction.
const SLICE: usize = 500;
/// Questions that one order may answer.
const ORDER_MAX: usize = 100_000;

/// An answer to one question.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// `approve` or `reject`.
    #[schema(value_type = String)]
    pub decision: Choice,
    /// Why.
    pub reason: String,
    /// Who.
    #[serde(default)]
    pub actor: String,
}

/// The same answer to many.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionsRequest {
    /// `approve` or `reject`.
    #[schema(value_type = String)]
    pub decision: Choice,
    /// Why.
    pub reason: String,
    /// Who.
    #[serde(default)]
    pub actor: String,
    /// These; or all that match `worker` and `all`.
    #[serde(default)]
    pub ids: Vec<String>,
    /// Every question of this worker that nobody has answered.
    #[serde(default)]
    pub worker: Option<String>,
    /// Every question that nobody has answered.
    #[serde(default)]
    pub all: bool,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

impl Operator {
    /// Answers one question. The same answer twice is fine, another one is a conflict.
    pub async fn decide(
        &self,
        id: &str,
        choice: Choice,
        actor: &str,
        reason: &str,
    ) -> Result<ApprovalView, OperateError> {
        need(reason, "an answer needs a reason")?;
        let answered = self.decide_all(vec![parse_approval(id)?], choice, actor, reason).await?;
        match answered.into_iter().next() {
            Some((_, Decided::Conflict(record))) => Err(OperateError::Refused("conflict", contradicted(&record))),
            Some((_, Decided::Unknown)) | None => Err(unknown_approval(id)),
            Some((_, Decided::Counts(..) | Decided::Same)) => self.approval(id).await,
        }
    }

    async fn decide_all(
        &self,
        ids: Vec<ApprovalId>,
        choice: Choice,
        actor: &str,
        reason: &str,
    ) -> Result<Vec<(ApprovalId, Decided)>, OperateError> {
        let (actor, reason, at) = (or_unknown(actor), reason.to_owned(), self.clock.wall());
        let decided = self.ledger.decide_approval(DecideApproval { ids, choice, actor, reason, at }).await?;
        let woken = decided.iter().filter_map(|(_, decided)| match decided {
            Decided::Counts(job, worker) => Some((*job, worker.clone())),
            _ => None,
        });
        self.scheduler.due_now(woken.collect());
        Ok(decided)
    }

    /// Gives many questions the same answer.
    pub async fn decide_many(&self, order: DecisionsRequest) -> Result<BulkResult, OperateError> {
        need(&order.reason, "an answer needs a reason")?;
        let by_filter = order.all || order.worker.is_some();
        if order.ids.is_empty() != by_filter {
            return Err(OperateError::Invalid("name the questions, or a worker, or all; one of them".into()));
        }
        let mut ids = order.ids.iter().map(|id| parse_approval(id)).collect::<Result<Vec<_>, _>>()?;
        if by_filter {
            let filter =
                ApprovalFilter { state: Some(ApprovalState::Pending), worker: order.worker, asked_before: None };
            let mut after = None;
            loop {
                let page = self.ledger.approvals(filter.clone(), Page { after, limit: SLICE as u32 }).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.n);
                ids.extend(page.iter().map(|record| record.id));
                if ids.len() > ORDER_MAX {
                    return Err(OperateError::Invalid(format!(
                        "more than {ORDER_MAX} questions match; answer them by worker"
                    )));
                }
            }
        }
        let mut acted = BulkResult { matched: ids.len() as u64, dry_run: order.dry_run, ..BulkResult::default() };
        if order.dry_run {
            acted.changed = ids.len() as u64;
            return Ok(acted);
        }
        for slice in ids.chunks(SLICE) {
            for (id, decided) in self.decide_all(slice.to_vec(), order.decision, &order.actor, &order.reason).await? {
                let left = |reason: String| SkippedJob { job: id.to_string(), reason };
                match decided {
                    Decided::Counts(..) => acted.changed += 1,
                    Decided::Same => acted.skipped.push(left("it was answered so before".into())),
                    Decided::Conflict(record) => acted.skipped.push(left(contradicted(&record))),
                    Decided::Unknown => acted.skipped.push(left("there is no such question".into())),
                }
            }
        }
        Ok(acted)
    }
}

fn contradicted(record: &ApprovalRecord) -> String {
    let by = record.decided_by.as_deref().unwrap_or("somebody");
    let at = record.decided_at.map(|at| at.to_string()).unwrap_or_default();
    format!("{} was {} by {by} at {at}, and the first answer counts", record.id, record.state.as_str())
}
