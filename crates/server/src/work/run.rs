//! One run of one job: what it has come to, and how that is written down.

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_domain::job::{EffectKey, EffectState, JobState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::progress::{JobNext, Seen, Standing, effect_after, run_seed};
use sluice_domain::random::Random;
use sluice_domain::settle::{Next, Verdict};
use sluice_domain::template::Scope;
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use sluice_domain::worker::Worker;
use sluice_ledger::{AttemptSettlement, EffectSettlement, EventBody, EventRecord, JobRecord, Settlement};

use super::{Context, Finished, Live, Order, Place};

/// How long to wait before a settlement is tried again on a full disk.
const DISK_FULL_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// One run of one job.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub context: &'a Context,
    pub job: JobRecord,
    pub event: Arc<EventRecord>,
    pub body: Arc<EventBody>,
    pub destination: Arc<str>,
    pub dead_letter_queue: Option<String>,
    /// Outputs of steps that are done, for the result.
    pub outputs: Map<String, Value>,
    pub worker: Option<Arc<Worker>>,
    pub random: Random,
}

/// What was tried in a run.
#[derive(Debug)]
pub(super) struct Tried {
    /// The step's name.
    pub step_id: Arc<str>,
    /// The effect's name for ever.
    pub key: EffectKey,
    /// How it ended, for the record.
    pub attempt: AttemptSettlement,
    /// Reads that did not find the effect since the last attempt, and reads in all.
    pub reads: (u32, u32),
    /// Whether anybody saw how it ended.
    pub seen: Seen,
    /// Attempts at this step, this one included if it counts.
    pub attempts: u32,
    /// What was learned of the destination.
    pub verdict: Verdict,
}

impl<'a> Run<'a> {
    pub fn new(context: &'a Context, order: Order) -> Run<'a> {
        let seed = run_seed(order.job.id, order.job.tries, order.event.received_at);
        Run {
            context,
            job: order.job,
            event: order.event,
            body: order.body,
            destination: order.destination,
            dead_letter_queue: None,
            outputs: Map::new(),
            worker: None,
            random: Random::seeded(seed),
        }
    }

    /// Makes the outputs of finished steps visible to the ones that follow.
    pub async fn add_outputs(&mut self, scope: &mut Scope) -> Result<(), sluice_ledger::Error> {
        for effect in self.context.ledger.effects(self.job.id).await? {
            if effect.state == EffectState::Applied {
                let output = effect.result.unwrap_or(Value::Null);
                scope.set_step_output(&effect.step_id, output.clone());
                self.outputs.insert(effect.step_id, output);
            }
        }
        Ok(())
    }

    /// Why the job is too old for its queue, if it is. One that a person replayed is never too old.
    pub fn expired(&self, live: &Live) -> Option<Failure> {
        let queue = live.config.queues.get(&*self.job.queue)?;
        let waited = self.context.clock.wall().since(self.job.created_at);
        (self.job.replays == 0 && waited > queue.retention).then(|| {
            let (waited, kept) = (format_duration(waited), format_duration(queue.retention));
            let message = format!("waited {waited}; the queue `{}` keeps jobs for {kept}", queue.name);
            Failure::new(FailureClass::Expired, "expired", message)
        })
    }

    /// Nothing was tried: the job ends, or cannot go on.
    pub async fn end_untried(self, next: Next) -> Result<Option<Finished>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let next = self.standing(self.job.attempts, at).after(next);
        self.write(next, None, None, None, at).await
    }

    /// Every step is done or was passed over.
    pub async fn complete(self) -> Result<Option<Finished>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let next = self.standing(0, at).complete();
        self.write(next, None, None, None, at).await
    }

    /// The next step goes to another destination than the one whose slot was taken. Only memory changes: should the
    /// process die, the steps that were passed over are passed over again.
    pub fn hand_back(self) -> Finished {
        let place = self.place();
        Finished { job: self.job, verdict: None, place }
    }

    fn place(&self) -> Option<Place> {
        self.worker.as_ref().and_then(|worker| Place::of(worker, self.job.step))
    }

    /// Something was tried.
    pub async fn end(mut self, next: Next, tried: Tried) -> Result<Option<Finished>, sluice_ledger::Error> {
        let at = self.context.clock.wall();
        let (state, result) = effect_after(&next, tried.seen);
        if let (EffectState::Applied, Some(result)) = (state, &result) {
            self.outputs.insert(tried.step_id.to_string(), result.clone());
            self.context.metrics.effect(&self.destination, at.since(self.event.received_at));
        }
        let (absent_reads, reads) = tried.reads;
        let effect = EffectSettlement { key: tried.key, step: self.job.step, state, result, absent_reads, reads };
        let next = self.standing(tried.attempts, at).after(next);
        self.write(next, Some(effect), Some(tried.attempt), Some(tried.verdict), at).await
    }

    fn standing(&self, attempts: u32, at: Time) -> Standing<'_> {
        Standing {
            step: self.job.step,
            steps: self.worker.as_ref().map_or(0, |worker| u32::try_from(worker.steps.len()).unwrap_or(u32::MAX)),
            attempts,
            dead_letter_queue: self.dead_letter_queue.as_deref(),
            outputs: &self.outputs,
            at,
        }
    }

    async fn write(
        mut self,
        next: JobNext,
        effect: Option<EffectSettlement>,
        attempt: Option<AttemptSettlement>,
        verdict: Option<Verdict>,
        at: Time,
    ) -> Result<Option<Finished>, sluice_ledger::Error> {
        self.report(&next);
        let job = &mut self.job;
        (job.state, job.step, job.attempts, job.due_at) = (next.state, next.step, next.attempts, next.due_at);
        (job.verifying, job.updated_at) = (next.verifying, at);
        let settlement = Settlement { job: job.id, n: job.tries, effect, attempt, next, at };
        loop {
            match self.context.ledger.settle(settlement.clone()).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::warn!(job = %self.job.id, "the job has moved on without this attempt");
                    return Ok(None);
                }
                // What was done must not be forgotten: the lane waits until there is room to write it down.
                Err(sluice_ledger::Error::DiskFull) => tokio::time::sleep(DISK_FULL_PAUSE).await,
                Err(other) => return Err(other),
            }
        }
        let place = self.place();
        Ok(Some(Finished { job: self.job, verdict, place }))
    }

    fn report(&self, next: &JobNext) {
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
