//! The modelled configuration: workers, their steps, the destinations, and how it changes from one revision to the next.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::destination::{BreakerSettings, GateSettings};
use sluice_domain::outcome::EffectClass;
use sluice_domain::policy::Cap;
use sluice_domain::random::Random;
use sluice_domain::retry::{Delay, Jitter, RetryBudget, RetryPhase, RetryPolicy};
use sluice_domain::unit;
use sluice_domain::worker::{LaneOrder, Pace, label};

/// How many workers there are.
pub(super) const WORKERS: usize = 3;
/// How many destinations there are.
pub(super) const DESTINATIONS: usize = 6;
/// Effects of one job, at the most: of its steps, and of their items.
pub(super) const EFFECTS_MAX: usize = 5;
/// Items of a step, at the most.
const ITEMS_MAX: usize = 3;
/// Who or what events are about.
pub(super) const ENTITIES: u64 = 64;
/// How long a key is remembered.
pub(super) const KEY_LIFETIME: Duration = Duration::from_secs(1_800);
/// How long jobs may wait in their queue.
pub(super) const RETENTION: Duration = Duration::from_secs(12 * 3_600);
/// How long an attempt may take.
pub(super) const VISIBILITY_TIMEOUT_MS: i64 = 90_000;

/// How long a mark counts.
pub(super) const MARK_LIFETIME: Duration = Duration::from_secs(600);
/// How many mails an entity may get.
pub(super) const MAIL_CAP: Cap = Cap { max: 4, window: Duration::from_secs(1_200) };

/// One step of a worker.
#[derive(Clone, Debug)]
pub(super) struct StepPlan {
    pub id: Arc<str>,
    /// What its effects are called: one, or one for each item.
    pub labels: Vec<Arc<str>>,
    /// Which of the worker's effects the first of them is, whatever the place of the step.
    pub identity: usize,
    pub destination: usize,
    pub class: EffectClass,
    pub repeat_allowed: bool,
    pub order: LaneOrder,
    /// Done for each item of a list, this far apart.
    pub foreach: Option<Pace>,
    /// Done only by the job that has set the mark of its entity.
    pub marked: bool,
    /// For some entities a person is asked before.
    pub asks: bool,
    /// No more than so many for an entity.
    pub cap: Option<Cap>,
}

impl StepPlan {
    /// How many items there are for an entity, if it is done for items.
    pub fn items(&self, entity: u64) -> Option<usize> {
        self.foreach.map(|_| if entity.is_multiple_of(4) { 1 + (entity / 4) as usize % ITEMS_MAX } else { 0 })
    }

    /// Whether a person is asked about this entity.
    pub fn asks_about(&self, entity: u64) -> bool {
        self.asks && entity % 8 == 3
    }
}

