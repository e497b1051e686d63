//! Runs of a simulated node: performs the commands of the production state machine on the models.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::ops::{ChargeResult, DecideApproval};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome, Readback};
use sluice_domain::record::JobRecord;
use sluice_domain::retry::Jitter;
use sluice_domain::run::{
    CallBatch, Command, DeadLetters, Input, JobRun, LoadedJob, RECORD_AFTER, Recording, Requeue, RunConfig, RunContext,
    RunResult, Settle, StepCall,
};
use sluice_ledger::{NewEvent, Replay};

use super::coverage::Fault;
use super::destinations::{Answer, LAG_MS_MAX, Look};
use super::gates::SimSlot;
use super::invariants::Invariant;
use super::node::{Waiter, slot_of};
use super::ops::{SimOp, SimReply};
use super::plan::SimPlan;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// A run under way.
#[derive(Debug)]
pub(super) struct SimRun {
    pub slot: SimSlot,
    /// `None` once the run has panicked: the job is loaded again.
    run: Option<Box<JobRun>>,
    /// The command that the run waits for, where the model has to remember it.
    pending: Pending,
    /// How the run ended.
    pub result: Option<RunResult>,
    /// How long the destination asked every caller to wait.
    pub asked_ms: Option<i64>,
    pub unauthorized: bool,
    /// The run only settles an interrupted attempt: it takes no slot.
    pub recovering: bool,
}

#[derive(Debug)]
enum Pending {
    Nothing,
    Call { call: Box<StepCall>, answer: Answer, recorded: bool, begin: Option<Box<sluice_domain::ops::Begin>> },
    ReadBack(Look),
    Settle(Box<Settle>),
    Requeue,
}

impl Simulation {
    /// The inputs of a run at this moment.
    pub(super) fn run_context(&self, worker: &str) -> RunContext {
        let at = self.ledger_time();
        let (now, term, safe_mode_until) = match &self.node {
            Some(node) => (node.steady(self.now), node.term, node.safe_modes.until(worker, at)),
            None => (at, Default::default(), None),
        };
        RunContext { now, at, wall: self.wall(), term, safe_mode_until, record_first: false }
    }

    fn run_config(&self, revision: &str) -> RunConfig {
        let pinned = self.plan.revision(revision).map(|revision| revision.run.clone());
        RunConfig { pinned, active: self.plan.active().run.clone() }
    }

    /// The scheduler has taken a slot for this job.
    pub(super) fn start_run(&mut self, id: JobId) {
        let Some(job) = self.node.as_ref().and_then(|node| node.cache.get(&id).cloned()) else { return };
        self.trace.note(self.now, "run", About::Job(id), u64::from(job.attempts_total));
        let slot = slot_of(&job, &self.plan);
        if job.state == JobState::Running {
            return self.recover(job, slot);
        }
        self.checker.started(self.now, slot);
        self.start(job, slot);
    }

    /// Settles an attempt that nobody saw the end of.
    fn recover(&mut self, job: JobRecord, slot: SimSlot) {
        if !self.crashes_at(Fault::CrashInRecovery) {
            self.start(job, slot);
        }
    }

    fn start(&mut self, job: JobRecord, slot: SimSlot) {
        let (id, worker, destination) = (job.id, job.worker.clone(), job.destination.clone());
        let recovering = job.state == JobState::Running;
        self.check_safe_mode(id, &worker);
        let Some(loaded) = self.store.load_jobs(&[id], usize::MAX).pop() else { return };
        // Memory has the job as the node knows it; its event and effects are read for the run.
        let loaded = LoadedJob { job, ..loaded };
        let config = self.run_config(&loaded.job.revision);
        let (run, command) = JobRun::start(loaded, destination, config, self.run_context(&worker));
        let run = SimRun {
            slot,
            run: Some(run),
            pending: Pending::Nothing,
            result: None,
            asked_ms: None,
            unauthorized: false,
            recovering,
        };
        self.drive(run, command);
    }

