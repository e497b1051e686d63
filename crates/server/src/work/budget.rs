//! Retries that one contact may take up.

use sluice_domain::job::JobState;
use sluice_domain::settle::NextAction;
use sluice_domain::time::Time;
use sluice_domain::transition::JobUpdate;
use sluice_domain::worker::Worker;
use sluice_ledger::{Begin, ChargeResult, Ledger, RetryCharge, Settlement};

/// What a retry takes from the budget, if there is one and this is one. `decided` says where the job stands after a decision.
pub(super) fn draw(
    worker: &Worker,
    place: u32,
    next: &JobUpdate,
    at: Time,
    decided: impl FnOnce(NextAction) -> JobUpdate,
) -> Option<RetryCharge> {
    let budget = worker.retry_for(place).budget.or(worker.retry.budget)?;
    if next.state != JobState::Retrying {
        return None;
    }
    let failure = budget.used_up(&worker.name, next.failure.as_ref());
    let otherwise = decided(NextAction::Die { failure });
    Some(RetryCharge { retries: budget.retries, until: at + budget.window, otherwise })
}

/// Writes a settlement, within the budget if it takes from one. `begun` is its attempt, if that is not written down yet.
pub(super) async fn settle(
    ledger: &Ledger,
    begun: Option<&Begin>,
    settlement: &Settlement,
    draw: Option<&RetryCharge>,
) -> Result<ChargeResult, sluice_ledger::Error> {
    let settled = |settled| if settled { ChargeResult::Settled } else { ChargeResult::Stale };
    match (draw, begun) {
        (Some(draw), begun) => {
            if let Some(begin) = begun {
                ledger.begin_without_waiting(begin.clone()).await?;
            }
            ledger.settle_with_budget(settlement.clone(), draw.clone()).await
        }
        (None, Some(begin)) => ledger.begin_and_settle(begin.clone(), settlement.clone()).await.map(settled),
        (None, None) => ledger.settle(settlement.clone()).await.map(settled),
    }
}
