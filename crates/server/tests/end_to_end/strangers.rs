//! Callers who hold connections, send bodies that never end or sign nothing: others are served meanwhile.

use std::net::IpAddr;
use std::time::Duration;

use sluice_domain::flow::RateLimit;
use sluice_domain::unit;
use sluice_server::intake::{IntakeSettings, TrustedProxies, UnverifiedLimits};
use sluice_server::run::{Node, NodeSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::fixture::{Answer, FLOW, QUEUES, World, lead, sign, until};

fn limit(rate: &str, burst: u32) -> RateLimit {
    RateLimit { rate: unit::rate(rate).unwrap(), burst }
}

/// No time-out: what ends a connection here is a limit.
fn patient() -> IntakeSettings {
    let long = Duration::from_secs(600);
    IntakeSettings { head_timeout: long, body_timeout: long, ..IntakeSettings::default() }
}

async fn world_with(flow: &str, intake_settings: IntakeSettings) -> World {
    let mut world = World::start_with(&[("flow.yml", flow), ("queues.yml", QUEUES)]).await;
    world.stop_node().await;
    let node = Node::start(NodeSettings { intake_settings, ..world.settings() }).await.unwrap();
    world.intake = format!("http://{}", node.intake);
    world.admin = format!("http://{}", node.admin);
    world.node = Some(node);
    world
}

fn client(address: &str) -> reqwest::Client {
    let address: IpAddr = address.parse().unwrap();
    reqwest::Client::builder().no_proxy().local_address(address).pool_max_idle_per_host(0).build().unwrap()
}

async fn post(world: &World, client: &reqwest::Client, id: &str, signature: Option<&str>) -> Answer {
    let body = lead(id).to_string();
    let signature = signature.map_or_else(|| sign(body.as_bytes()), str::to_owned);
    let request = client
        .post(format!("{}/in/website", world.intake))
        .header("content-type", "application/json")
        .header("x-signature", signature)
        .body(body);
    Answer::of(request.send().await.unwrap()).await
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["code"].as_str().unwrap_or_default())
}

/// A connection from an address, on which this was sent.
async fn half_open(world: &World, address: &str, sent: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let intake = world.intake.strip_prefix("http://").unwrap().parse().unwrap();
    let mut stream = socket.connect(intake).await.unwrap();
    // The node may have closed it already.
    let _ = stream.write_all(sent).await;
    stream
}

