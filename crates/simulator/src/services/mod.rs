//! Services for messages, analytics and alerts: Twilio, Segment, SendGrid, Postmark, Klaviyo and PagerDuty.
//!
//! Each answers the part of its vendor's API that the connectors use, checks credentials and requests, and records every effect with
//! the key that it was sent with. `/sim/…` is an API to inspect and control the simulator.

mod klaviyo;
mod mail;
mod pagerduty;
mod segment;
mod shared;
mod state;
mod twilio;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use state::{ServiceEffect, ServiceTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::Inspected;
use crate::serve::{ANY_PORT, Server};
use shared::Shared;

/// A service that is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    Twilio,
    Segment,
    Sendgrid,
    Postmark,
    Klaviyo,
    Pagerduty,
}

impl ServiceKind {
    pub const ALL: [ServiceKind; 6] = [
        ServiceKind::Twilio,
        ServiceKind::Segment,
        ServiceKind::Sendgrid,
        ServiceKind::Postmark,
        ServiceKind::Klaviyo,
        ServiceKind::Pagerduty,
    ];

    /// As in commands and paths.
    pub fn name(self) -> &'static str {
        match self {
            ServiceKind::Twilio => "twilio",
            ServiceKind::Segment => "segment",
            ServiceKind::Sendgrid => "sendgrid",
            ServiceKind::Postmark => "postmark",
            ServiceKind::Klaviyo => "klaviyo",
            ServiceKind::Pagerduty => "pagerduty",
        }
    }

    pub fn parse(name: &str) -> Option<ServiceKind> {
        ServiceKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Account that the simulator knows; only Twilio has one.
    pub const ACCOUNT: &'static str = "AC00000000000000000000000000000000";

    /// Credential that the simulator accepts: token, write key or routing key.
    pub fn credential(self) -> &'static str {
        match self {
            ServiceKind::Twilio => "sim-twilio-token",
            ServiceKind::Segment => "sim-segment-write-key",
            ServiceKind::Sendgrid => "SG.sim-sendgrid",
            ServiceKind::Postmark => "sim-postmark-token",
            ServiceKind::Klaviyo => "pk_sim_klaviyo",
            ServiceKind::Pagerduty => "simpagerdutyroutingkey0000000000",
        }
    }
}

#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    pub kind: ServiceKind,
    pub faults: FaultPlan,
    /// Maximum effects kept; further ones are counted only.
    pub effects_max: usize,
}

impl ServiceSettings {
    pub fn new(kind: ServiceKind) -> ServiceSettings {
        ServiceSettings { listen: ANY_PORT, kind, faults: FaultPlan::none(), effects_max: 1_000_000 }
    }
}

/// Running service. Stops when dropped.
#[derive(Debug)]
pub struct Service {
    server: Server,
    shared: Arc<Shared>,
}

impl Service {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: ServiceSettings) -> io::Result<Service> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (name, listen) = (format!("sim-{}", settings.kind.name()), settings.listen);
        let shared = Arc::new(Shared::new(settings, injector));
        let server = Server::start(&name, listen, Arc::clone(&shared))?;
        Ok(Service { server, shared })
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

    pub fn truth(&self) -> ServiceTruth {
        self.shared.truth()
    }

    /// Everything that was applied, oldest first.
    pub fn effects(&self) -> Vec<ServiceEffect> {
        self.shared.effects()
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }
}
