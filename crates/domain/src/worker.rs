//! What is done with a queue's events, step by step.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::action::{Action, BatchForm};
use crate::contact::MergedWrite;
use crate::cron::Schedule;
use crate::job::EffectKey;
use crate::mutant::Mutant;
use crate::outcome::EffectClass;
use crate::random::Random;
use crate::record::NewJob;
use crate::retry::RetryPolicy;
use crate::run::StepRoute;
use crate::safe_mode::SafeMode;
use crate::template::{Expression, Scope, Secrets, Template, TemplateProblem};
use crate::time::Time;
use crate::unit::Rate;

/// Where jobs wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub name: String,
    /// How long one attempt may take before it is given up and its outcome counts as unknown.
    pub visibility_timeout: Duration,
    /// How long a job may wait here. Older ones become dead letters; in a dead-letter queue they
    /// are dropped, with an audit line.
    pub retention: Duration,
    /// Where jobs go that failed for good.
    pub dead_letter_queue: Option<Arc<str>>,
}

impl Queue {
    /// How long an attempt may take, unless the queue says otherwise.
    pub const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(90);
    /// How long jobs are kept, unless the queue says otherwise.
    pub const RETENTION: Duration = Duration::from_secs(14 * 86_400);
}

/// What is done with a queue's events.
#[derive(Clone, Debug)]
pub struct Worker {
    pub name: String,
    /// The queue that it consumes.
    pub queue: String,
    /// Calls in flight at once at each destination, at the most.
    pub concurrency: u32,
    /// When a failed step is tried again.
    pub retry: RetryPolicy,
    /// What is done, in this order.
    pub steps: Vec<Step>,
    /// What takes effects back when a later step has failed for good: those of the last step first.
    pub undo: Vec<Step>,
    /// The type of event that it is bound to, for a playbook.
    pub on: Option<String>,
    /// When it runs by the clock.
    pub schedule: Option<Schedule>,
    /// What it does otherwise in safe mode.
    pub safe_mode: SafeMode,
}

/// One line of a worker.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, unique in its worker. Part of the effect's key.
    pub id: Arc<str>,
    /// Run only if this is true.
    pub condition: Option<Expression>,
    /// What it does.
    pub action: Action,
    pub destination: Arc<str>,
    pub with: Template,
    /// What happens when its outcome is unknown.
    pub class: EffectClass,
    /// How its calls for several jobs share a request; `None` if each has a request of its own.
    pub batch: Option<BatchForm>,
    /// A blind effect whose author accepts that it may happen twice.
    pub resend_allowed: bool,
    /// Its own retry policy, where it differs from the worker's.
    pub retry: Option<RetryPolicy>,
    /// Whether jobs of one entity keep their order here.
    pub order: LaneOrder,
    /// Done once for each item of this list.
    pub foreach: Option<Foreach>,
    /// How far apart two items are.
    pub pace: Option<Pace>,
    /// What happens when it has failed for good.
    pub on_error: OnError,
    /// The place of the step whose effect it takes back, for a step of [`Worker::undo`].
    pub undoes: Option<usize>,
    /// What has to hold before its effect happens.
    pub policies: Vec<Arc<str>>,
    /// Writes the merged state of the contact instead of the values of the event.
    pub merged: Option<MergedWrite>,
    /// The step whose question to a person it announces.
    pub announces: Option<Arc<str>>,
    /// Identity fields that its output supplies for an event without an identity. Only of a lookup in front of every other action.
    pub identity: Vec<(String, Template)>,
}

/// What a step is done for, one by one.
#[derive(Clone, Debug)]
pub struct Foreach {
    pub list: Expression,
    /// The `queue_pull` step whose messages the list is, if it is that.
    pub pulled_by: Option<String>,
}

impl Foreach {
    /// Items of one step, at the most.
    pub const ITEMS_MAX: usize = 1_000;
}

/// How far apart two items of a step are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// So many in so long, evenly spread.
    pub rate: Rate,
    /// And by chance so much more, from the least to the most.
    pub jitter: (Duration, Duration),
}

