//! Reaches out: the only crate with clients of other systems.
//!
//! A step's effect becomes a [`Call`]; [`Connectors::call`] sends it once and tells as an
//! [`Outcome`] what came of it. It never repeats a request by itself, keeps no state but pooled
//! connections and tokens, and reads no clock but for its deadlines.

mod email;
#[doc(hidden)]
pub mod fuzz;
mod http;
pub mod node_client;
mod outbound;
mod parameter;
mod postgres;
mod salesforce;
mod script;
mod slack;
mod text;
mod tls;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::destination::{Destination, DestinationKind};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;
use tokio::time::Instant;

pub use outbound::OutboundSettings;
use outbound::{Outbound, Request};
pub use script::find_runtime;

/// One attempt at one effect.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// What to do.
    pub action: Action,
    /// Where, by its configured name. Empty means the unconfigured HTTP destination, as does `http`
    /// unless one is configured under that name.
    pub destination: &'a str,
    /// With what: the step's `with:`, rendered.
    pub with: &'a Value,
    /// Names the effect; the same in every attempt.
    pub effect_key: &'a str,
    /// The key of the message that the step works on, as its sender knows it. `None` where the effect's own must do.
    pub message_key: Option<&'a str>,
    /// Which attempt this is, from 1. Changes nothing in the request.
    pub attempt: u32,
    /// The W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
    /// What the attempt may take. The destination's own limit holds too.
    pub timeout: Duration,
    /// The time, for dates in `Retry-After`.
    pub now: Time,
}

/// What it carries is not shown: secrets and personal data are rendered into it.
impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("action", &self.action.name())
            .field("destination", &self.destination)
            .field("effect_key", &self.effect_key)
            .field("attempt", &self.attempt)
            .field("timeout", &self.timeout)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// What a call would send, with every secret masked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preview {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// Names and values, sorted by name.
    pub headers: Vec<(String, String)>,
    /// The body: JSON where it is JSON, else text, else null.
    pub body: Value,
}

/// Why the connectors cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildProblem {
    /// A destination whose settings cannot work.
    #[error("destination `{destination}`: {problem}")]
    Destination {
        /// Its name.
        destination: String,
        /// Which key is wrong, and how.
        problem: String,
    },
    /// The HTTP client cannot be built, for want of TLS roots for example.
    #[error("the HTTP client cannot be built: {0}")]
    Client(String),
}

/// Every configured destination, ready to be called. Cheap to clone; clones share connections and
/// tokens.
#[derive(Clone, Debug)]
pub struct Connectors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    outbound: Outbound,
    destinations: HashMap<String, PreparedDestination>,
    plain: PreparedDestination,
}

#[derive(Debug)]
struct PreparedDestination {
    connector: Connector,
    timeout: Duration,
}

#[derive(Debug)]
enum Connector {
    Http(Box<http::Target>),
    Salesforce(Box<salesforce::Target>),
    Postgres(Box<postgres::Target>),
    Email(Box<email::Target>),
    Script(Box<script::Target>),
    Slack(Box<slack::Target>),
}

impl PreparedDestination {
    fn new(destination: &Destination) -> Result<PreparedDestination, String> {
        let connector = match &destination.kind {
            DestinationKind::Http(settings) => Connector::Http(Box::new(http::Target::new(settings)?)),
            DestinationKind::Salesforce(settings) => {
                Connector::Salesforce(Box::new(salesforce::Target::new(settings)?))
            }
            DestinationKind::Postgres(settings) => {
                Connector::Postgres(Box::new(postgres::Target::new(settings, destination.gate.concurrency_max)?))
            }
            DestinationKind::Smtp(settings) => Connector::Email(Box::new(email::Target::new(settings)?)),
            DestinationKind::Script(settings) => Connector::Script(Box::new(script::Target::new(settings))),
            DestinationKind::Slack(settings) => Connector::Slack(Box::new(slack::Target::new(settings)?)),
        };
        Ok(PreparedDestination { connector, timeout: destination.timeout })
    }
}