    /// Performs commands until one has to wait for the writer, a destination or the end.
    fn drive(&mut self, mut sim: SimRun, mut command: Command) {
        loop {
            let input = match command {
                Command::ReadContactFacts { contact, channel, purposes } => {
                    Input::ContactFacts(self.store.contact_facts(contact, &channel, &purposes))
                }
                Command::ReadContact { seq, slot } => {
                    Input::Contact(self.store.contact_of_event(seq, slot).map(Box::new))
                }
                Command::ReadCapUsed(cap) => Input::CapUsed(self.store.cap_used(&cap, self.ledger_time())),
                Command::ReadMessages(jobs) => Input::Messages(self.messages(&jobs)),
                Command::PullDeadLetters { queue, limit, replays_max } => {
                    Input::DeadLetters(DeadLetters::Found(self.dead_letters(&queue, limit, replays_max)))
                }
                Command::ReadJobIn { job, queue } => {
                    let job = self.store.job(job).filter(|job| *job.queue == *queue);
                    Input::JobIn(job.map(|job| job.state))
                }
                other => return self.perform_write(sim, other),
            };
            let Some(run) = &mut sim.run else { return };
            let worker = run.job().worker.clone();
            let context = self.run_context(&worker);
            let Some(run) = &mut sim.run else { return };
            command = run.step(context, input);
        }
    }

    fn perform_write(&mut self, mut sim: SimRun, command: Command) {
        let op = match command {
            Command::Call(batch) => return self.call(sim, batch),
            Command::ReadBack(call) => return self.read_back(sim, &call),
            Command::Finish(result) => {
                sim.result = Some(*result);
                return self.plan_finished(sim);
            }
            Command::Begin { begin, caps } => SimOp::Begin(begin, caps),
            Command::Settle(settle) => {
                sim.pending = Pending::Settle(settle.clone());
                SimOp::Settle(settle)
            }
            Command::RecordStep(result) => SimOp::RecordStep(result),
            Command::SetMark(mark) => SimOp::SetMark(mark),
            Command::SetConsent(consent) => SimOp::SetConsent(consent),
            Command::RequestApproval(request) => SimOp::RequestApproval(request),
            Command::ExpireApproval(decide) => SimOp::Decide(*decide),
            Command::Skip(skip) => SimOp::Skip(skip),
            Command::Accept(event) => {
                // It is about the same entity, which the simulation sets by itself.
                let entity = sim.run.as_ref().map_or(0, |run| run.job().entity);
                SimOp::Accept(Box::new(NewEvent { entity, ..*event }))
            }
            Command::Requeue { job, actor } => {
                sim.pending = Pending::Requeue;
                let (jobs, reason, at) = (vec![job], String::new(), self.ledger_time());
                SimOp::Replay(Replay { jobs, actor, reason, revision: None, at })
            }
            // Reads are performed by `drive`.
            _ => return,
        };
        self.note_op(&op);
        if Mutant::LaneReleasedBeforeCommit.is_on()
            && let SimOp::Settle(settle) = &op
            && !sim.recovering
        {
            return self.release_early(sim, settle.clone());
        }
        let slot = self.keep(sim);
        self.submit(op, Waiter::Run(slot));
    }

    /// A retry must not be due at the very end of its delay: many of them would come back in one instant.
    fn check_spread(&mut self, settle: &Settle) {
        let next = &settle.settlement.next;
        let Some(failure) = &next.failure else { return };
        // After a crash and after an absence, the next attempt is due at once.
        if next.state != JobState::Retrying
            || matches!(failure.code.as_str(), "interrupted" | "verified-absent" | "overwritten")
        {
            return;
        }
        let Some(job) = self.store.job(settle.settlement.job) else { return };
        let policy = &self.plan.active().worker(SimPlan::worker_index(&job.worker)).retry;
        let ceiling = policy.ceiling(next.attempts);
        if policy.jitter != Jitter::None && !ceiling.is_zero() {
            let delay = next.due_at.since(self.run_context(&job.worker).now);
            let about = About::Job(job.id);
            self.checker.retry_delay(self.now, about, delay.as_millis(), ceiling.as_millis());
        }
    }

    /// A destination that asks callers to wait costs no attempt.
    fn check_wait(&mut self, settle: &Settle) {
        let (id, next) = (settle.settlement.job, &settle.settlement.next);
        let waits = settle.settlement.attempt.as_ref().is_some_and(|attempt| attempt.outcome == "wait");
        let before = self.store.job(id).filter(|job| job.step == next.step).map(|job| job.attempts);
        if waits && before.is_some_and(|before| next.attempts > before) {
            let detail = || "waiting cost an attempt".to_owned();
            self.checker.fail(self.now, Invariant::WaitingIsFree, About::Job(id), detail);
        }
    }

