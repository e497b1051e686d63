//! How a payload becomes an event.

use serde_json::{Map, Value};

use super::{Audit, Event, EventId, into_scalar, read_time};
use crate::path::Path;
use crate::template::{Scope, Template, TemplateProblem};
use crate::time::Time;

/// How a payload becomes an event: the flow's `event:` section.
#[derive(Clone, Debug)]
pub struct EventMapping {
    /// Stands in every event.
    pub schema_version: String,
    /// Stands in every event; change it whenever the mapping changes.
    pub mapping_version: String,
    /// What happened.
    pub event_type: Template,
    /// The source's own id.
    pub source_event_id: Option<Template>,
    /// When it happened.
    pub occurred_at: Option<Template>,
    /// Who it is about.
    pub identity: Vec<(String, Template)>,
    /// What is said; the whole body when left out.
    pub attributes: Option<Vec<(String, Template)>>,
    /// Where it should go.
    pub routing: Vec<(String, Template)>,
    /// What must be there, as paths into the event.
    pub required: Vec<(String, Path)>,
}

impl EventMapping {
    /// The mapping of a flow without an `event:` section: the body is taken as it is.
    pub fn plain(event_type: &str) -> EventMapping {
        EventMapping {
            schema_version: "1.0".into(),
            mapping_version: "1".into(),
            event_type: Template::Literal(Value::String(event_type.into())),
            source_event_id: None,
            occurred_at: None,
            identity: vec![],
            attributes: None,
            routing: vec![],
            required: vec![],
        }
    }
}

/// Why a payload could not become an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingProblem {
    /// Required fields that are not there.
    #[error("required and not there: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// An expression failed.
    #[error("{at}: {problem}")]
    Expression {
        /// The line of the mapping.
        at: String,
        /// What went wrong.
        problem: TemplateProblem,
    },
    /// A field of the shape got a value of another kind.
    #[error("{at}: {message}")]
    Value {
        /// The line of the mapping.
        at: String,
        /// What is wrong.
        message: String,
    },
}

/// What the mapping needs to know beside the payload.
#[derive(Clone, Copy, Debug)]
pub struct EventOrigin<'a> {
    /// Who sent it.
    pub source: &'a str,
    /// The key that it was accepted under.
    pub idempotency_key: &'a str,
    /// Our id.
    pub id: EventId,
    /// When its request arrived.
    pub received_at: Time,
}

impl EventMapping {
    /// The event of a payload that cannot be mapped, for a person to look at: nothing of it is known but the payload.
    pub fn unmapped(&self, scope: &Scope, origin: EventOrigin<'_>) -> Event {
        let event_type = self.event_type.render_plain(scope).ok().flatten().and_then(into_scalar);
        let body = scope.get("body").cloned().unwrap_or(Value::Null);
        Event {
            schema_version: self.schema_version.clone(),
            event_id: format!("{}:{}", origin.source, origin.idempotency_key),
            event_type: event_type.unwrap_or_else(|| "unknown".to_owned()),
            source: origin.source.to_owned(),
            occurred_at: None,
            idempotency_key: origin.idempotency_key.to_owned(),
            identity: Map::new(),
            attributes: match body {
                Value::Object(members) => members,
                other => Map::from_iter([("body".to_owned(), other)]),
            },
            routing: Map::new(),
            audit: self.audit(origin),
        }
    }

    fn audit(&self, origin: EventOrigin<'_>) -> Audit {
        Audit {
            received_at: origin.received_at,
            raw_event_ref: format!("ledger://events/{}/raw", origin.id),
            mapping_version: self.mapping_version.clone(),
        }
    }

    /// Makes the event. `scope` holds `body` and `headers`.
    pub fn apply(&self, scope: &Scope, origin: EventOrigin<'_>) -> Result<Event, MappingProblem> {
        let value = |at: &str, template: &Template| {
            template.render_plain(scope).map_err(|problem| MappingProblem::Expression { at: at.to_owned(), problem })
        };
        let section = |at: &str, entries: &[(String, Template)]| -> Result<Map<String, Value>, MappingProblem> {
            let mut map = Map::with_capacity(entries.len());
            for (name, template) in entries {
                let value = template
                    .render_plain(scope)
                    .map_err(|problem| MappingProblem::Expression { at: format!("{at}.{name}"), problem })?;
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    map.insert(name.clone(), value);
                }
            }
            Ok(map)
        };
        let event_type = value("type", &self.event_type)?.and_then(into_scalar);
        let event_type = event_type.ok_or_else(|| MappingProblem::Missing(vec!["type".into()]))?;
        let source_event_id = match &self.source_event_id {
            Some(template) => value("id", template)?.and_then(into_scalar),
            None => None,
        };
        let occurred_at = match &self.occurred_at {
            Some(template) => match value("occurred_at", template)? {
                None | Some(Value::Null) => None,
                // What is known of a sender in general must not turn away the event that differs.
                Some(at) if matches!(template, Template::Coalesce(_)) => read_time(&at),
                Some(at) => Some(read_time(&at).ok_or_else(|| MappingProblem::Value {
                    at: "occurred_at".into(),
                    message: format!("{at} is not a time; RFC 3339 text or a Unix time in seconds or milliseconds is"),
                })?),
            },
            None => None,
        };
        let attributes = match &self.attributes {
            Some(entries) => section("attributes", entries)?,
            None => match scope.get("body") {
                Some(Value::Object(body)) => body.clone(),
                Some(other) => Map::from_iter([("body".to_owned(), other.clone())]),
                None => Map::new(),
            },
        };
        let event = Event {
            schema_version: self.schema_version.clone(),
            event_id: format!("{}:{}", origin.source, source_event_id.as_deref().unwrap_or(origin.idempotency_key)),
            event_type,
            source: origin.source.to_owned(),
            occurred_at,
            idempotency_key: origin.idempotency_key.to_owned(),
            identity: section("identity", &self.identity)?,
            attributes,
            routing: section("routing", &self.routing)?,
            audit: self.audit(origin),
        };
        if !self.required.is_empty() {
            let missing: Vec<String> =
                self.required.iter().filter(|(_, path)| !event.has(path)).map(|(text, _)| text.clone()).collect();
            if !missing.is_empty() {
                return Err(MappingProblem::Missing(missing));
            }
        }
        Ok(event)
    }
}
