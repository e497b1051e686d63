//! What the ledger knows of a job's effects, by what they are called.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, EffectState};
use sluice_domain::outcome::Failure;
use sluice_domain::worker::{OnError, Step, Worker};
use sluice_ledger::EffectRecord;

/// What is known of one effect.
#[derive(Clone, Debug)]
pub(super) struct EffectEntry {
    pub state: EffectState,
    pub result: Option<Arc<Value>>,
    pub last_at: sluice_domain::time::Time,
}

/// The effects of a job.
#[derive(Clone, Debug)]
pub(super) struct JobEffects {
    event: EventId,
    worker: Arc<str>,
    effects: HashMap<EffectKey, EffectEntry>,
}

impl JobEffects {
    pub fn new(event: EventId, worker: &Arc<str>, effects: Vec<EffectRecord>) -> JobEffects {
        let entry =
            |effect: EffectRecord| EffectEntry { state: effect.state, result: effect.result, last_at: effect.last_at };
        let effects = effects.into_iter().map(|effect| (effect.key, entry(effect))).collect();
        JobEffects { event, worker: worker.clone(), effects }
    }

    /// The name for ever of what is called so.
    pub fn key(&self, label: &str) -> EffectKey {
        EffectKey::new(self.event, &self.worker, label)
    }

    /// The same of one item of a step.
    pub fn item(&self, step: &Step, item: usize) -> EffectKey {
        self.key(&step.label(0, Some(item)))
    }

    pub fn entry(&self, key: EffectKey) -> Option<&EffectEntry> {
        self.effects.get(&key)
    }

    pub fn put(&mut self, key: EffectKey, entry: EffectEntry) {
        self.effects.insert(key, entry);
    }

    fn is_final(&self, label: &str) -> bool {
        self.entry(self.key(label)).is_some_and(|entry| entry.state.is_final())
    }

    /// How often what this step does was taken back: done again, it is another effect.
    pub fn round(&self, worker: &Worker, place: usize) -> u32 {
        let Some(undo) = worker.undo.iter().find(|undo| undo.undoes == Some(place)) else { return 0 };
        (0..).find(|round| !self.is_final(&undo.label(*round, None))).unwrap_or(0)
    }

    /// Whether the effect of this step has to be taken back: it is there, or nobody knows.
    pub fn is_to_undo(&self, worker: &Worker, place: usize) -> bool {
        let Some(step) = worker.steps.get(place) else { return false };
        let entry = self.entry(self.key(&step.label(self.round(worker, place), None)));
        entry.is_some_and(|entry| matches!(entry.state, EffectState::Applied | EffectState::Unknown))
    }

    /// Whether there is nothing left to do of what is called so.
    pub fn is_finished(&self, step: &Step, key: EffectKey) -> bool {
        self.entry(key).is_some_and(|entry| {
            entry.state.is_final() || (step.on_error == OnError::Continue && error_in(entry.result.as_deref()))
        })
    }

    /// What a finished step left, when it was done last.
    pub fn output(&self, worker: &Worker, place: usize, step: &Step) -> Option<Arc<Value>> {
        let last = self.round(worker, place);
        let mut keys = (0..=last).rev().map(|round| self.key(&step.label(round, None)));
        keys.find_map(|key| self.left(step, key))
    }

    /// What was left under this name.
    pub fn left(&self, step: &Step, key: EffectKey) -> Option<Arc<Value>> {
        let entry = self.entry(key)?;
        let left = || Some(entry.result.clone().unwrap_or_default());
        match entry.state {
            EffectState::Applied => left(),
            _ if self.is_finished(step, key) && error_in(entry.result.as_deref()) => left(),
            _ => None,
        }
    }

    /// What every item of a step left; null for those that were passed over.
    pub fn list(&self, step: &Step, items: usize) -> Value {
        let of = |item| self.left(step, self.item(step, item)).as_deref().cloned().unwrap_or_default();
        Value::Array((0..items).map(of).collect())
    }
}

/// As the output of a step that failed and did not stop the job.
pub(super) fn error_output(failure: &Failure) -> Value {
    json!({ "error": failure })
}

fn error_in(result: Option<&Value>) -> bool {
    result.is_some_and(|result| result.get("error").is_some())
}
