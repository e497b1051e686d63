//! The simulated configuration: real workers, policies and queues, and how they change from one revision to the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::action::{Action, BatchForm};
use sluice_domain::call_budget::{BudgetWindow, CallBudgetSettings};
use sluice_domain::config::{Config, Revision};
use sluice_domain::contact::MergedWrite;
use sluice_domain::destination::{BreakerSettings, Destination, DestinationKind, GateSettings, HttpDestination};
use sluice_domain::hash::Map;
use sluice_domain::outcome::EffectClass;
use sluice_domain::policy::{
    Cap, ConsentDefault, ConsentSource, Policy, QuietAction, QuietHours, Rule, RuleKind, Suppression, TimeOfDay, zone,
};
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::random::Random;
use sluice_domain::retry::{Delay, Jitter, RetryBudget, RetryPhase, RetryPolicy};
use sluice_domain::run::ConfigRevision;
use sluice_domain::safe_mode::SafeMode;
use sluice_domain::template::{Expression, Secrets, Template};
use sluice_domain::unit;
use sluice_domain::verify::SecretValue;
use sluice_domain::worker::{Foreach, LaneOrder, OnError, Pace, Queue, Step, Worker};

use super::people::FIELDS;

pub(super) const WORKERS: usize = 7;
pub(super) const DESTINATIONS: usize = 7;
/// Jobs in one call, at the most.
const BATCH_MAX: u32 = 4;
/// Items of a step, at the most.
const ITEMS_MAX: u64 = 3;
/// Entities that events are about.
pub(super) const ENTITIES: u64 = 64;
pub(super) const KEY_LIFETIME: Duration = Duration::from_secs(1_800);
/// Retention of the queues of most workers, and of the one whose jobs expire.
const RETENTION: Duration = Duration::from_secs(12 * 3_600);
const RETENTION_SHORT: Duration = Duration::from_secs(15 * 60);
/// Time-out of an attempt.
pub(super) const VISIBILITY_TIMEOUT_MS: i64 = 90_000;
/// How long after its time-out a call may still be applied.
pub(super) const STRAGGLER_HORIZON: Duration = Duration::from_secs(60);
/// Window of the budget of the tickets.
pub(super) const BUDGET_WINDOW: Duration = Duration::from_secs(240);
pub(super) const MARK_TTL: Duration = Duration::from_secs(600);
/// Cap of mails to one entity.
pub(super) const MAIL_CAP: Cap = Cap { max: 4, window: Duration::from_secs(1_200) };
pub(super) const DEAD_LETTER_QUEUE: &str = "dead";
/// The worker that requeues dead letters.
pub(super) const SWEEP: usize = 4;
/// The worker that writes the merged states of persons.
pub(super) const PROFILES: usize = 5;
/// The worker whose records have an identity at a system without idempotency.
pub(super) const ACCOUNTS: usize = 6;
/// Identities of these records: entities share them.
pub(super) const IDENTITIES: u64 = 24;
pub(super) const CONSENT_PURPOSE: &str = "news";

pub(super) const CRM: usize = 0;
pub(super) const PAY: usize = 1;
pub(super) const TICKETS: usize = 2;
pub(super) const MAIL: usize = 3;
const CHAT: usize = 4;
pub(super) const WAREHOUSE: usize = 5;
/// Makes a record of every create.
const LEGACY: usize = 6;

const DESTINATION_NAMES: [&str; DESTINATIONS] = ["crm", "pay", "tickets", "mail", "chat", "warehouse", "legacy"];
pub(super) const WORKER_NAMES: [&str; WORKERS] =
    ["contacts", "billing", "notify", "preferences", "sweep", "profiles", "accounts"];
const QUEUES: [&str; WORKERS] = ["leads", "orders", "chats", "consents", "sweeps", "persons", "accounts"];

/// One revision of the configuration.
#[derive(Clone, Debug)]
pub(super) struct SimRevision {
    pub run: ConfigRevision,
    pub gates: [GateSettings; DESTINATIONS],
}

impl SimRevision {
    pub(crate) fn worker(&self, index: usize) -> &Arc<Worker> {
        &self.run.config.workers[WORKER_NAMES[index]]
    }
}

/// Parameter with the identity of the record of an upsert.
pub(super) const IDENTITY: &str = "identity";

/// Parameter with what a lookup of the job has found.
pub(super) const LOOKED_UP: &str = "looked_up";

