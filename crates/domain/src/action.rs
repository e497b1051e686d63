//! The catalogue of actions that a step may run: a closed list, as data.
//!
//! `sluice check`, the reference page and the connectors all read this one table.

mod external;
mod internal;

use serde_json::Value;

use crate::destination::{DestinationKind, SlackDestination, SlackTransport};
use crate::outcome::EffectClass;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `http.request`
    HttpRequest,
    /// `salesforce.upsert`
    SalesforceUpsert,
    /// `postgres.upsert`
    PostgresUpsert,
    /// `email.send`
    EmailSend,
    /// `script`
    Script,
    /// `slack.post`
    SlackPost,
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
}

/// One action, described.
#[derive(Debug)]
pub struct Spec {
    /// The word in `run:`.
    pub name: &'static str,
    /// One sentence for the reference.
    pub about: &'static str,
    /// What `with:` may hold.
    pub parameters: &'static [Parameter],
    /// The `type:` of destination that it needs; empty for an action that stays inside.
    pub destination: &'static str,
    /// Whether the destination must be configured, or a default one serves.
    pub destination_required: bool,
}

/// One key of `with:`.
#[derive(Debug)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// What its value may be.
    pub value_type: ParameterType,
    /// Whether it must be there.
    pub required: bool,
    /// One sentence for the reference.
    pub about: &'static str,
}

/// What a parameter's value may be. A template is allowed wherever a scalar is.
#[derive(Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// Text.
    Text,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Names to values.
    Map,
    /// Anything.
    Any,
    /// How long.
    Duration,
    /// A list of whole numbers.
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
    /// Every action.
    pub const ALL: [Action; 14] = [
        Action::HttpRequest,
        Action::SalesforceUpsert,
        Action::PostgresUpsert,
        Action::EmailSend,
        Action::Script,
        Action::SlackPost,
        Action::ComputeDedupKey,
        Action::StoreSetnx,
        Action::QueuePull,
        Action::Queue,
        Action::SendTemplate,
        Action::PolicyCheck,
        Action::ConsentSet,
        Action::ApprovalRequest,
    ];

    /// Its row in the catalogue.
    pub fn spec(self) -> &'static Spec {
        match self {
            Action::HttpRequest => &external::HTTP_REQUEST,
            Action::SalesforceUpsert => &external::SALESFORCE_UPSERT,
            Action::PostgresUpsert => &external::POSTGRES_UPSERT,
            Action::EmailSend => &external::EMAIL_SEND,
            Action::Script => &external::SCRIPT,
            Action::SlackPost => &external::SLACK_POST,
            Action::ComputeDedupKey => &internal::COMPUTE_DEDUP_KEY,
            Action::StoreSetnx => &internal::STORE_SETNX,
            Action::QueuePull => &internal::QUEUE_PULL,
            Action::Queue => &internal::QUEUE,
            Action::SendTemplate => &external::SEND_TEMPLATE,
            Action::PolicyCheck => &internal::POLICY_CHECK,
            Action::ConsentSet => &internal::CONSENT_SET,
            Action::ApprovalRequest => &internal::APPROVAL_REQUEST,
        }
    }

    /// The word in `run:`.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The action that this word names.
    pub fn parse(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Whether it stays inside: it has no destination and takes no slot of one.
    pub fn is_internal(self) -> bool {
        self.spec().destination.is_empty()
    }

    /// How a repeat of this effect is answered, from `with:` as it was written.
    pub fn class(self, with: &Value) -> EffectClass {
        let text = |name: &str| with.get(name).and_then(Value::as_str);
        match self {
            Action::SalesforceUpsert => EffectClass::Natural,
            // What stays inside commits with the ledger.
            Action::PostgresUpsert
            | Action::ComputeDedupKey
            | Action::StoreSetnx
            | Action::QueuePull
            | Action::Queue => EffectClass::Transactional,
            Action::PolicyCheck | Action::ConsentSet | Action::ApprovalRequest => EffectClass::Transactional,
            Action::EmailSend | Action::SendTemplate => EffectClass::Blind,
            Action::SlackPost => EffectClass::Verifiable,
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

    /// The same at this destination, which may protect less than the action could: nothing is read back from behind an
    /// incoming webhook.
    pub fn class_at(self, with: &Value, destination: &DestinationKind) -> EffectClass {
        match destination {
            DestinationKind::Slack(SlackDestination { transport: SlackTransport::Webhook(_), .. }) => {
                EffectClass::Blind
            }
            _ => self.class(with),
        }
    }

    /// Whether the author said that an unknown outcome may be sent again.
    pub fn resend_allowed(self, with: &Value) -> bool {
        with.get("resend").and_then(Value::as_str) == Some("allowed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_action_is_found_by_its_name() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.name()), Some(action));
        }
        assert_eq!(Action::parse("http.reqeust"), None);
    }

    #[test]
    fn a_post_without_a_key_is_blind_and_a_put_is_not() {
        let class = |with: Value| Action::HttpRequest.class(&with);
        assert_eq!(class(json!({"url": "/x"})), EffectClass::Blind);
        assert_eq!(class(json!({"url": "/x", "method": "PUT"})), EffectClass::Natural);
        assert_eq!(class(json!({"url": "/x", "idempotency_header": "Idempotency-Key"})), EffectClass::Keyed);
        assert_eq!(class(json!({"url": "/x", "verify": {"url": "/y"}})), EffectClass::Verifiable);
        assert_eq!(class(json!({"url": "/x", "class": "natural"})), EffectClass::Natural);
    }

    #[test]
    fn a_script_is_keyed_unless_its_author_says_otherwise() {
        let class = |with: Value| Action::Script.class(&with);
        assert_eq!(class(json!({"script": "1"})), EffectClass::Keyed);
        assert_eq!(class(json!({"script": "1", "class": "blind"})), EffectClass::Blind);
    }

    #[test]
    fn nothing_is_read_back_from_behind_a_webhook() {
        let at = |transport| {
            let there =
                DestinationKind::Slack(SlackDestination { base_url: String::new(), transport, signing_secret: None });
            Action::SlackPost.class_at(&json!({"text": "x"}), &there)
        };
        assert_eq!(at(SlackTransport::Webhook("https://hooks.example/x".into())), EffectClass::Blind);
        assert_eq!(at(SlackTransport::Token("xoxb".into())), EffectClass::Verifiable);
    }
}
