//! HTTP client of every connector. [`Outbound::send`] enforces time, size, address and redirect limits,
//! and reports whether a failed request may have reached the destination.
//!
//! HTTP/1.1 only: a request and its response own their connection, so the bytes written on it tell
//! whether any part of the request may have been sent; see [`connection`].

mod address;
mod connection;
mod counting_stream;
mod dialer;
mod h2;
mod pool;
mod proxy;
pub(crate) mod retry_after;

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT};
use hyper::{Method, StatusCode};
use sluice_domain::call_budget::{BUDGET_EXHAUSTED, CallMeter};
use sluice_domain::destination::HttpChannel;
use sluice_domain::outcome::{Failure, FailureClass, Outcome};
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use tokio::time::{Instant, timeout_at};
use url::{Position, Url};

use crate::tls::Tls;
pub(crate) use address::AddressScope;
use address::{AddressRefused, refused_literal};
use connection::Connection;
use dialer::{ConnectError, Dialer};
pub(crate) use h2::H2Connector;
use pool::{Origin, Pool};
use proxy::Proxy;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("sluice/", env!("CARGO_PKG_VERSION")));

/// Limits of every outgoing request.
#[derive(Clone, Debug)]
pub struct OutboundSettings {
    /// Time limit for DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// How long an idle connection is pooled. Below the five seconds after which common servers close
    /// idle connections: a request that crosses their close has an unknown outcome.
    pub idle_timeout: Duration,
    /// Maximum pooled connections per origin.
    pub idle_per_host_max: usize,
    /// Maximum bytes read of a response body.
    pub response_bytes_max: usize,
    /// Maximum number of response headers.
    pub response_headers_max: usize,
}

impl Default for OutboundSettings {
    fn default() -> OutboundSettings {
        OutboundSettings {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            idle_per_host_max: 128,
            response_bytes_max: 256 * 1024,
            response_headers_max: 100,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) scope: AddressScope,
}

/// Response of a destination. `truncated`: the body exceeded the size limit.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

impl HttpResponse {
    /// Wait requested by the destination.
    pub(crate) fn retry_after(&self, now: Time) -> Option<Duration> {
        retry_after::parse(self.headers.get(RETRY_AFTER)?.to_str().ok()?, now)
    }
}

/// How far a request without a response got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// Nothing was sent, and the address is not allowed.
    Refused,
    /// Nothing was sent.
    NotSent,
    /// The request may have arrived.
    Sent,
}

/// A request that got no complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendError {
    pub(crate) progress: SendProgress,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl SendError {
    fn new(progress: SendProgress, code: &'static str, message: String) -> SendError {
        SendError { progress, code, message }
    }

    pub(crate) fn into_failure(self) -> Failure {
        let class = match self.progress {
            SendProgress::Refused => FailureClass::Permanent,
            SendProgress::NotSent | SendProgress::Sent => FailureClass::Retryable,
        };
        Failure::new(class, self.code, self.message)
    }

    /// Outcome of an effect whose request failed this way.
    pub(crate) fn into_outcome(self) -> Outcome {
        match self.progress {
            SendProgress::Refused => Outcome::Reject { failure: self.into_failure() },
            SendProgress::NotSent => Outcome::Retry { failure: self.into_failure(), after: None },
            SendProgress::Sent => Outcome::Unsure { failure: self.into_failure() },
        }
    }
}

/// Cheap to clone; clones share the connection pool.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    dialer: Dialer,
    proxy: Option<Arc<Proxy>>,
    pool: Pool,
    response_bytes_max: usize,
    meter: Option<CallMeter>,
}

impl Outbound {
    /// Fails if TLS cannot be configured on this machine.
    pub(crate) fn new(settings: &OutboundSettings) -> Result<Outbound, String> {
        Ok(Outbound::over(Tls::new(None)?, None, settings))
    }

    /// A client of its own for a destination whose connections differ. The error names the invalid key.
    pub(crate) fn through(channel: &HttpChannel, settings: &OutboundSettings) -> Result<Outbound, String> {
        let ca_certificate = channel.ca_certificate.as_ref().map(|pem| pem.expose());
        let client = channel.client_certificate.as_ref().map(|(chain, key)| (chain.expose(), key.expose()));
        let tls = Tls::with_client(ca_certificate, client).map_err(|problem| match problem.starts_with("client_") {
            true => problem,
            false => format!("ca_certificate: {problem}"),
        })?;
        let proxy = channel.proxy.as_ref().map(Proxy::new).transpose()?;
        Ok(Outbound::over(tls, proxy.map(Arc::new), settings))
    }

