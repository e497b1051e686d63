//! The simulated Salesforce over real sockets, without faults.

mod support;

use serde_json::{Value, json};
use sluice_simulator::crm::{Truth, WriteKind};
use sluice_simulator::{Salesforce, SalesforceSettings};
use support::{Client, RequestError, org, soon};

const LEAD: &str = "/services/data/v60.0/sobjects/Lead/External_Lead_Id__c";

fn lead() -> Value {
    json!({"LastName": "Nkosi", "Company": "Kraal"})
}

async fn token(org: &Salesforce, form: &str) -> support::TestResponse {
    let client = Client::new(org.address()).with("Content-Type", "application/x-www-form-urlencoded");
    client.send("POST", "/services/oauth2/token", form.as_bytes()).await.expect("a response")
}

#[tokio::test]
async fn token_is_valid_until_it_expires() {
    let org = Salesforce::start(SalesforceSettings::default()).unwrap();
    let refused = token(&org, "grant_type=client_credentials&client_id=sim-client&client_secret=wrong").await;
    assert_eq!((refused.status, refused.json()["error"].as_str()), (400, Some("invalid_client")));

    let form = "grant_type=client_credentials&client_id=sim-client&client_secret=sim-secret";
    let granted = token(&org, form).await.json();
    assert_eq!(granted["instance_url"], org.url());
    assert_eq!(granted["token_type"], "Bearer");
    assert!(granted.get("expires_in").is_none());

    let bearer = format!("Bearer {}", granted["access_token"].as_str().unwrap());
    let client = Client::new(org.address()).with("Authorization", &bearer);
    assert_eq!(client.json("PATCH", &format!("{LEAD}/a"), lead()).await.status, 201);
    let unauthenticated = Client::new(org.address()).json("PATCH", &format!("{LEAD}/b"), lead()).await;
    assert_eq!((unauthenticated.status, unauthenticated.code().as_str()), (401, "INVALID_SESSION_ID"));
    org.expire_tokens();
    let expired = client.json("PATCH", &format!("{LEAD}/a"), lead()).await;
    assert_eq!((expired.status, expired.code().as_str()), (401, "INVALID_SESSION_ID"));

    let basic = Client::new(org.address()).with("Authorization", "Basic c2ltLWNsaWVudDpzaW0tc2VjcmV0");
    let again = basic.send("POST", "/services/oauth2/token", b"grant_type=client_credentials").await.unwrap();
    let bearer = format!("Bearer {}", again.json()["access_token"].as_str().unwrap());
    assert_eq!(client.with("Authorization", &bearer).json("PATCH", &format!("{LEAD}/a"), lead()).await.status, 200);
    let calls = org.truth().calls;
    assert_eq!((calls.token_calls, calls.tokens_issued, calls.applied, calls.refused), (3, 2, 2, 2));
}

#[tokio::test]
async fn upsert_creates_once_then_updates() {
    let (org, client) = org(SalesforceSettings::default());
    let created = client.json("PATCH", &format!("{LEAD}/a%2Fb%3F%25"), lead()).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["created"], true);
    let updated = client.json("PATCH", &format!("{LEAD}/a%2Fb%3F%25"), json!({"FirstName": "Lwazi"})).await;
    assert_eq!((updated.status, &updated.json()["created"]), (200, &json!(false)));
    assert_eq!(updated.json()["id"], created.json()["id"]);
    let old = "/services/data/v45.0/sobjects/Lead/External_Lead_Id__c/a%2Fb%3F%25";
    let older = client.json("PATCH", old, json!({"FirstName": "Lwazi"})).await;
    assert_eq!((older.status, older.body.len()), (204, 0));

    let records = org.records("Lead");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].fields["External_Lead_Id__c"], "a/b?%");
    assert_eq!(records[0].fields["FirstName"], "Lwazi");
    let actions: Vec<WriteKind> = org.writes().iter().map(|write| write.action).collect();
    assert_eq!(actions, [WriteKind::Created, WriteKind::Updated, WriteKind::Updated]);
    assert_eq!(org.writes()[0].request_id, created.header("x-request-id").unwrap());
    let counts = org.external_ids("Lead", "External_Lead_Id__c")["a/b?%"];
    assert_eq!((counts.created, counts.updated, counts.live()), (1, 2, 1));
}

