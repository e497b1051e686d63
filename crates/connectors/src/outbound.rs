//! The one way out: every HTTP request of Sluice goes through [`Outbound::send`], which limits time,
//! size, addresses and redirects, and says exactly how far a failed request got.
//!
//! Only HTTP/1.1 is spoken. There a request and its answer own their connection, so it can be said
//! whether a byte of the request may have left; see [`connection`].

mod address;
mod connection;
mod counting_stream;
mod dialer;
mod pool;
pub(crate) mod retry_after;

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Method;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
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
use pool::{Origin, Pool};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("sluice/", env!("CARGO_PKG_VERSION")));

/// Limits on everything that leaves.
#[derive(Clone, Debug)]
pub struct OutboundSettings {
    /// How long a connection may take to stand, TLS included.
    pub connect_timeout: Duration,
    /// How long a connection is kept for the next call. Kept below the five seconds after which
    /// common servers hang up: a request that crosses their goodbye has an unknown outcome.
    pub idle_timeout: Duration,
    /// Kept connections for each host, at the most.
    pub idle_per_host_max: usize,
    /// How much of an answer's body is read.
    pub answer_bytes_max: usize,
    /// How many headers an answer may have.
    pub answer_headers_max: usize,
}

impl Default for OutboundSettings {
    fn default() -> OutboundSettings {
        OutboundSettings {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            idle_per_host_max: 128,
            answer_bytes_max: 256 * 1024,
            answer_headers_max: 100,
        }
    }
}

/// A request, ready to go.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) reach: AddressScope,
}

/// A whole answer; its body may have been cut at the limit.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) cut: bool,
}

impl HttpResponse {
    /// How long the destination asks to wait.
    pub(crate) fn retry_after(&self, now: Time) -> Option<Duration> {
        retry_after::parse(self.headers.get(RETRY_AFTER)?.to_str().ok()?, now)
    }
}

/// How far a request got that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// Not a byte has left, and the address is one that will never do.
    Refused,
    /// Not a byte has left.
    NotSent,
    /// It may have arrived.
    Sent,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendError {
    pub(crate) boundary: SendProgress,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl SendError {
    fn new(boundary: SendProgress, code: &'static str, message: String) -> SendError {
        SendError { boundary, code, message }
    }

    /// The same as a failure.
    pub(crate) fn into_failure(self) -> Failure {
        let class = match self.boundary {
            SendProgress::Refused => FailureClass::Permanent,
            SendProgress::NotSent | SendProgress::Sent => FailureClass::Retryable,
        };
        Failure::new(class, self.code, self.message)
    }

    /// What an effect comes to whose request ended like this.
    pub(crate) fn into_outcome(self) -> Outcome {
        match self.boundary {
            SendProgress::Refused => Outcome::Reject { failure: self.into_failure() },
            SendProgress::NotSent => Outcome::Retry { failure: self.into_failure(), after: None },
            SendProgress::Sent => Outcome::Unsure { failure: self.into_failure() },
        }
    }
}

/// The way out, built once. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    door: Dialer,
    pool: Pool,
    answer_bytes_max: usize,
}

impl Outbound {
    /// Fails when the TLS of this machine cannot be set up.
    pub(crate) fn new(settings: &OutboundSettings) -> Result<Outbound, String> {
        let tls = Tls::new(None)?.speaking(b"http/1.1");
        Ok(Outbound {
            door: Dialer::new(tls, settings.connect_timeout, settings.answer_headers_max),
            pool: Pool::new(settings.idle_timeout, settings.idle_per_host_max),
            answer_bytes_max: settings.answer_bytes_max,
        })
    }

    /// Sends once and reads the answer, all before the deadline.
    pub(crate) async fn send(&self, request: Request, deadline: Instant) -> Result<HttpResponse, SendError> {
        let started = Instant::now();
        let origin = origin(&request);
        let host = &*origin.host;
        let answered = self.answered(request, &origin, deadline, started).await;
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &answered {
            Ok(answer) => tracing::debug!(host, status = answer.status, elapsed_ms, "answered"),
            Err(fault) => tracing::debug!(host, code = fault.code, elapsed_ms, "no answer"),
        }
        answered
    }

