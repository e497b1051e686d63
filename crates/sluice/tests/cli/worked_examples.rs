//! Examples of single senders: each payload becomes the expected event and the expected record, once, signed as its sender signs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_simulator::Salesforce;

use crate::examples::{CRM, SINK, Stage, crm, example, repeats, sink};

/// A payload and the flow that takes it.
struct Delivery {
    flow: &'static str,
    payload: &'static str,
    more: &'static [&'static str],
}

const fn delivery(flow: &'static str, payload: &'static str) -> Delivery {
    Delivery { flow, payload, more: &[] }
}

/// Delivers everything twice, and compares what came of it with `expected/*.event.json` and `expected/*.record.json`.
fn run(name: &str, deliveries: &[Delivery], stage: &Stage, crm: &Salesforce) {
    let _node = stage.up();
    for Delivery { flow, payload, more } in deliveries {
        let answers = stage.send(flow, payload, &[&["--times", "2"], *more].concat());
        assert!(
            answers.iter().all(|answer| answer["status"].as_u64().is_some_and(|status| status < 300)),
            "{answers:?}"
        );
        assert_eq!(repeats(&answers), 1, "{payload}: {answers:?}");
    }
    stage.workplace.until_settled();
    assert_eq!(events(stage), expected(name, ".event.json", |event| event["event_id"].clone()), "{name}");
    assert_eq!(records(crm), expected(name, ".record.json", external_id), "{name}");
}

/// The files of an example with this ending, by what identifies them.
fn expected(name: &str, ending: &str, key: impl Fn(&Value) -> Value) -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(example(name).join("expected")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.to_str().unwrap().ends_with(ending));
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let all: BTreeMap<String, Value> = files.map(read).map(|value| (key(&value).to_string(), value)).collect();
    assert!(!all.is_empty(), "{name} has no *{ending}");
    all
}

fn external_id(record: &Value) -> Value {
    let fields = &record["fields"];
    fields.get("External_Lead_Id__c").or(fields.get("External_Id__c")).unwrap().clone()
}

/// Every accepted event as it was normalized. Of the audit only what does not change from run to run is left.
fn events(stage: &Stage) -> BTreeMap<String, Value> {
    let list = stage.workplace.json(&["events", "--json"]);
    let ids = list["items"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned());
    ids.map(|id| {
        let shown = stage.workplace.json(&["events", "show", &id, "--reveal", "--reason", "a test", "--json"]);
        let mut event = shown["normalized"].clone();
        let audit = event["audit"].as_object_mut().unwrap();
        assert!(audit.remove("received_at").is_some());
        for (name, part) in [("raw_event_ref", "raw"), ("normalized_event_ref", "normalized")] {
            assert_eq!(audit.remove(name), Some(json!(format!("ledger://events/{id}/{part}"))));
        }
        (event["event_id"].to_string(), event)
    })
    .collect()
}

fn records(crm: &Salesforce) -> BTreeMap<String, Value> {
    let of = |object: &'static str| {
        crm.records(object).into_iter().map(move |record| json!({ "object": object, "fields": record.fields }))
    };
    of("Lead").chain(of("Contact")).map(|record| (external_id(&record).to_string(), record)).collect()
}

fn run_with_crm(name: &str, deliveries: &[Delivery]) {
    let crm = crm([]);
    let stage = Stage::new(name, &[(CRM, &crm.url())]);
    run(name, deliveries, &stage, &crm);
}

#[tokio::test(flavor = "multi_thread")]
async fn meta_lead_ads() {
    let (crm, sink) = (crm([]), sink([]));
    let lead = std::fs::read_to_string(example("meta-lead-ads").join("payloads/fetched.json")).unwrap();
    let put = reqwest::Client::new().put(format!("{}/resource/553187741920114", sink.url())).body(lead);
    put.send().await.unwrap().error_for_status().unwrap();
    let stage = Stage::new("meta-lead-ads", &[(CRM, &crm.url()), (SINK, &sink.url())]);
    let deliveries = [delivery("meta-leads", "notification.json"), delivery("relayed-leads", "relayed.json")];
    run("meta-lead-ads", &deliveries, &stage, &crm);
}

#[test]
fn typeform_leads() {
    run_with_crm("typeform-leads", &[delivery("typeform-leads", "response.json")]);
}

#[test]
fn hubspot_forms() {
    run_with_crm("hubspot-forms", &[delivery("hubspot-forms", "submission.json")]);
}

