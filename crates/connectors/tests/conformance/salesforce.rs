//! `salesforce.upsert` against the simulated organisation.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings, Quota};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, SalesforceAuth};
use sluice_domain::failure_rules::{FailureAction, FailureRule, RuleCall, RuleOrigin, StatusRange};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{CallKind, Moment, RetryAfter, Scripted};
use sluice_simulator::salesforce::JwtApplication;
use sluice_simulator::{Fault, FaultPlan, Salesforce, SalesforceSettings};

use crate::{PATIENT, SHORT, brief, client_credentials, connectors, salesforce_at};

fn org(script: impl IntoIterator<Item = Scripted>) -> Salesforce {
    Salesforce::start(SalesforceSettings { faults: FaultPlan::scripted(script), ..SalesforceSettings::default() })
        .unwrap()
}

fn to_org(url: &str, auth: SalesforceAuth) -> Connectors {
    connectors([("there", DestinationKind::Salesforce(salesforce_at(url, auth)))])
}

fn lead(id: &str) -> Value {
    json!({
        "object": "Lead", "external_id_field": "External_Lead_Id__c", "external_id": id,
        "fields": {"LastName": "Ö", "Company": "Acme", "External_Lead_Id__c": id},
    })
}

fn upsert(with: &Value) -> Call<'_> {
    crate::call(Action::SalesforceUpsert, with, PATIENT)
}

