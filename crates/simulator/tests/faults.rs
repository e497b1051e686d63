//! Every fault as seen by a caller, and its effect on the records.

mod support;

use std::collections::HashSet;

use serde_json::{Value, json};
use sluice_simulator::crm::WriteActor;
use sluice_simulator::faults::{CallKind, FaultKind, Millis, Moment, Outage, RetryAfter, Scripted};
use sluice_simulator::{Everything, Fault, FaultPlan, SalesforceSettings};
use support::{Client, RequestError, TestResponse, org, signed_in, soon};

const LEAD: &str = "/services/data/v60.0/sobjects/Lead/External_Lead_Id__c";

fn lead() -> Value {
    json!({"LastName": "Nkosi", "Company": "Kraal", "Email": "n@example.com"})
}

async fn upsert(client: &Client, key: &str) -> Result<TestResponse, RequestError> {
    let client = client.clone().with("Content-Type", "application/json");
    client.send("PATCH", &format!("{LEAD}/{key}"), lead().to_string().as_bytes()).await
}

/// One upsert under one fault: the caller's result, and whether the record exists.
async fn under(fault: Fault) -> (Result<TestResponse, RequestError>, bool) {
    let (org, client) = org(SalesforceSettings { faults: FaultPlan::always(fault.clone()), ..Default::default() });
    let result = upsert(&client, "k").await;
    let truth = org.truth();
    assert_eq!(truth.faults, [(fault.kind(), 1)].into(), "{fault:?}");
    assert_eq!((truth.calls.received, truth.calls.settled), (1, 1), "{fault:?}");
    assert_eq!(truth.calls.cut, u64::from(result.is_err()), "{fault:?}");
    let applied = truth.calls.applied == 1;
    let confirmed = result.as_ref().is_ok_and(|response| response.status == 201 && response.json()["created"] == true);
    assert_eq!(truth.calls.applied_unseen == 1, applied && !confirmed, "{fault:?}");
    (result, applied)
}

#[tokio::test]
async fn connections_close_before_and_after_the_change() {
    let hold_ms = 3;
    for (fault, applied) in [
        (Fault::TimeoutBefore { hold_ms }, false),
        (Fault::TimeoutAfter { hold_ms }, true),
        (Fault::DropBefore, false),
        (Fault::DropAfter, true),
    ] {
        let (result, found) = under(fault.clone()).await;
        assert_eq!((result.unwrap_err(), found), (RequestError::NoResponse, applied), "{fault:?}");
    }
    let (result, applied) = under(Fault::CutResponse).await;
    let Err(RequestError::Truncated { status, announced, arrived }) = result else { panic!("{result:?}") };
    assert!(applied && status == 201 && arrived > 0 && arrived < announced, "{arrived} of {announced}");
}

#[tokio::test]
async fn refusals_have_the_status_and_code_of_salesforce() {
    let before = Moment::BeforeApplying;
    let after = Moment::AfterApplying;
    let seconds = RetryAfter::Seconds(2);
    for (fault, status, code, applied) in [
        (Fault::TooManyRequests { retry_after: seconds }, 429, "TOO_MANY_REQUESTS", false),
        (Fault::RequestLimitExceeded, 403, "REQUEST_LIMIT_EXCEEDED", false),
        (Fault::ErrorBefore, 500, "UNKNOWN_EXCEPTION", false),
        (Fault::ErrorAfter, 500, "UNKNOWN_EXCEPTION", true),
        (Fault::ServerUnavailable, 503, "SERVER_UNAVAILABLE", false),
        (Fault::LockRow, 400, "UNABLE_TO_LOCK_ROW", false),
        (Fault::DuplicateValue, 400, "DUPLICATE_VALUE", false),
        (Fault::InvalidSession, 401, "INVALID_SESSION_ID", false),
        (Fault::Gateway { status: 502, moment: before }, 502, "", false),
        (Fault::Gateway { status: 503, moment: before }, 503, "", false),
        (Fault::Gateway { status: 504, moment: after }, 504, "", true),
        (Fault::GarbageBody { moment: before }, 200, "", false),
        (Fault::GarbageBody { moment: after }, 200, "", true),
        (Fault::RedirectLoop, 302, "", false),
    ] {
        let (result, found) = under(fault.clone()).await;
        let response = result.unwrap();
        assert_eq!((response.status, response.code().as_str(), found), (status, code, applied), "{fault:?}");
        match fault {
            Fault::Gateway { .. } => assert!(response.body.starts_with(b"<html>"), "{response:?}"),
            Fault::GarbageBody { .. } => assert!(serde_json::from_slice::<Value>(&response.body).is_err()),
            Fault::RedirectLoop => assert_eq!(response.header("location"), Some(format!("{LEAD}/k").as_str())),
            _ => {}
        }
    }
}