#[test]
fn shopify_abandoned_cart() {
    let of = |payload, more| Delivery { more, ..delivery("shopify-checkouts", payload) };
    let deliveries = [
        of(
            "checkout.json",
            &["--id", "98880550-7158-44d4-b7cd-2c97c8a091b5", "--header", "X-Shopify-Topic: checkouts/update"],
        ),
        of(
            "paid.json",
            &["--id", "1c4f2a10-0d0f-4d0e-9a44-8f6f3f5b7a21", "--header", "X-Shopify-Topic: checkouts/update"],
        ),
    ];
    run_with_crm("shopify-abandoned-cart", &deliveries);
}

#[test]
fn stripe_customers() {
    run_with_crm("stripe-customers", &[delivery("stripe-customers", "customer-created.json")]);
}

#[test]
fn calendly_invitees() {
    run_with_crm("calendly-invitees", &[delivery("calendly-invitees", "invitee-created.json")]);
}

#[test]
fn one_person() {
    let cart: &[&str] =
        &["--id", "5b0b6d3e-6f5c-4c55-8a3e-3a8e2c1d9f00", "--header", "X-Shopify-Topic: checkouts/update"];
    let deliveries = [
        delivery("typeform-leads", "typeform.json"),
        Delivery { more: cart, ..delivery("shopify-checkouts", "shopify.json") },
        delivery("stripe-customers", "stripe.json"),
        delivery("calendly-invitees", "calendly.json"),
    ];
    run_with_crm("one-person", &deliveries);
}

#[test]
fn csv_import() {
    let crm = crm([]);
    let stage = Stage::new("csv-import", &[(CRM, &crm.url())]);
    let _node = stage.up();
    let file = stage.payloads.join("customers.csv");
    let import = ["import", file.to_str().unwrap(), "--flow", "old-shop", "--reason", "the old shop", "--yes"];
    for _ in 0..2 {
        stage.workplace.run(&import).ok();
    }
    stage.workplace.until_settled();
    assert_eq!(events(&stage), expected("csv-import", ".event.json", |event| event["event_id"].clone()));
    assert_eq!(records(&crm), expected("csv-import", ".record.json", external_id));
    let source = stage.workplace.json(&["sources", "show", "old_shop", "--json"]);
    let warning = |warning: &Value| format!("{} {}", warning["field"], warning["code"]).replace('"', "");
    let warnings: Vec<String> = source["mapping_warnings"].as_array().unwrap().iter().map(warning).collect();
    assert_eq!(warnings, ["attributes.orders fraction-removed", "identity.phone_e164 not-a-phone"]);
}

#[test]
fn dry_run_and_plan_show_lookups() {
    let stage = Stage::new("lead-routing", &[]);
    let payload = stage.payloads.join("lead.json");
    let tried = stage.workplace.run(&["try", "partner-leads", payload.to_str().unwrap()]).ok();
    for expected in
        ["1. locate: enrich.http → geo, lookup", "GET http://127.0.0.1:8091/resource/", "assumed: the lookup"]
    {
        assert!(tried.stdout.contains(expected), "{expected}: {tried}");
    }
    assert!(!tried.stdout.contains("dead:"), "{tried}");
    let stage = Stage::new("hubspot-forms", &[]);
    let payload = stage.payloads.join("submission.json");
    let tried = stage.workplace.json(&["try", "hubspot-forms", payload.to_str().unwrap(), "--json", "--reveal"]);
    let steps = &tried["events"][0]["jobs"][0]["steps"];
    assert_eq!(
        steps[0]["output"],
        json!({ "found": true, "domain": "harbour-freight.example", "name": "Harbour Freight" })
    );
    assert_eq!(steps[1]["request"]["body"]["Company"], "Harbour Freight");
    let _node = stage.workplace.up(&[]);
    let worker = std::fs::read_to_string(stage.workplace.path().join("worker.yml")).unwrap();
    let geo = "  - name: geo\n    run: enrich.geoip\n    with: { ip: \"{{ event.ip }}\", database: geo/city.mmdb }\n";
    stage.workplace.write("worker.yml", &worker.replace("  - name: upsert", &format!("{geo}  - name: upsert")));
    let plan = stage.workplace.run(&["plan"]);
    assert!(plan.stdout.contains("run.geo: nothing → {name: geo, run: enrich.geoip"), "{plan}");
    assert!(plan.to_string().contains("there is no database"), "{plan}");
    let file = "no database at all";
    stage.workplace.write("geo/city.mmdb", file);
    let checked = stage.workplace.run(&["check"]);
    assert!(checked.code == 0 && checked.stdout.contains("is not a database in the MaxMind format"), "{checked}");
}