#[tokio::test]
async fn concurrent_upserts_of_one_key_create_one_record() {
    let (org, client) = org(SalesforceSettings::default());
    let calls = (0..40).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.json("PATCH", &format!("{LEAD}/same"), lead()).await.status })
    });
    let mut statuses = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        statuses.push(call.await.unwrap());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1);
    let lead = org.truth().object("Lead");
    assert_eq!((lead.records, lead.created, lead.updated, lead.created_again), (1, 1, 39, 0));
}

#[tokio::test]
async fn invalid_upserts_change_nothing_and_report_the_error() {
    let (org, client) = org(SalesforceSettings::default());
    let cases = [
        ("Lead/External_Lead_Id__c/x?updateOnly=true", lead(), 404, "NOT_FOUND"),
        ("Lead/Nope__c/x", lead(), 404, "NOT_FOUND"),
        ("Lead/Email/x", lead(), 404, "NOT_FOUND"),
        ("Unicorn/External_Id__c/x", lead(), 404, "NOT_FOUND"),
        ("Lead/External_Lead_Id__c/x", json!({"External_Lead_Id__c": "x", "LastName": "n"}), 400, "INVALID_FIELD"),
        ("Lead/External_Lead_Id__c/x", json!({"LastName": "n", "Nope__c": 1}), 400, "INVALID_FIELD"),
        ("Lead/External_Lead_Id__c/x", json!({"LastName": "n"}), 400, "REQUIRED_FIELD_MISSING"),
        ("Lead/External_Lead_Id__c/x", json!([1]), 400, "JSON_PARSER_ERROR"),
    ];
    for (path, body, status, code) in cases {
        let response = client.json("PATCH", &format!("/services/data/v60.0/sobjects/{path}"), body.clone()).await;
        assert_eq!((response.status, response.code().as_str()), (status, code), "{path} {body}");
    }
    let field = client.json("PATCH", "/services/data/v60.0/sobjects/Lead/Nope__c/x", lead()).await.json();
    assert!(field[0]["message"].as_str().unwrap().starts_with("Provided external ID field does not exist"));
    let xml = client.clone().with("Content-Type", "text/xml").send("PATCH", &format!("{LEAD}/x"), b"<x/>").await;
    assert_eq!(xml.unwrap().status, 415);
    assert_eq!(client.json("PUT", &format!("{LEAD}/x"), lead()).await.status, 405);
    assert_eq!(
        client.json("PATCH", "/services/data/v12.0/sobjects/Lead/External_Lead_Id__c/x", lead()).await.status,
        404
    );
    let truth = org.truth();
    assert_eq!((truth.calls.applied, truth.calls.refused, org.records("Lead").len()), (0, 12, 0));
}

#[tokio::test]
async fn non_unique_external_id_can_match_several_records() {
    let (org, client) = org(SalesforceSettings::default());
    for _ in 0..2 {
        let body = json!({"LastName": "n", "Company": "c", "Legacy_Id__c": "7"});
        assert_eq!(client.json("POST", "/services/data/v60.0/sobjects/Lead", body).await.status, 201);
    }
    let path = "/services/data/v60.0/sobjects/Lead/Legacy_Id__c/7";
    let response = client.json("PATCH", path, json!({"FirstName": "never"})).await;
    assert_eq!(response.status, 300);
    let urls: Vec<String> = serde_json::from_slice(&response.body).unwrap();
    let expected: Vec<String> =
        org.records("Lead").iter().map(|record| format!("/services/data/v60.0/sobjects/Lead/{}", record.id)).collect();
    assert_eq!(urls, expected);
    assert_eq!(client.get(path).await.status, 300);
    assert!(org.records("Lead").iter().all(|record| !record.fields.contains_key("FirstName")));
    let lead = org.truth().object("Lead");
    assert_eq!((lead.ambiguous, lead.created_again), (1, 1));
}

