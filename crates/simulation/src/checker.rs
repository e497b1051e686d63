//! Observes the ledger and the destinations from outside, and tells when an invariant is violated.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::hash::Map;
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::{BATCH_REJECTED, EffectClass};
use sluice_domain::run::StepCall;
use sluice_domain::worker::LaneOrder;

use super::call_budget::CountedCalls;
use super::edits::Edits;
use super::gates::Gates;
use super::guards::Guards;
use super::invariants::Invariant;
use super::people::{LANES, People, lane_number};
use super::plan::{LOOKED_UP, SimPlan, WORKERS, condition_holds, items, step_of};
use super::records::Record;
use super::trace::About;
use super::watching::Told;
use super::world::Simulation;

/// The first violation.
#[derive(Debug)]
pub(super) struct Broken {
    pub invariant: Invariant,
    pub about: About,
    pub detail: String,
    pub at: i64,
}

/// An effect as the destination and the ledger show it.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedEffect {
    label: Arc<str>,
    pub key: Option<EffectKey>,
    /// How often it was applied at the destination.
    pub shown: u16,
    pub visible_at: i64,
    pub state: Option<EffectState>,
    /// The outcome of the last attempt is unknown, and was not found out since.
    unknown: bool,
    absent_reads: u8,
    /// The outcome of some attempt was unknown.
    was_unknown: bool,
    /// The destination has denied it.
    pub denied: bool,
    /// What was sent of a lookup in its first call.
    looked_up: Option<Value>,
}

/// A job as the ledger shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedJob {
    worker: usize,
    entity: u64,
    state: Option<JobState>,
    step: u32,
    attempts_total: u32,
    replays: u32,
    gone: bool,
    /// Its write was compared with the record: it does not keep its order among live jobs.
    rechecked: bool,
    /// Calls that count, at one effect and since the last replay.
    counted: u32,
    counted_for: Arc<str>,
    effects: Vec<ObservedEffect>,
}

impl ObservedJob {
    /// The effect with this label.
    pub(crate) fn effect(&mut self, label: &Arc<str>) -> &mut ObservedEffect {
        let index = match self.effects.iter().position(|effect| effect.label == *label) {
            Some(index) => index,
            None => {
                self.effects.push(ObservedEffect { label: label.clone(), ..ObservedEffect::default() });
                self.effects.len() - 1
            }
        };
        &mut self.effects[index]
    }

    pub(crate) fn entity(&self) -> u64 {
        self.entity
    }

    /// Whether a confirmed write of it was compared with the record, and could not be made again.
    pub(crate) fn is_unrepaired(&self) -> bool {
        self.rechecked && self.state != Some(JobState::Succeeded)
    }

    /// The write of an effect is compared with its record.
    pub(crate) fn rechecked(&mut self, label: &Arc<str>) {
        (self.rechecked, self.counted) = (true, 0);
        self.effect(label).state = Some(EffectState::Rechecking);
    }

    /// The event was edited: lookups are made again, also for an effect of unknown outcome, which keeps its key.
    pub(crate) fn forget_lookups(&mut self) {
        self.effects.iter_mut().for_each(|effect| effect.looked_up = None);
    }

    /// How often the effects with these labels were applied at the destination, and whether one of them was denied, or refused after
    /// an attempt of unknown outcome: the ledger then takes it for not applied.
    pub(crate) fn sent(&self, is_meant: impl Fn(&str) -> bool) -> (u32, bool) {
        let meant = || self.effects.iter().filter(|effect| is_meant(&effect.label));
        (meant().map(|effect| u32::from(effect.shown)).sum(), meant().any(|effect| effect.denied || effect.was_unknown))
    }

    /// Every effect of a step: one for each item and round.
    pub(crate) fn effects_of<'a>(&'a self, step: &'a str) -> impl Iterator<Item = &'a ObservedEffect> {
        self.effects.iter().filter(move |effect| step_of(&effect.label) == step)
    }
}

/// The end of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub n: u32,
    pub label: Option<Arc<str>>,
    /// How a call ended.
    pub call: Option<&'static str>,
    /// What a read-back found.
    pub read: Option<&'static str>,
    pub settled: bool,
}

/// Everything that was observed.
#[derive(Debug)]
pub(super) struct Checker {
    pub broken: Option<Broken>,
    pub calls: u64,
    pub doubled_by_lies: u64,
    pub gates: Gates,
    pub counted_calls: CountedCalls,
    pub guards: Guards,
    pub records: Map<(Arc<str>, u64), Record>,
    pub people: People,
    pub told: Told,
    pub edits: Edits,
    pub jobs: Vec<ObservedJob>,
    /// Live jobs that were never replayed, by worker and entity.
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
            counted_calls: CountedCalls::default(),
            guards: Guards::default(),
            records: Map::default(),
            people: People::default(),
            told: Told::default(),
            edits: Edits::default(),
            jobs: vec![ObservedJob::default()],
            in_order: vec![BTreeSet::new(); WORKERS * LANES as usize],
            shown: 0,
            unspread: 0,
            spread: 0,
        }
    }
}

