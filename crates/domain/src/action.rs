//! The catalogue of actions that a step may run: a closed list, as data.
//!
//! `sluice check`, the reference page and the connectors all read this one table.

use serde_json::Value;

use crate::outcome::EffectClass;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `http.request`
    HttpRequest,
    /// `salesforce.upsert`
    SalesforceUpsert,
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
    /// The `type:` of destination that it needs.
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
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
    /// One sentence for the reference.
    pub about: &'static str,
}

/// What a parameter's value may be. A template is allowed wherever a scalar is.
#[derive(Debug, PartialEq, Eq)]
pub enum Shape {
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
}

const fn parameter(name: &'static str, shape: Shape, required: bool, about: &'static str) -> Parameter {
    Parameter { name, shape, required, about }
}

static HTTP_REQUEST: Spec = Spec {
    name: "http.request",
    about: "Sends one HTTP request. Any 2xx is success; the answer is the step's output.",
    destination: "http",
    destination_required: false,
    parameters: &[
        parameter("method", Shape::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]), false, "The method; POST when left out."),
        parameter("url", Shape::Text, true, "Absolute, or relative to the destination's base_url."),
        parameter("headers", Shape::Map, false, "More request headers."),
        parameter("query", Shape::Map, false, "Query parameters, percent-encoded for you."),
        parameter("json", Shape::Any, false, "The body as JSON."),
        parameter("form", Shape::Map, false, "The body as a form."),
        parameter("text", Shape::Text, false, "The body as plain text."),
        parameter(
            "idempotency_header",
            Shape::Text,
            false,
            "Says that the destination recognises a repeated key in this header; the effect's key is sent in it. Makes the effect keyed.",
        ),
        parameter(
            "verify",
            Shape::Map,
            false,
            "A GET (url, headers) that answers 2xx when the effect is there and 404 when it is not. Makes the effect verifiable.",
        ),
        parameter(
            "class",
            Shape::OneOf(&["natural", "keyed", "verifiable", "blind"]),
            false,
            "What the destination does with a repeat, when the method does not say it: natural means that a repeat changes nothing.",
        ),
        parameter("repeat", Shape::OneOf(&["allowed", "never"]), false, "allowed: an unknown outcome is sent again, so the effect may happen twice."),
        parameter("accept_status", Shape::Numbers, false, "More statuses that count as success."),
        parameter("timeout", Shape::Duration, false, "Shorter than the destination's own."),
    ],
};

static SALESFORCE_UPSERT: Spec = Spec {
    name: "salesforce.upsert",
    about: "Creates or updates one record by a unique external id. Its output has id and created.",
    destination: "salesforce",
    destination_required: true,
    parameters: &[
        parameter("object", Shape::Text, true, "The object, such as Lead or Contact."),
        parameter("external_id_field", Shape::Text, true, "A field that is both External ID and Unique."),
        parameter("external_id", Shape::Text, true, "Its value: who this is. Empty means the job is dead for want of an identity."),
        parameter("fields", Shape::Map, true, "Field names to values; a null clears a field, an undefined one is left out."),
        parameter("mode", Shape::OneOf(&["upsert", "update_only"]), false, "update_only never creates; an absent record is then a recorded no-op."),
    ],
};

impl Action {
    /// Every action.
    pub const ALL: [Action; 2] = [Action::HttpRequest, Action::SalesforceUpsert];

    /// Its row in the catalogue.
    pub fn spec(self) -> &'static Spec {
        match self {
            Action::HttpRequest => &HTTP_REQUEST,
            Action::SalesforceUpsert => &SALESFORCE_UPSERT,
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

    /// How a repeat of this effect is answered, from `with:` as it was written.
    pub fn class(self, with: &Value) -> EffectClass {
        match self {
            Action::SalesforceUpsert => EffectClass::Natural,
            Action::HttpRequest => {
                let text = |name: &str| with.get(name).and_then(Value::as_str);
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

    /// Whether the author said that an unknown outcome may be sent again.
    pub fn repeat_allowed(self, with: &Value) -> bool {
        with.get("repeat").and_then(Value::as_str) == Some("allowed")
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
}
