//! A mail server that keeps what it takes, and misbehaves at any word of the conversation.
//!
//! To its fault plan every step of a conversation is a call: a write whose method is the word that was said, see
//! [`Step`], and whose keys are the recipient and the Message-ID, as far as they are known by then. Nothing is applied
//! before the final dot, which is the step [`Step::Dot`].

mod mailbox;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use mailbox::{SmtpMessage, SmtpTruth};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::serve::{ANY_PORT, Server};
use session::Shared;

/// A step of the conversation, as a fault plan names it by [`Step::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeStep {
    /// The connection was made; the greeting is due.
    Connect,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// The content has begun to arrive.
    Content,
    /// The final dot has arrived.
    Dot,
}

impl FakeStep {
    /// Every step.
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

    /// The method in a fault plan.
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

/// When the way becomes private.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Never.
    #[default]
    None,
    /// When asked with STARTTLS, and nothing else is taken before.
    StartTls,
    /// From the first byte.
    Tls,
}

/// How a mail server is set up.
#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// Port 0 lets the system choose.
    pub listen: SocketAddr,
    pub faults: FaultPlan,
    pub encryption: Encryption,
    /// User and password; nobody has to log in when left out.
    pub login: Option<(String, String)>,
    /// How many of the latest messages are kept whole.
    pub messages_kept_max: usize,
    /// Larger messages are refused with 552.
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

/// A running mail server. It stops when dropped.
#[derive(Debug)]
pub struct Smtp {
    server: Server,
    shared: Arc<Shared>,
}

impl Smtp {
    /// Starts a mail server on a thread of its own. A fault plan that cannot be carried out is an `InvalidInput` error.
    pub fn start(settings: SmtpSettings) -> io::Result<Smtp> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector)?);
        let server = Server::start_raw("sim-smtp", listen, Arc::clone(&shared))?;
        Ok(Smtp { server, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The certificate that it shows, in PEM, made for it alone. Its names are `localhost` and `127.0.0.1`.
    pub fn certificate(&self) -> &str {
        &self.shared.certificate
    }

    /// The server now, in figures.
    pub fn truth(&self) -> SmtpTruth {
        self.shared.truth()
    }

    /// The latest messages that were taken, oldest first.
    pub fn messages(&self) -> Vec<SmtpMessage> {
        self.shared.messages()
    }

    /// Replaces the fault plan; its time and its call numbers start now.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// Closes the listener and every connection: callers are refused until [`Smtp::accept_connections`].
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
