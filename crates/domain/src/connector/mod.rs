//! Declarative connectors: a type of destination, described as data.
//!
//! A document of the configuration becomes a [`Connector`]; [`register`] makes its actions available as
//! [`Action::Declared`](crate::action::Action::Declared), with the same table that built-in actions have. The connectors
//! crate renders the request of an action and judges the answer; both are pure.

mod error_fields;
mod registry;

pub use crate::failure_rules::{FailureAction, FailureRule, StatusRange};
pub use error_fields::ErrorFields;
pub use registry::{CONNECTORS_MAX, Declared, DeclaredAction, RegisteredConnector, RegistryFull, register};

use serde_json::Value;

use crate::outcome::EffectClass;
use crate::template::{Expression, Scope, Template};
use crate::verify::SecretValue;

/// A declared type of destination. Valid by construction: the configuration reader has checked every reference in it.
#[derive(Debug)]
pub struct Connector {
    /// Value of `type:` of a destination.
    pub name: String,
    /// For the reference page.
    pub about: String,
    /// Keys of a destination of this type, besides those of every destination and `base_url`.
    pub keys: Vec<DestinationKey>,
    /// Address of the API, over `destination`. `None`: the requests have whole URLs.
    pub base_url: Option<Template>,
    /// Sent with every request; over `destination`.
    pub headers: Vec<(String, Template)>,
    pub auth: ConnectorAuth,
    /// Where an error answer has its code and its message.
    pub error: ErrorFields,
    /// Where an answer says how long to wait; the first value found applies.
    pub wait_from: Vec<WaitSource>,
    /// The first match applies; without one, the status decides.
    pub failures: Vec<FailureRule>,
    pub actions: Vec<ActionDefinition>,
    /// The document as JSON; two equal documents are one connector.
    pub source: String,
}