    /// What a run asks for, counted.
    fn note_op(&mut self, op: &SimOp) {
        if let SimOp::Settle(settle) = op {
            self.check_spread(settle);
            self.check_wait(settle);
        }
        let fault = match op {
            SimOp::Decide(DecideApproval { .. }) => Fault::ApprovalExpired,
            SimOp::Settle(settle) if settle.begin.is_some() => Fault::RecordedWithOutcome,
            SimOp::Settle(settle) => match &settle.settlement.next {
                next if next.failure.as_ref().is_some_and(|failure| failure.code == "safe-mode") => {
                    Fault::SafeModeHolds
                }
                next if next.failure.as_ref().is_some_and(|failure| failure.code == "policy-wait") => Fault::QuietHours,
                next if next.failure.as_ref().is_some_and(|failure| failure.code == "expired") => Fault::Expired,
                next if next.state == JobState::Waiting && next.failure.is_none() => Fault::ItemPaced,
                _ => return,
            },
            SimOp::Skip(_) => Fault::PolicyRefused,
            SimOp::Replay(_) => Fault::Swept,
            _ => return,
        };
        self.coverage.fault(fault);
    }

    /// A mistake: the scheduler is told before the end of the run is durable.
    fn release_early(&mut self, mut sim: SimRun, settle: Box<Settle>) {
        self.submit(SimOp::Settle(settle), Waiter::Nobody);
        let Some(mut run) = sim.run.take() else { return };
        let context = self.run_context(&run.job().worker.clone());
        if let Command::Finish(result) = run.step(context, Input::Settled(ChargeResult::Settled)) {
            sim.result = Some(*result);
            self.plan_finished(sim);
        }
    }

    pub(super) fn keep(&mut self, run: SimRun) -> u32 {
        self.node.as_mut().map_or(0, |node| node.keep_run(run))
    }

    fn take_run(&mut self, slot: u32) -> Option<SimRun> {
        self.node.as_mut()?.take_run(slot)
    }

    fn plan_finished(&mut self, sim: SimRun) {
        let epoch = self.epoch;
        let run = self.keep(sim);
        self.plan_in(0, SimEvent::Finished { epoch, run });
    }

    /// Continues a run with the answer to its command.
    fn resume(&mut self, mut sim: SimRun, input: Input) {
        let Some(mut run) = sim.run.take() else { return };
        let worker = run.job().worker.clone();
        let command = run.step(self.run_context(&worker), input);
        sim.run = Some(run);
        self.drive(sim, command);
    }

    /// The writer has replied to a run; `None` if the disk was full.
    pub(super) fn replied_to_run(&mut self, slot: u32, reply: Option<SimReply>) {
        let Some(mut sim) = self.take_run(slot) else { return };
        let pending = std::mem::replace(&mut sim.pending, Pending::Nothing);
        let input = match (reply, pending) {
            // What was done must not be forgotten: the job keeps its lane until there is room to write it.
            (None, Pending::Settle(settle)) => {
                sim.pending = Pending::Settle(settle);
                let epoch = self.epoch;
                let run = self.keep(sim);
                return self.plan_in(1_000, SimEvent::SettleAgain { epoch, run });
            }
            (None, _) => return self.lose(sim),
            (Some(SimReply::Settled(result)), Pending::Settle(_)) => Input::Settled(result),
            (Some(SimReply::Jobs(jobs)), Pending::Requeue) => {
                let any = !jobs.is_empty();
                self.requeued(jobs);
                Input::Requeued(Requeue::Requeued(any))
            }
            (Some(reply), _) => match self.input_of(reply) {
                Some(input) => input,
                None => return,
            },
        };
        let crash = match &input {
            Input::Begun(_) => Some(Fault::CrashAfterIntent),
            Input::Marked(_) => Some(Fault::CrashAfterMark),
            _ => None,
        };
        if crash.is_some_and(|fault| self.crashes_at(fault)) {
            return;
        }
        self.resume(sim, input);
    }

