//! Maps a payload to an event.

use serde_json::{Map, Value};

use super::{Audit, Converted, Event, EventId, FieldMapping, MappingWarning, into_scalar, read_time};
use crate::path::Path;
use crate::template::{Scope, Template, TemplateProblem};
use crate::time::Time;

/// The `event:` section of a flow: how a payload becomes an event.
#[derive(Clone, Debug)]
pub struct EventMapping {
    /// Copied into every event.
    pub schema_version: String,
    /// Copied into every event; change it whenever the mapping changes.
    pub mapping_version: String,
    pub event_type: Template,
    /// The source's own id of the event.
    pub source_event_id: Option<Template>,
    pub occurred_at: Option<Template>,
    /// Person or thing that the event is about.
    pub identity: Vec<(String, FieldMapping)>,
    /// The whole body if `None`.
    pub attributes: Option<Vec<(String, FieldMapping)>>,
    pub routing: Vec<(String, FieldMapping)>,
    /// Fields that must have a value: their text and their path into the event.
    pub required: Vec<(String, Path)>,
}

impl EventMapping {
    /// Mapping of a flow without an `event:` section: the body becomes the attributes.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingProblem {
    #[error("missing required fields: {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("{at}: {problem}")]
    Expression {
        /// Key of the mapping.
        at: String,
        problem: TemplateProblem,
    },
    /// The mapped value has the wrong type.
    #[error("{at}: {message}")]
    Value {
        /// Key of the mapping.
        at: String,
        message: String,
    },
}

/// Renders one value of a section.
type Render = fn(&FieldMapping, &Scope) -> Result<Converted, TemplateProblem>;

/// Inputs of the mapping besides the payload.
#[derive(Clone, Copy, Debug)]
pub struct EventOrigin<'a> {
    pub source: &'a str,
    pub idempotency_key: &'a str,
    pub id: EventId,
    /// Time of arrival of the request.
    pub received_at: Time,
}

impl EventMapping {
    /// Event of a payload that cannot be mapped, for an operator to inspect: it holds the payload and nothing else.
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
        let mapping_version = self.mapping_version.clone();
        let mut audit = Audit { received_at: origin.received_at, mapping_version, ..Audit::default() };
        audit.locate(origin.id);
        audit
    }

    /// Maps a payload. `scope` holds `body` and `headers`.
    pub fn apply(&self, scope: &Scope, origin: EventOrigin<'_>) -> Result<Event, MappingProblem> {
        let value = |at: &str, template: &Template| {
            template.render_plain(scope).map_err(|problem| MappingProblem::Expression { at: at.to_owned(), problem })
        };
        let mut audit = self.audit(origin);
        let mut section = |at: &str, entries: &[(String, FieldMapping)], render: Render| {
            let mut map = Map::with_capacity(entries.len());
            for (name, field) in entries {
                let Converted { value, loss } = render(field, scope)
                    .map_err(|problem| MappingProblem::Expression { at: format!("{at}.{name}"), problem })?;
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    map.insert(name.clone(), value);
                }
                audit.warnings.extend(loss.map(|code| MappingWarning { field: format!("{at}.{name}"), code }));
            }
            Ok::<_, MappingProblem>(map)
        };
        let event_type = value("type", &self.event_type)?.and_then(into_scalar);
        let event_type = event_type.ok_or_else(|| MappingProblem::Missing(vec!["type".into()]))?;
        let source_event_id = match &self.source_event_id {
            Some(template) => template
                .render_identity(scope)
                .map_err(|problem| MappingProblem::Expression { at: "id".to_owned(), problem })?
                .and_then(into_scalar),
            None => None,
        };
        let occurred_at = self.occurred_at(scope)?;
        let attributes = match &self.attributes {
            Some(entries) => section("attributes", entries, FieldMapping::render)?,
            None => match scope.get("body") {
                Some(Value::Object(body)) => body.clone(),
                Some(other) => Map::from_iter([("body".to_owned(), other.clone())]),
                None => Map::new(),
            },
        };
        let identity = section("identity", &self.identity, FieldMapping::render_identity)?;
        let routing = section("routing", &self.routing, FieldMapping::render)?;
        let event = Event {
            schema_version: self.schema_version.clone(),
            event_id: format!("{}:{}", origin.source, source_event_id.as_deref().unwrap_or(origin.idempotency_key)),
            event_type,
            source: origin.source.to_owned(),
            occurred_at,
            idempotency_key: origin.idempotency_key.to_owned(),
            identity,
            attributes,
            routing,
            audit,
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

    fn occurred_at(&self, scope: &Scope) -> Result<Option<Time>, MappingProblem> {
        let Some(template) = &self.occurred_at else { return Ok(None) };
        let value = template.render_plain(scope);
        let value = value.map_err(|problem| MappingProblem::Expression { at: "occurred_at".into(), problem })?;
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        match (read_time(&value), template) {
            (Some(time), _) => Ok(Some(time)),
            // A preset describes a sender in general; an event that deviates from it is accepted without a time.
            (None, Template::Coalesce(_)) => Ok(None),
            (None, _) => Err(MappingProblem::Value {
                at: "occurred_at".into(),
                message: format!("{value} is not a time; use RFC 3339 text or a Unix time in seconds or milliseconds"),
            }),
        }
    }
}
