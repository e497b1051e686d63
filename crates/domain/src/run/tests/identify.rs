//! The identity of a quarantined event, from the lookups that its workers begin with.

use super::*;
use crate::contact::{
    ContactRules, IDENTITY_LOOKUPS_MAX, IDENTITY_MISSING, IdentifierRule, SuppliedBy, look_up_again_after,
};
use crate::event::LossCode;

/// A lookup at `people` that supplies the email address of its output.
fn person(id: &str) -> Step {
    let with = vec![("url".to_owned(), Template::parse_text("/visitors/{{ event.visitor }}").unwrap())];
    let email = Template::parse_text(&format!("{{{{ steps.{id}.output.email }}}}")).unwrap();
    Step {
        action: Action::EnrichHttp,
        with: Template::Map(with),
        identity: vec![("email".to_owned(), email)],
        ..step(id, "people", EffectClass::Transactional)
    }
}

fn geo() -> Step {
    let with = [("ip", "{{ event.ip }}"), ("database", "city.mmdb")];
    let with = with.map(|(name, text)| (name.to_owned(), Template::parse_text(text).unwrap())).to_vec();
    Step { action: Action::EnrichGeoip, with: Template::Map(with), ..step("geo", "", EffectClass::Transactional) }
}

fn upsert() -> Step {
    let email = ("email".to_owned(), Template::parse_text("{{ steps.person.output.email }}").unwrap());
    Step { with: Template::Map(vec![email]), ..step("upsert", "crm", EffectClass::Natural) }
}

fn found(email: &str) -> LookupResult {
    LookupResult::Found([("email".to_owned(), json!(email))].into_iter().collect())
}

/// The quarantined event of a case and its revision.
fn quarantined(case: &Case) -> (QuarantinedEvent, ConfigRevision) {
    let failure = Some(Failure::new(FailureClass::Identity, IDENTITY_MISSING, "no identity"));
    let job = JobRecord { state: JobState::Dead, failure, ..case.loaded.job.clone() };
    let revision = run_config(&case.worker).active;
    let identifiers = ["external_id", "email"].map(IdentifierRule::new).to_vec();
    let contacts = Some(Arc::new(ContactRules { identifiers, ..ContactRules::default() }));
    let config = Config { contacts, workers: revision.config.workers.clone(), ..Config::default() };
    let event = QuarantinedEvent { event: case.loaded.event.clone(), body: case.loaded.body.clone(), jobs: vec![job] };
    (event, ConfigRevision { config: Arc::new(config), ..revision })
}

/// Searches with these answers to lookups. Returns how it ended, and the lookups that were made.
fn search(case: &Case, answers: Vec<LookupResult>) -> (SearchCommand, Vec<Lookup>) {
    let (event, revision) = quarantined(case);
    let (mut search, mut command) = IdentitySearch::start(event, revision, Term(7), Time(1_000)).unwrap();
    let (mut answers, mut made) = (answers.into_iter(), vec![]);
    while let SearchCommand::LookUp(lookup) = command {
        made.push(*lookup);
        command = search.looked_up(&answers.next().expect("an answer for every lookup"));
    }
    assert_eq!(answers.next(), None, "every answer is used");
    (command, made)
}

fn ended(command: &SearchCommand) -> (&'static str, bool) {
    match command {
        SearchCommand::End { because, may_pass } => (because, *may_pass),
        other => panic!("not ended: {other:?}"),
    }
}

fn visitor(steps: Vec<Step>) -> Case {
    case_of(worker(steps), json!({ "visitor": "v-7", "ip": "203.0.113.7" }))
}

