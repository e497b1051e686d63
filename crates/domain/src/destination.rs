//! Destination: an external system with credentials, limits and a circuit breaker.

use std::path::PathBuf;
use std::time::Duration;

use crate::call_budget::CallBudgetSettings;
use crate::connector::DeclaredDestination;
use crate::failure_rules::FailureRule;
use crate::unit::Rate;
use crate::verify::{SecretValue, Verifier};

#[derive(Clone, Debug)]
pub struct Destination {
    /// Referenced by steps.
    pub name: String,
    /// Type and credentials.
    pub kind: DestinationKind,
    /// Timeout of a single call, including the connection.
    pub timeout: Duration,
    /// How long after its time-out a call may still be applied; `None`: late writes are not looked for.
    pub straggler_horizon: Option<Duration>,
    /// Jobs that one call may carry, at the most; `None`: as many as the action allows.
    pub batch_max: Option<u32>,
    pub gate: GateSettings,
    /// Evaluated before the rules of the connector.
    pub failure_rules: Vec<FailureRule>,
}

/// Type of destination; selects the connector.
#[derive(Clone, Debug)]
pub enum DestinationKind {
    /// Any HTTP API.
    Http(HttpDestination),
    /// Salesforce, or a compatible API.
    Salesforce(SalesforceDestination),
    /// HubSpot, or a compatible API.
    Hubspot(HubspotDestination),
    /// An external PostgreSQL database.
    Postgres(PostgresDestination),
    Smtp(SmtpDestination),
    /// Programs of the configuration's author, run on this machine.
    Script(ScriptDestination),
    /// Slack, or a compatible API.
    Slack(SlackDestination),
    /// A bucket of Amazon S3 or of a compatible store.
    S3(S3Destination),
    /// Amazon SES.
    Ses(SesDestination),
    /// Push services of browsers.
    WebPush(WebPushDestination),
    /// A file on this machine.
    File(FileDestination),
    /// A type that a connector document declares.
    Declared(DeclaredDestination),
}

impl DestinationKind {
    /// Value of `type:`.
    pub fn as_str(&self) -> &'static str {
        match self {
            DestinationKind::Http(_) => "http",
            DestinationKind::Salesforce(_) => "salesforce",
            DestinationKind::Hubspot(_) => "hubspot",
            DestinationKind::Postgres(_) => "postgres",
            DestinationKind::Smtp(_) => "smtp",
            DestinationKind::Script(_) => "script",
            DestinationKind::Slack(_) => "slack",
            DestinationKind::S3(_) => "s3",
            DestinationKind::Ses(_) => "ses",
            DestinationKind::WebPush(_) => "webpush",
            DestinationKind::File(_) => "file",
            DestinationKind::Declared(declared) => &declared.connector.definition.name,
        }
    }

    /// How long after its time-out a call may still be applied, for a destination that says nothing else. `None` where no action can
    /// compare a record: see [`crate::action::Action::compares_record`].
    pub fn straggler_horizon(&self) -> Option<Duration> {
        match self {
            // The longest that Salesforce lets a transaction run.
            DestinationKind::Salesforce(_) => Some(Duration::from_secs(600)),
            _ => None,
        }
    }

    /// Values of `type:` of the built-in types.
    pub const NAMES: [&'static str; 11] =
        ["http", "salesforce", "hubspot", "postgres", "smtp", "script", "slack", "s3", "ses", "webpush", "file"];
}

#[derive(Clone, Debug, Default)]
pub struct HttpDestination {
    /// Base of relative URLs. May be a private address, since the operator configures it.
    pub base_url: Option<String>,
    /// Sent with every request.
    pub headers: Vec<(String, SecretValue)>,
    pub auth: HttpAuth,
    /// True if a URL taken from an event may resolve to a private or loopback address.
    pub allow_private_addresses: bool,
    /// Signs every effect as a Standard Webhook, with the effect key as its id.
    pub signer: Option<Box<Verifier>>,
    pub channel: HttpChannel,
}

/// How connections to an HTTP destination are made, where it differs from the usual.
#[derive(Clone, Debug, Default)]
pub struct HttpChannel {
    /// Trusted CAs in PEM, in place of the system's roots.
    pub ca_certificate: Option<SecretValue>,
    /// Certificate chain in PEM with which the client authenticates itself, and its private key.
    pub client_certificate: Option<(SecretValue, SecretValue)>,
    pub proxy: Option<HttpProxy>,
}

