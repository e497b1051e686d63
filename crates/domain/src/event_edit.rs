//! Edits of accepted events: what may be changed, when, and what becomes of the effects that the event had before.
//!
//! An edit is a new revision beside the event, which stays as it was accepted. It corrects what the event said: it keeps the event's
//! source, key, time and order, so that a newer event still wins over it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::diff::{FieldChange, diff};
use crate::event::Event;
use crate::job::{EffectState, JobId, JobState};
use crate::mutant::Mutant;
use crate::outcome::EffectClass;
use crate::path::{Path, Segment};
use crate::record::JobRecord;
use crate::replay::{Reapply, replayable};

/// Revisions of one event.
pub const REVISIONS_MAX: u32 = 100;
/// Size of an edited event as JSON.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Members of an event that an edit may change. The others say where the event came from, or decided about it when it was accepted.
const EDITABLE: [&str; 4] = ["identity", "attributes", "routing", "occurred_at"];

/// What an operator changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventEdit {
    /// Members of the event that replace the stored ones as a whole, such as `attributes`.
    pub event: Map<String, Value>,
    /// Values by path, such as `attributes.last_name`.
    pub set: BTreeMap<String, Value>,
    /// Paths that are removed.
    pub remove: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditProblem {
    #[error("`{0}` is not a path; use one such as attributes.last_name")]
    Path(String),
    #[error("`{0}` cannot be set: a member of it is not an object")]
    NotAnObject(String),
    #[error("`{path}` cannot be edited; only {} can", EDITABLE.join(", "))]
    Fixed { path: String },
    #[error("the edited event is not valid: {0}")]
    Invalid(String),
    #[error("the edited event has more than {EVENT_BYTES_MAX} bytes")]
    TooLong,
    #[error("the edit changes nothing")]
    Nothing,
}

/// An edited event.
#[derive(Clone, Debug, PartialEq)]
pub struct EditedEvent {
    pub event: Event,
    /// As it is stored.
    pub normalized: String,
    /// What differs from the revision before.
    pub changes: Vec<FieldChange>,
}

impl EventEdit {
    /// Applies the edit to the current revision of an event.
    pub fn apply(&self, normalized: &str) -> Result<EditedEvent, EditProblem> {
        let invalid = |error: serde_json::Error| EditProblem::Invalid(error.to_string());
        let stored: Event = serde_json::from_str(normalized).map_err(invalid)?;
        let before = serde_json::to_value(&stored).map_err(invalid)?;
        let mut after = before.clone();
        if let Some(members) = after.as_object_mut() {
            members.extend(self.event.clone());
        }
        for (path, value) in &self.set {
            set(&mut after, path, value.clone())?;
        }
        for path in &self.remove {
            Path::parse(path).ok_or_else(|| EditProblem::Path(path.clone()))?.remove(&mut after);
        }
        if let Some(change) = diff(&before, &after).into_iter().find(|change| !is_editable(&change.path)) {
            return Err(EditProblem::Fixed { path: change.path });
        }
        let event: Event = serde_json::from_value(after).map_err(invalid)?;
        // As it is stored: an empty member is none.
        let changes = diff(&before, &serde_json::to_value(&event).map_err(invalid)?);
        if changes.is_empty() {
            return Err(EditProblem::Nothing);
        }
        let normalized = serde_json::to_string(&event).map_err(invalid)?;
        if normalized.len() > EVENT_BYTES_MAX {
            return Err(EditProblem::TooLong);
        }
        Ok(EditedEvent { event, normalized, changes })
    }
}

fn is_editable(path: &str) -> bool {
    let root = path.split(['.', '[']).next().unwrap_or_default();
    EDITABLE.contains(&root)
}

fn set(event: &mut Value, path: &str, value: Value) -> Result<(), EditProblem> {
    let parsed = Path::parse(path).ok_or_else(|| EditProblem::Path(path.to_owned()))?;
    let mut place = event;
    for segment in &parsed.0 {
        place = match segment {
            Segment::Key(name) => {
                if place.is_null() {
                    *place = Value::Object(Map::new());
                }
                let members = place.as_object_mut().ok_or_else(|| EditProblem::NotAnObject(path.to_owned()))?;
                members.entry(name.clone()).or_insert(Value::Null)
            }
            Segment::Index(index) => {
                let found = place.as_array_mut().and_then(|items| items.get_mut(*index));
                found.ok_or_else(|| EditProblem::NotAnObject(path.to_owned()))?
            }
        };
    }
    *place = value;
    Ok(())
}

