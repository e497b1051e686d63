//! Destinations: gates, daily limits and failure rules.

use sluice_domain::failure_rules::{FailureRule, RuleCall};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{CallsTodayView, DestinationDetail, DestinationView, FailureRuleView};

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
            calls_today: live
                .connectors
                .quota(name)
                .map(|quota| CallsTodayView { used: quota.used, limit: quota.limit }),
            failure_rules: rules.map(|(rule, own)| FailureRuleView::new(rule, own)).collect(),
        })
    }
}

impl FailureRuleView {
    fn new(rule: &FailureRule, own: bool) -> FailureRuleView {
        FailureRuleView {
            own,
            call: match rule.call {
                RuleCall::Effect => "effect".to_owned(),
                RuleCall::Token => "token".to_owned(),
            },
            status: rule.status.map_or_else(String::new, |status| status.to_string()),
            code: rule.code.clone().unwrap_or_default(),
            contains: rule.contains.clone().unwrap_or_default(),
            action: rule.action.to_string(),
            advice: rule.advice.clone(),
        }
    }
}