    async fn answered(
        &self,
        request: Request,
        origin: &Origin,
        deadline: Instant,
        started: Instant,
    ) -> Result<HttpResponse, SendError> {
        let host = &origin.host;
        if let Some(refused) = refused_literal(request.reach, host) {
            return Err(address_refused(host, &refused));
        }
        let uri = authority(&request.url);
        let outgoing = outgoing(request).map_err(|error| invalid(host, &error))?;
        let mut connection = match self.pool.take(origin) {
            Some(connection) => connection,
            None => match timeout_at(deadline, self.door.open(origin, &uri)).await {
                Ok(opened) => opened.map_err(|closed| not_opened(host, closed))?,
                Err(_) => return Err(no_connection(host, started)),
            },
        };
        let answered = match timeout_at(deadline, connection.send(outgoing)).await {
            Ok(answered) => answered.map_err(|error| unanswered(host, &connection, &error))?,
            Err(_) if connection.is_untouched() => return Err(no_connection(host, started)),
            Err(_) => return Err(too_slow(host, started)),
        };
        let (head, body) = answered.into_parts();
        let (body, complete) = match timeout_at(deadline, connection.read(body, self.answer_bytes_max)).await {
            Ok(read) => read.map_err(|error| cut_off(host, &error))?,
            Err(_) => return Err(too_slow(host, started)),
        };
        // What is left of an answer that was cut would be taken for the next one.
        if complete {
            self.pool.give_back(origin, connection);
        }
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body, cut: !complete })
    }
}

fn origin(request: &Request) -> Origin {
    let host = request.url.host_str().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Origin {
        https: request.url.scheme() == "https",
        host: Box::from(host),
        port: request.url.port_or_known_default().unwrap_or_default(),
        reach: request.reach,
    }
}

/// Scheme, host and port.
fn authority(url: &Url) -> String {
    url[..Position::BeforePath].to_owned()
}

/// The request as it goes over the connection.
fn outgoing(request: Request) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let Request { method, url, mut headers, body, .. } = request;
    headers.insert(HOST, HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])?);
    headers.entry(USER_AGENT).or_insert(AGENT);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let mut outgoing = hyper::Request::new(Full::new(body));
    *outgoing.method_mut() = method;
    *outgoing.uri_mut() = hyper::Uri::try_from(&url[Position::BeforePath..Position::AfterQuery])?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// A header value that is masked wherever a request is shown.
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
            "{host} was not called: {refused}. Name the host in the destination's base_url, or set allow_private_addresses, if this is meant."
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
        format!("{host} gave no whole answer within {waited}; the request may have arrived."),
    )
}

fn no_connection(host: &str, started: Instant) -> SendError {
    let waited = format_duration(rounded(started.elapsed()));
    SendError::new(
        SendProgress::NotSent,
        "connect",
        format!("No connection to {host} within {waited}; nothing was sent."),
    )
}

fn invalid(host: &str, error: &hyper::http::Error) -> SendError {
    SendError::new(
        SendProgress::Refused,
        "invalid-request",
        format!("The request to {host} is not valid HTTP: {error}."),
    )
}

/// Sorts what kept a connection from standing.
fn not_opened(host: &str, closed: ConnectError) -> SendError {
    let (code, message) = match closed {
        ConnectError::Refused(refused) => return address_refused(host, &refused),
        ConnectError::Unknown(reason) => ("dns", format!("The name {host} could not be resolved: {reason}.")),
        ConnectError::Slow => ("connect", format!("{host} took too long to accept a connection; nothing was sent.")),
        ConnectError::Network(reason) => ("connect", format!("No connection to {host}: {reason}. Nothing was sent.")),
        ConnectError::Tls(reason) => ("tls", format!("No TLS connection to {host}: {reason}. Nothing was sent.")),
    };
    SendError::new(SendProgress::NotSent, code, message)
}

/// Sorts an error that came instead of an answer's head.
fn unanswered(host: &str, connection: &Connection, error: &hyper::Error) -> SendError {
    let reason = innermost(error);
    if connection.is_untouched() {
        let message = format!("The connection to {host} closed before anything was sent: {reason}.");
        return SendError::new(SendProgress::NotSent, "connect", message);
    }
    if error.is_parse_too_large() {
        let message = format!("The headers that {host} answered are too large; the request may have been applied.");
        return SendError::new(SendProgress::Sent, "too-large", message);
    }
    if error.is_parse() {
        let message = format!("{host} did not answer in HTTP: {reason}. The request may have been applied.");
        return SendError::new(SendProgress::Sent, "protocol", message);
    }
    let message =
        format!("{host} closed the connection without an answer: {reason}. The request may have been applied.");
    SendError::new(SendProgress::Sent, "reset", message)
}

/// Sorts an error in the middle of an answer's body.
fn cut_off(host: &str, error: &hyper::Error) -> SendError {
    let reason = innermost(error);
    SendError::new(
        SendProgress::Sent,
        "truncated",
        format!("The answer of {host} broke off: {reason}. The request may have been applied."),
    )
}

/// What it came down to.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.last().map_or_else(|| "unknown reason".to_owned(), ToString::to_string)
}
