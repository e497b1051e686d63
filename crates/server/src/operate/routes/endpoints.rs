//! Sources, destinations and workers.

use axum::Json;
use axum::extract::Path;

use super::ApiResult;
use crate::operate::operator::Operator;
use crate::operate::views;

/// Sources with accepted and rejected requests.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = Vec<views::SourceView>)))]
pub(super) async fn sources(operator: Operator) -> ApiResult<Vec<views::SourceView>> {
    Ok(Json(operator.sources().await?))
}

/// One source: duplicates, the key lifetime that covers them, rejected requests, limits.
#[utoipa::path(get, path = "/api/v1/sources/{name}", params(("name" = String, Path)), responses((status = 200, body = views::SourceDetail), (status = 404)))]
pub(super) async fn source(operator: Operator, Path(name): Path<String>) -> ApiResult<views::SourceDetail> {
    Ok(Json(operator.source(&name).await?))
}

/// Destinations and their gates.
#[utoipa::path(get, path = "/api/v1/destinations", responses((status = 200, body = Vec<views::DestinationView>)))]
pub(super) async fn destinations(operator: Operator) -> ApiResult<Vec<views::DestinationView>> {
    Ok(Json(operator.destinations().await?))
}

/// Workers with their queues and jobs by state.
#[utoipa::path(get, path = "/api/v1/workers", responses((status = 200, body = Vec<views::WorkerView>)))]
pub(super) async fn workers(operator: Operator) -> ApiResult<Vec<views::WorkerView>> {
    Ok(Json(operator.workers().await?))
}

/// One destination: gate, use of its daily limit, failure rules.
#[utoipa::path(get, path = "/api/v1/destinations/{name}", params(("name" = String, Path)), responses((status = 200, body = views::DestinationDetail), (status = 404)))]
pub(super) async fn destination(operator: Operator, Path(name): Path<String>) -> ApiResult<views::DestinationDetail> {
    Ok(Json(operator.destination(&name).await?))
}
