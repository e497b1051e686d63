//! Credentials and rate limits of senders, and how rejected requests are shown.

use serde_json::json;

use crate::bodies::{QUEUES, post, post_json};
use crate::fixture::World;

#[tokio::test(flavor = "multi_thread")]
async fn each_sender_token_has_a_limit_of_its_own() {
    let flow = "name: partners\ntriggers: [{ http: { path: /in, idempotency: { key_from: body.id }, verify: { scheme: token, header: X-Sender-Token, secrets: [{ name: noisy, value: \"${secrets.NOISY}\", rate_limit: { rate: 1/min, burst: 2 } }, { name: quiet, value: \"${secrets.QUIET}\" }] } } }]\nsteps: [{ queue: leads }]\n";
    let world = World::start_with_secrets(
        &[("flow.yml", flow), ("queues.yml", QUEUES)],
        &[("NOISY", "n01sy"), ("QUIET", "qu1et")],
    )
    .await;
    let send = |token: &'static str, id: u32| {
        let (world, body) = (&world, json!({"id": id}).to_string().into_bytes());
        async move { post(world, "/in", &[("x-sender-token", token)], body).await }
    };
    assert_eq!((send("n01sy", 1).await.status, send("n01sy", 2).await.status), (202, 202));
    let over = send("n01sy", 3).await;
    assert_eq!((over.status, over.body["code"].as_str()), (429, Some("rate-limited")), "{}", over.body);
    assert!(over.headers.contains_key("retry-after") && over.body["detail"].as_str().unwrap().contains("noisy"));
    let quiet = send("qu1et", 4).await;
    assert_eq!(quiet.status, 202, "one holder does not use up another's");
    let shown = world.reveal(&quiet.event(), "test").await;
    assert!(!shown.to_string().contains("qu1et"), "a token is not stored: {shown}");
    assert_eq!(shown["verified_by"], "quiet");

    assert_eq!(send("wrong", 5).await.status, 401);
    let sources = world.get("/api/v1/sources").await;
    let partner =
        sources["items"].as_array().unwrap_or(sources.as_array().unwrap_or(&vec![])).first().cloned().unwrap();
    assert_eq!(
        partner["refused_lately"]["credentials-mismatch"],
        json!({"minute": 1, "hour": 1, "day": 1, "jump": false}),
        "{sources}"
    );
    assert_eq!(partner["refused_lately"]["rate-limited"]["minute"], 1, "{sources}");
    assert_eq!(partner["refusals"][0]["code"], "credentials-mismatch", "{sources}");
    assert_eq!(partner["refusals"][0]["address"], "127.0.0.1", "{sources}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_that_covers_only_itself_is_taken_for_one_event_also_after_a_restart() {
    let flow = "name: mail\ntriggers: [{ http: { path: /in, verify: { scheme: mailgun, secret: \"${secrets.WEBSITE_SECRET}\" } } }]\nsteps: [{ queue: leads }]\n";
    let mut world = World::start_with(&[("flow.yml", flow), ("queues.yml", QUEUES)]).await;
    let timestamp = jiff::Timestamp::now().as_second().to_string();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, crate::fixture::SECRET.as_bytes());
    let tag = aws_lc_rs::hmac::sign(&key, format!("{timestamp}tok-1").as_bytes());
    let signature =
        json!({"timestamp": timestamp, "token": "tok-1", "signature": data_encoding::HEXLOWER.encode(tag.as_ref())});
    let event = |id: &str| json!({"signature": signature, "event-data": {"id": id, "event": "opened"}});
    let first = post_json(&world, "/in", &event("m1")).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(post_json(&world, "/in", &event("m1")).await.headers["idempotent-replayed"], "true");
    let pasted = post_json(&world, "/in", &event("m2")).await;
    assert_eq!((pasted.status, pasted.body["code"].as_str()), (401, Some("proof-replayed")), "{}", pasted.body);
    world.stop_node().await;
    world.start_node().await;
    let pasted = post_json(&world, "/in", &event("m3")).await;
    assert_eq!((pasted.status, pasted.body["code"].as_str()), (401, Some("proof-replayed")), "{}", pasted.body);
    assert_eq!(post_json(&world, "/in", &event("m1")).await.headers["idempotent-replayed"], "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_without_verification_is_shown_as_open() {
    let flow = "name: open\ntriggers: [{ http: { path: /in, verify: none, idempotency: { key_from: body.id } } }]\nsteps: [{ queue: leads }]\n";
    let world = World::start_with(&[("flow.yml", flow), ("queues.yml", QUEUES)]).await;
    assert_eq!(post_json(&world, "/in", &json!({"id": 1})).await.status, 202);
    let sources = world.get("/api/v1/sources").await.to_string();
    assert!(sources.contains("\"open\":true"), "{sources}");
}
