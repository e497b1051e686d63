//! Idempotency keys: incidents that they prevent.

use serde_json::{Value, json};

use crate::bodies::{QUEUES, post_json};
use crate::fixture::World;

async fn flow(http: &str, event: &str) -> World {
    let text = format!(
        "name: forms\ntriggers: [{{ http: {{ path: /in, {http} }} }}]\nevent: {event}\nsteps: [{{ queue: leads }}]\n"
    );
    World::start_with(&[("flow.yml", &text), ("queues.yml", QUEUES)]).await
}

async fn events(world: &World) -> usize {
    world.get("/api/v1/events").await["items"].as_array().unwrap().len()
}

/// A CRM replays its webhooks: the same lead with a new delivery id and a new time. Keyed by what the CRM makes anew for every
/// delivery, each replay was another lead.
#[tokio::test(flavor = "multi_thread")]
async fn mailmunch_story() {
    let delivery = |n: u32| json!({"delivery": format!("d-{n}"), "sent_at": format!("2026-11-15T12:{n:02}:00Z"), "lead": {"email": "ada@example.com", "list": "launch"}});
    let old = flow("idempotency: { key_from: [body.delivery, body.sent_at] }", "{ type: lead }").await;
    for n in 0..3 {
        post_json(&old, "/in", &delivery(n)).await.event();
    }
    assert_eq!(events(&old).await, 3, "the old way counts every replay");

    let by_content =
        flow("idempotency: { key_from: { fingerprint: { volatile: [delivery, sent_at] } } }", "{ type: lead }").await;
    let first = post_json(&by_content, "/in", &delivery(0)).await.event();
    for n in 1..4 {
        assert_eq!(post_json(&by_content, "/in", &delivery(n)).await.event(), first);
    }
    let other = json!({"delivery": "d-9", "sent_at": "x", "lead": {"email": "bob@example.com", "list": "launch"}});
    assert_ne!(post_json(&by_content, "/in", &other).await.event(), first, "another person is another lead");
    assert_eq!(events(&by_content).await, 2);

    let content_window =
        "idempotency: { key_from: body.delivery }, dedup: { content_window: 15m, volatile: [sent_at] }";
    let netted = flow(content_window, "{ type: lead, id: body.delivery }").await;
    let first = post_json(&netted, "/in", &delivery(0)).await.event();
    let replay = post_json(&netted, "/in", &delivery(1)).await;
    assert_eq!(replay.event(), first, "the id is new, the content came a moment ago");
    assert_eq!(replay.headers["idempotent-replayed"], "true");
    assert_ne!(post_json(&netted, "/in", &other).await.event(), first);
    assert_eq!(events(&netted).await, 2);
}

/// Two people write in through one shared inbox. Recognised by their email address alone they were one.
#[tokio::test(flavor = "multi_thread")]
async fn shared_inbox_story() {
    let lead = |id: &str, name: &str| json!({"id": id, "email": "Office@Example.com ", "first_name": name});
    let naive = flow("idempotency: { key_from: body.email }", "{ type: lead }").await;
    let ada = post_json(&naive, "/in", &lead("s-1", "Ada")).await.event();
    assert_eq!(
        post_json(&naive, "/in", &lead("s-2", "Grace")).await.event(),
        ada,
        "the naive key loses the second person"
    );

    let key = "idempotency: { key_from: [source, event_id, email_hash(body.email)] }";
    let world =
        flow(key, "{ type: lead, id: body.id, identity: { email: \"{{ body.email | normalize_email }}\" } }").await;
    let ada = post_json(&world, "/in", &lead("s-1", "Ada")).await;
    let grace = post_json(&world, "/in", &lead("s-2", "Grace")).await;
    assert_ne!(grace.event(), ada.event());
    let spelt_differently = json!({"id": "s-1", "email": "office@example.com", "first_name": "Ada"});
    assert_eq!(
        post_json(&world, "/in", &spelt_differently).await.event(),
        ada.event(),
        "a repeat is one, however it is spelt"
    );
    assert_eq!(events(&world).await, 2);
    let key = ada.body["idempotency_key"].as_str().unwrap();
    assert!(key.starts_with("forms|s-1|") && !key.to_lowercase().contains("office"), "{key}");
    let shown = world.reveal(&ada.event(), "test").await;
    assert_eq!(shown["normalized"]["identity"]["email"], "office@example.com");
}

/// A shop tells of an abandoned cart twice, five seconds apart. A five-minute edge fell between the two, and the shopper got
/// two discounts.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_edge_story() {
    let cart =
        |customer: &str, at: &str| json!({"customer": customer, "event": "cart.abandoned", "at": at, "total": 120});
    let (before, after) = (cart("c-1", "2026-03-20T22:44:58Z"), cart("c-1", "2026-03-20T22:45:03Z"));

    let bucket = |at: &Value| at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second() / 300;
    let plain = "idempotency: { key_from: [body.customer, body.bucket] }";
    let old = flow(plain, "{ type: cart }").await;
    for cart in [&before, &after] {
        let mut cart = cart.clone();
        cart["bucket"] = bucket(&cart["at"]).into();
        post_json(&old, "/in", &cart).await.event();
    }
    assert_eq!(events(&old).await, 2, "the old way sees two carts");

    let key = "idempotency: { key_from: { fields: [body.customer, event_type], bucket: 5m } }, dedup: { content_window: off }";
    let world = flow(key, "{ type: body.event, occurred_at: body.at }").await;
    let first = post_json(&world, "/in", &before).await.event();
    assert_eq!(post_json(&world, "/in", &after).await.event(), first, "a pair that an edge splits is one");
    let ten_minutes_later = cart("c-1", "2026-03-20T22:54:58Z");
    assert_ne!(post_json(&world, "/in", &ten_minutes_later).await.event(), first, "another cart is another");
    assert_ne!(post_json(&world, "/in", &cart("c-2", "2026-03-20T22:44:58Z")).await.event(), first);
    assert_eq!(events(&world).await, 3);
}

