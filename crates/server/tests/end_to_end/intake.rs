//! What a sender meets at the door.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Answer, World, lead, sign};

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_gets_the_first_response_and_then_the_first_result() {
    let world = World::start().await;
    let first = world.post(&lead("a1")).await;
    assert_eq!(first.status, 202);
    assert_eq!(first.body["status"], "accepted");
    assert_eq!(first.body["idempotency_key"], "a1");
    let jobs = world.settled(&first.event()).await;
    assert_eq!(jobs[0]["state"], "succeeded");
    let repeat = world.post(&lead("a1")).await;
    assert_eq!(repeat.event(), first.event());
    assert_eq!(repeat.headers["idempotent-replayed"], "true");
    let record = world.crm.records("Lead")[0].id.clone();
    assert_eq!(repeat.body["result"], json!({"lead_id": record}), "what the flow names, and nothing else");
    assert_eq!(world.crm.truth().object("Lead").records, 1);
    assert_eq!(world.crm.writes().len(), 1, "the repeat made no second job");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_duplicates_are_one_event() {
    let world = std::sync::Arc::new(World::start().await);
    let answers: Vec<_> = (0..200)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { world.post(&lead("same")).await.event() })
        })
        .collect();
    let mut events = std::collections::HashSet::new();
    for answer in answers {
        events.insert(answer.await.unwrap());
    }
    assert_eq!(events.len(), 1);
    world.settled(events.iter().next().unwrap()).await;
    assert_eq!(world.crm.truth().object("Lead").created, 1);
    assert_eq!(world.crm.writes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_signature_writes_only_an_audit_entry() {
    let world = World::start().await;
    let body = lead("forged").to_string();
    for signature in ["sha256=00", "", "sha256=zz", &sign(b"another body")] {
        let request = world
            .client
            .post(format!("{}/in/website", world.intake))
            .header("x-signature", signature)
            .body(body.clone());
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.status, 401, "{signature}: {}", answer.body);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert!(answer.body["code"].as_str().unwrap().starts_with("signature-"), "{}", answer.body);
    }
    assert_eq!(world.get("/api/v1/events").await["items"], json!([]));
    let audit = crate::fixture::until(|| async {
        let audit = world.get("/api/v1/audit").await;
        audit["items"].as_array().unwrap().iter().any(|line| line["action"] == "refuse").then_some(audit)
    })
    .await;
    assert!(audit.to_string().contains("source:website"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_body_is_explained() {
    let world = World::start().await;
    let without = |field: &str| {
        let mut lead = lead("x");
        lead.as_object_mut().unwrap().remove(field);
        lead.to_string()
    };
    for (body, status, code, word) in [
        (String::new(), 400, "body-empty", "empty"),
        ("{\"id\": ".into(), 400, "json-invalid", "line 1"),
        ("17".into(), 400, "json-not-an-object", "object"),
        (without("id"), 400, "idempotency-key-missing", "body.id"),
        (without("last_name"), 422, "field-missing", "attributes.last_name"),
        (format!("{{\"id\": \"{}\"}}", "x".repeat(9_000)), 413, "body-too-large", "8192"),
        ("[".repeat(300), 400, "json-too-deep", "64"),
    ] {
        let answer = world.post_bytes(body.clone().into_bytes()).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{body}: {}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains(word), "{}", answer.body);
    }
    let request = world
        .client
        .post(format!("{}/in/website", world.intake))
        .header("content-type", "text/csv")
        .header("x-signature", sign(b"a,b"))
        .body("a,b");
    assert_eq!(Answer::of(request.send().await.unwrap()).await.status, 415);
    let request = world.client.delete(format!("{}/in/website", world.intake));
    let answer = Answer::of(request.send().await.unwrap()).await;
    assert_eq!((answer.status, answer.headers["allow"].to_str().unwrap()), (405, "POST"));
    let request = world.client.post(format!("{}/in/nowhere", world.intake));
    assert_eq!(Answer::of(request.send().await.unwrap()).await.body["code"], "no-such-flow");
    assert_eq!(world.get("/api/v1/events").await["items"], json!([]), "nothing half-read was stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_and_bodies_time_out_without_delaying_others() {
    let mut world = World::start().await;
    world.restart_impatient().await;
    let address = world.intake.strip_prefix("http://").unwrap();
    let mut slow_head = tokio::net::TcpStream::connect(address).await.unwrap();
    slow_head.write_all(b"POST /in/website HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let mut slow_body = tokio::net::TcpStream::connect(address).await.unwrap();
    slow_body.write_all(b"POST /in/website HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    assert_eq!(world.post(&lead("meanwhile")).await.status, 202);
    let mut answer = String::new();
    slow_body.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("body-timeout"), "{answer}");
    let mut rest = Vec::new();
    slow_head.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn source_over_its_rate_limit_gets_retry_after() {
    let flow = include_str!("limited_flow.yml");
    let world = World::start_with(&[("flow.yml", flow), ("queues.yml", "queues: [{ name: leads }]\n")]).await;
    let post = || async {
        let request = world
            .client
            .post(format!("{}/in/limited", world.intake))
            .header("content-type", "application/json")
            .body(r#"{"id": 1}"#);
        Answer::of(request.send().await.unwrap()).await
    };
    assert_eq!(post().await.status, 202);
    assert_eq!(post().await.status, 202);
    let third = post().await;
    assert_eq!(third.status, 429);
    let seconds: u64 = third.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_disconnects_changes_nothing() {
    let world = World::start().await;
    let body = lead("hangs-up").to_string();
    let address = world.intake.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /in/website HTTP/1.1\r\nhost: x\r\nx-signature: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        sign(body.as_bytes()),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    drop(stream);
    let answer = world.post(&lead("hangs-up")).await;
    world.settled(&answer.event()).await;
    assert_eq!(world.crm.truth().object("Lead").created, 1);
    assert_eq!(world.crm.writes().len(), 1);
}
