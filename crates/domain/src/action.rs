//! Catalogue of the actions that a step may run, as data: a closed list, and the actions of declared connectors.
//!
//! `sluice check`, the reference page and the connectors read this table.

mod batch;
mod enrich;
mod external;
mod internal;
mod stores;

use serde_json::Value;

use crate::connector::Declared;
use crate::destination::{DestinationKind, SlackDestination, SlackTransport};
use crate::outcome::EffectClass;
pub use batch::BatchForm;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `http.request`
    HttpRequest,
    /// `http.upsert`
    HttpUpsert,
    /// `salesforce.upsert`
    SalesforceUpsert,
    /// `hubspot.upsert`
    HubspotUpsert,
    /// `hubspot.associate`
    HubspotAssociate,
    /// `postgres.upsert`
    PostgresUpsert,
    /// `email.send`
    EmailSend,
    /// `script`
    Script,
    /// `slack.post`
    SlackPost,
    /// `s3.put`
    S3Put,
    /// `ses.send`
    SesSend,
    /// `webpush.send`
    WebPushSend,
    /// `file.append`
    FileAppend,
    /// `utils.compute_dedup_key`
    ComputeDedupKey,
    /// `store.setnx`
    StoreSetnx,
    /// `queue_pull`
    QueuePull,
    /// `queue`
    Queue,
    /// `messaging.send_template`
    SendTemplate,
    /// `policy.check`
    PolicyCheck,
    /// `consent.set`
    ConsentSet,
    /// `approval.request`
    ApprovalRequest,
    /// `enrich.company`
    EnrichCompany,
    /// `enrich.geoip`
    EnrichGeoip,
    /// `enrich.http`
    EnrichHttp,
    /// An action of a declared connector.
    Declared(Declared),
}

/// Description of one action.
#[derive(Debug)]
pub struct Spec {
    /// Value of `run:`.
    pub name: &'static str,
    /// For the reference page.
    pub about: &'static str,
    /// Keys of `with:`.
    pub parameters: &'static [Parameter],
    /// Required `type:` of the destination; empty for an internal action.
    pub destination: &'static str,
    /// False if the action works without a configured destination.
    pub destination_required: bool,
}

/// One key of `with:`.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub value_type: ParameterType,
    pub required: bool,
    /// For the reference page.
    pub about: &'static str,
}

/// Type of a parameter's value. A template is allowed wherever a scalar is.
#[derive(Debug, PartialEq, Eq)]
pub enum ParameterType {
    Text,
    /// Text; values in it are percent-encoded.
    Url,
    Flag,
    OneOf(&'static [&'static str]),
    Map,
    Any,
    Duration,
    /// One expression over the answer, without braces.
    Expression,
    /// A map of names to such expressions.
    Expressions,
    /// A list of integers.
    Numbers,
    /// Text, or a list of texts.
    Texts,
    /// A number above zero.
    Number,
}

const fn parameter(name: &'static str, value_type: ParameterType, required: bool, about: &'static str) -> Parameter {
    Parameter { name, value_type, required, about }
}

impl Action {
    /// The built-in actions.
    pub const ALL: [Action; 24] = [
        Action::HttpRequest,
        Action::HttpUpsert,
        Action::SalesforceUpsert,
        Action::HubspotUpsert,
        Action::HubspotAssociate,
        Action::PostgresUpsert,
        Action::EmailSend,
        Action::Script,
        Action::SlackPost,
        Action::S3Put,
        Action::SesSend,
        Action::WebPushSend,
        Action::FileAppend,
        Action::ComputeDedupKey,
        Action::StoreSetnx,
        Action::QueuePull,
        Action::Queue,
        Action::SendTemplate,
        Action::PolicyCheck,
        Action::ConsentSet,
        Action::ApprovalRequest,
        Action::EnrichCompany,
        Action::EnrichGeoip,
        Action::EnrichHttp,
    ];

