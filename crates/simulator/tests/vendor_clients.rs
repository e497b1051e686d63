//! Unmodified vendor clients succeed and fail against the simulators as they do against Salesforce and HubSpot.
//!
//! They are installed once into `target/vendor-clients`.

mod support;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sluice_simulator::crm::Truth;
use sluice_simulator::{Hubspot, HubspotSettings, Salesforce, SalesforceSettings};
use support::vendor;

fn node_clients() -> PathBuf {
    vendor::node("node", &vendor::scripts().join("package.json"))
}

fn simple_salesforce() -> (Value, Truth) {
    let python = vendor::python("python", &vendor::scripts().join("requirements.txt"));
    let org = Salesforce::start(SalesforceSettings::default()).expect("the organisation starts");
    let mut command = Command::new(python);
    command.arg(vendor::scripts().join("simple_salesforce_client.py"));
    command.env("SIM_URL", org.url()).env("SIM_TOKEN", org.issue_token());
    (vendor::results("simple-salesforce", &mut command), org.truth())
}

fn jsforce() -> (Value, Truth) {
    let folder = node_clients();
    let org = Salesforce::start(SalesforceSettings::default()).expect("the organisation starts");
    let mut command = Command::new("node");
    command.arg(vendor::scripts().join("jsforce_client.mjs")).current_dir(folder).env("SIM_URL", org.url());
    let results = vendor::results("jsforce", &mut command);
    assert_eq!(results["instance_url"], org.url());
    (results, org.truth())
}

/// Runs after jsforce in one test: both are installed into one folder.
fn hubspot_client() -> Value {
    let folder = node_clients();
    let settings = HubspotSettings { search_lag: std::time::Duration::from_secs(3_600), ..HubspotSettings::default() };
    let account = Hubspot::start(settings).expect("the account starts");
    let mut command = Command::new("node");
    command.arg(vendor::scripts().join("hubspot_client.mjs")).current_dir(folder).env("SIM_URL", account.url());
    let results = vendor::results("@hubspot/api-client", &mut command);
    let contacts = account.truth().object("contacts");
    assert_eq!((contacts.created, contacts.created_again, contacts.deleted), (3, 0, 1), "{contacts:?}");
    results
}

fn check_hubspot(results: &Value) {
    assert_eq!(results["refused"]["code"], 400, "{results}");
    assert_eq!((&results["expires_in"], &results["created"]["email"]), (&json!(1_800), &json!("ada@example.com")));
    assert_eq!((&results["exists"]["code"], &results["exists"]["category"]), (&json!(409), &json!("CONFLICT")));
    assert_eq!((&results["existing_id"], &results["created"]["hasId"]), (&json!(true), &json!(true)));
    assert_eq!((&results["read"], &results["updated"]), (&json!("Ada"), &json!("Lovelace")));
    assert_eq!(results["upsert"], json!([["k-1", true], ["k-2", true]]));
    let partial = json!({"results": [["Uno", false]], "errors": 1, "trace": ["t-4"]});
    assert_eq!(results["partial"], partial);
    assert_eq!(results["search_lags"], 0);
    assert_eq!(results["association"], "COMPLETE");
    for (name, code, category) in [
        ("unknown_property", 400, "VALIDATION_ERROR"),
        ("absent", 404, "OBJECT_NOT_FOUND"),
        ("limited", 429, "RATE_LIMITS"),
        ("archived", 404, "OBJECT_NOT_FOUND"),
        ("expired", 401, "INVALID_AUTHENTICATION"),
    ] {
        let failure = &results[name];
        assert_eq!((&failure["code"], &failure["category"]), (&json!(code), &json!(category)), "{name}: {failure}");
    }
}

/// Records after both scripts: the upserted lead and the two that share an id; the created one is deleted.
fn assert_final_records(truth: &Truth) {
    let lead = truth.object("Lead");
    assert_eq!((lead.records, lead.created, lead.deleted, lead.ambiguous), (3, 4, 1, 1), "{truth:?}");
    assert_eq!(truth.faults_total(), 1);
}

#[test]
fn vendor_clients_behave_as_against_salesforce_and_hubspot() {
    let python = std::thread::spawn(simple_salesforce);
    let (js, js_truth) = jsforce();
    let (py, py_truth) = python.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    check_simple_salesforce(&py);
    assert_final_records(&py_truth);
    check_jsforce(&js);
    assert_final_records(&js_truth);
    check_hubspot(&hubspot_client());
}

fn check_simple_salesforce(results: &Value) {
    assert_eq!(results["create"]["success"], true);
    assert_eq!(
        (&results["upsert_new"], &results["upsert_again"], &results["update"]),
        (&json!(201), &json!(200), &json!(204))
    );
    assert_eq!((&results["read"]["FirstName"], &results["read"]["LastName"]), (&json!("Lwazi"), &json!("Nkosi")));
    assert_eq!(results["query"]["records"][0]["Title"], "CTO");
    assert!(results["usage"]["api-usage"].to_string().contains("10000000"), "{}", results["usage"]);
    assert_eq!(results["delete"], 204);
    for (name, kind, status, code) in [
        ("update_only", "SalesforceResourceNotFound", 404, json!("NOT_FOUND")),
        ("unknown_field", "SalesforceMalformedRequest", 400, json!("INVALID_FIELD")),
        ("several", "SalesforceMoreThanOneRecord", 300, Value::Null),
        ("lock", "SalesforceMalformedRequest", 400, json!("UNABLE_TO_LOCK_ROW")),
        ("expired", "SalesforceExpiredSession", 401, json!("INVALID_SESSION_ID")),
    ] {
        let failure = &results[name];
        assert_eq!(
            (&failure["type"], &failure["status"], &failure["code"]),
            (&json!(kind), &json!(status), &code),
            "{name}"
        );
    }
    let several = results["several"]["content"].as_array().expect("a list of URLs");
    assert!(several.iter().all(|url| url.as_str().is_some_and(|url| url.contains("/sobjects/Lead/00Q"))));
}

fn check_jsforce(results: &Value) {
    assert_eq!(results["refused"]["name"], "invalid_client");
    assert_eq!(
        (&results["create"]["success"], &results["update"]["success"], &results["delete"]["success"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!((&results["upsert_new"]["created"], &results["upsert_again"]["created"]), (&json!(true), &json!(false)));
    assert_eq!(results["upsert_new"]["id"], results["upsert_again"]["id"]);
    assert_eq!(results["read"]["FirstName"], "Lwazi");
    assert_eq!(results["query"]["records"][0]["Title"], "CTO");
    assert_eq!(results["usage"]["apiUsage"]["limit"], 10_000_000);
    assert_eq!(results["versions"], 38);
    assert_eq!(
        (&results["collection"][0]["success"], &results["collection"][1]["success"]),
        (&json!(true), &json!(false))
    );
    for (name, code) in [
        ("update_only", "NOT_FOUND"),
        ("unknown_field", "INVALID_FIELD"),
        ("several", "MULTIPLE_CHOICES"),
        ("lock", "UNABLE_TO_LOCK_ROW"),
        ("expired", "INVALID_SESSION_ID"),
    ] {
        assert_eq!(results[name]["name"], code, "{name}: {}", results[name]);
    }
}