impl Checker {
    pub(crate) fn fail(&mut self, at: i64, invariant: Invariant, about: About, detail: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { invariant, about, detail: detail(), at });
        }
    }

    pub(crate) fn job(&mut self, id: JobId) -> &mut ObservedJob {
        let index = id.0 as usize;
        if index >= self.jobs.len() {
            self.jobs.resize(index + 1, ObservedJob::default());
        }
        &mut self.jobs[index]
    }

    /// Effects at all destinations.
    pub(crate) fn shown_total(&self) -> u64 {
        self.shown
    }

    pub(crate) fn expect_unchanged(&mut self, now: i64, shown: u64) {
        if self.shown != shown {
            let more = self.shown - shown;
            let detail = || format!("{more} effects were applied again");
            self.fail(now, Invariant::ReplaysChangeNothing, About::Nothing, detail);
        }
    }

    /// A retry was delayed by this much, of this much at the most.
    pub(crate) fn retry_delay(&mut self, now: i64, about: About, delay_ms: u128, ceiling_ms: u128) {
        if delay_ms == ceiling_ms {
            self.unspread += 1;
        } else {
            self.spread += 1;
        }
        if self.unspread >= 12 && self.unspread > self.spread {
            let detail = || "retries are delayed by exactly the same time".into();
            self.fail(now, Invariant::RetriesAreSpread, about, detail);
        }
    }
}

/// Index of the list of jobs about an entity that keep their order.
fn in_order(worker: usize, entity: u64) -> usize {
    worker * LANES as usize + lane_number(entity) as usize
}