/// What happens to a job when a step of it has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// What was done is undone, as far as steps say how, and the job is a dead letter.
    #[default]
    Fail,
    /// The job goes on with the next step.
    Continue,
    /// The job is a dead letter at once, and nothing is undone.
    Dead,
}

/// Whether the order of jobs of one entity matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// One at a time, first come first served; a failing one holds those behind it.
    Fifo,
    /// Any order, any number at once.
    None,
}

impl Worker {
    /// A new job of this worker. Its internal steps run first; the caller sets a better route where it knows one.
    pub fn new_job(&self) -> NewJob {
        NewJob {
            worker: Arc::from(self.name.as_str()),
            queue: Arc::from(self.queue.as_str()),
            dead_letter_queue: self.retry.dead_letter_queue.clone(),
            route: StepRoute::internal(),
        }
    }

    /// The policy for the step in this place.
    pub fn retry_for(&self, place: u32) -> &RetryPolicy {
        self.step_at(place).and_then(|step| step.retry.as_ref()).unwrap_or(&self.retry)
    }

    /// How many steps there are before the end.
    pub fn end(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// The step in this place of a job. The places behind the end are those of [`Worker::undo`].
    pub fn step_at(&self, place: u32) -> Option<&Step> {
        match place.checked_sub(self.end() + 1) {
            None => self.steps.get(place as usize),
            Some(undo) => self.undo.get(undo as usize),
        }
    }

    /// Where the step that takes effects back first stands.
    pub(crate) fn undo_from(&self) -> u32 {
        self.end() + 1
    }

    /// Lookups in front of every other action, if one of them may supply the identity of an event; else none.
    pub fn identity_lookups(&self) -> &[Step] {
        let leading = self.steps.iter().take_while(|step| step.action.is_lookup()).count();
        let lookups = &self.steps[..leading];
        match lookups.iter().rposition(|step| !step.identity.is_empty()) {
            Some(last) => &lookups[..=last],
            None => &[],
        }
    }

    /// Whether a job in this place takes back what it did.
    pub fn is_undoing(&self, place: u32) -> bool {
        place > self.end()
    }

    /// The destinations where one call may carry several jobs, each with how many at the most.
    pub fn batches(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        let steps = self.steps.iter().chain(&self.undo);
        steps.filter_map(|step| Some((&step.destination, step.batch.as_ref()?.max)))
    }

    /// From this place on, the first step that reaches out.
    pub fn next_external(&self, place: u32) -> Option<&Step> {
        let rest = match self.is_undoing(place) {
            false => self.steps.get(place as usize..),
            true => self.undo.get((place - self.undo_from()) as usize..),
        };
        rest.unwrap_or_default().iter().find(|step| !step.action.is_internal())
    }
}

impl Step {
    /// Renders the parameters. One that identifies what is written is null if any expression in it is missing, null or blank:
    /// the text around it alone would be the same record, row or mark for everybody.
    pub fn render_with(&self, scope: &Scope, secrets: &dyn Secrets) -> Result<Value, TemplateProblem> {
        let Template::Map(entries) = &self.with else {
            return Ok(self.with.render(scope, secrets)?.unwrap_or(Value::Null));
        };
        let mut with = Map::with_capacity(entries.len());
        for (name, template) in entries {
            let value = match (self.action, name.as_str(), template) {
                (action, name, _) if action.identity_parameter() == Some(name) => identity(template, scope, secrets)?,
                (Action::PostgresUpsert, "values", Template::Map(columns)) => {
                    Some(self.render_columns(columns, scope, secrets)?)
                }
                _ => template.render(scope, secrets)?,
            };
            with.extend(value.map(|value| (name.clone(), value)));
        }
        Ok(Value::Object(with))
    }

