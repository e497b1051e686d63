//! Edits of events: a revision beside the event, and its jobs requeued, in one transaction.

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::contact::ContactId;
use sluice_domain::event::EventId;
use sluice_domain::event_edit::{FormerEffect, REVISIONS_MAX, after_edit, jobs_to_requeue, next_label};
use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;

use super::batch::{Batch, JobHead};
use super::key_index::prefix;
use super::mac::EffectColumns;
use super::read_pool::Reader;
use super::row::place;
use super::totals::TotalRef;
use crate::event_edit::{EditEvent, Edited, EventRevisionRecord};
use crate::record::{EventRecord, EventSeq};

/// Where the jobs of an edited event run.
struct EditPlace {
    contact: Option<ContactId>,
    contact_key: Option<i64>,
    /// As it is stored.
    entity: u64,
}

impl Batch<'_, '_> {
    pub(super) fn edit_stored_event(&mut self, edit: &EditEvent) -> rusqlite::Result<Edited> {
        let Some(event) = self.reader().event_record(edit.seq)? else { return Ok(Edited::NotFound) };
        if self.reader().body(edit.seq)?.is_none() {
            return Ok(Edited::BodyRemoved);
        }
        let jobs = match jobs_to_requeue(&self.reader().jobs_of_event(&event)?) {
            Ok(jobs) => jobs,
            Err(busy) => return Ok(Edited::Busy(busy)),
        };
        if let Some(job) = self.late_call(&event)? {
            return Ok(Edited::LateCall(job));
        }
        let last: u32 =
            self.cached(include_str!("sql/last_event_revision.sql"))?.query_row([edit.seq], |row| row.get(0))?;
        if last != edit.base {
            return Ok(Edited::Outdated(last));
        }
        if last >= REVISIONS_MAX {
            return Ok(Edited::TooMany);
        }
        let place = match self.place_edited(edit)? {
            Ok(place) => place,
            Err(conflicts) => return Ok(Edited::Conflict(conflicts)),
        };
        self.insert_event_revision(edit, &event, last + 1, &place)?;
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            changed.extend(self.requeue_edited(job, edit, &place)?);
        }
        self.log(edit.at, &edit.actor, "edit", &event.id.to_string(), &edit.detail(last + 1))?;
        Ok(Edited::Done { revision: last + 1, jobs: changed })
    }

    /// A job of the event whose last call may still be applied.
    fn late_call(&self, event: &EventRecord) -> rusqlite::Result<Option<JobId>> {
        let first = event.first_job.0;
        let own = first..first + i64::from(event.jobs);
        let mut pending = self.cached(include_str!("sql/pending_stragglers.sql"))?;
        let mut rows = pending.query([Time::NEVER.0])?;
        while let Some(row) = rows.next()? {
            let job: i64 = row.get(0)?;
            if own.contains(&job) {
                return Ok(Some(JobId(job)));
            }
        }
        Ok(None)
    }

    /// Finds the contact of the edited event. What the event said before is taken back, and what it says now is merged with its own
    /// time, trust and order.
    fn place_edited(
        &mut self,
        edit: &EditEvent,
    ) -> rusqlite::Result<Result<EditPlace, Vec<sluice_domain::contact::Conflict>>> {
        let contact_key = self.contact_key(edit.contact)?;
        let former: Option<i64> =
            self.cached(include_str!("sql/contact_of_event.sql"))?.query_row([edit.seq], |row| row.get(0))?;
        let former = former.map(ContactId);
        let plain = prefix(&self.key_store.digest("entity", &edit.entity.to_be_bytes()));
        let Some(observation) = edit.observation.as_deref().filter(|said| !said.identifiers.is_empty()) else {
            let entity = former.map(|contact| self.entity_of(contact)).transpose()?.unwrap_or(plain);
            return Ok(Ok(EditPlace { contact: former, contact_key, entity }));
        };
        if let Err(conflicts) = self.check_owners(observation)? {
            return Ok(Err(conflicts));
        }
        if let Some(contact) = former {
            self.retract(contact, edit.seq)?;
        }
        Ok(self.assign_unless_conflict(observation, edit.seq, contact_key)?.map(|(contact, entity)| EditPlace {
            contact: Some(contact),
            contact_key,
            entity,
        }))
    }

    fn insert_event_revision(
        &mut self,
        edit: &EditEvent,
        event: &EventRecord,
        n: u32,
        to: &EditPlace,
    ) -> rusqlite::Result<()> {
        self.forget_waiting(edit.seq)?;
        self.cached(include_str!("sql/delete_identity_lookup.sql"))?.execute([edit.seq])?;
        if let Some(contact) = to.contact {
            self.cached(include_str!("sql/set_event_contact.sql"))?.execute(params![edit.seq, contact.0])?;
        }
        let part = n.to_be_bytes();
        let context = place::event_revision(edit.seq, event.id, &part);
        let sealed = self.sealer(to.contact_key)?.seal(context, &[edit.normalized.as_bytes()]);
        self.cached(include_str!("sql/insert_event_revision.sql"))?.execute(params![
            edit.seq,
            n,
            edit.at.0,
            edit.actor,
            edit.reason,
            to.contact.map(|contact| contact.0),
            to.contact_key,
            sealed
        ])?;
        Ok(())
    }

    fn requeue_edited(
        &mut self,
        id: JobId,
        edit: &EditEvent,
        to: &EditPlace,
    ) -> rusqlite::Result<Option<crate::op::ChangedJob>> {
        let Some(mut head) = self.job_head(id)? else { return Ok(None) };
        self.replace_effects(&head, edit)?;
        self.note_revival(&head)?;
        head.entity = to.entity as i64;
        let mac = head.mac(self.key_store);
        self.cached(include_str!("sql/set_job_entity.sql"))?.execute(params![id.0, head.entity, mac])?;
        let (destination, restarts) = ("", true);
        let revision = head.total.revision.clone();
        self.cached(include_str!("sql/replay_job.sql"))?.execute(params![
            id.0,
            edit.at.0,
            revision.as_ref(),
            destination,
            restarts
        ])?;
        let (state, dead_letter_queue) = (JobState::Queued, "");
        let queued = TotalRef { state, destination, dead_letter_queue, wait: "", ..head.total.as_ref() };
        self.move_total(&head, queued);
        self.requeued.push((id, head.total.worker.clone()));
        Ok(Some((id, head.total.worker)))
    }

    /// Effects that follow from the content make room for others.
    fn replace_effects(&mut self, head: &JobHead, edit: &EditEvent) -> rusqlite::Result<()> {
        let effects: Vec<EffectColumns> = self
            .cached(include_str!("sql/effects_of_job.sql"))?
            .query_map([head.id.0], EffectColumns::read)?
            .collect::<rusqlite::Result<_>>()?;
        for effect in effects {
            let parsed = EffectClass::parse(&effect.class).zip(EffectState::parse(&effect.state));
            let Some((class, state)) = parsed else { continue };
            let former = FormerEffect { action: &effect.action, destination: &effect.destination, class, state };
            let Some(next) = after_edit(former, &edit.reapply) else { continue };
            // A mark belongs to the effect that takes the place of the one that set it.
            let label = next_label(&effect.step_id);
            let replaced = EffectKey::new(EventId(head.identity.owner), &head.total.worker, &label);
            self.cached(include_str!("sql/move_marks.sql"))?.execute(params![effect.key, replaced.0, head.id.0])?;
            let state = next.as_str().to_owned();
            self.write_effect(&EffectColumns { state, last_at: edit.at.0, ..effect })?;
        }
        Ok(())
    }

    pub(super) fn delete_event_revisions(&self, seq: EventSeq) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/delete_event_revisions.sql"))?.execute([seq]).map(drop)
    }
}