/// A key of a destination.
#[derive(Debug)]
pub struct DestinationKey {
    pub name: String,
    pub key_type: KeyType,
    pub required: bool,
    pub default: Option<String>,
    /// For the reference page.
    pub about: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum KeyType {
    Text,
    /// Masked wherever it would be shown.
    Secret,
    Url,
    OneOf(Vec<String>),
}

/// How requests are authenticated. The templates are over `destination`.
#[derive(Debug)]
pub enum ConnectorAuth {
    None,
    /// `Authorization: Bearer …`
    Bearer(Template),
    /// `Authorization: Basic …`
    Basic {
        user: Template,
        password: Template,
    },
    /// A header with the credential.
    Header {
        name: String,
        value: Template,
    },
    OAuth(Box<OAuth>),
}

/// An access token that is fetched from the provider and cached until it is refused.
#[derive(Debug)]
pub struct OAuth {
    pub grant: Grant,
    pub token_url: Template,
    /// Fields of the token request, besides the grant.
    pub form: Vec<(String, Template)>,
    /// Word before the token in the header `Authorization`.
    pub scheme: String,
    /// Present if and only if the grant is [`Grant::JwtBearer`].
    pub assertion: Option<AssertionClaims>,
}

/// A signed assertion that is exchanged for an access token (RFC 7523), with RS256. The templates are over `destination`.
#[derive(Debug)]
pub struct AssertionClaims {
    pub issuer: Template,
    pub subject: Option<Template>,
    pub audience: Template,
    pub scope: Option<Template>,
    /// RSA key in PEM format; `\n` in it may be a line break, as in a JSON file.
    pub private_key: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    ClientCredentials,
    RefreshToken,
    JwtBearer,
}

impl Grant {
    /// All values of `grant:`.
    pub const NAMES: [&'static str; 3] = ["client_credentials", "refresh_token", "jwt_bearer"];

    pub fn parse(word: &str) -> Option<Grant> {
        match word {
            "client_credentials" => Some(Grant::ClientCredentials),
            "refresh_token" => Some(Grant::RefreshToken),
            "jwt_bearer" => Some(Grant::JwtBearer),
            _ => None,
        }
    }

    /// As in the token request.
    pub fn as_str(self) -> &'static str {
        match self {
            Grant::ClientCredentials => "client_credentials",
            Grant::RefreshToken => "refresh_token",
            Grant::JwtBearer => "urn:ietf:params:oauth:grant-type:jwt-bearer",
        }
    }
}

/// What a step can run at a destination of this type.
#[derive(Debug)]
pub struct ActionDefinition {
    /// Value of `run:`.
    pub name: String,
    pub about: String,
    pub parameters: Vec<ParameterDefinition>,
    /// Parameters of which at least one is required.
    pub any_of: Vec<String>,
    pub class: EffectClass,
    /// What makes the class so, for the reference page.
    pub because: String,
    /// The action sends a mail: it has the parameters of `email.send`, and `messaging.send_template` uses it.
    pub is_mail: bool,
    /// Parameters of an HTTP request: method, url, headers, query and a body. Over `with`, `destination`, `effect`, `mail`.
    pub request: Template,
    pub success: Success,
    /// Output of the step, over `with`, `effect` and `response`.
    pub result: Option<Template>,
    pub read_back: Option<ReadBackRule>,
    pub batch: Option<BatchDefinition>,
    /// The request creates a record that is looked for first.
    pub upsert: Option<UpsertRule>,
}

/// How calls of several jobs share a request, and how its answer is taken apart. The answer of each call is then judged by the
/// same rules as that of a request of its own.
#[derive(Debug)]
pub struct BatchDefinition {
    /// Calls in one request, at the most.
    pub max: u32,
    /// Parameters that have the same value in all calls of one request.
    pub same: Vec<String>,
    /// Parameters that identify what a call writes; empty: two calls never write the same.
    pub identity: Vec<String>,
    /// Part of the request for one call, as [`ActionDefinition::request`] over the variables of that call.
    pub item: Template,
    /// As [`ActionDefinition::request`]; over `items`, `destination` and `with` of the first call.
    pub request: Template,
    /// Over `response`: the list with one result for each call. `None`: the answer is that of every call.
    pub results: Option<Expression>,
    /// Over `result` and `response`: body of the answer of one call. `None`: the result itself.
    pub body: Option<Template>,
    /// Over `result` and `response`: status of the answer of one call. `None`: that of the whole answer.
    pub status: Option<Expression>,
    /// How a result finds its call. `None`: by its place.
    pub matching: Option<BatchMatching>,
}

/// A result belongs to the call for which both have the same value.
#[derive(Debug)]
pub struct BatchMatching {
    /// Over `result`.
    pub result: Expression,
    /// Over `with` and `effect`.
    pub call: Expression,
}

#[derive(Debug)]
pub struct ParameterDefinition {
    pub name: String,
    pub value_type: DefinedType,
    pub required: bool,
    pub about: String,
}

/// Type of a declared parameter.
#[derive(Debug, PartialEq, Eq)]
pub enum DefinedType {
    Text,
    Flag,
    Number,
    Map,
    Any,
    /// Text, or a list of texts.
    Texts,
    OneOf(Vec<String>),
}

/// When an answer means that the effect is applied.
#[derive(Debug)]
pub struct Success {
    pub statuses: Vec<StatusRange>,
    /// Must hold as well, over `with`, `effect` and `response`: some providers answer 200 to a request that failed.
    pub condition: Option<Expression>,
}

/// How an effect is looked up after an unknown outcome.
#[derive(Debug)]
pub struct ReadBackRule {
    /// As [`ActionDefinition::request`].
    pub request: Template,
    /// Over a 2xx answer: whether it has the effect.
    pub found: Expression,
    /// Output of the step if the effect is found.
    pub result: Option<Template>,
}

/// How a record is found before it is created, at a provider that would create it twice.
#[derive(Debug)]
pub struct UpsertRule {
    /// What the record is found by, over `with`.
    pub identity: Template,
    /// The request that looks for it, as [`ActionDefinition::request`].
    pub find: Template,
    /// List of the records found, over the answer.
    pub records: Expression,
    /// Id of a record, over `record`.
    pub record_id: Expression,
    /// Id of a new record, over the answer.
    pub created_id: Expression,
    /// The request that updates it, as [`ActionDefinition::request`] and over `record`. `None`: it is left alone.
    pub update: Option<Template>,
}

impl UpsertRule {
    /// The identity of a step with these parameters.
    pub fn identity_of(&self, with: &Value) -> Option<Value> {
        let mut scope = Scope::new();
        scope.set("with", with.clone());
        self.identity.render_plain(&scope).ok().flatten()
    }
}

/// A value of an answer that says how long to wait.
#[derive(Debug)]
pub struct WaitSource {
    /// Over `response`.
    pub value: Expression,
    pub unit: WaitUnit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUnit {
    /// Seconds, also as a fraction.
    Seconds,
    Milliseconds,
    /// Seconds since 1970.
    Epoch,
    /// Seconds or an HTTP date.
    RetryAfter,
}

impl WaitUnit {
    /// All values of `unit:`.
    pub const NAMES: [&'static str; 4] = ["seconds", "milliseconds", "epoch", "retry_after"];

    pub fn parse(word: &str) -> Option<WaitUnit> {
        match word {
            "seconds" => Some(WaitUnit::Seconds),
            "milliseconds" => Some(WaitUnit::Milliseconds),
            "epoch" => Some(WaitUnit::Epoch),
            "retry_after" => Some(WaitUnit::RetryAfter),
            _ => None,
        }
    }
}

/// A destination of a declared type.
#[derive(Clone, Debug)]
pub struct DeclaredDestination {
    pub connector: &'static RegisteredConnector,
    /// Replaces the connector's address of the API.
    pub base_url: Option<String>,
    /// Values of the connector's keys, with defaults filled in.
    pub values: Vec<(String, SecretValue)>,
}

impl DeclaredDestination {
    /// Values of the keys that hold secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretValue> {
        let is_secret = |name: &str| {
            let key = self.connector.definition.keys.iter().find(|key| key.name == name);
            key.is_none_or(|key| key.key_type == KeyType::Secret)
        };
        self.values.iter().filter(move |(name, _)| is_secret(name)).map(|(_, value)| value)
    }
}

impl Connector {
    /// The action that sends a mail.
    pub fn mail_action(&self) -> Option<&ActionDefinition> {
        self.actions.iter().find(|action| action.is_mail)
    }
}
