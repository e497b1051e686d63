//! Intake: an HTTP request becomes a durable event and a 202.
//!
//! In: HTTP requests.
//! Out: 202 and an event id after the commit; a problem otherwise.
//! Touches: flows (read), ledger: accept, audit.
//! Never: connectors; waits for a destination.
//! If the process dies here: before the commit nothing has happened, and the sender retries; after it the event is stored, and the
//! retry gets the same response.

mod admit;
mod answer;
mod api;
mod body;
mod decode;
mod limit;
mod peer;
mod prepare;
mod problems;
mod proxy;
mod receive;
mod refused;
mod rows;
mod server;
mod settings;
mod slack;
mod telemetry;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use sluice_domain::job::JobId;
use sluice_ledger::Ledger;

use crate::clock::Clock;
use crate::observe::Metrics;
use crate::revisions::Revisions;
use crate::schedule;
pub(crate) use answer::HttpProblem;
pub use api::PROBLEMS;
pub(crate) use api::describe;
use limit::RateLimiter;
pub use peer::UnverifiedLimits;
pub(crate) use prepare::{Prepared, RowOrigin, StoredProblem, prepare_stored};
pub use prepare::{RequestMeta, TENANT, prepare, prepare_all};
pub use proxy::{Network, NetworkProblem, TrustedProxies};
use refused::Refusals;
pub(crate) use refused::{Lately, Refused, SOURCE_PAUSED};
pub(crate) use server::IntakeServer;
pub use settings::IntakeSettings;

/// State shared by the intake. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IntakeContext {
    ledger: Ledger,
    revisions: Revisions,
    metrics: Metrics,
    clock: Clock,
    limits: Arc<RateLimiter>,
    refusals: Arc<Refusals>,
    paused: Arc<ArcSwap<HashSet<String>>>,
    ids: Arc<telemetry::Ids>,
    scheduler: Arc<OnceLock<schedule::SchedulerHandle>>,
}

impl IntakeContext {
    pub fn new(ledger: Ledger, revisions: Revisions, metrics: Metrics, clock: Clock) -> IntakeContext {
        IntakeContext {
            ledger,
            revisions,
            metrics,
            clock,
            limits: Arc::default(),
            refusals: Arc::default(),
            paused: Arc::default(),
            ids: Arc::new(telemetry::Ids::new()),
            scheduler: Arc::default(),
        }
    }

    /// Scheduler to notify of jobs whose approval was decided in Slack.
    pub(crate) fn set_scheduler(&self, scheduler: schedule::SchedulerHandle) {
        let _ = self.scheduler.set(scheduler);
    }

    fn wake(&self, jobs: Vec<(JobId, Arc<str>)>) {
        if let Some(scheduler) = self.scheduler.get() {
            scheduler.due_now(jobs);
        }
    }

    /// Requests of these sources are rejected with 503 and `Retry-After`.
    pub fn set_paused(&self, sources: HashSet<String>) {
        self.paused.store(Arc::new(sources));
    }

    pub fn paused(&self) -> Arc<HashSet<String>> {
        self.paused.load_full()
    }

    /// Recently rejected requests, newest first.
    pub fn refused(&self) -> Vec<Refused> {
        self.refusals.recent()
    }

    /// Recent rejections by source and code.
    pub fn refused_lately(&self) -> Vec<(String, &'static str, Lately)> {
        self.refusals.lately(self.clock.wall())
    }
}
