//! Runs of a simulated node: performs the commands of the production state machine on the models.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::call_budget::{CallMeter, Traffic};
use sluice_domain::enrich::LookupResult;
use sluice_domain::event::LossCode;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::ops::{ChargeResult, DecideApproval};
use sluice_domain::outcome::{BATCH_REJECTED, Failure};
use sluice_domain::record::{AttemptKind, JobRecord};
use sluice_domain::retry::Jitter;
use sluice_domain::run::{
    Command, DeadLetters, GroupCommand, GroupInput, GroupRun, Input, JobRun, Requeue, RunConfig, RunContext, RunResult,
    Settle,
};
use sluice_domain::time::Time;
use sluice_ledger::{NewEvent, Replay};

use super::calls::SimCall;
use super::coverage::Fault;
use super::destinations::Look;
use super::gates::SimSlot;
use super::invariants::Invariant;
use super::node::{Waiter, slot_of};
use super::ops::{SimOp, SimReply};
use super::plan::SimPlan;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// The run of one job.
#[derive(Debug)]
pub(super) struct SimRun {
    pub slot: SimSlot,
    /// Its group, and its place there.
    pub group: u32,
    member: usize,
    /// The command that the run waits for, where the model has to remember it.
    pub pending: Pending,
    /// What the destination answered to its call.
    pub told: Option<&'static str>,
    /// How the run ended.
    pub result: Option<RunResult>,
    /// How long the destination asked every caller to wait.
    pub asked_ms: Option<i64>,
    pub unauthorized: bool,
    /// The run only settles an interrupted attempt: it takes no slot.
    pub recovering: bool,
}

#[derive(Debug)]
pub(super) enum Pending {
    Nothing,
    /// With what it returns if the effect is there.
    ReadBack(Look, Value),
    /// The budget does not allow the read-back.
    OverBudget(Failure),
    /// There was no room for it on the disk.
    Settle(Box<Settle>),
    Requeue,
}

/// Runs of several jobs with one slot.
#[derive(Debug)]
pub(super) struct SimGroup {
    pub run: GroupRun,
    worker: Arc<str>,
    /// Members that wait for the others or for the answer to their call, by their place.
    pub parked: Vec<Option<Box<SimRun>>>,
    pub call: Option<SimCall>,
    /// Members whose end the scheduler does not know.
    pub left: usize,
    /// What the call says, from the members that have ended.
    pub asked_ms: Option<i64>,
    pub unauthorized: bool,
    /// Calls that the budget allows the slot; `None` without a budget.
    pub meter: Option<CallMeter>,
    /// When the slot was taken, by the true time.
    pub started_at: Time,
    /// Slots are numbered in the order in which they are taken.
    pub slot: u64,
    /// Every job is of a replay.
    pub is_background: bool,
}

impl Simulation {
    /// The inputs of a run at this moment.
    pub(super) fn run_context(&self, worker: &str) -> RunContext {
        let at = self.ledger_time();
        let (now, term, safe_mode_until, at_boot) = match &self.node {
            Some(node) => {
                let at_boot = node.clock.record().scheduled_at_boot;
                (node.steady(self.now), node.term, node.safe_modes.until(worker, at), at_boot)
            }
            None => (at, Default::default(), None, at),
        };
        RunContext { now, at, wall: self.wall(), term, safe_mode_until, record_first: false, at_boot }
    }

    fn run_config(&self, revision: &str) -> RunConfig {
        let pinned = self.plan.revision(revision).map(|revision| revision.run.clone());
        RunConfig { pinned, active: self.plan.active().run.clone() }
    }

    /// The scheduler has taken a slot for these jobs.
    pub(super) fn start_runs(&mut self, ids: &[JobId]) {
        let node = self.node.as_ref();
        let jobs: Vec<JobRecord> = ids.iter().filter_map(|id| node?.cache.get(id).cloned()).collect();
        for job in &jobs {
            self.trace.note(self.now, "run", About::Job(job.id), u64::from(job.attempts_total));
        }
        let recovering = jobs.first().is_some_and(|job| job.state == JobState::Running);
        if recovering {
            // Settles an attempt that nobody saw the end of.
            if !self.crashes_at(Fault::CrashInRecovery) {
                self.start(jobs, true);
            }
            return;
        }
        let slots: Vec<SimSlot> = jobs.iter().map(|job| slot_of(job, &self.plan)).collect();
        self.checker.started(self.now, &slots);
        if jobs.len() > 1 {
            self.coverage.fault(Fault::Batch);
        }
        self.start(jobs, false);
    }

