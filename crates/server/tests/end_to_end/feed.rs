//! Sluice feeds Sluice: the effects of one node are the events of another, signed as Standard Webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{FLOW, QUEUES, World, lead, until};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

const RECEIVING: &str = r#"
version: 1
name: feed
source: upstream
triggers:
  - http:
      path: /in/feed
      verify: { scheme: standard-webhooks, secret: "${secrets.FEED}" }
steps: [{ queue: fed }]
---
queues: [fed]
"#;

fn sending(url: &str, key: &str) -> String {
    format!(
        r#"
version: 1
name: to-feed
consumes: {{ queue: leads }}
retry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 10 }}
run:
  - name: feed
    run: http.request
    destination: downstream
    with: {{ url: /in/feed, json: {{ type: lead.created, email: "{{{{ event.email }}}}" }}, idempotency_header: webhook-id }}
---
destinations:
  downstream: {{ type: http, base_url: "{url}", {key}, timeout: 20s, breaker: {{ failures_in_a_row: 1000, calls_min: 1000 }} }}
"#
    )
}

/// Forwards to a node, and loses the answer to the first `lost` requests. Counts what it forwarded.
async fn losing(node: String, lost: usize, forwarded: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(node.trim_start_matches("http://")).await.unwrap();
            let forwarded = forwarded.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                loop {
                    let Ok(count @ 1..) = client.read(&mut buffer).await else { return };
                    server.write_all(&buffer[..count]).await.unwrap();
                    let Ok(count @ 1..) = server.read(&mut buffer).await else { return };
                    if forwarded.fetch_add(1, Ordering::SeqCst) < lost {
                        return;
                    }
                    client.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    url
}

async fn receiver(secret: &str) -> World {
    World::start_with_secrets(&[("feed.yml", RECEIVING)], &[("FEED", secret)]).await
}

async fn sender(url: &str, key: &str) -> World {
    let worker = sending(url, key);
    let files = [("flow.yml", FLOW), ("queues.yml", QUEUES), ("worker.yml", worker.as_str())];
    World::start_with_secrets(&files, &[("OLD", OLD), ("NEW", NEW)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_make_no_second_event_at_the_next_node() {
    let below = receiver(NEW).await;
    let forwarded = Arc::new(AtomicUsize::new(0));
    let url = losing(below.intake.clone(), 2, forwarded.clone()).await;
    let above = sender(&url, "signing_secret: '${secrets.NEW}'").await;
    let event = above.post(&lead("f1")).await.event();
    let jobs = above.settled(&event).await;
    assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    assert!(forwarded.load(Ordering::SeqCst) >= 3, "two answers were lost");
    let events = below.get("/api/v1/events?limit=10").await;
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "one event for one effect: {events:?}");
    assert_eq!(events[0]["source"], "upstream");
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_may_know_either_secret_during_a_rotation() {
    for secret in [OLD, NEW] {
        let below = receiver(secret).await;
        let above = sender(&below.intake, "signing_secrets: ['${secrets.OLD}', '${secrets.NEW}']").await;
        let event = above.post(&lead("r1")).await.event();
        let jobs = above.settled(&event).await;
        assert_eq!(jobs[0]["state"], "succeeded", "{jobs:?}");
    }
    // After it, a receiver that still has the old secret refuses.
    let below = receiver(OLD).await;
    let above = sender(&below.intake, "signing_secret: '${secrets.NEW}'").await;
    let event = above.post(&lead("r2")).await.event();
    let state = until(|| async {
        let state = above.job_state(&event).await;
        (state == "dead").then_some(state)
    })
    .await;
    assert_eq!(state, "dead");
}
