//! Simulated SMTP server that stores accepted mail and can fail at any step of a session.
//!
//! For the fault plan every step of a session is a call: a write whose method is [`FakeStep::as_str`] and whose keys are
//! the recipient and the Message-ID, as far as they are known at that step. Nothing is applied before the final dot,
//! [`FakeStep::Dot`].

mod mailbox;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use mailbox::{SmtpMessage, SmtpTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::Inspected;
use crate::serve::{ANY_PORT, Server};
use session::Shared;

/// Step of a session; a fault plan names it by [`FakeStep::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeStep {
    /// Connection accepted, before the greeting.
    Connect,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// First line of the content received.
    Content,
    /// Final dot received.
    Dot,
}

impl FakeStep {
    pub const ALL: [FakeStep; 9] = [
        FakeStep::Connect,
        FakeStep::Ehlo,
        FakeStep::StartTls,
        FakeStep::Auth,
        FakeStep::Mail,
        FakeStep::Rcpt,
        FakeStep::Data,
        FakeStep::Content,
        FakeStep::Dot,
    ];

    /// Method name in a fault plan.
    pub fn as_str(self) -> &'static str {
        match self {
            FakeStep::Connect => "CONNECT",
            FakeStep::Ehlo => "EHLO",
            FakeStep::StartTls => "STARTTLS",
            FakeStep::Auth => "AUTH",
            FakeStep::Mail => "MAIL",
            FakeStep::Rcpt => "RCPT",
            FakeStep::Data => "DATA",
            FakeStep::Content => "CONTENT",
            FakeStep::Dot => "DOT",
        }
    }
}

/// When TLS starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encryption {
    #[default]
    None,
    /// With STARTTLS, which is required before MAIL.
    StartTls,
    /// From the first byte.
    Tls,
}

#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    pub encryption: Encryption,
    /// User and password; no authentication if `None`.
    pub login: Option<(String, String)>,
    /// Maximum complete messages kept; the latest are kept.
    pub messages_kept_max: usize,
    /// Larger messages are rejected with 552.
    pub message_bytes_max: usize,
}

impl Default for SmtpSettings {
    fn default() -> SmtpSettings {
        SmtpSettings {
            listen: ANY_PORT,
            faults: FaultPlan::none(),
            encryption: Encryption::None,
            login: None,
            messages_kept_max: 10_000,
            message_bytes_max: 10 << 20,
        }
    }
}

/// Running server. Stops when dropped.
#[derive(Debug)]
pub struct Smtp {
    server: Server,
    shared: Arc<Shared>,
}

impl Smtp {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: SmtpSettings) -> io::Result<Smtp> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector)?);
        let server = Server::start_raw("sim-smtp", listen, Arc::clone(&shared))?;
        Ok(Smtp { server, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Self-signed certificate of the server in PEM, for `localhost` and `127.0.0.1`.
    pub fn certificate(&self) -> &str {
        &self.shared.certificate
    }

    /// For [`SalesforceSettings::beside`](crate::SalesforceSettings::beside).
    pub fn inspected(&self) -> Inspected {
        Inspected(self.shared.clone())
    }

    /// Current counts.
    pub fn truth(&self) -> SmtpTruth {
        self.shared.truth()
    }

    /// Latest accepted messages, oldest first.
    pub fn messages(&self) -> Vec<SmtpMessage> {
        self.shared.messages()
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Closes the listener and every connection; callers are refused until [`Smtp::accept_connections`].
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