impl HttpChannel {
    pub fn is_usual(&self) -> bool {
        self.ca_certificate.is_none() && self.client_certificate.is_none() && self.proxy.is_none()
    }
}

/// Forward proxy: a tunnel (CONNECT) for https, whole URLs for http.
#[derive(Clone, Debug)]
pub struct HttpProxy {
    /// `http://host:port`.
    pub url: String,
    /// User and password.
    pub login: Option<(String, SecretValue)>,
}

/// Authentication at an HTTP destination.
#[derive(Clone, Debug, Default)]
pub enum HttpAuth {
    #[default]
    None,
    /// `Authorization: Bearer …`
    Bearer(SecretValue),
    /// `Authorization: Basic …`
    Basic { user: String, password: SecretValue },
    /// An access token of the OAuth client credentials flow, renewed before it expires and once after a 401.
    OAuth(Box<HttpOAuth>),
    /// A signature over parts of the request, in a header.
    Hmac(Box<Verifier>),
}

/// OAuth client at an HTTP destination.
#[derive(Clone, Debug)]
pub struct HttpOAuth {
    pub token_url: String,
    pub client_id: String,
    pub client_secret: SecretValue,
    pub scope: Option<String>,
    pub audience: Option<String>,
    pub credentials_in: ClientCredentialsIn,
}

/// Where a token request carries the client's id and secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCredentialsIn {
    /// `client_secret_post`
    #[default]
    Body,
    /// `client_secret_basic`
    Header,
}

