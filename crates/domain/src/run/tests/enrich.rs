//! Lookups: what they find is recorded, and nothing that goes wrong in them stops a job.

use super::*;
use crate::enrich::{Lookup, LookupResult};
use crate::event::LossCode;
use crate::job::EffectState;

fn lookup(id: &str, action: Action, with: &[(&str, &str)]) -> Step {
    let with = with.iter().map(|(name, text)| ((*name).to_owned(), Template::parse_text(text).unwrap())).collect();
    Step { action, with: Template::Map(with), ..step(id, "", EffectClass::Transactional) }
}

fn upsert() -> Step {
    let city = ("city".to_owned(), Template::parse_text("{{ steps.geo.output.city }}").unwrap());
    let company = ("company".to_owned(), Template::parse_text("{{ steps.company.output.name }}").unwrap());
    Step { with: Template::Map(vec![city, company]), ..step("upsert", "crm", EffectClass::Natural) }
}

fn geo() -> Step {
    lookup("geo", Action::EnrichGeoip, &[("ip", "{{ event.ip }}"), ("database", "city.mmdb")])
}

fn found() -> LookupResult {
    LookupResult::Found([("city".to_owned(), json!("Oslo"))].into_iter().collect())
}

#[test]
fn result_of_a_lookup_is_recorded_and_later_steps_read_it() {
    let steps = vec![geo(), lookup("company", Action::EnrichCompany, &[]), upsert()];
    let mut case = case_of(worker(steps), json!({ "ip": "203.0.113.7", "email": "x@acme.io" })).answers(done("1"));
    case.lookups.push(found());
    assert_eq!(ended(&case.run("")), (JobState::Queued, "crm".to_owned()), "it waits for no destination");
    assert_eq!(case.commands, ["lookup", "record", "record", "finish"]);
    assert_eq!(case.recorded[0].result, json!({ "found": true, "city": "Oslo" }));
    assert!(case.recorded.iter().all(|result| result.warning.is_none() && result.state == EffectState::Applied));
    case.keep_recorded();
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.sent, [json!({ "city": "Oslo", "company": "Acme" })]);
}

#[test]
fn lookup_is_made_once_for_a_job_whatever_the_replays_find() {
    let mut case = case_of(worker(vec![geo(), upsert()]), json!({ "ip": "203.0.113.7" })).answers(rejected());
    case.lookups.push(found());
    case.run("");
    case.keep_recorded();
    assert_eq!(ended(&case.run("crm")).0, JobState::Dead);
    // A replay with another configuration starts at the first step.
    let job = &mut case.loaded.job;
    (job.state, job.step, job.replays) = (JobState::Queued, 0, 1);
    case.outcomes.push(done("1"));
    case.commands.clear();
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.commands, ["begin", "call", "settle", "finish"], "no second lookup, nothing recorded again");
    assert_eq!(case.sent[1]["city"], "Oslo");
}

#[test]
fn run_that_lost_a_race_continues_with_what_the_first_one_recorded() {
    let mut case = case_of(worker(vec![geo(), upsert()]), json!({ "ip": "203.0.113.7" })).answers(done("1"));
    case.lookups.push(found());
    case.first_recorded = Some(json!({ "found": true, "city": "Bergen" }));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.sent[0]["city"], "Bergen");
}

#[test]
fn failed_lookup_is_a_warning_and_the_job_continues() {
    let mut case = case_of(worker(vec![geo(), upsert()]), json!({ "ip": "203.0.113.7" })).answers(done("1"));
    case.lookups.push(LookupResult::failed(LossCode::LookupTimedOut, "too slow"));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    let recorded = &case.recorded[0];
    assert_eq!(recorded.result["warning"], json!({ "code": "lookup-timed-out", "message": "too slow" }));
    let warning = recorded.warning.as_deref().unwrap();
    assert_eq!((&*warning.source, warning.warning.field.as_str()), ("s", "steps.geo"));
    assert_eq!(case.sent, [json!({})], "a field without a value is not sent");
}

#[test]
fn parameters_that_cannot_be_used_are_a_warning_too() {
    let mut case = case_of(worker(vec![geo(), upsert()]), json!({ "ip": "the office" })).answers(done("1"));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.recorded[0].result["warning"]["code"], "not-an-address");
    let division = Template::parse_text("{{ 1 / event.zero }}").unwrap();
    let with = Template::Map(vec![("ip".to_owned(), division)]);
    let mut case = case_of(worker(vec![Step { with, ..geo() }, upsert()]), json!({ "zero": "x" })).answers(done("1"));
    assert_eq!(ended(&case.run("crm")).0, JobState::Succeeded);
    assert_eq!(case.recorded[0].result["warning"]["code"], "lookup-failed");
}

#[test]
fn http_lookup_has_the_key_of_its_step_and_shows_no_parameter() {
    let with = [("url", "/p/{{ event.email }}")];
    let step = Step { destination: "profiles".into(), ..lookup("profile", Action::EnrichHttp, &with) };
    let mut case = case_of(worker(vec![step]), json!({ "email": "ada@example.com" }));
    case.lookups.push(LookupResult::Absent);
    assert_eq!(ended(&case.run("")).0, JobState::Noop, "a job that only looked has done nothing");
    let Some(Lookup::Http(http)) = case.made.first() else { panic!("a lookup over HTTP") };
    assert_eq!((&*http.destination, http.effect_key.clone()), ("profiles", case.key("profile").to_string()));
    assert!(!format!("{http:?}").contains("ada"));
}
