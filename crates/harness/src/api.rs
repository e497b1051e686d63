//! Client of the admin API of a local node.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_domain::verify::SecretValue;
use sluice_server::admin_token;
use sluice_simulator::load::Connection;

use crate::Error;

/// Timeout of one request; counting millions of rows takes seconds.
const RESPONSE_MAX: Duration = Duration::from_secs(20);

/// JSON API of a node or of a simulator at this address.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    address: SocketAddr,
    /// Only a node has one.
    token: Option<SecretValue>,
}

impl Api {
    /// API without a token.
    pub(crate) fn open(address: SocketAddr) -> Api {
        Api { address, token: None }
    }

    /// Admin API of a node.
    pub(crate) fn with_token(address: SocketAddr, token: SecretValue) -> Api {
        Api { address, token: Some(token) }
    }

    /// Admin API of a node with this data directory.
    pub(crate) fn of_node(address: SocketAddr, data: &Path) -> Result<Api, Error> {
        Ok(Api::with_token(address, token_of(data)?))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let body = self.send("GET", path, "").await?;
        serde_json::from_slice(&body).map_err(|error| Error::Failed(format!("unexpected response to {path}: {error}")))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let body = self.send("POST", path, &body.to_string()).await?;
        serde_json::from_slice(&body).map_err(|error| Error::Failed(format!("unexpected response to {path}: {error}")))
    }

    /// Value of a counter or gauge without labels, by its name in `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> Result<u64, Error> {
        let page = self.send("GET", "/metrics", "").await?;
        let page = String::from_utf8_lossy(&page);
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| Error::Failed(format!("/metrics has no {name}")))
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, Error> {
        let authorization = self
            .token
            .as_ref()
            .map(|token| format!("authorization: Bearer {}\r\n", token.expose()))
            .unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{authorization}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let exchange = async {
            let mut connection = Connection::open(self.address).await?;
            let response = connection.send(request.as_bytes()).await?;
            Ok((response.status, response.body.to_vec()))
        };
        let result = match tokio::time::timeout(RESPONSE_MAX, exchange).await {
            Ok(result) => result,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        match result.map_err(Error::io(format!("{method} {path}")))? {
            (200, body) => Ok(body),
            (status, body) => Err(Error::Failed(format!(
                "{method} {path} failed with status {status}: {}",
                String::from_utf8_lossy(&body)
            ))),
        }
    }
}

/// Admin token that a node keeps in its data directory.
pub(crate) fn token_of(data: &Path) -> Result<SecretValue, Error> {
    let found = admin_token::read(&data.join(admin_token::FILE)).map_err(|error| Error::Failed(error.to_string()))?;
    found.ok_or_else(|| Error::Failed(format!("no admin token in {}", data.display())))
}
