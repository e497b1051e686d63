//! Before a step reaches out: whose turn it is among its items, marks, questions to people, caps and safe mode, by the functions and
//! operations of a node.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::approval::{ApprovalState, Choice, EXPIRY};
use sluice_domain::job::{EffectKey, EffectState, JobState};
use sluice_domain::key::{KeyDigest, TENANT};
use sluice_domain::outputs::Outputs;
use sluice_domain::policy::CapReservation;
use sluice_domain::settle::NextAction;
use sluice_domain::time::Time;
use sluice_domain::worker::has_more;
use sluice_ledger::memory::{Op, Reply};
use sluice_ledger::{
    ApprovalRecord, BeginResult, DecideApproval, GuardOp, GuardReply, Mark, RequestApproval, Settlement, Skip,
    StepResult,
};

use super::coverage::Fault;
use super::node::Waiter;
use super::plan::{MARK_LIFETIME, StepPlan};
use super::run::{End, SimRun};
use super::world::{SimEvent, Simulation};

/// What is to be done now in a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turned {
    /// This, or this item.
    Do(usize),
    /// It is not time yet, by the wall clock.
    NotYet(Time),
    /// Nothing more.
    Pass,
}

impl Simulation {
    /// Whose turn it is within a step.
    pub(super) fn turn(&self, run: &SimRun, step: &StepPlan, key: impl Fn(&str) -> EffectKey) -> Turned {
        let (Some(items), Some(pace)) = (step.items(run.job.entity), step.foreach) else { return Turned::Do(0) };
        let Some(item) = (0..items).find(|item| !self.is_finished(run, &step.labels[*item])) else {
            return Turned::Pass;
        };
        let of_step = |label: &Arc<str>| step.labels[..items].contains(label);
        let effects = self.store.effect_states(run.job.id).filter(|effect| of_step(effect.step_id));
        match pace.not_before(effects.map(|effect| (effect.key, effect.last_at)), key(&step.labels[item])) {
            Some(due) if due > self.wall() => Turned::NotYet(due),
            _ => Turned::Do(item),
        }
    }

    fn is_finished(&self, run: &SimRun, label: &Arc<str>) -> bool {
        self.store.effect_states(run.job.id).any(|effect| effect.step_id == label && effect.state.is_final())
    }

    /// Whether a step has more to do than the item of this run.
    pub(super) fn has_more(&self, run: &SimRun, step: &StepPlan) -> bool {
        let items = step.items(run.job.entity).unwrap_or(0);
        has_more(items, run.item, |item| self.is_finished(run, &step.labels[item]))
    }

    /// It is not time yet, by the wall clock. Waiting costs no attempt.
    pub(super) fn put_off(&mut self, run: SimRun, until: Time) {
        let steady = self.node.as_ref().map_or(self.wall(), |node| node.steady(self.now));
        let outputs = Outputs::default();
        let next = self.standing(&run, run.job.attempts, &outputs).wait(steady + until.since(self.wall()), None);
        self.write(run, next, None, None);
    }

    /// Until when safe mode holds what this run wants to do.
    pub(super) fn held_until(&self, run: &SimRun) -> Option<Time> {
        let worker = &self.plan.current().workers[run.job.worker].name;
        self.node.as_ref()?.safe_modes.until(worker, self.wall())
    }

    fn note_of(&self, run: &SimRun, name: &str, key: EffectKey, state: EffectState) -> StepResult {
        let (job, result, at) = (&run.job, Value::Bool(true), self.wall());
        let (n, step, step_id) = (job.tries, job.step, Arc::from(name));
        StepResult { job: job.id, n, step, step_id, key, action: "inside", state, result, at }
    }

    /// Sets the mark of the entity, unless another job has.
    pub(super) fn mark(&mut self, run: SimRun, key: EffectKey) {
        let note = self.note_of(&run, "once", key, EffectState::Applied);
        let Some(event) = self.store.event_head(run.job.seq) else { return };
        let mark = Mark {
            store: "chats".to_owned(),
            key: KeyDigest::new(TENANT, "mark:chats", &run.job.entity.to_string()),
            adjacent: vec![],
            event: event.id,
            expires_at: note.at + MARK_LIFETIME,
            note,
        };
        let run = self.keep(run);
        self.submit(Op::Mark(Box::new(mark)), Waiter::Inside(run));
    }

    /// Asks a person, and lets the job wait.
    pub(super) fn ask(&mut self, mut run: SimRun, question: EffectKey) {
        let at = self.wall();
        let expires_at = at + std::time::Duration::from_millis(20_000 + self.random.below(900_000));
        let default = if self.random.chance(0.5) { Choice::Approve } else { Choice::Reject };
        let steady = self.node.as_ref().map_or(at, |node| node.steady(self.now));
        let outputs = Outputs::default();
        let next = self.standing(&run, run.job.attempts, &outputs).wait(steady + expires_at.since(at), None);
        let waits = Settlement { job: run.job.id, n: run.job.tries, effect: None, attempt: None, next, at };
        let ask = RequestApproval {
            id: question.into(),
            job: run.job.id,
            worker: self.plan.current().workers[run.job.worker].name.clone(),
            step_id: Arc::from("ask"),
            title: String::from("may it?"),
            summary: String::new(),
            expires_at,
            default,
            at,
            waits: Some(waits),
        };
        run.question = Some(question);
        let run = self.keep(run);
        self.submit(Op::Guard(GuardOp::Ask(Box::new(ask))), Waiter::Inside(run));
    }