/// Two people got the same number from a form: same key, another content. What becomes of the second is the flow's policy, and
/// an operator sees the fields in which they differ.
#[tokio::test(flavor = "multi_thread")]
async fn key_clash_story() {
    let lead = |name: &str| json!({"id": 7, "email": format!("{name}@example.com"), "plan": name});
    let worker = "name: to-sink\nconsumes: leads\nrun: [{ name: send, run: http.request, destination: sink, with: { url: /in, method: PUT, json: \"{{ body }}\" } }]\n";
    let start = async |policy: &str| {
        let text = format!(
            "name: forms\ntriggers: [{{ http: {{ path: /in, idempotency: {{ key_from: body.id }}, dedup: {{ on_clash: {policy} }} }} }}]\nevent: {{ type: lead }}\nsteps: [{{ queue: leads }}]\n"
        );
        let world = World::start_with(&[("flow.yml", &text), ("queues.yml", QUEUES), ("worker.yml", worker)]).await;
        let first = post_json(&world, "/in", &lead("ada")).await.event();
        let second = post_json(&world, "/in", &lead("bob")).await.event();
        let seen = world.get(&format!("/api/v1/events/{first}")).await["clash"].clone();
        (world, first, second, seen)
    };
    let (world, first, second, seen) = start("drop").await;
    assert_eq!(first, second);
    let changes = json!([
        {"path": "email", "before": "a***@example.com", "after": "b***@example.com"},
        {"path": "plan", "before": "ada", "after": "bob"}
    ]);
    assert_eq!((&seen["variants"][0]["changes"], &seen["variants"][0]["times"]), (&changes, &json!(1)), "{seen}");
    assert_eq!(seen["variants"][0].get("event_id"), None, "{seen}");
    let revealed = world.reveal(&first, "ticket").await;
    assert_eq!(revealed["clash"]["variants"][0]["changes"][0]["after"], "bob@example.com");
    let audit = world.get("/api/v1/audit").await["items"][0].clone();
    assert_eq!(
        (&audit["actor"], &audit["action"], &audit["detail"]),
        (&json!("ann"), &json!("reveal"), &json!("ticket"))
    );

    let (world, first, second, seen) = start("quarantine").await;
    assert_ne!(first, second);
    assert_eq!((&seen["variants"][0]["event_id"], &seen["variants"][0]["changes"]), (&json!(second), &changes));
    let other = world.get(&format!("/api/v1/events/{second}")).await;
    assert_eq!((&other["clash"]["variant_of"], &other["clash"]["changes"]), (&json!(first), &changes));
    let dead = world.get("/api/v1/dead-letters?dead_letter_queue=leads-dlq").await;
    assert_eq!(
        (&dead["items"][0]["event_id"], &dead["items"][0]["failure"]["code"]),
        (&json!(second), &json!("key-clash")),
        "{dead}"
    );
}

/// How long must a key live? The source's own repeats answer.
#[tokio::test(flavor = "multi_thread")]
async fn key_advice_story() {
    let world =
        flow("rate_limit: { rate: 50/m, burst: 100 }, idempotency: { key_from: body.id, ttl: 2s }", "{ type: lead }")
            .await;
    let none = world.get("/api/v1/sources/forms").await;
    assert_eq!(
        (&none["keys"]["duplicates"], &none["keys"]["lifetimes"][0]["enough"]),
        (&json!(0), &json!(true)),
        "{none}"
    );
    for _ in 0..4 {
        post_json(&world, "/in", &json!({"id": 1})).await.event();
    }
    for _ in 0..12 {
        assert_eq!(post_json(&world, "/in", &json!({"name": "no id"})).await.status, 400);
    }
    let seen = world.get("/api/v1/sources/forms").await;
    assert_eq!(
        (&seen["keys"]["duplicates"], &seen["keys"]["percent_of_requests"]),
        (&json!(3), &json!(75.0)),
        "{seen}"
    );
    assert_eq!(seen["refused_lately"]["idempotency-key-missing"]["jump"], true, "{seen}");
    assert_eq!(seen["limits"], json!([{"flow": "forms", "rate": "50/1m", "burst": 100}]));
    // Once its key has expired, a repeat is a new event, and the advice is to keep keys for longer.
    let late = loop {
        post_json(&world, "/in", &json!({"id": 1})).await.event();
        let seen = world.get("/api/v1/sources/forms").await;
        if seen["keys"]["after_expiry"] == 1 {
            break seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let lifetime = &late["keys"]["lifetimes"][0];
    assert_eq!(lifetime["enough"], false, "{late}");
    let advice = lifetime["advice"].as_str().unwrap();
    assert!(
        advice.contains("key lifetime 2s covers") && advice.contains("set `idempotency.ttl: 3s` or more"),
        "{advice}"
    );
}
