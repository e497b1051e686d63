//! Observes marks, approvals, caps, retry budgets, suppression and safe mode. Nothing of it is forgotten by a crash.

use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, ApprovalState};
use sluice_domain::hash::{Map, Set};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::ops::{BeginResult, CappedBeginResult};
use sluice_domain::run::StepCall;
use sluice_domain::safe_mode::Modes;
use sluice_domain::time::Time;

use super::coverage::Fault;
use super::invariants::Invariant;
use super::observed::ObservedMark;
use super::ops::SimReply;
use super::plan::{MAIL_CAP, SimPlan, asks_about, condition_holds, items, step_of};
use super::trace::About;
use super::world::Simulation;

/// What is between a step and its effect.
#[derive(Debug, Default)]
pub(super) struct Guards {
    /// Owner of the mark of an entity, by its effect key, which is the same when the event is accepted again; and its end.
    marks: Map<u64, (EffectKey, JobId, Time)>,
    decisions: Map<ApprovalId, ApprovalState>,
    /// Jobs with an effect under the cap of their entity, and when it was first begun.
    capped: Map<u64, Vec<(JobId, Time)>>,
    /// Until when each retry counts, by worker and entity.
    retries: Map<(usize, u64), Vec<Time>>,
    /// As operators were told.
    pub safe_modes: Modes,
    /// When that changed last: a call that was decided on before may still be made.
    pub safe_mode_since: i64,
}

impl Simulation {
    /// A job was told whether it owns the mark of its entity.
    pub(super) fn check_mark(&mut self, mark: ObservedMark, reply: &SimReply) {
        let SimReply::Marked(Some(marked)) = reply else { return };
        let ObservedMark { job, key, at, expires_at } = mark;
        let Some(entity) = self.store.job(job).map(|job| job.entity) else { return };
        let owner = self.checker.guards.marks.get(&entity).filter(|(_, _, until)| *until > at).copied();
        let fault = match (marked.set, owner) {
            (true, None) => Fault::MarkSet,
            (true, Some((owner, ..))) if owner == key => Fault::MarkFoundAgain,
            (true, Some((_, owner, _))) => {
                let detail = || format!("it has set the mark that {owner} owns");
                return self.checker.fail(self.now, Invariant::OneOwnerPerMark, About::Job(job), detail);
            }
            (false, Some((owner, ..))) if owner == key => {
                let detail = || "it is told that another job owns its own mark".to_owned();
                return self.checker.fail(self.now, Invariant::OneOwnerPerMark, About::Job(job), detail);
            }
            (false, _) => Fault::MarkFound,
        };
        self.coverage.fault(fault);
        if fault == Fault::MarkSet {
            self.checker.guards.marks.insert(entity, (key, job, expires_at));
        }
    }

    /// The mark of a job belongs to the effect that takes the place of its owner.
    pub(super) fn mark_moved(&mut self, job: JobId, former: EffectKey, key: EffectKey) {
        for (owner, of, _) in self.checker.guards.marks.values_mut() {
            if *of == job && *owner == former {
                *owner = key;
            }
        }
    }

    /// A dropped job gives up its marks.
    pub(super) fn marks_dropped(&mut self, job: JobId) {
        self.checker.guards.marks.retain(|_, (_, owner, _)| *owner != job);
    }

    /// Maintenance has removed what has expired by this clock.
    pub(super) fn guards_pruned(&mut self, at: Time) {
        let guards = &mut self.checker.guards;
        guards.marks.retain(|_, (_, _, until)| *until > at);
        guards.capped.values_mut().for_each(|taken| taken.retain(|(_, begun)| *begun + MAIL_CAP.window > at));
        guards.retries.values_mut().for_each(|spent| spent.retain(|until| *until > at));
        // A key whose event is gone may begin again, and its approvals with it.
        let kept: Set<ApprovalId> = self.store.all_approvals().iter().map(|asked| asked.id).collect();
        guards.decisions.retain(|id, _| kept.contains(id));
    }

    /// A retry was written within the budget of its contact: so many, and it counts until then.
    pub(super) fn check_budget(&mut self, job: JobId, (retries, until): (u32, Time), at: Time) {
        let Some(record) = self.store.job(job) else { return };
        let contact = (SimPlan::worker_index(&record.worker), record.entity);
        let spent = self.checker.guards.retries.entry(contact).or_default();
        let before = spent.iter().filter(|until| **until > at).count();
        spent.push(until);
        if before >= retries as usize {
            let detail = || format!("{before} retries of its contact count already, {retries} may");
            self.checker.fail(self.now, Invariant::BudgetRespected, About::Job(job), detail);
        }
    }