#[tokio::test]
async fn retry_after_has_every_form() {
    for (retry_after, check) in [
        (RetryAfter::Seconds(7), (|value| value == Some("7")) as fn(Option<&str>) -> bool),
        (RetryAfter::HttpDate(7), |value| value.is_some_and(|value| value.ends_with(" GMT"))),
        (RetryAfter::Absent, |value| value.is_none()),
        (RetryAfter::Absurd, |value| value.is_some_and(|value| value.parse::<u64>().unwrap() > 1 << 32)),
    ] {
        let (result, _) = under(Fault::TooManyRequests { retry_after }).await;
        let response = result.unwrap();
        assert!(check(response.header("retry-after")), "{retry_after:?} {response:?}");
    }
}

#[tokio::test]
async fn late_slow_and_huge_responses_are_applied() {
    let (result, applied) = under(Fault::Latency(Millis::between(1, 3))).await;
    assert!(applied && result.unwrap().status == 201);
    let (result, applied) = under(Fault::TrickleBody { chunk_bytes: 9, gap_ms: 1 }).await;
    let response = result.unwrap();
    assert!(applied && response.json()["created"] == true && response.header("content-length").is_some());
    let (result, applied) = under(Fault::HugeBody { bytes: 3_000_000 }).await;
    let response = result.unwrap();
    assert!(applied && response.body.len() > 3_000_000 && response.header("content-length").is_none());
}

#[tokio::test]
async fn write_can_be_applied_after_its_caller_disconnects() {
    let faults = FaultPlan::always(Fault::Latency(Millis::fixed(30)));
    let (org, client) = org(SalesforceSettings { faults, ..Default::default() });
    let client = client.with("Content-Type", "application/json");
    let connection = client.post("PATCH", &format!("{LEAD}/late"), lead().to_string().as_bytes()).await.unwrap();
    soon(org.wait_until(|truth| truth.calls.received == 1)).await;
    drop(connection);
    let truth = soon(org.wait_until(|truth| truth.calls.applied == 1)).await;
    assert_eq!(truth.object("Lead").records, 1);
}

#[tokio::test]
async fn upsert_that_loses_a_race_updates_when_retried() {
    let faults = FaultPlan::scripted([Scripted::first(1, Fault::DuplicateValue)]);
    let (org, client) = org(SalesforceSettings { faults, ..Default::default() });
    let lost = upsert(&client, "k").await.unwrap();
    let rival = &org.writes()[0];
    assert_eq!(rival.writer, WriteActor::Rival);
    assert!(lost.json()[0]["message"].as_str().unwrap().contains(&rival.record_id));
    assert!(!org.records("Lead")[0].fields.contains_key("Email"));
    assert_eq!(upsert(&client, "k").await.unwrap().status, 200);
    assert_eq!(org.records("Lead")[0].fields["Email"], "n@example.com");
    assert_eq!(org.truth().object("Lead").records, 1);
}

#[tokio::test]
async fn collections_report_lock_errors_per_record() {
    let faults = FaultPlan::scripted([Scripted::for_key("b", Fault::LockRow).times(1)]);
    let (org, client) = org(SalesforceSettings { faults, ..Default::default() });
    let record = |key: &str| json!({"attributes": {"type": "Lead"}, "External_Lead_Id__c": key, "LastName": "n", "Company": "c"});
    let path = "/services/data/v60.0/composite/sobjects/Lead/External_Lead_Id__c";
    let body = json!({"records": [record("a"), record("b")]});
    let locked = client.json("PATCH", path, body.clone()).await;
    assert_eq!(locked.status, 200);
    assert_eq!(locked.json()[1]["errors"][0]["statusCode"], "UNABLE_TO_LOCK_ROW");
    assert_eq!(org.records("Lead").len(), 0);
    assert_eq!(client.json("PATCH", path, body).await.json()[1]["created"], true);
}

