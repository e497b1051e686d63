//! Retries that count against the budget of a contact.

use sluice_domain::time::Time;

use super::Store;
use crate::op::{Reply, RetryCharge, Settlement};

impl Store {
    pub(super) fn settle_within(&mut self, settlement: Settlement, draw: RetryCharge) -> Reply {
        let Some(job) = self.jobs.get(&settlement.job).map(|job| &job.record) else { return Reply::Stale };
        if job.attempts_total != settlement.n || !job.state.is_live() {
            return Reply::Stale;
        }
        let spent = self.retries.entry((job.worker.clone(), job.entity)).or_default();
        if spent.iter().filter(|until| **until > settlement.at).count() >= draw.retries as usize {
            return match self.settle(Settlement { next: draw.otherwise, ..settlement }) {
                Reply::Settled => Reply::Exhausted,
                other => other,
            };
        }
        spent.push(draw.until);
        self.settle(settlement)
    }

    /// Forgets retries that count no more. Answers how many.
    pub(super) fn forget_retries(&mut self, at: Time, limit: usize) -> usize {
        let mut forgotten = 0;
        for spent in self.retries.values_mut() {
            spent.retain(|until| {
                let stays = *until > at || forgotten >= limit;
                forgotten += usize::from(!stays);
                stays
            });
        }
        self.retries.retain(|_, spent| !spent.is_empty());
        forgotten
    }
}
