//! Why live jobs do not run: one by one, and counted by reason.

use std::collections::BTreeMap;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::schedule::gate::PauseReason;
use sluice_domain::schedule::{BacklogView, JobWait, PendingJob, SchedulerView, WaitsFor};
use sluice_domain::time::Time;
use sluice_domain::wait::WaitReason;
use sluice_ledger::{JobRecord, JobTotal, PauseRecord};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{WaitView, WaitingView};

/// What the messages about waits are made from.
#[derive(Debug, Default)]
pub(super) struct WaitContext {
    pauses: Vec<PauseRecord>,
    view: SchedulerView,
}

/// A worker and the destination that its job calls next; empty for internal steps.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    worker: &'a str,
    queue: Option<&'a str>,
    destination: &'a str,
}

impl Operator {
    /// Why each of these jobs does not run, in their order; `None` for one that runs, can run now or is finished.
    pub(super) async fn waits(&self, jobs: &[&JobRecord]) -> Result<Vec<Option<WaitView>>, OperateError> {
        let live: Vec<PendingJob> =
            jobs.iter().filter(|job| job.state.is_live()).map(|job| PendingJob::of(job)).collect();
        if live.is_empty() {
            return Ok(jobs.iter().map(|_| None).collect());
        }
        let ids: Vec<JobId> = live.iter().map(|job| job.id).collect();
        let Some((waits, view)) = self.scheduler.waits(live).await else {
            return Ok(jobs.iter().map(|job| job.state.is_live().then(no_node)).collect());
        };
        let blocking: BTreeMap<JobId, JobId> =
            self.ledger.blocking_jobs(ids.clone(), self.clock.now()).await?.into_iter().collect();
        let waits: BTreeMap<JobId, JobWait> =
            ids.into_iter().zip(waits).filter_map(|(id, wait)| Some((id, wait?))).collect();
        let context = WaitContext { pauses: self.ledger.pauses().await?, view };
        let wait = |job: &&JobRecord| {
            let mut wait = *waits.get(&job.id)?;
            if let (WaitsFor::Load | WaitsFor::Due, Some(head)) = (wait.waits_for, blocking.get(&job.id)) {
                wait = JobWait { waits_for: WaitsFor::Lane, until: None, behind: Some(*head) };
            }
            Some(self.job_wait(job, wait, &context))
        };
        Ok(jobs.iter().map(wait).collect())
    }

    fn job_wait(&self, job: &JobRecord, wait: JobWait, context: &WaitContext) -> WaitView {
        let until = |at: Option<Time>| at.map(|at| self.clock.to_wall(at).to_string());
        let is_due_later = job.due_at > self.clock.now();
        if let Some(reason) = job.wait_reason().filter(|_| is_due_later) {
            let message =
                job.failure.as_ref().filter(|_| reason != WaitReason::ReadBack).map(|failure| &failure.message);
            let message = message.map(|message| mask::text(message).into_owned());
            let view = own_wait(reason, &job.destination);
            return WaitView { until: until(Some(job.due_at)), message: message.unwrap_or(view.message), ..view };
        }
        let place = Place { worker: &job.worker, queue: Some(&job.queue), destination: &job.destination };
        let view = match (wait.waits_for, wait.behind) {
            (WaitsFor::Due, _) if job.state == JobState::Retrying => plain("retry", "the next attempt after a failure"),
            (WaitsFor::Lane, Some(head)) => WaitView {
                target: Some(head.to_string()),
                ..plain("lane", &format!("it is behind {head} in its lane: jobs of one entity run in their order"))
            },
            (waits_for, _) => context.wait(waits_for, place),
        };
        WaitView { until: until(wait.until), ..view }
    }

    /// Live jobs that do not run, counted by the reason, most jobs first.
    pub(super) async fn waiting(&self, view: Option<&SchedulerView>) -> Result<Vec<WaitingView>, OperateError> {
        let totals = self.ledger.job_totals().await?;
        let context = WaitContext { pauses: self.ledger.pauses().await?, view: view.cloned().unwrap_or_default() };
        let mut counts = BTreeMap::<(String, Option<String>), WaitingView>::new();
        for total in totals.iter().filter(|total| total.state.is_live() && total.state != JobState::Running) {
            let wait = match view {
                Some(_) => self.total_wait(total, &context),
                None => Some(no_node()),
            };
            let Some(wait) = wait else { continue };
            let key = (wait.reason.clone(), wait.target.clone());
            counts.entry(key).or_insert(WaitingView { wait, jobs: 0 }).jobs += total.count;
        }
        let mut waiting: Vec<WaitingView> = counts.into_values().collect();
        waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.jobs));
        Ok(waiting)
    }

    /// `None` for jobs that can run now.
    fn total_wait(&self, total: &JobTotal, context: &WaitContext) -> Option<WaitView> {
        if let Some(reason) = total.wait.filter(|reason| *reason != WaitReason::Throttled) {
            return Some(own_wait(reason, &total.destination));
        }
        let is_of =
            |backlog: &&BacklogView| *backlog.worker == *total.worker && *backlog.destination == *total.destination;
        let backlog = context.view.backlogs.iter().find(is_of);
        let place = Place { worker: &total.worker, queue: None, destination: &total.destination };
        let waits_for = backlog.and_then(|backlog| backlog.waits_for);
        let until = backlog.and_then(|backlog| backlog.until).map(|at| self.clock.to_wall(at).to_string());
        let stops_all = |waits_for: &WaitsFor| {
            use WaitsFor::{Breaker, Budget, Destination, RetryAfter, Shutdown, Worker};
            matches!(waits_for, Worker | Destination | Breaker | RetryAfter | Budget | Shutdown)
        };
        match (total.state, waits_for) {
            (_, Some(waits_for)) if stops_all(&waits_for) => Some(WaitView { until, ..context.wait(waits_for, place) }),
            (JobState::Waiting, _) => Some(own_wait(WaitReason::Throttled, &total.destination)),
            (JobState::Retrying, _) => Some(plain("retry", "the next attempt after a failure")),
            (_, Some(WaitsFor::Due | WaitsFor::Lane)) => Some(plain("lane", "an earlier job of the same entity")),
            (_, Some(waits_for)) => Some(WaitView { until, ..context.wait(waits_for, place) }),
            (_, None) => None,
        }
    }
}

