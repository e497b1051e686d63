//! Skipped effects and approvals.

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::approval::{ApprovalId, ApprovalState, Choice, EXPIRY};
use sluice_domain::job::{EffectState, JobId};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::mac::EffectColumns;
use super::read_pool::Reader;
use super::row::place;
use crate::filter::{ApprovalFilter, Page};
use crate::op::{ApprovalRecord, ChargeResult, DecideApproval, Decided, RequestApproval, Settle, Skip};

impl Batch<'_, '_> {
    pub(super) fn skip_effect(&mut self, skip: &Skip) -> rusqlite::Result<bool> {
        let Some(mut head) = self.job_head(skip.job)?.filter(|head| head.guard.is_idle(skip.n, skip.fence)) else {
            return Ok(false);
        };
        let sealer = self.sealer(head.contact)?;
        let context = place::effect_result(skip.job.0, &skip.key.0);
        let result = Some(sealer.seal(context, &[skip.result.to_string().as_bytes()]));
        let (state, at, term) = (EffectState::Skipped.as_str().to_owned(), skip.at.0, skip.fence.owner.0);
        match self.find_effect(&head, skip.key)? {
            Some(effect) if effect.is_final() => {}
            Some(effect) => {
                let skipped = EffectColumns { state, step: skip.step, result, last_at: at, term, ..effect };
                self.write_effect(&skipped)?;
            }
            None => {
                let skipped = EffectColumns {
                    job: skip.job.0,
                    key: skip.key.0,
                    step: skip.step,
                    step_id: skip.step_id.to_string(),
                    action: skip.action.to_owned(),
                    destination: skip.destination.to_string(),
                    class: skip.class.as_str().to_owned(),
                    state,
                    attempts: 0,
                    absent_reads: 0,
                    reads: 0,
                    n: skip.n,
                    result,
                    first_at: at,
                    last_at: at,
                    term,
                };
                self.insert_effect(&mut head, &skipped)?;
            }
        }
        self.release_caps(skip.key)?;
        Ok(true)
    }

    /// Inserts the approval and lets its job wait, unless somebody has decided.
    pub(super) fn insert_approval(&mut self, request: &RequestApproval) -> rusqlite::Result<Option<ApprovalRecord>> {
        let Some(head) = self.job_head(request.job)?.filter(|head| head.guard.state.is_live()) else {
            return Ok(None);
        };
        let sealer = self.sealer(head.contact)?;
        let sealed = |column: &'static str, text: &str| {
            sealer.seal(place::approval(request.job.0, &request.id.0, column), &[text.as_bytes()])
        };
        // A stale request writes nothing: it waits in the same transaction, so the fence is checked first.
        if request.waits.as_ref().is_some_and(|waits| !head.guard.may_settle(waits)) {
            return Ok(None);
        }
        self.cached(include_str!("sql/insert_approval.sql"))?.execute(params![
            request.id.0,
            request.job.0,
            request.worker.as_ref(),
            request.step_id.as_ref(),
            sealed("title", &request.title),
            sealed("summary", &request.summary),
            request.at.0,
            request.expires_at.0,
            request.default.as_str()
        ])?;
        let Some(approval) = self.reader().approval(&request.id)? else { return Ok(None) };
        if approval.state == ApprovalState::Pending
            && let Some(settlement) = request.waits_until(approval.expires_at)
        {
            let settle = Settle { settlement, charge: None, begin: None };
            if self.settle_run(&settle)? != ChargeResult::Settled {
                return Ok(None);
            }
        }
        Ok(Some(approval))
    }

    pub(super) fn decide(&mut self, id: ApprovalId, decide: &DecideApproval) -> rusqlite::Result<Decided> {
        let Some(record) = self.reader().approval(&id)? else { return Ok(Decided::Unknown) };
        let choice = decide.choice;
        if record.state.is_decided() {
            let same = record.state == choice.state();
            return Ok(if same { Decided::Same } else { Decided::Conflict(Box::new(record)) });
        }
        if decide.actor != EXPIRY && decide.at >= record.expires_at {
            // The approval has expired, and that is not recorded yet.
            let expired = DecideApproval {
                choice: record.default,
                actor: EXPIRY.into(),
                reason: String::new(),
                ..decide.clone()
            };
            let counts = self.decide(id, &expired)?;
            if record.default == choice {
                return Ok(counts);
            }
            let decided = self.reader().approval(&id)?;
            return Ok(decided.map_or(Decided::Unknown, |record| Decided::Conflict(Box::new(record))));
        }
        self.cached(include_str!("sql/decide_approval.sql"))?.execute(params![
            id.0,
            choice.state().as_str(),
            decide.at.0,
            decide.actor,
            decide.reason
        ])?;
        self.log(decide.at, &decide.actor, choice.as_str(), &id.to_string(), &decide.reason)?;
        let Some(head) = self.job_head(record.job)? else { return Ok(Decided::Unknown) };
        self.make_waiting_due(&head, decide.at)?;
        Ok(Decided::Counts(record.job, head.total.worker))
    }
}

impl Reader<'_> {
    pub(crate) fn approval(&self, id: &ApprovalId) -> rusqlite::Result<Option<ApprovalRecord>> {
        self.prepare_cached(include_str!("sql/approval.sql"))?
            .query_row([id.0], |row| self.approval_row(row))
            .optional()
    }

    pub(crate) fn approvals(&self, filter: &ApprovalFilter, page: &Page) -> rusqlite::Result<Vec<ApprovalRecord>> {
        let (after, before) = (page.after.unwrap_or(i64::MAX), filter.asked_before.map(|at| at.0));
        let (worker, state) = (filter.worker.as_deref(), filter.state.map(ApprovalState::as_str));
        if filter.state == Some(ApprovalState::Pending) {
            // Few are pending among many that are decided, so they have an index.
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
}
