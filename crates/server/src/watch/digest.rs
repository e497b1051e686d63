//! The daily digest of dead letters.

use jiff::civil::Date;
use sluice_domain::alert::digest::{DigestReason, REASONS_MAX, digest};
use sluice_domain::time::Time;

use super::Watch;
use crate::revisions::LoadedRevision;

/// Causes that are read: those that are listed, and those that are counted.
const REASONS_READ: u32 = 10 * REASONS_MAX as u32;

/// The day whose digest was accepted last, so that it is not accepted again at every look. The ledger knows it too, by its key.
#[derive(Debug, Default)]
pub(super) struct DigestDay(Option<Date>);

impl Watch {
    /// Accepts the digest of the day once it is due.
    pub(super) async fn send_digest(
        &self,
        live: &LoadedRevision,
        sent: &mut DigestDay,
    ) -> Result<(), sluice_ledger::Error> {
        let Some(settings) = &live.config.alerts.digest else { return Ok(()) };
        let now = self.clock.ledger_time();
        let Some(day) = settings.due(now).filter(|day| sent.0 != Some(*day)) else { return Ok(()) };
        let reasons = self.ledger.dead_reasons(Time(0), REASONS_READ).await?;
        let reasons: Vec<DigestReason> = reasons
            .into_iter()
            .map(|reason| DigestReason { class: reason.class, code: reason.code, count: reason.count })
            .collect();
        self.accept(&digest(settings, day, &reasons, now), live).await?;
        sent.0 = Some(day);
        Ok(())
    }
}
