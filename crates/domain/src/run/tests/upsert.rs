//! Effects that look first: one at a time for each identity, with the record that is remembered.

use super::*;

fn upsert() -> Worker {
    let with = Template::Literal(json!({ "identity": "ada" }));
    worker(vec![Step { action: Action::HttpUpsert, with, ..step("a", "crm", EffectClass::Verifiable) }])
}

fn unsure() -> Outcome {
    Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "timeout", "no answer") }
}

#[test]
fn the_identity_is_claimed_before_the_call_and_the_record_is_recalled() {
    let mut case = case(upsert()).answers(done("7"));
    case.remembered = Some(json!(5));
    case.run("crm");
    assert_eq!(case.commands, ["begin", "recall", "call", "settle", "finish"]);
    assert_eq!(case.identities, ["crm\0ada"]);
    assert_eq!(case.sent_records, [Some(json!(5))]);
}

#[test]
fn a_job_waits_for_another_effect_of_its_identity_without_an_attempt() {
    let mut case = case(upsert());
    case.identity_busy = true;
    case.run("crm");
    assert_eq!(case.commands, ["begin", "settle", "finish"], "nothing is called");
    let job = &case.loaded.job;
    assert_eq!((job.state, job.attempts, job.attempts_total), (JobState::Waiting, 0, 0));
    assert_eq!(job.due_at, NOW.now + crate::upsert::BUSY_DELAY);
    assert_eq!(job.failure.as_ref().unwrap().code, "identity-busy");
    let settlement = &case.settles[0].settlement;
    assert!(settlement.effect.is_none() && settlement.attempt.is_none());
}

#[test]
fn a_replayed_job_that_waits_for_its_identity_leaves_its_lane_to_newer_jobs() {
    for (replays, order) in [(0, LaneOrder::Fifo), (1, LaneOrder::None)] {
        let mut case = case(upsert());
        (case.identity_busy, case.loaded.job.replays) = (true, replays);
        case.run("crm");
        assert_eq!(case.settles[0].settlement.next.order, order, "{replays} replays");
        assert_eq!(case.loaded.job.order, order);
    }
}

#[test]
fn a_step_without_an_identity_claims_none() {
    let with = Template::Literal(json!({ "identity": " " }));
    let steps = vec![Step { action: Action::HttpUpsert, with, ..step("a", "crm", EffectClass::Verifiable) }];
    let mut case = case(worker(steps)).answers(done("7"));
    case.run("crm");
    assert_eq!(case.commands, ["begin", "call", "settle", "finish"]);
    assert!(case.identities.is_empty());
}

#[test]
fn a_lost_create_is_looked_for_soon_and_created_again_only_after_its_window() {
    let mut case = case(upsert()).answers(unsure());
    case.run("crm");
    assert!(case.loaded.job.verifying);
    assert_eq!(case.loaded.job.due_at, Time(1_000 + 2_000), "most are found at once");
    case.loaded.effects = vec![case.effect("a", EffectClass::Verifiable, EffectState::Unknown)];
    case.readbacks = vec![Readback::Absent];
    case.run("crm");
    // The time-out of the destination and its horizon.
    assert_eq!(case.loaded.job.due_at, Time(1_000 + 61_000));
    assert!(case.loaded.job.verifying, "it is not believed before");
    let effect = case.effect("a", EffectClass::Verifiable, EffectState::Unknown);
    case.loaded.effects = vec![EffectRecord { absent_reads: 1, reads: 1, ..effect }];
    case.readbacks = vec![Readback::Absent];
    case.run("crm");
    assert!(!case.loaded.job.verifying, "it is created again");
    assert_eq!(case.loaded.job.failure.as_ref().unwrap().code, "verified-absent");
}

#[test]
fn the_look_that_decides_waits_its_whole_window_after_the_machine_was_off() {
    let mut case = case(upsert());
    case.context.at_boot = Time(500);
    let effect = case.effect("a", EffectClass::Verifiable, EffectState::Unknown);
    case.loaded.effects = vec![EffectRecord { absent_reads: 1, reads: 1, ..effect }];
    case.loaded.job.verifying = true;
    case.run("crm");
    assert_eq!(case.commands, ["settle", "finish"], "nothing is read");
    assert_eq!(case.loaded.job.due_at, Time(500 + 61_000));
}