/// What the checker knows of the external steps, by their ids. Ids are unique over all workers.
#[derive(Clone, Debug)]
pub(super) struct StepFacts {
    pub destination: usize,
    pub class: EffectClass,
    pub order: LaneOrder,
    pub resend_allowed: bool,
    /// Whether it is done depends on the output of an internal step, or on a failure.
    pub decided_inside: bool,
    /// Its record can be compared with what was written, and its calls may be applied late.
    pub compares: bool,
    /// It writes the merged state of a contact.
    pub merged: bool,
    pub undo: bool,
    pub continues: bool,
    /// It looks for its record and creates it if there is none.
    pub upsert: bool,
}

/// Every revision so far; the last one is active.
#[derive(Debug)]
pub(super) struct SimPlan {
    pub revisions: Vec<SimRevision>,
    /// Of any worker in any revision.
    pub attempts_max: u32,
    pub destinations: [Arc<str>; DESTINATIONS],
    /// Of the tickets, in every revision.
    pub budget: Option<CallBudgetSettings>,
    steps: Map<&'static str, StepFacts>,
}

#[derive(Debug)]
struct NoSecrets;

impl Secrets for NoSecrets {
    fn secret(&self, _: &str) -> Option<&SecretValue> {
        None
    }
}

impl SimPlan {
    pub(crate) fn new(random: &mut Random) -> SimPlan {
        let mut plan = SimPlan {
            revisions: Vec::new(),
            attempts_max: 0,
            destinations: DESTINATION_NAMES.map(Arc::from),
            budget: random.chance(0.5).then(|| budget(random)),
            steps: step_facts(random.chance(0.5)),
        };
        plan.revise(random);
        plan
    }

    pub(crate) fn active(&self) -> &SimRevision {
        self.revisions.last().expect("there is a first revision")
    }

    pub(crate) fn revision(&self, name: &str) -> Option<&SimRevision> {
        self.revisions.get(name.strip_prefix('r')?.parse::<usize>().ok()?)
    }

    pub(crate) fn worker_index(name: &str) -> usize {
        WORKER_NAMES.iter().position(|other| *other == name).unwrap_or(0)
    }

    pub(crate) fn destination_index(&self, name: &str) -> Option<usize> {
        DESTINATION_NAMES.iter().position(|other| *other == name)
    }

    /// The facts of the external step that an effect label belongs to; `None` for an internal step.
    pub(crate) fn facts(&self, label: &str) -> Option<&StepFacts> {
        self.steps.get(step_of(label))
    }

    /// Activates another revision: other limits, other policies, steps in another order.
    pub(crate) fn revise(&mut self, random: &mut Random) {
        let number = self.revisions.len();
        let reversed = number % 2 == 1;
        let workers: Vec<Arc<Worker>> =
            (0..WORKERS).map(|index| Arc::new(worker(index, reversed, self, random))).collect();
        self.attempts_max = workers.iter().map(|worker| worker.retry.max_attempts).fold(self.attempts_max, u32::max);
        let config = Config {
            revision: Revision(format!("r{number}")),
            queues: QUEUES.iter().map(|name| ((*name).to_owned(), queue(name))).collect(),
            workers: workers.into_iter().map(|worker| (worker.name.clone(), worker)).collect(),
            destinations: [CRM, LEGACY].map(late_destination).into(),
            policies: BTreeMap::from([("mails".to_owned(), Arc::new(policy()))]),
            ..Config::default()
        };
        let name = Arc::from(config.revision.0.as_str());
        let pseudonyms = PseudonymKey::public();
        let run = ConfigRevision { name, config: Arc::new(config), secrets: Arc::new(NoSecrets), pseudonyms };
        self.revisions.push(SimRevision { run, gates: gates(random, self.budget.clone()) });
    }
}

impl SimPlan {
    /// Activates the steps of an older revision again, as a revision of its own.
    pub(crate) fn roll_back(&mut self, random: &mut Random) {
        let older = random.below(self.revisions.len() as u64 - 1) as usize;
        let number = self.revisions.len();
        let mut revision = self.revisions[older].clone();
        revision.run.name = Arc::from(format!("r{number}"));
        self.revisions.push(revision);
    }
}

/// The id of the step that an effect label belongs to: without its round and its item.
pub(super) fn step_of(label: &str) -> &str {
    let end = label.bytes().position(|byte| matches!(byte, b'@' | b'['));
    end.map_or(label, |end| &label[..end])
}

