//! Simulated Salesforce REST API that records what really happened.
//!
//! Implements the part of the API that a webhook pipeline needs: tokens, upsert by external id, create, read, update,
//! delete, collections and simple queries. `/sim/…` is an API to inspect and control the simulator.

mod api;
mod check;
mod collections;
mod errors;
mod org;
mod reads;
mod schema;
mod soql;
mod store;
mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use schema::{Field, FieldKind, Object, Schema};
pub use store::Record;

use crate::crm::{Crm, CrmLog, CrmServer, SeenCall, Truth, Write, WriteCounts};
use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::{Inspect, Inspected};
use crate::serve::{ANY_PORT, Server, wait_until};
use org::Org;
use store::FakeStore;
use tokens::Tokens;

#[derive(Debug, Clone)]
pub struct SalesforceSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    /// Client credentials that receive a token.
    pub client_id: String,
    pub client_secret: String,
    /// Key of the application for JWT bearer assertions, and its user; none are accepted if `None`.
    pub jwt_application: Option<JwtApplication>,
    pub schema: Schema,
    pub faults: FaultPlan,
    /// Further calls are rejected with `REQUEST_LIMIT_EXCEEDED` until [`Salesforce::new_day`].
    pub daily_calls_max: u64,
    /// Older tokens are rejected; unlimited if `None`.
    pub token_lifetime: Option<Duration>,
    /// Supported API versions.
    pub versions: RangeInclusive<u32>,
    /// Maximum writes in the log; the latest are kept. Counts include all writes.
    pub writes_kept_max: usize,
    /// Maximum calls in the log; the latest are kept.
    pub calls_kept_max: usize,
    /// Creating more records than this, including deleted ones, is rejected with `STORAGE_LIMIT_EXCEEDED`.
    pub records_max: u64,
    /// Other simulators that `/sim/…` shows as well.
    pub beside: Vec<Inspected>,
}

/// Application whose signed assertions are accepted.
#[derive(Debug, Clone)]
pub struct JwtApplication {
    /// RSA public key: DER of PKCS#1.
    pub public_key: Vec<u8>,
    pub user: String,
    /// Expected audience.
    pub audience: String,
}

impl Default for SalesforceSettings {
    fn default() -> SalesforceSettings {
        SalesforceSettings {
            listen: ANY_PORT,
            client_id: "sim-client".to_owned(),
            client_secret: "sim-secret".to_owned(),
            jwt_application: None,
            schema: Schema::default(),
            faults: FaultPlan::none(),
            daily_calls_max: 10_000_000,
            token_lifetime: None,
            versions: 31..=68,
            writes_kept_max: 200_000,
            calls_kept_max: 200_000,
            records_max: 2_000_000,
            beside: Vec::new(),
        }
    }
}

/// Running organisation. Stops when dropped.
#[derive(Debug)]
pub struct Salesforce {
    server: Server,
    crm: Arc<CrmServer<Org>>,
}

impl Salesforce {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: SalesforceSettings) -> io::Result<Salesforce> {
        let injector =
            Injector::new(settings.faults).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let org = Org {
            store: FakeStore::new(settings.schema, settings.records_max),
            log: CrmLog::new(settings.calls_kept_max, settings.writes_kept_max),
            tokens: Tokens::new(settings.client_id, settings.client_secret, settings.token_lifetime)
                .accepting(settings.jwt_application),
            api_usage: 0,
            api_limit: settings.daily_calls_max,
            versions: settings.versions,
        };
        let beside = settings.beside.into_iter().map(|simulator| simulator.0).collect();
        let crm = Arc::new(CrmServer::new(org, injector, beside));
        let server = Server::start("sim-salesforce", settings.listen, Arc::clone(&crm))?;
        Ok(Salesforce { server, crm })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn truth(&self) -> Truth {
        self.crm.truth()
    }

    /// Waits, without polling, until the counts satisfy `condition`, and returns them. Evaluated when a call arrives and
    /// when it is settled.
    pub async fn wait_until(&self, condition: impl FnMut(&Truth) -> bool) -> Truth {
        wait_until(&self.crm.changed, || self.truth(), condition).await
    }

    /// All records of an object, oldest first.
    pub fn records(&self, object: &str) -> Vec<Record> {
        self.crm.crm().records(object, "", usize::MAX)
    }

    /// Writes in the log, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.crm.writes_page(0, None, usize::MAX)
    }

    /// Data calls in the log, oldest first.
    pub fn calls(&self) -> Vec<SeenCall> {
        self.crm.calls_page(0, usize::MAX)
    }

    /// Write counts per external id of this field.
    pub fn external_ids(&self, object: &str, field: &str) -> BTreeMap<String, WriteCounts> {
        self.crm.external_ids(object, field)
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.crm.injector().replace(plan)
    }

    /// Issues a valid token for clients that do not request one.
    pub fn issue_token(&self) -> String {
        self.crm.crm().tokens.issue()
    }

    /// Invalidates every issued token.
    pub fn expire_tokens(&self) {
        self.crm.crm().expire_tokens();
    }

    /// Resets the daily call count.
    pub fn new_day(&self) {
        self.crm.crm().new_day();
    }

    /// Deletes records, writes and all counts. Keeps tokens and the fault plan.
    pub fn reset(&self) {
        self.crm.reset();
    }

    /// Closes the listener and every connection; callers are refused until [`Salesforce::accept_connections`].
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
