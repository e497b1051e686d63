//! Replays: takes the batches of running replays.
//!
//! In: running replays of the ledger; a wake-up when one starts or resumes.
//! Out: jobs requeued, at the rate of their replay.
//! Touches: ledger: replays and the jobs that they select; the scheduler's handle.
//! Never: decides what may be replayed and how fast (that is [`sluice_domain::replay`]).
//! If the process dies here: a batch is committed with the place of its replay, or has not happened; the next start continues.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::job::JobId;
use sluice_domain::random::Random;
use sluice_domain::replay::{BATCH_MAX, NotReplayable, ReplayId, ReplayState, next_batch_at, replayable};
use sluice_domain::time::Time;
use sluice_ledger::{AdvanceReplay, Ledger, ReplayRecord, ReplaySelection};
use tokio::sync::{Mutex, Notify, watch};

use crate::clock::Clock;
use crate::observe::Metrics;
use crate::pauses;
use crate::schedule::SchedulerHandle;

/// However far the next batch is: the wall clock may jump, and replays may be paused or resumed as a whole.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(5);

/// Takes batches of replays. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Replays {
    ledger: Ledger,
    clock: Clock,
    metrics: Metrics,
    scheduler: SchedulerHandle,
    /// One batch at a time, whoever takes it.
    taking: Arc<Mutex<()>>,
    wake: Arc<Notify>,
}

/// A batch that was taken.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub skipped: Vec<(JobId, NotReplayable)>,
    /// The replay has ended.
    pub is_last: bool,
}

impl Replays {
    pub(crate) fn new(ledger: Ledger, clock: Clock, metrics: Metrics, scheduler: SchedulerHandle) -> Replays {
        Replays { ledger, clock, metrics, scheduler, taking: Arc::default(), wake: Arc::default() }
    }

    /// A replay has started or resumed.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes what is due until it is told to stop.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            let next = match self.take_due().await {
                Ok(next) => next,
                Err(sluice_ledger::Error::Failed) => return,
                Err(error) => {
                    tracing::warn!(%error, "a batch of a replay was not taken; trying again");
                    None
                }
            };
            let wait = next.map_or(LOOK_AGAIN_MAX, |next| next.since(self.clock.ledger_time())).min(LOOK_AGAIN_MAX);
            tokio::select! {
                () = tokio::time::sleep(wait.max(Duration::from_millis(5))) => {}
                () = self.wake.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Takes every batch that is due, one of each replay. Returns when the next one is.
    async fn take_due(&self) -> Result<Option<Time>, sluice_ledger::Error> {
        let running = self.ledger.running_replays().await?;
        if running.is_empty() || pauses::of_replays(&self.ledger.pauses().await?).is_some() {
            return Ok(None);
        }
        let mut next: Option<Time> = None;
        for record in running {
            let mut due = Some(record.next_at);
            if record.next_at <= self.clock.ledger_time() {
                self.take_batch(record.id).await?;
                let record = self.ledger.replay_record(record.id).await?;
                due = record.filter(|record| record.state == ReplayState::Running).map(|record| record.next_at);
            }
            next = next.into_iter().chain(due).min();
        }
        Ok(next)
    }

    /// Takes the next batch of a replay. `None` if it does not run.
    pub(crate) async fn take_batch(&self, id: ReplayId) -> Result<Option<Taken>, sluice_ledger::Error> {
        let _one_at_a_time = self.taking.lock().await;
        let found = self.ledger.replay_record(id).await?;
        let Some(record) = found.filter(|record| record.state == ReplayState::Running) else { return Ok(None) };
        let limit = record.batch.clamp(1, BATCH_MAX);
        let ids = self.next_jobs(&record, limit).await?;
        let is_last = ids.len() < limit as usize;
        let (mut jobs, mut skipped) = (Vec::new(), Vec::new());
        for job in self.ledger.jobs(ids.clone()).await? {
            match replayable(job.state) {
                Ok(()) => jobs.push(job.id),
                Err(why) => skipped.push((job.id, why)),
            }
        }
        let at = self.clock.ledger_time();
        let mut random = Random::seeded(at.0 as u64 ^ id.0 as u64);
        let advance = AdvanceReplay {
            id,
            after: record.after,
            until: ids.last().copied().unwrap_or(record.after),
            skipped: (ids.len() - jobs.len()) as u64,
            next_at: next_batch_at(at, jobs.len(), record.rate, &mut random),
            jobs,
            is_last,
            at,
        };
        let Some(changed) = self.ledger.advance_replay(advance).await? else { return Ok(None) };
        let replayed = changed.len() as u64;
        self.metrics.replays.inc_by(replayed);
        for (job, worker) in &changed {
            if let Some(unlogged) = self.metrics.stages.replayed.take() {
                tracing::info!(
                    stage = "replayed", %job, %worker, replay = %id, actor = %record.actor, status = "queued", unlogged,
                    "job replayed"
                );
            }
        }
        self.scheduler.requeued(changed);
        if is_last {
            tracing::info!(replay = %id, "replay finished");
        }
        Ok(Some(Taken { skipped, is_last }))
    }

    /// The next jobs that a replay selects, oldest first.
    pub(crate) async fn next_jobs(
        &self,
        record: &ReplayRecord,
        limit: u32,
    ) -> Result<Vec<JobId>, sluice_ledger::Error> {
        Ok(match &record.selection {
            ReplaySelection::Filter(filter) => {
                let mut jobs = self.ledger.matching_jobs(filter.clone(), record.after, limit).await?;
                jobs.retain(|id| *id <= record.last_job);
                jobs
            }
            ReplaySelection::Jobs(ids) => {
                let rest = ids.iter().map(|id| JobId(*id)).filter(|id| *id > record.after);
                rest.take(limit as usize).collect()
            }
        })
    }
}
