//! Access to the admin API.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_server::intake::TrustedProxies;
use sluice_server::run::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Answer, World, lead, until};

const ROUTES: [&str; 3] = ["/api/v1/status", "/metrics", "/openapi/intake.json"];

#[tokio::test(flavor = "multi_thread")]
async fn local_user_without_the_token_cannot_read_or_apply() {
    let world = World::start().await;
    for path in ROUTES {
        let url = format!("{}{path}", world.admin);
        assert_eq!(world.client.get(&url).send().await.unwrap().status(), 401, "{path}");
        assert_eq!(world.client.get(&url).bearer_auth(world.token()).send().await.unwrap().status(), 200, "{path}");
    }
    for path in ["/api/v1/apply", "/api/v1/plan", "/api/v1/pause", "/api/v1/reload"] {
        let order = world.client.post(format!("{}{path}", world.admin)).json(&json!({ "files": {} }));
        assert_eq!(order.send().await.unwrap().status(), 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_authorization_header_is_refused_in_either_order() {
    let world = World::start().await;
    let (right, wrong) = (format!("Bearer {}", world.token()), "Bearer wrong".to_owned());
    for pair in [[&right, &wrong], [&wrong, &right], [&right, &right]] {
        let request = world.client.get(format!("{}/api/v1/status", world.admin));
        let request = request.header("authorization", pair[0]).header("authorization", pair[1]);
        assert_eq!(request.send().await.unwrap().status(), 401, "{pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_was_rebound_to_loopback_is_refused() {
    let world = World::start().await;
    let status = async |host: &str| {
        let url = format!("{}/api/v1/status", world.admin);
        let request = world.client.get(url).bearer_auth(world.token()).header("host", host);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("evil.example").await, 421);
    assert_eq!(status("evil.example:8081").await, 421);
    assert_eq!(status("localhost:8081").await, 200);
    assert_eq!(status("[::1]:9000").await, 200, "a tunnel has another port");

    let mut settings = world.settings();
    settings.data = world.config_path("elsewhere");
    settings.admin_settings.allowed_hosts = vec!["sluice.internal".into()];
    settings.admin_settings.token = Some("a-long-enough-token".into());
    let node = Node::start(settings).await.unwrap();
    let url = format!("http://{}/api/v1/status", node.admin);
    let request = world.client.get(url).bearer_auth("a-long-enough-token").header("host", "sluice.internal");
    assert_eq!(request.send().await.unwrap().status(), 200);
    node.stop(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_another_origin_is_refused() {
    let world = World::start().await;
    let status = async |origin: &str| {
        let request = world.client.post(format!("{}/api/v1/reload", world.admin)).bearer_auth(world.token());
        request.header("origin", origin).json(&json!({})).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("http://evil.example").await, 403);
    assert_eq!(status("http://localhost:3000").await, 403);
    assert_eq!(status("null").await, 403);
    assert_eq!(status(&world.admin).await, 200);
}

/// Audit entries on refused tokens.
async fn refusals(world: &World) -> Vec<String> {
    let audit = world.get("/api/v1/audit?limit=500").await;
    let entries = audit["items"].as_array().unwrap().iter();
    entries.filter(|entry| entry["action"] == "refuse").map(|entry| entry["detail"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_wrong_tokens_is_throttled_and_does_not_fill_the_audit_trail() {
    let world = World::start().await;
    let started = std::time::Instant::now();
    let url = format!("{}/api/v1/status", world.admin);
    let mut answers = vec![];
    for n in 0..200 {
        let request = world.client.get(&url).bearer_auth(format!("wrong-token-number-{n}"));
        answers.push(request.send().await.unwrap().status().as_u16());
    }
    assert_eq!(answers[..10], [401; 10]);
    assert!(answers.contains(&429), "{answers:?}");
    let entries = until(|| async { Some(refusals(&world).await).filter(|entries| !entries.is_empty()) }).await;
    assert!(entries[0].contains("wrong admin token from 127.0.0.1"), "{entries:?}");
    let windows = started.elapsed().as_secs() as usize / 60 + 1;
    assert!(entries.len() <= windows, "{entries:?}");
    // The holder of the generated token is not locked out by another user of the machine.
    assert_eq!(world.client.get(&url).bearer_auth(world.token()).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_token_cannot_be_guessed_without_limit() {
    let world = World::start().await;
    let mut settings = world.settings();
    settings.data = world.config_path("elsewhere");
    settings.admin_settings.token = Some("a-long-enough-token".into());
    let node = Node::start(settings).await.unwrap();
    let url = format!("http://{}/api/v1/status", node.admin);
    let status = async |token: &str| world.client.get(&url).bearer_auth(token).send().await.unwrap().status().as_u16();
    assert_eq!(status("a-long-enough-token").await, 200);
    let mut last = 401;
    for n in 0..1_000 {
        last = status(&format!("guess-number-{n:04}")).await;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    node.stop(Duration::from_secs(1)).await;
}

/// What the node answers until it closes the connection.
async fn answer_to(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = vec![];
    // The connection may be reset after the response.
    let read = tokio::time::timeout(Duration::from_secs(120), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection stays open");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_request_of_the_admin_listener_is_cut_off() {
    let mut world = World::start().await;
    world.restart_impatient().await;
    let head = answer_to(&world.admin, b"GET /api/v1/status HTTP/1.1\r\nhost: local").await;
    assert!(!head.contains("200"), "{head}");
    let request = format!(
        "POST /api/v1/plan HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{",
        world.token()
    );
    let body = answer_to(&world.admin, request.as_bytes()).await;
    assert!(body.starts_with("HTTP/1.1 408") && body.contains("body-timeout"), "{body}");
    let smuggled = format!(
        "GET http://evil.example/api/v1/status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        world.token()
    );
    let refused = answer_to(&world.admin, smuggled.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_behind_a_trusted_proxy_do_not_lock_its_other_callers_out() {
    let world = World::start().await;
    let mut settings = world.settings();
    settings.data = world.config_path("elsewhere");
    settings.admin_settings.token = Some("a-long-enough-token".into());
    settings.intake_settings.trusted_proxies = TrustedProxies(vec!["127.0.0.1".parse().unwrap()]);
    let node = Node::start(settings).await.unwrap();
    let url = format!("http://{}/api/v1/status", node.admin);
    let status = async |token: &str, callers: &str| {
        let request = world.client.get(&url).bearer_auth(token).header("x-forwarded-for", callers);
        request.send().await.unwrap().status().as_u16()
    };
    let mut last = 401;
    for n in 0..1_000 {
        // What the caller itself wrote before its address proves nothing.
        last = status("a-wrong-token", &format!("192.0.2.{}, 203.0.113.5", n % 200)).await;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    assert_eq!(status("a-long-enough-token", "203.0.113.6").await, 200);
    until(|| async {
        let audit = world.client.get(format!("http://{}/api/v1/audit", node.admin)).bearer_auth("a-long-enough-token");
        let audit = audit.send().await.unwrap().text().await.unwrap();
        audit.contains("wrong admin token from 203.0.113.5").then_some(())
    })
    .await;
    node.stop(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_root_key_is_not_written_where_a_caller_cannot_mean_it() {
    let world = World::start().await;
    let rotate = async |token: &str, to: Value| {
        let request = world.client.post(format!("{}/api/v1/keys/rotate", world.admin)).bearer_auth(token);
        Answer::of(request.json(&json!({ "key": "root", "to": to })).send().await.unwrap()).await
    };
    let (owner, there) = (world.token(), |name: &str| world.config_path(name).display().to_string());
    let before = world.get("/api/v1/keys").await["root_key"].clone();
    std::fs::write(world.config_path("taken"), "7".repeat(64)).unwrap();
    for (to, problem) in [
        ("stray.key".to_owned(), "absolute"),
        ("./stray.key".to_owned(), "absolute"),
        (there("stray\u{1b}[2J.key"), "control characters"),
        (there("absent/stray.key"), "directory that does not exist"),
        (there("taken"), "exists already"),
    ] {
        let answer = rotate(&owner, json!(to)).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert!(answer.status == 400 && detail.contains(problem), "{to}: {} {}", answer.status, answer.body);
    }
    assert!(!std::path::Path::new("stray.key").exists() && !world.config_path("absent").exists());
    assert_eq!(std::fs::read_to_string(world.config_path("taken")).unwrap(), "7".repeat(64));
    let added = world.act("/api/v1/tokens", json!({ "name": "ops", "role": "operator" })).await;
    let operator = added.body["secret"].as_str().unwrap();
    assert_eq!(rotate(operator, json!(there("new.key"))).await.status, 403);
    assert!(!world.config_path("new.key").exists());
    let tenant = world.act("/api/v1/keys/rotate", json!({ "key": "tenant", "to": there("new.key") })).await;
    assert_eq!(tenant.status, 400, "{}", tenant.body);
    assert_eq!(world.get("/api/v1/keys").await["root_key"], before);
    let rotated = rotate(&owner, json!(there("new.key"))).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    assert_ne!(rotated.body["root_key"], before);
    let copied = std::fs::read_to_string(world.config_path("new.key")).unwrap();
    assert_eq!(copied, std::fs::read_to_string(world.settings().data.join("root.key")).unwrap());
}

/// Two rotations at once, and readers of the keys between them, must not lose the only copy of a key.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_opens_after_rotations_at_the_same_time() {
    let mut world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let rotate = || world.act("/api/v1/keys/rotate", json!({ "key": "root", "actor": "ann" }));
    let look = || world.get("/api/v1/keys");
    for _ in 0..5 {
        let (first, _, second, _) = tokio::join!(rotate(), look(), rotate(), look());
        assert_eq!((first.status, second.status), (200, 200), "{} {}", first.body, second.body);
    }
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(world.get(&format!("/api/v1/events/{event}")).await["status"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelled_dry_run_drops_nothing() {
    let world = World::start().await;
    let mut long = lead("ada");
    long["last_name"] = json!("L".repeat(200));
    let event = world.post(&long).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "dead");
    let drop = json!({ "filter": { "states": ["dead"] }, "reason": "look first", "dryrun": true });
    let answer = world.act("/api/v1/dead-letters/drop", drop).await;
    assert_eq!((answer.status, &answer.body["code"]), (422, &json!("body-invalid")), "{}", answer.body);
    assert_eq!(world.job_state(&event).await, "dead");
}
