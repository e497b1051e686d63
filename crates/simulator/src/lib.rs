//! Simulated external systems with fault injection.
//!
//! Servers that behave like the systems Sluice delivers to, fail in the ways those systems fail, and record what
//! really happened; and generators of webhook traffic with duplicates, reordering and bursts.
//!
//! - [`Salesforce`]: Salesforce REST API with records, tokens, limits and a log of every write.
//! - [`Hubspot`]: HubSpot CRM API with unique properties, batches, a search that lags, OAuth tokens and limits.
//! - [`Sink`]: fast plain HTTP server that counts and stores requests and honours idempotency keys; also an S3 subset, Amazon SES, a
//!   push service of browsers, and the provider of a declared connector with its recorded answers and expiring tokens.
//! - [`Postgres`]: a real PostgreSQL cluster, and a relay that can drop its connections.
//! - [`Slack`]: Web API, incoming webhook and message history.
//! - [`Smtp`]: mail server that stores accepted mail and can fail at any step of a session.
//! - [`OpenId`]: OpenID provider with a sign-in page, keys that rotate, and tokens that a careful client must refuse.
//! - [`Collector`]: receiver of OpenTelemetry traces, over gRPC and HTTP.
//! - [`faults`]: fault plans as data; the same plan works on every server.
//! - [`traffic`]: seeded webhook traffic, without an HTTP client.
//! - [`load`]: load generator over HTTP, restricted to loopback.
//!
//! ```
//! use sluice_simulator::faults::Scripted;
//! use sluice_simulator::{Fault, FaultPlan, Salesforce, SalesforceSettings};
//!
//! let faults = FaultPlan::scripted([Scripted::for_key("lead-7", Fault::DropAfter).times(1)]);
//! let org = Salesforce::start(SalesforceSettings { faults, ..SalesforceSettings::default() })?;
//! // … upsert leads at org.url(); the first response for lead-7 is lost, but the record exists …
//! assert_eq!(org.truth().object("Lead").created_again, 0);
//! # std::io::Result::Ok(())
//! ```
//!
//! Every server runs on its own thread, listens on `127.0.0.1` with a port chosen by the system unless configured
//! otherwise, and stops when its handle is dropped.

mod apply_fault;
pub mod crm;
pub mod faults;
pub mod hubspot;
mod inspect;
pub mod load;
pub mod openid;
pub mod otlp;
pub mod postgres;
mod reply;
mod rng;
pub mod salesforce;
mod serve;
pub mod services;
pub mod sink;
pub mod slack;
pub mod smtp;
pub mod traffic;
mod uri;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use faults::{Everything, Fault, FaultPlan};
pub use hubspot::{Hubspot, HubspotSettings};
pub use inspect::Inspected;
pub use openid::{OpenId, OpenIdSettings, OpenIdUser};
pub use otlp::Collector;
pub use postgres::Postgres;
pub use salesforce::{Salesforce, SalesforceSettings};
pub use services::{Service, ServiceKind, ServiceSettings};
pub use sink::{Sink, SinkSettings};
pub use slack::{ButtonClick, Slack, SlackSettings};
pub use smtp::{Smtp, SmtpSettings};

/// Ignores poisoning: the recorded truth must stay readable after a test has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
