//! Places under caps, consent, suppression, questions and safe mode.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice, EXPIRY};
use sluice_domain::job::{EffectKey, JobId};
use sluice_domain::key::KeyDigest;
use sluice_domain::policy::{CapReservation, ContactFacts};
use sluice_domain::time::Time;

use super::apply::Batch;
use super::key_store::{KeyStore, Sealer};
use super::read::Page;
use super::read_pool::Reader;
use super::row::place;
use crate::BeginResult;
use crate::guard::{
    ApprovalFilter, ApprovalRecord, DecideApproval, Decided, GuardOp, GuardReply, RequestApproval, SafeModeRecord,
    SetConsent, SetSafeMode, Skip, Suppress, SuppressionRecord, Unsuppress,
};
use crate::memory::contacts_in_words;
use crate::op::{Begin, Reply};

/// A contact as the file knows it: whoever guesses an address cannot find its rows without the tenant's key.
fn keyed(vault: &KeyStore, contact: KeyDigest) -> [u8; 16] {
    vault.digest("policy contact", &contact.0)
}

impl Batch<'_, '_> {
    pub fn guard(&mut self, op: &GuardOp) -> rusqlite::Result<GuardReply> {
        match op {
            GuardOp::BeginWithin(begin, caps) => self.begin_within(begin, caps),
            GuardOp::Skip(skip) => self.skip(skip),
            GuardOp::Consent(consent) => self.consent(consent),
            GuardOp::Suppress(suppress) => self.suppress(suppress),
            GuardOp::Release(release) => self.release(release),
            GuardOp::Ask(ask) => self.ask(ask),
            GuardOp::Decide(decide) => {
                let decided = decide.ids.iter().map(|id| Ok((*id, self.decide(*id, decide)?)));
                decided.collect::<rusqlite::Result<_>>().map(GuardReply::Decided)
            }
            GuardOp::SafeMode(set) => self.set_safe_mode(set),
        }
    }

    fn begin_within(&mut self, begin: &Begin, caps: &[CapReservation]) -> rusqlite::Result<GuardReply> {
        let open: Option<bool> = self
            .cached(include_str!("sql/may_begin.sql"))?
            .query_row(params![begin.job.0, begin.n, begin.key.0], |row| row.get(0))
            .optional()?;
        if open == Some(true) {
            for (index, cap) in caps.iter().enumerate() {
                if !self.holds_place(cap, begin.key)?
                    && self.reader().places_taken(cap, begin.at)? >= u64::from(cap.cap.max)
                {
                    return Ok(GuardReply::Refused(index));
                }
            }
            for cap in caps {
                self.cached(include_str!("sql/take_place.sql"))?.execute(params![
                    cap.policy.as_ref(),
                    cap.channel.as_ref(),
                    keyed(self.vault, cap.contact),
                    begin.key.0,
                    begin.at.0,
                    (begin.at + cap.cap.window).0
                ])?;
            }
        }
        Ok(GuardReply::Begun(match self.begin(begin)? {
            Reply::Begun => BeginResult::Go,
            Reply::AlreadyApplied => BeginResult::AlreadyApplied,
            _ => BeginResult::Stale,
        }))
    }

    fn holds_place(&self, cap: &CapReservation, key: EffectKey) -> rusqlite::Result<bool> {
        let contact = keyed(self.vault, cap.contact);
        let held = self
            .cached(include_str!("sql/holds_place.sql"))?
            .query_row(params![cap.policy.as_ref(), cap.channel.as_ref(), contact, key.0], |_| Ok(()))
            .optional()?;
        Ok(held.is_some())
    }

    /// What seals what belongs to a job. `None` if there is no such job.
    fn sealer_of(&self, job: JobId) -> rusqlite::Result<Option<Sealer>> {
        let mut contact = self.cached(include_str!("sql/job_contact.sql"))?;
        let contact = contact.query_row([job.0], |row| row.get::<_, Option<i64>>(0)).optional()?;
        contact.map(|contact| self.sealer(contact)).transpose()
    }