#[tokio::test]
async fn records_can_be_created_read_changed_and_deleted_by_id() {
    let (_org, client) = org(SalesforceSettings::default());
    let body = json!({"LastName": "n", "Company": "c", "External_Id__c": "E-1"});
    let id = client.json("POST", "/services/data/v60.0/sobjects/Lead", body).await.json()["id"].clone();
    let by_id = format!("/services/data/v60.0/sobjects/Lead/{}", id.as_str().unwrap());
    assert_eq!(client.json("PATCH", &by_id, json!({"Title": "CTO"})).await.status, 204);
    let by_key = "/services/data/v60.0/sobjects/Lead/External_Id__c/e-1";
    let read = client.get(by_key).await.json();
    assert_eq!((&read["Id"], &read["Title"], &read["Phone"]), (&id, &json!("CTO"), &Value::Null));
    assert_eq!(read["attributes"]["url"], by_id);
    let part = client.get(&format!("{by_id}?fields=Title,Id")).await.json();
    assert_eq!(part.as_object().unwrap().len(), 3);

    let duplicate = json!({"LastName": "n", "Company": "c", "External_Id__c": "e-1"});
    let duplicate = client.json("POST", "/services/data/v60.0/sobjects/Lead", duplicate).await;
    assert_eq!((duplicate.status, duplicate.code().as_str()), (400, "DUPLICATE_VALUE"));
    assert!(duplicate.json()[0]["message"].as_str().unwrap().contains(id.as_str().unwrap()));

    assert_eq!(client.send("DELETE", by_key, b"").await.unwrap().status, 204);
    let deleted = client.get(&by_id).await;
    assert_eq!((deleted.status, deleted.code().as_str()), (404, "ENTITY_IS_DELETED"));
    assert_eq!(client.get(by_key).await.code(), "NOT_FOUND");
}

#[tokio::test]
async fn collection_reports_each_record_and_all_or_none_rolls_back() {
    let (org, client) = org(SalesforceSettings::default());
    let path = "/services/data/v60.0/composite/sobjects/Lead/External_Lead_Id__c";
    let record = |key: &str, name: &str| json!({"attributes": {"type": "Lead"}, "External_Lead_Id__c": key, "LastName": name, "Company": "c"});
    let bad = json!({"attributes": {"type": "Lead"}, "External_Lead_Id__c": "bad", "LastName": "n"});
    let records = json!([record("a", "1"), bad, record("A", "2"), record("b", "3")]);
    let mixed = client.json("PATCH", path, json!({"allOrNone": false, "records": records})).await;
    assert_eq!(mixed.status, 200);
    let mixed = mixed.json();
    assert_eq!((&mixed[0]["created"], &mixed[3]["created"]), (&json!(true), &json!(true)));
    assert_eq!(mixed[1]["errors"][0]["statusCode"], "REQUIRED_FIELD_MISSING");
    assert_eq!(mixed[2]["errors"][0]["statusCode"], "DUPLICATE_VALUE");
    assert_eq!(org.records("Lead").len(), 2);

    let before = org.records("Lead");
    let records = json!([record("a", "changed"), record("new", "n"), bad]);
    let none = client.json("PATCH", path, json!({"allOrNone": true, "records": records})).await.json();
    let codes: Vec<&str> = (0..3).map(|index| none[index]["errors"][0]["statusCode"].as_str().unwrap()).collect();
    let rolled_back = "ALL_OR_NONE_OPERATION_ROLLED_BACK";
    assert_eq!(codes, [rolled_back, rolled_back, "REQUIRED_FIELD_MISSING"]);
    assert_eq!(org.records("Lead"), before);
    assert_eq!(org.writes().len(), 2);

    let many: Vec<Value> = (0..201).map(|number| record(&number.to_string(), "n")).collect();
    assert_eq!(client.json("PATCH", path, json!({"records": many})).await.status, 400);
    assert_eq!(client.json("PATCH", path, json!({"nothing": 1})).await.status, 400);
}

