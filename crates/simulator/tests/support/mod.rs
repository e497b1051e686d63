//! Strict HTTP/1.1 client with one connection per request.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod vendor;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use sluice_simulator::{Salesforce, SalesforceSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any test waits; turns a hang into a failure.
const HANG_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct TestResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// `errorCode` of the first error in the array.
    pub(crate) fn code(&self) -> String {
        self.json()[0]["errorCode"].as_str().unwrap_or_default().to_owned()
    }
}

/// Request without a complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestError {
    Refused,
    NoResponse,
    Truncated { status: u16, announced: usize, arrived: usize },
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, headers: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Client {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &[u8]) -> Result<TestResponse, RequestError> {
        let mut stream = self.post(method, path, body).await?;
        let mut raw = Vec::new();
        let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_to_end(&mut raw)).await;
        let reset = read.expect("the server neither responded nor closed the connection").is_err();
        parse(&raw, reset)
    }

    /// Sends a request and returns the connection without reading from it.
    pub(crate) async fn post(&self, method: &str, path: &str, body: &[u8]) -> Result<TcpStream, RequestError> {
        let mut stream = TcpStream::connect(self.address).await.map_err(|_| RequestError::Refused)?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).await.map_err(|_| RequestError::NoResponse)?;
        stream.write_all(body).await.map_err(|_| RequestError::NoResponse)?;
        Ok(stream)
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: Value) -> TestResponse {
        let client = self.clone().with("Content-Type", "application/json");
        client.send(method, path, body.to_string().as_bytes()).await.expect("a complete response")
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.send("GET", path, b"").await.expect("a complete response")
    }
}

fn parse(raw: &[u8], reset: bool) -> Result<TestResponse, RequestError> {
    let Some(end) = raw.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Err(RequestError::NoResponse);
    };
    let head = String::from_utf8_lossy(&raw[..end]).into_owned();
    let body = raw[end + 4..].to_vec();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let status = status.expect("a status line");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let response = TestResponse { status, headers, body };
    let announced =
        response.header("content-length").map_or(response.body.len(), |length| length.parse().expect("a length"));
    if reset || response.body.len() != announced {
        return Err(RequestError::Truncated { status, announced, arrived: response.body.len() });
    }
    Ok(response)
}

/// Awaits a future; panics after a timeout.
pub(crate) async fn soon<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, waiting).await.expect("timed out waiting")
}

/// Starts an organisation; returns it with a client that has a token.
pub(crate) fn org(settings: SalesforceSettings) -> (Salesforce, Client) {
    let org = Salesforce::start(settings).expect("the organisation starts");
    let client = signed_in(&org);
    (org, client)
}

pub(crate) fn signed_in(org: &Salesforce) -> Client {
    Client::new(org.address()).with("Authorization", &format!("Bearer {}", org.issue_token()))
}
