//! History: series, totals, latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use serde::Deserialize;
use sluice_domain::unit;
use utoipa::IntoParams;

use super::{ApiResult, QueryParams};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::SeriesRequest;
use crate::operate::routes::jobs::moment;
use crate::operate::views;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesQuery {
    /// Name of a measure, such as `accepted` or `effect_seconds`.
    measure: String,
    /// Labels that series are grouped by, separated by commas; everything is added up without.
    by: Option<String>,
    /// `minute`, `hour` or `day`; the finest one that has the whole time without.
    step: Option<String>,
    /// A duration before now (`1h`) or a time; one hour without.
    since: Option<String>,
    /// A time; now without.
    until: Option<String>,
}

/// Series of a measure: minutes of the last day, hours of the last 92 days, days of the last two years.
#[utoipa::path(get, path = "/api/v1/series", params(SeriesQuery), responses((status = 200, body = views::HistoryView), (status = 400)))]
pub(super) async fn series(
    operator: Operator,
    QueryParams(query): QueryParams<SeriesQuery>,
) -> ApiResult<views::HistoryView> {
    let request = SeriesRequest {
        measure: query.measure,
        by: query.by.unwrap_or_default(),
        step: query.step,
        since: moment(query.since.as_deref().unwrap_or("1h"))?,
        until: query.until.as_deref().map(moment).transpose()?,
    };
    Ok(Json(operator.series(&request).await?))
}

/// Counters since the ledger was created. They are written with what they count, so they are exact.
#[utoipa::path(get, path = "/api/v1/totals", responses((status = 200, body = Vec<views::CounterView>)))]
pub(super) async fn totals(operator: Operator) -> ApiResult<Vec<views::CounterView>> {
    Ok(Json(operator.counters().await?))
}

/// North stars by name. A number that nothing is known about is left out.
#[utoipa::path(get, path = "/api/v1/north-stars", responses((status = 200, body = BTreeMap<String, f64>)))]
pub(super) async fn north_stars(operator: Operator) -> ApiResult<BTreeMap<String, f64>> {
    let values = operator.north_stars().await?.values();
    Ok(Json(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct LatencyQuery {
    /// `effect_seconds` (default), `call_seconds` or `queue_seconds`.
    measure: Option<String>,
    /// Duration before now; 15 minutes without.
    window: Option<String>,
    /// Between 0 and 100; 95 without.
    percentile: Option<f64>,
}

/// Latency by destination, or by worker, over a window.
#[utoipa::path(get, path = "/api/v1/latency", params(LatencyQuery), responses((status = 200, body = Vec<views::LatencyView>), (status = 400)))]
pub(super) async fn latency(
    operator: Operator,
    QueryParams(query): QueryParams<LatencyQuery>,
) -> ApiResult<Vec<views::LatencyView>> {
    let window = query.window.as_deref().map(unit::duration).transpose();
    let window = window.map_err(|problem| OperateError::Invalid(problem.to_string()))?;
    let measure = query.measure.as_deref().unwrap_or("effect_seconds");
    let window = window.unwrap_or(Duration::from_secs(15 * 60));
    Ok(Json(operator.latency(measure, window, query.percentile.unwrap_or(95.0)).await?))
}
