//! Captured requests that are sent again with other headers, and duplicates under another id: one event each.

use aws_lc_rs::hmac;
use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};

use crate::bodies::{QUEUES, post, post_json};
use crate::fixture::{Answer, SECRET, World, until};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn world(name: &str, http: &str) -> World {
    let flow = format!("name: {name}\ntriggers: [{{ http: {{ path: /in, {http} }} }}]\nsteps: [{{ queue: leads }}]\n");
    let secret = format!("whsec_{}", BASE64.encode(SECRET.as_bytes()));
    World::start_with_secrets(&[("flow.yml", &flow), ("queues.yml", QUEUES)], &[("WHSEC", &secret), ("OTHER", "0ther")])
        .await
}

fn mac(text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), text.as_bytes())
}

async fn send(world: &World, headers: &[(&str, &str)], body: &str) -> Answer {
    post(world, "/in", &[&[JSON], headers].concat(), body.as_bytes().to_vec()).await
}

async fn events(world: &World) -> usize {
    world.get("/api/v1/events").await["items"].as_array().unwrap().len()
}

fn assert_repeated(answer: &Answer, header: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (400, Some("header-repeated")), "{}", answer.body);
    assert!(answer.body["detail"].as_str().unwrap().contains(header), "{}", answer.body);
}