/// A job that keeps its event from being edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyJob {
    pub job: JobId,
    pub state: JobState,
}

/// The jobs that run again with the edited event. An event whose jobs run, wait, or have an effect of unknown outcome is not edited: a
/// job would begin with one content and go on with another. Dropped jobs stay dropped.
pub fn jobs_to_requeue(jobs: &[JobRecord]) -> Result<Vec<JobId>, BusyJob> {
    let busy = jobs.iter().find(|job| job.state.is_live() || job.state == JobState::Unknown);
    if let Some(job) = busy {
        return Err(BusyJob { job: job.id, state: job.state });
    }
    Ok(jobs.iter().filter(|job| replayable(job.state).is_ok()).map(|job| job.id).collect())
}

/// An effect of an event that is edited.
#[derive(Clone, Copy, Debug)]
pub struct FormerEffect<'a> {
    pub action: &'a str,
    /// Empty for the result of an internal step.
    pub destination: &'a str,
    pub class: EffectClass,
    pub state: EffectState,
}

/// What becomes of an effect when its event is edited; `None` if it stays as it is.
///
/// Whatever follows from the content is done again under another key: a key that was used for other content would be refused, or
/// answered with the former result. What was applied to a destination is repeated only if its class is asked for.
pub fn after_edit(effect: FormerEffect<'_>, reapply: &Reapply) -> Option<EffectState> {
    match effect.state {
        EffectState::Applied if effect.destination.is_empty() => {
            // What was put into a queue is an event of its own.
            (effect.action != "queue").then_some(EffectState::Superseded)
        }
        EffectState::Applied => {
            let is_repeated = reapply.supersedes(effect.class, effect.state) || Mutant::EditResendsApplied.is_on();
            is_repeated.then_some(EffectState::Superseded)
        }
        EffectState::Skipped | EffectState::NotApplied => Some(EffectState::Abandoned),
        // Settled first, under its own key.
        EffectState::Unknown | EffectState::Rechecking | EffectState::Intent => None,
        EffectState::Superseded | EffectState::Abandoned => None,
    }
}