#[tokio::test]
async fn queries_filter_count_and_page() {
    let (_org, client) = org(SalesforceSettings::default());
    let path = "/services/data/v60.0/composite/sobjects/Lead/External_Lead_Id__c";
    for batch in 0..11 {
        let records: Vec<Value> = (0..200)
            .map(|number| {
                json!({"attributes": {"type": "Lead"}, "External_Lead_Id__c": format!("{batch}-{number}"),
                "LastName": "O'Hara", "Company": format!("c{batch}")})
            })
            .collect();
        assert_eq!(client.json("PATCH", path, json!({"records": records})).await.status, 200);
    }
    let query = async |soql: &str| {
        let soql: String = soql.bytes().map(|byte| format!("%{byte:02X}")).collect();
        client.get(&format!("/services/data/v60.0/query/?q={soql}")).await
    };
    let one = query("SELECT Id, Company FROM Lead WHERE External_Lead_Id__c = '3-7' LIMIT 2").await.json();
    assert_eq!((&one["totalSize"], &one["records"][0]["Company"]), (&json!(1), &json!("c3")));
    assert_eq!(
        query("SELECT COUNT() FROM Lead WHERE Company = 'C3' AND LastName = 'O\\'Hara'").await.json()["totalSize"],
        200
    );
    assert_eq!(
        query("SELECT COUNT() FROM Lead WHERE External_Lead_Id__c IN ('1-1', '1-2', 'no')").await.json()["totalSize"],
        2
    );
    assert_eq!(query("SELECT COUNT() FROM Lead WHERE Email = null").await.json()["totalSize"], 2200);

    let first = query("SELECT Id FROM Lead").await.json();
    assert_eq!((&first["totalSize"], &first["done"]), (&json!(2200), &json!(false)));
    let rest = client.get(first["nextRecordsUrl"].as_str().unwrap()).await.json();
    assert_eq!((rest["records"].as_array().unwrap().len(), &rest["done"]), (200, &json!(true)));

    for (soql, code) in [
        ("SELECT Nope__c FROM Lead", "INVALID_FIELD"),
        ("SELECT Id FROM Unicorn", "INVALID_TYPE"),
        ("SELECT Id FROM Lead WHERE LastName = 'O'Hara'", "MALFORMED_QUERY"),
    ] {
        let refused = query(soql).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, code), "{soql}");
    }
}

