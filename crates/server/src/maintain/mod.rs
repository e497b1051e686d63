//! Maintain: deletes expired data in slices.
//!
//! In: a timer.
//! Out: rows pruned, old dead letters dropped with an audit entry, contact keys re-wrapped.
//! Touches: ledger: prune, drop, rewrap, its clock.
//! Never: a live job, a dead letter within the retention of its queue, or anything while the wall clock is in doubt.
//! If the process dies here: a slice is committed or not; the next start continues.

pub mod stragglers;

use std::time::Duration;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::time::Time;
use sluice_ledger::{DropJobs, JobFilter, Ledger, Prune, RETENTION};
use tokio::sync::watch;

use crate::clock::{CLOCK_ACTION, Clock};
use crate::revisions::Revisions;

#[derive(Clone, Debug)]
pub struct RetentionSettings {
    /// Of bodies, once all jobs of the event are finished.
    pub bodies: Duration,
    /// Of events, jobs and attempts, once the key has expired.
    pub events: Duration,
    pub interval: Duration,
}

impl Default for RetentionSettings {
    fn default() -> RetentionSettings {
        const DAY: u64 = 86_400;
        RetentionSettings {
            bodies: Duration::from_secs(30 * DAY),
            events: Duration::from_secs(90 * DAY),
            interval: Duration::from_secs(30),
        }
    }
}

/// Takes a few milliseconds of the writer's time.
const SLICE_ROWS: u32 = 500;

/// Runs a round per interval until `stop`.
pub async fn run(
    ledger: Ledger,
    revisions: Revisions,
    clock: Clock,
    settings: RetentionSettings,
    mut stop: watch::Receiver<bool>,
) {
    let mut in_doubt = !clock.read_ledger_clock().may_prune();
    loop {
        tokio::select! {
            () = tokio::time::sleep(settings.interval) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let reading = clock.read_ledger_clock();
        if std::mem::replace(&mut in_doubt, !reading.may_prune()) == reading.may_prune() {
            match clock.warning(reading) {
                Some(warning) => tracing::warn!("{warning}. {CLOCK_ACTION}"),
                None => tracing::info!("the ledger's time follows the clock of this machine again"),
            }
        }
        if let Err(error) = round(&ledger, &revisions, &clock, &settings).await {
            tracing::warn!(%error, "maintenance failed; retrying at the next interval");
        }
    }
}

/// Stores the ledger's clock, then deletes everything that is expired by it. While the wall clock is in doubt nothing is
/// deleted.
pub async fn round(
    ledger: &Ledger,
    revisions: &Revisions,
    clock: &Clock,
    settings: &RetentionSettings,
) -> Result<u64, sluice_ledger::Error> {
    clock.keep(ledger).await?;
    let reading = clock.read_ledger_clock();
    let now = reading.time;
    // Continues an interrupted rotation of the tenant key.
    while ledger.rewrap_contacts(SLICE_ROWS, now).await? > 0 {}
    if !reading.may_prune() {
        return Ok(0);
    }
    let mut rows = drop_old_dead_letters(ledger, revisions, now).await?;
    loop {
        let prune = Prune {
            bodies_before: now - settings.bodies,
            events_before: now - settings.events,
            rows_max: SLICE_ROWS,
            at: now,
        };
        let pruned = ledger.prune(prune).await?;
        rows += pruned.rows;
        if !pruned.more {
            return Ok(rows);
        }
    }
}

async fn drop_old_dead_letters(ledger: &Ledger, revisions: &Revisions, now: Time) -> Result<u64, sluice_ledger::Error> {
    let live = revisions.current();
    let mut dropped = 0;
    for queue in live.config.queues.values() {
        let filter = JobFilter {
            states: vec![JobState::Dead],
            dead_letter_queue: Some(queue.name.clone()),
            until: Some(now - queue.retention),
            ..JobFilter::default()
        };
        loop {
            let jobs = ledger.matching_jobs(filter.clone(), JobId(0), SLICE_ROWS).await?;
            if jobs.is_empty() {
                break;
            }
            let reason = format!(
                "older than {}, the retention of {}",
                sluice_domain::unit::format_duration(queue.retention),
                queue.name
            );
            let order = DropJobs { jobs, actor: RETENTION.into(), reason, at: now };
            let gone = ledger.drop_jobs(order).await?.len() as u64;
            dropped += gone;
            if gone == 0 {
                break;
            }
        }
    }
    Ok(dropped)
}