#[tokio::test]
async fn upsert_creates_then_updates_one_record() {
    let org = org([]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    let with = lead("a.b/c?d#e%f@ü x");
    let Outcome::Done { result: first } = connectors.call(upsert(&with)).await else { panic!("not created") };
    let Outcome::Done { result: second } = connectors.call(upsert(&with)).await else { panic!("not updated") };
    assert_eq!((&first["created"], &second["created"]), (&json!(true), &json!(false)));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(
        connectors.read_back(upsert(&with)).await,
        Readback::Present(json!({"id": first["id"], "created": false}))
    );
    assert_eq!(connectors.read_back(upsert(&lead("other"))).await, Readback::Absent);
    let truth = org.truth();
    assert_eq!((truth.object("Lead").records, truth.calls.token_calls), (1, 1));
    let ids = org.external_ids("Lead", "External_Lead_Id__c");
    assert!(ids.keys().any(|id| id == "a.b/c?d#e%f@ü x"), "{ids:?}");
}

#[tokio::test]
async fn update_of_an_absent_record_is_a_dead_letter_a_noop_or_a_create() {
    let org = org([]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    let mut with = lead("absent");
    with["mode"] = json!("update_only");
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject identity record-absent", "{outcome:?}");
    with["on_absent"] = json!("noop");
    let outcome = connectors.call(upsert(&with)).await;
    assert!(matches!(&outcome, Outcome::Noop { reason } if reason.contains("Lead")), "{outcome:?}");
    assert_eq!(org.truth().object("Lead").records, 0);
    with["on_absent"] = json!("create");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    assert_eq!(org.truth().object("Lead").records, 1);
}

#[tokio::test]
async fn missing_id_and_invalid_fields_are_rejected() {
    let org = org([]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    assert_eq!(brief(&connectors.call(upsert(&lead(""))).await), "reject identity no-identity");
    assert_eq!(org.truth().calls.received, 0);
    let mut with = lead("a");
    with["fields"] = json!({"LastName": "x", "Company": "y", "Nonsense__c": 1});
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "reject permanent INVALID_FIELD");
    with["external_id_field"] = json!("Nowhere__c");
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject permanent NOT_FOUND");
    assert!(outcome.failure().unwrap().message.contains("external id field"), "{outcome:?}");
}

fn briefs(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().map(brief).collect()
}

#[tokio::test]
async fn batch_has_one_outcome_for_each_call_in_one_request() {
    let org = org([]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    let mut parameters = [lead("a"), lead("b.c/d"), lead(""), lead("e")];
    parameters[1]["fields"]["Nonsense__c"] = json!(1);
    let calls: Vec<Call<'_>> = parameters.iter().map(upsert).collect();
    let outcomes = connectors.call_batch(&calls).await;
    assert_eq!(
        briefs(&outcomes),
        ["done", "reject permanent INVALID_FIELD", "reject identity no-identity", "done"],
        "{outcomes:?}"
    );
    let truth = org.truth();
    assert_eq!((truth.calls.received, truth.object("Lead").records), (1, 2));
    let Outcome::Done { result } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(
        connectors.read_back(calls[0]).await,
        Readback::Present(json!({"id": result["id"], "created": false})),
        "a batch leaves the record that a single call leaves"
    );
    assert_eq!(briefs(&connectors.call_batch(&calls[..1]).await), ["done"], "a call alone is a single one");
    assert_eq!(connectors.call_batch(&[]).await, []);
}

#[tokio::test]
async fn every_fault_of_a_batch_is_the_outcome_of_each_call() {
    let table = [
        (Fault::DropBefore, "unsure retryable reset", 0),
        (Fault::DropAfter, "unsure retryable reset", 2),
        (Fault::CutResponse, "unsure retryable truncated", 2),
        (Fault::ErrorBefore, "retry retryable UNKNOWN_EXCEPTION", 0),
        (Fault::ErrorAfter, "retry retryable UNKNOWN_EXCEPTION", 2),
        (Fault::RequestLimitExceeded, "wait retryable REQUEST_LIMIT_EXCEEDED", 0),
        (Fault::RedirectLoop, "retry conflict batch-rejected", 0),
    ];
    let parameters = [lead("a"), lead("b")];
    for (fault, expected, applied) in table {
        let org = org([Scripted::first(1, fault.clone()).only(CallKind::Write)]);
        let connectors = to_org(&org.url(), client_credentials("sim-secret"));
        let calls: Vec<Call<'_>> = parameters.iter().map(upsert).collect();
        let outcomes = connectors.call_batch(&calls).await;
        assert_eq!(briefs(&outcomes), [expected; 2], "{fault:?} {outcomes:?}");
        assert_eq!(org.truth().object("Lead").records, applied, "{fault:?}");
        assert_eq!(briefs(&connectors.call_batch(&calls).await), ["done", "done"], "{fault:?}");
        assert_eq!(org.truth().object("Lead").records, 2, "{fault:?}");
    }
}

#[tokio::test]
async fn every_fault_of_salesforce_has_its_outcome() {
    let hold = 60_000;
    let table = [
        (Fault::TimeoutBefore { hold_ms: hold }, "unsure retryable timeout"),
        (Fault::TimeoutAfter { hold_ms: hold }, "unsure retryable timeout"),
        (Fault::DropBefore, "unsure retryable reset"),
        (Fault::DropAfter, "unsure retryable reset"),
        (Fault::CutResponse, "unsure retryable truncated"),
        (Fault::TooManyRequests { retry_after: RetryAfter::Seconds(3) }, "wait retryable TOO_MANY_REQUESTS"),
        (Fault::RequestLimitExceeded, "wait retryable REQUEST_LIMIT_EXCEEDED"),
        (Fault::ErrorBefore, "retry retryable UNKNOWN_EXCEPTION"),
        (Fault::ErrorAfter, "retry retryable UNKNOWN_EXCEPTION"),
        (Fault::Gateway { status: 502, moment: Moment::AfterApplying }, "retry retryable http-502"),
        (Fault::ServerUnavailable, "retry retryable SERVER_UNAVAILABLE"),
        (Fault::LockRow, "retry retryable UNABLE_TO_LOCK_ROW"),
        (Fault::DuplicateValue, "retry conflict DUPLICATE_VALUE"),
        (Fault::GarbageBody { moment: Moment::AfterApplying }, "retry conflict http-200"),
        (Fault::HugeBody { bytes: 1 << 30 }, "retry retryable too-large"),
        (Fault::RedirectLoop, "reject permanent http-302"),
    ];
    let with = lead("a");
    for (fault, expected) in table {
        let org = org([Scripted::first(1, fault.clone()).only(CallKind::Write)]);
        let connectors = to_org(&org.url(), client_credentials("sim-secret"));
        let timeout = if expected.ends_with("timeout") { SHORT } else { PATIENT };
        if expected.ends_with("timeout") {
            assert_eq!(
                connectors.read_back(upsert(&with)).await,
                Readback::Absent,
                "fetches the token before the short timeout"
            );
        }
        let outcome = connectors.call(Call { timeout, ..upsert(&with) }).await;
        assert_eq!(brief(&outcome), expected, "{fault:?} {outcome:?}");
        let again = connectors.call(upsert(&with)).await;
        assert_eq!(brief(&again), "done", "{fault:?}");
        let lead = org.truth().object("Lead");
        assert_eq!((lead.records, lead.created_again, lead.ambiguous), (1, 0, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn refused_connection_sends_nothing() {
    let org = org([]);
    let with = lead("a");
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    org.refuse_connections().unwrap();
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "retry retryable connect");
    org.accept_connections().unwrap();
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
}

#[tokio::test]
async fn expired_token_is_renewed_once_for_all_calls() {
    let org = org([]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
    org.expire_tokens();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..64 {
        let connectors = connectors.clone();
        calls.spawn(async move { brief(&connectors.call(upsert(&lead(&format!("a{number}")))).await) });
    }
    let outcomes = calls.join_all().await;
    assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
    assert_eq!(org.truth().calls.tokens_issued, 2);
}

#[tokio::test]
async fn repeatedly_refused_token_is_renewed_once_then_rejected() {
    let org = org([Scripted { times: None, ..Scripted::first(1, Fault::InvalidSession) }]);
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    let with = lead("a");
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject auth INVALID_SESSION_ID");
    let truth = org.truth();
    assert_eq!((truth.calls.token_calls, truth.calls.received), (2, 2));
    let Readback::Unreadable(failure) = connectors.read_back(upsert(&with)).await else { panic!("readable") };
    assert_eq!(failure.code, "INVALID_SESSION_ID");
}

#[tokio::test]
async fn configured_token_is_not_renewed() {
    let org = org([]);
    let connectors = to_org(&org.url(), SalesforceAuth::Token(org.issue_token().into()));
    let with = lead("a");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    org.expire_tokens();
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "reject auth INVALID_SESSION_ID");
    assert_eq!(org.truth().calls.token_calls, 0);
}

#[tokio::test]
async fn concurrent_calls_share_one_token_and_one_failure() {
    let good = org([]);
    let bad = org([]);
    for (org, secret, expected) in [(&good, "sim-secret", "done"), (&bad, "wrong-secret", "reject auth invalid_client")]
    {
        let connectors = to_org(&org.url(), client_credentials(secret));
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..64 {
            let connectors = connectors.clone();
            calls.spawn(async move { brief(&connectors.call(upsert(&lead(&format!("a{number}")))).await) });
        }
        let outcomes = calls.join_all().await;
        assert!(outcomes.iter().all(|outcome| outcome == expected), "{outcomes:?}");
        assert_eq!(org.truth().calls.token_calls, 1, "{secret}");
    }
    assert_eq!(bad.truth().calls.received, 0, "no effect is sent without a token");
}

#[tokio::test]
async fn failed_token_request_leaves_the_effect_unsent() {
    let table = [
        (Fault::ErrorBefore, "retry retryable"),
        (Fault::Gateway { status: 503, moment: Moment::BeforeApplying }, "retry retryable"),
        (Fault::DropAfter, "retry retryable reset"),
        (Fault::TimeoutBefore { hold_ms: 60_000 }, "retry retryable timeout"),
        (Fault::CutResponse, "retry retryable truncated"),
        (Fault::TooManyRequests { retry_after: RetryAfter::Seconds(3) }, "wait retryable"),
        (Fault::GarbageBody { moment: Moment::BeforeApplying }, "retry conflict"),
    ];
    let with = lead("a");
    for (fault, expected) in table {
        let org = org([Scripted::first(1, fault.clone()).only(CallKind::Token)]);
        let connectors = to_org(&org.url(), client_credentials("sim-secret"));
        let timeout = if expected.ends_with("timeout") { SHORT } else { PATIENT };
        let outcome = connectors.call(Call { timeout, ..upsert(&with) }).await;
        assert!(brief(&outcome).starts_with(expected), "{fault:?} {outcome:?}");
        assert!(outcome.failure().unwrap().message.starts_with("No token: "), "{outcome:?}");
        assert_eq!(org.truth().calls.received, 0, "{fault:?}");
        assert_eq!(brief(&connectors.call(upsert(&with)).await), "done", "{fault:?}");
    }
}

#[tokio::test]
async fn signed_assertion_gets_a_token_and_renews_it_once() {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let text = data_encoding::BASE64.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    let (user, audience) = ("ann@example.com".to_owned(), "https://login.salesforce.com".to_owned());
    let jwt = |user: &str| SalesforceAuth::JwtBearer {
        client_id: "sim-client".into(),
        user: user.to_owned(),
        audience: audience.clone(),
        private_key: pem.as_str().into(),
    };
    let public_key = key.public_key().as_ref().to_vec();
    let application = JwtApplication { public_key, user: user.clone(), audience: audience.clone() };
    let settings = SalesforceSettings { jwt_application: Some(application), ..SalesforceSettings::default() };
    let org = Salesforce::start(settings).unwrap();
    let connectors = to_org(&org.url(), jwt(&user));
    let with = lead("a");
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    org.expire_tokens();
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "done");
    assert_eq!(org.truth().calls.tokens_issued, 2);
    let outcome = to_org(&org.url(), jwt("eve@example.com")).call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject auth invalid_grant", "{outcome:?}");
}

#[tokio::test]
async fn use_of_the_daily_limit_is_read_from_every_response() {
    let settings = SalesforceSettings { daily_calls_max: 2, ..SalesforceSettings::default() };
    let org = Salesforce::start(settings).unwrap();
    let connectors = to_org(&org.url(), client_credentials("sim-secret"));
    assert_eq!(connectors.quota("there"), None);
    for used in 1..=2 {
        assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
        assert_eq!(connectors.quota("there"), Some(Quota { used, limit: 2 }));
    }
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "wait retryable REQUEST_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn failure_rule_of_the_destination_precedes_that_of_the_connector() {
    let org = org([Scripted::first(1, Fault::LockRow).only(CallKind::Write)]);
    let kind = DestinationKind::Salesforce(salesforce_at(&org.url(), client_credentials("sim-secret")));
    let rule = FailureRule {
        call: RuleCall::Effect,
        statuses: vec![StatusRange::one(400)],
        codes: vec!["UNABLE_*".into()],
        contains: Some("exclusive access".into()),
        action: FailureAction::Reject(sluice_domain::outcome::FailureClass::Mapping),
        advice: "a parent is locked for the night".into(),
    };
    let mut destination = crate::destination("there", kind);
    destination.failure_rules = vec![rule.clone()];
    let connectors = Connectors::new(&[destination], &OutboundSettings::default()).unwrap();
    let outcome = connectors.call(upsert(&lead("a"))).await;
    assert_eq!(brief(&outcome), "reject mapping UNABLE_TO_LOCK_ROW");
    assert!(outcome.failure().unwrap().message.contains("a parent is locked for the night"), "{outcome:?}");
    assert_eq!(connectors.failure_rules("there").unwrap().rules().next(), Some((&rule, RuleOrigin::Destination)));
    assert_eq!(brief(&connectors.call(upsert(&lead("a"))).await), "done");
}
