//! Contacts and what happened to them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::contact::{Register, SuppliedBy};
use sluice_domain::mask;
use sluice_ledger::{ContactRecord, IdentityRecord};
use utoipa::ToSchema;

/// One person, whichever sources speak of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContactView {
    /// Such as `con_17`.
    pub id: String,
    /// The contact that this one is part of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub merged_into: Option<String>,
    /// Contacts that are merged into this one.
    pub members: Vec<String>,
    pub created_at: String,
    pub fields: Vec<ContactFieldView>,
    /// Identifiers that were kept apart.
    pub conflicts: Vec<ConflictView>,
    /// Events whose identity was supplied after they were accepted, newest first. Only of a single contact.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub identified_later: Vec<IdentifiedView>,
}

/// Identity that was supplied for an event after it was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct IdentifiedView {
    /// `evt_…`
    pub event: String,
    pub contact: String,
    pub at: String,
    /// `event`, `operator` or `enrichment`.
    #[serde(default)]
    pub how: String,
    /// The later event, the operator, or the lookup as WORKER.STEP.
    pub by: String,
    /// Of the operator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Names of the identity fields.
    pub fields: Vec<String>,
    /// Version of the mapping that produced the values.
    pub mapping_version: String,
}

impl IdentifiedView {
    pub(in crate::operate) fn new(record: &IdentityRecord) -> IdentifiedView {
        let supplied = record.supplied.as_ref();
        let (by, reason) = match supplied.map(|supplied| &supplied.by) {
            Some(SuppliedBy::Event(id)) => (id.clone(), None),
            Some(SuppliedBy::Operator { actor, reason }) => (actor.clone(), Some(reason.clone())),
            Some(SuppliedBy::Enrichment { worker, step }) => (format!("{worker}.{step}"), None),
            None => (String::new(), None),
        };
        IdentifiedView {
            event: record.event.to_string(),
            contact: record.contact.to_string(),
            at: record.at.to_string(),
            how: supplied.map_or_else(String::new, |supplied| supplied.by.kind().to_owned()),
            by,
            reason,
            fields: supplied.map_or_else(Vec::new, |supplied| supplied.identity.keys().cloned().collect()),
            mapping_version: supplied.map_or_else(String::new, |supplied| supplied.mapping_version.clone()),
        }
    }
}

/// Field of a contact with every value that is kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContactFieldView {
    /// Such as `identity.email`.
    pub name: String,
    /// The value that counts comes first.
    pub values: Vec<ContactValueView>,
}

/// Value of a field, masked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContactValueView {
    pub value: Value,
    pub source: String,
    pub trust: u8,
    pub occurred_at: String,
    /// Why it does not count; absent for the value that does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
}

/// Identifier that could not be linked to the contact of its event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConflictView {
    /// Such as `email`.
    pub kind: String,
    /// The contact that it belongs to; absent if the contact has another one of this kind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub other: Option<String>,
}

impl ContactView {
    pub fn new(record: &ContactRecord) -> ContactView {
        let conflicts = record.state.conflicts().map(|(_, conflict)| ConflictView {
            kind: conflict.kind.clone(),
            other: conflict.other().map(|other| other.to_string()),
        });
        ContactView {
            id: record.id.to_string(),
            merged_into: record.merged_into.map(|parent| parent.to_string()),
            members: record.members.iter().skip(1).map(ToString::to_string).collect(),
            created_at: record.created_at.to_string(),
            fields: record.state.fields().map(|(name, registers)| field(name, registers)).collect(),
            conflicts: conflicts.collect(),
            identified_later: vec![],
        }
    }
}

fn field(name: &str, registers: &[Register]) -> ContactFieldView {
    let value = |register: &Register| ContactValueView {
        value: mask::member(name, &register.value),
        source: register.source.to_string(),
        trust: register.trust,
        occurred_at: register.occurred_at.to_string(),
        lost: registers
            .first()
            .filter(|winner| *winner != register)
            .map(|winner| register.lost_to(winner).describe().to_owned()),
    };
    ContactFieldView { name: name.to_owned(), values: registers.iter().map(value).collect() }
}

/// Everything that happened to an event or a person, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TraceView {
    /// The contact, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contact: Option<ContactView>,
    /// Oldest first.
    pub entries: Vec<TraceEntry>,
    /// There are older events than those that are shown.
    pub more: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct TraceEntry {
    pub at: String,
    /// `event`, `duplicate`, `identity`, `variant`, `field`, `job`, `lookup`, `effect`, `attempt`, `approval` or `audit`.
    pub kind: String,
    /// Id of the event, job or approval.
    pub id: String,
    pub what: String,
    /// Command that shows more.
    pub command: String,
}
