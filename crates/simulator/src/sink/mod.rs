//! A fast, plain HTTP server that says yes to everything and remembers what it was asked.
//!
//! Any request is answered 200 `{"ok":true}`. Below `/resource/{id}` it stores what it is given, so that an effect
//! can be read back. Behind `/sim/…` it answers questions and takes orders about itself.

mod request_log;
mod shared;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use request_log::{KeyCounts, Received, SinkTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::serve::{ANY_PORT, Server};
use shared::Shared;

/// What the sink does with the `Idempotency-Key` header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyPolicy {
    /// Counts requests per key and applies every one of them, as a server that ignores the header would.
    #[default]
    Count,
    /// Applies the first request of a key. A repeat with the same method, path and body gets the first answer again,
    /// one with another gets 422.
    Honour,
}

/// How a sink is set up.
#[derive(Debug, Clone)]
pub struct SinkSettings {
    /// Port 0 lets the system choose.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    pub keys: KeyPolicy,
    /// How many keys and how many paths are remembered; with 0 the sink only counts. The oldest
    /// key goes first, further paths are counted together.
    pub remembered_max: usize,
    /// How many of the latest requests are kept whole.
    pub requests_kept_max: usize,
    /// How many resources are stored; more are refused with 507.
    pub resources_max: usize,
    /// Larger bodies are refused with 413.
    pub body_bytes_max: usize,
}

impl Default for SinkSettings {
    fn default() -> SinkSettings {
        SinkSettings {
            listen: ANY_PORT,
            faults: FaultPlan::none(),
            keys: KeyPolicy::Count,
            remembered_max: 1_000_000,
            requests_kept_max: 1_000,
            resources_max: 1_000_000,
            body_bytes_max: 8 << 20,
        }
    }
}

/// A running sink. It stops when dropped.
#[derive(Debug)]
pub struct Sink {
    server: Server,
    shared: Arc<Shared>,
}

impl Sink {
    /// Starts a sink on a thread of its own. A fault plan that cannot be carried out, and honouring keys without
    /// remembering any, are `InvalidInput` errors.
    pub fn start(settings: SinkSettings) -> io::Result<Sink> {
        if settings.keys == KeyPolicy::Honour && settings.remembered_max == 0 {
            let message = "a sink that honours keys must remember some: set remembered_max";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector));
        let server = Server::start("sim-sink", listen, Arc::clone(&shared))?;
        Ok(Sink { server, shared })
    }

    /// `http://127.0.0.1:port`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The sink now, in figures.
    pub fn truth(&self) -> SinkTruth {
        self.shared.truth()
    }

    /// Waits, without polling, until the figures satisfy `condition`, and returns them. They are looked at when
    /// a call arrives and when it is settled.
    pub async fn wait_until(&self, mut condition: impl FnMut(&SinkTruth) -> bool) -> SinkTruth {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            let truth = self.truth();
            if condition(&truth) {
                return truth;
            }
            changes.changed().await.expect("the sender lives as long as this handle");
        }
    }

    /// What happened under each remembered idempotency key.
    pub fn keys(&self) -> BTreeMap<String, KeyCounts> {
        self.shared.keys()
    }

    /// Requests per method and path, such as `POST /hook`, as far as remembered.
    pub fn paths(&self) -> BTreeMap<String, u64> {
        self.shared.paths()
    }

    /// The latest requests, oldest first.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.requests_kept()
    }

    /// The stored body of a resource.
    pub fn resource(&self, id: &str) -> Option<Vec<u8>> {
        self.shared.resource(id).map(|body| body.to_vec())
    }

    /// Replaces the fault plan; its time and its call numbers start now.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Forgets everything but the fault plan.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Closes the listener and every connection: callers are refused until [`Sink::accept_connections`].
    pub fn refuse_connections(&self) -> io::Result<()> {
        self.server.close()
    }

    /// Listens again at the same address.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.server.open()
    }

    /// Stops the server and closes every connection. The truth can still be read.
    pub fn stop(&self) {
        self.server.stop();
    }
}