    /// An effect that surely did not happen gives its places back.
    pub fn give_back(&self, key: EffectKey) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/give_back.sql"))?.execute([key.0])?;
        Ok(())
    }

    fn skip(&mut self, skip: &Skip) -> rusqlite::Result<GuardReply> {
        let current = self
            .cached(include_str!("sql/skipping_job.sql"))?
            .query_row(params![skip.job.0, skip.n], |_| Ok(()))
            .optional()?;
        let Some(sealer) = self.sealer_of(skip.job)?.filter(|_| current.is_some()) else {
            return Ok(GuardReply::Stale);
        };
        let sealed = sealer.seal(place::effect_result(skip.job.0, &skip.key.0), &[skip.result.to_string().as_bytes()]);
        self.cached(include_str!("sql/skip_effect.sql"))?.execute(params![
            skip.job.0,
            skip.step,
            skip.step_id.as_ref(),
            skip.key.0,
            skip.action,
            skip.destination.as_ref(),
            skip.class.as_str(),
            skip.at.0,
            skip.n,
            sealed
        ])?;
        self.give_back(skip.key)?;
        Ok(GuardReply::Done)
    }

    fn consent(&mut self, consent: &SetConsent) -> rusqlite::Result<GuardReply> {
        self.cached(include_str!("sql/set_consent.sql"))?.execute(params![
            keyed(self.vault, consent.contact),
            consent.purpose.as_ref(),
            consent.granted,
            consent.at.0
        ])?;
        Ok(GuardReply::Done)
    }

    fn suppress(&mut self, suppress: &Suppress) -> rusqlite::Result<GuardReply> {
        let Suppress { contacts, channel, actor, reason, at } = suppress;
        let mut changed = 0;
        for (contact, label) in contacts {
            let contact = keyed(self.vault, *contact);
            let known: Option<i64> = self
                .cached(include_str!("sql/suppression_id.sql"))?
                .query_row(params![contact, channel], |row| row.get(0))
                .optional()?;
            let id = match known {
                Some(id) => id,
                None => {
                    changed += 1;
                    self.cached(include_str!("sql/insert_suppression.sql"))?
                        .query_row(params![contact, channel, at.0, actor, reason], |row| row.get(0))?
                }
            };
            let sealed = self.vault.tenant(&self.key_changes).seal(place::suppression_label(id), &[label.as_bytes()]);
            self.cached(include_str!("sql/label_suppression.sql"))?
                .execute(params![id, at.0, actor, reason, sealed])?;
        }
        self.audit(*at, actor, "suppress", &contacts_in_words(contacts.len(), channel), reason)?;
        Ok(GuardReply::Changed(changed))
    }

    fn release(&mut self, release: &Unsuppress) -> rusqlite::Result<GuardReply> {
        let mut changed = 0;
        for contact in &release.contacts {
            let gone = self
                .cached(include_str!("sql/delete_suppression.sql"))?
                .execute(params![keyed(self.vault, *contact), release.channel])?;
            changed += gone as u64;
        }
        let object = contacts_in_words(release.contacts.len(), &release.channel);
        self.audit(release.at, &release.actor, "release", &object, &release.reason)?;
        Ok(GuardReply::Changed(changed))
    }

    fn ask(&mut self, ask: &RequestApproval) -> rusqlite::Result<GuardReply> {
        let live = self.cached(include_str!("sql/live_job.sql"))?.query_row([ask.job.0], |_| Ok(())).optional()?;
        let Some(sealer) = self.sealer_of(ask.job)?.filter(|_| live.is_some()) else { return Ok(GuardReply::Stale) };
        let sealed = |column: &'static str, text: &str| {
            sealer.seal(place::approval(ask.job.0, &ask.id.0, column), &[text.as_bytes()])
        };
        self.cached(include_str!("sql/insert_approval.sql"))?.execute(params![
            ask.id.0,
            ask.job.0,
            ask.worker.as_ref(),
            ask.step_id.as_ref(),
            sealed("title", &ask.title),
            sealed("summary", &ask.summary),
            ask.at.0,
            ask.expires_at.0,
            ask.default.as_str()
        ])?;
        let Some(asked) = self.reader().approval(ask.id)? else { return Ok(GuardReply::Stale) };
        if asked.state == ApprovalState::Pending
            && let Some(waits) = &ask.waits
        {
            let mut waits = waits.clone();
            waits.next.due_at = waits.next.due_at.min(asked.expires_at);
            if !matches!(self.settle(&waits)?, Reply::Settled) {
                return Ok(GuardReply::Stale);
            }
        }
        Ok(GuardReply::Asked(Box::new(asked)))
    }

    fn decide(&mut self, id: ApprovalId, decide: &DecideApproval) -> rusqlite::Result<Decided> {
        let Some(record) = self.reader().approval(id)? else { return Ok(Decided::Unknown) };
        let choice = decide.choice;
        if record.state != ApprovalState::Pending {
            let same = record.state == choice.state();
            return Ok(if same { Decided::Same } else { Decided::Conflict(Box::new(record)) });
        }
        if decide.actor != EXPIRY && decide.at >= record.expires_at {
            // The time to answer is over, though nobody has written that down yet.
            let late = DecideApproval {
                choice: record.default,
                actor: EXPIRY.into(),
                reason: String::new(),
                ..decide.clone()
            };
            let counts = self.decide(id, &late)?;
            return if record.default == choice { Ok(counts) } else { self.decide(id, decide) };
        }
        self.cached(include_str!("sql/decide_approval.sql"))?.execute(params![
            id.0,
            choice.state().as_str(),
            decide.at.0,
            decide.actor,
            decide.reason
        ])?;
        self.audit(decide.at, &decide.actor, choice.as_str(), &id.to_string(), &decide.reason)?;
        let worker: Option<String> = self
            .cached(include_str!("sql/wake_job.sql"))?
            .query_row(params![record.job.0, decide.at.0], |row| row.get(0))
            .optional()?;
        Ok(worker.map_or(Decided::Unknown, |worker| Decided::Counts(record.job, Arc::from(worker))))
    }

    fn set_safe_mode(&mut self, set: &SetSafeMode) -> rusqlite::Result<GuardReply> {
        let worker = set.worker.as_deref().unwrap_or_default();
        let object = set.worker.as_deref().map_or("all".to_owned(), |worker| format!("worker:{worker}"));
        match set.until {
            Some(until) => {
                self.cached(include_str!("sql/upsert_safe_mode.sql"))?
                    .execute(params![worker, set.at.0, until.0, set.actor, set.reason])?;
                let detail = format!("until {until}: {}", set.reason);
                self.audit(set.at, &set.actor, "safe-mode on", &object, &detail)?;
            }
            None => {
                if self.cached(include_str!("sql/delete_safe_mode.sql"))?.execute([worker])? > 0 {
                    self.audit(set.at, &set.actor, "safe-mode off", &object, &set.reason)?;
                }
            }
        }
        Ok(GuardReply::Done)
    }
}

