use std::collections::BTreeMap;

use super::*;
use crate::action::Action;
use crate::config::Config;
use crate::contact::{
    ContactId, ContactState, ContactView, ContactWrite, MergedWrite, Observation, ObservedValue, WriteRecord, WriteSlot,
};
use crate::destination::{Destination, DestinationKind, GateSettings, HttpDestination};
use crate::enrich::{Lookup, LookupResult};
use crate::event::{Audit, Event, EventId};
use crate::job::{EffectKey, JobId, Term};
use crate::key::KeyDigest;
use crate::ops::{BeginResult, CappedBeginResult, ChargeResult, StepResult};
use crate::outcome::{EffectClass, Outcome, Readback};
use crate::pseudonym::PseudonymKey;
use crate::record::EffectRecord;
use crate::retry::RetryPolicy;
use crate::safe_mode::SafeMode;
use crate::template::{Expression, Secrets, Template};
use crate::time::Time;
use crate::verify::SecretValue;
use crate::worker::{Foreach, LaneOrder, OnError};
use serde_json::{Map, json};

mod compare;
mod enrich;
mod identify;
mod upsert;

struct NoSecrets;

impl Secrets for NoSecrets {
    fn secret(&self, _: &str) -> Option<&SecretValue> {
        None
    }
}

pub(super) const NOW: RunContext = RunContext {
    now: Time(1_000),
    at: Time(1_000),
    wall: Time(1_000),
    term: Term(7),
    safe_mode_until: None,
    record_first: false,
    at_boot: Time(-1_000_000),
};