/// The external steps as (id, worker, destination, class).
const STEPS: [(&str, usize, usize, EffectClass); 12] = [
    ("upsert", 0, CRM, EffectClass::Natural),
    ("ticket", 0, TICKETS, EffectClass::Verifiable),
    ("charge", 1, PAY, EffectClass::Keyed),
    ("lines", 1, TICKETS, EffectClass::Verifiable),
    ("mail", 1, MAIL, EffectClass::Blind),
    ("refund", 1, PAY, EffectClass::Keyed),
    ("chat", 2, CHAT, EffectClass::Blind),
    ("row", 2, WAREHOUSE, EffectClass::Transactional),
    ("note", 2, CRM, EffectClass::Natural),
    ("sync", 3, CRM, EffectClass::Natural),
    ("profile", PROFILES, CRM, EffectClass::Natural),
    ("account", ACCOUNTS, LEGACY, EffectClass::Verifiable),
];

/// In half of the runs the records of contacts can be compared.
fn step_facts(profile_compares: bool) -> Map<&'static str, StepFacts> {
    let facts = |(id, _, destination, class): (&'static str, usize, usize, EffectClass)| {
        let unordered = matches!(id, "mail" | "chat");
        let facts = StepFacts {
            destination,
            class,
            order: if unordered { LaneOrder::None } else { LaneOrder::Fifo },
            resend_allowed: id == "chat",
            decided_inside: matches!(id, "chat" | "sync" | "refund"),
            compares: matches!(id, "upsert" | "sync") || (id == "profile" && profile_compares),
            merged: id == "profile",
            undo: id == "refund",
            continues: id == "note",
            upsert: id == "account",
        };
        (id, facts)
    };
    STEPS.into_iter().map(facts).collect()
}

/// Whether the condition of a step holds for an entity: the same for all events about it.
pub(super) fn condition_holds(id: &str, entity: u64) -> bool {
    let index = STEPS.iter().position(|(other, ..)| *other == id).unwrap_or(0) as u64;
    // The conditions of these read outputs of internal steps, or always hold.
    matches!(id, "refund" | "chat" | "sync" | "profile") || !(entity * 7 + index * 3).is_multiple_of(11)
}

/// How many items the list of an entity has.
pub(super) fn items(entity: u64) -> u64 {
    if entity.is_multiple_of(4) { 1 + (entity / 4) % ITEMS_MAX } else { 0 }
}

/// Whether an approval is asked for this entity.
pub(super) fn asks_about(entity: u64) -> bool {
    entity % 8 == 3
}

/// The identity of a record with this number.
pub(super) fn identity(number: u64) -> String {
    format!("a{number}")
}

/// The attributes of an event about an entity: what conditions, lists and templates read. Without a note, the step `note`
/// cannot be rendered.
pub(super) fn attributes(entity: u64, with_note: bool) -> Value {
    let mut attributes = json!({
        "items": (0..items(entity)).collect::<Vec<u64>>(),
        "ask": asks_about(entity),
        "who": format!("e{entity}@example.org"),
        "granted": !entity.is_multiple_of(3),
        "account_id": identity(entity % IDENTITIES),
    });
    for (id, ..) in STEPS {
        attributes[id] = Value::Bool(condition_holds(id, entity));
    }
    if with_note {
        attributes["text"] = json!("hello");
    }
    attributes
}

