//! Suppressed contacts and safe mode.

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{SafeModeView, SuppressionView};

impl Operator {
    /// Suppressed contacts, newest first.
    pub async fn suppressions(&self, limit: u32) -> Result<Vec<SuppressionView>, OperateError> {
        let records = self.ledger.suppressions(limit.clamp(1, 10_000)).await?;
        let view = |record: sluice_ledger::SuppressionRecord| SuppressionView {
            contact: record.label,
            channel: record.channel,
            at: record.at.to_string(),
            actor: record.actor,
            reason: record.reason,
        };
        Ok(records.into_iter().map(view).collect())
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
