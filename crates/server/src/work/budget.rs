//! Retries that one contact may take up.

use sluice_domain::job::JobState;
use sluice_domain::progress::JobNext;
use sluice_domain::settle::Next;
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::{Begin, Draw, Drawn, Ledger, Settlement};

/// What a retry takes from the budget, if there is one and this is one. `decided` says where the job stands after a decision.
pub(super) fn draw(
    worker: &Worker,
    place: u32,
    next: &JobNext,
    at: Time,
    decided: impl FnOnce(Next) -> JobNext,
) -> Option<Draw> {
    let budget = worker.retry_for(place).budget.or(worker.retry.budget)?;
    if next.state != JobState::Retrying {
        return None;
    }
    let failure = budget.used_up(&worker.name, next.failure.as_ref());
    let otherwise = decided(Next::Die { failure });
    Some(Draw { retries: budget.retries, until: at + budget.window, otherwise })
}

/// Writes a settlement, within the budget if it takes from one. `begun` is its attempt, if that is not written down yet.
pub(super) async fn settle(
    ledger: &Ledger,
    begun: Option<&Begin>,
    settlement: &Settlement,
    draw: Option<&Draw>,
) -> Result<Drawn, sluice_ledger::Error> {
    let settled = |settled| if settled { Drawn::Settled } else { Drawn::Stale };
    match (draw, begun) {
        (Some(draw), begun) => {
            if let Some(begin) = begun {
                ledger.begin_unwaited(begin.clone()).await?;
            }
            ledger.settle_within(settlement.clone(), draw.clone()).await
        }
        (None, Some(begin)) => ledger.settle_at_once(begin.clone(), settlement.clone()).await.map(settled),
        (None, None) => ledger.settle(settlement.clone()).await.map(settled),
    }
}