fn worker(index: usize, reversed: bool, plan: &SimPlan, random: &mut Random) -> Worker {
    let external = |id: &str| external(id, plan);
    let mut undo = Vec::new();
    let mut steps = match index {
        0 => vec![external("upsert"), external("ticket")],
        1 => {
            undo.push(Step { undoes: Some(if reversed { 2 } else { 0 }), condition: None, ..external("refund") });
            let list = Foreach { list: expression("event.items"), pulled_by: None };
            let mail = Step { policies: vec![Arc::from("mails")], ..external("mail") };
            vec![external("charge"), Step { foreach: Some(list), pace: Some(pace(random)), ..external("lines") }, mail]
        }
        2 => {
            let marked = Some(expression("steps.once.output.set"));
            let note = Template::Map(vec![
                ("text".to_owned(), text_template("{{ event.text }}")),
                (LOOKED_UP.to_owned(), Template::Expression(expression("steps.place.output.value"))),
            ]);
            vec![
                internal("once", Action::StoreSetnx, once_parameters(), None),
                Step { resend_allowed: true, condition: marked, ..external("chat") },
                internal("ask", Action::ApprovalRequest, ask_parameters(random), Some("event.ask")),
                external("row"),
                internal("place", Action::EnrichGeoip, Template::Literal(json!({ "ip": "203.0.113.7" })), None),
                Step { on_error: OnError::Continue, with: note, ..external("note") },
            ]
        }
        3 => {
            let allowed = Some(expression("steps.may.output.allowed"));
            let granted = Template::Map(vec![
                ("granted".to_owned(), Template::Expression(expression("event.granted"))),
                ("contact".to_owned(), Template::Expression(expression("event.who"))),
                ("purpose".to_owned(), Template::Literal(json!(CONSENT_PURPOSE))),
            ]);
            vec![
                internal("agree", Action::ConsentSet, granted, None),
                internal("may", Action::PolicyCheck, Template::Literal(json!({ "policy": "mails" })), None),
                Step { condition: allowed, ..external("sync") },
            ]
        }
        PROFILES => {
            let field = |name: &&str| ((*name).to_owned(), Template::Expression(expression(&format!("event.{name}"))));
            let fields = Template::Map(FIELDS.iter().map(field).collect());
            let id = Template::Expression(expression("event.email"));
            let with = Template::Map(vec![("external_id".to_owned(), id), ("fields".to_owned(), fields)]);
            let merged = Some(MergedWrite { parameter: "fields", all_fields: reversed });
            vec![Step { with, merged, ..external("profile") }]
        }
        ACCOUNTS => {
            let identity = Template::Expression(expression("event.account_id"));
            let with = Template::Map(vec![(IDENTITY.to_owned(), identity)]);
            vec![Step { with, ..external("account") }]
        }
        _ => {
            let pull = json!({ "from": DEAD_LETTER_QUEUE, "max_messages": 5, "max_replays": 2 });
            let list = Foreach { list: expression("steps.pull.output.messages"), pulled_by: Some("pull".to_owned()) };
            let requeue = Template::Map(vec![
                ("name".to_owned(), Template::Literal(json!("leads"))),
                ("body".to_owned(), Template::Expression(expression("event.attributes"))),
            ]);
            let requeue = internal("requeue", Action::Queue, requeue, None);
            vec![
                internal("pull", Action::QueuePull, Template::Literal(pull), None),
                Step { foreach: Some(list), ..requeue },
            ]
        }
    };
    // Steps that read the outputs of others keep their order.
    if reversed && index < 2 {
        steps.reverse();
    }
    Worker {
        name: WORKER_NAMES[index].to_owned(),
        queue: QUEUES[index].to_owned(),
        concurrency: 1 + random.below(12) as u32,
        retry: retry_policy(random),
        steps,
        undo,
        on: None,
        schedule: None,
        safe_mode: SafeMode { hold: true, ..SafeMode::default() },
    }
}

fn external(id: &str, plan: &SimPlan) -> Step {
    let facts = plan.facts(id).expect("every external step has its facts");
    let has_batches = matches!(id, "upsert" | "ticket" | "charge" | "mail" | "chat" | "row" | "profile");
    let identity = if facts.merged { "external_id" } else { "who" };
    Step {
        batch: has_batches.then(|| BatchForm::new(BATCH_MAX, &[], &[identity])),
        destination: plan.destinations[facts.destination].clone(),
        class: facts.class,
        order: facts.order,
        ..internal(
            id,
            action_of(facts),
            Template::Map(vec![("who".to_owned(), Template::Expression(expression("event.who")))]),
            Some(&format!("event.{id}")),
        )
    }
}

fn action_of(facts: &StepFacts) -> Action {
    match facts {
        StepFacts { upsert: true, .. } => Action::HttpUpsert,
        StepFacts { compares: true, .. } => Action::SalesforceUpsert,
        _ => Action::HttpRequest,
    }
}

fn internal(id: &str, action: Action, with: Template, condition: Option<&str>) -> Step {
    Step {
        id: Arc::from(id),
        condition: condition.map(expression),
        action,
        destination: Arc::from(""),
        with,
        class: EffectClass::Transactional,
        batch: None,
        resend_allowed: false,
        retry: None,
        order: LaneOrder::Fifo,
        foreach: None,
        pace: None,
        on_error: OnError::Fail,
        undoes: None,
        policies: vec![],
        announces: None,
        identity: vec![],
        merged: None,
    }
}