    fn start(&mut self, jobs: Vec<JobRecord>, recovering: bool) {
        let Some(first) = jobs.first() else { return };
        let first_job = Some(first.id).filter(|_| !recovering);
        let is_background = jobs.iter().all(|job| job.traffic() == Traffic::Background);
        let (worker, destination) = (first.worker.clone(), first.destination.clone());
        let Some(group) = self.node.as_mut().map(|node| node.new_group()) else { return };
        let (mut loaded, mut parked) = (vec![], vec![]);
        for (member, job) in jobs.into_iter().enumerate() {
            self.check_safe_mode(job.id, &worker);
            let slot = slot_of(&job, &self.plan);
            let config = self.run_config(&job.revision);
            // Memory has the job as the node knows it; its event and effects are read for the run.
            let Some(read) = self.store.load_known(job) else { return };
            loaded.push((read, config));
            parked.push(Some(Box::new(SimRun {
                slot,
                group,
                member,
                pending: Pending::Nothing,
                told: None,
                result: None,
                asked_ms: None,
                unauthorized: false,
                recovering,
            })));
        }
        let left = parked.len();
        let allowance = first_job.and_then(|job| self.node.as_ref()?.scheduler.allowance(job));
        let meter = allowance.map(|calls| CallMeter::new(Some(calls)));
        let (started_at, slot) = (Time(self.now), self.checker.counted_calls.take_slot());
        let (run, commands) = GroupRun::start(loaded, &destination, self.run_context(&worker));
        let new = SimGroup {
            run,
            worker,
            parked,
            call: None,
            left,
            asked_ms: None,
            unauthorized: false,
            meter,
            started_at,
            slot,
            is_background,
        };
        if let Some(node) = &mut self.node {
            node.groups[group as usize] = Some(new);
        }
        self.drive(group, commands);
    }

    pub(super) fn group_mut(&mut self, group: u32) -> Option<&mut SimGroup> {
        self.node.as_mut()?.groups.get_mut(group as usize)?.as_mut()
    }

    fn member_run(&self, sim: &SimRun) -> Option<&JobRun> {
        let group = self.node.as_ref()?.groups.get(sim.group as usize)?.as_ref()?;
        Some(group.run.member(sim.member))
    }

    pub(super) fn step_group(&mut self, group: u32, input: GroupInput) -> Vec<GroupCommand> {
        let Some(worker) = self.group_mut(group).map(|group| group.worker.clone()) else { return vec![] };
        let context = self.run_context(&worker);
        self.group_mut(group).map_or_else(Vec::new, |group| group.run.step(context, input))
    }

