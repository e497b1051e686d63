//! Events that were quarantined because nothing identifies their contact, and the identity that is supplied for them later: by an
//! event of the same source with the same link, such as a session id, by a lookup of its worker, or by an operator. Nothing else links
//! two events.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rules::is_placeholder;
use super::{ContactRules, Observation, ObservedValue};
use crate::event::{Event, scalar};
use crate::job::JobState;
use crate::key::{KeyDigest, TENANT};
use crate::outcome::FailureClass;
use crate::record::JobRecord;
use crate::time::Time;

/// Failure code of an event that has no identifier of a contact.
pub const IDENTITY_MISSING: &str = "identity-missing";
/// Failure code of an event whose identifiers belong to several contacts.
pub const IDENTITY_CONFLICT: &str = "identity-conflict";

/// Actor of the releases that no operator makes.
pub const RELEASE_ACTOR: &str = "contacts";

/// Events that wait under one link, at most. Bounds what one accept releases.
pub const WAITING_PER_LINK_MAX: usize = 32;
/// Events that wait in all, at most. Bounds the memory that links take.
pub const WAITING_EVENTS_MAX: usize = 100_000;
/// How long an event waits for an identity, unless the link says otherwise.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
pub const WAIT_MAX: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Length of a value that links events. A longer one links none.
const LINK_BYTES_MAX: usize = 512;

/// A field whose value links events of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelationRule {
    /// Name of an identity field or an attribute.
    pub field: String,
    /// How long an event without an identity waits under the link.
    pub within: Duration,
}

/// A value that events of one source share. The value itself is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub digest: KeyDigest,
    /// Until when an event without an identity waits under it.
    pub expires_at: Time,
}

/// What links an event with others of its source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Correlation {
    pub links: Vec<Link>,
    /// Identity fields that the event supplies to those that wait. Empty if it has no identifier: then it waits itself.
    pub identity: Map<String, Value>,
    /// Version of the mapping that produced the event.
    pub mapping_version: String,
}

/// Who supplied an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuppliedBy {
    /// Id of a later event.
    Event(String),
    Operator {
        actor: String,
        reason: String,
    },
    /// A lookup of a worker of the event.
    Enrichment {
        worker: String,
        step: String,
    },
}

/// Times that the lookups of a quarantined event are made, if they fail for a reason that may pass.
pub const IDENTITY_LOOKUPS_MAX: u32 = 8;
/// Before the second time; then four times as long each time, 15 hours in all.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);

/// How long the lookups of an event wait after they failed so many times. `None` if they are not made again.
pub fn look_up_again_after(tries: u32) -> Option<Duration> {
    let factor = 4_u32.checked_pow(tries.saturating_sub(1))?;
    (tries < IDENTITY_LOOKUPS_MAX).then(|| LOOK_UP_AGAIN.saturating_mul(factor))
}

impl SuppliedBy {
    /// How an event was released, as a metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            SuppliedBy::Event(_) => "event",
            SuppliedBy::Operator { .. } => "operator",
            SuppliedBy::Enrichment { .. } => "enrichment",
        }
    }

    /// Who released an event and why, for the audit trail.
    pub fn audit(&self) -> (&str, String) {
        match self {
            SuppliedBy::Event(id) => (RELEASE_ACTOR, format!("by the later event {id}")),
            SuppliedBy::Operator { actor, reason } => (actor, reason.clone()),
            SuppliedBy::Enrichment { worker, step } => {
                (RELEASE_ACTOR, format!("by the lookup `{step}` of the worker `{worker}`"))
            }
        }
    }
}

/// An identity that was supplied for an event after it was accepted. The event itself stays as it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuppliedIdentity {
    /// Identity fields with their values. They count instead of those that were sent.
    pub identity: Map<String, Value>,
    pub by: SuppliedBy,
    /// Version of the mapping that produced the values: of the later event, or of the event itself.
    pub mapping_version: String,
    pub at: Time,
}

