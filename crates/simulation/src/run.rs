//! One run of one job, as a node's work room does it: the decisions are the same functions.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::job::{EffectKey, JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::random::Random;
use sluice_domain::settle::{DestinationHealth, NextAction};
use sluice_domain::time::Time;
use sluice_domain::transition::{JobUpdate, must_verify, run_seed};
use sluice_ledger::memory::{Op, Reply};
use sluice_ledger::{AttemptSettlement, Begin, EffectSettlement, GuardOp, JobRecord, Settlement};

use super::coverage::Fault;
use super::destinations::{Answer, LAG_MS_MAX, Look};
use super::gates::SimSlot;
use super::internal_steps::Turned;
use super::job::{Job, SimPlace};
use super::node::{Waiter, slot};
use super::plan::{RETENTION, StepPlan, WorkerPlan, is_passed_over};
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// A run under way.
#[derive(Debug)]
pub(super) struct SimRun {
    pub job: Job,
    pub slot: SimSlot,
    /// How it ended, once that is durable; `None` if the ledger knows otherwise.
    pub end: Option<End>,
    /// For how long the destination asked everybody to wait.
    pub asked_ms: Option<i64>,
    pub unauthorized: bool,
    pub key: EffectKey,
    /// Which item of its step, if there are any.
    pub item: usize,
    /// Whether it has set the mark, once it has tried to.
    pub marked: Option<bool>,
    /// What a person is asked, and has said.
    pub question: Option<EffectKey>,
    pub approved: Option<bool>,
    pub random: Random,
    pub started_at: Time,
    came: Came,
    settlement: Option<Box<Settlement>>,
    pub verdict: Option<DestinationHealth>,
}

/// What came of the attempt.
#[derive(Clone, Copy, Debug)]
enum Came {
    Nothing,
    Call(Answer),
    Read(Look),
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub verdict: Option<DestinationHealth>,
    pub place: Option<SimPlace>,
}

impl Simulation {
    pub(super) fn worker_plan(&self, run: &SimRun) -> &WorkerPlan {
        &self.plan.revisions[run.job.revision].workers[run.slot.worker]
    }

    fn run(&mut self, slot: u32) -> Option<&mut SimRun> {
        self.node.as_mut()?.runs.get_mut(slot as usize)?.as_mut()
    }

    /// Where the job's next step goes; `None` behind its last one.
    pub(super) fn place_of(&self, run: &SimRun) -> Option<SimPlace> {
        let step = self.worker_plan(run).steps.get(run.job.step as usize)?;
        Some(SimPlace { destination: Some(step.destination), order: step.order })
    }

    /// The scheduler has taken a slot for this job.
    pub(super) fn start_run(&mut self, id: JobId) {
        let Some((job, place)) = self.node.as_ref().and_then(|node| node.held.get(&id)) else { return };
        let (job, place) = (*job, *place);
        let slot = slot(&job, place);
        self.trace.note(self.now, "run", About::Job(id), u64::from(job.tries));
        self.checker.started(self.now, slot);
        let Some(event) = self.store.event_head(job.seq) else { return };
        let run = SimRun {
            slot,
            end: None,
            asked_ms: None,
            unauthorized: false,
            key: EffectKey([0; 16]),
            item: 0,
            marked: None,
            question: None,
            approved: None,
            random: Random::seeded(run_seed(job.id, job.tries, event.received_at)),
            started_at: self.wall(),
            came: Came::Nothing,
            settlement: None,
            verdict: None,
            job,
        };
        if let Some(failure) = self.why_not(&run) {
            return self.end_untried(run, NextAction::Die { failure });
        }
        self.go_on(run);
    }

    /// From the step where the job stands to the next one that reaches out.
    pub(super) fn go_on(&mut self, mut run: SimRun) {
        let Some(event) = self.store.event_head(run.job.seq).map(|event| event.id) else { return };
        let (entity, worker) = (run.job.entity, run.slot.worker);
        loop {
            let Some(step) = self.worker_plan(&run).steps.get(run.job.step as usize) else {
                return self.complete(run);
            };
            if is_passed_over(entity, worker, step) {
                (run.job.step, run.job.attempts) = (run.job.step + 1, 0);
                continue;
            }
            if Some(step.destination) != run.slot.destination {
                // The slot that was taken is another destination's.
                run.end = Some(End { verdict: None, place: self.place_of(&run) });
                return self.plan_finished(run);
            }
            let step = step.clone();
            let (name, replays) = (self.plan.current().workers[worker].name.clone(), run.job.replays);
            let key = |label: &str| match replays {
                1.. if Mutant::ReplayWithNewKeys.is_on() => EffectKey::new(event, &name, &format!("{label}{replays}")),
                _ => EffectKey::new(event, &name, label),
            };
            run.item = match self.turn(&run, &step, key) {
                Turned::Do(item) => item,
                Turned::NotYet(due) => return self.paced(run, due),
                Turned::Pass => {
                    (run.job.step, run.job.attempts) = (run.job.step + 1, 0);
                    continue;
                }
            };
            run.key = key(&step.labels[run.item]);
            let begun = self.store.effect_states(run.job.id).any(|effect| effect.key == run.key);
            if step.marked && !begun {
                match run.marked {
                    None => return self.mark(run, key("once")),
                    Some(true) => {}
                    Some(false) => {
                        (run.job.step, run.job.attempts, run.marked) = (run.job.step + 1, 0, None);
                        continue;
                    }
                }
            }
            if step.asks_about(entity) && !begun && run.approved.is_none() {
                return self.ask(run, key("ask"));
            }
            return self.attempt(run, &step);
        }
    }

