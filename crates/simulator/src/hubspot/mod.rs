//! Simulated HubSpot CRM API that records what really happened.
//!
//! Implements the part of the API that a webhook pipeline needs: records by id and by unique property, batches, search,
//! associations, OAuth tokens and limits. `/sim/…` is an API to inspect and control the simulator, as that of the
//! simulated Salesforce.

mod api;
mod batches;
mod errors;
mod portal;
mod properties;
mod store;
mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use properties::{ObjectType, Property};
pub use store::HubspotRecord;

use crate::crm::{Crm, CrmLog, CrmServer, SeenCall, Truth, Write, WriteCounts};
use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::{Inspect, Inspected};
use crate::serve::{ANY_PORT, Server, wait_until};
use portal::{Limits, Portal};
use store::RecordStore;
use tokens::Tokens;

#[derive(Debug, Clone)]
pub struct HubspotSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    /// Token of a private app; it does not expire.
    pub token: String,
    /// OAuth application and its first refresh token.
    pub client_id: String,
    pub client_secret: String,
    pub refresh_token: String,
    /// `expires_in` of OAuth access tokens; older ones are refused.
    pub access_token_lifetime: Duration,
    /// Each use of a refresh token replaces it.
    pub rotates_refresh_token: bool,
    /// Object types by name.
    pub objects: BTreeMap<String, ObjectType>,
    pub faults: FaultPlan,
    /// Further calls are refused with the policy `DAILY` until [`Hubspot::new_day`].
    pub daily_calls_max: u64,
    /// Calls within ten seconds; further ones are refused with the policy `TEN_SECONDLY_ROLLING`. Unlimited if `None`.
    pub ten_second_calls_max: Option<u64>,
    /// How long a search does not find a new record.
    pub search_lag: Duration,
    /// Maximum writes in the log; the latest are kept. Counts include all writes.
    pub writes_kept_max: usize,
    /// Maximum calls in the log; the latest are kept.
    pub calls_kept_max: usize,
    /// Creating more records than this is refused.
    pub records_max: usize,
}

impl Default for HubspotSettings {
    fn default() -> HubspotSettings {
        HubspotSettings {
            listen: ANY_PORT,
            token: "pat-sim-hubspot".to_owned(),
            client_id: "sim-client".to_owned(),
            client_secret: "sim-secret".to_owned(),
            refresh_token: "sim-refresh".to_owned(),
            access_token_lifetime: Duration::from_secs(1_800),
            rotates_refresh_token: false,
            objects: properties::usual_objects(),
            faults: FaultPlan::none(),
            daily_calls_max: 10_000_000,
            ten_second_calls_max: None,
            search_lag: Duration::from_secs(5),
            writes_kept_max: 200_000,
            calls_kept_max: 200_000,
            records_max: 2_000_000,
        }
    }
}

/// Running account. Stops when dropped.
#[derive(Debug)]
pub struct Hubspot {
    server: Server,
    crm: Arc<CrmServer<Portal>>,
}

impl Hubspot {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: HubspotSettings) -> io::Result<Hubspot> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let portal = Portal {
            tokens: Tokens::new(&settings),
            store: RecordStore::new(settings.objects, settings.records_max),
            log: CrmLog::new(settings.calls_kept_max, settings.writes_kept_max),
            limits: Limits::new(settings.daily_calls_max, settings.ten_second_calls_max),
            search_lag: settings.search_lag,
        };
        let crm = Arc::new(CrmServer::new(portal, injector, Vec::new()));
        let server = Server::start("sim-hubspot", listen, Arc::clone(&crm))?;
        Ok(Hubspot { server, crm })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// For [`SalesforceSettings::beside`](crate::SalesforceSettings::beside).
    pub fn inspected(&self) -> Inspected {
        Inspected(self.crm.clone())
    }

    pub fn truth(&self) -> Truth {
        self.crm.truth()
    }

    /// Waits, without polling, until the counts satisfy `condition`, and returns them. Evaluated when a call arrives and
    /// when it is settled.
    pub async fn wait_until(&self, condition: impl FnMut(&Truth) -> bool) -> Truth {
        wait_until(&self.crm.changed, || self.truth(), condition).await
    }

    /// All records of an object type, oldest first.
    pub fn records(&self, object: &str) -> Vec<HubspotRecord> {
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

    /// Write counts per value of this property.
    pub fn external_ids(&self, object: &str, property: &str) -> BTreeMap<String, WriteCounts> {
        self.crm.external_ids(object, property)
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.crm.injector().replace(plan)
    }

    /// Invalidates every OAuth access token. The private app's token and refresh tokens stay valid.
    pub fn expire_tokens(&self) {
        self.crm.crm().expire_tokens();
    }

    /// Resets the daily call count.
    pub fn new_day(&self) {
        self.crm.crm().new_day();
    }

    /// Closes the listener and every connection; callers are refused until [`Hubspot::accept_connections`].
    pub fn refuse_connections(&self) -> io::Result<()> {
        self.server.close()
    }

    /// Listens again on the same address.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.server.open()
    }
}