pub(super) fn step(id: &str, destination: &str, class: EffectClass) -> Step {
    Step {
        id: id.into(),
        condition: None,
        action: Action::HttpRequest,
        destination: destination.into(),
        with: Template::Literal(Value::Null),
        class,
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

fn when(condition: &str, step: Step) -> Step {
    Step { condition: Some(Expression::parse(condition).unwrap()), ..step }
}

pub(super) fn worker(steps: Vec<Step>) -> Worker {
    Worker {
        name: "w".into(),
        queue: "q".into(),
        concurrency: 1,
        retry: RetryPolicy::standard(),
        steps,
        undo: vec![],
        on: None,
        schedule: None,
        safe_mode: SafeMode::default(),
    }
}

/// A job of a worker, with the answers that its commands get.
pub(super) struct Case {
    worker: Worker,
    pub loaded: LoadedJob,
    outcomes: Vec<Outcome>,
    readbacks: Vec<Readback>,
    policies: Vec<crate::policy::Policy>,
    /// Every command, by its name.
    commands: Vec<&'static str>,
    settles: Vec<Settle>,
    context: RunContext,
    /// The contact of the event, as the ledger has it.
    contact: Option<ContactView>,
    /// Parameters of every call.
    sent: Vec<Value>,
    /// Parameters of every read-back.
    read: Vec<Value>,
    /// Results of skipped effects.
    skipped: Vec<Value>,
    /// Answers to lookups.
    lookups: Vec<LookupResult>,
    made: Vec<Lookup>,
    /// Recorded results of internal steps.
    recorded: Vec<StepResult>,
    /// What another run has recorded before.
    first_recorded: Option<Value>,
    /// Identities of the effects that were begun.
    identities: Vec<String>,
    /// The outcome of another effect of the identity is open.
    identity_busy: bool,
    /// Id of the record of the identity.
    remembered: Option<Value>,
    /// Records of the calls.
    sent_records: Vec<Option<Value>>,
}

/// `crm`, where a call may be applied a minute after its time-out.
fn destinations() -> std::collections::BTreeMap<String, Destination> {
    let crm = Destination {
        name: "crm".into(),
        kind: DestinationKind::Http(HttpDestination::default()),
        timeout: Duration::from_secs(1),
        straggler_horizon: Some(Duration::from_secs(60)),
        batch_max: None,
        gate: GateSettings::default(),
        failure_rules: vec![],
    };
    [(crm.name.clone(), crm)].into()
}

fn case(worker: Worker) -> Case {
    case_of(worker, json!({ "yes": true, "no": false }))
}

/// A job whose event has these attributes.
pub(super) fn case_of(worker: Worker, attributes: Value) -> Case {
    let event = Event {
        schema_version: "1".into(),
        event_id: "e".into(),
        event_type: "lead".into(),
        source: "s".into(),
        occurred_at: None,
        idempotency_key: "k".into(),
        identity: Map::new(),
        attributes: attributes.as_object().cloned().unwrap(),
        routing: Map::new(),
        audit: Audit { mapping_version: "1".into(), ..Audit::default() },
    };
    let new = crate::record::NewEvent::new(crate::record::EventDraft {
        flow: "f",
        source: &"s".into(),
        expires_at: Time(0),
        revision: &"r".into(),
        trace: "t",
        fingerprint: [0; 16],
        headers: "{}".into(),
        raw: b"{}".to_vec(),
        event: &event,
        jobs: vec![worker.new_job()],
    });
    let job = new.queued(&new.jobs[0], JobId(1), Time(0));
    let record = Arc::new(new.record(EventId::new(KeyDigest([1; 16]), 0)));
    let loaded = LoadedJob { job, event: record, body: new.body.clone(), effects: vec![] };
    Case {
        worker,
        loaded,
        outcomes: vec![],
        readbacks: vec![],
        policies: vec![],
        commands: vec![],
        settles: vec![],
        context: NOW,
        contact: None,
        sent: vec![],
        read: vec![],
        skipped: vec![],
        lookups: vec![],
        made: vec![],
        recorded: vec![],
        first_recorded: None,
        identities: vec![],
        identity_busy: false,
        remembered: None,
        sent_records: vec![],
    }
}

/// The configuration of a run: one revision with this worker.
pub(super) fn run_config(worker: &Worker) -> RunConfig {
    run_config_with(worker, Default::default())
}

fn run_config_with(worker: &Worker, policies: BTreeMap<String, Arc<crate::policy::Policy>>) -> RunConfig {
    let workers = [("w".to_owned(), Arc::new(worker.clone()))].into();
    let config = Config { workers, destinations: destinations(), policies, ..Config::default() };
    let active = ConfigRevision {
        name: "r".into(),
        config: Arc::new(config),
        secrets: Arc::new(NoSecrets),
        pseudonyms: PseudonymKey::public(),
    };
    RunConfig { pinned: Some(active.clone()), active }
}

impl Case {
    fn answers(mut self, outcome: Outcome) -> Case {
        self.outcomes.push(outcome);
        self
    }

    fn key(&self, label: &str) -> EffectKey {
        EffectKey::new(self.loaded.event.id, "w", label)
    }

    pub(super) fn effect(&self, label: &str, class: EffectClass, state: EffectState) -> EffectRecord {
        EffectRecord {
            job: JobId(1),
            step: 0,
            step_id: label.into(),
            key: self.key(label),
            action: "http.request".into(),
            destination: "crm".into(),
            class,
            state,
            attempts: 1,
            absent_reads: 0,
            reads: 0,
            result: Some(Arc::new(json!({ "id": label }))),
            first_at: Time(1),
            last_at: Time(2),
        }
    }

    /// The ledger has the recorded results.
    fn keep_recorded(&mut self) {
        for result in &self.recorded {
            let effect = self.effect(&result.step_id, EffectClass::Transactional, result.state);
            let result = Some(Arc::new(result.result.clone()));
            self.loaded.effects.push(EffectRecord { destination: String::new(), result, ..effect });
        }
    }

    /// Runs the job once with a slot of this destination.
    fn run(&mut self, destination: &str) -> RunResult {
        let policies = self.policies.iter().map(|policy| (policy.name.to_string(), Arc::new(policy.clone()))).collect();
        let config = run_config_with(&self.worker, policies);
        let (mut run, mut command) = JobRun::start(self.loaded.clone(), destination.into(), config, self.context);
        for _ in 0..20 {
            let input = match command {
                Command::Finish(result) => {
                    self.commands.push("finish");
                    if let RunResult::Ended { job, .. } = &*result {
                        self.loaded.job = job.clone();
                    }
                    return *result;
                }
                Command::Begin { begin, .. } => {
                    self.commands.push("begin");
                    self.identities.extend(begin.identity.map(|identity| identity.text()));
                    let begun = if self.identity_busy { BeginResult::IdentityBusy } else { BeginResult::Go };
                    Input::Begun(CappedBeginResult::Begun(begun))
                }
                Command::Call(batch) => {
                    self.commands.push("call");
                    self.sent.push(batch.calls[0].with.clone());
                    self.sent_records.push(batch.calls[0].record.clone());
                    let recorded = !matches!(batch.recording[0], Recording::IfSlow(_));
                    Input::Called { outcome: self.outcomes.remove(0), recorded }
                }
                Command::ReadBack(call) => {
                    self.commands.push("read");
                    self.read.push(call.with.clone());
                    Input::ReadBack(self.readbacks.remove(0))
                }
                Command::Settle(settle) => {
                    self.commands.push("settle");
                    self.settles.push(*settle);
                    Input::Settled(ChargeResult::Settled)
                }
                Command::ReadRecord { .. } => {
                    self.commands.push("recall");
                    Input::Record(self.remembered.clone())
                }
                Command::ReadContact { .. } => {
                    self.commands.push("contact");
                    Input::Contact(self.contact.clone().map(Box::new))
                }
                Command::Skip(skip) => {
                    self.commands.push("skip");
                    self.skipped.push(skip.result.clone());
                    Input::Skipped(true)
                }
                Command::RecordStep(result) => {
                    self.commands.push("record");
                    let recorded = self.first_recorded.take().unwrap_or_else(|| result.result.clone());
                    self.recorded.push(*result);
                    Input::Recorded(Some(recorded))
                }
                Command::LookUp(lookup) => {
                    self.commands.push("lookup");
                    self.made.push(*lookup);
                    Input::LookedUp(Box::new(self.lookups.remove(0)))
                }
                other => panic!("{other:?}"),
            };
            command = run.step(self.context, input);
        }
        panic!("the run does not end: {:?}", self.commands);
    }
}

pub(super) fn done(id: &str) -> Outcome {
    Outcome::Done { result: json!({ "id": id }) }
}

pub(super) fn rejected() -> Outcome {
    Outcome::Reject { failure: Failure::new(FailureClass::Permanent, "422", "no") }
}

fn ended(result: &RunResult) -> (JobState, String) {
    match result {
        RunResult::Ended { job, route, .. } => (job.state, route.destination.to_string()),
        other => panic!("the run ended without a state: {other:?}"),
    }
}

#[test]
fn natural_effect_is_recorded_with_its_outcome() {
    let mut case = case(worker(vec![step("a", "crm", EffectClass::Natural)])).answers(done("1"));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.commands, ["call", "settle", "finish"]);
    let settle = &case.settles[0];
    assert_eq!(settle.begin.as_ref().map(|begin| (begin.n, begin.fence.owner)), Some((1, Term(7))));
    assert_eq!((settle.settlement.n, settle.settlement.fence.expected), (1, Term(7)));
}

#[test]
fn blind_effect_waits_for_its_durable_intent() {
    let mut case = case(worker(vec![step("a", "mail", EffectClass::Blind)])).answers(done("1"));
    assert_eq!(ended(&case.run("mail")).0, JobState::Succeeded);
    assert_eq!(case.commands, ["begin", "call", "settle", "finish"]);
    assert!(case.settles[0].begin.is_none());
}

#[test]
fn job_is_routed_to_the_destination_that_it_calls_next() {
    let steps = || {
        vec![
            step("a", "crm", EffectClass::Natural),
            when("event.no", step("b", "paused", EffectClass::Natural)),
            when("event.yes", step("c", "mail", EffectClass::Blind)),
        ]
    };
    let mut case = case(worker(steps())).answers(done("1"));
    assert_eq!(ended(&case.run("crm")), (JobState::Queued, "mail".to_owned()));
    let mut scope = Scope::new();
    scope.set("event", json!({ "yes": true, "no": false }));
    let skipping = worker(steps().into_iter().skip(1).collect());
    assert_eq!(&*first_route(&skipping, &scope).destination, "mail");
}

#[test]
fn job_completes_when_every_step_left_is_passed_over() {
    let steps = vec![step("a", "crm", EffectClass::Natural), when("event.no", step("b", "mail", EffectClass::Blind))];
    let mut case = case(worker(steps)).answers(done("1"));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.loaded.job.result.as_deref(), Some(&json!({ "id": "1" })));
}