/// A destination that can do what it is asked.
enum Route<'a> {
    Http(&'a http::Target, Duration),
    Salesforce(&'a salesforce::Target, Duration),
    Postgres(&'a postgres::Target, Duration),
    Email(&'a email::Target, Duration),
    Script(&'a script::Target, Duration),
    Slack(&'a slack::Target, Duration),
}

impl Connectors {
    /// Prepares every destination: parses its URLs and headers, and builds the shared clients.
    pub fn new<'a>(
        destinations: impl IntoIterator<Item = &'a Destination>,
        settings: &OutboundSettings,
    ) -> Result<Connectors, BuildProblem> {
        let destinations = destinations
            .into_iter()
            .map(|destination| match PreparedDestination::new(destination) {
                Ok(ready) => Ok((destination.name.clone(), ready)),
                Err(problem) => Err(BuildProblem::Destination { destination: destination.name.clone(), problem }),
            })
            .collect::<Result<_, _>>()?;
        let plain = PreparedDestination { connector: Connector::Http(Box::default()), timeout: Duration::MAX };
        Ok(Connectors(Arc::new(Inner {
            outbound: Outbound::new(settings).map_err(BuildProblem::Client)?,
            destinations,
            plain,
        })))
    }

    /// Sends the effect once and says what came of it. Dropping the future gives up on an attempt
    /// whose outcome is then unknown.
    pub async fn call(&self, call: Call<'_>) -> Outcome {
        let outbound = &self.0.outbound;
        match self.route(&call) {
            Ok(Route::Http(target, longest)) => http::call(outbound, target, longest, call).await,
            Ok(Route::Salesforce(target, longest)) => salesforce::call(outbound, target, longest, call).await,
            Ok(Route::Postgres(target, longest)) => postgres::call(target, longest, call).await,
            Ok(Route::Email(target, longest)) => email::call(target, longest, call).await,
            Ok(Route::Script(target, longest)) => script::call(target, longest, call).await,
            Ok(Route::Slack(target, longest)) => slack::call(outbound, target, longest, call).await,
            Err(failure) => Outcome::Reject { failure },
        }
    }

    /// Asks the destination whether the effect is there: by `verify:` for `http.request`, by the
    /// external id for `salesforce.upsert`, by its note for `postgres.upsert`, by its metadata for
    /// `slack.post`. Nobody can be asked about a mail or a script.
    pub async fn read_back(&self, call: Call<'_>) -> Readback {
        let outbound = &self.0.outbound;
        match self.route(&call) {
            Ok(Route::Http(target, longest)) => http::read_back(outbound, target, longest, call).await,
            Ok(Route::Salesforce(target, longest)) => salesforce::read_back(outbound, target, longest, call).await,
            Ok(Route::Postgres(target, longest)) => postgres::read_back(target, longest, call).await,
            Ok(Route::Email(..)) => email::read_back(),
            Ok(Route::Script(..)) => script::read_back(),
            Ok(Route::Slack(target, longest)) => slack::read_back(outbound, target, longest, call).await,
            Err(failure) => Readback::Unreadable(failure),
        }
    }

    /// What [`Connectors::call`] would send; where that is no HTTP, in the words of HTTP as far as
    /// they go. The destination's secrets are masked; those that were
    /// rendered into `with:` are only where a header's name gives them away, so for a preview they
    /// should be rendered masked.
    pub fn preview(&self, call: &Call<'_>) -> Result<Preview, Failure> {
        match self.route(call)? {
            Route::Http(target, _) => Ok(Preview::of(&http::prepare(target, call)?, text::exposed(&target.secrets))),
            Route::Salesforce(target, _) => {
                Ok(Preview::of(&salesforce::prepare(target, call)?, text::exposed(&target.secrets)))
            }
            Route::Postgres(target, _) => postgres::preview(target, call),
            Route::Email(target, _) => email::preview(target, call),
            Route::Script(target, _) => script::preview(target, call),
            Route::Slack(target, _) => Ok(Preview::of(&slack::prepare(target, call)?, text::exposed(&target.secrets))),
        }
    }

    fn route(&self, call: &Call<'_>) -> Result<Route<'_>, Failure> {
        let known = self.0.destinations.get(call.destination);
        let plain = || matches!(call.destination, "" | "http").then_some(&self.0.plain);
        let Some(ready) = known.or_else(plain) else {
            return Err(Failure::new(
                FailureClass::Mapping,
                "no-destination",
                format!("There is no destination `{}` in this configuration.", call.destination),
            ));
        };
        match (call.action, &ready.connector) {
            (Action::HttpRequest, Connector::Http(target)) => Ok(Route::Http(target, ready.timeout)),
            (Action::SalesforceUpsert, Connector::Salesforce(target)) => Ok(Route::Salesforce(target, ready.timeout)),
            (Action::PostgresUpsert, Connector::Postgres(target)) => Ok(Route::Postgres(target, ready.timeout)),
            (Action::EmailSend | Action::SendTemplate, Connector::Email(target)) => {
                Ok(Route::Email(target, ready.timeout))
            }
            (Action::Script, Connector::Script(target)) => Ok(Route::Script(target, ready.timeout)),
            (Action::SlackPost, Connector::Slack(target)) => Ok(Route::Slack(target, ready.timeout)),
            (action, _) => Err(Failure::new(
                FailureClass::Mapping,
                "wrong-destination",
                format!(
                    "{} needs a destination of type {}, which `{}` is not.",
                    action.name(),
                    action.spec().destination,
                    call.destination
                ),
            )),
        }
    }
}

impl Preview {
    fn of<'a>(request: &Request, secrets: impl Iterator<Item = &'a str> + Clone) -> Preview {
        let clean = |text: String| text::redact(text, secrets.clone());
        let mut headers: Vec<(String, String)> = request
            .headers
            .iter()
            .map(|(name, value)| {
                let shown = match value.to_str() {
                    Ok(text) if value.is_sensitive() => masked(text),
                    Ok(text) => clean(text.to_owned()),
                    Err(_) => text::MASK.to_owned(),
                };
                (name.as_str().to_owned(), shown)
            })
            .collect();
        headers.sort();
        let body = clean(String::from_utf8_lossy(&request.body).into_owned());
        let body = match serde_json::from_str(&body) {
            Ok(json) => json,
            Err(_) if body.is_empty() => Value::Null,
            Err(_) => body.into(),
        };
        Preview { method: request.method.to_string(), url: clean(request.url.to_string()), headers, body }
    }
}

/// A credential keeps its scheme (`Bearer ***`) and nothing else.
fn masked(text: &str) -> String {
    match text.split_once(' ') {
        Some((scheme @ ("Bearer" | "Basic"), _)) => format!("{scheme} {}", text::MASK),
        _ => text::MASK.to_owned(),
    }
}

/// The moment at which the shortest of these is over.
fn deadline<const N: usize>(limits: [Duration; N]) -> Instant {
    // Far enough for any call, near enough for a clock to count to.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    Instant::now() + limits.into_iter().fold(LONGEST, Duration::min)
}
