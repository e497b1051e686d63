//! Supply an identity for a quarantined event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::contact::{Conflict, ContactRules, SuppliedBy, SuppliedIdentity};
use sluice_domain::event::Event;
use sluice_domain::flow::Flow;
use sluice_ledger::{EventRecord, Identified, IdentifyEvent};
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::EventDetail;

/// Says whose event it is. The event stays as it was sent; the identity is recorded beside it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentifyRequest {
    /// Identity fields, such as `email`, `phone` or `external_id`, with their values.
    pub identity: BTreeMap<String, String>,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    /// Releases an event that is quarantined without an identity, or with conflicting ones.
    pub async fn identify_event(&self, id: &str, request: IdentifyRequest) -> Result<EventDetail, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "identifying an event needs a reason")?;
        let record = self.find(id).await?;
        let event = self.normalized_event(&record).await?;
        let (actor, at) = (self.actor(&request.actor), self.clock.ledger_time());
        let Some(pinned) = self.revisions.get(&record.revision, &self.ledger).await else {
            return Err(OperateError::NotFound(format!("the configuration {} is not known any more", record.revision)));
        };
        let Some(rules) = &pinned.config.contacts else {
            let detail = "the configuration of this event keeps no contacts; replay or drop the event".to_owned();
            return Err(OperateError::Refused("contacts-not-kept", detail));
        };
        let flow = pinned.config.flows.get(&*record.flow);
        let named = request.identity.iter().map(|(name, text)| (field(rules, flow, name), text.clone()));
        let (observation, identity) =
            rules.supply(&event, &named.collect()).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
        let mut identified = event.clone();
        identified.identity.extend(identity.clone());
        let by = SuppliedBy::Operator { actor, reason: request.reason };
        let mapping_version = event.audit.mapping_version;
        let supplied = SuppliedIdentity { identity, by, mapping_version, at };
        let identify =
            IdentifyEvent { seq: record.seq, observation, supplied, contact: identified.contact(), outputs: vec![] };
        done(self.ledger.identify(identify).await?)?;
        self.metrics.released("operator", 1);
        self.event(&record.id.to_string(), None).await
    }

    async fn normalized_event(&self, record: &EventRecord) -> Result<Event, OperateError> {
        let body = self.ledger.events(vec![record.seq]).await?.pop().and_then(|(_, body)| body);
        let Some(body) = body.filter(|body| !body.is_removed()) else {
            let detail = "the body of the event has been deleted by retention".to_owned();
            return Err(OperateError::Refused("body-deleted", detail));
        };
        serde_json::from_str(&body.normalized)
            .map_err(|error| OperateError::Invalid(format!("the event cannot be read: {error}")))
    }
}

/// The identity field that is meant: under the name that the flow maps, if there are several for one thing.
fn field(rules: &ContactRules, flow: Option<&std::sync::Arc<Flow>>, name: &str) -> String {
    let candidates: &[&str] = match name {
        "phone" => &["phone", "phone_e164"],
        "external_id" => &["external_id", "contact_external_id"],
        _ => return name.to_owned(),
    };
    let is_known = |candidate: &&&str| rules.identifiers.iter().any(|rule| rule.field == ***candidate);
    let is_mapped = |candidate: &&&str| {
        flow.is_some_and(|flow| flow.event.identity.iter().any(|(mapped, _)| mapped == **candidate))
    };
    let known: Vec<&&str> = candidates.iter().filter(is_known).collect();
    let chosen = known.iter().copied().find(|candidate| is_mapped(candidate)).or(known.first().copied());
    chosen.map_or_else(|| name.to_owned(), |chosen| (*chosen).to_owned())
}

fn done(identified: Identified) -> Result<(), OperateError> {
    Err(match identified {
        Identified::Done(_) => return Ok(()),
        Identified::NotFound => OperateError::NotFound("the event has been deleted".to_owned()),
        Identified::NotWaiting => OperateError::Refused(
            "not-quarantined",
            "no job of the event waits for an identity: it has one already, or was replayed or dropped".to_owned(),
        ),
        Identified::Conflict(conflicts) => OperateError::Refused("identity-conflict", conflict_text(&conflicts)),
    })
}

pub(super) fn conflict_text(conflicts: &[Conflict]) -> String {
    let reasons: Vec<String> = conflicts.iter().map(reason).collect();
    format!("these identifiers lead to different contacts: {}; give those of one", reasons.join(", "))
}

fn reason(conflict: &Conflict) -> String {
    match conflict.other() {
        Some(other) => format!("{} belongs to {other}", conflict.kind),
        None => format!("the contact has another {}", conflict.kind),
    }
}