#[test]
fn run_with_the_slot_of_another_destination_hands_the_job_back() {
    let mut case = case(worker(vec![step("a", "crm", EffectClass::Natural)]));
    let RunResult::Ended { route, settled, .. } = case.run("") else { panic!("the job is not lost") };
    assert_eq!((&*route.destination, settled), ("crm", false));
    assert_eq!(case.commands, ["finish"]);
}

#[test]
fn failed_step_undoes_the_steps_before_it() {
    let steps = vec![step("charge", "pay", EffectClass::Keyed), step("mail", "mail", EffectClass::Blind)];
    let undo = vec![Step { undoes: Some(0), ..step("refund", "pay", EffectClass::Keyed) }];
    let mut case = case(Worker { undo, ..worker(steps) }).answers(done("1")).answers(rejected()).answers(done("2"));
    assert_eq!(ended(&case.run("pay")), (JobState::Queued, "mail".to_owned()));
    case.loaded.effects = vec![case.effect("charge", EffectClass::Keyed, EffectState::Applied)];
    assert_eq!(ended(&case.run("mail")), (JobState::Queued, "pay".to_owned()));
    let dead = case.run("pay");
    assert_eq!(ended(&dead).0, JobState::Dead);
    assert_eq!(case.loaded.job.result.as_ref().unwrap()["undone"], json!(["charge"]));
    assert!(case.loaded.job.failure.as_ref().unwrap().message.contains("undone: charge"));
}

