//! A step that writes the merged state of the contact: reads it, and decides what is left to send.

use serde_json::{Value, json};

use super::item::StepItem;
use super::{Command, JobRun, RunContext};
use crate::contact::{ContactView, MergedWrite, SentFields, WriteCall, WriteRecord, WriteSlot, sent_fields};
use crate::event::Event;
use crate::job::EffectState;
use crate::outcome::{Failure, FailureClass};
use crate::record::AttemptKind;
use crate::worker::Step;

/// The merged state of a contact, and how a step writes it.
struct MergedState<'a> {
    write: MergedWrite,
    view: &'a ContactView,
}

impl JobRun {
    /// The contact is read while the slot of the destination is held, so that no other job of the contact writes meanwhile. `None`
    /// if the step does not need it.
    pub(super) fn read_contact(&self, item: &StepItem) -> Option<Command> {
        let step = item.step();
        step.merged?;
        let is_final = self.effects.get(item.key).is_some_and(|entry| entry.state.is_final());
        (!is_final).then(|| Command::ReadContact { seq: self.event.seq, slot: self.slot(step) })
    }

    pub(super) fn slot(&self, step: &Step) -> WriteSlot {
        WriteSlot::new(&self.job.worker, &step.id)
    }

    /// Sends the merged state, or records that there is nothing left to send. An event without a contact sends its own values.
    pub(super) fn contact_read(
        &mut self,
        item: StepItem,
        view: Option<&ContactView>,
        context: RunContext,
    ) -> Option<Command> {
        let Some((view, merged)) = view.zip(item.step().merged) else {
            if self.compared.is_none() {
                return self.perform_rendered(item, context);
            }
            let rendered = self.render(&item.worker, item.step());
            return Some(self.compare_rendered(item, rendered, context));
        };
        let own = self.scope.get_shared("event").unwrap_or_default();
        self.scope.set("event", Event::merged_scope(&own, &view.state));
        let rendered = self.render(&item.worker, item.step());
        // Conditions of later steps are about the event.
        self.scope.set_shared("event", own);
        Some(match rendered {
            Ok(with) => self.write_merged(item, with, MergedState { write: merged, view }, context),
            Err(problem) if self.compared.is_some() => self.compare_rendered(item, Err(problem), context),
            Err(problem) => {
                let message = format!("step `{}`: {problem}", item.step().id);
                self.failed_without_attempt(item, Failure::new(FailureClass::Mapping, "with", message), context)
            }
        })
    }

    fn write_merged(
        &mut self,
        item: StepItem,
        mut with: Value,
        state: MergedState<'_>,
        context: RunContext,
    ) -> Command {
        let MergedState { write: merged, view } = state;
        let step = item.step();
        // An effect that was begun is finished under its own key; a further round was asked for by an operator.
        let again = self.effects.get(item.key).is_some() || *item.label != *step.id;
        let call = WriteCall { destination: &step.destination, seq: self.event.seq, term: context.term, again };
        match sent_fields(merged, view, call, &mut with) {
            SentFields::Send(write) => {
                self.write = Some(write);
                self.attempt(item, with, context)
            }
            SentFields::Nothing { coalesced } => {
                let reason = if coalesced { "coalesced" } else { "unchanged" };
                let result = json!({ "noop": reason, "contact": view.id, "written": view.write.as_ref().map(|write| write.version) });
                self.skip(item, result, reason.to_owned(), context)
            }
        }
    }

    /// What is recorded of a write after an attempt: it is confirmed, or in doubt.
    pub(super) fn write_record(&mut self, step: &Step, kind: AttemptKind, state: EffectState) -> Option<WriteRecord> {
        let write = self.write.take()?;
        let is_confirmed = state == EffectState::Applied && kind == AttemptKind::Call;
        Some(WriteRecord { slot: self.slot(step), write: is_confirmed.then_some(write) })
    }
}
