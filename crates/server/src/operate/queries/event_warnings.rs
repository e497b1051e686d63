//! Warnings of an event: conversions of the mapping that lost something, and lookups of its jobs that failed.

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::event::MappingWarning;
use sluice_ledger::JobSummary;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::EventWarningView;

impl Operator {
    pub(super) async fn event_warnings(
        &self,
        normalized: Option<&Value>,
        jobs: &[JobSummary],
    ) -> Result<Vec<EventWarningView>, OperateError> {
        let of_mapping = normalized.and_then(|event| event.get("audit")?.get("warnings")).cloned().unwrap_or_default();
        let of_mapping: Vec<MappingWarning> = serde_json::from_value(of_mapping).unwrap_or_default();
        let mut warnings: Vec<EventWarningView> = of_mapping
            .into_iter()
            .map(|warning| EventWarningView { field: warning.field, code: warning.code.as_str().to_owned(), job: None })
            .collect();
        for job in jobs {
            for effect in self.ledger.effects(job.id).await? {
                let is_lookup = Action::parse(&effect.action).is_some_and(Action::is_lookup);
                let code = effect.result.as_deref().and_then(|result| result["warning"]["code"].as_str());
                if let Some(code) = code.filter(|_| is_lookup) {
                    let (field, job) = (format!("steps.{}", effect.step_id), Some(job.id.to_string()));
                    warnings.push(EventWarningView { field, code: code.to_owned(), job });
                }
            }
        }
        Ok(warnings)
    }
}
