//! Questions to people: who asks, and what was answered.

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice};
use sluice_ledger::{ApprovalFilter, ApprovalRecord, DecideApproval, Decided, Page};
use utoipa::{IntoParams, ToSchema};

use super::api::{ApiResult, JsonBody, LIMIT, QueryParams};
use super::commands::{need, or_unknown};
use super::operator::{OperateError, Operator};
use super::view::{BulkResult, List, SkippedJob};

/// Answers that are written in one transaction.
const SLICE: usize = 500;
/// Questions that one order may answer.
const ORDER_MAX: usize = 100_000;

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

fn parsed(id: &str) -> Result<ApprovalId, OperateError> {
    ApprovalId::parse(id)
        .ok_or_else(|| OperateError::Invalid(format!("`{id}` names no question; those look like apr_…")))
}

fn unknown(id: &str) -> OperateError {
    OperateError::NotFound(format!("there is no question {id}; its job may be past its retention"))
}

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
        let found = self.ledger.approval(parsed(id)?).await?;
        found.map(ApprovalView::from).ok_or_else(|| unknown(id))
    }

    /// Answers one question. The same answer twice is fine, another one is a conflict.
    pub async fn decide(
        &self,
        id: &str,
        choice: Choice,
        actor: &str,
        reason: &str,
    ) -> Result<ApprovalView, OperateError> {
        need(reason, "an answer needs a reason")?;
        let answered = self.decide_all(vec![parsed(id)?], choice, actor, reason).await?;
        match answered.into_iter().next() {
            Some((_, Decided::Conflict(record))) => Err(OperateError::Refused("conflict", contradicted(&record))),
            Some((_, Decided::Unknown)) | None => Err(unknown(id)),
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
        self.scheduler.woken(woken.collect());
        Ok(decided)
    }

    /// Gives many questions the same answer.
    pub async fn decide_many(&self, order: DecisionsRequest) -> Result<BulkResult, OperateError> {
        need(&order.reason, "an answer needs a reason")?;
        let by_filter = order.all || order.worker.is_some();
        if order.ids.is_empty() != by_filter {
            return Err(OperateError::Invalid("name the questions, or a worker, or all; one of them".into()));
        }
        let mut ids = order.ids.iter().map(|id| parsed(id)).collect::<Result<Vec<_>, _>>()?;
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

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalsQuery {
    /// Only in this state: pending, approved or rejected.
    state: Option<String>,
    /// Only of this worker.
    worker: Option<String>,
    /// Go on after this place.
    after: Option<i64>,
    /// At most so many.
    limit: Option<u32>,
}

/// Questions to people, newest first.
#[utoipa::path(get, path = "/api/v1/approvals", params(ApprovalsQuery), responses((status = 200, body = List<ApprovalView>)))]
pub(super) async fn list(
    State(operator): State<Operator>,
    QueryParams(query): QueryParams<ApprovalsQuery>,
) -> ApiResult<List<ApprovalView>> {
    let state = query.state.map(|word| {
        ApprovalState::parse(&word).ok_or_else(|| {
            OperateError::Invalid(format!("`{word}` is no state of a question; those are pending, approved, rejected"))
        })
    });
    let filter = ApprovalFilter { state: state.transpose()?, worker: query.worker, asked_before: None };
    Ok(Json(operator.approvals(filter, query.after, query.limit.unwrap_or(LIMIT)).await?))
}

/// One question.
#[utoipa::path(get, path = "/api/v1/approvals/{id}", params(("id" = String, Path)), responses((status = 200, body = ApprovalView), (status = 404)))]
pub(super) async fn show(State(operator): State<Operator>, Path(id): Path<String>) -> ApiResult<ApprovalView> {
    Ok(Json(operator.approval(&id).await?))
}

/// Answer a question. The same answer twice is fine; another one is a conflict.
#[utoipa::path(post, path = "/api/v1/approvals/{id}", params(("id" = String, Path)), request_body = DecisionRequest, responses((status = 200, body = ApprovalView), (status = 404), (status = 409)))]
pub(super) async fn decide_one(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    JsonBody(order): JsonBody<DecisionRequest>,
) -> ApiResult<ApprovalView> {
    Ok(Json(operator.decide(&id, order.decision, &order.actor, &order.reason).await?))
}

/// Give many questions the same answer.
#[utoipa::path(post, path = "/api/v1/approvals", request_body = DecisionsRequest, responses((status = 200, body = BulkResult)))]
pub(super) async fn decide_many(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<DecisionsRequest>,
) -> ApiResult<BulkResult> {
    Ok(Json(operator.decide_many(order).await?))
}