fn once_parameters() -> Template {
    Template::Map(vec![
        ("store".to_owned(), Template::Literal(json!("chats"))),
        ("key".to_owned(), Template::Expression(expression("event.who"))),
        ("ttl_seconds".to_owned(), Template::Literal(json!(MARK_TTL.as_secs()))),
    ])
}

fn ask_parameters(random: &mut Random) -> Template {
    let default = if random.chance(0.5) { "approve" } else { "reject" };
    let expires = format!("{}s", 20 + random.below(900));
    Template::Literal(json!({ "title": "may it?", "expires": expires, "default": default }))
}

fn expression(source: &str) -> Expression {
    Expression::parse(source).expect("the simulated configuration is valid")
}

fn text_template(text: &str) -> Template {
    // One expression alone may be missing; within a text it must have a value.
    Template::parse_text(&format!("{text}.")).expect("the simulated configuration is valid")
}

fn queue(name: &str) -> Queue {
    Queue {
        name: name.to_owned(),
        visibility_timeout: Duration::from_millis(VISIBILITY_TIMEOUT_MS as u64),
        retention: if matches!(name, "chats" | "accounts") { RETENTION_SHORT } else { RETENTION },
        dead_letter_queue: Some(Arc::from(DEAD_LETTER_QUEUE)),
    }
}

/// Where calls may be applied after their time-out.
fn late_destination(index: usize) -> (String, Destination) {
    let name = DESTINATION_NAMES[index].to_owned();
    let destination = Destination {
        name: name.clone(),
        kind: DestinationKind::Http(HttpDestination::default()),
        timeout: Duration::from_millis(VISIBILITY_TIMEOUT_MS as u64),
        straggler_horizon: Some(STRAGGLER_HORIZON),
        batch_max: None,
        failure_rules: vec![],
        gate: GateSettings::default(),
    };
    (name, destination)
}

/// Every kind of rule.
fn policy() -> Policy {
    let quiet = QuietHours {
        from: TimeOfDay(23 * 60),
        to: TimeOfDay(60),
        zone: None,
        fallback: zone("UTC").expect("UTC is a time zone"),
        action: QuietAction::Wait,
    };
    let consent =
        RuleKind::Consent { from: ConsentSource::Table(Arc::from(CONSENT_PURPOSE)), default: ConsentDefault::Allow };
    let rule = |name: &str, kind| Rule { name: Arc::from(name), kind };
    Policy {
        name: Arc::from("mails"),
        contact: vec![expression("event.who")],
        channel: Arc::from("mail"),
        rules: vec![
            rule("when", RuleKind::When(expression("event.mail"))),
            rule("consent", consent),
            rule("suppression", RuleKind::Suppression(Suppression::default())),
            rule("quiet_hours", RuleKind::QuietHours(quiet)),
            rule("cap", RuleKind::Cap(MAIL_CAP)),
        ],
    }
}

/// So few calls that they are used up at times.
fn budget(random: &mut Random) -> CallBudgetSettings {
    CallBudgetSettings {
        calls: Some(16 + random.below(48)),
        window: BudgetWindow::Rolling(BUDGET_WINDOW),
        reserve_percent: 30,
    }
}

fn gates(random: &mut Random, budget: Option<CallBudgetSettings>) -> [GateSettings; DESTINATIONS] {
    let mut gate = |concurrency_max: u32, rate: Option<&str>| GateSettings {
        concurrency_max: concurrency_max + random.below(6) as u32,
        rate: rate.and_then(|rate| unit::rate(rate).ok()),
        burst: 1 + random.below(8) as u32,
        breaker: BreakerSettings { failures_in_a_row: 4 + random.below(6) as u32, ..BreakerSettings::default() },
        budget: None,
    };
    let mut gates = [
        gate(6, Some("50/s")),
        gate(4, None),
        gate(4, None),
        gate(4, Some("20/s")),
        gate(2, None),
        gate(8, None),
        gate(6, None),
    ];
    gates[TICKETS].budget = budget;
    gates
}

fn pace(random: &mut Random) -> Pace {
    let rate = ["10/s", "1/s", "6/min"][random.below(3) as usize];
    Pace { rate: unit::rate(rate).expect("it is a rate"), jitter: (Duration::ZERO, Duration::from_secs(2)) }
}

fn retry_policy(random: &mut Random) -> RetryPolicy {
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
