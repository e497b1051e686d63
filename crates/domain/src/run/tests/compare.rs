//! Calls that may be applied late, and the comparison of a confirmed write with its record.

use super::*;
use crate::policy::{Policy, Rule, RuleKind};

fn upsert() -> Worker {
    worker(vec![Step { action: Action::SalesforceUpsert, ..step("a", "crm", EffectClass::Natural) }])
}

fn unsure() -> Outcome {
    Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "timeout", "no answer") }
}

/// A finished job of this worker whose effect `a` is compared with its record.
fn compared(worker: Worker) -> Case {
    compared_case(case(worker))
}

fn compared_case(mut case: Case) -> Case {
    let mut applied = case.effect("a", EffectClass::Natural, EffectState::Rechecking);
    applied.result = Some(Arc::new(json!({ "id": "7" })));
    case.loaded.effects = vec![applied];
    let job = &mut case.loaded.job;
    (job.verifying, job.result) = (true, Some(Arc::new(json!({ "a": { "id": "7" }, "later": 1 }))));
    case
}

/// As before the comparison.
fn assert_finished_as_before(case: &Case) {
    let job = &case.loaded.job;
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(job.result.as_deref(), Some(&json!({ "a": { "id": "7" }, "later": 1 })));
    let settled = case.settles.last().unwrap().settlement.effect.as_ref().unwrap();
    assert_eq!((settled.state, settled.late_until), (EffectState::Applied, None));
}

#[test]
fn unsure_write_of_a_comparable_record_says_until_when_it_may_be_applied() {
    let late_until = |worker: Worker, outcome: Outcome| {
        let mut case = case(worker).answers(outcome);
        case.run("crm");
        case.settles[0].settlement.effect.as_ref().unwrap().late_until
    };
    assert_eq!(late_until(upsert(), unsure()), Some(Time(1_000 + 60_000)));
    assert_eq!(late_until(upsert(), done("1")), None);
    assert_eq!(late_until(worker(vec![step("a", "crm", EffectClass::Natural)]), unsure()), None, "cannot be compared");
    let mut steps = upsert().steps;
    steps[0].order = LaneOrder::None;
    assert_eq!(late_until(worker(steps), unsure()), None, "without an order there is no newest write");
}

#[test]
fn write_that_may_be_applied_late_is_recorded_before_it_is_sent() {
    let mut case = case(upsert()).answers(done("1"));
    case.run("crm");
    assert_eq!(case.commands, ["begin", "call", "settle", "finish"], "a crash loses no call that must be looked for");
}

#[test]
fn interrupted_write_may_be_applied_until_its_timeout_and_the_horizon_have_passed() {
    let mut case = case(upsert());
    case.loaded.effects = vec![case.effect("a", EffectClass::Natural, EffectState::Intent)];
    case.loaded.job.state = JobState::Running;
    case.run("crm");
    let settled = case.settles[0].settlement.effect.as_ref().unwrap();
    assert_eq!((settled.state, settled.late_until), (EffectState::Unknown, Some(Time(1_000 + 1_000 + 60_000))));
}

#[test]
fn compared_write_is_left_alone_if_its_record_is_as_written_and_made_again_if_not() {
    let unreadable = || Readback::Unreadable(Failure::new(FailureClass::Retryable, "503", "away"));
    for (readback, reads, state, effect) in [
        (Readback::Present(json!({})), 0, JobState::Succeeded, EffectState::Applied),
        (Readback::Absent, 0, JobState::Retrying, EffectState::Rechecking),
        (unreadable(), 0, JobState::Waiting, EffectState::Rechecking),
        (unreadable(), 99, JobState::Succeeded, EffectState::Applied),
    ] {
        let mut case = compared(upsert());
        case.loaded.effects[0].reads = reads;
        case.loaded.job.replays = 1;
        case.readbacks = vec![readback];
        assert_eq!(ended(&case.run("crm")).0, state);
        assert_eq!(case.commands, ["read", "settle", "finish"]);
        let settled = case.settles[0].settlement.effect.as_ref().unwrap();
        assert_eq!(settled.state, effect);
        assert_eq!(case.loaded.job.result.as_ref().unwrap()["later"], json!(1), "the result stays");
        if state == JobState::Retrying {
            case.outcomes = vec![done("8")];
            case.run("crm");
            assert_eq!(case.commands[3..], ["begin", "call", "settle", "finish"], "it is not read once more");
        }
        if !case.loaded.job.state.is_live() {
            assert_finished_as_before(&case);
        }
    }
}

#[test]
fn compared_write_of_a_merged_state_reads_and_writes_the_contact_as_it_is_now() {
    let worker = || worker(vec![Step { id: "a".into(), action: Action::SalesforceUpsert, ..merged_step() }]);
    let contact_after_write = |name: &str| {
        let mut case = case(worker()).answers(done("1"));
        case.contact = Some(contact(name, None));
        case.run("crm");
        contact(name, case.settles[0].settlement.write.clone().unwrap().write)
    };
    let mut case = compared_case(case_of(worker(), json!({ "name": "Old" })));
    case.contact = Some(contact_after_write("New"));
    case.readbacks = vec![Readback::Absent];
    case.run("crm");
    assert_eq!(
        case.commands,
        ["contact", "read", "settle", "finish"],
        "a confirmed write of these values is no reason to skip it"
    );
    assert_eq!(case.read[0]["fields"], json!({ "Name": "New" }), "not the value of the event whose write is compared");
    let in_doubt = WriteRecord::in_doubt(WriteSlot::new("w", "a"));
    assert_eq!(case.settles[0].settlement.write, Some(in_doubt), "the next write of the contact sends every field");
    case.contact = Some(contact_after_write("Newest"));
    case.outcomes = vec![done("8")];
    case.run("crm");
    assert_eq!(case.commands[4..], ["contact", "begin", "call", "settle", "finish"]);
    assert_eq!(case.sent[0]["fields"], json!({ "Name": "Newest" }), "what another event has changed meanwhile");
    let write = case.settles[1].settlement.write.clone().unwrap().write.unwrap();
    assert_eq!(Value::Object(write.fields), json!({ "Name": "Newest" }));
    assert_finished_as_before(&case);
}