#[tokio::test]
async fn api_usage_is_reported_and_limited_per_day() {
    let settings = SalesforceSettings { daily_calls_max: 3, ..SalesforceSettings::default() };
    let (org, client) = org(settings);
    let first = client.json("PATCH", &format!("{LEAD}/a"), lead()).await;
    assert_eq!(first.header("sforce-limit-info"), Some("api-usage=1/3"));
    let limits = client.get("/services/data/v60.0/limits").await.json();
    assert_eq!(limits["DailyApiRequests"], json!({"Max": 3, "Remaining": 1}));
    client.get("/services/data/v60.0/limits").await;
    let refused = client.json("PATCH", &format!("{LEAD}/b"), lead()).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "REQUEST_LIMIT_EXCEEDED"));
    org.new_day();
    assert_eq!(client.json("PATCH", &format!("{LEAD}/b"), lead()).await.status, 201);

    let versions = Client::new(org.address()).get("/services/data").await.json();
    assert_eq!(versions[0], json!({"label": "Release 31", "url": "/services/data/v31.0", "version": "31.0"}));
    let described = client.get("/services/data/v60.0/sobjects/Lead/describe").await.json();
    let fields = described["fields"].as_array().unwrap();
    let key = fields.iter().find(|field| field["name"] == "External_Lead_Id__c").unwrap();
    assert_eq!((&key["externalId"], &key["unique"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn truth_and_control_are_available_over_http() {
    let (org, client) = org(SalesforceSettings::default());
    let control = Client::new(org.address());
    for key in ["a", "b", "a"] {
        client.json("PATCH", &format!("{LEAD}/{key}"), lead()).await;
    }
    let truth: Truth = serde_json::from_slice(&control.get("/sim/truth").await.body).unwrap();
    assert_eq!(truth, org.truth());
    assert_eq!((truth.object("Lead").records, truth.object("Lead").written_again), (2, 1));
    let records = control.get("/sim/records?object=Lead&limit=1").await.json();
    assert_eq!(records.as_array().unwrap().len(), 1);
    let after = records[0]["id"].as_str().unwrap();
    let next = control.get(&format!("/sim/records?object=Lead&after={after}")).await.json();
    assert_eq!(next[0]["fields"]["External_Lead_Id__c"], "b");
    assert_eq!(control.get("/sim/writes?external_id=a").await.json().as_array().unwrap().len(), 2);
    assert_eq!(control.get("/sim/writes?after=2").await.json()[0]["number"], 3);
    let traced = client.clone().with("traceparent", "00-trace-span-01");
    traced.json("PATCH", "/services/data/v60.0/sobjects/Nothing/x", lead()).await;
    let calls = control.get("/sim/calls?after=2").await.json();
    let third = json!({"number": 3, "method": "PATCH", "traceparent": null, "applied": true, "status": 200});
    let fourth =
        json!({"number": 4, "method": "PATCH", "traceparent": "00-trace-span-01", "applied": false, "status": 404});
    assert_eq!(calls, json!([third, fourth]));
    let ids = control.get("/sim/external-ids?object=Lead&field=External_Lead_Id__c").await.json();
    assert_eq!(ids["a"], json!({"created": 1, "updated": 1, "deleted": 0}));

    let invalid = control.json("POST", "/sim/faults", json!({"percent": 300})).await;
    assert!(invalid.status == 400 && invalid.json()["error"].as_str().unwrap().contains("300"));
    let plan = json!({"script": [{"times": 1, "fault": {"kind": "lock_row"}}]});
    assert_eq!(control.json("POST", "/sim/faults", plan).await.status, 204);
    assert_eq!(client.json("PATCH", &format!("{LEAD}/a"), lead()).await.code(), "UNABLE_TO_LOCK_ROW");
    assert_eq!(control.send("POST", "/sim/expire-tokens", b"").await.unwrap().status, 204);
    assert_eq!(client.json("PATCH", &format!("{LEAD}/a"), lead()).await.status, 401);
    assert_eq!(control.send("POST", "/sim/reset", b"").await.unwrap().status, 204);
    assert_eq!(org.truth(), Truth { api_limit: org.truth().api_limit, ..Truth::default() });
    assert_eq!(control.get("/sim/nothing").await.status, 404);
}

#[tokio::test]
async fn closed_listener_refuses_connections_and_keeps_records() {
    let (org, client) = org(SalesforceSettings::default());
    client.json("PATCH", &format!("{LEAD}/a"), lead()).await;
    org.refuse_connections().unwrap();
    assert_eq!(client.send("GET", "/services/data", b"").await.unwrap_err(), RequestError::Refused);
    org.accept_connections().unwrap();
    assert_eq!(client.json("PATCH", &format!("{LEAD}/a"), lead()).await.status, 200);
    org.stop();
    assert_eq!(client.send("GET", "/services/data", b"").await.unwrap_err(), RequestError::Refused);
    assert!(org.accept_connections().is_err());
    assert_eq!(org.truth().object("Lead").records, 1);
}

#[tokio::test]
async fn wait_until_returns_when_the_condition_holds() {
    let (org, client) = org(SalesforceSettings::default());
    let writer = tokio::spawn(async move {
        for number in 0..20 {
            client.json("PATCH", &format!("{LEAD}/{number}"), lead()).await;
        }
    });
    let truth = soon(org.wait_until(|truth| truth.object("Lead").records == 20)).await;
    assert_eq!(truth.calls.applied, 20);
    writer.await.unwrap();
}
