//! Decide approvals.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice};
use sluice_domain::time::Time;
use sluice_ledger::{ApprovalFilter, ApprovalRecord, DecideApproval, Decided, Page};
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::approvals::{parse_approval, unknown_approval};
use crate::operate::views::{ApprovalView, BulkResult, SkippedJob};

/// Decisions per transaction.
const SLICE: usize = 500;
/// Maximum decisions per request.
const ORDER_MAX: usize = 100_000;

/// Decision of one approval.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionRequest {
    /// `approve` or `reject`.
    #[schema(value_type = String)]
    pub decision: Choice,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

/// The same decision of several approvals.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionsRequest {
    /// `approve` or `reject`.
    #[schema(value_type = String)]
    pub decision: Choice,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
    /// Approval ids; alternatively `worker` or `all`.
    #[serde(default)]
    pub ids: Vec<String>,
    /// Every pending approval of this worker.
    #[serde(default)]
    pub worker: Option<String>,
    /// Every pending approval.
    #[serde(default)]
    pub all: bool,
    /// With `worker` or `all`: only approvals that were asked for before this time (`ledger` of `/api/v1/clock`), so that what was
    /// counted is what is decided.
    #[serde(default)]
    pub asked_before: Option<String>,
    /// Report the result without changing anything.
    #[serde(default)]
    pub dry_run: bool,
}

impl Operator {
    /// Decides one approval. The same decision again is accepted; a different one is a conflict.
    pub async fn decide(
        &self,
        id: &str,
        choice: Choice,
        actor: &str,
        reason: &str,
    ) -> Result<ApprovalView, OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "a decision needs a reason")?;
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
        let (actor, reason, at) = (self.actor(actor), reason.to_owned(), self.clock.ledger_time());
        let decided = self.ledger.decide_approval(DecideApproval { ids, choice, actor, reason, at }).await?;
        let woken = decided.iter().filter_map(|(_, decided)| match decided {
            Decided::Counts(job, worker) => Some((*job, worker.clone())),
            _ => None,
        });
        self.scheduler.due_now(woken.collect());
        Ok(decided)
    }

    /// Decides several approvals.
    pub(crate) async fn decide_many(&self, order: DecisionsRequest) -> Result<BulkResult, OperateError> {
        self.permit(Permission::Operate)?;
        need(&order.reason, "a decision needs a reason")?;
        let by_filter = order.all || order.worker.is_some();
        if order.ids.is_empty() != by_filter {
            return Err(OperateError::Invalid("set exactly one of ids, worker and all".into()));
        }
        let time = |text: &str| {
            Time::parse(text)
                .ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a time, such as 2026-11-15T10:00:00Z")))
        };
        let asked_before = order.asked_before.as_deref().map(time).transpose()?;
        let mut ids = order.ids.iter().map(|id| parse_approval(id)).collect::<Result<Vec<_>, _>>()?;
        if by_filter {
            let filter = ApprovalFilter { state: Some(ApprovalState::Pending), worker: order.worker, asked_before };
            let mut after = None;
            loop {
                let page = self.ledger.approvals(filter.clone(), Page { after, limit: SLICE as u32 }).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.n);
                ids.extend(page.iter().map(|record| record.id));
                if ids.len() > ORDER_MAX {
                    return Err(OperateError::Invalid(format!(
                        "more than {ORDER_MAX} approvals match; decide them by worker"
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
                    Decided::Same => acted.skipped.push(left("already decided so".into())),
                    Decided::Conflict(record) => acted.skipped.push(left(contradicted(&record))),
                    Decided::Unknown => acted.skipped.push(left("unknown approval".into())),
                }
            }
        }
        Ok(acted)
    }
}

fn contradicted(record: &ApprovalRecord) -> String {
    let by = record.decided_by.as_deref().unwrap_or("unknown");
    let at = record.decided_at.map(|at| at.to_string()).unwrap_or_default();
    format!("{} was {} by {by} at {at}; the first decision counts", record.id, record.state.as_str())
}
