//! Edits of events.

use std::sync::Arc;

use sluice_domain::contact::{Conflict, ContactId};
use sluice_domain::event_edit::{FormerEffect, REVISIONS_MAX, after_edit, jobs_to_requeue, next_label};
use sluice_domain::job::{EffectKey, JobId};
use sluice_domain::time::Time;

use super::Store;
use super::operate::{move_to_step, requeue};
use crate::event_edit::{EditEvent, Edited, EventRevisionRecord};
use crate::record::{EventBody, EventSeq, JobRecord};

impl Store {
    pub fn edit_event(&mut self, now: Time, edit: &EditEvent) -> Edited {
        let Some(event) = self.events.get(&edit.seq) else { return Edited::NotFound };
        if event.body.is_none() {
            return Edited::BodyRemoved;
        }
        let id = event.id;
        let records: Vec<JobRecord> = event.job_ids().filter_map(|id| self.job(id).cloned()).collect();
        let jobs = match jobs_to_requeue(&records) {
            Ok(jobs) => jobs,
            Err(busy) => return Edited::Busy(busy),
        };
        let is_own = |job: &JobId| records.iter().any(|record| record.id == *job);
        let pending = self.stragglers.values().filter(|straggler| !straggler.is_compared());
        if let Some(job) = pending.map(|straggler| straggler.job).find(is_own) {
            return Edited::LateCall(job);
        }
        let last = self.event_revisions.get(&edit.seq).map_or(0, |revisions| revisions.len() as u32);
        if last != edit.base {
            return Edited::Outdated(last);
        }
        if last >= REVISIONS_MAX {
            return Edited::TooMany;
        }
        let (contact, entity) = match self.place_edited(now, edit) {
            Ok(placed) => placed,
            Err(conflicts) => return Edited::Conflict(conflicts),
        };
        self.stop_waiting(edit.seq);
        if let Some(contact) = contact {
            self.set_contact_of_event(edit.seq, contact);
        }
        self.event_revisions.entry(edit.seq).or_default().push(EventRevisionRecord {
            n: last + 1,
            at: edit.at,
            actor: edit.actor.clone(),
            reason: edit.reason.clone(),
            normalized: Some(edit.normalized.clone()),
        });
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            self.replace_effects(job, edit);
            self.change(job, |record| {
                requeue(record, edit.at);
                move_to_step(record, 0);
                record.entity = entity;
            });
            let worker = self.job(job).map(|record| record.worker.clone()).unwrap_or_default();
            self.announce_requeued((job, worker.clone()));
            changed.push((job, worker));
        }
        self.log(edit.at, &edit.actor, "edit", &id.to_string(), &edit.detail(last + 1));
        Edited::Done { revision: last + 1, jobs: changed }
    }

    fn place_edited(&mut self, now: Time, edit: &EditEvent) -> Result<(Option<ContactId>, u64), Vec<Conflict>> {
        let former = self.contacts.events.get(&edit.seq).copied();
        let Some(observation) = edit.observation.as_deref().filter(|said| !said.identifiers.is_empty()) else {
            let entity = former.map_or(edit.entity, |contact| self.contacts.owner(contact).lane().entity());
            return Ok((former, entity));
        };
        let conflicts = self.contacts.resolution(&observation.identifiers).conflicts;
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        if let Some(row) = former.and_then(|contact| self.contacts.rows.get_mut(&contact)) {
            row.state.retract(edit.seq);
        }
        self.assign_unless_conflict(now, observation, edit.seq).map(|(contact, entity)| (Some(contact), entity))
    }

    /// Effects that follow from the content make room for others.
    fn replace_effects(&mut self, id: JobId, edit: &EditEvent) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(event) = self.events.get(&edit.seq) else { return };
        let mut moved = Vec::new();
        for effect in &mut job.effects {
            let former = FormerEffect {
                action: effect.begin.action,
                destination: &effect.begin.destination,
                class: effect.begin.class,
                state: effect.state,
            };
            let Some(next) = after_edit(former, &edit.reapply) else { continue };
            let label = next_label(&effect.begin.step_id);
            moved.push((effect.begin.key, EffectKey::new(event.id, &job.record.worker, &label)));
            (effect.state, effect.last_at) = (next, edit.at);
        }
        for mark in self.marks.values_mut().filter(|mark| mark.job == id) {
            if let Some((_, owner)) = moved.iter().find(|(former, _)| *former == mark.owner) {
                mark.owner = *owner;
            }
        }
    }

    /// A body as it is read: with the edits of its event.
    pub(super) fn edited_body(&self, seq: EventSeq, body: Arc<EventBody>) -> Arc<EventBody> {
        let last = self.event_revisions.get(&seq).and_then(|revisions| revisions.last());
        match last {
            None => body,
            Some(revision) => Arc::new(EventBody {
                normalized: revision.normalized.clone().unwrap_or_default(),
                edits: revision.n,
                ..(*body).clone()
            }),
        }
    }

    pub fn event_revisions(&self, seq: EventSeq) -> Vec<EventRevisionRecord> {
        let Some(event) = self.events.get(&seq) else { return vec![] };
        let accepted = event.body.clone().map(|body| self.supplied_body(seq, body).normalized.clone());
        let accepted = EventRevisionRecord {
            n: 0,
            at: event.record.persisted_at,
            actor: String::new(),
            reason: String::new(),
            normalized: accepted,
        };
        std::iter::once(accepted).chain(self.event_revisions.get(&seq).into_iter().flatten().cloned()).collect()
    }
}