    /// Renders the columns of a row; those of its key identify it.
    fn render_columns(
        &self,
        columns: &[(String, Template)],
        scope: &Scope,
        secrets: &dyn Secrets,
    ) -> Result<Value, TemplateProblem> {
        let Template::Map(entries) = &self.with else { return Ok(Value::Null) };
        let key = entries.iter().find(|(name, _)| name == "key").map(|(_, template)| template);
        let is_key = |column: &str| match key {
            Some(Template::Literal(Value::String(name))) => name == column,
            Some(Template::List(names)) => {
                names.iter().any(|name| matches!(name, Template::Literal(Value::String(name)) if name == column))
            }
            _ => false,
        };
        let mut row = Map::with_capacity(columns.len());
        for (column, template) in columns {
            let value = match is_key(column) {
                true => identity(template, scope, secrets)?,
                false => template.render(scope, secrets)?,
            };
            row.extend(value.map(|value| (column.clone(), value)));
        }
        Ok(Value::Object(row))
    }

    /// Whether a parameter is written, whatever its value.
    pub fn with_names(&self, parameter: &str) -> bool {
        matches!(&self.with, Template::Map(entries) if entries.iter().any(|(name, _)| name == parameter))
    }

    /// What its effect is called in the ledger: the step, which time it is done after it was undone, and the item.
    pub fn label(&self, round: u32, item: Option<usize>) -> Arc<str> {
        match (round, item) {
            (0, None) => self.id.clone(),
            _ => label(&self.id, round, item).into(),
        }
    }
}

/// What the effect of a step is called in the ledger.
pub fn label(step: &str, round: u32, item: Option<usize>) -> String {
    let mut label = step.to_owned();
    if round > 0 {
        label.push_str(&format!("@{}", round + 1));
    }
    if let Some(item) = item.filter(|_| !Mutant::ItemsShareOneKey.is_on()) {
        label.push_str(&format!("[{item}]"));
    }
    label
}

/// Whether a step has more to do than this one of its items.
pub fn has_more(items: usize, item: usize, is_finished: impl Fn(usize) -> bool) -> bool {
    (0..items).any(|other| other != item && !is_finished(other))
}

impl Pace {
    /// When an item may follow the ones that were begun, given when anything last became of each. It follows from what the
    /// ledger knows, so that a restart does not make it come earlier.
    ///
    /// An item that was begun itself does not wait for it: its retry policy says when it is tried again or read back, and what has
    /// to be read back must not be put off as if nothing had been tried.
    pub fn not_before(self, begun: impl Iterator<Item = (EffectKey, Time)>, key: EffectKey) -> Option<Time> {
        let Pace { rate, jitter: (least, most) } = self;
        let mut last = None;
        for (other, at) in begun {
            if other == key && !Mutant::PaceForgetsVerification.is_on() {
                return None;
            }
            last = last.max(Some(at));
        }
        let [a, b, c, d, e, f, g, h, ..] = key.0;
        let seed = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let jitter = least + most.saturating_sub(least).mul_f64(Random::seeded(seed).unit());
        Some(last? + rate.interval() + jitter)
    }
}

/// A value that identifies something; null if it is incomplete.
fn identity(template: &Template, scope: &Scope, secrets: &dyn Secrets) -> Result<Option<Value>, TemplateProblem> {
    match template.is_complete(scope)? {
        true => template.render(scope, secrets),
        false => Ok(Some(Value::Null)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_follows_the_last_one_and_does_not_wait_for_itself() {
        let key = |n| EffectKey([n; 16]);
        let pace = Pace { rate: crate::unit::rate("1/s").unwrap(), jitter: (Duration::ZERO, Duration::ZERO) };
        let begun = [(key(1), Time(5_000)), (key(2), Time(7_000))];
        assert_eq!(pace.not_before([].into_iter(), key(1)), None);
        assert_eq!(pace.not_before(begun.into_iter(), key(3)), Some(Time(8_000)));
        assert_eq!(
            pace.not_before(begun.into_iter(), key(2)),
            None,
            "it was begun: its policy says when to look again"
        );
    }

    #[test]
    fn there_is_more_until_every_other_item_is_finished() {
        assert!(has_more(3, 0, |item| item == 1));
        assert!(!has_more(3, 2, |item| item < 2));
        assert!(!has_more(1, 0, |_| false));
    }
}
