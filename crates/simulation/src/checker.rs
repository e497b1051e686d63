//! What an honest observer of the ledger and of the destinations has seen, and whether an invariant is broken by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::worker::LaneOrder;

use super::gates::Gates;
use super::guards::Guards;
use super::invariants::Invariant;
use super::plan::{EFFECTS_MAX, ENTITIES, StepPlan, WORKERS};
use super::trace::About;
use super::world::Simulation;

/// The first invariant that broke.
#[derive(Debug)]
pub(super) struct Broken {
    pub invariant: Invariant,
    pub about: About,
    pub detail: String,
    pub at: i64,
}

/// An effect, as the destination and the ledger show it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObservedEffect {
    pub key: Option<EffectKey>,
    /// How often it has come about at the destination.
    pub shown: u16,
    pub visible_at: i64,
    state: Option<EffectState>,
    /// Nobody saw the end of the last attempt, and nobody has found out since.
    unknown: bool,
    absent_reads: u8,
    /// The destination has denied it.
    pub denied: bool,
}

/// A job, as the ledger shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedJob {
    worker: usize,
    entity: u64,
    state: Option<JobState>,
    step: u32,
    tries: u32,
    replays: u32,
    gone: bool,
    /// Calls that count, at this step or item and since a person last allowed more.
    counted: u32,
    counted_for: Option<usize>,
    pub effects: [ObservedEffect; EFFECTS_MAX],
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub n: u32,
    /// Which of its worker's steps.
    pub step: Option<usize>,
    /// How a call ended.
    pub call: Option<&'static str>,
    /// What a read-back found.
    pub read: Option<&'static str>,
    pub settled: bool,
}

/// Everything that was seen.
#[derive(Debug)]
pub(super) struct Checker {
    pub broken: Option<Broken>,
    pub calls: u64,
    pub doubled_by_lies: u64,
    pub gates: Gates,
    pub guards: Guards,
    pub jobs: Vec<ObservedJob>,
    /// Live jobs that nobody replayed, by worker and entity.
    in_order: Vec<BTreeSet<JobId>>,
    shown: u64,
    unspread: u32,
    spread: u32,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker {
            broken: None,
            calls: 0,
            doubled_by_lies: 0,
            gates: Gates::default(),
            guards: Guards::default(),
            jobs: vec![ObservedJob::default()],
            in_order: vec![BTreeSet::new(); WORKERS * ENTITIES as usize],
            shown: 0,
            unspread: 0,
            spread: 0,
        }
    }
}

impl Checker {
    pub fn fail(&mut self, at: i64, invariant: Invariant, about: About, detail: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { invariant, about, detail: detail(), at });
        }
    }

    pub fn job(&mut self, id: JobId) -> &mut ObservedJob {
        let index = id.0 as usize;
        if index >= self.jobs.len() {
            self.jobs.resize(index + 1, ObservedJob::default());
        }
        &mut self.jobs[index]
    }

    /// Effects at all destinations.
    pub fn shown_total(&self) -> u64 {
        self.shown
    }

    pub fn expect_unchanged(&mut self, now: i64, shown: u64) {
        if self.shown != shown {
            let more = self.shown - shown;
            self.fail(now, Invariant::ReplaysAreBoring, About::Nothing, || {
                format!("{more} effects happened once more")
            });
        }
    }

    /// A retry was put off for so long, of so much at the most.
    pub fn retry_delay(&mut self, now: i64, about: About, delay_ms: u128, ceiling_ms: u128) {
        if delay_ms == ceiling_ms {
            self.unspread += 1;
        } else {
            self.spread += 1;
        }
        if self.unspread >= 12 && self.unspread > self.spread {
            self.fail(now, Invariant::RetriesAreSpread, about, || {
                "retries wait for exactly as long as each other".into()
            });
        }
    }
}

/// The list of those of an entity that keep their order.
fn in_order(worker: usize, entity: u64) -> usize {
    worker * ENTITIES as usize + entity as usize
}

