//! The ledger's clock.

use axum::Json;

use super::{ApiResult, JsonBody};
use crate::operate::commands::AcceptClockRequest;
use crate::operate::operator::Operator;
use crate::operate::views::ClockView;

/// The ledger's clock beside the clock of the machine.
#[utoipa::path(get, path = "/api/v1/clock", responses((status = 200, body = ClockView)))]
pub(super) async fn show(operator: Operator) -> ApiResult<ClockView> {
    Ok(Json(operator.clock().await?))
}

/// Confirm the clock of the machine: the ledger's time moves to it.
#[utoipa::path(post, path = "/api/v1/clock/accept", request_body = AcceptClockRequest, responses((status = 200, body = ClockView), (status = 409)))]
pub(super) async fn accept(operator: Operator, JsonBody(order): JsonBody<AcceptClockRequest>) -> ApiResult<ClockView> {
    Ok(Json(operator.accept_clock(&order).await?))
}
