//! Operators: they pause, resume, replay, drop, decide and change the configuration at any time.

use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, Choice};
use sluice_domain::contact::ContactId;
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::policy::Contact;
use sluice_domain::replay::replayable;
use sluice_domain::safe_mode::Modes;
use sluice_domain::schedule::{Input, PauseTarget};
use sluice_domain::time::Time;
use sluice_ledger::{
    ContactChange, DecideApproval, Decided, DropJobs, MergeContacts, Pause, Prune, Recheck, Replay, Resolution,
    Resolve, Resume, SetSafeMode, SplitContact, Suppress, Unsuppress,
};

use super::coverage::Fault;
use super::node::Waiter;
use super::ops::{SimOp, SimReply};
use super::people::CONTACTS_ASKED;
use super::plan::{DESTINATIONS, ENTITIES, SimPlan, WORKER_NAMES, WORKERS};
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// How long finished events are kept in half of the runs: longer than any run, so that only a wrong clock could delete them.
const KEEP_LONG_MS: i64 = 36 * 3_600_000;
/// And in the other half: longer than a key lives, and short enough that events are deleted while others run.
const KEEP_SHORT_MS: i64 = 35 * 60_000;

/// What can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Destination(usize),
    Worker(usize),
}

impl Stop {
    fn name(self, plan: &SimPlan) -> String {
        match self {
            Stop::Destination(at) => format!("destination:{}", plan.destinations[at]),
            Stop::Worker(at) => format!("worker:{}", WORKER_NAMES[at]),
        }
    }

    pub(crate) fn parse(text: &str, plan: &SimPlan) -> Option<Stop> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "destination" => plan.destinations.iter().position(|other| **other == *name).map(Stop::Destination),
            _ => WORKER_NAMES.iter().position(|other| *other == name).map(Stop::Worker),
        }
    }

    pub(crate) fn target(self, plan: &SimPlan) -> PauseTarget {
        match self {
            Stop::Destination(at) => PauseTarget::Destination(plan.destinations[at].clone()),
            Stop::Worker(at) => PauseTarget::Worker(Arc::from(WORKER_NAMES[at])),
        }
    }
}

/// An action of an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperatorAction {
    Pause(Stop),
    Resume(Stop),
    Replay { latest_config: bool },
    Drop,
    Resolve { happened: bool },
    Prune,
    Recheck,
    Decide { id: ApprovalId, choice: Choice },
    SafeMode { worker: Option<usize>, until: Option<Time> },
    Suppress { entity: u64, on: bool },
    Merge { into: ContactId, contact: ContactId },
    Split { contact: ContactId },
    Edit,
}

impl Simulation {
    /// About every 15 seconds.
    pub(super) fn operate(&mut self) {
        if self.is_healing() {
            return;
        }
        let next = 5_000 + self.some_ms(25_000);
        self.plan_in(next, SimEvent::Operator);
        if !self.rates.operators {
            return;
        }
        match self.random.below(22) {
            11 | 16..=17 => self.change_contacts(),
            12..=13 => self.answer_a_question(),
            14 => self.turn_safe_mode(),
            15 => {
                let (entity, on) = (self.random.below(ENTITIES), self.random.chance(0.5));
                self.act(OperatorAction::Suppress { entity, on }, vec![]);
            }
            0 => {
                let stop = self.some_stop();
                self.act(OperatorAction::Pause(stop), vec![]);
            }
            1..=3 => {
                let paused = self.store.pauses();
                let some = self.random.below(paused.len().max(1) as u64) as usize;
                if let Some(stop) = paused.get(some).and_then(|pause| Stop::parse(&pause.target, &self.plan)) {
                    self.act(OperatorAction::Resume(stop), vec![]);
                }
            }
            4..=6 => {
                let latest_config = self.random.chance(0.4);
                let jobs = self.some_jobs(|state| replayable(state).is_ok());
                self.act(OperatorAction::Replay { latest_config }, jobs);
            }
            7 => {
                let jobs = self.some_jobs(|state| matches!(state, JobState::Dead | JobState::Unknown));
                self.act(OperatorAction::Drop, jobs);
            }
            8..=9 => {
                for job in self.unknown_jobs() {
                    if self.random.chance(0.5)
                        && let Some(happened) = self.has_happened(job)
                    {
                        self.act(OperatorAction::Resolve { happened }, vec![job]);
                    }
                }
            }
            10 => {
                self.reconfigure();
            }
            18..=21 => self.edit_an_event(),
            _ => {}
        }
    }