/// A worker in one revision.
#[derive(Clone, Debug)]
pub(super) struct WorkerPlan {
    pub name: Arc<str>,
    pub queue: Arc<str>,
    pub dead_letter_queue: &'static str,
    pub concurrency: u32,
    pub policy: RetryPolicy,
    pub steps: Vec<Arc<StepPlan>>,
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
pub(super) struct SimPlan {
    pub revisions: Vec<Revision>,
    /// Of any worker in any revision.
    pub attempts_max: u32,
    pub destinations: [Arc<str>; DESTINATIONS],
    /// The policy, the rule and the channel of caps.
    pub cap_names: [Arc<str>; 3],
}

const NATURAL: usize = 0;
const KEYED: usize = 1;
pub(super) const VERIFIABLE: usize = 2;
const BLIND: usize = 3;
const BLIND_REPEATED: usize = 4;
const TRANSACTIONAL: usize = 5;

impl SimPlan {
    pub fn new(random: &mut Random) -> SimPlan {
        let destinations = ["crm", "pay", "tickets", "mail", "chat", "warehouse"].map(Arc::from);
        let mut plan = SimPlan {
            revisions: Vec::new(),
            attempts_max: 0,
            destinations,
            cap_names: ["mails", "cap", "mail"].map(Arc::from),
        };
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

    /// Which of its worker's effects has this name; names are not used twice.
    pub fn effect_identity(&self, label: &str) -> Option<usize> {
        let steps = self.current().workers.iter().flat_map(|worker| &worker.steps);
        steps.into_iter().find_map(|step| {
            let item = step.labels.iter().position(|other| **other == *label)?;
            Some(step.identity + item)
        })
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
            steps: {
                let steps = steps.into_iter().map(Arc::new);
                if turned { steps.rev().collect() } else { steps.collect() }
            },
        };
        let contacts = worker(
            "contacts",
            "leads",
            random,
            vec![
                step("upsert", 0, NATURAL, EffectClass::Natural, LaneOrder::Fifo),
                step("ticket", 1, VERIFIABLE, EffectClass::Verifiable, LaneOrder::Fifo),
            ],
        );
        let apart = pace(random);
        let billing = worker(
            "billing",
            "orders",
            random,
            vec![
                step("charge", 0, KEYED, EffectClass::Keyed, LaneOrder::Fifo),
                StepPlan {
                    labels: (0..ITEMS_MAX).map(|item| Arc::from(label("lines", 0, Some(item)))).collect(),
                    foreach: Some(apart),
                    ..step("lines", 1, VERIFIABLE, EffectClass::Verifiable, LaneOrder::Fifo)
                },
                StepPlan { cap: Some(MAIL_CAP), ..step("mail", 4, BLIND, EffectClass::Blind, LaneOrder::None) },
            ],
        );
        let notify = worker(
            "notify",
            "leads",
            random,
            vec![
                StepPlan {
                    repeat_allowed: true,
                    marked: true,
                    ..step("chat", 0, BLIND_REPEATED, EffectClass::Blind, LaneOrder::None)
                },
                StepPlan { asks: true, ..step("row", 1, TRANSACTIONAL, EffectClass::Transactional, LaneOrder::Fifo) },
                step("note", 2, NATURAL, EffectClass::Natural, LaneOrder::Fifo),
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

fn step(id: &str, identity: usize, destination: usize, class: EffectClass, order: LaneOrder) -> StepPlan {
    StepPlan {
        id: Arc::from(id),
        labels: vec![Arc::from(label(id, 0, None))],
        identity,
        destination,
        class,
        repeat_allowed: false,
        order,
        foreach: None,
        marked: false,
        asks: false,
        cap: None,
    }
}

fn pace(random: &mut Random) -> Pace {
    let rate = ["10/s", "1/s", "6/min"][random.below(3) as usize];
    Pace { rate: unit::rate(rate).expect("it is a rate"), jitter: (Duration::ZERO, Duration::from_secs(2)) }
}

fn policy(random: &mut Random) -> RetryPolicy {
    let budget = random.chance(0.5).then(|| RetryBudget {
        retries: 3 + random.below(8) as u32,
        window: Duration::from_secs(60 + random.below(1_800)),
    });
    let standard = RetryPolicy { budget, ..RetryPolicy::standard() };
    match random.below(3) {
        0 => standard,
        1 => RetryPolicy {
            jitter: Jitter::Equal,
            max_attempts: 4,
            phases: vec![
                RetryPhase { retries: 1, delay: Delay::Immediate },
                RetryPhase { retries: u32::MAX, delay: Delay::Fixed { delay: Duration::from_secs(5) } },
            ],
            ..standard
        },
        _ => RetryPolicy { max_attempts: 5, retry_after_cap: Duration::from_secs(600), ..standard },
    }
}

/// Whether a step need not be done for an entity: the same for all events about it, so that they keep one path.
pub(super) fn is_passed_over(entity: u64, worker: usize, step: &StepPlan) -> bool {
    (entity * 7 + worker as u64 * 3 + step.identity as u64).is_multiple_of(11) || step.items(entity) == Some(0)
}
