//! The example `one-person`: whatever the order in which four sources speak, the record is the same.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_domain::verify::{UnsignedRequest, sign};
use sluice_server::config::{self, EnvironmentThenFiles};

use crate::fixture::{Answer, World};

const DELIVERIES: [(&str, &str); 4] = [
    ("typeform-leads", "typeform.json"),
    ("shopify-checkouts", "shopify.json"),
    ("stripe-customers", "stripe.json"),
    ("calendly-invitees", "calendly.json"),
];

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/one-person")
}

fn texts(directory: &Path, ending: &str) -> Vec<(String, String)> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file() && path.to_str().unwrap().ends_with(ending));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The example with the CRM of the fixture.
async fn start() -> World {
    let mut files = texts(&example().join("config"), ".yml");
    files.retain(|(name, _)| name != "crm.yml");
    files.push(("queues.yml".into(), "queues: [leads]".into()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut secrets = texts(&example().join("config/secrets"), "");
    secrets.retain(|(name, _)| name != "CRM_CLIENT_SECRET");
    let secrets: Vec<(&str, &str)> = secrets.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    World::start_with_secrets(&files, &secrets).await
}

/// Posts a payload as its sender would.
async fn deliver(world: &World, (flow, payload): (&str, &str)) -> String {
    let directory = world.directory.path().to_owned();
    let files = config::read(&directory).unwrap();
    let config = config::compile(&files, &EnvironmentThenFiles::new(directory)).config.unwrap();
    let flow = &config.flows[flow];
    let body = std::fs::read(example().join("payloads").join(payload)).unwrap();
    let unsigned = UnsignedRequest { method: "POST", id: payload, content_type: "application/json", body: &body };
    let signed = sign(flow.verify.as_ref().unwrap(), &unsigned, jiff::Timestamp::now()).unwrap();
    let mut request = world.client.post(format!("{}{}", world.intake, flow.path)).body(body);
    request = request.header("content-type", "application/json").header("x-shopify-topic", "checkouts/update");
    request = request.header("x-shopify-event-id", payload);
    for (name, value) in &signed.headers {
        request = request.header(name.as_str(), value.expose());
    }
    Answer::of(request.send().await.unwrap()).await.event()
}

fn orders() -> Vec<[usize; 4]> {
    let all = (0..256).map(|n| [n / 64, n / 16 % 4, n / 4 % 4, n % 4]);
    all.filter(|order| (0..4).all(|wanted| order.contains(&wanted))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_order_of_arrival_gives_the_same_record() {
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(example().join("expected/lena.record.json")).unwrap()).unwrap();
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for (n, order) in orders.into_iter().enumerate() {
        let world = start().await;
        let mut events = Vec::new();
        for place in order {
            let event = deliver(&world, DELIVERIES[place]).await;
            // Half of the orders arrive one by one, the others at once.
            if n % 2 == 0 {
                world.settled(&event).await;
            }
            events.push(event);
        }
        for event in &events {
            world.settled(event).await;
        }
        let records = world.crm.records("Contact");
        assert_eq!(records.len(), 1, "{order:?}");
        assert_eq!(serde_json::to_value(&records[0].fields).unwrap(), expected["fields"], "{order:?}");
    }
}
