//! Suppressed contacts and safe mode.

use sluice_ledger::Page;

use super::LIST_MAX;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{List, SafeModeView, SuppressionView};

impl Operator {
    /// Suppressed contacts, newest first.
    pub async fn suppressions(&self, after: Option<i64>, limit: u32) -> Result<List<SuppressionView>, OperateError> {
        let limit = limit.clamp(1, LIST_MAX);
        let records = self.ledger.suppressions(Page { after, limit }).await?;
        let next = (records.len() == limit as usize).then(|| records.last().map(|last| last.id.to_string())).flatten();
        let view = |record: sluice_ledger::SuppressionRecord| SuppressionView {
            contact: record.label,
            channel: record.channel,
            at: record.at.to_string(),
            actor: record.actor,
            reason: record.reason,
        };
        Ok(List::new(records.into_iter().map(view).collect(), next))
    }

    pub async fn safe_modes(&self) -> Result<Vec<SafeModeView>, OperateError> {
        let now = self.clock.ledger_time();
        let on = self.ledger.safe_modes().await?.into_iter().filter(|record| record.until > now);
        let view = |record: sluice_ledger::SafeModeRecord| SafeModeView {
            worker: record.worker,
            since: record.at.to_string(),
            until: record.until.to_string(),
            actor: record.actor,
            reason: record.reason,
        };
        Ok(on.map(view).collect())
    }
}
