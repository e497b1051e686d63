//! One run of one job: what it has come to, and how that is written down.

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_domain::job::{EffectState, JobState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::outputs::Outputs;
use sluice_domain::random::Random;
use sluice_domain::settle::{DestinationHealth, NextAction};
use sluice_domain::time::Time;
use sluice_domain::transition::{AttemptEnd, JobPosition, JobUpdate, effect_after, run_seed};
use sluice_domain::unit::format_duration;
use sluice_domain::worker::Worker;
use sluice_ledger::{
    AttemptSettlement, Begin, ChargeResult, EffectSettlement, EventBody, EventRecord, JobRecord, RetryCharge,
    Settlement,
};

use super::budget::{self, settle};
use super::decide;
use super::job_effects::{EffectEntry, JobEffects, error_output};
use super::next_item::StepItem;
use super::{LoadedRevision, RunInput, RunResult, StepRoute, WorkContext};

/// How long to wait before a settlement is tried again on a full disk.
const DISK_FULL_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// One run of one job.
#[derive(Debug)]
pub(super) struct JobRun<'a> {
    pub context: &'a WorkContext,
    pub job: JobRecord,
    pub event: Arc<EventRecord>,
    pub body: Arc<EventBody>,
    pub destination: Arc<str>,
    pub dead_letter_queue: Option<Arc<str>>,
    /// What the ledger knows of the job's effects.
    pub books: JobEffects,
    /// Outputs of steps that reached out, for the result.
    pub outputs: Outputs,
    /// Outputs of steps inside, for the result of a job that did nothing else.
    pub inside: Map<String, Value>,
    /// Whether the step has more items than the one that was tried.
    pub more_items: bool,
    pub worker: Option<Arc<Worker>>,
    pub random: Random,
    /// An attempt that has ended and is not written down yet.
    pub begun: Option<Begin>,
}

/// What was tried in a run.
#[derive(Debug)]
pub(super) struct AttemptResult {
    /// What it was tried for.
    pub turn: StepItem,
    /// How it ended, for the record.
    pub attempt: AttemptSettlement,
    /// Reads that did not find the effect since the last attempt, and reads in all.
    pub reads: (u32, u32),
    /// Whether anybody saw how it ended.
    pub seen: AttemptEnd,
    /// Attempts at this step, this one included if it counts.
    pub attempts: u32,
    /// What was learned of the destination.
    pub verdict: DestinationHealth,
}

impl<'a> JobRun<'a> {
    pub fn new(context: &'a WorkContext, order: RunInput) -> Box<JobRun<'a>> {
        let seed = run_seed(order.job.id, order.job.attempts_total, order.event.received_at);
        let books = JobEffects::new(order.event.id, &order.job.worker, vec![]);
        Box::new(JobRun {
            context,
            job: order.job,
            event: order.event,
            body: order.body,
            destination: order.destination,
            dead_letter_queue: None,
            books,
            outputs: Outputs::default(),
            inside: Map::new(),
            more_items: false,
            worker: None,
            random: Random::seeded(seed),
            begun: None,
        })
    }

    /// Why the job is too old for its queue, if it is. One that a person replayed is never too old.
    pub fn expired(&self, live: &LoadedRevision) -> Option<Failure> {
        let queue = live.config.queues.get(&*self.job.queue)?;
        let waited = self.context.clock.wall().since(self.job.created_at);
        (self.job.replays == 0 && waited > queue.retention).then(|| {
            let (waited, kept) = (format_duration(waited), format_duration(queue.retention));
            let message = format!("waited {waited}; the queue `{}` keeps jobs for {kept}", queue.name);
            Failure::new(FailureClass::Expired, "expired", message)
        })
    }

    /// Nothing was tried: the job ends, or cannot go on.
    pub async fn end_untried(self: Box<Self>, next: NextAction) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let next = self.decided(next, self.job.attempts, at);
        self.write(next, None, None, None, at).await
    }