    fn input_of(&mut self, reply: SimReply) -> Option<Input> {
        Some(match reply {
            SimReply::Begun(begun) => Input::Begun(begun),
            SimReply::Recorded(result) => Input::Recorded(result),
            SimReply::Marked(marked) => Input::Marked(marked),
            SimReply::Skipped(skipped) => Input::Skipped(skipped),
            SimReply::Approval(approval) => {
                if let Some(approval) = &approval {
                    self.coverage.fault(Fault::Asked);
                    self.check_answer(approval.id);
                }
                Input::Approval(approval)
            }
            SimReply::Decided(decided) => {
                let id = decided.first().map(|(id, _)| *id)?;
                self.check_answer(id);
                Input::Approval(self.store.approval(id).map(Box::new))
            }
            SimReply::Accepted(acceptance) => match acceptance {
                sluice_ledger::Acceptance::Accepted(accepted) => Input::Accepted { id: accepted.id, new: true },
                sluice_ledger::Acceptance::Duplicate(first) => Input::Accepted { id: first.id, new: false },
                // A step brings no proof of a sender.
                sluice_ledger::Acceptance::ProofUsed => return None,
            },
            SimReply::Done => Input::Done,
            SimReply::Settled(_) | SimReply::Jobs(_) | SimReply::Pruned(_) => return None,
        })
    }

    /// A settlement is submitted again.
    pub(super) fn settle_again(&mut self, slot: u32) {
        let Some(sim) = self.take_run(slot) else { return };
        if let Pending::Settle(settle) = &sim.pending {
            let op = SimOp::Settle(settle.clone());
            let slot = self.keep(sim);
            self.submit(op, Waiter::Run(slot));
        }
    }

    /// The run is lost: the job is loaded again.
    fn lose(&mut self, mut sim: SimRun) {
        sim.result = Some(RunResult::Reload);
        sim.run = None;
        self.plan_finished(sim);
    }

    /// Calls a destination.
    fn call(&mut self, mut sim: SimRun, batch: CallBatch) {
        let (Some(call), Some(recording)) = (batch.calls.into_iter().next(), batch.recording.into_iter().next()) else {
            return;
        };
        let label = call.label.clone();
        let Some(facts) = self.plan.facts(&label).cloned() else { return };
        let n = sim.run.as_ref().map_or(0, |run| run.job().attempts_total);
        let begin = match recording {
            Recording::Done => None,
            Recording::Before(begin) => {
                self.submit(SimOp::Begin(begin, vec![]), Waiter::Nobody);
                None
            }
            Recording::IfSlow(begin) => Some(begin),
        };
        self.look_at_call(&call, n, &label);
        let sent = self.destinations.0[facts.destination].call(self.now, &self.rates, &mut self.random);
        self.trace.note(self.now, "call", About::Job(call.job), u64::from(n) << 8);
        if let Some(fault) = sent.fault {
            self.coverage.fault(fault);
            self.trace.say(self.now, About::Job(call.job), || fault.as_str().to_owned());
        }
        if facts.class == EffectClass::Natural {
            self.write_called(call.job, &label);
        }
        if sent.applied {
            let shown = self.checker.job(call.job).effect(&label).shown;
            if self.destinations.0[facts.destination].apply(facts.class, call.effect_key, shown) {
                let visible_at = self.now + self.random.below(LAG_MS_MAX) as i64;
                self.applied(call.job, &label, visible_at);
            }
            self.record_written(call.job, &label);
            if call.with.get("fields").is_some() {
                self.checker.people.apply(&call);
            }
        }
        let (epoch, slow) = (self.epoch, sent.after_ms > RECORD_AFTER.as_millis() as i64);
        let record_later = begin.is_some() && slow;
        let recorded = begin.is_none() || slow;
        sim.pending = Pending::Call { call: Box::new(call), answer: sent.answer, recorded, begin };
        let run = self.keep(sim);
        if record_later {
            self.plan_in(RECORD_AFTER.as_millis() as i64, SimEvent::RecordSlow { epoch, run });
        }
        self.plan_in(sent.after_ms, SimEvent::Answered { epoch, run });
        self.crashes_at(Fault::CrashAfterSend);
    }

    /// A call takes longer than an intent may stay unrecorded.
    pub(super) fn record_slow(&mut self, slot: u32) {
        let run = self.node.as_mut().and_then(|node| node.runs.get_mut(slot as usize)?.as_mut());
        if let Some(SimRun { pending: Pending::Call { begin, .. }, .. }) = run
            && let Some(begin) = begin.take()
        {
            self.submit(SimOp::Begin(begin, vec![]), Waiter::Nobody);
        }
    }

