//! Sources and destinations.

use axum::Json;
use axum::extract::{Path, State};

use super::ApiResult;
use crate::operate::operator::Operator;
use crate::operate::views;

/// Every source: what it sent, what was refused.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = Vec<views::SourceView>)))]
pub(super) async fn sources(State(operator): State<Operator>) -> ApiResult<Vec<views::SourceView>> {
    Ok(Json(operator.sources().await?))
}

/// One source: how often and how late it repeats itself, the lifetime that its keys need, what was refused, its limits.
#[utoipa::path(get, path = "/api/v1/sources/{name}", params(("name" = String, Path)), responses((status = 200, body = views::SourceDetail), (status = 404)))]
pub(super) async fn source(
    State(operator): State<Operator>,
    Path(name): Path<String>,
) -> ApiResult<views::SourceDetail> {
    Ok(Json(operator.source(&name).await?))
}

/// Every destination and its gate.
#[utoipa::path(get, path = "/api/v1/destinations", responses((status = 200, body = Vec<views::DestinationView>)))]
pub(super) async fn destinations(State(operator): State<Operator>) -> ApiResult<Vec<views::DestinationView>> {
    Ok(Json(operator.destinations().await?))
}
