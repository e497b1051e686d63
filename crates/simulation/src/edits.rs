//! Edits of accepted events: what operators change, and what must stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sluice_domain::event_edit::{EventEdit, next_label};
use sluice_domain::job::{EffectKey, EffectState, JobId};
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::Reapply;
use sluice_ledger::{EditEvent, Edited, EventSeq};

use super::checker::Checker;
use super::coverage::Fault;
use super::invariants::Invariant;
use super::node::Waiter;
use super::operators::OperatorAction;
use super::ops::SimOp;
use super::people::{FIELDS, RULES};
use super::plan::step_of;
use super::trace::About;
use super::world::Simulation;

/// Calls of the last events may still be under way, or be applied late.
const NEW_EVENTS: i64 = 40;

/// Edits that became durable, by event.
#[derive(Debug, Default)]
pub(super) struct Edits {
    events: BTreeMap<EventSeq, ObservedEdits>,
    /// The event whose edit is observed.
    current: Option<EventSeq>,
}

#[derive(Debug)]
struct ObservedEdits {
    /// The event as it was accepted.
    original: Option<String>,
    revisions: u32,
}

/// Whether sending an effect again overwrites what the first one did.
fn overwrites(class: EffectClass) -> bool {
    Reapply::OVERWRITING.contains(&class)
}

/// A label without its round: what an effect and those that take its place have in common.
fn place_of(label: &str) -> (&str, &str) {
    (step_of(label), label.find('[').map_or("", |item| &label[item..]))
}

impl Simulation {
    /// Edits an event, perhaps one whose jobs have not ended, and perhaps from a revision that is not the last.
    pub(super) fn edit_an_event(&mut self) {
        let last = self.store.event_heads().next_back().map_or(0, |event| event.seq);
        // Most of them are new.
        let among = if self.random.chance(0.7) { last.min(NEW_EVENTS) } else { last };
        let seq = last - self.random.below(among.max(1) as u64) as i64;
        let (choice, is_outdated) = (self.random.below(1 << 20), self.random.chance(0.1));
        let Some((record, Some(body))) = self.store.events(&[seq]).pop() else { return };
        let is_person = body.normalized.contains("\"email\"");
        let (path, value) = match is_person {
            true => (
                format!("attributes.{}", FIELDS[choice as usize % FIELDS.len()]),
                json!(format!("edited {}", choice % 5)),
            ),
            false => ("attributes.text".to_owned(), json!(format!("edited {choice}"))),
        };
        let edit = EventEdit { set: [(path, value)].into(), ..EventEdit::default() };
        let Ok(edited) = edit.apply(&body.normalized) else { return };
        let entity = self.store.jobs_of(seq).next().map_or(0, |job| job.entity);
        let edit = EditEvent {
            seq,
            base: if is_outdated { body.edits + 1 } else { body.edits },
            normalized: edited.normalized,
            fields: edited.changes.into_iter().map(|change| change.path).collect(),
            contact: None,
            entity,
            observation: is_person.then(|| Box::new(RULES.observe(&edited.event))),
            reapply: Reapply(Reapply::OVERWRITING.to_vec()),
            actor: "ann".to_owned(),
            reason: "a typing error".to_owned(),
            at: self.ledger_time(),
        };
        self.trace.note(self.now, "edit", About::Nothing, record.seq as u64);
        self.submit(SimOp::Edit(Box::new(edit)), Waiter::Operator(OperatorAction::Edit));
    }

    /// An operator gets the answer to an edit.
    pub(super) fn edited(&mut self, edited: Edited) {
        match edited {
            Edited::Done { jobs, .. } => {
                self.happened(Fault::EventEdited);
                self.requeued(jobs);
            }
            Edited::Busy(_) => self.happened(Fault::EditBusy),
            Edited::LateCall(_) => self.happened(Fault::EditLateCall),
            Edited::Outdated(_) => self.happened(Fault::EditOutdated),
            Edited::NotFound | Edited::BodyRemoved | Edited::TooMany | Edited::Conflict(_) => {}
        }
    }

