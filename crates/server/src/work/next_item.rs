//! Whose turn it is within a step: the step itself, or one item of its list; and whether it is time.

use std::sync::Arc;

use serde_json::Value;
use sluice_domain::job::EffectKey;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::{Scope, TemplateProblem};
use sluice_domain::time::Time;
use sluice_domain::worker::{Foreach, Step, Worker, has_more};

use super::run::JobRun;

/// What is to be done now in a step.
#[derive(Clone, Debug)]
pub(super) struct StepItem {
    /// What its effect is called.
    pub label: Arc<str>,
    /// And for ever.
    pub key: EffectKey,
    /// The item and how many there are.
    pub item: Option<(usize, usize)>,
}

/// What a step comes to before it is tried.
#[derive(Debug)]
pub(super) enum NextItem {
    /// This is to be done.
    Do(StepItem),
    /// It is not time yet, by the wall clock.
    NotYet(Time),
    /// Nothing is to be done, or nothing more; this is what it left, if anything.
    Pass(Option<Value>),
}

impl JobRun<'_> {
    /// Looks for what is to be done in a step. The item is visible to its expressions from here on.
    pub fn turn(&self, worker: &Worker, step: &Step, scope: &mut Scope) -> Result<NextItem, Failure> {
        let round = match step.undoes {
            Some(place) if !self.books.is_to_undo(worker, place) => return Ok(NextItem::Pass(None)),
            Some(place) => self.books.round(worker, place),
            None => self.books.round(worker, self.job.step as usize),
        };
        let Some(foreach) = &step.foreach else {
            let label = step.label(round, None);
            return match holds(step, scope)? {
                true => Ok(NextItem::Do(self.named(label, None))),
                false => Ok(NextItem::Pass(None)),
            };
        };
        let items = items(step, foreach, scope)?;
        for (index, item) in items.iter().enumerate() {
            let turn = self.named(step.label(0, Some(index)), Some((index, items.len())));
            if self.books.is_finished(step, turn.key) {
                continue;
            }
            scope.set("item", item.clone());
            scope.set("index", Value::from(index));
            if holds(step, scope)? {
                return Ok(match self.not_before(step, &turn) {
                    Some(due) if due > self.context.clock.wall() => NextItem::NotYet(due),
                    _ => NextItem::Do(turn),
                });
            }
        }
        Ok(NextItem::Pass(Some(self.books.list(step, items.len()))))
    }

    fn named(&self, label: Arc<str>, item: Option<(usize, usize)>) -> StepItem {
        StepItem { key: self.books.key(&label), label, item }
    }

    /// When an item may follow the ones that were done.
    fn not_before(&self, step: &Step, turn: &StepItem) -> Option<Time> {
        let (_, items) = turn.item?;
        let begun = (0..items).filter_map(|item| {
            let key = self.books.item(step, item);
            Some((key, self.books.entry(key)?.last_at))
        });
        step.pace?.not_before(begun, turn.key)
    }

    /// Whether a step has more to do than this item.
    pub fn has_more(&self, step: &Step, turn: &StepItem) -> bool {
        turn.item.is_some_and(|(index, items)| {
            has_more(items, index, |other| self.books.is_finished(step, self.books.item(step, other)))
        })
    }
}

fn holds(step: &Step, scope: &Scope) -> Result<bool, Failure> {
    let condition = step.condition.as_ref().map_or(Ok(true), |condition| condition.holds(scope));
    condition.map_err(|problem| of_mapping("condition", format!("step `{}`: if: {problem}", step.id)))
}

/// The items of a step. What is not there has none.
pub fn items(step: &Step, foreach: &Foreach, scope: &Scope) -> Result<Vec<Value>, Failure> {
    let failed = |problem: TemplateProblem| of_mapping("foreach", format!("step `{}`: foreach: {problem}", step.id));
    match foreach.list.evaluate(scope).map_err(failed)? {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::Array(items)) if items.len() <= Foreach::ITEMS_MAX => Ok(items),
        Some(Value::Array(items)) => Err(of_mapping(
            "too-many-items",
            format!("step `{}`: foreach: there are {} items; {} are allowed", step.id, items.len(), Foreach::ITEMS_MAX),
        )),
        Some(_) => Err(of_mapping(
            "foreach",
            format!("step `{}`: foreach: `{}` is not a list", step.id, foreach.list.source()),
        )),
    }
}

fn of_mapping(code: &str, message: String) -> Failure {
    Failure::new(FailureClass::Mapping, code, message)
}
