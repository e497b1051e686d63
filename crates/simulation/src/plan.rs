//! The modelled configuration: workers, their steps, the destinations, and how it changes from one revision to the next.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::destination::{BreakerSettings, GateSettings};
use sluice_domain::outcome::EffectClass;
use sluice_domain::random::Random;
use sluice_domain::retry::{Delay, Jitter, Phase, RetryPolicy};
use sluice_domain::unit;
use sluice_domain::worker::Order;

/// How many workers there are.
pub(super) const WORKERS: usize = 3;
/// How many destinations there are.
pub(super) const DESTINATIONS: usize = 6;
/// Steps of one worker, at the most.
pub(super) const STEPS_MAX: usize = 3;
/// Who or what events are about.
pub(super) const ENTITIES: u64 = 64;
/// How long a key is remembered.
pub(super) const KEY_LIFETIME: Duration = Duration::from_secs(1_800);
/// How long jobs may wait in their queue.
pub(super) const RETENTION: Duration = Duration::from_secs(12 * 3_600);
/// How long an attempt may take.
pub(super) const VISIBILITY_TIMEOUT_MS: i64 = 90_000;

/// One step of a worker.
#[derive(Clone, Debug)]
pub(super) struct StepPlan {
    pub id: Arc<str>,
    /// Which of the worker's steps it is, whatever its place.
    pub identity: usize,
    pub destination: usize,
    pub class: EffectClass,
    pub repeat_allowed: bool,
    pub order: Order,
}

/// A worker in one revision.
#[derive(Clone, Debug)]
pub(super) struct WorkerPlan {
    pub name: Arc<str>,
    pub queue: Arc<str>,
    pub dead_letter_queue: &'static str,
    pub concurrency: u32,
    pub policy: RetryPolicy,
    pub steps: Vec<StepPlan>,
}

/// One revision of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub name: Arc<str>,
    pub workers: [WorkerPlan; WORKERS],
    pub gates: [GateSettings; DESTINATIONS],
}

/// Every revision so far; the last one is in force.
#[derive(Debug)]
pub(super) struct Plan {
    pub revisions: Vec<Revision>,
    /// Of any worker in any revision.
    pub attempts_max: u32,
    pub destinations: [Arc<str>; DESTINATIONS],
}

const NATURAL: usize = 0;
const KEYED: usize = 1;
pub(super) const VERIFIABLE: usize = 2;
const BLIND: usize = 3;
const BLIND_REPEATED: usize = 4;
const TRANSACTIONAL: usize = 5;

impl Plan {
    pub fn new(random: &mut Random) -> Plan {
        let destinations = ["crm", "pay", "tickets", "mail", "chat", "warehouse"].map(Arc::from);
        let mut plan = Plan { revisions: Vec::new(), attempts_max: 0, destinations };
        plan.revise(random);
        plan
    }

    pub fn current(&self) -> &Revision {
        self.revisions.last().expect("there is a first revision")
    }

    /// Which revision has this name.
    pub fn revision_number(&self, name: &str) -> usize {
        name[1..].parse().expect("revisions are named by their numbers")
    }

    /// Which worker has this name.
    pub fn worker(&self, name: &str) -> usize {
        self.current().workers.iter().position(|worker| *worker.name == *name).unwrap_or(0)
    }

    /// Which of its worker's steps has this name; names are not used twice.
    pub fn step_identity(&self, id: &str) -> Option<usize> {
        let steps = self.current().workers.iter().flat_map(|worker| &worker.steps);
        steps.into_iter().find(|step| *step.id == *id).map(|step| step.identity)
    }

    /// Puts another revision in force: other limits, other policies, steps in another order.
    pub fn revise(&mut self, random: &mut Random) {
        let number = self.revisions.len();
        let turned = number % 2 == 1;
        let worker = |name: &str, queue: &str, random: &mut Random, steps: Vec<StepPlan>| WorkerPlan {
            name: Arc::from(name),
            queue: Arc::from(queue),
            dead_letter_queue: "dead",
            concurrency: 1 + random.below(12) as u32,
            policy: policy(random),
            steps: if turned { steps.into_iter().rev().collect() } else { steps },
        };
        let contacts = worker(
            "contacts",
            "leads",
            random,
            vec![
                step("upsert", 0, NATURAL, EffectClass::Natural, Order::Fifo),
                step("ticket", 1, VERIFIABLE, EffectClass::Verifiable, Order::Fifo),
            ],
        );
        let billing = worker(
            "billing",
            "orders",
            random,
            vec![
                step("charge", 0, KEYED, EffectClass::Keyed, Order::Fifo),
                step("mail", 1, BLIND, EffectClass::Blind, Order::None),
            ],
        );
        let notify = worker(
            "notify",
            "leads",
            random,
            vec![
                StepPlan { repeat_allowed: true, ..step("chat", 0, BLIND_REPEATED, EffectClass::Blind, Order::None) },
                step("row", 1, TRANSACTIONAL, EffectClass::Transactional, Order::Fifo),
                step("note", 2, NATURAL, EffectClass::Natural, Order::Fifo),
            ],
        );
        let gate = |concurrency_max: u32, rate: Option<&str>, random: &mut Random| GateSettings {
            concurrency_max: concurrency_max + random.below(6) as u32,
            rate: rate.and_then(|rate| unit::rate(rate).ok()),
            burst: 1 + random.below(8) as u32,
            breaker: BreakerSettings { failures_in_a_row: 4 + random.below(6) as u32, ..BreakerSettings::default() },
        };
        let gates = [
            gate(6, Some("50/s"), random),
            gate(4, None, random),
            gate(4, None, random),
            gate(4, Some("20/s"), random),
            gate(2, None, random),
            gate(8, None, random),
        ];
        let workers = [contacts, billing, notify];
        self.attempts_max = workers.iter().map(|worker| worker.policy.max_attempts).fold(self.attempts_max, u32::max);
        self.revisions.push(Revision { name: Arc::from(format!("r{number}")), workers, gates });
    }
}

fn step(id: &str, identity: usize, destination: usize, class: EffectClass, order: Order) -> StepPlan {
    StepPlan { id: Arc::from(id), identity, destination, class, repeat_allowed: false, order }
}

fn policy(random: &mut Random) -> RetryPolicy {
    let standard = RetryPolicy::standard();
    match random.below(3) {
        0 => standard,
        1 => RetryPolicy {
            jitter: Jitter::Equal,
            max_attempts: 4,
            phases: vec![
                Phase { retries: 1, delay: Delay::Immediate },
                Phase { retries: u32::MAX, delay: Delay::Fixed { delay: Duration::from_secs(5) } },
            ],
            ..standard
        },
        _ => RetryPolicy { max_attempts: 5, retry_after_cap: Duration::from_secs(600), ..standard },
    }
}

/// Whether a step need not be done for an entity: the same for all events about it, so that they keep one path.
pub(super) fn is_passed_over(entity: u64, worker: usize, step: &StepPlan) -> bool {
    (entity * 7 + worker as u64 * 3 + step.identity as u64).is_multiple_of(11)
}