impl SuppliedIdentity {
    /// The normalized event with the identity. A text that is not an event is returned as it is.
    pub fn apply(&self, normalized: &str) -> String {
        let Ok(mut event) = serde_json::from_str::<Map<String, Value>>(normalized) else {
            return normalized.to_owned();
        };
        let identity = event.entry("identity").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(members) = identity {
            members.extend(self.identity.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        Value::Object(event).to_string()
    }
}

/// Whether a job was quarantined with its event until an identity is known. It has made no attempt: a connector that misses an
/// identity fails otherwise.
pub fn awaits_identity(job: &JobRecord) -> bool {
    let is_identity = |code: &str| matches!(code, IDENTITY_MISSING | IDENTITY_CONFLICT);
    let failure = job.failure.as_ref().filter(|failure| failure.class == FailureClass::Identity);
    job.state == JobState::Dead && job.attempts_total == 0 && failure.is_some_and(|failure| is_identity(&failure.code))
}

/// Why an identity cannot be supplied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SupplyProblem {
    #[error("`{field}` identifies no contact; the identifiers are {known}")]
    UnknownField { field: String, known: String },
    #[error("the value of `{field}` identifies no one{hint}")]
    Unusable { field: String, hint: &'static str },
    #[error("an identity is needed: {known}")]
    Empty { known: String },
}

impl ContactRules {
    /// What links an event with others of its source. `None` if nothing does.
    pub(super) fn correlation(&self, event: &Event) -> Option<Box<Correlation>> {
        let links: Vec<Link> = self.correlate.iter().filter_map(|rule| rule.link(event)).collect();
        if links.is_empty() {
            return None;
        }
        let usable = |rule: &&super::IdentifierRule| {
            let value = event.identity.get(&rule.field);
            value.is_some_and(|value| rule.identifier_of(&event.source, value).is_some())
        };
        let supplied = self.identifiers.iter().filter(usable);
        let identity =
            supplied.filter_map(|rule| Some((rule.field.clone(), event.identity.get(&rule.field)?.clone()))).collect();
        Some(Box::new(Correlation { links, identity, mapping_version: event.audit.mapping_version.clone() }))
    }

    /// What an event says that identifies no contact. Its identifier fields have no usable value, and a value that arrived first
    /// would stay: they say nothing.
    pub fn observe_unidentified(&self, event: &Event) -> Observation {
        let mut observation = self.observe(event);
        observation.identifiers.clear();
        let is_identifier = |value: &ObservedValue| {
            let name = value.field.strip_prefix("identity.");
            name.is_some_and(|name| self.identifiers.iter().any(|rule| rule.field == name))
        };
        observation.values.retain(|value| !is_identifier(value));
        observation
    }

    /// What an event says once a lookup has found these identity fields, and their values in normalized form. Fields that identify
    /// no contact are left out; `None` if none is left.
    pub fn supply_found(
        &self,
        event: &Event,
        found: &BTreeMap<String, String>,
    ) -> Option<(Observation, Map<String, Value>)> {
        let usable = |field: &str, text: &str| {
            let rule = self.identifiers.iter().find(|rule| rule.field == field);
            rule.is_some_and(|rule| rule.normalized(text).is_some())
        };
        let found = found.iter().filter(|(field, text)| usable(field, text));
        let found: BTreeMap<String, String> = found.map(|(field, text)| (field.clone(), text.clone())).collect();
        self.supply(event, &found).ok()
    }

    /// What an event says once these identity fields were supplied, and their values in normalized form.
    pub fn supply(
        &self,
        event: &Event,
        identity: &BTreeMap<String, String>,
    ) -> Result<(Observation, Map<String, Value>), SupplyProblem> {
        let known = || self.identifiers.iter().map(|rule| rule.field.as_str()).collect::<Vec<_>>().join(", ");
        if identity.is_empty() {
            return Err(SupplyProblem::Empty { known: known() });
        }
        if let Some(field) = identity.keys().find(|field| !self.identifiers.iter().any(|rule| rule.field == **field)) {
            return Err(SupplyProblem::UnknownField { field: field.clone(), known: known() });
        }
        let mut observation = self.observe_unidentified(event);
        let mut supplied = Map::new();
        for rule in &self.identifiers {
            let Some(text) = identity.get(&rule.field) else { continue };
            let unusable = || SupplyProblem::Unusable { field: rule.field.clone(), hint: rule.hint() };
            let value = Value::String(rule.normalized(text).ok_or_else(unusable)?);
            let identifier = rule.identifier(&event.source, text).ok_or_else(unusable)?;
            if !observation.identifiers.contains(&identifier) {
                observation.identifiers.push(identifier);
            }
            observation.values.push(ObservedValue {
                field: format!("identity.{}", rule.field),
                value: value.clone(),
                trust: self.trust(&event.source, &rule.field),
                guarded: !self.replaceable.contains(&rule.field),
            });
            supplied.insert(rule.field.clone(), value);
        }
        Ok((observation, supplied))
    }
}

impl CorrelationRule {
    /// The link of an event. An event of another source has another one.
    fn link(&self, event: &Event) -> Option<Link> {
        let value = event.identity.get(&self.field).or_else(|| event.attributes.get(&self.field))?;
        let text = scalar(value).filter(|_| !value.is_boolean())?;
        let text = text.trim();
        if text.len() > LINK_BYTES_MAX || is_placeholder(text) {
            return None;
        }
        let kind = format!("link:{} of {}", self.field, event.source);
        let expires_at = event.audit.received_at + self.within;
        Some(Link { digest: KeyDigest::new(TENANT, &kind, text), expires_at })
    }
}

#[cfg(test)]
#[path = "late_identity_tests.rs"]
mod tests;
