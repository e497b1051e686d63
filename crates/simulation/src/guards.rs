//! What an honest observer knows of marks, answers, caps, retry budgets and safe mode. None of it is forgotten by a crash.

use sluice_domain::approval::{ApprovalId, ApprovalState};
use sluice_domain::hash::{Map, Set};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::safe_mode::Modes;
use sluice_domain::time::Time;
use sluice_ledger::memory::Reply;
use sluice_ledger::{BeginResult, GuardReply};

use super::coverage::Fault;
use super::invariants::Invariant;
use super::job::Job;
use super::plan::{MAIL_CAP, is_passed_over};
use super::trace::About;
use super::world::Simulation;

/// Everything that stands between a step and its effect.
#[derive(Debug, Default)]
pub(super) struct Guards {
    /// Who has set the mark of an entity, by the name that stays over another life of its event, and until when it counts.
    marks: Map<u64, (EffectKey, JobId, Time)>,
    answers: Map<ApprovalId, ApprovalState>,
    /// Jobs with an effect under the cap of their entity, and when it was first begun.
    capped: Map<u64, Vec<(JobId, Time)>>,
    /// Until when each retry counts, by worker and entity.
    retries: Map<(usize, u64), Vec<Time>>,
    /// What a person was told to be in force.
    pub safe_modes: Modes,
}

/// A retry that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub retries: u32,
    pub until: Time,
    pub at: Time,
}

impl Simulation {
    /// A job was told whether it has set the mark of its entity.
    pub(super) fn check_mark(&mut self, job: JobId, key: EffectKey, at: Time, expires_at: Time, reply: &Reply) {
        let Reply::Marked(marked) = reply else { return };
        let Some(entity) = self.store.job(job).map(|job| job.entity) else { return };
        let owner = self.checker.guards.marks.get(&entity).filter(|(_, _, until)| *until > at).copied();
        let fault = match (marked.set, owner) {
            (true, None) => Fault::MarkSet,
            (true, Some((owner, ..))) if owner == key => Fault::MarkFoundAgain,
            (true, Some((_, owner, _))) => {
                let detail = || format!("it has set the mark that {owner} has set");
                return self.checker.fail(self.now, Invariant::OneOwnerPerMark, About::Job(job), detail);
            }
            (false, Some((owner, ..))) if owner == key => {
                let detail = || "it is told that another has set its own mark".to_owned();
                return self.checker.fail(self.now, Invariant::OneOwnerPerMark, About::Job(job), detail);
            }
            (false, _) => Fault::MarkFound,
        };
        self.coverage.fault(fault);
        if fault == Fault::MarkSet {
            self.checker.guards.marks.insert(entity, (key, job, expires_at));
        }
    }

    /// Somebody gave jobs up, and their marks with them.
    pub(super) fn marks_dropped(&mut self, job: JobId) {
        self.checker.guards.marks.retain(|_, (_, owner, _)| *owner != job);
    }

    /// Upkeep has removed what counts no more by this clock.
    pub(super) fn guards_pruned(&mut self, at: Time) {
        let guards = &mut self.checker.guards;
        guards.marks.retain(|_, (_, _, until)| *until > at);
        guards.capped.values_mut().for_each(|taken| taken.retain(|(_, begun)| *begun + MAIL_CAP.window > at));
        guards.retries.values_mut().for_each(|spent| spent.retain(|until| *until > at));
        // A key whose event is gone may begin again, and its questions with it.
        let kept: Set<ApprovalId> = self.store.questions().iter().map(|asked| asked.id).collect();
        guards.answers.retain(|id, _| kept.contains(id));
    }

    /// A retry was written down within the budget of its contact.
    pub(super) fn check_budget(&mut self, job: JobId, drawn: Drawn) {
        let Some(record) = self.store.job(job) else { return };
        let contact = (self.plan.worker(&record.worker), record.entity);
        let spent = self.checker.guards.retries.entry(contact).or_default();
        let before = spent.iter().filter(|until| **until > drawn.at).count();
        spent.push(drawn.until);
        if before >= drawn.retries as usize {
            let detail = || format!("{before} retries of its contact count already, {} may", drawn.retries);
            self.checker.fail(self.now, Invariant::BudgetRespected, About::Job(job), detail);
        }
    }

