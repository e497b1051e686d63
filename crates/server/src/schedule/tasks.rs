//! What the scheduler's loop does in the background: reads, runs, writes of routes. Each task ends with one message.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use sluice_domain::call_budget::{BudgetCharge, CallMeter};
use sluice_domain::hash::Set;
use sluice_domain::job::JobId;
use sluice_domain::run::{LoadedJob, StepRoute, postpone, reroute};
use sluice_domain::schedule::PendingJob;
use sluice_domain::schedule::backlog::BacklogQuery;
use sluice_ledger::{ChargeCalls, ChargeResult, JobRecord};

use super::handle::{Message, Page, SchedulerHandle};
use crate::work::{Ended, Slot, WorkContext, work};

/// What every task needs.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    pub context: Arc<WorkContext>,
    pub handle: SchedulerHandle,
}

impl Tasks {
    pub(super) fn find_backlogs(&self) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            handle.send(Message::BacklogsFound(context.ledger.live_lanes().await));
        });
    }

    /// Loads a page of a backlog, and what the runs of its jobs read: no job costs a read of its own.
    pub(super) fn load(
        &self,
        query: BacklogQuery,
        has_job: impl Fn(&JobRecord) -> bool + Send + 'static,
        bytes_max: usize,
    ) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let page = match context.ledger.backlog(query.clone()).await {
                Ok(page) => {
                    let jobs = page.due.iter().chain(&page.queued).filter(|job| !has_job(job)).map(|job| job.id);
                    let jobs: Vec<JobId> = jobs.collect();
                    let loaded = match jobs.is_empty() || bytes_max == 0 {
                        true => Ok(vec![]),
                        false => context.ledger.load_jobs(jobs, bytes_max).await,
                    };
                    loaded.map(|loaded| Page { page, loaded })
                }
                Err(error) => Err(error),
            };
            handle.send(Message::Loaded(query, page));
        });
    }

    /// Reads jobs that are to run now, those of one slot together, and of which memory has only the records.
    pub(super) fn read(&self, groups: Vec<Vec<JobId>>) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let jobs: Vec<JobId> = groups.iter().flatten().copied().collect();
            let loaded = context.ledger.load_jobs(jobs, usize::MAX).await;
            handle.send(Message::Read(groups, loaded));
        });
    }

    /// Runs jobs with one slot of this destination, which may make so many calls. The loop is told of the end of each, even if a run
    /// panics.
    pub(super) fn run(&self, jobs: Vec<LoadedJob>, destination: Arc<str>, allowance: Option<u32>) {
        let Tasks { context, handle } = self.clone();
        let mut running: Set<JobId> = jobs.iter().map(|loaded| loaded.job.id).collect();
        let meter = allowance.map(|calls| CallMeter::new(Some(calls)));
        tokio::spawn(async move {
            let made = || meter.as_ref().map(CallMeter::made);
            let ended = |id: JobId, result: Ended| {
                running.remove(&id);
                let result = result.map_err(|error| {
                    tracing::error!(job = %id, %error, "settlement not written; reloading the job");
                });
                handle.send(Message::Ended(id, result.ok(), made()));
            };
            // Boxed, so that the task is small when it moves between threads.
            let panicked = caught(Box::pin(work(&context, jobs, Slot { destination, meter: meter.clone() }, ended)))
                .await
                .is_err();
            for id in running {
                debug_assert!(panicked, "{id} has not ended");
                tracing::error!(job = %id, "a run panicked; its outcome counts as unknown");
                handle.send(Message::Ended(id, None, made()));
            }
        });
    }

    /// Writes that a job waits for the budget of its destination, as the end of a run.
    pub(super) fn postpone(&self, job: JobRecord, pending: PendingJob) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let (settle, result) = postpone(&job, &pending, context.now(&job.worker));
            let written = context.ledger.settle(settle).await;
            if let Err(error) = &written {
                tracing::warn!(job = %job.id, %error, "the wait for a budget was not written; reloading the job");
            }
            let result = matches!(written, Ok(ChargeResult::Settled)).then(|| Box::new(result));
            handle.send(Message::Ended(job.id, result, None));
        });
    }

    /// Charges calls of a budget.
    pub(super) fn charge(&self, destination: Arc<str>, charge: BudgetCharge) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let written = context.ledger.charge_calls(ChargeCalls { destination: destination.clone(), charge }).await;
            if let Err(error) = &written {
                tracing::warn!(%destination, %error, "calls of the budget were not charged; trying again");
            }
            handle.send(Message::Charged(destination, written.ok()));
        });
    }

    pub(super) fn reload(&self, id: JobId) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let read = context.ledger.load_jobs(vec![id], usize::MAX).await;
            let live = read.map(|mut jobs| jobs.pop().filter(|loaded| loaded.job.state.is_live()).map(Box::new));
            handle.send(Message::Reloaded(id, live));
        });
    }

    pub(super) fn reroute(&self, job: JobRecord, pending: PendingJob) {
        let Tasks { context, handle } = self.clone();
        tokio::spawn(async move {
            let route = StepRoute { destination: pending.destination, order: pending.order };
            let settle = reroute(&job, &route, context.now(&job.worker));
            let result = context.ledger.settle(settle).await;
            if let Err(error) = &result {
                tracing::warn!(job = %job.id, %error, "route not written; reloading the job");
            }
            handle.send(Message::Rerouted(job.id, matches!(result, Ok(ChargeResult::Settled))));
        });
    }
}

struct Panicked;

/// The value of a future, or that it panicked. What the future held is dropped and not used again.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