/// Head of a request with `bytes` of a body that does not end.
fn unfinished(bytes: usize) -> Vec<u8> {
    let mut sent =
        b"POST /in/website HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 8192\r\n\r\n"
            .to_vec();
    sent.resize(sent.len() + bytes, b' ');
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_use_up_the_rate_limit_of_a_source() {
    let limited = FLOW.replace("body_max: 8KiB", "rate_limit: { rate: 2/min, burst: 2 }");
    let unverified = UnverifiedLimits { per_address: limit("1/h", 3), total: limit("1000/s", 1000) };
    let world = world_with(&limited, IntakeSettings { unverified, ..IntakeSettings::default() }).await;
    let (stranger, sender) = (client("127.0.0.2"), client("127.0.0.1"));
    for n in 0..20 {
        let answer = post(&world, &stranger, "x", Some("sha256=00")).await;
        let expected = if n < 3 { (401, "signature-malformed") } else { (429, "address-limited") };
        assert_eq!(code(&answer), expected, "{n}: {}", answer.body);
    }
    assert_eq!(post(&world, &sender, "a", None).await.status, 202);
    assert_eq!(post(&world, &sender, "b", None).await.status, 202);
    let third = post(&world, &sender, "c", None).await;
    assert_eq!(code(&third), (429, "rate-limited"), "the limit is that of verified requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn sender_that_shares_its_address_with_a_stranger_is_still_served() {
    let unverified = UnverifiedLimits { per_address: limit("1/h", 3), total: limit("1/h", 3) };
    let world = world_with(FLOW, IntakeSettings { unverified, ..IntakeSettings::default() }).await;
    let shared = client("127.0.0.1");
    assert_eq!(post(&world, &shared, "a", None).await.status, 202);
    for n in 0..20 {
        let answer = post(&world, &shared, "x", Some("sha256=00")).await;
        assert_eq!(answer.status, if n < 3 { 401 } else { 429 }, "{n}: {}", answer.body);
    }
    assert_eq!(post(&world, &shared, "b", None).await.status, 202);
    let unknown = post(&world, &client("127.0.0.2"), "x", Some("sha256=00")).await;
    assert_eq!(code(&unknown), (429, "address-limited"), "the limit over all addresses is used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_of_one_address_do_not_keep_others_out() {
    let settings = IntakeSettings { connections_max: 20, connections_per_address_max: 10, ..patient() };
    let world = world_with(FLOW, settings).await;
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(half_open(&world, "127.0.0.2", b"POST /in/website HTTP/1.1\r\nhost:").await);
    }
    assert_eq!(post(&world, &client("127.0.0.1"), "meanwhile", None).await.status, 202);
    let mut refused = String::new();
    let last = held.last_mut().unwrap();
    let _ = last.read_to_string(&mut refused).await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 429"), "{refused}");
    drop(held);
    until(|| async {
        let mut open = half_open(&world, "127.0.0.2", b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let mut answer = String::new();
        let _ = open.read_to_string(&mut answer).await;
        answer.starts_with("HTTP/1.1 404").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_count_before_they_are_complete() {
    const KIB: usize = 1024;
    let settings = IntakeSettings {
        body_bytes_in_flight_max: 64 * KIB,
        body_bytes_per_address_max: 16 * KIB,
        body_bytes_per_second_min: 0,
        ..patient()
    };
    let world = world_with(FLOW, settings).await;
    let first_answer = async |address: &str, connections: usize| {
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let mut stream = half_open(&world, address, &unfinished(7 * KIB)).await;
            answers.spawn(async move {
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer).await;
                answer
            });
        }
        let answer = answers.join_next().await.unwrap().unwrap();
        (answer, answers)
    };
    let (answer, held) = first_answer("127.0.0.2", 3).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("address-limited"), "{answer}");
    assert_eq!(post(&world, &client("127.0.0.1"), "meanwhile", None).await.status, 202, "others are served");
    let mut all = vec![held];
    let mut overloaded = String::new();
    for n in 3..20 {
        let (answer, held) = first_answer(&format!("127.0.0.{n}"), 3).await;
        all.push(held);
        if answer.contains("overloaded") {
            overloaded = answer;
            break;
        }
    }
    assert!(overloaded.starts_with("HTTP/1.1 503"), "the memory over all addresses is limited: {overloaded}");
    drop(all);
    until(|| async { (post(&world, &client("127.0.0.1"), "after", None).await.status == 202).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_end_when_memory_is_short() {
    const KIB: usize = 1024;
    let settings = IntakeSettings { body_bytes_in_flight_max: 20 * KIB, ..patient() };
    let world = world_with(FLOW, settings).await;
    let mut answers = tokio::task::JoinSet::new();
    let mut address = 2;
    let answer = loop {
        while answers.len() < 2 {
            let mut stream = half_open(&world, &format!("127.0.0.{address}"), &unfinished(6 * KIB)).await;
            address += 1;
            answers.spawn(async move {
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer).await;
                answer
            });
        }
        // A buffer may have grown further than its body, and then the memory is full.
        match answers.join_next().await.unwrap().unwrap() {
            answer if answer.starts_with("HTTP/1.1 503") => assert!(address < 200, "{answer}"),
            answer => break answer,
        }
    };
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("memory is short"), "{answer}");
    until(|| async { (post(&world, &client("127.0.0.1"), "after", None).await.status == 202).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxy_is_not_limited_and_its_callers_are() {
    let settings = IntakeSettings {
        connections_per_address_max: 1,
        unverified: UnverifiedLimits { per_address: limit("1/h", 2), total: limit("1000/s", 1000) },
        trusted_proxies: TrustedProxies(vec!["127.0.0.1".parse().unwrap()]),
        ..patient()
    };
    let world = world_with(FLOW, settings).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(half_open(&world, "127.0.0.1", b"POST /").await);
    }
    let through = async |address: &str, signature: Option<&str>| {
        let body = lead(address).to_string();
        let signature = signature.map_or_else(|| sign(body.as_bytes()), str::to_owned);
        let request = world
            .client
            .post(format!("{}/in/website", world.intake))
            .header("content-type", "application/json")
            .header("x-forwarded-for", format!("127.0.0.1, {address}"))
            .header("x-signature", signature)
            .body(body);
        Answer::of(request.send().await.unwrap()).await.status
    };
    let statuses = [
        through("203.0.113.5", Some("sha256=00")).await,
        through("203.0.113.5", Some("sha256=00")).await,
        through("203.0.113.5", Some("sha256=00")).await,
        through("203.0.113.6", Some("sha256=00")).await,
        through("203.0.113.6", None).await,
    ];
    assert_eq!(statuses, [401, 401, 429, 401, 202]);
    let refused = world.get("/api/v1/audit").await.to_string();
    assert!(refused.is_empty() || !refused.contains("from 127.0.0.1"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_on_this_machine_does_not_make_callers_local() {
    let open = include_str!("limited_flow.yml");
    let world = World::start_with(&[("flow.yml", open), ("queues.yml", QUEUES)]).await;
    let post = async |header: Option<&str>| {
        let mut request = world.client.post(format!("{}/in/limited", world.intake)).body(r#"{"id": 1}"#);
        request = request.header("content-type", "application/json");
        if let Some(header) = header {
            request = request.header(header, "203.0.113.5");
        }
        let answer = Answer::of(request.send().await.unwrap()).await;
        (answer.status, answer.body["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(post(Some("x-forwarded-for")).await, (403, "unverified-source".to_owned()));
    assert_eq!(post(Some("via")).await.0, 403);
    assert_eq!(post(None).await.0, 202);
}
