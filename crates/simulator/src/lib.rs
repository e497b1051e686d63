//! Misbehaves on order.
//!
//! Servers that look like the systems Sluice delivers to, fail in every way those systems fail, and keep the truth
//! about what really happened; and senders that repeat, reorder and burst the way webhook senders do.
//!
//! - [`Salesforce`]: a Salesforce REST look-alike with records, tokens, limits and a log of every write.
//! - [`Sink`]: a fast plain HTTP server that counts, stores and honours idempotency keys.
//! - [`Postgres`]: a real PostgreSQL with a cluster of its own, and a wire to it that can be cut.
//! - [`Slack`]: messages through the API and through an incoming webhook, and their history.
//! - [`Smtp`]: a mail server that keeps what it takes and misbehaves at any word of the conversation.
//! - [`faults`]: what goes wrong and when, as data; the same plan works on every server.
//! - [`senders`]: seeded traffic, without an HTTP client.
//! - [`load`]: senders that really send, to this machine only.
//!
//! ```
//! use sluice_simulator::faults::Scripted;
//! use sluice_simulator::{Fault, FaultPlan, Salesforce, SalesforceSettings};
//!
//! let faults = FaultPlan::scripted([Scripted::for_key("lead-7", Fault::DropAfter).times(1)]);
//! let org = Salesforce::start(SalesforceSettings { faults, ..SalesforceSettings::default() })?;
//! // … upsert leads at org.url(); the first answer for lead-7 is lost, though the record is there …
//! assert_eq!(org.truth().object("Lead").created_again, 0);
//! # std::io::Result::Ok(())
//! ```
//!
//! Every server runs on a thread of its own, listens on `127.0.0.1` with a port of the system's choosing unless told
//! otherwise, and stops when its handle is dropped.

mod apply_fault;
pub mod faults;
pub mod load;
pub mod postgres;
mod reply;
mod rng;
pub mod salesforce;
mod serve;
pub mod sink;
pub mod slack;
pub mod smtp;
pub mod traffic;
mod uri;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use faults::{Everything, Fault, FaultPlan};
pub use postgres::Postgres;
pub use salesforce::{Salesforce, SalesforceSettings};
pub use sink::{Sink, SinkSettings};
pub use slack::{Press, Slack, SlackSettings};
pub use smtp::{Smtp, SmtpSettings};

/// Locks even after a panic elsewhere: the truth of a simulator must stay readable when a test has failed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