fn assert_duplicate(answer: &Answer, first: &Answer) {
    assert_eq!(answer.event(), first.event(), "{}", answer.body);
    assert_eq!(answer.headers["idempotent-replayed"], "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_id_header_on_a_captured_request_makes_no_new_event() {
    for (scheme, prefix) in [("svix", "svix"), ("standard-webhooks", "webhook")] {
        let world = world("hooks", &format!("verify: {{ scheme: {scheme}, secret: \"${{secrets.WHSEC}}\" }}")).await;
        let at = jiff::Timestamp::now().as_second().to_string();
        let body = r#"{"type":"lead.created"}"#;
        let signature = format!("v1,{}", BASE64.encode(mac(&format!("msg_1.{at}.{body}")).as_ref()));
        let names = ["id", "timestamp", "signature"].map(|name| format!("{prefix}-{name}"));
        let captured = [(names[0].as_str(), "msg_1"), (&names[1], &at), (&names[2], &signature)];
        let first = send(&world, &captured, body).await;
        assert_eq!(first.status, 202, "{}", first.body);
        for n in 0..3 {
            let other = format!("msg_other{n}");
            let mut last = captured.to_vec();
            last.push((&names[0], &other));
            assert_repeated(&send(&world, &last, body).await, &names[0]);
            let mut front = captured.to_vec();
            front.insert(0, (&names[0], &other));
            assert_repeated(&send(&world, &front, body).await, &names[0]);
        }
        assert_duplicate(&send(&world, &captured, body).await, &first);
        assert_eq!(events(&world).await, 1, "{scheme}");
        let refused = world.get("/api/v1/sources/hooks").await;
        assert_eq!(refused["refused_lately"]["header-repeated"]["hour"], 6, "{refused}");
        let audit = until(|| async {
            let audit = world.get("/api/v1/audit").await;
            audit.to_string().contains("header-repeated").then_some(audit)
        })
        .await;
        assert!(audit.to_string().contains("127.0.0.1"), "{audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_svix_request_verified_through_webhook_headers_takes_its_id_from_there() {
    let world = world("hooks", "verify: { scheme: svix, secret: \"${secrets.WHSEC}\" }").await;
    let at = jiff::Timestamp::now().as_second().to_string();
    let body = r#"{"type":"lead.created"}"#;
    let signature = format!("v1,{}", BASE64.encode(mac(&format!("msg_1.{at}.{body}")).as_ref()));
    let captured = [("webhook-id", "msg_1"), ("webhook-timestamp", &at), ("webhook-signature", &signature)];
    let first = send(&world, &captured, body).await;
    assert!(first.body["idempotency_key"].as_str().unwrap().ends_with("|msg_1"), "{}", first.body);
    for more in [&[("svix-id", "msg_2")][..], &[("svix-id", "msg_3"), ("svix-timestamp", &at)]] {
        assert_duplicate(&send(&world, &[&captured, more].concat(), body).await, &first);
    }
    let shown = world.reveal(&first.event(), "test").await;
    assert!(!shown.to_string().contains("svix-id"), "{shown}");
    assert_eq!(events(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_id_header_and_the_key_are_one_value() {
    let http = "verify: { scheme: hmac, header: X-Signature, signed: \"{id}.{body}\", id_header: X-Id, secret: \"${secrets.WEBSITE_SECRET}\" }, idempotency: { key_from: header:X-Id }";
    let world = world("partner", http).await;
    let signature = |id: &str, body: &str| HEXLOWER.encode(mac(&format!("{id}.{body}")).as_ref());
    let body = r#"{"total":"1.5"}"#;
    let good = signature("k-1", body);
    let first = send(&world, &[("x-id", "k-1"), ("x-signature", &good)], body).await;
    assert_eq!(first.body["idempotency_key"], "k-1", "{}", first.body);
    assert_repeated(&send(&world, &[("x-id", "k-1"), ("x-id", "k-2"), ("x-signature", &good)], body).await, "x-id");
    assert_repeated(
        &send(&world, &[("x-signature", "00"), ("x-id", "k-1"), ("x-signature", &good)], body).await,
        "x-sig",
    );
    // Bytes of a form that are moved into the id leave the signature as it is.
    let form = "a=1&b=2.c=3";
    let good = signature("k-9", form);
    let moved = [
        ("x-id", "k-9.a=1&b=2"),
        ("x-signature", good.as_str()),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let answer = post(&world, "/in", &moved, b"c=3".to_vec()).await;
    assert_eq!((answer.status, answer.body["code"].as_str()), (401, Some("id-malformed")), "{}", answer.body);
    assert_eq!(events(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn captured_requests_with_another_unsigned_id_are_duplicates() {
    let signature = |body: &str| match body.is_empty() {
        true => String::new(),
        false => BASE64.encode(mac(body).as_ref()),
    };
    let shop = world("shop", "verify: { scheme: shopify, secret: \"${secrets.WEBSITE_SECRET}\" }").await;
    let body = r#"{"id":5,"email":"a@b.c","updated_at":"2026-11-15T12:00:00Z"}"#;
    let good = signature(body);
    let with = |id: &'static str, topic: &'static str, good: &str| {
        let good = good.to_owned();
        vec![
            ("x-shopify-hmac-sha256", good),
            ("x-shopify-topic", topic.to_owned()),
            ("x-shopify-event-id", id.to_owned()),
        ]
    };
    let deliver = async |headers: Vec<(&str, String)>, body: &str| {
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        send(&shop, &headers, body).await
    };
    let first = deliver(with("e-1", "orders/create", &good), body).await;
    assert_eq!(first.status, 202, "{}", first.body);
    for id in ["e-2", "e-3", ""] {
        assert_duplicate(&deliver(with(id, "orders/create", &good), body).await, &first);
    }
    let newer = [with("e-1", "orders/create", &good), vec![("shopify-event-id", "e-4".to_owned())]].concat();
    assert_duplicate(&deliver(newer, body).await, &first);
    let updated = deliver(with("e-5", "orders/updated", &good), body).await;
    assert_ne!(updated.event(), first.event(), "one content can be two events: another topic");
    let other = r#"{"id":6}"#;
    let genuine = deliver(with("e-2", "orders/create", &signature(other)), other).await;
    assert_ne!(genuine.event(), first.event(), "an id that a replay used up is still free for the sender's own event");
    let sources = shop.get("/api/v1/sources/shop").await.to_string();
    assert!(sources.contains("\"by_content\":4"), "shown as duplicates by content: {sources}");

    let github = world("github", "verify: { scheme: github, secret: \"${secrets.WEBSITE_SECRET}\" }").await;
    let body = r#"{"action":"opened","number":7}"#;
    let good = format!("sha256={}", HEXLOWER.encode(mac(body).as_ref()));
    let issue = |id: &'static str| {
        [("x-hub-signature-256", good.clone()), ("x-github-event", "issues".into()), ("x-github-delivery", id.into())]
    };
    let mut seen = std::collections::HashSet::new();
    for id in ["d-1", "d-2", "d-3"] {
        let headers = issue(id);
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value): &(&str, String)| (*name, value.as_str())).collect();
        seen.insert(send(&github, &headers, body).await.event());
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_time_tells_two_equal_bodies_from_a_replay() {
    let world = world("desk", "verify: { scheme: zendesk, secret: \"${secrets.WEBSITE_SECRET}\" }").await;
    let body = r#"{"ticket":5,"status":"open"}"#;
    let deliver = async |id: &str, at: &str| {
        let signature = BASE64.encode(mac(&format!("{at}{body}")).as_ref());
        let headers = [
            ("x-zendesk-webhook-signature", signature.as_str()),
            ("x-zendesk-webhook-signature-timestamp", at),
            ("x-zendesk-webhook-invocation-id", id),
        ];
        send(&world, &headers, body).await.event()
    };
    let first = deliver("i-1", "2026-11-15T12:00:00Z").await;
    assert_eq!(deliver("i-2", "2026-11-15T12:00:00Z").await, first, "a replay with another id");
    assert_ne!(deliver("i-3", "2026-11-15T12:30:00Z").await, first, "the same body, signed again under another id");
    assert_eq!(deliver("i-1", "2026-11-15T12:45:00Z").await, first, "a retry of the sender");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_answered_as_a_repeat_is_known_after_the_content_window_and_a_restart() {
    let http = "idempotency: { key_from: header:Idempotency-Key }, dedup: { content_window: 1s }";
    let mut world = world("forms", http).await;
    let body = r#"{"email":"ada@example.com"}"#;
    let first = send(&world, &[("idempotency-key", "h-1")], body).await;
    assert_duplicate(&send(&world, &[("idempotency-key", "h-2")], body).await, &first);
    let world_ref = &world;
    let counter = std::sync::atomic::AtomicU32::new(0);
    until(|| async {
        let id = format!("fresh-{}", counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let answer = send(world_ref, &[("idempotency-key", &id)], body).await;
        (answer.event() != first.event()).then_some(())
    })
    .await;
    assert_duplicate(&send(&world, &[("idempotency-key", "h-2")], body).await, &first);
    world.stop_node().await;
    world.start_node().await;
    assert_duplicate(&send(&world, &[("idempotency-key", "h-2")], body).await, &first);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_with_an_empty_id_are_not_one_contact() {
    let flow = "name: forms\ntriggers: [{ http: { path: /in, idempotency: { key_from: body.id } } }]\nevent: { type: lead, identity: { contact_external_id: \"forms:{{ body.person_id }}\", email: body.email }, required: [identity.contact_external_id] }\nsteps: [{ queue: leads }]\n";
    let world = World::start_with(&[("flow.yml", flow), ("queues.yml", QUEUES)]).await;
    for person in [json!(""), json!("  "), Value::Null] {
        let answer = post_json(&world, "/in", &json!({"id": 1, "person_id": person, "email": "a@b.c"})).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (422, Some("field-missing")), "{}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains("identity.contact_external_id"), "{}", answer.body);
    }
    let whole = post_json(&world, "/in", &json!({"id": 2, "person_id": 7, "email": " "})).await;
    let shown = world.reveal(&whole.event(), "test").await;
    assert_eq!(shown["normalized"]["identity"], json!({"contact_external_id": "forms:7"}), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_part_of_a_key_is_no_part() {
    let world =
        world("forms", "idempotency: { key_from: { first_of: [\"p:{{ body.person_id }}\", [body.id]] } }").await;
    let key = async |body: Value| post_json(&world, "/in", &body).await.body["idempotency_key"].clone();
    assert_eq!(key(json!({"person_id": "", "id": 1})).await, "1");
    assert_eq!(key(json!({"person_id": " ", "id": 2})).await, "2");
    assert_eq!(key(json!({"person_id": 7, "id": 3})).await, "p|7");
    let none = post_json(&world, "/in", &json!({"person_id": null, "id": ""})).await;
    assert_eq!((none.status, none.body["code"].as_str()), (400, Some("idempotency-key-missing")), "{}", none.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_holds_no_digest_that_can_be_computed_from_an_address() {
    let keys = "idempotency: { key_from: [body.id, body.email, email_hash(body.email), body.phone] }";
    let key = async || {
        let world = world("forms", keys).await;
        let body = json!({"id": 1, "email": "Ada@Example.com", "phone": "+1 415 555 0123"});
        post_json(&world, "/in", &body).await.body["idempotency_key"].as_str().unwrap().to_owned()
    };
    let (ours, theirs) = (key().await, key().await);
    let plain = [
        sluice_domain::normalize::email_hash("ada@example.com"),
        sluice_domain::normalize::phone_hash("+14155550123", None),
    ];
    assert!(!plain.iter().any(|digest| ours.contains(digest)) && !ours.contains('@'), "{ours}");
    assert_ne!(ours, theirs, "another ledger has another key");
}

const WORKER: &str = "name: to-sink\nconsumes: leads\nrun: [{ name: send, run: http.request, destination: sink, with: { url: /in, method: PUT, json: \"{{ body }}\" } }]\n";

async fn partners(responses: &str) -> World {
    let flow = format!(
        "name: partners\ntriggers: [{{ http: {{ path: /in, idempotency: {{ key_from: body.id }}, verify: {{ scheme: token, header: X-Sender-Token, secrets: [{{ name: ann, value: \"${{secrets.ANN}}\" }}, {{ name: bob, value: \"${{secrets.BOB}}\" }}] }} }} }}]\nevent: {{ type: lead }}\nsteps: [{{ queue: leads }}]\n{responses}\n"
    );
    let files = [("flow.yml", flow.as_str()), ("queues.yml", QUEUES), ("worker.yml", WORKER)];
    World::start_with_secrets(&files, &[("ANN", "ann-t0ken"), ("BOB", "bob-t0ken")]).await
}

async fn of(world: &World, token: &str, body: &Value) -> Answer {
    post(world, "/in", &[JSON, ("x-sender-token", token)], body.to_string().into_bytes()).await
}

fn members(answer: &Answer) -> Vec<&str> {
    let mut names: Vec<&str> = answer.body.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_told_nothing_of_the_destination_by_default() {
    let world = partners("").await;
    let first = of(&world, "ann-t0ken", &json!({"id": "guessable"})).await;
    assert_eq!(members(&first), ["event_id", "idempotency_key", "status"]);
    world.settled(&first.event()).await;
    for token in ["ann-t0ken", "bob-t0ken"] {
        let repeat = of(&world, token, &json!({"id": "guessable"})).await;
        assert_duplicate(&repeat, &first);
        assert_eq!((members(&repeat), &repeat.body["status"]), (vec!["event_id", "status"], &json!("accepted")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_named_result_is_for_the_partner_who_sent_the_content() {
    let world = partners("responses: { result: { code: to-sink.status, body: to-sink.body } }").await;
    let lead = json!({"id": "guessable"});
    let first = of(&world, "ann-t0ken", &lead).await;
    let jobs = world.settled(&first.event()).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    let repeat = of(&world, "ann-t0ken", &lead).await;
    assert_duplicate(&repeat, &first);
    assert!(repeat.body["result"]["code"].is_number(), "{}", repeat.body);
    assert!(repeat.body["result"].get("body").is_none_or(|body| !body.is_object()), "{}", repeat.body);
    let guessed = of(&world, "bob-t0ken", &lead).await;
    assert_eq!(members(&guessed), ["event_id", "status"], "another partner guessed the id");
    let clash = of(&world, "ann-t0ken", &json!({"id": "guessable", "other": 1})).await;
    assert_eq!(members(&clash), ["event_id", "status"], "the id alone is not enough");
}