    fn why_not(&mut self, run: &SimRun) -> Option<Failure> {
        if run.job.replays == 0 && self.wall().since(run.job.created_at) > RETENTION {
            return Some(Failure::new(FailureClass::Expired, "expired", "waited for too long"));
        }
        if run.job.tries == 0 && self.random.chance(self.weather.unprepared) {
            self.happened(Fault::StepUnprepared);
            return Some(Failure::new(FailureClass::Mapping, "with", "a field is missing"));
        }
        None
    }

    pub(super) fn keep(&mut self, run: SimRun) -> u32 {
        self.node.as_mut().map_or(0, |node| node.keep_run(run))
    }

    pub(super) fn plan_finished(&mut self, run: SimRun) {
        let epoch = self.epoch;
        let run = self.keep(run);
        self.plan_in(0, SimEvent::Finished { epoch, run });
    }

    fn attempt(&mut self, mut run: SimRun, step: &StepPlan) {
        let epoch = self.epoch;
        let verifying = match run.job.replays {
            0 => run.job.verifying,
            _ => {
                let mut effects = self.store.effect_states(run.job.id);
                must_verify(step.class, effects.find(|effect| effect.key == run.key).map(|effect| effect.state))
            }
        };
        if verifying {
            let identity = step.identity + run.item;
            let sight = self.checker.job(run.job.id).effects[identity];
            let visible_at = (sight.shown > 0).then_some(sight.visible_at);
            let destination = &self.destinations.0[step.destination];
            let (look, fault) = destination.look(self.now, visible_at, &self.weather, &mut self.random);
            if let Some(fault) = fault {
                self.happened(fault);
                self.checker.job(run.job.id).effects[identity].denied |= fault == Fault::ReadLies;
            }
            run.came = Came::Read(look);
            let ms = 5 + self.some_ms(200);
            let run = self.keep(run);
            self.plan_in(ms, SimEvent::Answered { epoch, run });
            return;
        }
        if let Some(until) = self.held_until(&run) {
            self.coverage.fault(Fault::SafeModeHolds);
            return self.put_off(run, until);
        }
        self.check_safe_mode(&run.job);
        let caps = self.caps(&run, step);
        run.job.tries += 1;
        let begin = Begin {
            job: run.job.id,
            n: run.job.tries,
            step: run.job.step,
            step_id: step.labels[run.item].clone(),
            key: run.key,
            class: step.class,
            action: "simulated",
            destination: self.plan.destinations[step.destination].clone(),
            at: run.started_at,
        };
        let waits = step.class.waits_for_intent(run.job.replays) && !Mutant::EffectMarkedAfterInsteadOfBefore.is_on();
        let run = self.keep(run);
        if !caps.is_empty() {
            self.submit(Op::Guard(GuardOp::BeginWithin(Box::new(begin), caps)), Waiter::Begin(run));
        } else if waits {
            self.submit(Op::Begin(begin), Waiter::Begin(run));
        } else {
            self.submit(Op::Begin(begin), Waiter::Nobody);
            self.call(run);
        }
    }

    /// The writer has answered a begin.
    pub(super) fn begun(&mut self, slot: u32, reply: Option<Reply>) {
        match reply {
            Some(Reply::Guard(reply)) => self.begun_within(slot, reply),
            Some(Reply::Begun) => {
                if !self.crashes_at(Fault::CrashAfterIntent) {
                    self.call(slot);
                }
            }
            Some(Reply::AlreadyApplied) => {
                let Some(run) = self.take_run(slot) else { return };
                self.end_untried(run, NextAction::Advance { result: Arc::new(Value::Bool(true)) });
            }
            // No room, or the job has moved on: it is read anew.
            _ => self.lost(slot),
        }
    }

    pub(super) fn take_run(&mut self, slot: u32) -> Option<SimRun> {
        self.node.as_mut()?.take_run(slot)
    }