#[test]
fn job_that_waits_while_it_is_undone_still_says_what_is_left() {
    let steps = vec![step("charge", "pay", EffectClass::Keyed), step("mail", "mail", EffectClass::Blind)];
    let undo = vec![Step { undoes: Some(0), ..step("refund", "pay", EffectClass::Keyed) }];
    let safe_mode = SafeMode { hold: true, ..SafeMode::default() };
    let mut case =
        case(Worker { undo, safe_mode, ..worker(steps) }).answers(done("1")).answers(rejected()).answers(rejected());
    case.run("pay");
    case.loaded.effects = vec![case.effect("charge", EffectClass::Keyed, EffectState::Applied)];
    assert_eq!(ended(&case.run("mail")), (JobState::Queued, "pay".to_owned()));
    case.context.safe_mode_until = Some(Time(9_000));
    assert_eq!(ended(&case.run("pay")).0, JobState::Waiting);
    case.context = RunContext { now: Time(9_000), at: Time(9_000), safe_mode_until: None, ..case.context };
    assert_eq!(ended(&case.run("pay")).0, JobState::Dead);
    assert_eq!(case.loaded.job.result.as_ref().unwrap()["not_undone"][0]["step"], "charge");
    assert_eq!(case.loaded.job.step, 0, "a replay starts at the first step");
}

#[test]
fn failed_step_with_on_error_continue_leaves_its_error_as_output() {
    let optional = Step { on_error: OnError::Continue, ..step("a", "crm", EffectClass::Natural) };
    let steps = vec![optional, when("steps.a.output.error", step("b", "mail", EffectClass::Blind))];
    let mut case = case(worker(steps)).answers(rejected());
    assert_eq!(ended(&case.run("crm")), (JobState::Queued, "mail".to_owned()));
}

#[test]
fn replay_passes_over_an_applied_effect() {
    let mut case = case(worker(vec![step("a", "crm", EffectClass::Natural)]));
    case.loaded.job.replays = 1;
    case.loaded.effects = vec![case.effect("a", EffectClass::Natural, EffectState::Applied)];
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.commands, ["settle", "finish"]);
    assert!(case.settles[0].settlement.attempt.is_none());
}

#[test]
fn interrupted_attempt_is_settled_by_the_class_of_its_effect() {
    for (class, state, verifying) in [
        (EffectClass::Natural, JobState::Retrying, false),
        (EffectClass::Verifiable, JobState::Waiting, true),
        (EffectClass::Blind, JobState::Unknown, false),
    ] {
        let mut case = case(worker(vec![step("a", "crm", class)]));
        (case.loaded.job.state, case.loaded.job.attempts_total) = (JobState::Running, 3);
        case.loaded.job.term = Term(6);
        case.loaded.effects = vec![case.effect("a", class, EffectState::Intent)];
        assert_eq!(ended(&case.run("")).0, state, "{class:?}");
        assert_eq!(case.loaded.job.verifying, verifying);
        let settlement = &case.settles[0].settlement;
        assert_eq!((settlement.n, settlement.fence.expected, settlement.fence.owner), (3, Term(6), Term(7)));
        assert_eq!(settlement.attempt.as_ref().map(|attempt| attempt.outcome), Some("interrupted"));
    }
}

#[test]
fn unknown_effect_is_read_back_before_it_is_sent_again() {
    let mut case = case(worker(vec![step("a", "crm", EffectClass::Verifiable)]));
    (case.loaded.job.state, case.loaded.job.verifying) = (JobState::Waiting, true);
    case.loaded.effects = vec![case.effect("a", EffectClass::Verifiable, EffectState::Unknown)];
    case.readbacks = vec![Readback::Absent];
    assert_eq!(ended(&case.run("crm")).0, JobState::Waiting);
    assert_eq!(case.commands, ["read", "settle", "finish"]);
    assert_eq!(case.settles[0].settlement.effect.as_ref().map(|effect| effect.absent_reads), Some(1));
}

/// A settlement of the process before may be written after the job was read: the job still says that its step is to be read back.
#[test]
fn step_after_one_that_was_read_back_by_another_process_is_called() {
    let list = Foreach { list: Expression::parse("event.items").unwrap(), pulled_by: None };
    let each = Step { foreach: Some(list), ..step("a", "crm", EffectClass::Verifiable) };
    let mut case = case_of(worker(vec![each, step("b", "crm", EffectClass::Blind)]), json!({ "items": [1] }));
    (case.loaded.job.state, case.loaded.job.verifying) = (JobState::Waiting, true);
    case.loaded.effects = vec![case.effect("a[0]", EffectClass::Verifiable, EffectState::Applied)];
    case.outcomes = vec![done("b")];
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.commands, ["begin", "call", "settle", "finish"]);
}

