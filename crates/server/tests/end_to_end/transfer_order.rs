//! An import in any order, twice, ends where one ordered import ends.
//!
//! `SLUICE_TRANSFER_EVENTS` sets the number of events; `scripts/transfer-proof` runs it with 50,000.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use sluice_domain::random::Random;

use crate::fixture::World;
use crate::transfer::{REVEAL, export, file, rows, run, settled, start};

fn events_total() -> usize {
    std::env::var("SLUICE_TRANSFER_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// History of a few hundred persons: names and companies change, several events have the same time, clocks are ahead, some
/// persons share an address, and some use another address later.
fn history(events: usize, random: &mut Random) -> Vec<Value> {
    let persons = (events / 5).max(1) as u64;
    let start = 1_760_000_000_u64;
    let mut history = Vec::with_capacity(events);
    for n in 0..events {
        let person = random.below(persons);
        // Families share an address; one in eight events uses another one.
        let household = if person.is_multiple_of(20) { person / 40 } else { person };
        let email = match random.below(8) {
            0 => format!("other{person}@example.com"),
            _ => format!("home{household}@example.com"),
        };
        let skew = if random.below(50) == 0 { 40_000_000 } else { 0 };
        // Few different times, so that many events happen at the same one.
        let at = start + (n as u64 / 7) * 60 + skew;
        history.push(json!({
            "id": format!("lead-{n}"), "person": format!("p{person}"), "email": email,
            "last_name": format!("Name {}", random.below(1_000)), "company": format!("Company {}", random.below(100)),
            "created_at": at,
        }));
    }
    history
}

fn shuffled(mut rows: Vec<Value>, random: &mut Random) -> String {
    for last in (1..rows.len()).rev() {
        let other = random.below(last as u64 + 1) as usize;
        rows.swap(last, other);
    }
    rows.iter().map(|row| format!("{row}\n")).collect()
}

async fn import(world: &World, name: &str, content: &str) {
    let started = Instant::now();
    let path = file(world, name, content);
    let words = ["import", &path, "--flow", "website-leads", "--reason", "history", "--yes", "--json"];
    assert_eq!(run(world, &words).await, (0, String::new()));
    let imported = started.elapsed();
    settled(world).await;
    eprintln!("{name}: imported in {imported:.1?}, settled after {:.1?}", started.elapsed());
}

/// Contacts by their fields and conflicts, without their numbers.
async fn contacts(world: &World) -> Vec<String> {
    let exported = rows(&export(world, "contacts", "contacts.ndjson", &REVEAL).await);
    let mut contacts: Vec<String> =
        exported.iter().map(|row| format!("{} {}", row["fields"], row["conflicts"])).collect();
    contacts.sort();
    contacts
}

/// Fields of the records of the CRM, by external id.
fn records(world: &World) -> BTreeMap<String, String> {
    let records = world.crm.records("Lead");
    let key = |fields: &serde_json::Map<String, Value>| fields["External_Lead_Id__c"].to_string();
    let found: BTreeMap<String, String> =
        records.iter().map(|record| (key(&record.fields), format!("{:?}", record.fields))).collect();
    assert_eq!(found.len(), records.len(), "one record for each external id");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn shuffled_imports_end_in_the_contacts_and_records_of_one_ordered_import() {
    let mut random = Random::seeded(15);
    let total = events_total();
    let origin = start().await;
    let generated: String = history(total, &mut random).iter().map(|row| format!("{row}\n")).collect();
    import(&origin, "generated.ndjson", &generated).await;
    let exported = rows(&export(&origin, "events", "events.ndjson", &REVEAL).await);
    assert_eq!(exported.len(), total);
    drop(origin);
    let ordered: Vec<Value> = exported.iter().rev().cloned().collect();

    let once = start().await;
    let lines: String = ordered.iter().map(|row| format!("{row}\n")).collect();
    import(&once, "ordered.ndjson", &lines).await;
    let (wanted_contacts, wanted_records) = (contacts(&once).await, records(&once));
    assert!(wanted_contacts.len() > total / 10, "{}", wanted_contacts.len());
    drop(once);

    let twice = start().await;
    for name in ["first.ndjson", "second.ndjson"] {
        import(&twice, name, &shuffled(exported.clone(), &mut random)).await;
    }
    let imports = twice.get("/api/v1/imports").await;
    let counts = |n: usize| (imports["items"][n]["accepted"].clone(), imports["items"][n]["duplicates"].clone());
    assert_eq!((counts(1), counts(0)), ((json!(total), json!(0)), (json!(0), json!(total))));
    assert_eq!(contacts(&twice).await, wanted_contacts);
    assert_eq!(records(&twice), wanted_records);
}

/// Rows that the API takes in any order, without the order that the command gives them: every field of a contact is a register.
#[tokio::test(flavor = "multi_thread")]
async fn rows_in_any_order_end_in_the_same_contacts_and_records() {
    let persons = 40_u64;
    let row = |n: u64| {
        let person = n % persons;
        json!({ "line": n + 1, "occurrence": 1, "payload": {
            "id": format!("lead-{n}"), "person": format!("p{person}"), "email": format!("p{person}@example.com"),
            "last_name": format!("Name {n}"), "company": format!("Company {}", n / 3), "created_at": 1_760_000_000 + n,
        } })
    };
    let mut ends = Vec::new();
    for seed in 0..3 {
        let world = start().await;
        let mut rows: Vec<Value> = (0..400).map(row).collect();
        let mut random = Random::seeded(seed);
        for last in (1..rows.len()).rev().filter(|_| seed > 0) {
            rows.swap(last, random.below(last as u64 + 1) as usize);
        }
        let order = json!({ "flow": "website-leads", "content": "x", "file": "x", "rows": rows.len(), "reason": "x" });
        let id = world.act("/api/v1/imports", order).await.body["id"].as_str().unwrap().to_owned();
        for (n, batch) in rows.chunks(50).enumerate() {
            let order = json!({ "after": n * 50, "rows": batch, "last": n == 7 });
            let answer = world.act(&format!("/api/v1/imports/{id}/rows"), order).await;
            assert_eq!(answer.body["taken"], json!(true), "{}", answer.body);
        }
        settled(&world).await;
        ends.push((contacts(&world).await, records(&world)));
    }
    assert_eq!(ends[0].0.len() as u64, persons);
    assert!(ends[1..].iter().all(|end| *end == ends[0]));
}