    /// Performs commands until each has to wait for the writer, a destination or the end.
    pub(super) fn drive(&mut self, group: u32, commands: Vec<GroupCommand>) {
        let epoch = self.epoch;
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            if epoch != self.epoch {
                return;
            }
            match command {
                GroupCommand::Call(members, batch) => self.call(group, members, batch),
                GroupCommand::Member(member, command) => match self.read(&command) {
                    Some(input) => commands.extend(self.step_group(group, GroupInput::Member(member, input))),
                    None => {
                        let sim = self.group_mut(group).and_then(|group| group.parked[member].take());
                        if let Some(sim) = sim {
                            self.perform_write(sim, command);
                        }
                    }
                },
            }
        }
    }

    /// The answer to a command that only reads.
    fn read(&mut self, command: &Command) -> Option<Input> {
        Some(match command {
            Command::ReadContactFacts { contact, channel, purposes } => {
                Input::ContactFacts(self.store.contact_facts(*contact, channel, purposes))
            }
            Command::ReadContact { seq, slot } => {
                Input::Contact(self.store.contact_of_event(*seq, *slot).map(Box::new))
            }
            Command::ReadRecord { job, identity } => Input::Record(self.store.remembered_record(*job, identity)),
            Command::ReadCapUsed(cap) => Input::CapUsed(self.store.cap_used(cap, self.ledger_time())),
            Command::ReadMessages(jobs) => Input::Messages(self.messages(jobs)),
            Command::PullDeadLetters { queue, limit, replays_max } => {
                Input::DeadLetters(DeadLetters::Found(self.dead_letters(queue, *limit, *replays_max)))
            }
            Command::ReadJobIn { job, queue } => {
                let job = self.store.job(*job).filter(|job| *job.queue == **queue);
                Input::JobIn(job.map(|job| job.state))
            }
            Command::LookUp(_) => Input::LookedUp(Box::new(self.look_up())),
            _ => return None,
        })
    }

    /// Every lookup finds something else, or fails.
    fn look_up(&mut self) -> LookupResult {
        if self.random.chance(0.2) {
            return LookupResult::failed(LossCode::LookupTimedOut, "no answer");
        }
        LookupResult::Found([("value".to_owned(), json!(self.random.below(1 << 30)))].into_iter().collect())
    }

    fn perform_write(&mut self, mut sim: Box<SimRun>, command: Command) {
        let op = match command {
            Command::ReadBack(call) => return self.read_back(sim, &call),
            Command::Finish(result) => {
                sim.result = Some(*result);
                return self.plan_finished(sim);
            }
            Command::Begin { begin, caps } => SimOp::Begin(begin, caps),
            Command::Settle(settle) => {
                self.check_own_outcome(&sim, &settle);
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
                let entity = self.member_run(&sim).map_or(0, |run| run.job().entity);
                SimOp::Accept(Box::new(NewEvent { entity, ..*event }))
            }
            Command::Requeue { job, actor } => {
                sim.pending = Pending::Requeue;
                let (jobs, reason, at) = (vec![job], String::new(), self.ledger_time());
                SimOp::Replay(Replay { jobs, actor, reason, revision: None, at })
            }
            // Reads and calls are performed by `drive`.
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

    /// What is settled is what the destination said about this job. Refused credentials end one job of a call; the others wait.
    fn check_own_outcome(&mut self, sim: &SimRun, settle: &Settle) {
        let settled = settle.settlement.attempt.as_ref().filter(|attempt| attempt.kind == AttemptKind::Call);
        let (Some(settled), Some(told)) = (settled, sim.told) else { return };
        let spared = sim.unauthorized && settled.outcome == "wait";
        if settled.outcome != told && !spared {
            let detail = || format!("the destination answered {told}, and {} is settled", settled.outcome);
            self.checker.fail(self.now, Invariant::OwnOutcome, About::Job(sim.slot.job), detail);
        }
    }

    /// A retry must not be due at the very end of its delay: many of them would come back in one instant.
    fn check_spread(&mut self, settle: &Settle) {
        let next = &settle.settlement.next;
        let Some(failure) = &next.failure else { return };
        // After a crash and after an absence, the next attempt is due at once. A request that was rejected for several jobs counts for
        // none of them.
        if next.state != JobState::Retrying
            || matches!(failure.code.as_str(), "interrupted" | "verified-absent" | "overwritten" | BATCH_REJECTED)
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
                next if next.failure.as_ref().is_some_and(|failure| failure.code == "overwritten") => {
                    Fault::RecordOverwritten
                }
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
    fn release_early(&mut self, mut sim: Box<SimRun>, settle: Box<Settle>) {
        self.submit(SimOp::Settle(settle), Waiter::Nobody);
        let (group, member) = (sim.group, sim.member);
        let input = GroupInput::Member(member, Input::Settled(ChargeResult::Settled));
        let mut commands = self.step_group(group, input);
        let is_end = |command: &GroupCommand| matches!(command, GroupCommand::Member(of, _) if *of == member);
        if let Some(end) = commands.iter().position(is_end)
            && let GroupCommand::Member(_, Command::Finish(result)) = commands.remove(end)
        {
            sim.result = Some(*result);
            self.plan_finished(sim);
        }
        self.drive(group, commands);
    }

    pub(super) fn keep(&mut self, run: Box<SimRun>) -> u32 {
        self.node.as_mut().map_or(0, |node| node.keep_run(run))
    }

    pub(super) fn take_run(&mut self, slot: u32) -> Option<Box<SimRun>> {
        self.node.as_mut()?.take_run(slot)
    }

    fn plan_finished(&mut self, sim: Box<SimRun>) {
        let epoch = self.epoch;
        let run = self.keep(sim);
        self.plan_in(0, SimEvent::Finished { epoch, run });
    }

    /// Continues a run with the answer to its command.
    pub(super) fn resume(&mut self, sim: Box<SimRun>, input: Input) {
        let (group, member) = (sim.group, sim.member);
        if let Some(group) = self.group_mut(group) {
            group.parked[member] = Some(sim);
        }
        let commands = self.step_group(group, GroupInput::Member(member, input));
        self.drive(group, commands);
    }

    /// The writer has replied to a run, or gives its write back because the disk was full.
    pub(super) fn replied_to_run(&mut self, slot: u32, reply: Result<SimReply, SimOp>) {
        let Some(mut sim) = self.take_run(slot) else { return };
        let pending = std::mem::replace(&mut sim.pending, Pending::Nothing);
        let input = match (reply, pending) {
            // What was done must not be forgotten: the job keeps its lane until there is room to write it.
            (Err(SimOp::Settle(settle)), _) => {
                sim.pending = Pending::Settle(settle);
                let epoch = self.epoch;
                let run = self.keep(sim);
                return self.plan_in(1_000, SimEvent::SettleAgain { epoch, run });
            }
            (Err(_), _) => return self.lose(sim),
            (Ok(SimReply::Jobs(jobs)), Pending::Requeue) => {
                let any = !jobs.is_empty();
                self.requeued(jobs);
                Input::Requeued(Requeue::Requeued(any))
            }
            (Ok(reply), _) => match self.input_of(reply) {
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
            SimReply::Settled(result) => Input::Settled(result),
            SimReply::Charged(_)
            | SimReply::Jobs(_)
            | SimReply::Pruned(_)
            | SimReply::Kept(_)
            | SimReply::Edited(_)
            | SimReply::ContactChanged(_) => return None,
        })
    }

    /// A settlement is submitted again.
    pub(super) fn settle_again(&mut self, slot: u32) {
        let Some(mut sim) = self.take_run(slot) else { return };
        if let Pending::Settle(settle) = std::mem::replace(&mut sim.pending, Pending::Nothing) {
            let op = SimOp::Settle(settle);
            let slot = self.keep(sim);
            self.submit(op, Waiter::Run(slot));
        }
    }

    /// The run is lost: the job is loaded again.
    pub(super) fn lose(&mut self, mut sim: Box<SimRun>) {
        sim.result = Some(RunResult::Reload);
        let (group, member) = (sim.group, sim.member);
        self.plan_finished(sim);
        let commands = self.step_group(group, GroupInput::Lost(vec![member]));
        self.drive(group, commands);
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
