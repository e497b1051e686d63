//! The one way out: every HTTP request of Sluice goes through [`Outbound::send`], which limits time,
//! size, addresses and redirects, and says exactly how far a failed request got.
//!
//! Only HTTP/1.1 is spoken. There a request and its answer own their connection, so it can be said
//! whether a byte of the request may have left; see [`held`].

mod address;
mod held;
pub(crate) mod retry_after;

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Url};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use tokio::time::{Instant, timeout_at};

pub(crate) use address::Reach;
use address::{AddressRefused, Resolver, refused_literal};
use held::Hold;

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
    pub(crate) reach: Reach,
}

/// A whole answer; its body may have been cut at the limit.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) cut: bool,
}

impl Answer {
    /// How long the destination asks to wait.
    pub(crate) fn retry_after(&self, now: Time) -> Option<Duration> {
        retry_after::parse(self.headers.get(RETRY_AFTER)?.to_str().ok()?, now)
    }
}

/// How far a request got that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// Not a byte has left, and the address is one that will never do.
    Refused,
    /// Not a byte has left.
    NotSent,
    /// It may have arrived.
    Sent,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) boundary: Boundary,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Fault {
    fn new(boundary: Boundary, code: &'static str, message: String) -> Fault {
        Fault { boundary, code, message }
    }

    /// The same as a failure.
    pub(crate) fn into_failure(self) -> Failure {
        let class = match self.boundary {
            Boundary::Refused => FailureClass::Permanent,
            Boundary::NotSent | Boundary::Sent => FailureClass::Retryable,
        };
        Failure::new(class, self.code, self.message)
    }

    /// What an effect comes to whose request ended like this.
    pub(crate) fn into_outcome(self) -> Outcome {
        match self.boundary {
            Boundary::Refused => Outcome::Reject { failure: self.into_failure() },
            Boundary::NotSent => Outcome::Retry { failure: self.into_failure(), after: None },
            Boundary::Sent => Outcome::Unsure { failure: self.into_failure() },
        }
    }
}

/// The clients, built once. There are two since connections are pooled: one that was opened to a
/// private address for an operator must not serve a URL that came out of an event.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    public: Client,
    anywhere: Client,
    answer_bytes_max: usize,
}

impl Outbound {
    /// Builds the clients. Fails when the TLS of this machine cannot be set up.
    pub(crate) fn new(settings: &OutboundSettings) -> Result<Outbound, reqwest::Error> {
        let client = |reach| {
            Client::builder()
                .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
                .http1_only()
                .http1_max_headers(settings.answer_headers_max)
                .retry(reqwest::retry::never())
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .connect_timeout(settings.connect_timeout)
                .pool_idle_timeout(settings.idle_timeout)
                .pool_max_idle_per_host(settings.idle_per_host_max)
                .dns_resolver(Resolver(reach))
                .build()
        };
        Ok(Outbound {
            public: client(Reach::Public)?,
            anywhere: client(Reach::Anywhere)?,
            answer_bytes_max: settings.answer_bytes_max,
        })
    }

    /// Sends once and reads the answer, all before the deadline.
    pub(crate) async fn send(&self, request: Request, deadline: Instant) -> Result<Answer, Fault> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let https = request.url.scheme() == "https";
        let client = match request.reach {
            Reach::Public => &self.public,
            Reach::Anywhere => &self.anywhere,
        };
        if let Some(refused) = refused_literal(request.reach, &host) {
            return Err(address_refused(&host, &refused));
        }

        let (body, hold) = Hold::on(request.body);
        let mut outgoing = reqwest::Request::new(request.method, request.url);
        *outgoing.headers_mut() = request.headers;
        *outgoing.body_mut() = body.map(reqwest::Body::wrap);

