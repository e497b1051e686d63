//! Connectors: the only crate with clients of other systems.
//!
//! A step's effect becomes a [`Call`]; [`Connectors::call`] sends it once and returns an [`Outcome`].
//! A connector never retries by itself, holds no state except pooled connections and tokens, and reads
//! the clock only for deadlines.

mod batch;
mod declared;
mod echo;
mod email;
mod failures;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod hubspot;
pub mod node_client;
mod openid;
mod otlp;
mod outbound;
mod parameter;
mod postgres;
mod provider_failure;
mod quota;
mod s3;
mod salesforce;
mod script;
mod ses;
mod sigv4;
mod slack;
#[cfg(test)]
mod tests_support;
mod text;
mod tls;
mod token;
mod upsert;
mod url_path;
mod web_push;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::call_budget::{BUDGET_EXHAUSTED, CallMeter};
use sluice_domain::connector::Declared;
use sluice_domain::destination::{Destination, DestinationKind};
use sluice_domain::failure_rules::FailureTable;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::time::Time;
use tokio::time::Instant;

pub use declared::RecordedAnswer;
pub use openid::{CodeGrant, OpenIdClient, OpenIdError};
pub use otlp::{OtlpError, OtlpExporter};
pub use outbound::OutboundSettings;
use outbound::{Outbound, Request};
pub use quota::Quota;
pub use script::find_runtime;

/// One attempt of one effect.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub action: Action,
    /// Configured name of the destination. Empty means the unconfigured HTTP destination, as does `http`
    /// unless a destination of that name is configured.
    pub destination: &'a str,
    /// The step's `with:`, rendered.
    pub with: &'a Value,
    /// The same in every attempt.
    pub effect_key: &'a str,
    /// Key of the event item that the step processes, as the sender knows it. `None`: the effect key is used.
    pub message_key: Option<&'a str>,
    /// Id of the record that an earlier effect of the same identity wrote.
    pub record: Option<&'a Value>,
    /// Starts at 1. Does not change the request.
    pub attempt: u32,
    /// W3C trace context to propagate.
    pub traceparent: Option<&'a str>,
    /// Time limit of the attempt; the destination's own limit applies too.
    pub timeout: Duration,
    /// Current time, for dates in `Retry-After`.
    pub now: Time,
}

/// Omits `with`: secrets and personal data are rendered into it.
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

/// Request that a call would send, with every secret masked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preview {
    pub method: String,
    pub url: String,
    /// Sorted by name.
    pub headers: Vec<(String, String)>,
    /// JSON if the body is JSON, else text; null if it is empty.
    pub body: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildProblem {
    #[error("destination `{destination}`: {problem}")]
    Destination {
        destination: String,
        /// The invalid key and what is wrong with it.
        problem: String,
    },
    /// The HTTP client cannot be built, for example because the system has no TLS roots.
    #[error("cannot build the HTTP client: {0}")]
    Client(String),
}

/// Every configured destination. Cheap to clone; clones share connections and tokens.
#[derive(Clone, Debug)]
pub struct Connectors(Arc<Inner>, Outbound);

#[derive(Debug)]
struct Inner {
    destinations: HashMap<String, PreparedDestination>,
    unconfigured_http: PreparedDestination,
}

#[derive(Debug)]
struct PreparedDestination {
    connector: Connector,
    timeout: Duration,
    /// What error responses mean, in order of precedence.
    rules: FailureTable,
}

#[derive(Debug)]
enum Connector {
    Http(Box<http::Target>),
    Salesforce(Box<salesforce::Target>),
    Hubspot(Box<hubspot::Target>),
    Postgres(Box<postgres::Target>),
    Email(Box<email::Target>),
    Script(Box<script::Target>),
    Slack(Box<slack::Target>),
    S3(Box<s3::Target>),
    Ses(Box<ses::Target>),
    WebPush(Box<web_push::Target>),
    File(Box<file::Target>),
    Declared(Box<declared::Target>),
}

