//! What is done with a queue's events, step by step.

use std::time::Duration;

use crate::action::Action;
use crate::outcome::EffectClass;
use crate::retry::RetryPolicy;
use crate::template::{Expression, Template};

/// Where jobs wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// How long one attempt may take before it is given up and its outcome counts as unknown.
    pub visibility_timeout: Duration,
    /// How long a job may wait here. Older ones become dead letters; in a dead-letter queue they
    /// are dropped, with an audit line.
    pub retention: Duration,
    /// Where jobs go that failed for good.
    pub dead_letter_queue: Option<String>,
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
    /// Its name.
    pub name: String,
    /// The queue that it consumes.
    pub queue: String,
    /// Jobs in flight at once, at the most.
    pub concurrency: u32,
    /// When a failed step is tried again.
    pub retry: RetryPolicy,
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// One line of a worker.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, unique in its worker. Part of the effect's key.
    pub id: String,
    /// Run only if this is true.
    pub condition: Option<Expression>,
    /// What it does.
    pub action: Action,
    /// Where.
    pub destination: String,
    /// With what.
    pub with: Template,
    /// What happens when its outcome is unknown.
    pub class: EffectClass,
    /// A blind effect whose author accepts that it may happen twice.
    pub repeat_allowed: bool,
    /// Its own retry policy, where it differs from the worker's.
    pub retry: Option<RetryPolicy>,
    /// Whether jobs of one entity keep their order here.
    pub order: Order,
}

/// Whether the order of jobs of one entity matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One at a time, first come first served; a failing one holds those behind it.
    Fifo,
    /// Any order, any number at once.
    None,
}

impl Worker {
    /// The policy for this step.
    pub fn retry_for(&self, step: usize) -> &RetryPolicy {
        self.steps.get(step).and_then(|step| step.retry.as_ref()).unwrap_or(&self.retry)
    }
}
