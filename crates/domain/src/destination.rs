//! A destination: an integration with credentials, limits and a breaker.

use std::path::PathBuf;
use std::time::Duration;

use crate::unit::Rate;
use crate::verify::SecretValue;

/// Where effects go, as the configuration means it.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The name that steps use.
    pub name: String,
    /// What speaks there, and with which credentials.
    pub kind: DestinationKind,
    /// What a single call may take, connection included.
    pub timeout: Duration,
    /// How much it is asked at once.
    pub gate: GateSettings,
}

/// The kinds of destination, by the connector that serves them.
#[derive(Clone, Debug)]
pub enum DestinationKind {
    /// Anything that speaks HTTP.
    Http(HttpDestination),
    /// Salesforce, or something that answers like it.
    Salesforce(SalesforceDestination),
    /// A PostgreSQL database of somebody else's.
    Postgres(PostgresDestination),
    /// A mail server.
    Smtp(SmtpDestination),
    /// Programs of the author's own, on this machine.
    Script(ScriptDestination),
    /// Slack, or something that answers like it.
    Slack(SlackDestination),
}

impl DestinationKind {
    /// The word in `type:`.
    pub fn as_str(&self) -> &'static str {
        match self {
            DestinationKind::Http(_) => "http",
            DestinationKind::Salesforce(_) => "salesforce",
            DestinationKind::Postgres(_) => "postgres",
            DestinationKind::Smtp(_) => "smtp",
            DestinationKind::Script(_) => "script",
            DestinationKind::Slack(_) => "slack",
        }
    }

    /// Every word that `type:` may have.
    pub const NAMES: [&'static str; 6] = ["http", "salesforce", "postgres", "smtp", "script", "slack"];
}

/// A plain HTTP destination.
#[derive(Clone, Debug, Default)]
pub struct HttpDestination {
    /// What relative URLs are joined to. A private address written here is meant.
    pub base_url: Option<String>,
    /// Headers for every request.
    pub headers: Vec<(String, SecretValue)>,
    /// Who we are.
    pub auth: HttpAuth,
    /// Whether a URL that comes out of an event may lead to a private or loopback address.
    pub allow_private_addresses: bool,
}

/// How a plain HTTP destination knows us.
#[derive(Clone, Debug, Default)]
pub enum HttpAuth {
    /// It does not.
    #[default]
    None,
    /// `Authorization: Bearer …`
    Bearer(SecretValue),
    /// `Authorization: Basic …`
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: SecretValue,
    },
}

/// A Salesforce organisation.
#[derive(Clone, Debug)]
pub struct SalesforceDestination {
    /// `https://{MyDomain}.my.salesforce.com`, without a trailing slash.
    pub instance_url: String,
    /// The pinned version, such as `v60.0`.
    pub api_version: String,
    /// How a token is had.
    pub auth: SalesforceAuth,
    /// Send the header that lets alert-only duplicate rules pass.
    pub allow_duplicates: bool,
}

/// How a Salesforce token is had.
#[derive(Clone, Debug)]
pub enum SalesforceAuth {
    /// The OAuth client credentials flow on the organisation's own domain.
    ClientCredentials {
        /// The consumer key.
        client_id: String,
        /// The consumer secret.
        client_secret: SecretValue,
    },
    /// A token that somebody else renews. A 401 cannot be cured here.
    Token(SecretValue),
}

/// A PostgreSQL database.
#[derive(Clone, Debug)]
pub struct PostgresDestination {
    /// `postgres://user:password@host/database`.
    pub url: SecretValue,
    /// When the server gives up on a statement.
    pub statement_timeout: Duration,
    /// Who vouches for the server, in PEM; the roots of this machine when left out.
    pub ca_certificate: Option<SecretValue>,
}

/// A mail server.
#[derive(Clone, Debug)]
pub struct SmtpDestination {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the way there is protected.
    pub tls: SmtpTls,
    /// Who we are, to it.
    pub login: Option<SmtpLogin>,
    /// Who mail is from: an address, with or without a name.
    pub from: String,
    /// Who vouches for the server, in PEM; the roots of this machine when left out.
    pub ca_certificate: Option<SecretValue>,
}

/// How the way to a mail server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// Begins in the clear and must change to TLS before anything is said.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Not at all.
    None,
}

impl SmtpTls {
    /// Every word that `tls:` may have.
    pub const NAMES: [&'static str; 3] = ["starttls", "tls", "none"];

    /// The way that this word names.
    pub fn parse(word: &str) -> Option<SmtpTls> {
        match word {
            "starttls" => Some(SmtpTls::StartTls),
            "tls" => Some(SmtpTls::Tls),
            "none" => Some(SmtpTls::None),
            _ => None,
        }
    }

    /// The port that is usual for it.
    pub fn port(self) -> u16 {
        match self {
            SmtpTls::StartTls => 587,
            SmtpTls::Tls => 465,
            SmtpTls::None => 25,
        }
    }
}

/// Who we are, to a mail server.
#[derive(Clone, Debug)]
pub struct SmtpLogin {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: SecretValue,
}

/// Programs of the author's own.
#[derive(Clone, Debug, Default)]
pub struct ScriptDestination {
    /// Where they run: the directory of the configuration.
    pub directory: PathBuf,
}

/// A Slack workspace.
#[derive(Clone, Debug)]
pub struct SlackDestination {
    /// Where its API is, without a slash at the end.
    pub base_url: String,
    /// How messages get there.
    pub transport: SlackTransport,
    /// What Slack signs pressed buttons with.
    pub signing_secret: Option<SecretValue>,
}

/// How messages get to Slack.
#[derive(Clone, Debug)]
pub enum SlackTransport {
    /// An incoming webhook: its URL is all it needs, and all that is secret.
    Webhook(SecretValue),
    /// `chat.postMessage` with a bot's token.
    Token(SecretValue),
}

/// Limits in front of a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    /// Calls in flight at once, at the most. The gate finds its own level below this.
    pub concurrency_max: u32,
    /// Calls in a span of time, evenly spread.
    pub rate: Option<Rate>,
    /// How many may go at once when the rate has been unused.
    pub burst: u32,
    /// When to stop asking for a while.
    pub breaker: BreakerSettings,
}

impl Default for GateSettings {
    fn default() -> GateSettings {
        GateSettings { concurrency_max: 16, rate: None, burst: 1, breaker: BreakerSettings::default() }
    }
}

/// When a breaker opens, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    /// The span over which calls are counted.
    pub window: Duration,
    /// No verdict from fewer calls than this.
    pub calls_min: u32,
    /// The share of failed calls that opens it, in percent.
    pub failure_percent: u32,
    /// This many failures in a row open it too.
    pub failures_in_a_row: u32,
    /// How long it stays open the first time; doubled each time up to `open_max`.
    pub open_first: Duration,
    /// No longer than this.
    pub open_max: Duration,
}

impl Default for BreakerSettings {
    fn default() -> BreakerSettings {
        BreakerSettings {
            window: Duration::from_secs(30),
            calls_min: 20,
            failure_percent: 50,
            failures_in_a_row: 10,
            open_first: Duration::from_secs(5),
            open_max: Duration::from_secs(300),
        }
    }
}
