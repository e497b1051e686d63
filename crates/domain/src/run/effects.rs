//! The effects of a job, as the ledger has them and as this run changed them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::event::EventId;
use crate::job::{EffectKey, EffectState};
use crate::outcome::Failure;
use crate::record::EffectRecord;
use crate::time::Time;
use crate::worker::{OnError, Step, Worker};

/// What a run needs to know of one effect.
#[derive(Clone, Debug)]
pub(super) struct EffectEntry {
    pub state: EffectState,
    pub result: Option<Arc<Value>>,
    pub last_at: Time,
    /// Reads that did not find the effect since the last attempt, and reads in all.
    pub reads: (u32, u32),
}

/// The effects of a job by their keys.
#[derive(Clone, Debug)]
pub(super) struct JobEffects {
    event: EventId,
    worker: Arc<str>,
    effects: HashMap<EffectKey, EffectEntry, foldhash::fast::FixedState>,
    /// Keys of the effects that the ledger has, by their labels: they need not be derived again. Empty if there are many.
    known: Vec<(String, EffectKey)>,
    /// Few jobs have an effect that another one replaces: others need no search for it.
    has_replaced: bool,
}

/// Among so many labels one is found sooner than its key is derived.
const KNOWN_MAX: usize = 16;

impl JobEffects {
    pub(super) fn new(event: EventId, worker: &Arc<str>, mut effects: Vec<EffectRecord>) -> JobEffects {
        let entry = |effect: EffectRecord| EffectEntry {
            state: effect.state,
            result: effect.result,
            last_at: effect.last_at,
            reads: (effect.absent_reads, effect.reads),
        };
        let has_replaced = effects.iter().any(|effect| effect.state.is_replaced());
        let label = |effect: &mut EffectRecord| (std::mem::take(&mut effect.step_id), effect.key);
        let known = if effects.len() <= KNOWN_MAX { effects.iter_mut().map(label).collect() } else { vec![] };
        let effects = effects.into_iter().map(|effect| (effect.key, entry(effect))).collect();
        JobEffects { event, worker: worker.clone(), effects, known, has_replaced }
    }

    /// The effect key of a label.
    pub(super) fn key(&self, label: &str) -> EffectKey {
        let known = self.known.iter().find(|(known, _)| known == label);
        known.map_or_else(|| EffectKey::new(self.event, &self.worker, label), |(_, key)| *key)
    }

    /// The label of one item of a step. Applied again at the request of an operator, it is another effect.
    pub(super) fn item_label(&self, step: &Step, item: usize) -> Arc<str> {
        if !self.has_replaced {
            return step.label(0, Some(item));
        }
        let round = (0..).find(|round| !self.is_replaced(&step.label(*round, Some(item)))).unwrap_or(0);
        step.label(round, Some(item))
    }

    /// The effect key of one item of a step.
    pub(super) fn item_key(&self, step: &Step, item: usize) -> EffectKey {
        self.key(&self.item_label(step, item))
    }

    /// Whether an effect of the step, or of one item of it, is known to have written its record: it was applied and an operator asked to
    /// apply it again, or it left the id of the record.
    pub(super) fn has_written(&self, step: &Step, item: Option<usize>) -> bool {
        let rounds = (0..).map(|round| self.get(self.key(&step.label(round, item)))).take_while(Option::is_some);
        rounds.flatten().any(|entry| {
            let id = entry.result.as_deref().and_then(|result| result.get("id"));
            entry.state == EffectState::Superseded || id.is_some_and(|id| !id.is_null())
        })
    }

    fn is_replaced(&self, label: &str) -> bool {
        self.has_replaced && self.get(self.key(label)).is_some_and(|entry| entry.state.is_replaced())
    }

    pub(super) fn get(&self, key: EffectKey) -> Option<&EffectEntry> {
        self.effects.get(&key)
    }

    /// The effect whose record is compared with it: at most one.
    pub(super) fn rechecking(&self) -> Option<EffectKey> {
        self.effects.iter().find(|(_, entry)| entry.state == EffectState::Rechecking).map(|(key, _)| *key)
    }

    pub(super) fn put(&mut self, key: EffectKey, entry: EffectEntry) {
        self.effects.insert(key, entry);
    }

    fn is_final(&self, label: &str) -> bool {
        self.get(self.key(label)).is_some_and(|entry| entry.state.is_final())
    }

    /// How often the effect of this step was undone or replaced. Done again, it is another effect.
    pub(super) fn round(&self, worker: &Worker, place: usize) -> u32 {
        let undo = worker.undo.iter().find(|undo| undo.undoes == Some(place));
        if undo.is_none() && !self.has_replaced {
            return 0;
        }
        let is_over = |round: u32| {
            let is_undone = undo.is_some_and(|undo| self.is_final(&undo.label(round, None)));
            is_undone || worker.steps.get(place).is_some_and(|step| self.is_replaced(&step.label(round, None)))
        };
        (0..).find(|round| !is_over(*round)).unwrap_or(0)
    }

    /// Whether the effect of this step has to be undone: it is applied, or may be.
    pub(super) fn is_to_undo(&self, worker: &Worker, place: usize) -> bool {
        let Some(step) = worker.steps.get(place) else { return false };
        let entry = self.get(self.key(&step.label(self.round(worker, place), None)));
        entry.is_some_and(|entry| {
            matches!(entry.state, EffectState::Applied | EffectState::Unknown | EffectState::Rechecking)
        })
    }

    /// Whether nothing is left to do under this key.
    pub(super) fn is_finished(&self, step: &Step, key: EffectKey) -> bool {
        self.get(key).is_some_and(|entry| {
            entry.state.is_final() || (step.on_error == OnError::Continue && has_error(entry.result.as_deref()))
        })
    }

    /// The output of a finished step, from the last round it was done in.
    pub(super) fn output(&self, worker: &Worker, place: usize, step: &Step) -> Option<Arc<Value>> {
        let last = self.round(worker, place);
        let mut keys = (0..=last).rev().map(|round| self.key(&step.label(round, None)));
        keys.find_map(|key| self.output_of(step, key))
    }

    /// The output recorded under this key.
    pub(super) fn output_of(&self, step: &Step, key: EffectKey) -> Option<Arc<Value>> {
        let entry = self.get(key)?;
        let output = || Some(entry.result.clone().unwrap_or_default());
        match entry.state {
            EffectState::Applied | EffectState::Rechecking => output(),
            _ if self.is_finished(step, key) && has_error(entry.result.as_deref()) => output(),
            _ => None,
        }
    }

    /// The outputs of all items of a step; null for those that were passed over.
    pub(super) fn list(&self, step: &Step, items: usize) -> Value {
        let of = |item| self.output_of(step, self.item_key(step, item)).as_deref().cloned().unwrap_or_default();
        Value::Array((0..items).map(of).collect())
    }
}

/// The output of a step that failed with `on_error: continue`.
pub(super) fn error_output(failure: &Failure) -> Value {
    json!({ "error": failure })
}

fn has_error(result: Option<&Value>) -> bool {
    result.is_some_and(|result| result.get("error").is_some())
}