    /// The bytes leave.
    fn call(&mut self, slot: u32) {
        let Some(run) = self.run(slot) else { return };
        let (id, n, key, place, item) = (run.job.id, run.job.tries, run.key, run.job.step as usize, run.item);
        let (entity, ord) = (run.job.entity, run.job.seq);
        let Some(run) = self.node.as_ref().and_then(|node| node.runs[slot as usize].as_ref()) else { return };
        let step = self.worker_plan(run).steps[place].clone();
        self.look_at_call(id, n, key, &step, item);
        if step.asks_about(entity)
            && let Some(event) = self.store.event_head(ord)
        {
            self.check_approved(id, EffectKey::new(event.id, "notify", "ask").into());
        }
        let sent = self.destinations.0[step.destination].call(self.now, &self.weather, &mut self.random);
        self.trace.note(self.now, "call", About::Job(id), u64::from(n) << 8 | place as u64);
        if let Some(fault) = sent.fault {
            self.coverage.fault(fault);
            self.trace.say(self.now, About::Job(id), || fault.as_str().to_owned());
        }
        if sent.applied {
            let shown = self.checker.job(id).effects[step.identity + item].shown;
            if self.destinations.0[step.destination].apply(step.class, key, shown) {
                let visible_at = self.now + self.random.below(LAG_MS_MAX) as i64;
                self.applied(id, &step, item, visible_at);
            }
        }
        let epoch = self.epoch;
        if let Some(run) = self.run(slot) {
            run.came = Came::Call(sent.answer);
        }
        self.plan_in(sent.after_ms, SimEvent::Answered { epoch, run: slot });
        if sent.fault == Some(Fault::CallSlow) {
            let ms = sent.after_ms + 1 + self.some_ms(5_000);
            self.plan_late_answer(id, n, place as u32, ms);
        }
        self.crashes_at(Fault::CrashAfterSend);
    }

    /// The attempt has ended.
    pub(super) fn answered(&mut self, slot: u32) {
        if self.crashes_at(Fault::CrashAfterAnswer) {
            return;
        }
        let Some(run) = self.take_run(slot) else { return };
        match run.came {
            Came::Call(Answer::Panicked) => self.plan_finished(run),
            Came::Call(answer) => self.settle_call(run, answer),
            Came::Read(look) => self.settle_read(run, look),
            Came::Nothing => {}
        }
    }

    /// The run is lost: its attempt is settled as after a crash. Whatever came of that, the job is read anew.
    pub(super) fn settle_interrupted(&mut self, mut run: SimRun, job: &JobRecord) {
        run.settlement = Some(Box::new(self.interrupted(job)));
        run.came = Came::Call(Answer::Panicked);
        let slot = self.keep(run);
        self.submit_settlement(slot);
    }

    pub(super) fn end_untried(&mut self, run: SimRun, next: NextAction) {
        let outputs = self.outputs_after(&run, &next);
        let next = self.standing(&run, run.job.attempts, &outputs).after(next);
        self.write(run, next, None, None);
    }

    fn complete(&mut self, run: SimRun) {
        let outputs = self.outputs(&run);
        let next = self.standing(&run, 0, &outputs).complete();
        self.write(run, next, None, None);
    }

    pub(super) fn write(
        &mut self,
        mut run: SimRun,
        next: JobUpdate,
        effect: Option<EffectSettlement>,
        attempt: Option<AttemptSettlement>,
    ) {
        let at = self.wall();
        let job = &mut run.job;
        (job.state, job.step, job.attempts, job.due_at) = (next.state, next.step, next.attempts, next.due_at);
        job.verifying = next.verifying;
        run.settlement = Some(Box::new(Settlement { job: job.id, n: job.tries, effect, attempt, next, at }));
        let place = self.place_of(&run);
        run.end = Some(End { verdict: run.verdict, place });
        let slot = self.keep(run);
        self.submit_settlement(slot);
    }

    /// Hands the end of a run to the writer, again if there was no room.
    pub(super) fn submit_settlement(&mut self, slot: u32) {
        let Some(settlement) = self.run(slot).and_then(|run| run.settlement.take()) else { return };
        let op = self.settle_op(settlement);
        if Mutant::LaneReleasedBeforeCommit.is_on() {
            let epoch = self.epoch;
            self.submit(op, Waiter::Nobody);
            self.plan_in(0, SimEvent::Finished { epoch, run: slot });
            return;
        }
        self.submit(op, Waiter::Settle(slot));
    }

    /// There was no room for the end of a run: it is kept until there is.
    pub(super) fn give_back(&mut self, slot: u32, settlement: Box<Settlement>) {
        if let Some(run) = self.run(slot) {
            run.settlement = Some(settlement);
        }
    }

    /// The writer has answered a settlement.
    pub(super) fn settled(&mut self, slot: u32, reply: Option<Reply>) {
        let epoch = self.epoch;
        let Some(run) = self.run(slot) else { return };
        let lost = matches!(run.came, Came::Call(Answer::Panicked));
        match reply {
            // What was done must not be forgotten: the lane waits until there is room to write it down.
            None if !lost => return self.plan_in(1_000, SimEvent::SettleAgain { epoch, run: slot }),
            Some(Reply::Settled) if !lost => {}
            // Its contact has no retry left.
            Some(Reply::Exhausted) if !lost => run.job.state = JobState::Dead,
            // The job has moved on without this attempt, or nobody saw how it ended.
            _ => run.end = None,
        }
        self.plan_in(0, SimEvent::Finished { epoch, run: slot });
    }
}
