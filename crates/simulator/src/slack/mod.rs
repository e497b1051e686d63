//! Simulated Slack: Web API, incoming webhook and message history.

mod button_click;
mod shared;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use button_click::ButtonClick;
pub use shared::{SlackMessage, SlackTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::Inspected;
use crate::serve::{ANY_PORT, Server};
use shared::Shared;

#[derive(Debug, Clone)]
pub struct SlackSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    /// Token of the bot.
    pub token: String,
    /// Channels that the bot is a member of.
    pub channels: Vec<String>,
    /// Last part of the webhook's path.
    pub webhook: String,
    /// Maximum messages per page of a history.
    pub page_max: usize,
}

impl Default for SlackSettings {
    fn default() -> SlackSettings {
        SlackSettings {
            listen: ANY_PORT,
            faults: FaultPlan::none(),
            token: "xoxb-simulator".to_owned(),
            channels: vec!["C0SIMULATOR".to_owned()],
            webhook: "T0/B0/simulator".to_owned(),
            page_max: 100,
        }
    }
}

/// Running Slack. Stops when dropped.
#[derive(Debug)]
pub struct Slack {
    server: Server,
    shared: Arc<Shared>,
}

impl Slack {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: SlackSettings) -> io::Result<Slack> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector));
        let server = Server::start("sim-slack", listen, Arc::clone(&shared))?;
        Ok(Slack { server, shared })
    }

    /// URL of the API, without a trailing slash.
    pub fn api_url(&self) -> String {
        format!("http://{}/api", self.server.address())
    }

    /// URL of the incoming webhook.
    pub fn webhook_url(&self) -> String {
        format!("http://{}/services/{}", self.server.address(), self.shared.settings.webhook)
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> Vec<SlackMessage> {
        self.shared.messages()
    }

    /// For [`SalesforceSettings::beside`](crate::SalesforceSettings::beside).
    pub fn inspected(&self) -> Inspected {
        Inspected(self.shared.clone())
    }

    /// Current counts.
    pub fn truth(&self) -> SlackTruth {
        self.shared.truth()
    }

    /// Makes the next calls respond 200 with `ok: false` and these errors, one per call.
    pub fn refuse_next(&self, errors: impl IntoIterator<Item = &'static str>) {
        self.shared.refuse_next(errors);
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Closes the listener and every connection; callers are refused until [`Slack::accept_connections`].
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