#[tokio::test]
async fn stale_read_hides_an_existing_record() {
    let (org, client) = org(SalesforceSettings::default());
    upsert(&client, "k").await.unwrap();
    org.set_faults(FaultPlan::scripted([Scripted::first(2, Fault::StaleRead)])).unwrap();
    assert_eq!(upsert(&client, "k").await.unwrap().status, 200);
    assert_eq!(client.get(&format!("{LEAD}/k")).await.status, 404);
    let query = "/services/data/v60.0/query?q=SELECT+Id+FROM+Lead";
    assert_eq!(client.get(query).await.json()["totalSize"], 0);
    assert_eq!(client.get(query).await.json()["totalSize"], 1);
    assert_eq!(client.get(&format!("{LEAD}/k")).await.status, 200);
}

#[tokio::test]
async fn token_calls_can_fail() {
    let refused = Scripted::first(1, Fault::InvalidSession).only(CallKind::Token);
    let (org, client) = org(SalesforceSettings { faults: FaultPlan::scripted([refused]), ..Default::default() });
    let form = b"grant_type=client_credentials&client_id=sim-client&client_secret=sim-secret";
    let first = client.send("POST", "/services/oauth2/token", form).await.unwrap();
    assert_eq!((first.status, first.json()["error"].as_str()), (400, Some("invalid_grant")));
    assert_eq!(client.send("POST", "/services/oauth2/token", form).await.unwrap().status, 200);
    assert_eq!(org.truth().calls.tokens_issued, 1);
}

#[tokio::test]
async fn outage_fails_every_call_until_the_plan_changes() {
    let outage = Outage { from_ms: 0, to_ms: 3_600_000, every_ms: None, fault: Fault::DropBefore };
    let faults = FaultPlan { outages: vec![outage], ..FaultPlan::default() };
    let (org, client) = org(SalesforceSettings { faults, ..Default::default() });
    for _ in 0..5 {
        assert_eq!(upsert(&client, "k").await.unwrap_err(), RequestError::NoResponse);
    }
    org.set_faults(FaultPlan::none()).unwrap();
    assert_eq!(upsert(&client, "k").await.unwrap().status, 201);
    assert_eq!(org.truth().faults, [(FaultKind::DropBefore, 5)].into());
}

/// A caller that retries until the response is accurate ends with one record per key, whatever the faults, and the
/// recorded truth proves it.
#[tokio::test]
async fn retrying_caller_gets_one_record_per_key_under_all_faults() {
    let everything = Everything { percent: 60.0, seed: 9, hold_ms: 2, huge_bytes: 100_000, ..Everything::default() };
    let (org, _) = org(SalesforceSettings { faults: everything.plan(), ..Default::default() });
    let client = signed_in(&org);
    let keys: HashSet<String> = (0..150).map(|number| format!("key-{number}")).collect();
    let mut calls = 0;
    for key in &keys {
        loop {
            calls += 1;
            let result = upsert(&client, key).await;
            if result.is_ok_and(|response| matches!(response.status, 200 | 201) && response.json()["success"] == true) {
                break;
            }
        }
    }
    let truth = org.truth();
    let lead = truth.object("Lead");
    assert_eq!((lead.records, lead.created, lead.external_ids), (150, 150, 150));
    assert_eq!((lead.created_again, lead.ambiguous), (0, 0));
    assert_eq!(truth.calls.received, calls);
    assert!(truth.calls.applied_unseen > 0 && lead.updated > 0, "no unseen write: {truth:?}");
    let share = truth.faults_total() * 100 / calls;
    assert!((50..=70).contains(&share), "{share} % of {calls} calls failed");
    assert!(org.records("Lead").iter().all(|record| record.fields["Email"] == "n@example.com"));
}