    /// Activates another revision, or an older one again.
    fn reconfigure(&mut self) {
        let mut random = self.random.clone();
        if self.plan.revisions.len() > 1 && random.chance(0.3) {
            self.plan.roll_back(&mut random);
            self.happened(Fault::RollBack);
        } else {
            self.plan.revise(&mut random);
            self.happened(Fault::Reconfigure);
        }
        self.random = random;
        self.configure();
    }

    fn some_stop(&mut self) -> Stop {
        match self.random.below((DESTINATIONS + WORKERS) as u64) as usize {
            at if at < DESTINATIONS => Stop::Destination(at),
            at => Stop::Worker(at - DESTINATIONS),
        }
    }

    /// A few jobs in one of these states.
    fn some_jobs(&mut self, is_wanted: impl Fn(JobState) -> bool) -> Vec<JobId> {
        let last = self.store.last_job().0 as u64;
        let mut jobs: Vec<JobId> = (0..24).map(|_| JobId(1 + self.random.below(last.max(1)) as i64)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.retain(|id| self.store.job(*id).is_some_and(|job| is_wanted(job.state)));
        jobs
    }

    /// Jobs that wait for an operator. Few do: they are looked for one by one.
    fn unknown_jobs(&self) -> Vec<JobId> {
        if !self.store.job_counts().iter().any(|(state, _)| *state == JobState::Unknown) {
            return vec![];
        }
        self.store.jobs().filter(|job| job.state == JobState::Unknown).map(|job| job.id).collect()
    }

    /// What an operator finds at the destination for the effect that the job is parked for: its last unknown one. `None` if
    /// that cannot be told yet.
    fn has_happened(&mut self, id: JobId) -> Option<bool> {
        let unknown = self.store.effect_states(id).filter(|effect| effect.state == EffectState::Unknown);
        let label = unknown.max_by_key(|effect| effect.n).map(|effect| effect.step_id.clone());
        let Some(label) = label else { return Some(false) };
        if self.plan.facts(&label).is_some_and(|facts| facts.upsert) && !self.is_account_decided(id, &label) {
            return None;
        }
        Some(self.checker.job(id).effect(&label).shown > 0)
    }

    /// Submits an act. The scheduler hears of it once it is durable.
    pub(super) fn act(&mut self, act: OperatorAction, jobs: Vec<JobId>) {
        let at = self.ledger_time();
        let (actor, reason) = (String::from("ann"), String::new());
        let op = match act {
            OperatorAction::Pause(stop) => SimOp::Pause(Pause { target: stop.name(&self.plan), actor, reason, at }),
            OperatorAction::Resume(stop) => {
                SimOp::Resume(Resume { target: stop.name(&self.plan), actor, reason: String::new(), at })
            }
            OperatorAction::Replay { latest_config } => {
                let revision = latest_config.then(|| self.plan.active().run.name.clone());
                SimOp::Replay(Replay { jobs, actor, reason, revision, at })
            }
            OperatorAction::Drop => SimOp::Drop(DropJobs { jobs, actor, reason, at }),
            OperatorAction::Resolve { happened } => {
                let Some(job) = jobs.first().copied() else { return };
                let resolution = if happened { Resolution::Happened } else { Resolution::NotHappened };
                SimOp::Resolve(Resolve { job, resolution, actor, reason, at })
            }
            OperatorAction::Decide { id, choice } => {
                SimOp::Decide(DecideApproval { ids: vec![id], choice, actor, reason, at })
            }
            OperatorAction::SafeMode { worker, until } => {
                let worker = worker.map(|worker| WORKER_NAMES[worker].to_owned());
                SimOp::SafeMode(SetSafeMode { worker, until, actor, reason, at })
            }
            OperatorAction::Suppress { entity, on } => {
                let Some(contact) = Contact::new(&format!("e{entity}@example.org")) else { return };
                let channel = String::new();
                match on {
                    true => {
                        let contacts = vec![(contact.digest(), "e***".to_owned())];
                        SimOp::Suppress(Suppress { contacts, channel, actor, reason, at })
                    }
                    false => {
                        let contacts = vec![contact.digest()];
                        SimOp::Unsuppress(Unsuppress { contacts, channel, actor, reason, at })
                    }
                }
            }
            OperatorAction::Recheck => {
                let Some(due_at) = self.node.as_ref().map(|node| node.steady(self.now)) else { return };
                SimOp::Recheck(Recheck { at, due_at, jobs_max: 50 })
            }
            OperatorAction::Prune => {
                let before = Time(at.0 - self.keep_ms());
                SimOp::Prune(Prune { bodies_before: before, events_before: before, rows_max: 200, at })
            }
            OperatorAction::Merge { into, contact } => {
                SimOp::MergeContacts(MergeContacts { into, contact, actor, reason, at })
            }
            OperatorAction::Split { contact } => SimOp::SplitContact(SplitContact { contact, actor, reason, at }),
            // Submitted with its content.
            OperatorAction::Edit => return,
        };
        self.submit(op, Waiter::Operator(act));
    }

    /// Decides an approval, perhaps one that is decided already.
    fn answer_a_question(&mut self) {
        let asked = self.store.all_approvals().len();
        let some = self.random.below(asked.max(1) as u64) as usize;
        let newest = asked.saturating_sub(1 + some.min(6));
        let choice = if self.random.chance(0.6) { Choice::Approve } else { Choice::Reject };
        if let Some(id) = self.store.all_approvals().get(newest).map(|asked| asked.id) {
            self.act(OperatorAction::Decide { id, choice }, vec![]);
        }
    }

    /// Merges two contacts, or takes one out again. Some of these are refused.
    fn change_contacts(&mut self) {
        let merged = self.checker.people.merged();
        let some = self.random.below(merged.len().max(1) as u64) as usize;
        if let Some(contact) = merged.get(some).filter(|_| self.random.chance(0.5)) {
            return self.act(OperatorAction::Split { contact: *contact }, vec![]);
        }
        let [into, contact] = [0; 2].map(|_| ContactId(1 + self.random.below(CONTACTS_ASKED) as i64));
        self.act(OperatorAction::Merge { into, contact }, vec![]);
    }

    /// Safe mode begins or ends, for a worker or for all.
    fn turn_safe_mode(&mut self) {
        let worker = self.random.chance(0.7).then(|| self.random.below(WORKERS as u64) as usize);
        let until = self.random.chance(0.6).then(|| Time(self.ledger_time().0 + 1_000 + self.some_ms(300_000)));
        self.act(OperatorAction::SafeMode { worker, until }, vec![]);
    }

    /// What a process that starts finds in the ledger.
    pub(super) fn load_safe_modes(&mut self) {
        let mut modes = Modes::default();
        for record in self.store.safe_modes() {
            match record.worker {
                Some(worker) => drop(modes.workers.insert(worker, record.until)),
                None => modes.all = Some(record.until),
            }
        }
        if let Some(node) = self.node.as_mut().filter(|_| !Mutant::SafeModeForgottenByRestart.is_on()) {
            node.safe_modes = modes.clone();
        }
        self.checker.guards.safe_modes = modes;
    }

    fn safe_mode_set(&mut self, worker: Option<usize>, until: Option<Time>) {
        self.checker.guards.safe_mode_since = self.now;
        let name = worker.map(|worker| WORKER_NAMES[worker].to_owned());
        let known = self.node.as_mut().map(|node| &mut node.safe_modes);
        for modes in known.into_iter().chain([&mut self.checker.guards.safe_modes]) {
            match (&name, until) {
                (None, until) => modes.all = until,
                (Some(name), Some(until)) => drop(modes.workers.insert(name.clone(), until)),
                (Some(name), None) => drop(modes.workers.remove(name)),
            }
        }
    }

    /// An act is durable.
    pub(super) fn acted(&mut self, act: OperatorAction, reply: Option<SimReply>) {
        let Some(reply) = reply else { return };
        self.trace.note(self.now, "act", About::Nothing, 0);
        match (act, reply) {
            (OperatorAction::Pause(stop), _) => {
                self.happened(Fault::Pause);
                self.set_paused(stop, true);
                self.step(Input::Pause(self.target(stop)));
            }
            (OperatorAction::Resume(stop), _) => {
                self.happened(Fault::Resume);
                if let Stop::Destination(at) = stop {
                    // Nobody resumes a destination without mending its credentials.
                    self.destinations.0[at].unauthorized = false;
                }
                self.set_paused(stop, false);
                self.step(Input::Resume(self.target(stop)));
            }
            (OperatorAction::Replay { latest_config }, SimReply::Jobs(jobs)) => {
                for _ in &jobs {
                    self.coverage.fault(if latest_config { Fault::ReplayLatestConfig } else { Fault::Replay });
                }
                self.requeued(jobs);
            }
            (OperatorAction::Resolve { happened }, SimReply::Jobs(jobs)) => {
                for _ in &jobs {
                    self.coverage.fault(if happened { Fault::ResolveHappened } else { Fault::ResolveDidNotHappen });
                }
                self.requeued(jobs);
            }
            (OperatorAction::Drop, SimReply::Jobs(jobs)) => jobs.iter().for_each(|_| self.coverage.fault(Fault::Drop)),
            (OperatorAction::Decide { .. }, SimReply::Decided(decided)) => self.decided(decided),
            (OperatorAction::SafeMode { worker, until }, _) => {
                self.happened(if until.is_some() { Fault::SafeModeOn } else { Fault::SafeModeOff });
                self.safe_mode_set(worker, until);
            }
            (OperatorAction::Suppress { .. }, _) => self.happened(Fault::Suppressed),
            (OperatorAction::Recheck, SimReply::Jobs(jobs)) => {
                jobs.iter().for_each(|_| self.coverage.fault(Fault::Rechecked));
                self.requeued(jobs);
            }
            (OperatorAction::Prune, SimReply::Pruned(rows)) if rows > 0 => self.happened(Fault::Prune),
            (OperatorAction::Edit, SimReply::Edited(edited)) => self.edited(edited),
            (act, SimReply::ContactChanged(change)) => match (act, change) {
                (_, ContactChange::Busy { .. }) => self.happened(Fault::ContactBusy),
                (OperatorAction::Merge { .. }, ContactChange::Done) => self.happened(Fault::ContactsMerged),
                (OperatorAction::Split { .. }, ContactChange::Done) => self.happened(Fault::ContactSplit),
                _ => {}
            },
            _ => {}
        }
    }

    fn set_paused(&mut self, stop: Stop, paused: bool) {
        match stop {
            Stop::Destination(at) => self.checker.gates.pause_destination(at, paused),
            Stop::Worker(at) => self.checker.gates.pause_worker(at, paused),
        }
    }

    /// Decisions are durable; the jobs that waited for them are due.
    fn decided(&mut self, decided: Vec<(ApprovalId, Decided)>) {
        for (id, decided) in decided {
            self.check_answer(id);
            match decided {
                Decided::Counts(job, worker) => self.due_now(job, &worker),
                Decided::Conflict(_) => self.coverage.fault(Fault::DecidedTwice),
                _ => {}
            }
        }
    }

    /// Maintenance runs.
    pub(super) fn prune(&mut self) {
        if self.is_healing() {
            return;
        }
        self.plan_in(300_000, SimEvent::Upkeep);
        self.keep_clock();
        let Some(reading) = self.node.as_ref().map(|node| node.clock.reading()) else { return };
        if reading.may_prune() {
            self.act(OperatorAction::Prune, vec![]);
        } else {
            self.happened(Fault::PruningHeld);
        }
    }

    /// Lanes are looked at in which a call may have been applied late.
    pub(super) fn look_for_stragglers(&mut self) {
        if !self.has_settled() || self.store.waits_for_stragglers() {
            self.plan_in(20_000, SimEvent::Stragglers);
        }
        let now = self.node.as_ref().map(|node| node.steady(self.now));
        if self.store.next_straggler().is_some_and(|due| now.is_some_and(|now| due <= now)) {
            self.act(OperatorAction::Recheck, vec![]);
        }
    }

    /// How long finished events are kept.
    pub(super) fn keep_ms(&self) -> i64 {
        if self.options.seed.is_multiple_of(2) { KEEP_LONG_MS } else { KEEP_SHORT_MS }
    }

    /// Ends every pause; again after each start until nothing is paused.
    pub(super) fn resume_everything(&mut self) {
        if self.node.is_none() {
            // Once the node is back.
            self.plan_in(30_000, SimEvent::Heal);
            return;
        }
        for pause in self.store.pauses() {
            if let Some(stop) = Stop::parse(&pause.target, &self.plan) {
                self.act(OperatorAction::Resume(stop), vec![]);
            }
        }
        let open = (0..DESTINATIONS).map(Stop::Destination).chain((0..WORKERS).map(Stop::Worker));
        for stop in open {
            self.act(OperatorAction::Resume(stop), vec![]);
        }
    }
}