impl PreparedDestination {
    fn new(destination: &Destination, outbound: &OutboundSettings) -> Result<PreparedDestination, String> {
        let own = &destination.failure_rules;
        let connector = match &destination.kind {
            DestinationKind::Http(settings) => {
                Connector::Http(Box::new(http::Target::connected(settings, outbound)?.with_rules(own)))
            }
            DestinationKind::Salesforce(settings) => {
                Connector::Salesforce(Box::new(salesforce::Target::new(settings, &destination.failure_rules)?))
            }
            DestinationKind::Hubspot(settings) => {
                Connector::Hubspot(Box::new(hubspot::Target::new(settings, &destination.failure_rules)?))
            }
            DestinationKind::Postgres(settings) => {
                let target = postgres::Target::new(settings, destination.gate.concurrency_max)?;
                Connector::Postgres(Box::new(target.with_rules(own)))
            }
            DestinationKind::Smtp(settings) => {
                Connector::Email(Box::new(email::Target::new(settings)?.with_rules(own)))
            }
            DestinationKind::Script(settings) => {
                Connector::Script(Box::new(script::Target::new(settings).with_rules(own)))
            }
            DestinationKind::Slack(settings) => {
                Connector::Slack(Box::new(slack::Target::new(settings)?.with_rules(own)))
            }
            DestinationKind::Declared(settings) => {
                Connector::Declared(Box::new(declared::Target::new(settings)?.with_rules(own)))
            }
            DestinationKind::S3(settings) => Connector::S3(Box::new(s3::Target::new(settings, own)?)),
            DestinationKind::Ses(settings) => Connector::Ses(Box::new(ses::Target::new(settings, own)?)),
            DestinationKind::WebPush(settings) => Connector::WebPush(Box::new(web_push::Target::new(settings, own)?)),
            DestinationKind::File(settings) => Connector::File(Box::new(file::Target::new(settings)?)),
        };
        let rules = failures::shipped_rules(&destination.kind).behind(own);
        Ok(PreparedDestination { connector, timeout: destination.timeout, rules })
    }
}

