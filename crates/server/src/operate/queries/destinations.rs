//! Destinations: gates, daily limits and failure rules.

use std::time::Duration;

use sluice_domain::failure_rules::{FailureRule, RuleCall, RuleOrigin};
use sluice_domain::history::series::{self, Grouping, HistoryQuery};
use sluice_domain::history::{Measure, Step, Value};
use sluice_domain::unit::format_duration;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{
    CallsTodayView, DestinationDetail, DestinationLatencyView, DestinationView, FailureRuleView, PercentilesView,
    rate_text,
};

/// Window of the percentiles of a destination.
const LATENCY_WINDOW: Duration = Duration::from_secs(3600);

impl Operator {
    pub async fn destinations(&self) -> Result<Vec<DestinationView>, OperateError> {
        let view = self.scheduler.view().await.unwrap_or_default();
        let live = self.revisions.current();
        Ok(live
            .config
            .destinations
            .values()
            .map(|destination| DestinationView {
                name: destination.name.clone(),
                kind: destination.kind.as_str().to_owned(),
                gate: view.gates.get(&destination.name).and_then(|gate| serde_json::to_value(gate).ok()),
            })
            .collect())
    }

    pub async fn destination(&self, name: &str) -> Result<DestinationDetail, OperateError> {
        let found = self.destinations().await?.into_iter().find(|destination| destination.name == name);
        let destination = found.ok_or_else(|| OperateError::NotFound(format!("no destination is called `{name}`")))?;
        let live = self.revisions.current();
        let rules = live.connectors.failure_rules(name).into_iter().flat_map(|table| table.rules());
        Ok(DestinationDetail {
            destination,
            rate: live.config.destinations.get(name).and_then(|known| known.gate.rate).map(rate_text),
            calls_today: live
                .connectors
                .quota(name)
                .map(|quota| CallsTodayView { used: quota.used, limit: quota.limit }),
            latency: self.destination_latency(name).await?,
            failure_rules: rules.map(|(rule, origin)| FailureRuleView::new(rule, origin)).collect(),
        })
    }
}

impl Operator {
    /// Latencies of one destination in the last hour.
    async fn destination_latency(&self, name: &str) -> Result<Option<DestinationLatencyView>, OperateError> {
        let (wait, call) =
            (self.percentiles(Measure::WaitSeconds, name).await?, self.percentiles(Measure::CallSeconds, name).await?);
        let is_known = wait.is_some() || call.is_some();
        Ok(is_known.then(|| DestinationLatencyView { window: format_duration(LATENCY_WINDOW), wait, call }))
    }

    async fn percentiles(&self, measure: Measure, name: &str) -> Result<Option<PercentilesView>, OperateError> {
        let now = self.clock.ledger_time();
        let (since, until) = (Step::Minute.start(now - LATENCY_WINDOW), now + Step::Minute.length());
        let rows = self.ledger.history(HistoryQuery { measure, step: Step::Minute, since, until }).await?;
        let of = series::total(&rows, &Grouping::by_all(measure)).into_iter();
        let found =
            of.filter(|(labels, _)| labels.first().is_some_and(|label| &**label == name)).find_map(|(_, value)| {
                match value {
                    Value::Histogram(histogram) => Some(histogram),
                    _ => None,
                }
            });
        Ok(found.and_then(|histogram| {
            let at = |percent| Some(histogram.percentile(percent)?.as_secs_f64());
            Some(PercentilesView { count: histogram.count(), p50: at(50.0)?, p95: at(95.0)?, p99: at(99.0)? })
        }))
    }
}

impl FailureRuleView {
    fn new(rule: &FailureRule, origin: RuleOrigin) -> FailureRuleView {
        let statuses: Vec<String> = rule.statuses.iter().map(ToString::to_string).collect();
        FailureRuleView {
            own: origin == RuleOrigin::Destination,
            from: origin.as_str().to_owned(),
            call: match rule.call {
                RuleCall::Effect => "effect".to_owned(),
                RuleCall::Token => "token".to_owned(),
            },
            status: statuses.join(", "),
            code: rule.codes.join(", "),
            contains: rule.contains.clone().unwrap_or_default(),
            action: rule.action.to_string(),
            advice: rule.advice.clone(),
        }
    }
}