    fn over(tls: Tls, proxy: Option<Arc<Proxy>>, settings: &OutboundSettings) -> Outbound {
        let tls = tls.with_alpn(b"http/1.1");
        Outbound {
            dialer: Dialer::new(tls, proxy.clone(), settings.connect_timeout, settings.response_headers_max),
            proxy,
            pool: Pool::new(settings.idle_timeout, settings.idle_per_host_max),
            response_bytes_max: settings.response_bytes_max,
            meter: None,
        }
    }

    /// The same, with every request counted.
    pub(crate) fn metered(&self, meter: CallMeter) -> Outbound {
        Outbound { meter: Some(meter), ..self.clone() }
    }

    /// The same, with every request counted as those of `other` are.
    pub(crate) fn metered_as(&self, other: &Outbound) -> Outbound {
        Outbound { meter: other.meter.clone(), ..self.clone() }
    }

    /// Counts a call before it is made.
    pub(crate) fn count(&self) -> Result<(), Failure> {
        self.meter.as_ref().map_or(Ok(()), CallMeter::count)
    }

    /// Sends the request once and reads the response before the deadline.
    pub(crate) async fn send(&self, request: Request, deadline: Instant) -> Result<HttpResponse, SendError> {
        self.count().map_err(|failure| SendError::new(SendProgress::NotSent, BUDGET_EXHAUSTED, failure.message))?;
        let started = Instant::now();
        let origin = origin(&request);
        let host = &*origin.host;
        let result = self.exchange(request, &origin, deadline, started).await;
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &result {
            Ok(response) => tracing::debug!(host, status = response.status, elapsed_ms, "response received"),
            Err(error) => tracing::debug!(host, code = error.code, elapsed_ms, "request failed"),
        }
        result
    }

    /// Sends the request once and passes the body of a successful response on, part by part, however long it is. Between two parts
    /// at most `idle` passes. Stops early if `part` says so. Other responses are read whole.
    pub(crate) async fn download(
        &self,
        request: Request,
        idle: Duration,
        mut part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<HttpResponse>, SendError> {
        let started = Instant::now();
        let origin = origin(&request);
        let (mut connection, response) = self.response(request, &origin, started + idle, started).await?;
        let (head, mut body) = response.into_parts();
        let host = &origin.host;
        if !head.status.is_success() {
            let reading = connection.read(body, self.response_bytes_max);
            let read = timeout_at(Instant::now() + idle, reading).await.map_err(|_| too_slow(host, started))?;
            let (body, complete) = read.map_err(|error| body_interrupted(host, &error))?;
            let (status, headers) = (head.status.as_u16(), head.headers);
            return Ok(Some(HttpResponse { status, headers, body, truncated: !complete }));
        }
        loop {
            let next = timeout_at(Instant::now() + idle, connection.next(&mut body)).await;
            match next.map_err(|_| too_slow(host, started))?.transpose() {
                Ok(Some(bytes)) if part(&bytes).is_continue() => {}
                Ok(Some(_)) => return Ok(None),
                Ok(None) => {
                    self.pool.put(&origin, connection);
                    return Ok(None);
                }
                Err(error) => return Err(body_interrupted(host, &error)),
            }
        }
    }

    async fn exchange(
        &self,
        request: Request,
        origin: &Origin,
        deadline: Instant,
        started: Instant,
    ) -> Result<HttpResponse, SendError> {
        let host = &origin.host;
        let (mut connection, response) = self.response(request, origin, deadline, started).await?;
        let (head, body) = response.into_parts();
        let (body, complete) = match timeout_at(deadline, connection.read(body, self.response_bytes_max)).await {
            Ok(read) => read.map_err(|error| body_interrupted(host, &error))?,
            Err(_) => return Err(too_slow(host, started)),
        };
        // The unread rest of a truncated body would be parsed as the next response.
        if complete {
            self.pool.put(origin, connection);
        }
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body, truncated: !complete })
    }

    /// Sends the request and receives the head of the response.
    async fn response(
        &self,
        request: Request,
        origin: &Origin,
        deadline: Instant,
        started: Instant,
    ) -> Result<(Connection, hyper::Response<Incoming>), SendError> {
        let host = &origin.host;
        if let Some(refused) = refused_literal(request.scope, host) {
            return Err(address_refused(host, &refused));
        }
        let uri = authority(&request.url);
        let proxy = self.proxy.as_deref().filter(|_| !origin.https);
        let outgoing = outgoing(request, proxy).map_err(|error| invalid(host, &error))?;
        let mut connection = match self.pool.take(origin) {
            Some(connection) => connection,
            None => match timeout_at(deadline, self.dialer.open(origin, &uri)).await {
                Ok(opened) => opened.map_err(|error| not_opened(host, error))?,
                Err(_) => return Err(no_connection(host, started)),
            },
        };
        let response = match timeout_at(deadline, connection.send(outgoing)).await {
            Ok(response) => response.map_err(|error| no_response(host, &connection, &error))?,
            Err(_) if connection.nothing_sent() => return Err(no_connection(host, started)),
            Err(_) => return Err(too_slow(host, started)),
        };
        // Only a proxy answers with this status, and it has forwarded nothing.
        match proxy.filter(|_| response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED) {
            Some(proxy) => Err(not_opened(host, ConnectError::Proxy(proxy.refuses_credentials()))),
            None => Ok((connection, response)),
        }
    }
}

