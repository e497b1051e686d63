//! `hubspot.upsert` and `hubspot.associate` against the simulated account.

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, Quota};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, HubspotAuth, HubspotDestination};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{CallKind, Moment, RetryAfter, Scripted};
use sluice_simulator::{Fault, FaultPlan, Hubspot, HubspotSettings};

use crate::{PATIENT, SHORT, brief, connectors};

fn account(script: impl IntoIterator<Item = Scripted>) -> Hubspot {
    Hubspot::start(HubspotSettings { faults: FaultPlan::scripted(script), ..HubspotSettings::default() }).unwrap()
}

fn to_account(url: &str, auth: HubspotAuth) -> Connectors {
    let destination = HubspotDestination { base_url: url.to_owned(), api_version: "v3".to_owned(), auth };
    connectors([("there", DestinationKind::Hubspot(destination))])
}

fn private_app() -> HubspotAuth {
    HubspotAuth::Token("pat-sim-hubspot".into())
}

fn oauth(client_secret: &str) -> HubspotAuth {
    HubspotAuth::RefreshToken {
        client_id: "sim-client".into(),
        client_secret: client_secret.into(),
        refresh_token: "sim-refresh".into(),
    }
}

/// A contact by its own unique property.
fn lead(id: &str) -> Value {
    json!({
        "object": "contacts", "id_property": "external_lead_id", "id": id,
        "properties": {"firstname": "Ö", "score": 7, "phone": null},
    })
}

fn by_email(email: &str) -> Value {
    json!({"object": "contacts", "id_property": "email", "id": email, "properties": {"firstname": "Ada"}})
}

fn upsert(with: &Value) -> Call<'_> {
    crate::call(Action::HubspotUpsert, with, PATIENT)
}

#[tokio::test]
async fn upsert_creates_then_updates_one_record() {
    let account = account([]);
    let connectors = to_account(&account.url(), private_app());
    for with in [lead("a.b/c?d#e%f@ü x"), by_email("Ada@Example.com")] {
        let Outcome::Done { result: first } = connectors.call(upsert(&with)).await else { panic!("not created") };
        let Outcome::Done { result: second } = connectors.call(upsert(&with)).await else { panic!("not updated") };
        assert_eq!((&first["created"], &second["created"]), (&json!(true), &json!(false)), "{with}");
        assert_eq!(first["id"], second["id"]);
        let found = connectors.read_back(upsert(&with)).await;
        assert_eq!(found, Readback::Present(json!({"id": first["id"], "created": false})));
    }
    assert_eq!(connectors.read_back(upsert(&lead("other"))).await, Readback::Absent);
    let mut changed = by_email("ada@example.com");
    changed["properties"]["firstname"] = json!("Grace");
    assert_eq!(connectors.read_back(upsert(&changed)).await, Readback::Absent, "it has another value");
    let truth = account.truth().object("contacts");
    assert_eq!((truth.records, truth.created_again), (2, 0));
    assert!(account.external_ids("contacts", "external_lead_id").contains_key("a.b/c?d#e%f@ü x"));
}

#[tokio::test]
async fn create_with_associations_of_an_existing_record_becomes_an_update() {
    let account = account([]);
    let connectors = to_account(&account.url(), private_app());
    let company = json!({
        "object": "companies", "id_property": "external_company_id", "id": "c-1", "properties": {"name": "Kraal"},
    });
    let Outcome::Done { result } = connectors.call(upsert(&company)).await else { panic!("not created") };
    let mut with = lead("a");
    with["associations"] = json!([{"to": result["id"], "type": 279}]);
    let Outcome::Done { result: first } = connectors.call(upsert(&with)).await else { panic!("not created") };
    // A unique property other than email is refused with another error than email.
    let Outcome::Done { result: second } = connectors.call(upsert(&with)).await else { panic!("not updated") };
    assert_eq!((&first["id"], &second["created"]), (&second["id"], &json!(false)));
    let records = account.records("contacts");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].associations.len(), 1);

    let with = json!({"from_object": "contacts", "from": first["id"], "to_object": "companies", "to": result["id"]});
    for _ in 0..2 {
        assert_eq!(brief(&connectors.call(crate::call(Action::HubspotAssociate, &with, PATIENT)).await), "done");
    }
    assert_eq!(account.records("contacts")[0].associations.len(), 2, "repeating it changes nothing");
    let mut absent = with.clone();
    absent["to"] = json!("9999");
    let outcome = connectors.call(crate::call(Action::HubspotAssociate, &absent, PATIENT)).await;
    assert_eq!(brief(&outcome), "reject identity OBJECT_NOT_FOUND");
}