    fn read_back(&mut self, mut sim: SimRun, call: &StepCall) {
        let Some(facts) = self.plan.facts(&call.label).cloned() else { return };
        let seen = self.checker.job(call.job).effect(&call.label);
        let visible_at = match facts.class {
            EffectClass::Natural => self.record_is_of(call.job, &call.label).then_some(self.now),
            _ => (seen.shown > 0).then_some(seen.visible_at),
        };
        let destination = &self.destinations.0[facts.destination];
        let (look, fault) = destination.look(self.now, visible_at, &self.rates, &mut self.random);
        if let Some(fault) = fault {
            self.happened(fault);
            self.checker.job(call.job).effect(&call.label).denied |= fault == Fault::ReadLies;
        }
        sim.pending = Pending::ReadBack(look);
        let (epoch, ms) = (self.epoch, 5 + self.some_ms(200));
        let run = self.keep(sim);
        self.plan_in(ms, SimEvent::Answered { epoch, run });
    }

    /// A call or a read-back has ended.
    pub(super) fn answered(&mut self, slot: u32) {
        if self.crashes_at(Fault::CrashAfterAnswer) {
            return;
        }
        let Some(mut sim) = self.take_run(slot) else { return };
        match std::mem::replace(&mut sim.pending, Pending::Nothing) {
            Pending::Call { answer: Answer::Panicked, .. } => self.lose(sim),
            Pending::Call { call, answer, recorded, .. } => {
                let class = self.plan.facts(&call.label).map_or(EffectClass::Natural, |facts| facts.class);
                sim.unauthorized = answer == Answer::Unauthorized;
                sim.asked_ms = self.asked_ms(&sim, answer);
                self.resume(sim, Input::Called { outcome: outcome_of(answer, class), recorded });
            }
            Pending::ReadBack(look) => self.resume(sim, Input::ReadBack(readback_of(look))),
            _ => {}
        }
    }

    fn asked_ms(&self, sim: &SimRun, answer: Answer) -> Option<i64> {
        let Answer::Throttled(Some(seconds)) = answer else { return None };
        let run = sim.run.as_ref()?;
        let policy = run.worker()?.retry_for(run.job().step);
        Some(Duration::from_secs(u64::from(seconds)).min(policy.retry_after_cap).as_millis() as i64)
    }

    /// Dead letters of a queue, as `queue_pull` finds them.
    fn dead_letters(&self, queue: &str, limit: usize, replays_max: u32) -> Vec<JobId> {
        let dead = self.store.jobs().filter(|job| {
            job.state == JobState::Dead && job.dead_letter_queue.as_deref() == Some(queue) && job.replays < replays_max
        });
        dead.take(limit).map(|job| job.id).collect()
    }

    fn messages(&self, jobs: &[JobId]) -> Value {
        let known = jobs.iter().filter(|id| self.store.job(**id).is_some());
        json!({ "messages": known.map(|id| json!({ "job": id })).collect::<Vec<_>>() })
    }
}

fn readback_of(look: Look) -> Readback {
    match look {
        Look::Present => Readback::Present(Value::Bool(true)),
        Look::Absent => Readback::Absent,
        Look::Unreadable => Readback::Unreadable(Failure::new(FailureClass::Retryable, "connect", "it cannot be read")),
    }
}

fn outcome_of(answer: Answer, class: EffectClass) -> Outcome {
    let failure = |class, code| Failure::new(class, code, "simulated");
    let retry = |code| Outcome::Retry { failure: failure(FailureClass::Retryable, code), after: None };
    let unsure = |code| Outcome::Unsure { failure: failure(FailureClass::Retryable, code) };
    match answer {
        Answer::Done => Outcome::Done { result: Value::Bool(true) },
        Answer::Noop => Outcome::Noop { reason: "nothing to do".into() },
        Answer::Refused => retry("connect"),
        Answer::Away => retry("503"),
        Answer::Throttled(seconds) => Outcome::Wait {
            failure: failure(FailureClass::Retryable, "429"),
            after: seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
        },
        Answer::ServerError if class == EffectClass::Natural => retry("500"),
        Answer::ServerError => unsure("500"),
        Answer::Cut => unsure("cut"),
        Answer::TimedOut | Answer::Panicked => unsure("timeout"),
        Answer::Conflict => Outcome::Retry { failure: failure(FailureClass::Conflict, "409"), after: None },
        Answer::Rejected => Outcome::Reject { failure: failure(FailureClass::Permanent, "422") },
        Answer::Unauthorized => Outcome::Reject { failure: failure(FailureClass::Auth, "401") },
    }
}
