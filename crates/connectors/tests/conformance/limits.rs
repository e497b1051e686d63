//! Progress of failed requests, and limits on responses and addresses.

use std::net::SocketAddr;

use serde_json::json;
use sluice_connectors::{Connectors, OutboundSettings};
use sluice_domain::destination::{DestinationKind, HttpDestination};
use sluice_domain::outcome::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{RawServer, read_request, unused_address};
use crate::{PATIENT, SHORT, brief, connectors, destination, http_at, request, to_http};

async fn post(connectors: &Connectors, url: &str, timeout: std::time::Duration) -> Outcome {
    connectors.call(request(&json!({"url": url, "json": {"a": 1}}), timeout)).await
}

#[tokio::test]
async fn failed_connection_sends_nothing() {
    let refused = format!("http://{}", unused_address().await);
    assert_eq!(brief(&post(&to_http(&refused), "/", PATIENT).await), "retry retryable connect");

    let unknown = post(&to_http("http://nosuch.invalid"), "/", PATIENT).await;
    assert_eq!(brief(&unknown), "retry retryable dns");

    let plain = RawServer::start(|mut stream| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let tls = post(&to_http(&plain.url().replace("http:", "https:")), "/", PATIENT).await;
    assert_eq!(brief(&tls), "retry retryable tls");
    assert!(tls.failure().unwrap().message.contains("Nothing was sent"), "{tls:?}");
}

#[tokio::test]
async fn deadline_before_connection_sends_nothing() {
    let silent = RawServer::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    // TCP connects, the TLS handshake never completes.
    let outcome = post(&to_http(&silent.url().replace("http:", "https:")), "/", SHORT).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
    assert_eq!(silent.connections(), 1);
    let outcome = post(&to_http("http://127.0.0.1:9"), "/", std::time::Duration::ZERO).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
}

#[tokio::test]
async fn connect_timeout_sends_nothing() {
    let silent = RawServer::start(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let settings = OutboundSettings { connect_timeout: SHORT, ..OutboundSettings::default() };
    let slow = destination("there", DestinationKind::Http(http_at(&silent.url().replace("http:", "https:"))));
    let outcome = post(&Connectors::new([&slow], &settings).unwrap(), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "retry retryable connect");
}

#[tokio::test]
async fn every_error_after_sending_is_unsure() {
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
        let server = RawServer::responding(bytes.clone()).await;
        let outcome = post(&to_http(&server.url()), "/", PATIENT).await;
        assert_eq!(brief(&outcome), expected, "{bytes:.40} {outcome:?}");
        assert_eq!(server.connections(), 1, "no retry: {bytes:.40}");
    }
}

#[tokio::test]
async fn reset_while_sending_is_unsure_and_not_retried() {
    let reads_nothing = RawServer::start(|stream| async move { drop(stream) }).await;
    let outcome = post(&to_http(&reads_nothing.url()), "/", PATIENT).await;
    // Whether the close arrives before the first byte is sent is a race; the outcome tells which.
    assert!(matches!(outcome, Outcome::Unsure { .. } | Outcome::Retry { .. }), "{outcome:?}");

    let resets = RawServer::start(|mut stream| async move {
        let mut first = [0; 1];
        // Closing with unread bytes causes a reset.
        let _ = stream.read(&mut first).await;
    })
    .await;
    let outcome = post(&to_http(&resets.url()), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "unsure retryable reset");
    assert_eq!(resets.connections(), 1);
}

#[tokio::test]
async fn response_that_never_ends_times_out() {
    let silent = RawServer::start(|mut stream| async move {
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(brief(&post(&to_http(&silent.url()), "/", SHORT).await), "unsure retryable timeout");

    let trickling = RawServer::start(|mut stream| async move {
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
async fn huge_response_is_truncated_and_marked() {
    let endless = RawServer::start(|mut stream| async move {
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
    let other = RawServer::responding("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let location = format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", other.url());
    let server = RawServer::responding(location).await;
    let outcome = post(&to_http(&server.url()), "/", PATIENT).await;
    assert_eq!(brief(&outcome), "reject permanent http-307");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn event_url_cannot_reach_a_private_address() {
    let internal = RawServer::responding("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = internal.address().port();
    let connectors = connectors([
        ("there", DestinationKind::Http(HttpDestination::default())),
        (
            "open",
            DestinationKind::Http(HttpDestination { allow_private_addresses: true, ..HttpDestination::default() }),
        ),
        ("named", DestinationKind::Http(http_at(&internal.url()))),
    ]);
    for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        for name in ["there", "", "http", "named"] {
            let url = format!("http://{host}:{port}/");
            let same = name == "named" && literal_address(&url) == Some(internal.address());
            let with = json!({"url": url, "json": {}});
            let outcome =
                connectors.call(sluice_connectors::Call { destination: name, ..request(&with, PATIENT) }).await;
            let expected = match name {
                // The operator has configured it.
                _ if same => "done",
                "named" => "reject permanent other-origin",
                _ => "reject permanent address-refused",
            };
            assert_eq!(brief(&outcome), expected, "{host} {name}");
        }
    }
    for (name, url) in [("open", format!("http://localhost:{port}/")), ("named", "/".to_owned())] {
        let with = json!({"url": url, "json": {}});
        let outcome = connectors.call(sluice_connectors::Call { destination: name, ..request(&with, PATIENT) }).await;
        assert_eq!(brief(&outcome), "done", "{name}");
    }
}

/// Address of a URL whose host is a spelling of 127.0.0.1.
fn literal_address(url: &str) -> Option<SocketAddr> {
    let rest = url.strip_prefix("http://")?.strip_suffix('/')?;
    let (host, port) = rest.rsplit_once(':')?;
    matches!(host, "127.0.0.1" | "0x7f.1" | "2130706433").then(|| format!("127.0.0.1:{port}").parse().ok())?
}

#[tokio::test]
async fn pooled_private_connection_does_not_serve_event_urls() {
    let internal = RawServer::start(|mut stream| async move {
        loop {
            if read_request(&mut stream).await.is_empty() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let local = format!("http://localhost:{}", internal.address().port());
    let connectors = connectors([
        ("named", DestinationKind::Http(http_at(&local))),
        ("there", DestinationKind::Http(HttpDestination::default())),
    ]);
    let with = json!({"url": local, "json": {}});
    let named = || connectors.call(sluice_connectors::Call { destination: "named", ..request(&with, PATIENT) });
    assert_eq!(brief(&named().await), "done");
    assert_eq!(brief(&named().await), "done");
    assert_eq!(internal.connections(), 1, "the connection is reused");
    let other = connectors.call(request(&with, PATIENT)).await;
    assert_eq!(brief(&other), "reject permanent address-refused");
}

#[tokio::test]
async fn pooled_connection_closed_by_the_server_is_not_reused() {
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    let server = RawServer::start(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
            // Closes without `connection: close`.
            drop(stream);
            let _ = closed.send(());
        }
    })
    .await;
    let connectors = connectors([("there", DestinationKind::Http(http_at(&server.url())))]);
    let with = json!({"url": "/", "json": {}});
    for call in 1..=5 {
        assert_eq!(brief(&connectors.call(request(&with, PATIENT)).await), "done", "call {call}");
        closes.recv().await.unwrap();
        // Lets the I/O driver notice the close.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn truncated_response_closes_its_connection() {
    let server = RawServer::start(|mut stream| async move {
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
        assert_eq!(server.connections(), call, "no connection is reused");
    }
}