impl Reader<'_> {
    pub(crate) fn event_revisions(&self, seq: &EventSeq) -> rusqlite::Result<Vec<EventRevisionRecord>> {
        let Some(event) = self.event_record(*seq)? else { return Ok(vec![]) };
        let accepted = EventRevisionRecord {
            n: 0,
            at: event.persisted_at,
            actor: String::new(),
            reason: String::new(),
            normalized: self.accepted_body(*seq)?.map(|body| body.normalized),
        };
        let mut statement = self.prepare_cached(include_str!("sql/event_revisions.sql"))?;
        let edits = statement.query_map([seq], |row| self.revision_row(row, &event))?;
        std::iter::once(Ok(accepted)).chain(edits).collect()
    }

    fn revision_row(&self, row: &Row<'_>, event: &EventRecord) -> rusqlite::Result<EventRevisionRecord> {
        let n: u32 = row.get(0)?;
        Ok(EventRevisionRecord {
            n,
            at: Time(row.get(1)?),
            actor: row.get(2)?,
            reason: row.get(3)?,
            normalized: match self.is_destroyed(row.get(4)?)? {
                true => None,
                false => {
                    Some(self.opened_text(row, 5, place::event_revision(event.seq, event.id, &n.to_be_bytes()))?)
                }
            },
        })
    }

    /// The edited event among the columns of `event_body.sql`, with its number. Empty once the key of its person is destroyed.
    pub(crate) fn edited_of_body(&self, row: &Row<'_>) -> rusqlite::Result<Option<(u32, String)>> {
        let Some(n) = row.get::<_, Option<u32>>(7)? else { return Ok(None) };
        if self.is_destroyed(row.get(6)?)? {
            return Ok(Some((n, String::new())));
        }
        let part = n.to_be_bytes();
        let context = place::event_revision(row.get(1)?, EventId(row.get(2)?), &part);
        Ok(Some((n, self.opened_text(row, 5, context)?)))
    }

    /// The body of an event without its edits.
    fn accepted_body(&self, seq: EventSeq) -> rusqlite::Result<Option<crate::record::EventBody>> {
        let mut statement = self.prepare_cached(include_str!("sql/event_body.sql"))?;
        statement.query_row([seq], |row| self.accepted_body_row(row)).optional()
    }
}