    /// The writer has answered what a run asked on its way.
    pub(super) fn inside(&mut self, slot: u32, reply: Option<Reply>) {
        if matches!(reply, Some(Reply::Marked(_))) && self.crashes_at(Fault::CrashAfterMark) {
            return;
        }
        let Some(mut run) = self.take_run(slot) else { return };
        match reply {
            Some(Reply::Marked(marked)) => {
                run.marked = Some(marked.set);
                self.go_on(run);
            }
            Some(Reply::Guard(GuardReply::Asked(asked))) => self.asked(run, &asked),
            Some(Reply::Guard(GuardReply::Decided(_))) => {
                match run.question.and_then(|question| self.store.approval(question.into())) {
                    Some(asked) => self.asked(run, &asked),
                    None => self.plan_finished(run),
                }
            }
            Some(Reply::Noted(_)) if run.approved == Some(false) => {
                let outputs = Outputs::default();
                let next = self.standing(&run, 0, &outputs).end_noop(Value::from("rejected"));
                self.write(run, next, None, None);
            }
            Some(Reply::Noted(_)) => self.go_on(run),
            // The effect does not happen, and that is kept.
            Some(Reply::Guard(GuardReply::Done)) => {
                self.end_untried(run, NextAction::Skip { reason: "cap".to_owned() })
            }
            // No room, or the job has moved on: it is read anew.
            _ => self.plan_finished(run),
        }
    }

    fn asked(&mut self, mut run: SimRun, asked: &ApprovalRecord) {
        self.check_answer(asked.id);
        let at = self.wall();
        if asked.state == ApprovalState::Pending && asked.expires_at <= at {
            self.coverage.fault(Fault::ApprovalExpired);
            let (actor, reason) = (EXPIRY.to_owned(), String::new());
            let decide = DecideApproval { ids: vec![asked.id], choice: asked.default, actor, reason, at };
            let run = self.keep(run);
            return self.submit(Op::Guard(GuardOp::Decide(decide)), Waiter::Inside(run));
        }
        if asked.state == ApprovalState::Pending {
            // The ledger knows already that it waits.
            self.coverage.fault(Fault::Asked);
            let steady = self.node.as_ref().map_or(at, |node| node.steady(self.now));
            let due = steady + asked.expires_at.since(at);
            (run.job.state, run.job.due_at, run.job.verifying) = (JobState::Waiting, due, false);
            run.end = Some(End { verdict: None, place: self.place_of(&run) });
            return self.plan_finished(run);
        }
        let approved = asked.state == ApprovalState::Approved;
        self.coverage.fault(if approved { Fault::Approved } else { Fault::Rejected });
        run.approved = Some(approved);
        let Some(question) = run.question else { return };
        let state = if approved { EffectState::Applied } else { EffectState::Skipped };
        let note = self.note_of(&run, "ask", question, state);
        let run = self.keep(run);
        self.submit(Op::Note(Box::new(note)), Waiter::Inside(run));
    }

    /// What an effect of this step takes a place under.
    pub(super) fn caps(&self, run: &SimRun, step: &StepPlan) -> Vec<CapReservation> {
        let Some(cap) = step.cap else { return vec![] };
        let contact = KeyDigest::new(TENANT, "policy contact", &run.job.entity.to_string());
        let [policy, rule, channel] = &self.plan.cap_names;
        vec![CapReservation { policy: policy.clone(), rule: rule.clone(), channel: channel.clone(), contact, cap }]
    }

    /// The writer has answered an attempt under a cap.
    pub(super) fn begun_within(&mut self, slot: u32, reply: GuardReply) {
        match reply {
            GuardReply::Begun(BeginResult::Go) => self.begun(slot, Some(Reply::Begun)),
            GuardReply::Begun(BeginResult::AlreadyApplied) => self.begun(slot, Some(Reply::AlreadyApplied)),
            GuardReply::Refused(_) => self.refuse(slot),
            _ => self.begun(slot, Some(Reply::Stale)),
        }
    }

    fn refuse(&mut self, slot: u32) {
        let Some(mut run) = self.take_run(slot) else { return };
        run.job.tries -= 1;
        let step = self.worker_plan(&run).steps[run.job.step as usize].clone();
        let skip = Skip {
            job: run.job.id,
            n: run.job.tries,
            step: run.job.step,
            step_id: step.labels[run.item].clone(),
            key: run.key,
            class: step.class,
            action: "simulated",
            destination: self.plan.destinations[step.destination].clone(),
            result: Value::from("cap"),
            at: self.wall(),
        };
        let run = self.keep(run);
        self.submit(Op::Guard(GuardOp::Skip(Box::new(skip))), Waiter::Inside(run));
    }

    /// A person hears what became of their answer; the job that waited for it goes on.
    pub(super) fn answered_by_person(
        &mut self,
        decided: Vec<(sluice_domain::approval::ApprovalId, sluice_ledger::Decided)>,
    ) {
        for (id, decided) in decided {
            self.check_answer(id);
            match decided {
                sluice_ledger::Decided::Counts(job, worker) => {
                    self.step(sluice_domain::schedule::Input::DueNow { job, worker });
                }
                sluice_ledger::Decided::Conflict(_) => self.coverage.fault(Fault::AnsweredTwice),
                _ => {}
            }
        }
    }

    /// A wait for the next item, for the record.
    pub(super) fn paced(&mut self, run: SimRun, until: Time) {
        self.coverage.fault(Fault::ItemPaced);
        self.put_off(run, until);
    }

    /// Nothing is known of how a run goes on: it is read anew.
    pub(super) fn lost(&mut self, slot: u32) {
        let epoch = self.epoch;
        self.plan_in(0, SimEvent::Finished { epoch, run: slot });
    }
}