#[tokio::test]
async fn update_of_an_absent_record_is_a_dead_letter_a_noop_or_a_create() {
    let account = account([]);
    let connectors = to_account(&account.url(), private_app());
    let mut with = lead("absent");
    with["mode"] = json!("update_only");
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject identity record-absent", "{outcome:?}");
    with["on_absent"] = json!("noop");
    let outcome = connectors.call(upsert(&with)).await;
    assert!(matches!(&outcome, Outcome::Noop { reason } if reason.contains("contacts")), "{outcome:?}");
    assert_eq!(account.truth().object("contacts").records, 0);
    with["on_absent"] = json!("create");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    assert_eq!(account.truth().object("contacts").records, 1);
}

#[tokio::test]
async fn missing_id_and_invalid_properties_are_rejected() {
    let account = account([]);
    let connectors = to_account(&account.url(), private_app());
    assert_eq!(brief(&connectors.call(upsert(&lead(""))).await), "reject identity no-identity");
    assert_eq!(account.truth().calls.received, 0);
    let mut with = lead("a");
    with["properties"]["nonsense"] = json!(1);
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject permanent VALIDATION_ERROR");
    assert!(outcome.failure().unwrap().message.contains("PROPERTY_DOESNT_EXIST"), "{outcome:?}");
    assert_eq!(brief(&connectors.call(upsert(&by_email("no address"))).await), "reject permanent VALIDATION_ERROR");
    with["object"] = json!("cars");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "reject mapping VALIDATION_ERROR");
}

#[tokio::test]
async fn every_fault_of_hubspot_has_its_outcome() {
    let hold_ms = 60_000;
    let table = [
        (Fault::TimeoutBefore { hold_ms }, "unsure retryable timeout"),
        (Fault::TimeoutAfter { hold_ms }, "unsure retryable timeout"),
        (Fault::DropBefore, "unsure retryable reset"),
        (Fault::DropAfter, "unsure retryable reset"),
        (Fault::CutResponse, "unsure retryable truncated"),
        (Fault::TooManyRequests { retry_after: RetryAfter::Absent }, "wait retryable TEN_SECONDLY_ROLLING"),
        (Fault::RequestLimitExceeded, "wait retryable DAILY"),
        (Fault::ErrorBefore, "retry retryable INTERNAL_ERROR"),
        (Fault::ErrorAfter, "retry retryable INTERNAL_ERROR"),
        (Fault::Gateway { status: 502, moment: Moment::AfterApplying }, "retry retryable http-502"),
        (Fault::ServerUnavailable, "retry retryable SERVICE_UNAVAILABLE"),
        (Fault::LockRow, "retry retryable LOCKED"),
        (Fault::Reply { code: 477 }, "wait retryable injected"),
        (Fault::GarbageBody { moment: Moment::AfterApplying }, "retry conflict http-200"),
        (Fault::HugeBody { bytes: 1 << 30 }, "retry retryable too-large"),
        (Fault::RedirectLoop, "reject permanent http-302"),
    ];
    for with in [lead("a"), by_email("ada@example.com")] {
        for (fault, expected) in table.clone() {
            let account = account([Scripted::first(1, fault.clone()).only(CallKind::Write)]);
            let connectors = to_account(&account.url(), private_app());
            let timeout = if expected.ends_with("timeout") { SHORT } else { PATIENT };
            let outcome = connectors.call(Call { timeout, ..upsert(&with) }).await;
            assert_eq!(brief(&outcome), expected, "{fault:?} {outcome:?}");
            assert_eq!(brief(&connectors.call(upsert(&with)).await), "done", "{fault:?}");
            let contacts = account.truth().object("contacts");
            assert_eq!((contacts.records, contacts.created_again, contacts.ambiguous), (1, 0, 0), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn batch_is_one_call_in_which_a_bad_record_fails_alone() {
    let account = account([]);
    let connectors = to_account(&account.url(), private_app());
    let mut withs: Vec<Value> = (0..5).map(|number| lead(&format!("b{number}"))).collect();
    withs[1]["properties"]["nonsense"] = json!("x");
    withs[3]["id"] = json!("");
    let keys: Vec<String> = (0..5).map(|number| format!("effect-{number}")).collect();
    let calls: Vec<Call<'_>> =
        withs.iter().zip(&keys).map(|(with, key)| Call { effect_key: key, ..upsert(with) }).collect();
    let outcomes: Vec<String> = connectors.call_batch(&calls).await.iter().map(brief).collect();
    let expected = ["done", "reject permanent VALIDATION_ERROR", "done", "reject identity no-identity", "done"];
    assert_eq!(outcomes, expected);
    let truth = account.truth();
    assert_eq!((truth.calls.received, truth.object("contacts").records), (1, 3));
    account.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter)])).unwrap();
    let outcomes: Vec<String> = connectors.call_batch(&calls[..3]).await.iter().map(brief).collect();
    assert_eq!(outcomes, ["unsure retryable reset"; 3], "a lost answer is the answer of none");
}

