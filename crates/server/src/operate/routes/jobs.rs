//! Jobs: list, one, resolve.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_domain::unit;
use sluice_ledger::{JobFilter, Resolution};
use utoipa::{IntoParams, ToSchema};

use super::{ApiResult, JsonBody, LIMIT, QueryParams};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsQuery {
    /// Only in these states, separated by commas.
    state: Option<String>,
    /// Only of this worker.
    worker: Option<String>,
    /// Only in this queue.
    queue: Option<String>,
    /// Only in this dead-letter queue.
    dead_letter_queue: Option<String>,
    /// Only from this source.
    source: Option<String>,
    /// Only with this failure class.
    class: Option<String>,
    /// Only with this failure code.
    code: Option<String>,
    /// Only jobs whose next call goes to this destination; finished jobs and dead letters have none.
    destination: Option<String>,
    /// Only changed within this duration (`1h`) or since this time.
    since: Option<String>,
    /// Only changed before this duration (`1h`) or time.
    until: Option<String>,
    /// Continue after this job.
    pub(super) after: Option<String>,
    /// Maximum number of rows.
    pub(super) limit: Option<u32>,
}

impl JobsQuery {
    pub(super) fn filter(self, states: Vec<JobState>) -> Result<JobFilter, OperateError> {
        let states = match self.state {
            None => states,
            Some(words) => words
                .split(',')
                .map(|word| {
                    JobState::parse(word.trim()).ok_or_else(|| {
                        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
                        OperateError::Invalid(format!("`{word}` is not a job state; use one of {}", known.join(", ")))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(JobFilter {
            states,
            worker: self.worker,
            queue: self.queue,
            dead_letter_queue: self.dead_letter_queue,
            source: self.source,
            class: self.class,
            code: self.code,
            destination: self.destination,
            since: self.since.map(|since| moment(&since)).transpose()?,
            until: self.until.map(|until| moment(&until)).transpose()?,
        })
    }
}

/// A duration before now (`1h`), or a time.
pub(crate) fn moment(text: &str) -> Result<Time, OperateError> {
    if let Some(time) = Time::parse(text) {
        return Ok(time);
    }
    let ago = unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
    Ok(Time::from(jiff::Timestamp::now()) - ago)
}

/// Jobs, newest first.
#[utoipa::path(get, path = "/api/v1/jobs", params(JobsQuery), responses((status = 200, body = views::List<views::JobView>)))]
pub(super) async fn jobs(
    operator: Operator,
    QueryParams(query): QueryParams<JobsQuery>,
) -> ApiResult<views::List<views::JobView>> {
    let (after, limit) = (query.after.clone(), query.limit.unwrap_or(LIMIT));
    Ok(Json(operator.jobs(query.filter(vec![])?, after, limit).await?))
}

/// One job with its effects and attempts.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", params(("id" = String, Path)), responses((status = 200, body = views::JobDetail), (status = 404)))]
pub(super) async fn job(operator: Operator, Path(id): Path<String>) -> ApiResult<views::JobDetail> {
    Ok(Json(operator.job(&id).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveRequest {
    /// `happened` or `did-not-happen`.
    resolution: String,
    reason: String,
    #[serde(default)]
    actor: String,
}

/// State whether an unknown effect was applied; its job continues.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/resolve", params(("id" = String, Path)), request_body = ResolveRequest, responses((status = 200, body = views::JobDetail)))]
pub(super) async fn resolve(
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(order): JsonBody<ResolveRequest>,
) -> ApiResult<views::JobDetail> {
    let resolution = match order.resolution.as_str() {
        "happened" => Resolution::Happened,
        "did-not-happen" => Resolution::NotHappened,
        other => {
            return Err(OperateError::Invalid(format!(
                "`{other}` is not a resolution; use `happened` or `did-not-happen`"
            )));
        }
    };
    Ok(Json(operator.resolve(&id, resolution, &order.actor, &order.reason).await?))
}
