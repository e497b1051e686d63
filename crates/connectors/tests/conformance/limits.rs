//! How far a failed request got, and the limits on what comes back.

use std::net::SocketAddr;

use serde_json::json;
use sluice_connectors::{Connectors, OutboundSettings};
use sluice_domain::destination::{DestinationKind, HttpDestination};
use sluice_domain::outcome::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{Raw, read_request, refusing};
use crate::{PATIENT, SHORT, brief, connectors, destination, http_at, request, to_http};

async fn post(connectors: &Connectors, url: &str, timeout: std::time::Duration) -> Outcome {
    connectors.call(request(&json!({"url": url, "json": {"a": 1}}), timeout)).await
}

#[tokio::test]
async fn nothing_was_sent_when_no_connection_stood() {
    let refused = format!("http://{}", refusing().await);
    assert_eq!(brief(&post(&to_http(&refused), "/", PATIENT).await), "retry retryable connect");

    let unknown = post(&to_http("http://nosuch.invalid"), "/", PATIENT).await;
    assert_eq!(brief(&unknown), "retry retryable dns");

    let plain = Raw::start(|mut stream| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let tls = post(&to_http(&plain.url().replace("http:", "https:")), "/", PATIENT).await;
    assert_eq!(brief(&tls), "retry retryable tls");
    assert!(tls.failure().unwrap().message.contains("Nothing was sent"), "{tls:?}");
}

#[tokio::test]
async fn nothing_was_sent_when_the_deadline_passed_before_a_connection_stood() {
    let silent = Raw::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    // The TCP connection stands, the TLS one never does.
    let outcome = post(&to_http(&silent.url().replace("http:", "https:")), "/", SHORT).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
    assert_eq!(silent.connections(), 1);
    let outcome = post(&to_http("http://127.0.0.1:9"), "/", std::time::Duration::ZERO).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
}

#[tokio::test]
async fn a_connection_that_takes_too_long_has_sent_nothing() {
    let silent = Raw::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let settings = OutboundSettings { connect_timeout: SHORT, ..OutboundSettings::default() };
    let there = destination("there", DestinationKind::Http(http_at(&silent.url().replace("http:", "https:"))));
    let outcome = post(&Connectors::new([&there], &settings).unwrap(), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
}

#[tokio::test]
async fn whatever_happens_after_sending_is_unsure() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
    let many_headers: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let table = [
        (String::new(), "unsure retryable reset"),
        ("HTTP/1.1 200 O".to_owned(), "unsure retryable reset"),
        (head.to_owned(), "unsure retryable truncated"),
        (format!("{head}only this"), "unsure retryable truncated"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_owned(), "unsure retryable truncated"),
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n".to_owned(), "unsure retryable protocol"),
        (format!("HTTP/1.1 200 OK\r\n{many_headers}\r\n"), "unsure retryable too-large"),
        (format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)), "unsure retryable too-large"),
        ("HTTP/1.1 429 Slow\r\ncontent-length: 9\r\n\r\nno".to_owned(), "unsure retryable truncated"),
    ];
    for (bytes, expected) in table {
        let server = Raw::answering(bytes.clone()).await;
        let outcome = post(&to_http(&server.url()), "/", PATIENT).await;
        assert_eq!(brief(&outcome), expected, "{bytes:.40} {outcome:?}");
        assert_eq!(server.connections(), 1, "nothing is repeated: {bytes:.40}");
    }
}

#[tokio::test]
async fn a_reset_before_or_after_the_request_was_read_is_unsure_and_never_repeated() {
    let reads_nothing = Raw::start(|stream| async move { drop(stream) }).await;
    let outcome = post(&to_http(&reads_nothing.url()), "/", PATIENT).await;
    // Whether the goodbye came before the first byte left is a race; both sides of it are told apart.
    assert!(matches!(outcome, Outcome::Unsure { .. } | Outcome::Retry { .. }), "{outcome:?}");

    let resets = Raw::start(|mut stream| async move {
        let mut first = [0; 1];
        // Unread bytes at the close turn it into a reset.
        let _ = stream.read(&mut first).await;
    })
    .await;
    let outcome = post(&to_http(&resets.url()), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "unsure retryable reset");
    assert_eq!(resets.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_never_ends_is_a_timeout() {
    let silent = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(brief(&post(&to_http(&silent.url()), "/", SHORT).await), "unsure retryable timeout");

    let trickling = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx").await;
        std::future::pending::<()>().await;
    })
    .await;
    let with = json!({"url": "/", "json": 1, "timeout": "60ms"});
    let outcome = to_http(&trickling.url()).call(request(&with, PATIENT)).await;
    assert_eq!(brief(&outcome), "unsure retryable timeout");
    assert!(outcome.failure().unwrap().message.contains("may have arrived"), "{outcome:?}");
}