#[test]
fn stale_write_ends_the_run() {
    let config = Config {
        workers: [("w".to_owned(), Arc::new(worker(vec![step("a", "crm", EffectClass::Natural)])))].into(),
        ..Config::default()
    };
    let active = ConfigRevision {
        name: "r".into(),
        config: Arc::new(config),
        secrets: Arc::new(NoSecrets),
        pseudonyms: PseudonymKey::public(),
    };
    let config = RunConfig { pinned: Some(active.clone()), active };
    let loaded = case(worker(vec![])).loaded;
    let (mut run, _) = JobRun::start(loaded, "crm".into(), config, NOW);
    let command = run.step(NOW, Input::Called { outcome: done("1"), recorded: true });
    assert!(matches!(command, Command::Settle(_)));
    let command = run.step(NOW, Input::Settled(ChargeResult::Stale));
    assert!(matches!(command, Command::Finish(result) if matches!(*result, RunResult::Reload)));
    assert_eq!(run.take_notices(), [Notice::Stale]);
}

/// A contact whose name is known, with the last confirmed write of it.
fn contact(name: &str, write: Option<ContactWrite>) -> ContactView {
    let value = ObservedValue { field: "attributes.name".into(), value: json!(name), trust: 50, guarded: false };
    let mut state = ContactState::default();
    state.observe(&Observation { values: vec![value], ..Observation::default() }, 1);
    ContactView { id: ContactId(1), state, write }
}

/// A step that writes the name of the contact.
fn merged_step() -> Step {
    let name = Template::Expression(Expression::parse("event.name").unwrap());
    let fields = Template::Map(vec![("Name".into(), name)]);
    Step {
        with: Template::Map(vec![("fields".into(), fields)]),
        merged: Some(MergedWrite { parameter: "fields", all_fields: false }),
        ..step("upsert", "crm", EffectClass::Natural)
    }
}

#[test]
fn merged_write_sends_the_state_of_the_contact_and_is_confirmed_once_applied() {
    let mut case = case(worker(vec![merged_step()])).answers(done("1"));
    case.contact = Some(contact("Ada", None));
    case.run("crm");
    assert_eq!(case.commands, ["contact", "call", "settle", "finish"]);
    assert_eq!(case.sent[0]["fields"], json!({ "Name": "Ada" }));
    let record = case.settles[0].settlement.write.clone().unwrap();
    assert_eq!(record.slot, WriteSlot::new("w", "upsert"));
    assert_eq!(Value::Object(record.write.unwrap().fields), json!({ "Name": "Ada" }));
}

#[test]
fn merged_write_whose_outcome_is_unknown_is_in_doubt() {
    let failure = Failure::new(FailureClass::Retryable, "timeout", "no answer");
    let mut case = case(worker(vec![merged_step()])).answers(Outcome::Unsure { failure });
    case.contact = Some(contact("Ada", None));
    case.run("crm");
    assert_eq!(case.settles[0].settlement.write, Some(WriteRecord::in_doubt(WriteSlot::new("w", "upsert"))));
}

#[test]
fn job_whose_values_were_written_by_another_ends_as_coalesced() {
    let mut first = case(worker(vec![merged_step()])).answers(done("1"));
    first.contact = Some(contact("Ada", None));
    first.run("crm");
    let write = first.settles[0].settlement.write.clone().unwrap().write;
    let mut second = case(worker(vec![merged_step()]));
    second.contact = Some(contact("Ada", write.clone()));
    second.run("crm");
    assert_eq!(second.commands, ["contact", "skip", "settle", "finish"]);
    assert_eq!(second.skipped[0]["noop"], "coalesced");
    assert_eq!(second.loaded.job.state, JobState::Noop);
    let mut third = case(worker(vec![merged_step()])).answers(done("1"));
    third.contact = Some(contact("Augusta", write));
    third.run("crm");
    assert_eq!(third.sent[0]["fields"], json!({ "Name": "Augusta" }));
}

#[test]
fn merged_step_of_an_event_without_a_contact_sends_its_own_values() {
    let mut case = case(worker(vec![merged_step()])).answers(done("1"));
    case.run("crm");
    assert_eq!(case.commands, ["contact", "call", "settle", "finish"]);
    assert!(case.settles[0].settlement.write.is_none());
}