    /// Every step is done or was passed over, or everything is undone.
    pub async fn reach_end(self: Box<Self>, worker: &Worker) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        if worker.is_undoing(self.job.step) {
            let next = decide::undone(&self.job, self.standing(self.job.attempts, at));
            return self.write(next, None, None, None, at).await;
        }
        let mut next = self.standing(0, at).complete();
        if next.state == JobState::Noop && !self.inside.is_empty() {
            next.result = Some(Arc::new(Value::Object(self.inside.clone())));
        }
        self.write(next, None, None, None, at).await
    }

    /// A step inside has decided that nothing more is to be done.
    pub async fn end_noop(self: Box<Self>, reason: Value) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let next = self.standing(0, at).end_noop(reason);
        self.write(next, None, None, None, at).await
    }

    /// It is not time yet, by the steady clock.
    pub async fn wait(
        self: Box<Self>,
        due: Time,
        failure: Option<Failure>,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let next = self.standing(self.job.attempts, at).wait(due, failure);
        self.write(next, None, None, None, at).await
    }

    /// It waits, and the ledger knows that already.
    pub fn waits(mut self: Box<Self>, due: Time, failure: Failure) -> RunResult {
        let next = self.standing(self.job.attempts, self.context.clock.wall()).wait(due, Some(failure));
        let job = &mut self.job;
        (job.state, job.step, job.attempts, job.due_at) = (next.state, next.step, next.attempts, next.due_at);
        (job.verifying, job.failure) = (next.verifying, next.failure);
        self.hand_back()
    }

    /// The same by the wall clock.
    pub async fn wait_until(self: Box<Self>, due: Time) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let clock = &self.context.clock;
        let due = clock.now() + due.since(clock.wall());
        self.wait(due, None).await
    }

    /// The next step goes to another destination than the one whose slot was taken. Only memory changes: should the
    /// process die, the steps that were passed over are passed over again.
    pub fn hand_back(self: Box<Self>) -> RunResult {
        let place = self.place();
        RunResult { job: self.job, verdict: None, place }
    }

    fn place(&self) -> Option<StepRoute> {
        self.worker.as_ref().and_then(|worker| StepRoute::of(worker, self.job.step))
    }

    /// Something was tried.
    pub async fn end(
        mut self: Box<Self>,
        next: NextAction,
        tried: AttemptResult,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let (state, mut result) = effect_after(&next, tried.seen);
        let worker = self.worker.clone();
        let step = worker.as_ref().and_then(|worker| worker.step_at(self.job.step));
        if let (NextAction::Die { failure }, Some(worker)) = (&next, &worker)
            && decide::goes_on(worker, self.job.step)
        {
            result = Some(Arc::new(error_output(failure)));
        }
        if state == EffectState::Applied {
            self.context.metrics.effect(&self.destination, at.since(self.event.received_at));
        }
        self.books.put(tried.turn.key, EffectEntry { state, result: result.clone(), last_at: at });
        if let (Some(worker), Some(step)) = (&worker, step) {
            self.remember(worker, step, &tried.turn);
            self.more_items = self.has_more(step, &tried.turn);
        }
        let (absent_reads, reads) = tried.reads;
        let effect = EffectSettlement { key: tried.turn.key, step: self.job.step, state, result, absent_reads, reads };
        let next = self.decided(next, tried.attempts, at);
        self.write(next, Some(effect), Some(tried.attempt), Some(tried.verdict), at).await
    }

    /// Where the job stands after a decision about the step that it stands at.
    pub(super) fn decided(&self, next: NextAction, attempts: u32, at: Time) -> JobUpdate {
        let standing = self.standing(attempts, at);
        match &self.worker {
            Some(worker) => decide::decide(worker, &self.books, &self.job, standing, next),
            None => standing.after(next),
        }
    }

    pub(super) fn standing(&self, attempts: u32, at: Time) -> JobPosition<'_> {
        JobPosition {
            step: self.job.step,
            steps: self.worker.as_ref().map_or(0, |worker| worker.end()),
            more_items: self.more_items,
            attempts,
            dead_letter_queue: self.dead_letter_queue.as_deref(),
            outputs: &self.outputs,
            at,
        }
    }

    pub(super) async fn write(
        mut self: Box<Self>,
        next: JobUpdate,
        effect: Option<EffectSettlement>,
        attempt: Option<AttemptSettlement>,
        verdict: Option<DestinationHealth>,
        at: Time,
    ) -> Result<Option<RunResult>, sluice_ledger::Error> {
        let draw = self.draw(&next, at);
        let settlement = Settlement { job: self.job.id, n: self.job.attempts_total, effect, attempt, next, at };
        let drawn = loop {
            match settle(&self.context.ledger, self.begun.as_ref(), &settlement, draw.as_ref()).await {
                Ok(drawn) => break drawn,
                // What was done must not be forgotten: the lane waits until there is room to write it down.
                Err(sluice_ledger::Error::DiskFull) => tokio::time::sleep(DISK_FULL_PAUSE).await,
                Err(other) => return Err(other),
            }
        };
        let next = match (drawn, draw) {
            (ChargeResult::Stale, _) => {
                tracing::warn!(job = %self.job.id, "the job has moved on without this attempt");
                return Ok(None);
            }
            (ChargeResult::Exhausted, Some(draw)) => {
                self.context.metrics.retry_budget_exhausted(&self.job.worker);
                draw.otherwise
            }
            _ => settlement.next,
        };
        self.report(&next);
        let job = &mut self.job;
        (job.state, job.step, job.attempts, job.due_at) = (next.state, next.step, next.attempts, next.due_at);
        (job.verifying, job.updated_at) = (next.verifying, at);
        (job.failure, job.result) = (next.failure, next.result);
        let place = self.place();
        Ok(Some(RunResult { job: self.job, verdict, place }))
    }

    /// What a retry takes from the budget of the job's contact, and where the job stands if nothing is left of it.
    fn draw(&self, next: &JobUpdate, at: Time) -> Option<RetryCharge> {
        let worker = self.worker.as_ref()?;
        let decided = |next| self.decided(next, self.job.attempts + 1, at);
        budget::draw(worker, self.job.step, next, at, decided)
    }

    fn report(&self, next: &JobUpdate) {
        let failure = next.failure.as_ref();
        if !next.state.is_live() {
            self.context.metrics.job(&self.job.worker, next.state.as_str(), self.job.replays > 0);
        }
        match (next.state, failure) {
            (JobState::Dead | JobState::Unknown, Some(failure)) => {
                let labels = crate::observe::metrics::DeadLabels {
                    worker: self.job.worker.to_string(),
                    class: failure.class.as_str().to_owned(),
                };
                self.context.metrics.dead_letters.get_or_create(&labels).inc();
                tracing::warn!(
                    job = %self.job.id, event = %self.event.id, worker = %self.job.worker, source = %self.event.source,
                    destination = %self.destination, state = %next.state, class = failure.class.as_str(), code = %failure.code,
                    attempts = next.attempts, trace = %self.event.trace, "{}", failure.message
                );
            }
            (state, failure) => tracing::debug!(
                job = %self.job.id, event = %self.event.id, worker = %self.job.worker, destination = %self.destination,
                %state, attempts = next.attempts, trace = %self.event.trace,
                code = failure.map_or("", |failure| &failure.code), "settled"
            ),
        }
    }
}