impl Reader<'_> {
    pub fn known(&self, contact: KeyDigest, channel: &str, purposes: &[Arc<str>]) -> rusqlite::Result<ContactFacts> {
        let contact = keyed(self.vault, contact);
        let mut known = ContactFacts::default();
        for purpose in purposes {
            let said: Option<bool> = self
                .prepare_cached(include_str!("sql/consent.sql"))?
                .query_row(params![contact, purpose.as_ref()], |row| row.get(0))
                .optional()?;
            known.consent.extend(said.map(|granted| (purpose.clone(), granted)));
        }
        known.suppressed = self
            .prepare_cached(include_str!("sql/is_suppressed.sql"))?
            .query_row(params![contact, channel], |row| row.get(0))?;
        Ok(known)
    }

    pub fn places_taken(&self, reserve: &CapReservation, now: Time) -> rusqlite::Result<u64> {
        let contact = keyed(self.vault, reserve.contact);
        let since = now - reserve.cap.window;
        self.prepare_cached(include_str!("sql/places_taken.sql"))?
            .query_row(params![reserve.policy.as_ref(), reserve.channel.as_ref(), contact, since.0], |row| {
                row.get::<_, i64>(0).map(i64::unsigned_abs)
            })
    }

    pub fn suppressions(&self, limit: u32) -> rusqlite::Result<Vec<SuppressionRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/suppressions.sql"))?;
        let records = statement.query_map([limit], |row| {
            let label = self.opened_text(row, 5, place::suppression_label(row.get(0)?))?;
            Ok(SuppressionRecord {
                label,
                channel: row.get(1)?,
                at: Time(row.get(2)?),
                actor: row.get(3)?,
                reason: row.get(4)?,
            })
        })?;
        records.collect()
    }

    pub fn approval(&self, id: ApprovalId) -> rusqlite::Result<Option<ApprovalRecord>> {
        self.prepare_cached(include_str!("sql/approval.sql"))?
            .query_row([id.0], |row| self.approval_row(row))
            .optional()
    }

    pub fn approvals(&self, filter: &ApprovalFilter, page: Page) -> rusqlite::Result<Vec<ApprovalRecord>> {
        let (after, before) = (page.after.unwrap_or(i64::MAX), filter.asked_before.map(|at| at.0));
        let (worker, state) = (filter.worker.as_deref(), filter.state.map(ApprovalState::as_str));
        if filter.state == Some(ApprovalState::Pending) {
            // There are few of them among many that were answered.
            let mut statement = self.prepare_cached(include_str!("sql/approvals_pending.sql"))?;
            let rows = statement.query_map(params![after, worker, before, page.limit], |row| self.approval_row(row))?;
            return rows.collect();
        }
        let mut statement = self.prepare_cached(include_str!("sql/approvals.sql"))?;
        let rows =
            statement.query_map(params![after, state, worker, before, page.limit], |row| self.approval_row(row))?;
        rows.collect()
    }

    fn approval_row(&self, row: &Row<'_>) -> rusqlite::Result<ApprovalRecord> {
        let (id, job): ([u8; 16], i64) = (row.get(1)?, row.get(2)?);
        let text = |column: usize, name: &'static str| self.opened_text(row, column, place::approval(job, &id, name));
        let word = |column: usize| row.get::<_, String>(column);
        Ok(ApprovalRecord {
            n: row.get(0)?,
            id: ApprovalId(id),
            job: JobId(job),
            worker: row.get(3)?,
            step_id: row.get(4)?,
            title: text(5, "title")?,
            summary: text(6, "summary")?,
            asked_at: Time(row.get(7)?),
            expires_at: Time(row.get(8)?),
            default: Choice::parse(&word(9)?).unwrap_or(Choice::Reject),
            state: ApprovalState::parse(&word(10)?).unwrap_or(ApprovalState::Rejected),
            decided_at: row.get::<_, Option<i64>>(11)?.map(Time),
            decided_by: row.get(12)?,
            reason: row.get(13)?,
        })
    }

    pub fn safe_modes(&self) -> rusqlite::Result<Vec<SafeModeRecord>> {
        let mut statement = self.prepare_cached(include_str!("sql/safe_modes.sql"))?;
        let records = statement.query_map([], |row| {
            let worker: String = row.get(0)?;
            Ok(SafeModeRecord {
                worker: (!worker.is_empty()).then_some(worker),
                at: Time(row.get(1)?),
                until: Time(row.get(2)?),
                actor: row.get(3)?,
                reason: row.get(4)?,
            })
        })?;
        records.collect()
    }
}