#[tokio::test]
async fn a_huge_answer_is_cut_and_says_so() {
    let endless = Raw::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
    })
    .await;
    let Outcome::Done { result } = post(&to_http(&endless.url()), "/", PATIENT).await else { panic!("not done") };
    assert_eq!(result["body_cut"], true);
    assert_eq!(result["body"].as_str().unwrap().len(), 256 * 1024);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Raw::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let location = format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url());
    let server = Raw::answering(location).await;
    let outcome = post(&to_http(&server.url()), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "reject permanent http-307");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_url_out_of_an_event_cannot_reach_a_private_address() {
    let inside = Raw::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = inside.address().port();
    let connectors = connectors([
        ("there", DestinationKind::Http(HttpDestination::default())),
        (
            "open",
            DestinationKind::Http(HttpDestination { allow_private_addresses: true, ..HttpDestination::default() }),
        ),
        ("named", DestinationKind::Http(http_at(&inside.url()))),
    ]);
    for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        for name in ["there", "", "http", "named"] {
            let url = format!("http://{host}:{port}/");
            let same = name == "named" && literal_address(&url) == Some(inside.address());
            let with = json!({"url": url, "json": {}});
            let outcome =
                connectors.call(sluice_connectors::Call { destination: name, ..request(&with, PATIENT) }).await;
            if same {
                assert_eq!(brief(&outcome), "done", "{host} is what the operator wrote");
            } else {
                assert_eq!(brief(&outcome), "reject permanent address-refused", "{host} {name}");
            }
        }
    }
    for (name, url) in [("open", format!("http://localhost:{port}/")), ("named", "/".to_owned())] {
        let with = json!({"url": url, "json": {}});
        let outcome = connectors.call(sluice_connectors::Call { destination: name, ..request(&with, PATIENT) }).await;
        assert_eq!(brief(&outcome), "done", "{name}");
    }
}

/// The address that a literal host stands for, in any of its spellings of 127.0.0.1.
fn literal_address(url: &str) -> Option<SocketAddr> {
    let rest = url.strip_prefix("http://")?.strip_suffix('/')?;
    let (host, port) = rest.rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "0x7f.1" | "2130706433").then(|| format!("127.0.0.1:{port}").parse().ok())?
}

#[tokio::test]
async fn a_pooled_connection_to_a_private_address_does_not_serve_others() {
    let inside = Raw::start(|mut stream| async move {
        loop {
            if read_request(&mut stream).await.is_empty() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let local = format!("http://localhost:{}", inside.address().port());
    let connectors = connectors([
        ("named", DestinationKind::Http(http_at(&local))),
        ("there", DestinationKind::Http(HttpDestination::default())),
    ]);
    let with = json!({"url": local, "json": {}});
    let named = || connectors.call(sluice_connectors::Call { destination: "named", ..request(&with, PATIENT) });
    assert_eq!(brief(&named().await), "done");
    assert_eq!(brief(&named().await), "done");
    assert_eq!(inside.connections(), 1, "the connection is kept");
    let other = connectors.call(request(&with, PATIENT)).await;
    assert_eq!(brief(&other), "reject permanent address-refused");
}

#[tokio::test]
async fn a_kept_connection_that_the_other_side_has_closed_is_not_used_again() {
    let (gone, mut goodbyes) = tokio::sync::mpsc::unbounded_channel();
    let server = Raw::start(move |mut stream| {
        let gone = gone.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
            // Without having said so.
            drop(stream);
            let _ = gone.send(());
        }
    })
    .await;
    let connectors = connectors([("there", DestinationKind::Http(http_at(&server.url())))]);
    let with = json!({"url": "/", "json": {}});
    for call in 1..=5 {
        assert_eq!(brief(&connectors.call(request(&with, PATIENT)).await), "done", "call {call}");
        goodbyes.recv().await.unwrap();
        // The other side is gone; whoever watches the sockets here gets a turn to see it.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn what_is_left_of_an_answer_that_was_cut_is_never_taken_for_the_next() {
    let server = Raw::start(|mut stream| async move {
        while !read_request(&mut stream).await.is_empty() {
            let body = "x".repeat(300 * 1024);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
        }
    })
    .await;
    let connectors = connectors([("there", DestinationKind::Http(http_at(&server.url())))]);
    let with = json!({"url": "/", "json": {}});
    for call in 1..=3 {
        assert_eq!(brief(&connectors.call(request(&with, PATIENT)).await), "done", "call {call}");
        assert_eq!(server.connections(), call, "no connection is kept");
    }
}
