//! Edit an event and replay it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_domain::access::Permission;
use sluice_domain::contact::Conflict;
use sluice_domain::diff::FieldChange;
use sluice_domain::event_edit::{BusyJob, EditedEvent, EventEdit, REVISIONS_MAX, jobs_to_requeue};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::Reapply;
use sluice_ledger::{EditEvent, Edited, EventRecord, EventRevisionRecord};
use utoipa::ToSchema;

use super::identify::conflict_text;
use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::masked_change;
use crate::operate::views::{EditView, EventRevisionView};

/// An edit of an event. The event stays as it was accepted; the edit is a new revision of it, and its jobs run again with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditRequest {
    /// Values by path, such as `attributes.last_name`.
    #[schema(value_type = Object)]
    pub set: BTreeMap<String, Value>,
    /// Paths that are removed.
    pub remove: Vec<String>,
    /// Members of the event that replace the stored ones as a whole: `identity`, `attributes`, `routing`, `occurred_at`.
    #[schema(value_type = Object)]
    pub event: Map<String, Value>,
    /// Makes this revision the current one again, as a new revision; 0 is the event as it was accepted.
    pub restore: Option<u32>,
    /// The revision that is edited; another one by now is a conflict. The current one by default.
    pub base: Option<u32>,
    /// Classes of effects that are applied again although they are applied: natural and transactional by default.
    pub reapply: Option<Vec<String>>,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
    /// Report the result without changing anything.
    pub dry_run: bool,
}

impl Operator {
    /// Revisions of an event, the one that was accepted first.
    pub async fn event_revisions(&self, id: &str) -> Result<Vec<EventRevisionView>, OperateError> {
        let record = self.find(id).await?;
        let revisions = self.ledger.event_revisions(record.seq).await?;
        let last = revisions.last().map_or(0, |revision| revision.n);
        let read = |revision: &EventRevisionRecord| revision.normalized.as_deref().and_then(json);
        let mut before: Option<Value> = None;
        let mut views = Vec::with_capacity(revisions.len());
        for revision in &revisions {
            let value = read(revision);
            let changes = match (&before, &value) {
                (Some(before), Some(value)) => sluice_domain::diff::diff(before, value),
                _ => vec![],
            };
            let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            views.push(EventRevisionView {
                n: revision.n,
                at: revision.at.to_string(),
                actor: said(&revision.actor),
                reason: said(&revision.reason),
                changes: changes.into_iter().map(masked_change).collect(),
                current: revision.n == last,
            });
            before = value;
        }
        Ok(views)
    }

    /// Stores an edited event as a new revision, and requeues its jobs.
    pub async fn edit_event(&self, id: &str, request: EditRequest) -> Result<EditView, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "an edit needs a reason")?;
        let record = self.find(id).await?;
        let revisions = self.ledger.event_revisions(record.seq).await?;
        let Some(current) = revisions.last() else {
            return Err(OperateError::NotFound("the event has been deleted".to_owned()));
        };
        let base = request.base.unwrap_or(current.n);
        if base != current.n {
            return Err(outdated(current.n));
        }
        let Some(normalized) = &current.normalized else { return Err(body_deleted()) };
        let edited = edited(&request, normalized, &revisions)?;
        let order = self.edit_order(&record, &edited, &request, base).await?;
        let (revision, jobs) = match request.dry_run {
            true => (base + 1, self.editable_jobs(&record).await?),
            false => done(self.ledger.edit_event(order).await?)?,
        };
        Ok(EditView {
            event_id: record.id.to_string(),
            revision,
            changes: edited.changes.into_iter().map(masked_change).collect(),
            jobs: jobs.iter().map(JobId::to_string).collect(),
            dry_run: request.dry_run,
        })
    }

    async fn editable_jobs(&self, record: &EventRecord) -> Result<Vec<JobId>, OperateError> {
        jobs_to_requeue(&self.ledger.jobs_of_event(record.clone()).await?).map_err(busy)
    }

    /// What the edited event says about its contact follows from the rules of its own revision.
    async fn edit_order(
        &self,
        record: &EventRecord,
        edited: &EditedEvent,
        request: &EditRequest,
        base: u32,
    ) -> Result<EditEvent, OperateError> {
        let Some(pinned) = self.revisions.get(&record.revision, &self.ledger).await else {
            return Err(OperateError::NotFound(format!("the configuration {} is not known any more", record.revision)));
        };
        let observation = pinned.config.contacts.as_ref().map(|rules| Box::new(rules.observe(&edited.event)));
        Ok(EditEvent {
            seq: record.seq,
            base,
            normalized: edited.normalized.clone(),
            fields: edited.changes.iter().map(|change| change.path.clone()).collect(),
            contact: edited.event.contact(),
            entity: edited.event.entity(),
            observation,
            reapply: reapply(request.reapply.as_deref())?,
            actor: self.actor(&request.actor),
            reason: request.reason.trim().to_owned(),
            at: self.clock.ledger_time(),
        })
    }
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn edited(
    request: &EditRequest,
    normalized: &str,
    revisions: &[EventRevisionRecord],
) -> Result<EditedEvent, OperateError> {
    let mut edit = EventEdit { event: request.event.clone(), set: request.set.clone(), remove: request.remove.clone() };
    if let Some(n) = request.restore {
        let found = revisions.iter().find(|revision| revision.n == n);
        let text = found.ok_or_else(|| OperateError::NotFound(format!("the event has no revision {n}")))?;
        let Some(Value::Object(mut members)) = text.normalized.as_deref().and_then(json) else {
            return Err(body_deleted());
        };
        // Members that came with a later revision go.
        for name in ["identity", "attributes", "routing"] {
            members.entry(name).or_insert_with(|| Value::Object(Map::new()));
        }
        members.entry("occurred_at").or_insert(Value::Null);
        edit.event = members;
    }
    let edited = edit.apply(normalized).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
    if let Some(change) = edited.changes.iter().find(|change| is_mask(change)) {
        let path = &change.path;
        return Err(OperateError::Invalid(format!("the value of `{path}` is masked; give the value itself")));
    }
    Ok(edited)
}

