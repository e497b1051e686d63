use super::*;
use crate::contact::{IdentifierRule, TRUST_DEFAULT};
use crate::event::Audit;
use crate::job::{JobId, Term};
use crate::outcome::Failure;
use crate::worker::LaneOrder;
use serde_json::json;

fn event(source: &str, identity: Value, attributes: Value) -> Event {
    let members = |value: Value| value.as_object().cloned().unwrap_or_default();
    Event {
        schema_version: "1.0".to_owned(),
        event_id: "x".to_owned(),
        event_type: "lead.created".to_owned(),
        source: source.to_owned(),
        occurred_at: Some(Time(3)),
        idempotency_key: "k".to_owned(),
        identity: members(identity),
        attributes: members(attributes),
        routing: Map::new(),
        audit: Audit { received_at: Time(5), mapping_version: "2".into(), ..Audit::default() },
    }
}

fn rules() -> ContactRules {
    let rule = |field: &str, millis| CorrelationRule { field: field.to_owned(), within: Duration::from_millis(millis) };
    ContactRules {
        identifiers: ["external_id", "email", "phone"].map(IdentifierRule::new).to_vec(),
        trust: TRUST_DEFAULT,
        correlate: vec![rule("session_id", 100), rule("lead_id", 200)],
        ..ContactRules::default()
    }
}

fn links(source: &str, attributes: Value) -> Vec<Link> {
    rules().observe(&event(source, json!({}), attributes)).correlation.map_or_else(Vec::new, |found| found.links)
}

#[test]
fn the_same_value_of_the_same_field_and_source_is_the_same_link() {
    let [session] = links("shop", json!({"session_id": " s-1 "}))[..] else { panic!("one link") };
    assert_eq!(session.expires_at, Time(105));
    assert_eq!(links("shop", json!({"session_id": "s-1"})), [session]);
    assert_ne!(links("forms", json!({"session_id": "s-1"}))[0].digest, session.digest, "another source");
    assert_ne!(links("shop", json!({"lead_id": "s-1"}))[0].digest, session.digest, "another field");
    assert_ne!(links("shop", json!({"session_id": "s-2"}))[0].digest, session.digest);
    assert_eq!(links("shop", json!({"session_id": 17, "lead_id": "a"})).len(), 2);
    let in_identity = rules().observe(&event("shop", json!({"session_id": "s-1"}), json!({})));
    assert_eq!(in_identity.correlation.unwrap().links, [session]);
}

#[test]
fn placeholders_and_other_values_that_many_people_share_link_nothing() {
    let nil = "00000000-0000-0000-0000-000000000000";
    for value in [json!(""), json!(" "), json!("NULL"), json!("undefined"), json!("[object Object]"), json!(nil)] {
        assert_eq!(links("shop", json!({ "session_id": value })), [], "{value}");
    }
    for value in [json!(0), json!(true), json!(null), json!(["s-1"]), json!({"id": 1}), json!("x".repeat(513))] {
        assert_eq!(links("shop", json!({ "session_id": value })), [], "{value}");
    }
    assert_eq!(rules().observe(&event("shop", json!({"email": "a@x.org"}), json!({}))).correlation, None);
}

#[test]
fn an_event_supplies_the_identity_fields_that_identify_its_contact() {
    let identity = json!({"external_id": " ", "email": "Ada@x.org", "phone": "555", "name": "Ada"});
    let later = rules().observe(&event("shop", identity, json!({"session_id": "s-1"})));
    let correlation = later.correlation.unwrap();
    assert_eq!(Value::Object(correlation.identity), json!({"email": "Ada@x.org"}));
    assert_eq!(correlation.mapping_version, "2");
}

#[test]
fn an_unusable_identifier_of_a_waiting_event_does_not_become_the_first_value_of_its_contact() {
    let identity = json!({"email": "nobody", "phone": "555", "visitor": "v-1"});
    let waiting = rules().observe_unidentified(&event("shop", identity, json!({"name": "Ada"})));
    let fields: Vec<&str> = waiting.values.iter().map(|value| value.field.as_str()).collect();
    assert_eq!(fields, ["identity.visitor", "attributes.name"]);
    let stored: Observation = serde_json::from_value(serde_json::to_value(&waiting).unwrap()).unwrap();
    assert_eq!(stored, waiting, "the stored form has everything that is merged");
}