impl WaitContext {
    fn wait(&self, waits_for: WaitsFor, place: Place<'_>) -> WaitView {
        let Place { worker, queue, destination } = place;
        let about = |reason: &str, target: String, message: String| WaitView {
            target: Some(target),
            ..plain(reason, &message)
        };
        let (worker_target, to) = (format!("worker:{worker}"), format!("destination:{destination}"));
        match waits_for {
            WaitsFor::Worker => {
                let is_pause = |pause: &&PauseRecord| match pause.target.split_once(':') {
                    Some(("worker", name)) => name == worker,
                    Some(("queue", name)) => queue.is_none_or(|queue| queue == name),
                    _ => false,
                };
                let pause = self.pauses.iter().find(is_pause);
                let target = pause.map_or(worker_target, |pause| pause.target.clone());
                let message = format!("{target} is paused{}", because(pause));
                about("worker-paused", target, message)
            }
            WaitsFor::Destination => {
                let paused = self.view.gates.get(destination).and_then(|gate| gate.paused.clone());
                if paused == Some(PauseReason::Auth) {
                    let message = format!("{to} is paused: it rejected the credentials");
                    return about("unauthorized", to, message);
                }
                let pause = self.pauses.iter().find(|pause| pause.target == to);
                let message = format!("{to} is paused{}", because(pause));
                about("destination-paused", to, message)
            }
            WaitsFor::Breaker => {
                let message = format!("the circuit breaker of {to} is open");
                about("breaker", to, message)
            }
            WaitsFor::RetryAfter => {
                let message = format!("{to} asked callers to wait");
                about("retry-after", to, message)
            }
            WaitsFor::Budget => {
                let message = format!("the budget of {to} has no calls left");
                about("budget", to, message)
            }
            WaitsFor::Rate => about("rate", to.clone(), format!("the rate limit of {to}")),
            WaitsFor::DestinationSlot => {
                let message = format!("a free call at {to}: as many as allowed are in flight");
                about("destination-slot", to, message)
            }
            WaitsFor::WorkerSlot => {
                let message = format!("a free slot of {worker_target}: as many as its concurrency are running");
                about("worker-slot", worker_target, message)
            }
            WaitsFor::Due => plain("due", "its due time"),
            WaitsFor::Lane => plain("lane", "an earlier job of the same entity"),
            WaitsFor::Load => {
                plain("load", "older jobs of the same worker and destination: it is in the ledger, not in memory")
            }
            WaitsFor::Shutdown => plain("shutdown", "the node is stopping; the job continues at the next start"),
        }
    }
}

fn plain(reason: &str, message: &str) -> WaitView {
    WaitView { reason: reason.to_owned(), target: None, until: None, message: message.to_owned() }
}

fn no_node() -> WaitView {
    plain("no-node", "no node is running")
}

fn because(pause: Option<&PauseRecord>) -> String {
    pause.map_or(String::new(), |pause| format!(" by {}: {}", pause.actor, mask::text(&pause.reason)))
}

/// What a waiting job waits for by its own record.
fn own_wait(reason: WaitReason, destination: &str) -> WaitView {
    let message = match reason {
        WaitReason::Approval => "a decision on its approval",
        WaitReason::Policy => "a policy defers its effect",
        WaitReason::SafeMode => "safe mode holds its worker",
        WaitReason::ReadBack => "a read-back of the last attempt, whose outcome is not known",
        WaitReason::Record => "another effect for the same record, whose outcome is open",
        WaitReason::Delay => "the due time of its next step",
        WaitReason::Budget => {
            let target = format!("destination:{destination}");
            let message = format!("the calls that are left in the budget of {target} are reserved for live traffic");
            return WaitView { target: Some(target), ..plain("budget", &message) };
        }
        WaitReason::Throttled => {
            let target = format!("destination:{destination}");
            let message = format!("{target} asked callers to wait");
            return WaitView { target: Some(target), ..plain("retry-after", &message) };
        }
    };
    plain(reason.as_str(), message)
}