        let started = Instant::now();
        let answered = match timeout_at(deadline, client.execute(outgoing)).await {
            Ok(Ok(response)) => match timeout_at(deadline, self.read(response)).await {
                Ok(read) => read.map_err(|error| cut_off(&host, &error)),
                Err(_) => Err(too_slow(&host, started)),
            },
            Ok(Err(error)) => Err(unanswered(&host, https, &hold, &error)),
            Err(_) if hold.withdraw() => Err(Fault::new(
                Boundary::NotSent,
                "connect",
                format!(
                    "No connection to {host} within {}; nothing was sent.",
                    format_duration(rounded(started.elapsed()))
                ),
            )),
            Err(_) => Err(too_slow(&host, started)),
        };
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &answered {
            Ok(answer) => tracing::debug!(host, status = answer.status, elapsed_ms, "answered"),
            Err(fault) => tracing::debug!(host, code = fault.code, elapsed_ms, "no answer"),
        }
        answered
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Answer, reqwest::Error> {
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut cut = false;
        // Most answers come in one piece, which is kept without copying it.
        let mut body = response.chunk().await?.unwrap_or_default();
        if body.len() <= self.answer_bytes_max
            && let Some(second) = response.chunk().await?
        {
            let mut whole = BytesMut::from(body);
            whole.extend_from_slice(&second);
            while whole.len() <= self.answer_bytes_max
                && let Some(next) = response.chunk().await?
            {
                whole.extend_from_slice(&next);
            }
            body = whole.freeze();
        }
        if body.len() > self.answer_bytes_max {
            body.truncate(self.answer_bytes_max);
            cut = true;
        }
        Ok(Answer { status, headers, body, cut })
    }
}

/// A header value that is masked wherever a request is shown.
pub(crate) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn address_refused(host: &str, refused: &AddressRefused) -> Fault {
    Fault::new(
        Boundary::Refused,
        "address-refused",
        format!(
            "{host} was not called: {refused}. Name the host in the destination's base_url, or set allow_private_addresses, if this is meant."
        ),
    )
}

fn rounded(elapsed: Duration) -> Duration {
    Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

fn too_slow(host: &str, started: Instant) -> Fault {
    let waited = format_duration(rounded(started.elapsed()));
    Fault::new(
        Boundary::Sent,
        "timeout",
        format!("{host} gave no whole answer within {waited}; the request may have arrived."),
    )
}

/// Sorts an error that came instead of an answer's head.
fn unanswered(host: &str, https: bool, hold: &Hold, error: &reqwest::Error) -> Fault {
    let reason = innermost(error);
    if let Some(refused) = find::<AddressRefused>(error) {
        return address_refused(host, refused);
    }
    if error.is_dns() {
        let message = format!("The name {host} could not be resolved: {reason}.");
        return Fault::new(Boundary::NotSent, "dns", message);
    }
    if error.is_connect() {
        return if error.is_timeout() {
            let message = format!("{host} took too long to accept a connection; nothing was sent.");
            Fault::new(Boundary::NotSent, "connect", message)
        } else if https && !find::<io::Error>(error).is_some_and(|error| is_network(error.kind())) {
            let message = format!("No TLS connection to {host}: {reason}. Nothing was sent.");
            Fault::new(Boundary::NotSent, "tls", message)
        } else {
            let message = format!("No connection to {host}: {reason}. Nothing was sent.");
            Fault::new(Boundary::NotSent, "connect", message)
        };
    }
    if error.is_builder() {
        let message = format!("The request to {host} is not valid HTTP: {reason}.");
        return Fault::new(Boundary::Refused, "invalid-request", message);
    }
    if hold.withdraw() {
        let message = format!("The connection to {host} closed before anything was sent: {reason}.");
        return Fault::new(Boundary::NotSent, "connect", message);
    }
    match find::<hyper::Error>(error) {
        Some(error) if error.is_parse_too_large() => Fault::new(
            Boundary::Sent,
            "too-large",
            format!("The headers that {host} answered are too large; the request may have been applied."),
        ),
        Some(error) if error.is_parse() => Fault::new(
            Boundary::Sent,
            "protocol",
            format!("{host} did not answer in HTTP: {reason}. The request may have been applied."),
        ),
        _ => Fault::new(
            Boundary::Sent,
            "reset",
            format!("{host} closed the connection without an answer: {reason}. The request may have been applied."),
        ),
    }
}

/// Sorts an error in the middle of an answer's body.
fn cut_off(host: &str, error: &reqwest::Error) -> Fault {
    let reason = innermost(error);
    Fault::new(
        Boundary::Sent,
        "truncated",
        format!("The answer of {host} broke off: {reason}. The request may have been applied."),
    )
}

/// Whether the network said this, rather than TLS on top of it.
fn is_network(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut,
    };
    matches!(kind, AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |error| (*error).source())
}

fn find<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// What it came down to. The outer layers add nothing but the URL, which may hold a secret.
fn innermost(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| "unknown reason".to_owned(), ToString::to_string)
}