#[test]
fn an_operator_supplies_identifiers_in_normalized_form() {
    let waiting = event("shop", json!({"email": "nobody"}), json!({"name": "Ada"}));
    let given = BTreeMap::from([("email".to_owned(), " Ada@X.org".to_owned())]);
    let (observation, supplied) = rules().supply(&waiting, &given).unwrap();
    assert_eq!(Value::Object(supplied), json!({"email": "ada@x.org"}));
    assert_eq!(observation.identifiers, [IdentifierRule::new("email").identifier("shop", "ada@x.org").unwrap()]);
    let fields: Vec<(&str, &Value)> =
        observation.values.iter().map(|value| (value.field.as_str(), &value.value)).collect();
    assert_eq!(fields, [("attributes.name", &json!("Ada")), ("identity.email", &json!("ada@x.org"))]);
    assert_eq!(observation.occurred_at, Some(Time(3)), "the event's own time decides about its values");
}

#[test]
fn an_identity_that_identifies_no_one_is_refused_with_what_to_do() {
    let waiting = event("shop", json!({}), json!({}));
    let problem = |field: &str, text: &str| {
        let given = BTreeMap::from([(field.to_owned(), text.to_owned())]);
        rules().supply(&waiting, &given).unwrap_err().to_string()
    };
    assert_eq!(problem("name", "Ada"), "`name` identifies no contact; the identifiers are external_id, email, phone");
    assert_eq!(
        problem("phone", "555"),
        "the value of `phone` identifies no one: a number begins with + and the country code"
    );
    assert_eq!(problem("email", "ada"), "the value of `email` identifies no one: an address has an @");
    assert!(rules().supply(&waiting, &BTreeMap::new()).is_err());
}

#[test]
fn a_supplied_identity_is_added_and_everything_else_stays() {
    let supplied = SuppliedIdentity {
        identity: json!({"email": "ada@x.org"}).as_object().cloned().unwrap(),
        by: SuppliedBy::Event("evt_2".to_owned()),
        mapping_version: "2".to_owned(),
        at: Time(9),
    };
    let sent =
        json!({"event_type": "lead.created", "identity": {"email": "nobody", "visitor": "v"}, "attributes": {"a": 1}});
    let applied: Value = serde_json::from_str(&supplied.apply(&sent.to_string())).unwrap();
    let identity = json!({"email": "ada@x.org", "visitor": "v"});
    assert_eq!(applied, json!({"event_type": "lead.created", "identity": identity, "attributes": {"a": 1}}));
    assert_eq!(supplied.apply(""), "", "a removed body stays removed");
}

fn quarantined_job() -> JobRecord {
    JobRecord {
        id: JobId(1),
        seq: 1,
        worker: "to-crm".into(),
        queue: "leads".into(),
        revision: "r".into(),
        entity: 1,
        destination: "crm".into(),
        order: LaneOrder::Fifo,
        state: JobState::Dead,
        step: 0,
        attempts: 0,
        attempts_total: 0,
        term: Term::default(),
        due_at: Time(5),
        verifying: false,
        created_at: Time(5),
        updated_at: Time(5),
        finished_at: Some(Time(5)),
        replays: 0,
        imported: false,
        failure: Some(Failure::new(FailureClass::Identity, IDENTITY_MISSING, "no identity")),
        dead_letter_queue: None,
        result: None,
    }
}

#[test]
fn only_jobs_that_were_quarantined_for_their_identity_are_released() {
    let quarantined = quarantined_job();
    assert!(awaits_identity(&quarantined));
    let failure = |class, code: &str| Some(Failure::new(class, code, ""));
    let others = [
        JobRecord { state: JobState::Dropped, ..quarantined.clone() },
        JobRecord { state: JobState::Queued, failure: None, ..quarantined.clone() },
        JobRecord { attempts_total: 1, ..quarantined.clone() },
        JobRecord { failure: failure(FailureClass::Identity, "no-identity"), ..quarantined.clone() },
        JobRecord { failure: failure(FailureClass::Mapping, IDENTITY_MISSING), ..quarantined.clone() },
    ];
    assert!(others.iter().all(|job| !awaits_identity(job)));
}
