//! Fast HTTP server that accepts every request and records it.
//!
//! Responds 200 `{"ok":true}` to any request. `/resource/{id}` stores its body, so that an effect can be read back.
//! With routes it responds as recorded, and 404 to any other request. `/sim/…` is an API to inspect and control the simulator.

mod provider;
mod rate_limit;
mod request_log;
mod route;
mod shared;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use provider::Provider;
pub use rate_limit::RateCounts;
pub use request_log::{KeyCounts, ReceivedRequest, SinkTruth};
pub use route::{BatchRoute, RecordedReply, SinkRoute};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::Inspected;
use crate::serve::{ANY_PORT, Server, wait_until};
use shared::Shared;

/// How the sink treats the `Idempotency-Key` header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyPolicy {
    /// Counts requests per key and applies all of them, as a server that ignores the header.
    #[default]
    Count,
    /// Applies the first request of a key. A duplicate with the same method, path and body gets the first response
    /// again, one with other content gets 422.
    Honour,
}

/// A token endpoint whose access tokens expire. Every other request needs the latest one.
#[derive(Debug, Clone)]
pub struct TokenPolicy {
    /// Path of the endpoint; `*` stands for any text.
    pub path: String,
    /// Requests after which a token is refused with 401.
    pub uses_max: u64,
}

#[derive(Debug, Clone)]
pub struct SinkSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    pub keys: KeyPolicy,
    /// Recorded replies; the first route that matches applies. Empty: every request is accepted.
    pub routes: Vec<SinkRoute>,
    /// Behaves as this provider instead.
    pub provider: Option<Provider>,
    /// Access tokens that expire.
    pub tokens: Option<TokenPolicy>,
    /// Name under which it is inspected beside other simulators.
    pub name: &'static str,
    /// Maximum keys and paths recorded; with 0 the sink only counts. The oldest key is dropped first; further paths
    /// are counted together.
    pub remembered_max: usize,
    /// Maximum complete requests kept; the latest are kept.
    pub requests_kept_max: usize,
    /// Calls accepted in any second; further ones get 429 with `Retry-After: 1`. Unlimited if `None`.
    pub calls_per_second_max: Option<u32>,
    /// Maximum stored resources; further ones are rejected with 507.
    pub resources_max: usize,
    /// Larger bodies are rejected with 413.
    pub body_bytes_max: usize,
}

impl Default for SinkSettings {
    fn default() -> SinkSettings {
        SinkSettings {
            listen: ANY_PORT,
            faults: FaultPlan::none(),
            keys: KeyPolicy::Count,
            routes: Vec::new(),
            provider: None,
            tokens: None,
            name: "sink",
            remembered_max: 1_000_000,
            requests_kept_max: 1_000,
            calls_per_second_max: None,
            resources_max: 1_000_000,
            body_bytes_max: 8 << 20,
        }
    }
}

/// Running sink. Stops when dropped.
#[derive(Debug)]
pub struct Sink {
    server: Server,
    shared: Arc<Shared>,
}

impl Sink {
    /// Starts the server on its own thread. An invalid fault plan, or honouring keys with `remembered_max` 0, is an
    /// `InvalidInput` error.
    pub fn start(settings: SinkSettings) -> io::Result<Sink> {
        if settings.keys == KeyPolicy::Honour && settings.remembered_max == 0 {
            let message = "KeyPolicy::Honour needs remembered_max above 0";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector));
        let server = Server::start("sim-sink", listen, Arc::clone(&shared))?;
        Ok(Sink { server, shared })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// For [`SalesforceSettings::beside`](crate::SalesforceSettings::beside).
    pub fn inspected(&self) -> Inspected {
        Inspected(self.shared.clone())
    }

    /// Current counts.
    pub fn truth(&self) -> SinkTruth {
        self.shared.truth()
    }

    /// Waits, without polling, until the counts satisfy `condition`, and returns them. Evaluated when a call arrives and
    /// when it is settled.
    pub async fn wait_until(&self, condition: impl FnMut(&SinkTruth) -> bool) -> SinkTruth {
        wait_until(&self.shared.changed, || self.truth(), condition).await
    }

    /// Counts per recorded idempotency key.
    pub fn keys(&self) -> BTreeMap<String, KeyCounts> {
        self.shared.keys()
    }

    /// Requests per method and path, such as `POST /hook`, as far as recorded.
    pub fn paths(&self) -> BTreeMap<String, u64> {
        self.shared.paths()
    }

    /// Latest requests, oldest first.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests_kept()
    }

    /// Stored body of a resource, or of an object by its path.
    pub fn resource(&self, id: &str) -> Option<Vec<u8>> {
        self.shared.resource(id).map(|body| body.to_vec())
    }

    /// Changes [`SinkSettings::calls_per_second_max`].
    pub fn limit_rate(&self, calls_per_second_max: Option<u32>) {
        self.shared.limit_rate(calls_per_second_max);
    }

    /// Calls that were accepted and refused by the rate limit.
    pub fn rate_counts(&self) -> RateCounts {
        self.shared.rate_counts()
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Deletes everything except the fault plan.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Closes the listener and every connection; callers are refused until [`Sink::accept_connections`].
    pub fn refuse_connections(&self) -> io::Result<()> {
        self.server.close()
    }

    /// Listens again on the same address.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.server.open()
    }

    /// Stops the server and closes every connection. The truth stays readable.
    pub fn stop(&self) {
        self.server.stop();
    }
}