impl Simulation {
    /// Looks at a job after something about it was committed.
    pub(super) fn look_at(&mut self, id: JobId) {
        let Some(record) = self.store.job(id) else { return };
        let (state, step, tries, replays, entity) =
            (record.state, record.step, record.attempts_total, record.replays, record.entity);
        let worker = self.plan.worker(&record.worker);
        let now = self.now;
        let sight = self.checker.job(id);
        let before = sight.state;
        let replays_before = sight.replays;
        let granted = replays != replays_before;
        if granted || step != sight.step {
            sight.counted = 0;
        }
        if tries < sight.tries {
            let before = sight.tries;
            self.checker.fail(now, Invariant::Fencing, About::Job(id), || format!("from try {before} back to {tries}"));
            return;
        }
        (sight.worker, sight.entity, sight.state, sight.step) = (worker, entity, Some(state), step);
        (sight.tries, sight.replays) = (tries, replays);
        self.trace.note(now, state.as_str(), About::Job(id), u64::from(tries) << 8 | u64::from(step));
        if let Some(before) = before {
            self.coverage.job(before, state);
            if before != state && !before.may_become(state) {
                self.checker
                    .fail(now, Invariant::LegalTransitions, About::Job(id), || format!("from {before} to {state}"));
            }
        }
        let waiting = &mut self.checker.in_order[in_order(worker, entity)];
        let is_in_order = |state: JobState, replays| state.is_live() && replays == 0;
        match (before.is_some_and(|before| is_in_order(before, replays_before)), is_in_order(state, replays)) {
            (false, true) => drop(waiting.insert(id)),
            (true, false) => drop(waiting.remove(&id)),
            _ => {}
        }
        self.look_at_effects(id, granted);
    }

    fn look_at_effects(&mut self, id: JobId, granted: bool) {
        let now = self.now;
        for effect in self.store.effect_states(id) {
            let Some(identity) = self.plan.effect_identity(effect.step_id) else { continue };
            let sight = &mut self.checker.jobs[id.0 as usize].effects[identity];
            if granted && effect.state == EffectState::NotApplied {
                // A person has looked and decided.
                (sight.unknown, sight.absent_reads) = (false, 0);
            }
            let before = sight.state.replace(effect.state);
            if before == Some(effect.state) {
                continue;
            }
            self.coverage.effect(before, effect.state);
            let (shown, denied) = (sight.shown, sight.denied);
            if matches!(effect.state, EffectState::Applied | EffectState::Skipped) {
                sight.unknown = false;
            }
            if before.is_some_and(EffectState::is_final) {
                self.checker.fail(now, Invariant::AppliedIsAbsorbing, About::Job(id), || {
                    format!("the effect of `{}` went on to {}", effect.step_id, effect.state.as_str())
                });
            } else if effect.state == EffectState::Applied && shown == 0 && !denied {
                self.checker.fail(now, Invariant::DoneMeansDone, About::Job(id), || {
                    format!("`{}` is written down as applied, and the destination does not have it", effect.step_id)
                });
            }
            if self.checker.broken.is_some() {
                return;
            }
        }
    }

    /// An attempt's end is durable, or was refused.
    pub(super) fn look_at_attempt(&mut self, id: JobId, attempt: Attempt) {
        let now = self.now;
        let Attempt { n, step, call, read, settled } = attempt;
        if !settled {
            return;
        }
        let sight = self.checker.job(id);
        let live = sight.state.is_some_and(JobState::is_live);
        if sight.tries != n || !live {
            let tries = sight.tries;
            self.checker.fail(now, Invariant::Fencing, About::Job(id), || {
                format!("the end of try {n} was written, and the job is at try {tries} or finished")
            });
            return;
        }
        if call.is_some_and(|outcome| outcome != "wait") {
            if sight.counted_for != step {
                (sight.counted, sight.counted_for) = (0, step);
            }
            sight.counted += 1;
            let counted = sight.counted;
            if counted > self.plan.attempts_max {
                let detail = || format!("{counted} attempts at one step");
                self.checker.fail(now, Invariant::AttemptsBounded, About::Job(id), detail);
            }
        }
        let Some(step) = step else { return };
        let effect = &mut self.checker.job(id).effects[step];
        match (call, read) {
            (Some("unsure" | "interrupted"), _) => (effect.unknown, effect.absent_reads) = (true, 0),
            (Some(_), _) => effect.unknown = false,
            (_, Some("absent")) => effect.absent_reads += 1,
            _ => {}
        }
    }