/// The label of the effect that takes the place of this one.
pub fn next_label(label: &str) -> String {
    let (name, item) = match label.rfind('[').filter(|_| label.ends_with(']')) {
        Some(at) => label.split_at(at),
        None => (label, ""),
    };
    let round = name.rsplit_once('@').and_then(|(step, round)| Some((step, round.parse::<u32>().ok()?)));
    match round {
        Some((step, round)) => format!("{step}@{}{item}", round + 1),
        None => format!("{name}@2{item}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::worker::label;

    const STORED: &str = r#"{"schema_version":"1","event_id":"web:1","event_type":"lead","source":"web","idempotency_key":"1",
        "identity":{"email":"ada@exmaple.com"},"attributes":{"last_name":"L","address":{"city":"Bern"},"tags":["a"]},
        "audit":{"received_at":"2026-03-01T00:00:00Z","raw_event_ref":"","mapping_version":"m"}}"#;

    fn edit(set: &[(&str, Value)], remove: &[&str]) -> EventEdit {
        let set = set.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
        EventEdit { event: Map::new(), set, remove: remove.iter().map(|path| (*path).to_owned()).collect() }
    }

    #[test]
    fn edit_changes_what_it_names_and_lists_it() {
        let values = [("identity.email", json!("ada@example.com")), ("attributes.address.zip", json!(3000))];
        let edited = edit(&values, &["attributes.last_name"]).apply(STORED).unwrap();
        assert_eq!(edited.event.identity["email"], "ada@example.com");
        assert_eq!(edited.event.attributes["address"], json!({"city": "Bern", "zip": 3000}));
        let mut paths: Vec<&str> = edited.changes.iter().map(|change| change.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["attributes.address.zip", "attributes.last_name", "identity.email"]);
        let tags = edit(&[("attributes.tags[0]", json!("b"))], &[]).apply(STORED).unwrap();
        assert_eq!(tags.event.attributes["tags"], json!(["b"]));
    }

    #[test]
    fn origin_of_an_event_cannot_be_edited() {
        for (path, value) in [
            ("idempotency_key", json!("2")),
            ("source", json!("other")),
            ("event_type", json!("order")),
            ("audit.received_at", json!("2027-01-01T00:00:00Z")),
            ("new_member", json!(1)),
        ] {
            let problem = edit(&[(path, value)], &[]).apply(STORED).unwrap_err();
            assert!(matches!(problem, EditProblem::Fixed { .. }), "{path}: {problem}");
        }
        let members = |value: Value| EventEdit { event: value.as_object().unwrap().clone(), ..EventEdit::default() };
        assert!(matches!(members(json!({"source": "other"})).apply(STORED).unwrap_err(), EditProblem::Fixed { .. }));
        let replaced = members(json!({"attributes": {"last_name": "Lovelace"}})).apply(STORED).unwrap();
        assert_eq!(Value::Object(replaced.event.attributes), json!({"last_name": "Lovelace"}));
    }

    #[test]
    fn edits_that_say_nothing_or_break_the_event_are_refused() {
        assert_eq!(edit(&[], &[]).apply(STORED).unwrap_err(), EditProblem::Nothing);
        assert_eq!(edit(&[("attributes.last_name", json!("L"))], &[]).apply(STORED).unwrap_err(), EditProblem::Nothing);
        assert!(matches!(edit(&[("identity", json!("ada"))], &[]).apply(STORED), Err(EditProblem::Invalid(_))));
        assert!(matches!(edit(&[("occurred_at", json!("soon"))], &[]).apply(STORED), Err(EditProblem::Invalid(_))));
        assert!(matches!(
            edit(&[("attributes.last_name.x", json!(1))], &[]).apply(STORED),
            Err(EditProblem::NotAnObject(_))
        ));
        assert!(matches!(edit(&[("", json!(1))], &[]).apply(STORED), Err(EditProblem::Path(_))));
        let long = edit(&[("attributes.note", json!("x".repeat(EVENT_BYTES_MAX)))], &[]);
        assert_eq!(long.apply(STORED).unwrap_err(), EditProblem::TooLong);
    }

    #[test]
    fn what_follows_from_the_content_is_done_again_and_what_was_sent_is_not() {
        let none = Reapply::default();
        let overwriting = Reapply(Reapply::OVERWRITING.to_vec());
        let effect = |destination, class, state| FormerEffect { action: "http.post", destination, class, state };
        let mail = effect("mail", EffectClass::Blind, EffectState::Applied);
        assert_eq!(after_edit(mail, &overwriting), None);
        let record = effect("crm", EffectClass::Natural, EffectState::Applied);
        assert_eq!(after_edit(record, &overwriting), Some(EffectState::Superseded));
        assert_eq!(after_edit(record, &none), None);
        for state in [EffectState::NotApplied, EffectState::Skipped] {
            assert_eq!(after_edit(effect("mail", EffectClass::Keyed, state), &none), Some(EffectState::Abandoned));
        }
        for state in [EffectState::Unknown, EffectState::Rechecking, EffectState::Superseded, EffectState::Abandoned] {
            assert_eq!(after_edit(effect("mail", EffectClass::Verifiable, state), &overwriting), None);
        }
        let internal = effect("", EffectClass::Transactional, EffectState::Applied);
        assert_eq!(after_edit(internal, &none), Some(EffectState::Superseded));
        assert_eq!(after_edit(FormerEffect { action: "queue", ..internal }, &none), None);
    }

    #[test]
    fn next_label_is_the_one_of_the_next_round() {
        for (round, item) in [(0, None), (1, None), (0, Some(3)), (4, Some(0))] {
            assert_eq!(next_label(&label("send", round, item)), label("send", round + 1, item));
        }
    }
}