    /// The parameter with the fields of the record that it writes; `None` if it writes none.
    pub fn fields_parameter(self) -> Option<&'static str> {
        match self {
            Action::SalesforceUpsert => Some("fields"),
            Action::PostgresUpsert => Some("values"),
            _ => None,
        }
    }

    /// Whether a record that the action wrote can be read back and compared with what was written.
    pub fn compares_record(self) -> bool {
        matches!(self, Action::SalesforceUpsert | Action::HubspotUpsert)
    }

    /// Parameter that identifies the record in a CRM or the mark that the action writes.
    pub fn identity_parameter(self) -> Option<&'static str> {
        match self {
            Action::SalesforceUpsert => Some("external_id"),
            Action::HubspotUpsert => Some("id"),
            Action::HttpUpsert => Some("identity"),
            Action::StoreSetnx => Some("key"),
            _ => None,
        }
    }

    /// Whether the action writes records of persons or companies into a CRM.
    pub fn writes_crm_record(self) -> bool {
        matches!(self, Action::SalesforceUpsert | Action::HubspotUpsert | Action::HttpUpsert)
    }

    /// Whether the action looks for a record by an identity and creates it if there is none, at a destination that would
    /// create it twice.
    pub fn looks_first(self) -> bool {
        match self {
            Action::HttpUpsert => true,
            Action::Declared(declared) => declared.definition().upsert.is_some(),
            _ => false,
        }
    }

    /// Identity of the record that an action which [looks first](Action::looks_first) writes, from the rendered parameters.
    /// `None` if it has no value: nothing is sent then.
    pub fn record_identity(self, with: &Value) -> Option<String> {
        let value = match self {
            Action::HttpUpsert => with.get("identity").cloned(),
            Action::Declared(declared) => declared.definition().upsert.as_ref()?.identity_of(with),
            _ => None,
        };
        let text = match value? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(text).filter(|text| !text.trim().is_empty())
    }

    pub fn spec(self) -> &'static Spec {
        match self {
            Action::HttpRequest => &external::HTTP_REQUEST,
            Action::HttpUpsert => &external::HTTP_UPSERT,
            Action::SalesforceUpsert => &external::SALESFORCE_UPSERT,
            Action::HubspotUpsert => &external::HUBSPOT_UPSERT,
            Action::HubspotAssociate => &external::HUBSPOT_ASSOCIATE,
            Action::PostgresUpsert => &external::POSTGRES_UPSERT,
            Action::EmailSend => &external::EMAIL_SEND,
            Action::Script => &external::SCRIPT,
            Action::SlackPost => &external::SLACK_POST,
            Action::S3Put => &stores::S3_PUT,
            Action::SesSend => &stores::SES_SEND,
            Action::WebPushSend => &stores::WEB_PUSH_SEND,
            Action::FileAppend => &stores::FILE_APPEND,
            Action::ComputeDedupKey => &internal::COMPUTE_DEDUP_KEY,
            Action::StoreSetnx => &internal::STORE_SETNX,
            Action::QueuePull => &internal::QUEUE_PULL,
            Action::Queue => &internal::QUEUE,
            Action::SendTemplate => &external::SEND_TEMPLATE,
            Action::PolicyCheck => &internal::POLICY_CHECK,
            Action::ConsentSet => &internal::CONSENT_SET,
            Action::ApprovalRequest => &internal::APPROVAL_REQUEST,
            Action::EnrichCompany => &enrich::COMPANY,
            Action::EnrichGeoip => &enrich::GEOIP,
            Action::EnrichHttp => &enrich::HTTP,
            Action::Declared(declared) => declared.spec(),
        }
    }

    /// Value of `run:`.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The built-in action of this name.
    pub fn parse(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// True if a job waits for no destination to run the action: it has no effect outside. A lookup may read from a destination.
    pub fn is_internal(self) -> bool {
        self.spec().destination.is_empty() || self.is_lookup()
    }

    /// True if the action only looks something up. Its failure is a warning, never a failure of the job.
    pub fn is_lookup(self) -> bool {
        matches!(self, Action::EnrichCompany | Action::EnrichGeoip | Action::EnrichHttp)
    }

    /// Effect class, from `with:` as written.
    pub fn class(self, with: &Value) -> EffectClass {
        let text = |name: &str| with.get(name).and_then(Value::as_str);
        match self {
            Action::SalesforceUpsert | Action::HubspotUpsert | Action::HubspotAssociate => EffectClass::Natural,
            // Internal actions commit with the ledger.
            Action::PostgresUpsert
            | Action::ComputeDedupKey
            | Action::StoreSetnx
            | Action::QueuePull
            | Action::Queue => EffectClass::Transactional,
            Action::PolicyCheck | Action::ConsentSet | Action::ApprovalRequest => EffectClass::Transactional,
            Action::EnrichCompany | Action::EnrichGeoip | Action::EnrichHttp => EffectClass::Transactional,
            Action::EmailSend | Action::SendTemplate => EffectClass::Blind,
            Action::SlackPost | Action::FileAppend | Action::HttpUpsert => EffectClass::Verifiable,
            Action::S3Put => EffectClass::Natural,
            Action::SesSend | Action::WebPushSend => EffectClass::Blind,
            Action::Declared(declared) => declared.definition().class,
            Action::Script => text("class").and_then(EffectClass::parse).unwrap_or(EffectClass::Keyed),
            Action::HttpRequest => {
                if let Some(class) = text("class").and_then(EffectClass::parse) {
                    return class;
                }
                if with.get("idempotency_header").is_some() {
                    return EffectClass::Keyed;
                }
                if with.get("verify").is_some() {
                    return EffectClass::Verifiable;
                }
                match text("method").unwrap_or("POST") {
                    "GET" | "PUT" | "DELETE" => EffectClass::Natural,
                    _ => EffectClass::Blind,
                }
            }
        }
    }

    /// Effect class at this destination, which may protect less than the action allows: a message sent to an incoming
    /// webhook cannot be read back.
    pub fn class_at(self, with: &Value, destination: &DestinationKind) -> EffectClass {
        match destination {
            DestinationKind::Slack(SlackDestination { transport: SlackTransport::Webhook(_), .. }) => {
                EffectClass::Blind
            }
            DestinationKind::Declared(declared) if self == Action::SendTemplate => {
                declared.connector.mail_action().map_or(EffectClass::Blind, |mail| mail.definition().class)
            }
            _ => self.class(with),
        }
    }

    /// True if a destination of this type performs the action.
    pub fn accepts(self, destination: &DestinationKind) -> bool {
        match (self, destination) {
            (Action::Declared(own), DestinationKind::Declared(declared)) => {
                declared.connector.actions().any(|action| action == own)
            }
            (Action::SendTemplate, DestinationKind::Declared(declared)) => declared.connector.mail_action().is_some(),
            (Action::SendTemplate, DestinationKind::Ses(_)) => true,
            _ => destination.as_str() == self.spec().destination,
        }
    }

    /// True if the action sends a mail, to one or more addresses each written separately.
    pub fn is_mail(self) -> bool {
        match self {
            Action::EmailSend | Action::SesSend | Action::SendTemplate => true,
            Action::Declared(declared) => declared.definition().is_mail,
            _ => false,
        }
    }

    /// True if the author allows to send an effect with an unknown outcome again.
    pub fn resend_allowed(self, with: &Value) -> bool {
        with.get("resend").and_then(Value::as_str) == Some("allowed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn action_names_round_trip() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.name()), Some(action));
        }
        assert_eq!(Action::parse("http.reqeust"), None);
    }

    #[test]
    fn post_without_a_key_is_blind_and_put_is_natural() {
        let class = |with: Value| Action::HttpRequest.class(&with);
        assert_eq!(class(json!({"url": "/x"})), EffectClass::Blind);
        assert_eq!(class(json!({"url": "/x", "method": "PUT"})), EffectClass::Natural);
        assert_eq!(class(json!({"url": "/x", "idempotency_header": "Idempotency-Key"})), EffectClass::Keyed);
        assert_eq!(class(json!({"url": "/x", "verify": {"url": "/y"}})), EffectClass::Verifiable);
        assert_eq!(class(json!({"url": "/x", "class": "natural"})), EffectClass::Natural);
    }

    #[test]
    fn an_identity_is_text_or_a_number_and_never_empty() {
        let identity = |value: Value| Action::HttpUpsert.record_identity(&json!({ "identity": value }));
        assert_eq!(identity(json!("a")).as_deref(), Some("a"));
        assert_eq!(identity(json!(17)).as_deref(), Some("17"));
        for nothing in [json!(null), json!(" "), json!(["a"]), json!({})] {
            assert_eq!(identity(nothing), None);
        }
        assert_eq!(Action::HttpRequest.record_identity(&json!({ "identity": "a" })), None);
        assert!(Action::HttpUpsert.looks_first() && !Action::HttpRequest.looks_first());
    }

    #[test]
    fn script_is_keyed_by_default() {
        let class = |with: Value| Action::Script.class(&with);
        assert_eq!(class(json!({"script": "1"})), EffectClass::Keyed);
        assert_eq!(class(json!({"script": "1", "class": "blind"})), EffectClass::Blind);
    }

    #[test]
    fn slack_webhook_is_blind_and_slack_token_is_verifiable() {
        let at = |transport| {
            let destination =
                DestinationKind::Slack(SlackDestination { base_url: String::new(), transport, signing_secret: None });
            Action::SlackPost.class_at(&json!({"text": "x"}), &destination)
        };
        assert_eq!(at(SlackTransport::Webhook("https://hooks.example/x".into())), EffectClass::Blind);
        assert_eq!(at(SlackTransport::Token("xoxb".into())), EffectClass::Verifiable);
    }
}