    /// An intent under a cap was recorded, or refused.
    pub(super) fn check_cap(&mut self, job: JobId, key: EffectKey, at: Time, reply: &SimReply) {
        match reply {
            SimReply::Begun(CappedBeginResult::Begun(BeginResult::Go)) => {}
            SimReply::Begun(CappedBeginResult::Refused(_)) => return self.coverage.fault(Fault::CapReached),
            _ => return,
        }
        let Some(entity) = self.store.job(job).map(|job| job.entity) else { return };
        let taken = self.checker.guards.capped.entry(entity).or_default();
        let jobs = &self.checker.jobs;
        let mails = |other: JobId| jobs.get(other.0 as usize).into_iter().flat_map(|job| job.effects_of("mail"));
        let of_key = |other: JobId| mails(other).any(|effect| effect.key == Some(key));
        if let Some(former) = taken.iter_mut().find(|(other, _)| *other != job && of_key(*other)) {
            // The event was pruned and accepted again: its effects keep their keys, and their place under the cap.
            former.0 = job;
            return;
        }
        let shown = |job: JobId| mails(job).any(|effect| effect.shown > 0);
        let within = at - MAIL_CAP.window;
        let before = taken.iter().filter(|(other, begun)| *other != job && *begun > within && shown(*other)).count();
        match taken.iter_mut().find(|(other, _)| *other == job) {
            // An effect that surely did not happen has released its place, and takes another now.
            Some(own) if !shown(job) => own.1 = at,
            Some(_) => {}
            None => taken.push((job, at)),
        }
        if before >= MAIL_CAP.max as usize {
            let detail = || format!("its entity has had {before} within the window of the cap");
            self.checker.fail(self.now, Invariant::CapsKept, About::Job(job), detail);
        }
    }

    /// The state of an approval, whenever it is read.
    pub(super) fn check_answer(&mut self, id: ApprovalId) {
        let Some(asked) = self.store.approval(id) else { return };
        if asked.state == ApprovalState::Pending {
            return;
        }
        self.coverage.fault(match asked.state {
            ApprovalState::Approved => Fault::Approved,
            _ => Fault::Rejected,
        });
        let first = *self.checker.guards.decisions.entry(id).or_insert(asked.state);
        if first != asked.state {
            let detail = || format!("{id} was {} and is {}", first.as_str(), asked.state.as_str());
            self.checker.fail(self.now, Invariant::DecisionsStand, About::Job(asked.job), detail);
        }
    }

    /// A call behind an approval is made.
    pub(super) fn look_at_approval(&mut self, call: &StepCall, worker: usize, entity: u64, label: &Arc<str>) {
        if worker != 2 || !asks_about(entity) || !matches!(step_of(label), "row" | "note") {
            return;
        }
        let Some(event) = self.store.job(call.job).and_then(|job| self.store.event_head(job.seq)) else { return };
        // An edited event is asked about again: the label of the last round counts.
        let asked = self.store.effect_states(call.job).filter(|effect| step_of(effect.step_id) == "ask");
        let last = asked.map(|effect| effect.step_id).max_by_key(|label| label.len());
        let id: ApprovalId = EffectKey::new(event.id, "notify", last.map_or("ask", |label| &**label)).into();
        let state = self.store.approval(id).map(|asked| asked.state);
        if state != Some(ApprovalState::Approved) {
            let detail = || format!("it is sent, and {id} is {}", state.map_or("not asked", ApprovalState::as_str));
            self.checker.fail(self.now, Invariant::DecisionsStand, About::Job(call.job), detail);
        }
    }

    /// A run starts: the node knows the safe modes that operators were told of, a moment after they were set.
    pub(super) fn check_safe_mode(&mut self, id: JobId, worker: &str) {
        let (at, guards) = (self.ledger_time(), &self.checker.guards);
        let forgotten = |node: &super::node::SimNode| node.safe_modes.until(worker, at).is_none();
        if guards.safe_modes.until(worker, at).is_some()
            && guards.safe_mode_since + 1_000 < self.now
            && self.node.as_deref().is_some_and(forgotten)
        {
            let detail = || "it runs while safe mode holds its worker".to_owned();
            self.checker.fail(self.now, Invariant::WaitingIsFree, About::Job(id), detail);
        }
    }

    /// At the end: a job that succeeded has done everything.
    pub(super) fn check_every_step(&mut self) {
        for job in self.store.jobs().filter(|job| job.state == JobState::Succeeded) {
            let worker = SimPlan::worker_index(&job.worker);
            let Some(revision) = self.plan.revision(&job.revision) else { continue };
            for step in revision.worker(worker).steps.iter().filter(|step| !step.action.is_internal()) {
                let Some(facts) = self.plan.facts(&step.id) else { continue };
                if facts.decided_inside || facts.continues || !condition_holds(&step.id, job.entity) {
                    continue;
                }
                let wanted = if &*step.id == "lines" { items(job.entity) as usize } else { 1 };
                let done = |effect: &sluice_ledger::memory::EffectStatus<'_>| {
                    step_of(effect.step_id) == &*step.id && EffectState::is_final(effect.state)
                };
                let count = self.store.effect_states(job.id).filter(done).count();
                if count < wanted {
                    let (id, label) = (job.id, step.id.clone());
                    let detail = || format!("it succeeded with {count} of {wanted} effects of `{label}`");
                    return self.checker.fail(self.now, Invariant::EveryStepDone, About::Job(id), detail);
                }
            }
        }
    }
}