impl Simulation {
    /// Observes a job after a commit about it.
    pub(super) fn look_at(&mut self, id: JobId) {
        let Some(record) = self.store.job(id) else { return };
        let (state, step, attempts_total, replays) = (record.state, record.step, record.attempts_total, record.replays);
        let worker = SimPlan::worker_index(&record.worker);
        // Of a merged contact whichever lane the ledger has: its jobs must keep their order.
        let (stored, lane) = (record.entity, self.checker.people.lane(record.seq));
        let entity = lane.unwrap_or(stored);
        self.check_lane(id, stored, entity);
        let now = self.now;
        let job = self.checker.job(id);
        let before = job.state;
        let replays_before = job.replays;
        let (granted, rechecked) = (replays != replays_before, job.rechecked);
        if granted || step != job.step {
            job.counted = 0;
        }
        if attempts_total < job.attempts_total {
            let before = job.attempts_total;
            let detail = || format!("from attempt {before} back to {attempts_total}");
            return self.checker.fail(now, Invariant::Fencing, About::Job(id), detail);
        }
        (job.worker, job.entity, job.state, job.step) = (worker, entity, Some(state), step);
        (job.attempts_total, job.replays) = (attempts_total, replays);
        self.trace.note(now, state.as_str(), About::Job(id), u64::from(attempts_total) << 8 | u64::from(step));
        if let Some(before) = before {
            self.coverage.job(before, state);
            if before != state && !before.may_become(state) {
                let detail = || format!("from {before} to {state}");
                self.checker.fail(now, Invariant::LegalTransitions, About::Job(id), detail);
            }
        }
        let waiting = &mut self.checker.in_order[in_order(worker, entity)];
        let is_in_order = |state: JobState, replays| state.is_live() && replays == 0 && !rechecked;
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
            if self.plan.facts(effect.step_id).is_none() {
                continue;
            }
            let seen = self.checker.jobs[id.0 as usize].effect(effect.step_id);
            if granted && effect.state == EffectState::NotApplied {
                // An operator has looked and decided.
                (seen.unknown, seen.absent_reads) = (false, 0);
            }
            let before = seen.state.replace(effect.state);
            if before == Some(effect.state) {
                continue;
            }
            self.coverage.effect(before, effect.state);
            let (shown, denied) = (seen.shown, seen.denied);
            if effect.state.is_final() {
                seen.unknown = false;
            }
            let class = self.plan.facts(effect.step_id).map(|facts| facts.class);
            if let (true, Some(class)) = (effect.state.is_replaced(), class) {
                self.checker.effect_replaced(now, id, (class, before), effect.state);
            } else if before.is_some_and(EffectState::is_final) {
                let detail = || format!("the effect of `{}` went on to {}", effect.step_id, effect.state.as_str());
                self.checker.fail(now, Invariant::AppliedIsAbsorbing, About::Job(id), detail);
            } else if effect.state == EffectState::Applied && shown == 0 && !denied {
                let detail = || format!("`{}` is recorded as applied, and the destination lacks it", effect.step_id);
                self.checker.fail(now, Invariant::DoneMeansDone, About::Job(id), detail);
            }
            if self.checker.broken.is_some() {
                return;
            }
        }
    }

    /// The end of an attempt is durable, or was refused.
    pub(super) fn look_at_attempt(&mut self, id: JobId, attempt: Attempt) {
        let now = self.now;
        let Attempt { n, label, call, read, settled } = attempt;
        if !settled {
            return;
        }
        let attempts_max = self.plan.attempts_max;
        let job = self.checker.job(id);
        let live = job.state.is_some_and(JobState::is_live);
        if job.attempts_total > n || !live {
            let attempts_total = job.attempts_total;
            let detail =
                || format!("the end of attempt {n} was written; the job is at attempt {attempts_total} or finished");
            return self.checker.fail(now, Invariant::Fencing, About::Job(id), detail);
        }
        let Some(label) = label else { return };
        if call.is_some_and(|outcome| !["wait", BATCH_REJECTED].contains(&outcome)) {
            if job.counted_for != label {
                (job.counted, job.counted_for) = (0, label.clone());
            }
            job.counted += 1;
            let counted = job.counted;
            if counted > attempts_max {
                let detail = || format!("{counted} attempts at one step");
                self.checker.fail(now, Invariant::AttemptsBounded, About::Job(id), detail);
            }
        }
        if let Some(outcome) = call.filter(|_| self.plan.facts(&label).is_some_and(|facts| facts.upsert)) {
            self.create_answered(id, outcome);
        }
        let facts = self.plan.facts(&label).filter(|facts| facts.class == EffectClass::Natural);
        match (facts.map(|facts| facts.merged), call, read) {
            (Some(false), Some("done"), _) | (Some(false), _, Some("present")) => self.write_confirmed(id, &label),
            (Some(false), Some("noop"), _) => self.write_declined(id, &label),
            (Some(true), Some("noop"), _) if self.checker.job(id).rechecked => self.repair_declined(id),
            // Nobody could read the record: the comparison was given up.
            (Some(is_merged), _, Some("unreadable")) if self.store.job(id).is_some_and(|job| !job.state.is_live()) => {
                match is_merged {
                    true => self.repair_declined(id),
                    false => self.write_declined(id, &label),
                }
            }
            _ => {}
        }
        let effect = self.checker.job(id).effect(&label);
        match (call, read) {
            (Some("unsure" | "interrupted"), _) => {
                (effect.unknown, effect.absent_reads, effect.was_unknown) = (true, 0, true);
            }
            (Some(_), _) => effect.unknown = false,
            (_, Some("absent")) => effect.absent_reads += 1,
            _ => {}
        }
    }

    /// A call is made.
    pub(super) fn look_at_call(&mut self, call: &StepCall, n: u32, label: &Arc<str>) {
        self.checker.calls += 1;
        let (now, id, key) = (self.now, call.job, call.effect_key);
        let about = About::Job(id);
        let Some(facts) = self.plan.facts(label).cloned() else { return };
        let job = self.checker.job(id);
        let (worker, entity, in_order) = (job.worker, job.entity, job.replays == 0 && !job.rechecked);
        let effect = job.effect(label);
        let (unknown, absent_reads, state) = (effect.unknown, effect.absent_reads, effect.state);
        let first = *effect.key.get_or_insert(key);
        if first != key {
            let detail = || format!("`{label}` was {first} and is {key}");
            self.checker.fail(now, Invariant::StableKeys, about, detail);
        }
        if state.is_some_and(EffectState::is_final) {
            self.checker.fail(now, Invariant::AppliedIsAbsorbing, about, || format!("`{label}` is sent again"));
        }
        let blind = match facts.class {
            EffectClass::Verifiable => absent_reads < 2,
            EffectClass::Blind => !facts.resend_allowed,
            EffectClass::Natural | EffectClass::Keyed | EffectClass::Transactional => false,
        };
        if unknown && blind {
            let detail = || format!("`{label}` is sent again after {absent_reads} reads did not find it");
            self.checker.fail(now, Invariant::UnknownNotRetriedBlindly, about, detail);
        }
        if facts.class != EffectClass::Natural {
            let mut effects = self.store.effect_states(id);
            let is_intent = |effect: sluice_ledger::memory::EffectStatus<'_>| {
                effect.key == key && effect.n == n && effect.state == EffectState::Intent
            };
            if !effects.any(is_intent) {
                let detail = || format!("attempt {n} of `{label}` is not in the ledger");
                self.checker.fail(now, Invariant::IntentBeforeCall, about, detail);
            }
        }
        if facts.order == LaneOrder::Fifo && in_order && !facts.undo {
            self.look_at_order(id, worker, entity, label);
        }
        self.look_at_approval(call, worker, entity, label);
        self.look_at_lookup(call, label);
    }

    /// A job sends what its first lookup found, in every call.
    fn look_at_lookup(&mut self, call: &StepCall, label: &Arc<str>) {
        let sent = call.with[LOOKED_UP].clone();
        let first = self.checker.job(call.job).effect(label).looked_up.get_or_insert_with(|| sent.clone()).clone();
        if first != sent {
            let detail = || format!("`{label}` was sent with {first} and is sent with {sent}");
            self.checker.fail(self.now, Invariant::LookupsStand, About::Job(call.job), detail);
        }
    }

    /// No job that was accepted before, and that goes the same way, may still have this call before it.
    fn look_at_order(&mut self, id: JobId, worker: usize, entity: u64, label: &str) {
        let Some(revision) = self.store.job(id).map(|job| &job.revision) else { return };
        let Some(steps) = self.plan.revision(revision).map(|revision| &revision.worker(worker).steps) else { return };
        let step = step_of(label);
        let is_done = |id: &str| condition_holds(id, entity) && (id != "lines" || items(entity) > 0);
        // Behind an unordered step, and behind an internal one, the order of jobs is not kept.
        let mut before = steps.iter().take_while(|other| &*other.id != step);
        let unordered = |other: &sluice_domain::worker::Step| {
            other.action.is_internal() || other.order == LaneOrder::None || !is_done(&other.id)
        };
        if before.any(unordered) {
            return;
        }
        let ahead = self.checker.in_order[in_order(worker, entity)].range(..id).copied();
        for other in ahead {
            let Some(record) = self.store.job(other).filter(|job| job.revision == *revision) else { continue };
            let next = steps.get(record.step as usize..).unwrap_or_default().iter().find(|step| is_done(&step.id));
            if next.is_some_and(|next| &*next.id == step) {
                let detail = || format!("`{step}` of {id} is sent before that of {other}");
                return self.checker.fail(self.now, Invariant::LaneFifo, About::Job(id), detail);
            }
        }
    }

    /// A destination has applied an effect.
    pub(super) fn applied(&mut self, id: JobId, label: &Arc<str>, visible_at: i64) {
        let resend_allowed = self.plan.facts(label).is_some_and(|facts| facts.resend_allowed);
        let effect = self.checker.job(id).effect(label);
        if effect.shown == 0 {
            effect.visible_at = visible_at;
        }
        effect.shown += 1;
        let (shown, denied) = (effect.shown, effect.denied);
        self.checker.shown += 1;
        self.check_sent_once(id, label);
        if shown > 1 && !resend_allowed {
            if denied {
                self.checker.doubled_by_lies += 1;
            } else {
                let detail = || format!("`{label}` was applied {shown} times");
                self.checker.fail(self.now, Invariant::AtMostOneApplied, About::Job(id), detail);
            }
        }
    }

    /// Destinations remember keys for longer than the ledger keeps events; what is pruned here is forgotten there.
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

    /// At the end: what the ledger calls applied is at the destination, and what a dead job did is undone.
    pub(super) fn check_truth(&mut self) {
        for id in 1..self.checker.jobs.len() {
            let about = About::Job(JobId(id as i64));
            for effect in &self.checker.jobs[id].effects {
                if effect.state == Some(EffectState::Applied) && effect.shown == 0 && !effect.denied {
                    let detail = || "applied, and not at the destination".into();
                    return self.checker.fail(self.now, Invariant::DoneMeansDone, about, detail);
                }
            }
            self.check_undone(JobId(id as i64));
        }
        self.check_records();
        self.check_people();
    }

    /// A job of `billing` that is dead has no charge without a refund, unless it says that it could not undo it.
    fn check_undone(&mut self, id: JobId) {
        let job = &self.checker.jobs[id.0 as usize];
        if job.worker != 1 || job.state != Some(JobState::Dead) {
            return;
        }
        let count = |step, is: fn(EffectState) -> bool| {
            job.effects_of(step).filter(|effect| effect.state.is_some_and(is)).count()
        };
        // A refund that has nothing to do is one too.
        let charged = count("charge", |state| state == EffectState::Applied);
        let refunded = count("refund", EffectState::is_final);
        let Some(record) = self.store.job(id) else { return };
        let failed = record
            .result
            .as_ref()
            .is_some_and(|result| result["not_undone"].as_array().is_some_and(|steps| !steps.is_empty()));
        if charged > refunded && !failed {
            let detail = || format!("it is dead with {charged} charges and {refunded} refunds");
            self.checker.fail(self.now, Invariant::DeadIsUndone, About::Job(id), detail);
        }
    }
}