/// Destination whose type matches the action, and its time limit.
enum Route<'a> {
    Http(&'a http::Target, Duration),
    HttpUpsert(&'a http::Target, Duration),
    Salesforce(&'a salesforce::Target, Duration),
    Hubspot(&'a hubspot::Target, Duration),
    Postgres(&'a postgres::Target, Duration),
    Email(&'a email::Target, Duration),
    Script(&'a script::Target, Duration),
    Slack(&'a slack::Target, Duration),
    S3(&'a s3::Target, Duration),
    Ses(&'a ses::Target, Duration),
    WebPush(&'a web_push::Target, Duration),
    File(&'a file::Target, Duration),
    Declared(&'a declared::Target, Duration, Declared),
}

impl Connectors {
    /// Prepares every destination: parses its URLs and headers, and builds the shared clients.
    pub fn new<'a>(
        destinations: impl IntoIterator<Item = &'a Destination>,
        settings: &OutboundSettings,
    ) -> Result<Connectors, BuildProblem> {
        let destinations = destinations
            .into_iter()
            .map(|destination| match PreparedDestination::new(destination, settings) {
                Ok(prepared) => Ok((destination.name.clone(), prepared)),
                Err(problem) => Err(BuildProblem::Destination { destination: destination.name.clone(), problem }),
            })
            .collect::<Result<_, _>>()?;
        let unconfigured_http = PreparedDestination {
            connector: Connector::Http(Box::default()),
            timeout: Duration::MAX,
            rules: http::response::ANY_HOST_RULES.clone(),
        };
        let outbound = Outbound::new(settings).map_err(BuildProblem::Client)?;
        Ok(Connectors(Arc::new(Inner { destinations, unconfigured_http }), outbound))
    }

    /// The same destinations, with every call counted: effects, read-backs and token requests.
    pub fn metered(&self, meter: CallMeter) -> Connectors {
        Connectors(self.0.clone(), self.1.metered(meter))
    }

    /// Sends the effect once. Dropping the future abandons the attempt; its outcome is then unknown.
    /// Values of the request that the destination quotes in its error are masked.
    pub async fn call(&self, call: Call<'_>) -> Outcome {
        unless_over_budget(echo::mask_outcome(self.send(call).await, &call))
    }

    async fn send(&self, call: Call<'_>) -> Outcome {
        let outbound = &self.1;
        match self.route(&call) {
            Ok(Route::Http(target, timeout_max)) => http::call(outbound, target, timeout_max, call).await,
            Ok(Route::HttpUpsert(target, timeout_max)) => http::upsert::call(outbound, target, timeout_max, call).await,
            Ok(Route::Salesforce(target, timeout_max)) => salesforce::call(outbound, target, timeout_max, call).await,
            Ok(Route::Hubspot(target, timeout_max)) => hubspot::call(outbound, target, timeout_max, call).await,
            Ok(Route::Postgres(target, timeout_max)) => match outbound.count() {
                Ok(()) => postgres::call(target, timeout_max, call).await,
                Err(failure) => Outcome::Wait { failure, after: None },
            },
            Ok(Route::Email(target, timeout_max)) => match outbound.count() {
                Ok(()) => email::call(target, timeout_max, call).await,
                Err(failure) => Outcome::Wait { failure, after: None },
            },
            Ok(Route::Script(target, timeout_max)) => match outbound.count() {
                Ok(()) => script::call(target, timeout_max, call).await,
                Err(failure) => Outcome::Wait { failure, after: None },
            },
            Ok(Route::Slack(target, timeout_max)) => slack::call(outbound, target, timeout_max, call).await,
            Ok(Route::S3(target, timeout_max)) => s3::call(outbound, target, timeout_max, call).await,
            Ok(Route::Ses(target, timeout_max)) => ses::call(outbound, target, timeout_max, call).await,
            Ok(Route::WebPush(target, timeout_max)) => web_push::call(outbound, target, timeout_max, call).await,
            Ok(Route::File(target, timeout_max)) => match outbound.count() {
                Ok(()) => file::call(target, timeout_max, call).await,
                Err(failure) => Outcome::Wait { failure, after: None },
            },
            Ok(Route::Declared(target, timeout_max, action)) => {
                declared::call(outbound, target, timeout_max, action, call).await
            }
            Err(failure) => Outcome::Reject { failure },
        }
    }

    /// Sends the effects of several calls, in one request where the connector can, and returns one outcome for each, in their
    /// order. The calls have one destination and one action, and what their batch form wants to be the same is the same.
    pub async fn call_batch(&self, calls: &[Call<'_>]) -> Vec<Outcome> {
        if let [first, _, ..] = calls {
            let outbound = &self.1;
            let outcomes = match self.route(first) {
                Ok(Route::Salesforce(target, timeout_max)) => {
                    Some(salesforce::call_batch(outbound, target, timeout_max, calls).await)
                }
                Ok(Route::Hubspot(target, timeout_max)) if first.action == Action::HubspotUpsert => {
                    Some(hubspot::call_batch(outbound, target, timeout_max, calls).await)
                }
                Ok(Route::File(target, timeout_max)) => Some(match outbound.count() {
                    Ok(()) => file::call_batch(target, timeout_max, calls).await,
                    Err(failure) => vec![Outcome::Wait { failure, after: None }; calls.len()],
                }),
                Ok(Route::Declared(target, timeout_max, action))
                    if action.definition().batch.is_some() && matches!(first.action, Action::Declared(_)) =>
                {
                    Some(declared::call_batch(outbound, target, timeout_max, action, calls).await)
                }
                _ => None,
            };
            if let Some(outcomes) = outcomes {
                return outcomes.into_iter().map(unless_over_budget).collect();
            }
        }
        let mut outcomes = Vec::with_capacity(calls.len());
        for call in calls {
            outcomes.push(self.call(*call).await);
        }
        outcomes
    }

    /// Checks whether the destination holds the effect: by `verify:` for `http.request`, by `find:` for `http.upsert`, by the external id
    /// for `salesforce.upsert`, by the id property for `hubspot.upsert`, by its effect row for `postgres.upsert`, by message metadata
    /// for `slack.post`, by its line for `file.append`, by `read_back:` of a declared connector. Others cannot be read back.
    pub async fn read_back(&self, call: Call<'_>) -> Readback {
        echo::mask_readback(self.look(call).await, &call)
    }

    async fn look(&self, call: Call<'_>) -> Readback {
        let outbound = &self.1;
        match self.route(&call) {
            Ok(Route::Http(target, timeout_max)) => http::read_back(outbound, target, timeout_max, call).await,
            Ok(Route::HttpUpsert(target, timeout_max)) => {
                http::upsert::read_back(outbound, target, timeout_max, call).await
            }
            Ok(Route::Salesforce(target, timeout_max)) => {
                salesforce::read_back(outbound, target, timeout_max, call).await
            }
            Ok(Route::Hubspot(target, timeout_max)) => hubspot::read_back(outbound, target, timeout_max, call).await,
            Ok(Route::Postgres(target, timeout_max)) => match outbound.count() {
                Ok(()) => postgres::read_back(target, timeout_max, call).await,
                Err(failure) => Readback::Unreadable(failure),
            },
            Ok(Route::Email(..)) => email::read_back(),
            Ok(Route::Script(..)) => script::read_back(),
            Ok(Route::Slack(target, timeout_max)) => slack::read_back(outbound, target, timeout_max, call).await,
            Ok(Route::S3(..)) => Readback::Unreadable(Failure::new(
                FailureClass::Mapping,
                "no-read-back",
                "An object is stored again instead of being looked up.",
            )),
            Ok(Route::Ses(..)) => ses::read_back(),
            Ok(Route::WebPush(..)) => web_push::read_back(),
            Ok(Route::File(target, timeout_max)) => file::read_back(target, timeout_max, call).await,
            Ok(Route::Declared(target, timeout_max, action)) => {
                declared::read_back(outbound, target, timeout_max, action, call).await
            }
            Err(failure) => Readback::Unreadable(failure),
        }
    }

    /// Request that [`Connectors::call`] would send; for other protocols, the nearest equivalent in HTTP terms.
    /// Masks the destination's secrets. Secrets rendered into `with:` are masked only in headers whose name
    /// suggests a credential, so the caller renders them masked.
    pub fn preview(&self, call: &Call<'_>) -> Result<Preview, Failure> {
        match self.route(call)? {
            Route::Http(target, _) => Ok(Preview::of(&http::prepare(target, call)?, text::exposed(&target.secrets))),
            Route::HttpUpsert(target, _) => {
                Ok(Preview::of(&http::upsert::prepare(target, call)?, text::exposed(&target.secrets)))
            }
            Route::Salesforce(target, _) => {
                Ok(Preview::of(&salesforce::prepare(target, call)?, text::exposed(&target.secrets)))
            }
            Route::Hubspot(target, _) => {
                Ok(Preview::of(&hubspot::prepare(target, call)?, text::exposed(&target.secrets)))
            }
            Route::Postgres(target, _) => postgres::preview(target, call),
            Route::Email(target, _) => email::preview(target, call),
            Route::Script(target, _) => script::preview(target, call),
            Route::Slack(target, _) => Ok(Preview::of(&slack::prepare(target, call)?, text::exposed(&target.secrets))),
            Route::S3(target, _) => Ok(Preview::of(&s3::prepare(target, call)?, text::exposed(&target.secrets))),
            Route::Ses(target, _) => Ok(Preview::of(&ses::prepare(target, call)?, text::exposed(&target.secrets))),
            Route::WebPush(target, _) => {
                Ok(Preview::of(&web_push::prepare(target, call)?, text::exposed(&target.secrets)))
            }
            Route::File(target, _) => file::preview(target, call),
            Route::Declared(target, _, action) => {
                Ok(Preview::of(&declared::prepare(target, action, call)?, target.secrets()))
            }
        }
    }

    /// Request that [`Connectors::read_back`] would send, for an action of a declared connector.
    pub fn preview_read_back(&self, call: &Call<'_>) -> Result<Preview, Failure> {
        let (target, action) = self.declared(call)?;
        Ok(Preview::of(&declared::prepare_read_back(target, action, call)?, target.secrets()))
    }

    /// Outcome of a call that is answered like this, and the index of the failure rule that decided. Nothing is sent.
    pub fn judge(&self, call: &Call<'_>, answer: &RecordedAnswer) -> Result<(Option<usize>, Outcome), Failure> {
        let (_, action) = self.declared(call)?;
        Ok(declared::judge(action, call, answer))
    }

    /// Result of a read-back that is answered like this. Nothing is sent.
    pub fn judge_read_back(&self, call: &Call<'_>, answer: &RecordedAnswer) -> Result<Readback, Failure> {
        let (_, action) = self.declared(call)?;
        Ok(declared::judge_read_back(action, call, answer))
    }

    /// Request that these calls of a declared connector would share.
    pub fn preview_batch(&self, calls: &[Call<'_>]) -> Result<Preview, Failure> {
        let Some(first) = calls.first() else { return Err(no_calls()) };
        let (target, action) = self.declared(first)?;
        Ok(Preview::of(&declared::prepare_batch(target, action, calls)?, target.secrets()))
    }

    /// Outcomes of calls that share a request which is answered like this, and the indexes of the failure rules that decided.
    /// Nothing is sent.
    pub fn judge_batch(
        &self,
        calls: &[Call<'_>],
        answer: &RecordedAnswer,
    ) -> Result<(Vec<usize>, Vec<Outcome>), Failure> {
        let Some(first) = calls.first() else { return Err(no_calls()) };
        let (_, action) = self.declared(first)?;
        declared::judge_batch(action, calls, answer)
    }

    fn declared(&self, call: &Call<'_>) -> Result<(&declared::Target, Declared), Failure> {
        match self.route(call)? {
            Route::Declared(target, _, action) => Ok((target, action)),
            _ => Err(Failure::new(
                FailureClass::Mapping,
                "wrong-destination",
                format!("{} is not an action of a declared connector.", call.action.name()),
            )),
        }
    }

    /// Failure rules of a destination in order of precedence; `None` if there is no such destination.
    pub fn failure_rules(&self, destination: &str) -> Option<&FailureTable> {
        self.0.destinations.get(destination).map(|prepared| &prepared.rules)
    }

    /// The latest report of a destination about its daily limit of calls.
    pub fn quota(&self, destination: &str) -> Option<Quota> {
        match &self.0.destinations.get(destination)?.connector {
            Connector::Salesforce(target) => target.quota.latest(),
            Connector::Hubspot(target) => target.quota.latest(),
            _ => None,
        }
    }

    fn route(&self, call: &Call<'_>) -> Result<Route<'_>, Failure> {
        let known = self.0.destinations.get(call.destination);
        let unconfigured_http = || matches!(call.destination, "" | "http").then_some(&self.0.unconfigured_http);
        let Some(prepared) = known.or_else(unconfigured_http) else {
            return Err(Failure::new(
                FailureClass::Mapping,
                "no-destination",
                format!(
                    "Destination `{}` is not configured. Add it to the configuration or correct the step.",
                    call.destination
                ),
            ));
        };
        if let Connector::Declared(target) = &prepared.connector
            && let Some(action) = declared::performs(target, call.action)
        {
            return Ok(Route::Declared(target, prepared.timeout, action));
        }
        match (call.action, &prepared.connector) {
            (Action::HttpRequest, Connector::Http(target)) => Ok(Route::Http(target, prepared.timeout)),
            (Action::HttpUpsert, Connector::Http(target)) => Ok(Route::HttpUpsert(target, prepared.timeout)),
            (Action::SalesforceUpsert, Connector::Salesforce(target)) => {
                Ok(Route::Salesforce(target, prepared.timeout))
            }
            (Action::HubspotUpsert | Action::HubspotAssociate, Connector::Hubspot(target)) => {
                Ok(Route::Hubspot(target, prepared.timeout))
            }
            (Action::PostgresUpsert, Connector::Postgres(target)) => Ok(Route::Postgres(target, prepared.timeout)),
            (Action::EmailSend | Action::SendTemplate, Connector::Email(target)) => {
                Ok(Route::Email(target, prepared.timeout))
            }
            (Action::Script, Connector::Script(target)) => Ok(Route::Script(target, prepared.timeout)),
            (Action::SlackPost, Connector::Slack(target)) => Ok(Route::Slack(target, prepared.timeout)),
            (Action::S3Put, Connector::S3(target)) => Ok(Route::S3(target, prepared.timeout)),
            (Action::SesSend | Action::SendTemplate, Connector::Ses(target)) => {
                Ok(Route::Ses(target, prepared.timeout))
            }
            (Action::WebPushSend, Connector::WebPush(target)) => Ok(Route::WebPush(target, prepared.timeout)),
            (Action::FileAppend, Connector::File(target)) => Ok(Route::File(target, prepared.timeout)),
            (action, _) => Err(Failure::new(
                FailureClass::Mapping,
                "wrong-destination",
                format!(
                    "{} needs a destination of type {}; `{}` has another type.",
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

/// A request that the budget did not allow was not sent: its job waits, and that costs no attempt.
fn unless_over_budget(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Retry { failure, .. } if failure.code == BUDGET_EXHAUSTED => Outcome::Wait { failure, after: None },
        outcome => outcome,
    }
}

/// Keeps only the scheme of a credential: `Bearer ***`.
fn masked(text: &str) -> String {
    match text.split_once(' ') {
        Some((scheme @ ("Bearer" | "Basic"), _)) => format!("{scheme} {}", text::MASK),
        _ => text::MASK.to_owned(),
    }
}

fn no_calls() -> Failure {
    Failure::new(FailureClass::Mapping, "no-batch", "A batch needs at least one call.")
}

/// Now plus the shortest of the limits.
fn deadline<const N: usize>(limits: [Duration; N]) -> Instant {
    // Bounds the sum, so that adding to the clock cannot overflow.
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    Instant::now() + limits.into_iter().fold(LONGEST, Duration::min)
}