impl ClientCredentialsIn {
    /// All values of `credentials_in:`.
    pub const NAMES: [&'static str; 2] = ["body", "header"];

    pub fn parse(word: &str) -> Option<ClientCredentialsIn> {
        match word {
            "body" => Some(ClientCredentialsIn::Body),
            "header" => Some(ClientCredentialsIn::Header),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct SalesforceDestination {
    /// `https://{MyDomain}.my.salesforce.com`, without a trailing slash.
    pub instance_url: String,
    /// API version, such as `v60.0`.
    pub api_version: String,
    pub auth: SalesforceAuth,
    /// Sends the header that lets alert-only duplicate rules pass.
    pub allow_duplicates: bool,
}

/// How an access token is obtained.
#[derive(Clone, Debug)]
pub enum SalesforceAuth {
    /// OAuth client credentials flow on the organisation's own domain.
    ClientCredentials { client_id: String, client_secret: SecretValue },
    /// OAuth JWT bearer flow: an assertion signed with RS256.
    JwtBearer {
        client_id: String,
        /// The user that the integration acts as.
        user: String,
        /// The authorization server, such as `https://login.salesforce.com`.
        audience: String,
        /// RSA key in PEM format.
        private_key: SecretValue,
    },
    /// A token that is renewed elsewhere. Sluice cannot recover from a 401.
    Token(SecretValue),
}

#[derive(Clone, Debug)]
pub struct HubspotDestination {
    /// Base URL of its API, without a trailing slash.
    pub base_url: String,
    /// `v3`, or a dated version such as `2026-03`.
    pub api_version: String,
    pub auth: HubspotAuth,
}

/// How an access token is obtained.
#[derive(Clone, Debug)]
pub enum HubspotAuth {
    /// Token of a private app or a service key. It does not expire.
    Token(SecretValue),
    /// OAuth refresh token of an installed app.
    RefreshToken { client_id: String, client_secret: SecretValue, refresh_token: SecretValue },
}

#[derive(Clone, Debug)]
pub struct PostgresDestination {
    /// `postgres://user:password@host/database`.
    pub url: SecretValue,
    /// Enforced by the server.
    pub statement_timeout: Duration,
    /// Trusted CA in PEM; the system's roots if `None`.
    pub ca_certificate: Option<SecretValue>,
}

#[derive(Clone, Debug)]
pub struct SmtpDestination {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    pub tls: SmtpTls,
    pub login: Option<SmtpLogin>,
    /// Sender: an address, with or without a display name.
    pub from: String,
    /// Trusted CA in PEM; the system's roots if `None`.
    pub ca_certificate: Option<SecretValue>,
}

/// TLS mode of an SMTP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// Upgrades to TLS before any other command; fails if the server does not.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Plaintext.
    None,
}

impl SmtpTls {
    /// All values of `tls:`.
    pub const NAMES: [&'static str; 3] = ["starttls", "tls", "none"];

    pub fn parse(word: &str) -> Option<SmtpTls> {
        match word {
            "starttls" => Some(SmtpTls::StartTls),
            "tls" => Some(SmtpTls::Tls),
            "none" => Some(SmtpTls::None),
            _ => None,
        }
    }

    /// Standard port of this mode.
    pub fn port(self) -> u16 {
        match self {
            SmtpTls::StartTls => 587,
            SmtpTls::Tls => 465,
            SmtpTls::None => 25,
        }
    }
}

#[derive(Clone, Debug)]
pub struct SmtpLogin {
    pub user: String,
    pub password: SecretValue,
}

#[derive(Clone, Debug, Default)]
pub struct ScriptDestination {
    /// Working directory: that of the configuration.
    pub directory: PathBuf,
}

#[derive(Clone, Debug)]
pub struct SlackDestination {
    /// Base URL of its API, without a trailing slash.
    pub base_url: String,
    pub transport: SlackTransport,
    /// Verifies interactions sent by Slack.
    pub signing_secret: Option<SecretValue>,
}

#[derive(Clone, Debug)]
pub enum SlackTransport {
    /// An incoming webhook; its URL is the only credential.
    Webhook(SecretValue),
    /// `chat.postMessage` with a bot token.
    Token(SecretValue),
}

/// Access key of AWS or of a compatible service.
#[derive(Clone, Debug)]
pub struct AwsCredentials {
    pub access_key_id: String,
    pub secret_access_key: SecretValue,
    /// Of temporary credentials, which are renewed elsewhere.
    pub session_token: Option<SecretValue>,
}

#[derive(Clone, Debug)]
pub struct S3Destination {
    /// Address of a compatible store, to which the bucket is a path; Amazon S3 if `None`.
    pub endpoint: Option<String>,
    pub region: String,
    pub bucket: String,
    /// Put before every key.
    pub prefix: Option<String>,
    pub credentials: AwsCredentials,
}

#[derive(Clone, Debug)]
pub struct SesDestination {
    pub region: String,
    /// In place of the address of the region.
    pub base_url: Option<String>,
    pub credentials: AwsCredentials,
    /// Sender: an address, with or without a display name.
    pub from: String,
    pub configuration_set: Option<String>,
}

#[derive(Clone, Debug)]
pub struct WebPushDestination {
    /// VAPID keys, base64url: a point of P-256 and a number.
    pub public_key: String,
    pub private_key: SecretValue,
    /// Contact of the sender, for push services: `mailto:` or `https:`.
    pub subject: String,
    /// True if an endpoint may be a private or loopback address, or plain http.
    pub allow_private_addresses: bool,
}

#[derive(Clone, Debug)]
pub struct FileDestination {
    /// Absolute.
    pub path: PathBuf,
}

/// Limits of a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    /// Maximum of concurrent calls. Adaptive concurrency stays at or below it.
    pub concurrency_max: u32,
    /// Maximum call rate, evenly spread.
    pub rate: Option<Rate>,
    /// Calls that may start at once after an idle period.
    pub burst: u32,
    pub breaker: BreakerSettings,
    /// Calls in a day.
    pub budget: Option<CallBudgetSettings>,
}

impl Default for GateSettings {
    fn default() -> GateSettings {
        GateSettings { concurrency_max: 16, rate: None, burst: 1, breaker: BreakerSettings::default(), budget: None }
    }
}

/// When the circuit breaker opens, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Interval over which calls are counted.
    pub window: Duration,
    /// Minimum number of calls before `failure_percent` applies.
    pub calls_min: u32,
    /// Share of failed calls that opens the breaker, in percent.
    pub failure_percent: u32,
    /// Consecutive failures that open the breaker.
    pub failures_in_a_row: u32,
    /// How long it stays open at first; doubled each time up to `open_max`.
    pub open_first: Duration,
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