/// Whether a value was copied from a masked event.
fn is_mask(change: &FieldChange) -> bool {
    let shown = masked_change(change.clone());
    change.after.is_some() && change.before.is_some() && shown.before == change.after
}

fn reapply(classes: Option<&[String]>) -> Result<Reapply, OperateError> {
    let Some(classes) = classes else { return Ok(Reapply(Reapply::OVERWRITING.to_vec())) };
    let class = |word: &String| {
        EffectClass::parse(word.trim()).ok_or_else(|| {
            let known = "natural, transactional, keyed, verifiable or blind";
            OperateError::Invalid(format!("`{word}` is not a class of effects; use {known}"))
        })
    };
    Ok(Reapply(classes.iter().map(class).collect::<Result<_, _>>()?))
}

fn done(edited: Edited) -> Result<(u32, Vec<JobId>), OperateError> {
    Err(match edited {
        Edited::Done { revision, jobs } => return Ok((revision, jobs.into_iter().map(|(job, _)| job).collect())),
        Edited::NotFound => OperateError::NotFound("the event has been deleted".to_owned()),
        Edited::BodyRemoved => body_deleted(),
        Edited::Busy(job) => busy(job),
        Edited::LateCall(job) => OperateError::Refused(
            "event-busy",
            format!("a call of {job} may still be applied late; try again once its record was compared"),
        ),
        Edited::Outdated(n) => outdated(n),
        Edited::TooMany => {
            OperateError::Refused("too-many-revisions", format!("an event has at most {REVISIONS_MAX} revisions"))
        }
        Edited::Conflict(conflicts) => identity_conflict(&conflicts),
    })
}

fn busy(busy: BusyJob) -> OperateError {
    let BusyJob { job, state } = busy;
    let hint = match state {
        JobState::Unknown => "resolve it first: sluice jobs resolve",
        _ => "edit the event once its jobs have ended",
    };
    OperateError::Refused("event-busy", format!("{job} is {state}; {hint}"))
}

fn outdated(current: u32) -> OperateError {
    let detail = format!("revision {current} is the current one; look at it and edit again");
    OperateError::Refused("revision-outdated", detail)
}

fn body_deleted() -> OperateError {
    OperateError::Refused("body-deleted", "the body of the event has been deleted".to_owned())
}

fn identity_conflict(conflicts: &[Conflict]) -> OperateError {
    OperateError::Refused("identity-conflict", conflict_text(conflicts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn masked_value_is_not_taken_for_the_value_itself() {
        let change = |before: &str, after: &str| FieldChange {
            path: "identity.email".to_owned(),
            before: Some(json!(before)),
            after: Some(json!(after)),
        };
        assert!(is_mask(&change("ada@example.com", "a***@example.com")));
        assert!(!is_mask(&change("ada@exmaple.com", "ada@example.com")));
    }
}
