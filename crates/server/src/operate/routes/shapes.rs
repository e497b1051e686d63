//! Shapes of the payloads of a source.

use axum::Json;
use axum::extract::Path;

use super::{ApiResult, JsonBody};
use crate::operate::commands::AcceptShapeRequest;
use crate::operate::operator::Operator;
use crate::operate::views::ShapeView;

/// What the payloads of a source look like, by type of event, and departures from that.
#[utoipa::path(get, path = "/api/v1/sources/{name}/shape", params(("name" = String, Path)), responses((status = 200, body = Vec<ShapeView>), (status = 404)))]
pub(super) async fn show(operator: Operator, Path(name): Path<String>) -> ApiResult<Vec<ShapeView>> {
    Ok(Json(operator.source_shapes(&name).await?))
}

/// Make departures from the shape of a source's payloads the new normal.
#[utoipa::path(post, path = "/api/v1/sources/{name}/shape/accept", params(("name" = String, Path)), request_body = AcceptShapeRequest, responses((status = 200, body = Vec<ShapeView>), (status = 400), (status = 404)))]
pub(super) async fn accept(
    operator: Operator,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<AcceptShapeRequest>,
) -> ApiResult<Vec<ShapeView>> {
    operator.accept_shape(&name, &request).await?;
    Ok(Json(operator.source_shapes(&name).await?))
}
