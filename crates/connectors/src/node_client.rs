//! A client of another node's API, and of its intake: what the command line speaks through.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use sluice_domain::verify::SecretValue;
use url::Url;

use crate::outbound::{AddressScope, HttpResponse, Outbound, OutboundSettings, Request, sensitive};
use crate::{deadline, text};

/// How long a node may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is read: a page of the longest list fits many times over.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The address cannot be one.
    #[error("`{url}` is not the address of a node: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The request cannot be made from what was given.
    #[error("{0}")]
    Request(String),
    /// The HTTP client cannot be built, for want of TLS roots for example.
    #[error("the HTTP client cannot be built: {0}")]
    Client(String),
    /// Nobody answered.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// Whom we asked.
        url: String,
        /// How far it got.
        reason: String,
    },
    /// The node answered no.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable code; empty where the answer was no problem document.
        code: String,
        /// What it said.
        detail: String,
    },
    /// Somebody answered who is no node.
    #[error("{url} does not answer like a Sluice node: {reason}")]
    NotANode {
        /// Whom we asked.
        url: String,
        /// What was odd.
        reason: String,
    },
}

/// An answer, whatever it says.
#[derive(Clone, Debug)]
pub struct NodeResponse {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl NodeResponse {
    /// The first value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A request to post somewhere. Values of headers may be credentials, so they are not printed.
pub struct Posting<'a> {
    /// In capitals.
    pub method: &'a str,
    /// The whole URL; may hold a credential in its query.
    pub url: &'a str,
    /// Beside what every request has.
    pub headers: Vec<(String, SecretValue)>,
    /// The body.
    pub body: Vec<u8>,
}

impl fmt::Debug for Posting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posting")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Asks one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeClient {
    outbound: Outbound,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl NodeClient {
    /// A client of the node whose admin listener is at this address.
    pub fn new(url: &str, token: Option<&SecretValue>) -> Result<NodeClient, NodeError> {
        let base = address(url)?;
        let authorization = match token {
            None => None,
            Some(token) => Some(sensitive(&format!("Bearer {}", token.expose())).ok_or_else(|| {
                NodeError::Request("the admin token holds characters that no header can carry".into())
            })?),
        };
        let settings = OutboundSettings { answer_bytes_max: ANSWER_BYTES_MAX, ..OutboundSettings::default() };
        Ok(NodeClient { outbound: Outbound::new(&settings).map_err(NodeError::Client)?, base, authorization })
    }

    /// Whom it asks, without a slash at the end.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Asks for something. `path` starts with a slash.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, NodeError> {
        let mut url = self.at(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(Method::GET, url, Bytes::new()).await
    }

    /// Orders something. `path` starts with a slash.
    pub async fn post(&self, path: &str, order: &Value) -> Result<Value, NodeError> {
        let url = self.at(path)?;
        self.ask(Method::POST, url, Bytes::from(order.to_string())).await
    }

    fn at(&self, path: &str) -> Result<Url, NodeError> {
        let text = format!("{}{path}", self.url());
        Url::parse(&text).map_err(|error| NodeError::Request(format!("`{path}` cannot be asked for: {error}")))
    }

    async fn ask(&self, method: Method, url: Url, body: Bytes) -> Result<Value, NodeError> {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = Request { method, url, headers, body, reach: AddressScope::Anywhere };
        let answer = self.go(request).await?;
        let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
        match json {
            Some(json) if (200..300).contains(&answer.status) && !answer.cut => Ok(json),
            Some(json) if !(200..300).contains(&answer.status) => {
                let member = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let detail = match member("detail") {
                    empty if empty.is_empty() => format!("the node answered {}", answer.status),
                    detail => detail,
                };
                Err(NodeError::Refused { status: answer.status, code: member("code"), detail })
            }
            _ => Err(NodeError::NotANode { url: self.url().to_owned(), reason: describe(&answer) }),
        }
    }

    /// Sends a request of any kind to anywhere, without the node's token, and answers with whatever came back.
    pub async fn send(posting: Posting<'_>) -> Result<NodeResponse, NodeError> {
        let url = address(posting.url)?;
        let method = Method::from_bytes(posting.method.as_bytes())
            .map_err(|_| NodeError::Request(format!("`{}` is no HTTP method", posting.method)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &posting.headers {
            let value = sensitive(value.expose())
                .ok_or_else(|| NodeError::Request(format!("the value of the header `{name}` cannot be sent")))?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| NodeError::Request(format!("`{name}` is not the name of a header")))?;
            headers.insert(name, value);
        }
        let base = url.clone();
        let client = NodeClient {
            outbound: Outbound::new(&OutboundSettings::default()).map_err(NodeError::Client)?,
            base,
            authorization: None,
        };
        let request = Request { method, url, headers, body: Bytes::from(posting.body), reach: AddressScope::Anywhere };
        let answer = client.go(request).await?;
        let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Ok(NodeResponse {
            status: answer.status,
            headers: answer.headers.iter().map(|(name, value)| (name.as_str().to_owned(), shown(value))).collect(),
            body: answer.body.to_vec(),
        })
    }

    async fn go(&self, request: Request) -> Result<HttpResponse, NodeError> {
        let url = request.url.origin().ascii_serialization();
        self.outbound
            .send(request, deadline([TIMEOUT]))
            .await
            .map_err(|fault| NodeError::Unreachable { url, reason: fault.into_failure().message })
    }
}

fn address(text: &str) -> Result<Url, NodeError> {
    let problem = |reason: &str| NodeError::Address { url: text.to_owned(), reason: reason.to_owned() };
    let url = Url::parse(text.trim()).map_err(|error| problem(&format!("{error}; write http://HOST:PORT")))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(problem("write http://HOST:PORT or https://HOST")),
    }
}

fn describe(answer: &HttpResponse) -> String {
    let what = if answer.cut { "an answer that is too long" } else { "an answer that is not JSON" };
    match text::excerpt(&answer.body) {
        empty if empty.is_empty() => format!("status {}, no body", answer.status),
        excerpt => format!("status {}, {what}: {excerpt}", answer.status),
    }
}
