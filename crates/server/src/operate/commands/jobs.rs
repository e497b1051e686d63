//! Select, drop and resolve jobs.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::job::{JobId, JobState};
use sluice_ledger::{DropJobs, JobFilter, Resolution, Resolve};
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator, job_id};
use crate::operate::views::{BulkResult, JobDetail, SkippedJob};

/// Maximum jobs per command.
const ACT_MAX: usize = 100_000;
/// Jobs per transaction.
const ACT_SLICE: usize = 500;

/// Jobs of a command: by ids or by filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Job ids (`job_…`), or event ids (`evt_…`) for all their jobs.
    pub ids: Vec<String>,
    #[schema(value_type = Option<Object>)]
    pub filter: Option<JobFilter>,
}

impl Operator {
    /// Selected jobs, oldest first.
    pub(super) async fn select(&self, selection: &Selection) -> Result<Vec<JobId>, OperateError> {
        if selection.ids.is_empty() == selection.filter.is_none() {
            return Err(OperateError::Invalid("set either ids or a filter".into()));
        }
        let mut jobs = Vec::new();
        for id in &selection.ids {
            if id.starts_with("evt_") {
                let event = self.find(id).await?;
                jobs.extend(self.ledger.jobs_of_event(event).await?.into_iter().map(|job| job.id));
            } else {
                let id = job_id(id)?;
                self.job_record(id).await?;
                jobs.push(id);
            }
        }
        if let Some(filter) = &selection.filter {
            let mut after = JobId(0);
            loop {
                let slice = self.ledger.matching_jobs(filter.clone(), after, ACT_SLICE as u32).await?;
                let Some(last) = slice.last() else { break };
                after = *last;
                jobs.extend(slice);
                if jobs.len() > ACT_MAX {
                    return Err(OperateError::Invalid(format!(
                        "more than {ACT_MAX} jobs match; narrow the filter and repeat"
                    )));
                }
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        Ok(jobs)
    }

    /// Drops dead or unknown jobs.
    pub async fn drop_jobs(
        &self,
        selection: &Selection,
        actor: &str,
        reason: &str,
        dry_run: bool,
    ) -> Result<BulkResult, OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "dropping a job needs a reason")?;
        let jobs = self.select(selection).await?;
        let mut acted = BulkResult { matched: jobs.len() as u64, dry_run, ..BulkResult::default() };
        let mut wanted = Vec::new();
        for slice in jobs.chunks(ACT_SLICE) {
            for job in self.ledger.jobs(slice.to_vec()).await? {
                match job.state {
                    JobState::Dead | JobState::Unknown => wanted.push(job.id),
                    state => acted.skipped.push(SkippedJob {
                        job: job.id.to_string(),
                        reason: format!("it is {state}; only dead and unknown jobs can be dropped"),
                    }),
                }
            }
        }
        if dry_run {
            acted.changed = wanted.len() as u64;
            return Ok(acted);
        }
        for slice in wanted.chunks(ACT_SLICE) {
            let order = DropJobs {
                jobs: slice.to_vec(),
                actor: self.actor(actor),
                reason: reason.to_owned(),
                at: self.clock.ledger_time(),
            };
            acted.changed += self.ledger.drop_jobs(order).await?.len() as u64;
        }
        Ok(acted)
    }

    /// Settles an unknown effect as the operator states, and requeues the job.
    pub async fn resolve(
        &self,
        id: &str,
        resolution: Resolution,
        actor: &str,
        reason: &str,
    ) -> Result<JobDetail, OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "resolving a job needs a reason")?;
        let job = job_id(id)?;
        let state = self.job_record(job).await?.state;
        if state != JobState::Unknown {
            return Err(OperateError::Invalid(format!(
                "{job} is {state}; only a job whose outcome is unknown can be resolved"
            )));
        }
        let order = Resolve {
            job,
            resolution,
            actor: self.actor(actor),
            reason: reason.to_owned(),
            at: self.clock.ledger_time(),
        };
        let changed = self.ledger.resolve(order).await?;
        self.scheduler.requeued(changed);
        self.job(id).await
    }
}
