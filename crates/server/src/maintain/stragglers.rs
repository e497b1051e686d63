//! Lanes in which a call of unknown outcome may have been applied late: their last confirmed write is compared with the record.
//!
//! In: a timer.
//! Out: jobs requeued, whose runs read the record back.
//! Touches: ledger: recheck.
//! Never: a destination, or a job that is not finished.
//! If the process dies here: the lane is due in the ledger, or its job is queued.

use std::time::Duration;

use sluice_ledger::{Ledger, Recheck};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::work::OnRequeued;

const INTERVAL: Duration = Duration::from_secs(1);
/// Jobs requeued at once.
const JOBS_MAX: u32 = 100;

/// Requeues what is due until `stop`.
pub async fn run(ledger: Ledger, clock: Clock, requeued: OnRequeued, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if let Err(error) = recheck(&ledger, &clock, &requeued).await {
            tracing::warn!(%error, "late writes are not looked for; retrying at the next interval");
        }
    }
}

async fn recheck(ledger: &Ledger, clock: &Clock, requeued: &OnRequeued) -> Result<(), sluice_ledger::Error> {
    let (at, now) = (clock.ledger_time(), clock.now());
    if ledger.next_straggler().await?.is_none_or(|due| due > now) {
        return Ok(());
    }
    let jobs = ledger.recheck(Recheck { at, due_at: now, jobs_max: JOBS_MAX }).await?;
    if !jobs.is_empty() {
        tracing::info!(jobs = jobs.len(), "comparing records with their last confirmed write after an unknown outcome");
        (requeued.0)(jobs);
    }
    Ok(())
}