    /// A call leaves.
    pub(super) fn look_at_call(&mut self, id: JobId, n: u32, key: EffectKey, step: &StepPlan, item: usize) {
        self.checker.calls += 1;
        let now = self.now;
        let about = About::Job(id);
        let sight = self.checker.job(id);
        let (worker, entity, replays) = (sight.worker, sight.entity, sight.replays);
        let effect = &mut sight.effects[step.identity + item];
        let ObservedEffect { unknown, absent_reads, state, .. } = *effect;
        let first = *effect.key.get_or_insert(key);
        if first != key {
            self.checker.fail(now, Invariant::StableKeys, about, || format!("`{}` was {first} and is {key}", step.id));
        }
        if state.is_some_and(EffectState::is_final) {
            self.checker.fail(now, Invariant::AppliedIsAbsorbing, about, || format!("`{}` is sent again", step.id));
        }
        let blind = match step.class {
            EffectClass::Verifiable => absent_reads < 2,
            EffectClass::Blind => !step.repeat_allowed,
            EffectClass::Natural | EffectClass::Keyed | EffectClass::Transactional => false,
        };
        if unknown && blind {
            self.checker.fail(now, Invariant::UnknownNotRetriedBlindly, about, || {
                format!("`{}` is sent again after {absent_reads} reads did not find it", step.id)
            });
        }
        if step.class != EffectClass::Natural {
            let written = self
                .store
                .effect_states(id)
                .any(|effect| effect.key == key && effect.n == n && effect.state == EffectState::Intent);
            if !written {
                self.checker.fail(now, Invariant::IntentBeforeCall, about, || {
                    format!("try {n} of `{}` is not in the ledger", step.id)
                });
            }
        }
        if step.order == LaneOrder::Fifo && replays == 0 {
            self.look_at_order(id, worker, entity, step);
        }
    }

    /// Nobody who was accepted before, and who goes the same way, may still have to come through here.
    fn look_at_order(&mut self, id: JobId, worker: usize, entity: u64, step: &StepPlan) {
        let Some(revision) = self.store.job(id).map(|job| &job.revision) else { return };
        let steps = &self.plan.revisions[self.plan.revision_number(revision)].workers[worker].steps;
        // Behind a step without order nobody's place is kept; behind one that was passed over, which the ledger does not
        // write down, it is kept only while the lane fits into memory.
        let mut until_here = steps.iter().take_while(|other| other.identity != step.identity);
        let unordered = |other: &Arc<StepPlan>| {
            other.order == LaneOrder::None || super::plan::is_passed_over(entity, worker, other)
        };
        if until_here.any(unordered) {
            return;
        }
        let ahead = self.checker.in_order[in_order(worker, entity)].range(..id).copied();
        for other in ahead {
            let Some(record) = self.store.job(other).filter(|job| job.revision == *revision) else { continue };
            let next =
                steps[record.step as usize..].iter().find(|step| !super::plan::is_passed_over(entity, worker, step));
            if next.is_some_and(|next| next.identity == step.identity) {
                self.checker.fail(self.now, Invariant::LaneFifo, About::Job(id), || {
                    format!("`{}` of {id} is sent before that of {other}", step.id)
                });
                return;
            }
        }
    }

    /// A destination has applied something.
    pub(super) fn applied(&mut self, id: JobId, step: &StepPlan, item: usize, visible_at: i64) {
        let sight = &mut self.checker.job(id).effects[step.identity + item];
        if sight.shown == 0 {
            sight.visible_at = visible_at;
        }
        sight.shown += 1;
        let (shown, denied) = (sight.shown, sight.denied);
        self.checker.shown += 1;
        if shown > 1 && !step.repeat_allowed {
            if denied {
                self.checker.doubled_by_lies += 1;
            } else {
                self.checker.fail(self.now, Invariant::AtMostOneApplied, About::Job(id), || {
                    format!("`{}` has happened {shown} times", step.id)
                });
            }
        }
    }

    /// Nothing is kept for less long in the ledger than a destination remembers keys; so what is pruned is forgotten there.
    pub(super) fn forget_pruned(&mut self) {
        for id in 1..self.checker.jobs.len() {
            let job = &mut self.checker.jobs[id];
            if !job.gone && job.state.is_some() && self.store.job(JobId(id as i64)).is_none() {
                job.gone = true;
                let keys = job.effects.iter().filter_map(|effect| effect.key);
                keys.for_each(|key| self.destinations.forget(key));
            }
        }
    }

    /// At the end: what the ledger calls applied is at the destination.
    pub(super) fn check_truth(&mut self) {
        for id in 1..self.checker.jobs.len() {
            for effect in self.checker.jobs[id].effects {
                if effect.state == Some(EffectState::Applied) && effect.shown == 0 && !effect.denied {
                    let about = About::Job(JobId(id as i64));
                    self.checker.fail(self.now, Invariant::DoneMeansDone, about, || "applied, and not there".into());
                }
            }
        }
    }
}