#[tokio::test]
async fn record_created_by_another_writer_in_between_is_updated_in_the_same_attempt() {
    let account = account([Scripted::first(1, Fault::DuplicateValue).only(CallKind::Write)]);
    let connectors = to_account(&account.url(), private_app());
    assert_eq!(brief(&connectors.call(upsert(&by_email("ada@example.com"))).await), "done");
    let records = account.records("contacts");
    assert_eq!((records.len(), records[0].properties["firstname"].as_str()), (1, "Ada"));
}

#[tokio::test]
async fn expired_access_token_is_renewed_once_for_all_calls_with_the_rotated_refresh_token() {
    let settings = HubspotSettings { rotates_refresh_token: true, ..HubspotSettings::default() };
    let account = Hubspot::start(settings).unwrap();
    let connectors = to_account(&account.url(), oauth("sim-secret"));
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
    account.expire_tokens();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..32 {
        let connectors = connectors.clone();
        calls.spawn(async move { brief(&connectors.call(upsert(&lead(&format!("a{number}")))).await) });
    }
    let outcomes = calls.join_all().await;
    assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
    assert_eq!(account.truth().calls.tokens_issued, 2);
}

#[tokio::test]
async fn token_about_to_expire_is_renewed_before_the_call() {
    let access_token_lifetime = std::time::Duration::ZERO;
    let account = Hubspot::start(HubspotSettings { access_token_lifetime, ..HubspotSettings::default() }).unwrap();
    let connectors = to_account(&account.url(), oauth("sim-secret"));
    let outcome = connectors.call(upsert(&lead("a"))).await;
    assert_eq!(brief(&outcome), "reject auth INVALID_AUTHENTICATION");
    let truth = account.truth();
    assert_eq!((truth.calls.token_calls, truth.calls.received), (2, 2), "renewed once, then rejected");
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "reject auth INVALID_AUTHENTICATION");
    assert_eq!(account.truth().calls.token_calls, 4, "an expired token is not used again");
}

#[tokio::test]
async fn refused_credentials_send_no_effect() {
    let account = account([]);
    let connectors = to_account(&account.url(), oauth("wrong-secret"));
    let outcome = connectors.call(upsert(&lead("a"))).await;
    assert_eq!(brief(&outcome), "reject auth BAD_CLIENT_SECRET");
    assert!(outcome.failure().unwrap().message.starts_with("No token: "), "{outcome:?}");
    assert_eq!(account.truth().calls.received, 0);
    let connectors = to_account(&account.url(), HubspotAuth::Token("pat-other".into()));
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "reject auth INVALID_AUTHENTICATION");
    assert_eq!(account.truth().calls.received, 1, "a configured token is not renewed");
}

#[tokio::test]
async fn limits_of_the_account_are_waited_for_and_reported() {
    let settings = HubspotSettings { daily_calls_max: 2, ..HubspotSettings::default() };
    let account = Hubspot::start(settings).unwrap();
    let connectors = to_account(&account.url(), private_app());
    assert_eq!(connectors.quota("there"), None);
    for _ in 0..2 {
        assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
    }
    assert_eq!(connectors.quota("there"), Some(Quota { used: 2, limit: 2 }));
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "wait retryable DAILY");
    account.new_day();
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
    assert_eq!(connectors.quota("there"), Some(Quota { used: 1, limit: 2 }));
    let settings = HubspotSettings { ten_second_calls_max: Some(0), ..HubspotSettings::default() };
    let account = Hubspot::start(settings).unwrap();
    let connectors = to_account(&account.url(), private_app());
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "wait retryable TEN_SECONDLY_ROLLING");
}

#[tokio::test]
async fn read_back_finds_a_record_that_the_search_index_lacks() {
    let search_lag = std::time::Duration::from_secs(3_600);
    let account = Hubspot::start(HubspotSettings { search_lag, ..HubspotSettings::default() }).unwrap();
    let connectors = to_account(&account.url(), private_app());
    let with = by_email("ada@example.com");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    assert!(matches!(connectors.read_back(upsert(&with)).await, Readback::Present(_)));
}
