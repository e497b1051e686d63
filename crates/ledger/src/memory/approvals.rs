//! Skipped effects and approvals.

use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, ApprovalState, EXPIRY};
use sluice_domain::job::{EffectState, JobState};

use super::{EffectRow, Store};
use crate::fence::JobGuard;
use crate::filter::{ApprovalFilter, Page};
use crate::op::{ApprovalRecord, Begin, DecideApproval, Decided, RequestApproval, Settle, Skip};
use crate::record::JobRecord;

impl Store {
    /// Records that an effect is skipped. `false` if the run is stale.
    pub fn skip(&mut self, skip: Skip) -> bool {
        let Some(job) = self.jobs.get_mut(&skip.job) else { return false };
        if !JobGuard::from(&job.record).is_idle(skip.n, skip.fence) {
            return false;
        }
        let key = skip.key;
        match job.effects.iter_mut().find(|effect| effect.begin.key == key) {
            Some(effect) if effect.state.is_final() => {}
            Some(effect) => {
                (effect.state, effect.last_at, effect.result) =
                    (EffectState::Skipped, skip.at, Some(Arc::new(skip.result)));
                effect.begin.step = skip.step;
            }
            None => {
                let begin = Begin {
                    job: skip.job,
                    n: skip.n,
                    fence: skip.fence,
                    step: skip.step,
                    step_id: skip.step_id,
                    key,
                    class: skip.class,
                    action: skip.action,
                    destination: skip.destination,
                    identity: None,
                    at: skip.at,
                };
                job.effects.push(EffectRow {
                    begin,
                    state: EffectState::Skipped,
                    attempts: 0,
                    absent_reads: 0,
                    reads: 0,
                    result: Some(Arc::new(skip.result)),
                    first_at: skip.at,
                    last_at: skip.at,
                });
            }
        }
        self.release_caps(key);
        true
    }

    /// Requests an approval and returns it as it is recorded. `None` if the run is stale.
    pub fn request_approval(&mut self, request: RequestApproval) -> Option<ApprovalRecord> {
        let guard = JobGuard::from(self.job(request.job)?);
        if !guard.state.is_live() || request.waits.as_ref().is_some_and(|waits| !guard.may_settle(waits)) {
            return None;
        }
        let approval = match self.approval(request.id) {
            Some(approval) => approval,
            None => {
                let request = request.clone();
                let record = ApprovalRecord {
                    n: self.approvals.last().map_or(1, |last| last.n + 1),
                    id: request.id,
                    job: request.job,
                    worker: request.worker.to_string(),
                    step_id: request.step_id.to_string(),
                    title: request.title,
                    summary: request.summary,
                    asked_at: request.at,
                    expires_at: request.expires_at,
                    default: request.default,
                    state: ApprovalState::Pending,
                    decided_at: None,
                    decided_by: None,
                    reason: None,
                };
                self.approvals.push(record.clone());
                record
            }
        };
        if approval.state == ApprovalState::Pending
            && let Some(settlement) = request.waits_until(approval.expires_at)
        {
            self.settle(Settle { settlement, charge: None, begin: None });
        }
        Some(approval)
    }

    /// Records decisions. The first decision on an approval counts; its job becomes due.
    pub fn decide_approval(&mut self, decide: &DecideApproval) -> Vec<(ApprovalId, Decided)> {
        decide.ids.iter().map(|id| (*id, self.decide_one(*id, decide))).collect()
    }

    fn decide_one(&mut self, id: ApprovalId, decide: &DecideApproval) -> Decided {
        let Some(record) = self.approvals.iter_mut().find(|approval| approval.id == id) else {
            return Decided::Unknown;
        };
        let choice = decide.choice;
        if record.state.is_decided() {
            return if record.state == choice.state() {
                Decided::Same
            } else {
                Decided::Conflict(Box::new(record.clone()))
            };
        }
        if decide.actor != EXPIRY && decide.at >= record.expires_at {
            // The approval has expired, and that is not recorded yet.
            let default = record.default;
            let late =
                DecideApproval { choice: default, actor: EXPIRY.into(), reason: String::new(), ..decide.clone() };
            let counts = self.decide_one(id, &late);
            let conflict = || self.approval(id).map_or(Decided::Unknown, |record| Decided::Conflict(Box::new(record)));
            return if default == choice { counts } else { conflict() };
        }
        (record.state, record.decided_at) = (choice.state(), Some(decide.at));
        (record.decided_by, record.reason) = (Some(decide.actor.clone()), Some(decide.reason.clone()));
        let job = record.job;
        self.log(decide.at, &decide.actor, choice.as_str(), &id.to_string(), &decide.reason);
        self.change(job, |job| {
            if job.state == JobState::Waiting {
                (job.due_at, job.updated_at) = (JobRecord::DUE_AT_ONCE, decide.at);
            }
        });
        self.job(job).map_or(Decided::Unknown, |record| Decided::Counts(job, record.worker.clone()))
    }

    pub fn approval(&self, id: ApprovalId) -> Option<ApprovalRecord> {
        self.approvals.iter().find(|approval| approval.id == id).cloned()
    }

    pub(crate) fn approvals(&self, filter: &ApprovalFilter, page: Page) -> Vec<ApprovalRecord> {
        let newest_first = self.approvals.iter().rev();
        let after = newest_first.filter(|approval| page.after.is_none_or(|after| approval.n < after));
        after.filter(|approval| filter.matches(approval)).take(page.limit as usize).cloned().collect()
    }

    /// Every approval, oldest first.
    pub fn all_approvals(&self) -> &[ApprovalRecord] {
        &self.approvals
    }
}