    /// An attempt under a cap was written down, or refused.
    pub(super) fn check_cap(&mut self, job: JobId, key: EffectKey, at: Time, reply: &Reply) {
        match reply {
            Reply::Guard(GuardReply::Begun(BeginResult::Go)) => {}
            Reply::Guard(GuardReply::Refused(_)) => return self.coverage.fault(Fault::CapReached),
            _ => return,
        }
        let Some(entity) = self.store.job(job).map(|job| job.entity) else { return };
        let Some(identity) = self.plan.effect_identity("mail") else { return };
        let taken = self.checker.guards.capped.entry(entity).or_default();
        let jobs = &self.checker.jobs;
        let of_key =
            |other: JobId| jobs.get(other.0 as usize).is_some_and(|sight| sight.effects[identity].key == Some(key));
        if let Some(former) = taken.iter_mut().find(|(other, _)| *other != job && of_key(*other)) {
            // The event was pruned and has come again: its effects have their names from then, and the place that they took.
            former.0 = job;
            return;
        }
        let shown = |job: JobId| jobs.get(job.0 as usize).is_some_and(|sight| sight.effects[identity].shown > 0);
        let within = at - MAIL_CAP.window;
        let before = taken.iter().filter(|(other, begun)| *other != job && *begun > within && shown(*other)).count();
        match taken.iter_mut().find(|(other, _)| *other == job) {
            // What surely did not happen has given its place back, and takes another now.
            Some(own) if !shown(job) => own.1 = at,
            Some(_) => {}
            None => taken.push((job, at)),
        }
        if before >= MAIL_CAP.max as usize {
            let detail = || format!("its entity has had {before} within the time of the cap");
            self.checker.fail(self.now, Invariant::CapsKept, About::Job(job), detail);
        }
    }

    /// How a question stands, whenever somebody hears of it.
    pub(super) fn check_answer(&mut self, id: ApprovalId) {
        let Some(asked) = self.store.approval(id) else { return };
        if asked.state == ApprovalState::Pending {
            return;
        }
        let first = *self.checker.guards.answers.entry(id).or_insert(asked.state);
        if first != asked.state {
            let detail = || format!("{id} was {} and is {}", first.as_str(), asked.state.as_str());
            self.checker.fail(self.now, Invariant::AnswersStand, About::Job(asked.job), detail);
        }
    }

    /// A call leaves that needs a person's word.
    pub(super) fn check_approved(&mut self, job: JobId, id: ApprovalId) {
        let state = self.store.approval(id).map(|asked| asked.state);
        if state != Some(ApprovalState::Approved) {
            let detail = || format!("it is sent, and {id} is {}", state.map_or("not asked", ApprovalState::as_str));
            self.checker.fail(self.now, Invariant::AnswersStand, About::Job(job), detail);
        }
    }

    /// A step is about to be tried.
    pub(super) fn check_safe_mode(&mut self, job: &Job) {
        let worker = &self.plan.current().workers[job.worker].name;
        if self.checker.guards.safe_modes.until(worker, self.wall()).is_some() {
            let detail = || "it is tried while safe mode holds its worker".to_owned();
            self.checker.fail(self.now, Invariant::WaitingIsFree, About::Job(job.id), detail);
        }
    }

    /// At the end: who succeeded has done everything.
    pub(super) fn check_every_step(&mut self) {
        for record in self.store.jobs().filter(|job| job.state == JobState::Succeeded) {
            let job = Job::of(record, &self.plan);
            let steps = &self.plan.revisions[job.revision].workers[job.worker].steps;
            // What another job's mark held back is not done.
            let to_do = steps.iter().filter(|step| !step.marked && !is_passed_over(job.entity, job.worker, step));
            for step in to_do {
                let mut labels = step.labels.iter().take(step.items(job.entity).unwrap_or(1));
                let is_done = |label: &&std::sync::Arc<str>| {
                    let mut effects = self.store.effect_states(job.id);
                    effects.any(|effect| effect.step_id == *label && EffectState::is_final(effect.state))
                };
                if let Some(label) = labels.find(|label| !is_done(label)) {
                    let detail = || format!("it succeeded without `{label}`");
                    return self.checker.fail(self.now, Invariant::EveryStepDone, About::Job(job.id), detail);
                }
            }
        }
    }
}
