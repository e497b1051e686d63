//! A destination: an integration with credentials, limits and a breaker.

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
}

impl DestinationKind {
    /// The word in `type:`.
    pub fn as_str(&self) -> &'static str {
        match self {
            DestinationKind::Http(_) => "http",
            DestinationKind::Salesforce(_) => "salesforce",
        }
    }

    /// Every word that `type:` may have.
    pub const NAMES: [&'static str; 2] = ["http", "salesforce"];
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
