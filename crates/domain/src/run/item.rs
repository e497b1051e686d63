//! The next item of a step: the step itself, or one item of its list, and whether it is due.

use std::sync::Arc;

use serde_json::Value;

use super::JobRun;
use crate::job::EffectKey;
use crate::mutant::Mutant;
use crate::outcome::{Failure, FailureClass};
use crate::template::{Scope, TemplateProblem};
use crate::time::Time;
use crate::worker::{Foreach, Step, Worker, has_more};

/// What is done next in a step.
#[derive(Clone, Debug)]
pub(super) struct StepItem {
    pub worker: Arc<Worker>,
    pub place: u32,
    /// Label of the effect, and the key made of it.
    pub label: Arc<str>,
    pub key: EffectKey,
    /// Index of the item and how many there are, for a step with a list.
    pub index: Option<(usize, usize)>,
}

impl StepItem {
    pub(super) fn step(&self) -> &Step {
        self.worker.step_at(self.place).expect("an item is made from the step at its place")
    }
}

/// What a step comes to before it is attempted.
#[derive(Debug)]
pub(super) enum NextItem {
    Do(StepItem),
    /// Not due before this time of the ledger's clock.
    NotBefore(Time),
    /// Nothing left to do, with the output of a step that has a list.
    Pass(Option<Value>),
}

impl JobRun {
    /// Finds the next item of a step. Its expressions see the item from here on.
    pub(super) fn next_item(&mut self, worker: &Arc<Worker>, step: &Step, at: Time) -> Result<NextItem, Failure> {
        let round = match step.undoes {
            Some(place) if !self.effects.is_to_undo(worker, place) => return Ok(NextItem::Pass(None)),
            Some(place) => self.effects.round(worker, place),
            None => self.effects.round(worker, self.job.step as usize),
        };
        let Some(foreach) = &step.foreach else {
            return Ok(match holds(step, &self.scope)? {
                true => NextItem::Do(self.item(worker, step.label(round, None), None)),
                false => NextItem::Pass(None),
            });
        };
        let items = items(step, foreach, &self.scope)?;
        let count = items.len();
        for (index, value) in items.into_iter().enumerate() {
            let item = self.item(worker, self.effects.item_label(step, index), Some((index, count)));
            if self.effects.is_finished(step, item.key) {
                continue;
            }
            self.scope.set("item", value);
            self.scope.set("index", Value::from(index));
            if holds(step, &self.scope)? {
                return Ok(match self.not_before(step, &item) {
                    Some(due) if due > at => NextItem::NotBefore(due),
                    _ => NextItem::Do(item),
                });
            }
        }
        Ok(NextItem::Pass(Some(self.effects.list(step, count))))
    }

    pub(super) fn item(&self, worker: &Arc<Worker>, label: Arc<str>, index: Option<(usize, usize)>) -> StepItem {
        let key = match self.job.replays {
            replays @ 1.. if Mutant::ReplayWithNewKeys.is_on() => self.effects.key(&format!("{label}{replays}")),
            _ => self.effects.key(&label),
        };
        StepItem { worker: worker.clone(), place: self.job.step, key, label, index }
    }

    /// When the pace of the step allows an item.
    fn not_before(&self, step: &Step, item: &StepItem) -> Option<Time> {
        let (_, items) = item.index?;
        let begun = (0..items).filter_map(|item| {
            let key = self.effects.item_key(step, item);
            Some((key, self.effects.get(key)?.last_at))
        });
        step.pace?.not_before(begun, item.key)
    }

    /// Whether a step has items left beside this one.
    pub(super) fn has_more(&self, item: &StepItem) -> bool {
        let step = item.step();
        item.index.is_some_and(|(index, items)| {
            has_more(items, index, |other| self.effects.is_finished(step, self.effects.item_key(step, other)))
        })
    }
}

/// Whether the condition of a step holds.
pub(super) fn holds(step: &Step, scope: &Scope) -> Result<bool, Failure> {
    let condition = step.condition.as_ref().map_or(Ok(true), |condition| condition.holds(scope));
    condition.map_err(|problem| mapping_failure("condition", format!("step `{}`: if: {problem}", step.id)))
}

/// The items of a step; none if the list is missing.
pub fn items(step: &Step, foreach: &Foreach, scope: &Scope) -> Result<Vec<Value>, Failure> {
    let failed =
        |problem: TemplateProblem| mapping_failure("foreach", format!("step `{}`: foreach: {problem}", step.id));
    match foreach.list.evaluate(scope).map_err(failed)? {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::Array(items)) if items.len() <= Foreach::ITEMS_MAX => Ok(items),
        Some(Value::Array(items)) => Err(mapping_failure(
            "too-many-items",
            format!("step `{}`: foreach: there are {} items; {} are allowed", step.id, items.len(), Foreach::ITEMS_MAX),
        )),
        Some(_) => Err(mapping_failure(
            "foreach",
            format!("step `{}`: foreach: `{}` is not a list", step.id, foreach.list.source()),
        )),
    }
}

fn mapping_failure(code: &str, message: String) -> Failure {
    Failure::new(FailureClass::Mapping, code, message)
}