    /// An edit became durable.
    pub(super) fn note_edit(&mut self, edit: EditEvent, revision: u32, jobs: &[(JobId, Arc<str>)]) {
        let seq = edit.seq;
        let original = self.store.event_revisions(seq).into_iter().next().and_then(|first| first.normalized);
        let known =
            self.checker.edits.events.entry(seq).or_insert(ObservedEdits { original: original.clone(), revisions: 0 });
        known.revisions += 1;
        let expected = known.revisions;
        if revision != expected || edit.base + 1 != revision {
            let detail = || format!("event {seq} has revision {revision} after revision {}", expected - 1);
            self.checker.fail(self.now, Invariant::EditsStand, About::Nothing, detail);
        }
        self.move_marks(seq, jobs);
        self.note_edited_person(seq, edit.observation);
        self.checker.edits.current = Some(seq);
        for (job, _) in jobs {
            self.checker.job(*job).forget_lookups();
            self.look_at(*job);
        }
        self.checker.edits.current = None;
    }

    fn move_marks(&mut self, seq: EventSeq, jobs: &[(JobId, Arc<str>)]) {
        let Some(event) = self.store.event_head(seq).map(|event| event.id) else { return };
        for (job, worker) in jobs {
            let replaced = self.store.effect_states(*job).filter(|effect| effect.state.is_replaced());
            let moved: Vec<_> = replaced
                .map(|effect| (effect.key, EffectKey::new(event, worker, &next_label(effect.step_id))))
                .collect();
            moved.into_iter().for_each(|(former, key)| self.mark_moved(*job, former, key));
        }
    }

    /// A destination has applied an effect of a job whose event was edited: what does not overwrite is there once, unless it was
    /// undone in between. An upsert overwrites the record that it finds; how many there are is checked for each identity.
    pub(super) fn check_sent_once(&mut self, id: JobId, label: &Arc<str>) {
        let Some(facts) =
            self.plan.facts(label).filter(|facts| !overwrites(facts.class) && !facts.resend_allowed && !facts.upsert)
        else {
            return;
        };
        let is_undo = facts.undo;
        let is_edited = self.store.job(id).is_some_and(|job| self.checker.edits.events.contains_key(&job.seq));
        if !is_edited || is_undo {
            return;
        }
        let job = self.checker.job(id);
        let (sent, is_denied) = job.sent(|other| place_of(other) == place_of(label));
        let undone = if step_of(label) == "charge" { job.sent(|other| step_of(other) == "refund").0 } else { 0 };
        if sent > 1 + undone && !is_denied {
            let detail = || format!("`{label}` was sent {sent} times, and undone {undone} times");
            self.checker.fail(self.now, Invariant::EditsStand, About::Job(id), detail);
        }
    }

    /// At the end: the original stays, and revisions count up.
    pub(super) fn check_edits(&mut self) {
        for (seq, edits) in &self.checker.edits.events {
            let revisions = self.store.event_revisions(*seq);
            // The event or its body was deleted, and its revisions with it.
            if revisions.len() < 2 {
                continue;
            }
            let numbers = revisions.iter().map(|revision| revision.n);
            let original = revisions.first().and_then(|first| first.normalized.as_ref());
            if !numbers.eq(0..=edits.revisions) || original != edits.original.as_ref() {
                let (count, seq) = (revisions.len(), *seq);
                let detail = || format!("event {seq} has {count} revisions, or its original has changed");
                return self.checker.fail(self.now, Invariant::EditsStand, About::Nothing, detail);
            }
        }
    }
}

impl Checker {
    /// Another effect takes the place of this one: only an edit does that, and only with what overwrites or was not applied.
    pub(crate) fn effect_replaced(
        &mut self,
        now: i64,
        job: JobId,
        (class, before): (EffectClass, Option<EffectState>),
        state: EffectState,
    ) {
        let is_allowed = match (before, state) {
            (Some(EffectState::Applied), EffectState::Superseded) => overwrites(class),
            (Some(EffectState::Skipped | EffectState::NotApplied), EffectState::Abandoned) => true,
            _ => false,
        };
        if self.edits.current.is_none() || !is_allowed {
            let before = before.map_or("nothing", EffectState::as_str);
            let detail = || format!("an effect of class {} went from {before} to {}", class.as_str(), state.as_str());
            self.fail(now, Invariant::EditsStand, About::Job(job), detail);
        }
    }
}
