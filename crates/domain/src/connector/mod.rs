//! Declarative connectors: a type of destination, described as data.
//!
//! A document of the configuration becomes a [`Connector`]; [`register`] makes its actions available as
//! [`Action::Declared`](crate::action::Action::Declared), with the same table that built-in actions have. The connectors
//! crate renders the request of an action and judges the answer; both are pure.

mod failure_rule;
mod registry;

pub use failure_rule::{ErrorFields, FailureAction, FailureRule, StatusRange};
pub use registry::{CONNECTORS_MAX, Declared, DeclaredAction, RegisteredConnector, RegistryFull, register};

use crate::outcome::EffectClass;
use crate::template::{Expression, Template};
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    ClientCredentials,
    RefreshToken,
}

impl Grant {
    /// All values of `grant:`.
    pub const NAMES: [&'static str; 2] = ["client_credentials", "refresh_token"];

    pub fn parse(word: &str) -> Option<Grant> {
        match word {
            "client_credentials" => Some(Grant::ClientCredentials),
            "refresh_token" => Some(Grant::RefreshToken),
            _ => None,
        }
    }

    /// As in the token request.
    pub fn as_str(self) -> &'static str {
        match self {
            Grant::ClientCredentials => "client_credentials",
            Grant::RefreshToken => "refresh_token",
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