fn origin(request: &Request) -> Origin {
    let host = request.url.host_str().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Origin {
        https: request.url.scheme() == "https",
        host: Box::from(host),
        port: request.url.port_or_known_default().unwrap_or_default(),
        scope: request.scope,
    }
}

/// Scheme, host and port of the URL.
fn authority(url: &Url) -> String {
    url[..Position::BeforePath].to_owned()
}

/// The request with the default headers: in origin form, or with the whole URL for a proxy that forwards it.
fn outgoing(request: Request, proxy: Option<&Proxy>) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let Request { method, url, mut headers, body, .. } = request;
    headers.insert(HOST, HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])?);
    headers.entry(USER_AGENT).or_insert(AGENT);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let mut outgoing = hyper::Request::new(Full::new(body));
    *outgoing.method_mut() = method;
    let from = if proxy.is_some() { Position::BeforeScheme } else { Position::BeforePath };
    *outgoing.uri_mut() = hyper::Uri::try_from(&url[from..Position::AfterQuery])?;
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.clone()) {
        headers.insert(PROXY_AUTHORIZATION, authorization);
    }
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// Header value that previews and logs mask. `None` if the text is not a valid header value.
pub(crate) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn address_refused(host: &str, refused: &AddressRefused) -> SendError {
    SendError::new(
        SendProgress::Refused,
        "address-refused",
        format!(
            "{host} was not called: {refused}. If this is intended, set the destination's base_url to this host or set allow_private_addresses."
        ),
    )
}

fn rounded(elapsed: Duration) -> Duration {
    Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

fn too_slow(host: &str, started: Instant) -> SendError {
    let waited = format_duration(rounded(started.elapsed()));
    SendError::new(
        SendProgress::Sent,
        "timeout",
        format!("No complete response from {host} within {waited}. The request may have arrived."),
    )
}

fn no_connection(host: &str, started: Instant) -> SendError {
    let waited = format_duration(rounded(started.elapsed()));
    SendError::new(
        SendProgress::NotSent,
        "connect",
        format!("No connection to {host} within {waited}. Nothing was sent."),
    )
}

fn invalid(host: &str, error: &hyper::http::Error) -> SendError {
    SendError::new(
        SendProgress::Refused,
        "invalid-request",
        format!("The request to {host} is not valid HTTP: {error}."),
    )
}

fn not_opened(host: &str, error: ConnectError) -> SendError {
    let (code, message) = match error {
        ConnectError::Refused(refused) => return address_refused(host, &refused),
        ConnectError::Unknown(reason) => {
            ("dns", format!("Cannot resolve host name {host}: {reason}. Nothing was sent."))
        }
        ConnectError::Slow => ("connect", format!("{host} did not accept a connection in time. Nothing was sent.")),
        ConnectError::Network(reason) => ("connect", format!("No connection to {host}: {reason}. Nothing was sent.")),
        ConnectError::Proxy(reason) => ("proxy", format!("No connection to {host}: {reason}. Nothing was sent.")),
        ConnectError::Tls(reason) => ("tls", format!("No TLS connection to {host}: {reason}. Nothing was sent.")),
    };
    SendError::new(SendProgress::NotSent, code, message)
}

/// Classifies an error received instead of a response head.
fn no_response(host: &str, connection: &Connection, error: &hyper::Error) -> SendError {
    let reason = root_cause(error);
    if connection.nothing_sent() {
        let message = format!("The connection to {host} closed before anything was sent: {reason}.");
        return SendError::new(SendProgress::NotSent, "connect", message);
    }
    if error.is_parse_too_large() {
        let message = format!("The response headers of {host} are too large. The request may have been applied.");
        return SendError::new(SendProgress::Sent, "too-large", message);
    }
    if error.is_parse() {
        let message = format!("The response of {host} is not HTTP: {reason}. The request may have been applied.");
        return SendError::new(SendProgress::Sent, "protocol", message);
    }
    let message =
        format!("{host} closed the connection without a response: {reason}. The request may have been applied.");
    SendError::new(SendProgress::Sent, "reset", message)
}

/// Classifies an error in the middle of a response body.
fn body_interrupted(host: &str, error: &hyper::Error) -> SendError {
    let reason = root_cause(error);
    SendError::new(
        SendProgress::Sent,
        "truncated",
        format!("The response of {host} ended early: {reason}. The request may have been applied."),
    )
}

/// Message of the root cause.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.last().map_or_else(|| "unknown reason".to_owned(), ToString::to_string)
}
