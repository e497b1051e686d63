//! HTTP client for the admin API and the intake of a node; used by the command line.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use sluice_domain::verify::SecretValue;
use url::Url;

use crate::outbound::{AddressScope, HttpResponse, Outbound, OutboundSettings, Request, sensitive};
use crate::{deadline, text};

/// Time limit of one request.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two parts of a download.
const DOWNLOAD_IDLE_MAX: Duration = Duration::from_secs(60);
/// Largest response that is read; many times the longest list page.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("`{url}` is not a node address: {reason}")]
    Address { url: String, reason: String },
    /// The method, path, header or token given by the caller is invalid.
    #[error("{0}")]
    Request(String),
    /// The HTTP client cannot be built, for example because the system has no TLS roots.
    #[error("cannot build the HTTP client: {0}")]
    Client(String),
    /// No response was received.
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The node responded with an error status.
    #[error("{detail}")]
    Refused {
        status: u16,
        /// Stable problem code; empty if the response is not a problem document.
        code: String,
        detail: String,
    },
    /// The response is not that of a Sluice node.
    #[error("{url} is not a Sluice node: {reason}")]
    NotANode { url: String, reason: String },
}

/// HTTP response with any status.
#[derive(Clone, Debug)]
pub struct NodeResponse {
    pub status: u16,
    /// Lower-case names and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl NodeResponse {
    /// First value of a header; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A download from the API.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// JSON body; `None` for a GET.
    pub body: Option<&'a Value>,
    /// Media type of the response.
    pub accept: &'static str,
}

/// HTTP request to any URL. `Debug` omits URL and headers: they may hold credentials.
pub struct RawRequest<'a> {
    /// In upper case.
    pub method: &'a str,
    /// Absolute URL; the query may hold a credential.
    pub url: &'a str,
    /// In addition to the default headers.
    pub headers: Vec<(String, SecretValue)>,
    pub body: Vec<u8>,
}

impl fmt::Debug for RawRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRequest")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Client of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeClient {
    outbound: Outbound,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl NodeClient {
    /// `url` is the address of the node's admin listener.
    pub fn new(url: &str, token: Option<&SecretValue>) -> Result<NodeClient, NodeError> {
        let base = address(url)?;
        let authorization = match token {
            None => None,
            Some(token) => Some(sensitive(&format!("Bearer {}", token.expose())).ok_or_else(|| {
                NodeError::Request("the admin token has a character that is not allowed in an HTTP header".into())
            })?),
        };
        let settings = OutboundSettings { response_bytes_max: RESPONSE_BYTES_MAX, ..OutboundSettings::default() };
        Ok(NodeClient { outbound: Outbound::new(&settings).map_err(NodeError::Client)?, base, authorization })
    }

    /// Base URL without a trailing slash.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Sends a GET request. `path` starts with a slash.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, NodeError> {
        let mut url = self.at(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.request_json(Method::GET, url, Bytes::new()).await
    }

    /// Sends a POST request with a JSON body. `path` starts with a slash.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, NodeError> {
        let url = self.at(path)?;
        self.request_json(Method::POST, url, Bytes::from(body.to_string())).await
    }

    /// Sends a request and passes the body of a successful response on, part by part. `path` starts with a slash; a request
    /// without a body is a GET. `part` may end it early.
    pub async fn download(
        &self,
        path: &str,
        query: &[(&str, String)],
        order: Download<'_>,
        part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), NodeError> {
        let mut url = self.at(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let (method, body) = match order.body {
            Some(body) => (Method::POST, Bytes::from(body.to_string())),
            None => (Method::GET, Bytes::new()),
        };
        let mut headers = self.headers(!body.is_empty());
        headers.insert(ACCEPT, HeaderValue::from_static(order.accept));
        let origin = url.origin().ascii_serialization();
        let request = Request { method, url, headers, body, scope: AddressScope::Anywhere };
        let refused = self.outbound.download(request, DOWNLOAD_IDLE_MAX, part).await;
        match refused.map_err(|error| NodeError::Unreachable { url: origin, reason: error.into_failure().message })? {
            Some(response) => self.json_of(&response).map(drop),
            None => Ok(()),
        }
    }

    fn headers(&self, has_body: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers
    }

    fn at(&self, path: &str) -> Result<Url, NodeError> {
        let text = format!("{}{path}", self.url());
        Url::parse(&text).map_err(|error| NodeError::Request(format!("invalid path `{path}`: {error}")))
    }

    async fn request_json(&self, method: Method, url: Url, body: Bytes) -> Result<Value, NodeError> {
        let headers = self.headers(!body.is_empty());
        let request = Request { method, url, headers, body, scope: AddressScope::Anywhere };
        let response = self.send_request(request).await?;
        self.json_of(&response)
    }

    fn json_of(&self, response: &HttpResponse) -> Result<Value, NodeError> {
        let json: Option<Value> = serde_json::from_slice(&response.body).ok();
        match json {
            Some(json) if (200..300).contains(&response.status) && !response.truncated => Ok(json),
            Some(json) if !(200..300).contains(&response.status) => {
                let member = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let detail = match member("detail") {
                    empty if empty.is_empty() => format!("the node responded with status {}", response.status),
                    detail => detail,
                };
                Err(NodeError::Refused { status: response.status, code: member("code"), detail })
            }
            _ => Err(NodeError::NotANode { url: self.url().to_owned(), reason: describe(response) }),
        }
    }

    /// Sends a request to any URL, without the node's token, and returns the response whatever its status.
    pub async fn send(request: RawRequest<'_>) -> Result<NodeResponse, NodeError> {
        let url = address(request.url)?;
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| NodeError::Request(format!("`{}` is not an HTTP method", request.method)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let value = sensitive(value.expose()).ok_or_else(|| {
                NodeError::Request(format!("the value of header `{name}` has a character that is not allowed"))
            })?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| NodeError::Request(format!("`{name}` is not a valid header name")))?;
            headers.insert(name, value);
        }
        let base = url.clone();
        let client = NodeClient {
            outbound: Outbound::new(&OutboundSettings::default()).map_err(NodeError::Client)?,
            base,
            authorization: None,
        };
        let request = Request { method, url, headers, body: Bytes::from(request.body), scope: AddressScope::Anywhere };
        let response = client.send_request(request).await?;
        let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Ok(NodeResponse {
            status: response.status,
            headers: response.headers.iter().map(|(name, value)| (name.as_str().to_owned(), shown(value))).collect(),
            body: response.body.to_vec(),
        })
    }

    async fn send_request(&self, request: Request) -> Result<HttpResponse, NodeError> {
        let url = request.url.origin().ascii_serialization();
        self.outbound
            .send(request, deadline([TIMEOUT]))
            .await
            .map_err(|error| NodeError::Unreachable { url, reason: error.into_failure().message })
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

fn describe(response: &HttpResponse) -> String {
    let what = if response.truncated { "the response is too long" } else { "the response is not JSON" };
    match text::excerpt(&response.body) {
        empty if empty.is_empty() => format!("status {}, empty body", response.status),
        excerpt => format!("status {}, {what}: {excerpt}", response.status),
    }
}