#[test]
fn found_identity_releases_the_event_and_its_job_looks_nothing_up_again() {
    let mut case = visitor(vec![geo(), person("person"), upsert()]).answers(done("1"));
    let city = LookupResult::Found([("city".to_owned(), json!("Oslo"))].into_iter().collect());
    let (command, made) = search(&case, vec![city, found(" Ada@X.org ")]);
    let SearchCommand::Release(released) = command else { panic!("not released: {command:?}") };
    assert_eq!(Value::Object(released.identity), json!({ "email": "ada@x.org" }));
    let by = SuppliedBy::Enrichment { worker: "w".to_owned(), step: "person".to_owned() };
    assert_eq!((released.by, released.mapping_version.as_str()), (by, "1"));
    assert_eq!(released.observation.identifiers.len(), 1);
    assert!(released.contact.is_some());
    let Some(Lookup::Http(http)) = made.last() else { panic!("a lookup over HTTP") };
    assert_eq!(http.effect_key, case.key("person").to_string());
    let places: Vec<_> = released.outputs.iter().map(|output| (output.step, output.key, output.fence.owner)).collect();
    assert_eq!(places, [(0, case.key("geo"), Term(7)), (1, case.key("person"), Term(7))]);
    // The released job runs from its first step.
    case.recorded = released.outputs;
    case.keep_recorded();
    case.loaded.job.replays = 1;
    let RunResult::Ended { job, .. } = case.run("crm") else { panic!("the run has not ended") };
    assert_eq!((job.state, case.commands.contains(&"lookup")), (JobState::Succeeded, false));
    assert_eq!(case.sent, [json!({ "email": " Ada@X.org " })]);
}

#[test]
fn search_that_finds_nothing_ends_and_one_that_fails_is_made_again_for_a_while() {
    let case = visitor(vec![person("person"), upsert()]);
    assert_eq!(ended(&search(&case, vec![LookupResult::Absent]).0), ("absent", false));
    let late = LookupResult::failed(LossCode::LookupTimedOut, "too slow");
    assert_eq!(ended(&search(&case, vec![late]).0), ("lookup-timed-out", true));
    let waits: Vec<_> =
        (1..=IDENTITY_LOOKUPS_MAX).map(|tries| look_up_again_after(tries).map(|wait| wait.as_secs())).collect();
    assert_eq!(waits[..3], [Some(10), Some(40), Some(160)]);
    assert_eq!((waits[6], waits[7]), (Some(40_960), None), "bounded");
    assert_eq!(search_again_at(true, 1, Time(5)), Some(Time(10_005)));
    assert_eq!(search_again_at(false, 1, Time(5)), None);
}

#[test]
fn value_that_identifies_nobody_releases_nothing() {
    let case = visitor(vec![person("person"), upsert()]);
    for text in ["nobody", " ", "0", "undefined"] {
        assert!(!ended(&search(&case, vec![found(text)]).0).1, "{text}");
    }
    assert_eq!(ended(&search(&case, vec![found("nobody")]).0), ("identity-unusable", false));
}

#[test]
fn second_lookup_is_asked_if_the_first_does_not_know_and_a_condition_counts() {
    let second = person("second");
    let skipped = when("event.visitor == 'other'", person("third"));
    let case = visitor(vec![person("first"), skipped, second, upsert()]);
    let (command, made) = search(&case, vec![LookupResult::Absent, found("ada@x.org")]);
    let SearchCommand::Release(released) = command else { panic!("not released: {command:?}") };
    assert_eq!((made.len(), released.outputs.len()), (2, 2));
    assert_eq!(released.outputs[1].step, 2);
}

#[test]
fn lookups_behind_another_action_supply_nothing() {
    let worker = worker(vec![upsert(), person("person")]);
    assert!(worker.identity_lookups().is_empty());
    let (event, revision) = quarantined(&visitor(vec![upsert(), person("person")]));
    assert_eq!(IdentitySearch::start(event, revision, Term(7), Time(0)).unwrap_err(), "not-waiting");
}

#[test]
fn event_that_was_released_meanwhile_is_not_searched_for() {
    let (event, revision) = quarantined(&visitor(vec![person("person")]));
    let queued = event.jobs.iter().map(|job| JobRecord { state: JobState::Queued, failure: None, ..job.clone() });
    let released = QuarantinedEvent { jobs: queued.collect(), ..event.clone() };
    assert_eq!(IdentitySearch::start(released, revision.clone(), Term(7), Time(0)).unwrap_err(), "not-waiting");
    let removed = QuarantinedEvent { body: Arc::default(), ..event };
    assert!(IdentitySearch::start(removed, revision, Term(7), Time(0)).is_err());
}