#[test]
fn compared_write_does_not_end_unfinished_when_its_condition_no_longer_holds_or_its_queue_has_expired_it() {
    let mut steps = upsert().steps;
    steps[0].condition = Some(Expression::parse("event.no").unwrap());
    let mut case = compared(worker(steps));
    (case.context.now, case.context.at) = (Time(900_000_000_000), Time(900_000_000_000));
    case.readbacks = vec![Readback::Absent];
    case.outcomes = vec![unsure(), done("8")];
    for state in [JobState::Retrying, JobState::Retrying, JobState::Succeeded] {
        assert_eq!(ended(&case.run("crm")).0, state);
    }
    assert_finished_as_before(&case);
}

#[test]
fn no_other_step_of_a_job_runs_again_when_a_write_of_it_is_compared() {
    let mut steps = upsert().steps;
    steps.push(Step { on_error: OnError::Continue, ..step("note", "crm", EffectClass::Natural) });
    let mut case = compared(worker(steps));
    case.readbacks = vec![Readback::Present(json!({}))];
    case.run("crm");
    assert_eq!(case.commands, ["read", "settle", "finish"]);
    assert_finished_as_before(&case);
}

#[test]
fn compared_write_is_found_where_another_revision_has_its_step() {
    let mut steps = upsert().steps;
    steps.insert(0, step("first", "mail", EffectClass::Blind));
    let mut case = compared(worker(steps));
    case.readbacks = vec![Readback::Present(json!({}))];
    case.run("crm");
    assert_eq!(case.commands, ["read", "settle", "finish"]);
    assert_finished_as_before(&case);
}

#[test]
fn policy_that_refuses_while_a_write_is_compared_leaves_the_job_as_it_was() {
    let mut steps = upsert().steps;
    steps[0].policies = vec!["no".into()];
    let mut case = compared(worker(steps));
    let kind = RuleKind::When(Expression::parse("event.no").unwrap());
    let rules = vec![Rule { name: "when".into(), kind }];
    case.policies = vec![Policy { name: "no".into(), contact: vec![], channel: "mail".into(), rules }];
    case.readbacks = vec![Readback::Absent];
    case.run("crm");
    case.run("crm");
    assert_eq!(case.commands, ["read", "settle", "finish", "settle", "finish"], "nothing is sent");
    assert_finished_as_before(&case);
}

#[test]
fn write_that_cannot_be_made_again_makes_a_dead_letter_and_undoes_nothing() {
    let mut steps = upsert().steps;
    steps.push(step("charge", "pay", EffectClass::Keyed));
    let undo = vec![Step { undoes: Some(1), ..step("refund", "pay", EffectClass::Keyed) }];
    let mut case = compared(Worker { undo, ..worker(steps) });
    case.loaded.effects.push(case.effect("charge", EffectClass::Keyed, EffectState::Applied));
    case.readbacks = vec![Readback::Absent];
    case.outcomes = vec![rejected()];
    case.run("crm");
    assert_eq!(ended(&case.run("crm")).0, JobState::Dead);
    let settled = case.settles[1].settlement.effect.as_ref().unwrap();
    assert_eq!(settled.state, EffectState::NotApplied);
}

#[test]
fn interrupted_write_of_a_comparison_is_still_compared() {
    let mut case = compared(upsert());
    (case.loaded.job.state, case.loaded.job.verifying) = (JobState::Running, false);
    assert_eq!(ended(&case.run("crm")).0, JobState::Retrying);
    let settled = case.settles[0].settlement.effect.as_ref().unwrap();
    assert_eq!(settled.state, EffectState::Rechecking);
    case.outcomes = vec![done("8")];
    case.run("crm");
    assert_finished_as_before(&case);
}

#[test]
fn record_is_not_read_before_its_horizon_has_passed_since_the_machine_started() {
    let mut case = compared(upsert());
    case.context.at_boot = Time(900);
    assert_eq!(ended(&case.run("crm")).0, JobState::Waiting);
    assert_eq!(case.loaded.job.due_at, Time(900 + 61_000));
    assert!(case.loaded.job.verifying);
    let mut case = self::case(worker(vec![step("a", "crm", EffectClass::Verifiable)]));
    case.loaded.effects = vec![case.effect("a", EffectClass::Verifiable, EffectState::Unknown)];
    case.loaded.job.verifying = true;
    case.context.at_boot = Time(900);
    assert_eq!(ended(&case.run("crm")).0, JobState::Waiting);
    assert_eq!((case.loaded.job.due_at, case.commands.as_slice()), (Time(2_900), ["settle", "finish"].as_slice()));
}
