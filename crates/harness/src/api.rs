//! A look at a node's books, over its admin API.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_simulator::load::Connection;

use crate::Error;

/// How long an answer may take; counting millions of rows takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The admin API of a node on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Api(pub SocketAddr);

impl Api {
    /// Asks.
    pub async fn get<T: DeserializeOwned>(self, path: &str) -> Result<T, Error> {
        let body = self.send("GET", path, "").await?;
        serde_json::from_slice(&body).map_err(|error| Error::Wrong(format!("{path} answered something else: {error}")))
    }

    /// Orders.
    pub async fn post(self, path: &str, order: &Value) -> Result<Value, Error> {
        let body = self.send("POST", path, &order.to_string()).await?;
        serde_json::from_slice(&body).map_err(|error| Error::Wrong(format!("{path} answered something else: {error}")))
    }

    /// A counter or gauge without labels, by its name in `/metrics`.
    pub async fn metric(self, name: &str) -> Result<u64, Error> {
        let page = self.send("GET", "/metrics", "").await?;
        let page = String::from_utf8_lossy(&page);
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| Error::Wrong(format!("/metrics has no {name}")))
    }

    async fn send(self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, Error> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.0,
            body.len()
        );
        let asked = async {
            let mut connection = Connection::open(self.0).await?;
            let answer = connection.send(request.as_bytes()).await?;
            Ok((answer.status, answer.body.to_vec()))
        };
        let answered = match tokio::time::timeout(ANSWER_MAX, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        match answered.map_err(Error::io(format!("{method} {path}")))? {
            (200, body) => Ok(body),
            (status, body) => {
                Err(Error::Wrong(format!("{method} {path} was answered {status}: {}", String::from_utf8_lossy(&body))))
            }
        }
    }
}
