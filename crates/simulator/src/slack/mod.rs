//! A Slack look-alike: messages through the API and through an incoming webhook, and their history.

mod press;
mod shared;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use press::Press;
pub use shared::{SlackMessage, SlackTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::serve::{ANY_PORT, Server};
use shared::Shared;

/// How a Slack is set up.
#[derive(Debug, Clone)]
pub struct SlackSettings {
    /// Port 0 lets the system choose.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    /// The bot's token.
    pub token: String,
    /// The channels that it is a member of.
    pub channels: Vec<String>,
    /// The last part of the path of its incoming webhook.
    pub webhook: String,
    /// How many messages one page of a history holds at the most.
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

/// A running Slack. It stops when dropped.
#[derive(Debug)]
pub struct Slack {
    server: Server,
    shared: Arc<Shared>,
}

impl Slack {
    /// Starts a Slack on a thread of its own. A fault plan that cannot be carried out is an `InvalidInput` error.
    pub fn start(settings: SlackSettings) -> io::Result<Slack> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector));
        let server = Server::start("sim-slack", listen, Arc::clone(&shared))?;
        Ok(Slack { server, shared })
    }

    /// Where its API is, without a slash at the end.
    pub fn api_url(&self) -> String {
        format!("http://{}/api", self.server.address())
    }

    /// Its incoming webhook.
    pub fn webhook_url(&self) -> String {
        format!("http://{}/services/{}", self.server.address(), self.shared.settings.webhook)
    }

    /// Every message, oldest first.
    pub fn messages(&self) -> Vec<SlackMessage> {
        self.shared.messages()
    }

    /// The workspace now, in figures.
    pub fn truth(&self) -> SlackTruth {
        self.shared.truth()
    }

    /// The next calls are answered 200 with `ok: false` and these errors, one for each.
    pub fn refuse_next(&self, errors: impl IntoIterator<Item = &'static str>) {
        self.shared.refuse_next(errors);
    }

    /// Replaces the fault plan; its time and its call numbers start now.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Closes the listener and every connection: callers are refused until [`Slack::accept_connections`].
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
