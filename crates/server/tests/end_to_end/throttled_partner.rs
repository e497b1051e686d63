//! A shop repeats its webhooks, and the partner that issues discount codes throttles, is slow and loses responses. No
//! shopper gets two codes or two mails.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_simulator::faults::{Millis, RetryAfter, Weighted};
use sluice_simulator::sink::KeyPolicy;
use sluice_simulator::{Fault, FaultPlan, Sink, SinkSettings, Smtp, SmtpSettings};

use crate::fixture::{Answer, World, until};

const SHOPPERS: usize = 12;

const FLOW: &str = r#"
version: 1
name: shop
triggers:
  - http: { path: /in/shop, verify: none, idempotency: { key_from: "header:X-Webhook-Id" }, rate_limit: { rate: 10000/s } }
event: { type: shop.cart.abandoned, identity: { email: body.email }, occurred_at: body.timestamp }
"#;

const POLICY: &str = r#"{ "retry": { "strategy": "exponential", "base_ms": 20, "max_attempts": 60, "jitter": "full", "retry_after_cap": "50ms", "budget_per_contact": 500 } }"#;

/// First the mark, then the effects.
const MARK_FIRST: &str = r#"
name: cart-recovery
on: shop.cart.abandoned
steps:
  - id: compute-dedup
    run: utils.compute_dedup_key
    with: { fields: [customer_id, store_id, timestamp], bucket_minutes: 5 }
  - id: check-and-set
    run: store.setnx
    with: { key: {{ steps.compute-dedup.output.key }}, ttl_seconds: 2700 }
  - id: make-code
    if: {{ steps.check-and-set.output.set == true }}
    run: http.request
    destination: partner
    with: { url: /codes, idempotency_header: Idempotency-Key, json: { customer: {{ body.customer_id }} } }
  - id: send-mail
    if: {{ steps.check-and-set.output.set == true }}
    run: email.send
    with: { to: {{ event.email }}, subject: Your cart, text: "Code {{ body.customer_id }}" }
"#;

async fn deliver(world: &World) -> Vec<String> {
    let mut answers = tokio::task::JoinSet::new();
    for delivery in 0..3 {
        for shopper in 0..SHOPPERS {
            let (client, url) = (world.client.clone(), format!("{}/in/shop", world.intake));
            // The same cart, a few seconds later by the shop's own clock; one pair lies astride the edge of a stretch.
            let second = if shopper % 2 == 0 { 10 + delivery * 5 } else { 57 + delivery * 2 };
            let (minute, second) = (44 + second / 60, second % 60);
            let body = json!({
                "customer_id": format!("c{shopper}"), "store_id": "s1", "email": format!("c{shopper}@example.com"),
                "timestamp": format!("2026-11-13T22:{minute}:{second:02}Z"), "delivery": delivery,
            });
            answers.spawn(async move {
                let id = format!("wh-{shopper}-{delivery}");
                Answer::of(client.post(url).header("X-Webhook-Id", id).json(&body).send().await.unwrap()).await.event()
            });
        }
    }
    answers.join_all().await
}

async fn all_settled(world: &World, events: &[String]) -> Vec<Value> {
    let mut jobs = Vec::new();
    for event in events {
        jobs.extend(world.settled(event).await);
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn no_contact_gets_two_codes_or_two_mails() {
    let smtp = Smtp::start(SmtpSettings::default()).unwrap();
    let partner = Sink::start(SinkSettings { keys: KeyPolicy::Honour, ..SinkSettings::default() }).unwrap();
    let destinations = format!(
        "destinations:\n  mail: {{ type: smtp, host: 127.0.0.1, port: {}, tls: none, from: shop@example.com, timeout: 5s }}\n  \
         partner: {{ type: http, base_url: \"{}\", timeout: 300ms, concurrency: 6, breaker: {{ open_first: 20ms, open_max: 50ms }} }}\n",
        smtp.address().port(),
        partner.url()
    );
    let files =
        [("flow.yml", FLOW), ("playbook.yaml", MARK_FIRST), ("policy.json", POLICY), ("places.yml", &destinations)];
    let mut world = World::start_with(&files).await;
    let throttled = || Fault::TooManyRequests { retry_after: RetryAfter::Seconds(0) };
    let weighted = |weight, fault| Weighted { weight, fault };
    let plan = FaultPlan {
        percent: 70.0,
        random: vec![
            weighted(4, Fault::Latency(Millis::between(200, 900))),
            weighted(3, throttled()),
            weighted(1, Fault::DropAfter),
        ],
        ..FaultPlan::default()
    };
    partner.set_faults(plan).unwrap();
    let events = deliver(&world).await;
    // In the middle of it the process ends, and comes back.
    until(|| async { (partner.truth().requests > 8).then_some(()) }).await;
    if let Some(node) = world.node.take() {
        node.stop(std::time::Duration::from_millis(1)).await;
    }
    world.start_node().await;
    until(|| async { (partner.truth().requests > 20).then_some(()) }).await;
    partner.set_faults(FaultPlan::none()).unwrap();
    let jobs = all_settled(&world, &events).await;
    let count = |state: &str| jobs.iter().filter(|job| job["state"] == state).count();
    let unknown = count("unknown");
    assert_eq!(count("noop"), events.len() - SHOPPERS, "{jobs:?}");
    assert_eq!(count("succeeded") + unknown, SHOPPERS, "{jobs:?}");
    let keys = partner.keys();
    assert_eq!(keys.len(), SHOPPERS, "one code for each shopper: {keys:?}");
    assert!(keys.values().all(|key| key.applied == 1), "{keys:?}");
    let mut mails = BTreeMap::<String, u32>::new();
    for message in smtp.messages() {
        *mails.entry(message.to[0].clone()).or_default() += 1;
    }
    assert!(mails.values().all(|count| *count == 1), "{mails:?}");
    // A mail whose answer the crash swallowed waits for a person; every other has arrived.
    assert!(mails.len() >= SHOPPERS - unknown, "{mails:?}");
}
