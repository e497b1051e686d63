//! What an operator can do. Every act leaves a line in the audit trail.

use std::sync::Arc;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::schedule::PauseTarget;
use sluice_ledger::{DropJobs, PauseRecord, Replay, Resolution, Resolve};

use super::operator::{OperateError, Operator, ReplayRequest, Selection, job_id};
use super::view::{BulkResult, JobDetail, SkippedJob};
use crate::{run, schedule};

/// Jobs that one act may change. More are done in several.
const ACT_MAX: usize = 100_000;
/// Jobs that are changed in one transaction.
const ACT_SLICE: usize = 500;

impl Operator {
    /// The jobs that a selection means, oldest first.
    async fn select(&self, selection: &Selection) -> Result<Vec<JobId>, OperateError> {
        if selection.ids.is_empty() == selection.filter.is_none() {
            return Err(OperateError::Invalid("name the jobs, or give a filter; one of the two".into()));
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
                        "more than {ACT_MAX} jobs match; narrow the filter and go in steps"
                    )));
                }
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        Ok(jobs)
    }

    /// Brings jobs back to life with their own keys: effects that were applied stay applied. Twice is harmless.
    pub async fn replay(&self, order: ReplayRequest) -> Result<BulkResult, OperateError> {
        need(&order.reason, "a replay needs a reason")?;
        if let Some(pause) = schedule::pauses::of_replays(&self.ledger.pauses().await?).filter(|_| !order.dry_run) {
            return Err(OperateError::Invalid(format!(
                "replays are paused since {} by {}: {}; `sluice resume replays` lets them go on",
                pause.at, pause.actor, pause.reason
            )));
        }
        let jobs = self.select(&order.selection).await?;
        let mut acted = BulkResult { matched: jobs.len() as u64, dry_run: order.dry_run, ..BulkResult::default() };
        let revision = order.newest.then(|| self.revisions.current().revision.clone());
        let (mut wanted, mut left) = (Vec::new(), Vec::new());
        for id in jobs {
            match self.job_record(id).await?.state {
                JobState::Succeeded | JobState::Noop | JobState::Dead => wanted.push(id),
                JobState::Unknown => left.push(SkippedJob {
                    job: id.to_string(),
                    reason: "its effect may have happened; say which with `sluice jobs resolve`".into(),
                }),
                JobState::Dropped => left.push(SkippedJob { job: id.to_string(), reason: "it was dropped".into() }),
                state => left.push(SkippedJob { job: id.to_string(), reason: format!("it is {state} already") }),
            }
        }
        acted.skipped = left;
        if order.dry_run {
            acted.changed = wanted.len() as u64;
            return Ok(acted);
        }
        for slice in wanted.chunks(ACT_SLICE) {
            let replay = Replay {
                jobs: slice.to_vec(),
                actor: or_unknown(&order.actor),
                reason: order.reason.clone(),
                revision: revision.clone(),
                at: self.clock.wall(),
            };
            let changed = self.ledger.replay(replay).await?;
            acted.changed += changed.len() as u64;
            self.metrics.replays.inc_by(changed.len() as u64);
            self.scheduler.revived(changed);
        }
        Ok(acted)
    }

    /// Gives dead or parked jobs up.
    pub async fn drop_jobs(
        &self,
        selection: &Selection,
        actor: &str,
        reason: &str,
        dry_run: bool,
    ) -> Result<BulkResult, OperateError> {
        need(reason, "to drop a job needs a reason: somebody signs it off")?;
        let jobs = self.select(selection).await?;
        let mut acted = BulkResult { matched: jobs.len() as u64, dry_run, ..BulkResult::default() };
        let mut wanted = Vec::new();
        for id in jobs {
            match self.job_record(id).await?.state {
                JobState::Dead | JobState::Unknown => wanted.push(id),
                state => acted.skipped.push(SkippedJob {
                    job: id.to_string(),
                    reason: format!("it is {state}; only dead and unknown jobs are dropped"),
                }),
            }
        }
        if dry_run {
            acted.changed = wanted.len() as u64;
            return Ok(acted);
        }
        for slice in wanted.chunks(ACT_SLICE) {
            let order = DropJobs {
                jobs: slice.to_vec(),
                actor: or_unknown(actor),
                reason: reason.to_owned(),
                at: self.clock.wall(),
            };
            acted.changed += self.ledger.drop_jobs(order).await?.len() as u64;
        }
        Ok(acted)
    }

    /// Records what a person found out about a parked effect, and lets the job go on.
    pub async fn resolve(
        &self,
        id: &str,
        verdict: Resolution,
        actor: &str,
        reason: &str,
    ) -> Result<JobDetail, OperateError> {
        need(reason, "to resolve a job needs a reason: how do you know?")?;
        let job = job_id(id)?;
        let state = self.job_record(job).await?.state;
        if state != JobState::Unknown {
            return Err(OperateError::Invalid(format!(
                "{job} is {state}; only a job whose outcome is unknown can be resolved"
            )));
        }
        let order = Resolve {
            job,
            resolution: verdict,
            actor: or_unknown(actor),
            reason: reason.to_owned(),
            at: self.clock.wall(),
        };
        let changed = self.ledger.resolve(order).await?;
        self.scheduler.revived(changed);
        self.job(id).await
    }

    /// Stops a source, a queue, a worker, a destination or all replays until it is resumed.
    pub async fn pause(&self, target: &str, actor: &str, reason: &str) -> Result<(), OperateError> {
        need(reason, "a pause needs a reason")?;
        let target = self.target(target)?;
        let _one_at_a_time = self.pausing.lock().await;
        self.ledger.pause(target.clone(), or_unknown(actor), reason.to_owned(), self.clock.wall()).await?;
        self.put_pauses_in_force(&target).await
    }

    /// Lets it go on.
    pub async fn resume(&self, target: &str, actor: &str) -> Result<(), OperateError> {
        let target = self.target(target)?;
        let _one_at_a_time = self.pausing.lock().await;
        self.ledger.resume(target.clone(), or_unknown(actor), self.clock.wall()).await?;
        self.put_pauses_in_force(&target).await
    }

    /// What is paused is what the ledger says; everybody who has to know hears it.
    async fn put_pauses_in_force(&self, target: &str) -> Result<(), OperateError> {
        let pauses = self.ledger.pauses().await?;
        if let Some(name) = target.strip_prefix("destination:") {
            let paused = pauses.iter().any(|pause| pause.target == target);
            self.tell(PauseTarget::Destination(Arc::from(name)), paused);
        }
        self.put_workers_in_force(&pauses);
        self.put_paused_sources_in_force().await
    }

    pub(super) fn put_workers_in_force(&self, pauses: &[PauseRecord]) {
        let live = self.revisions.current();
        let paused = schedule::pauses::workers(&live.config, pauses);
        for name in live.config.workers.keys() {
            self.tell(PauseTarget::Worker(Arc::from(name.as_str())), paused.contains(name));
        }
    }

    fn tell(&self, target: PauseTarget, paused: bool) {
        if paused { self.scheduler.pause(target) } else { self.scheduler.resume(target) }
    }

    /// The target as it is kept: a playbook is a worker.
    fn target(&self, target: &str) -> Result<String, OperateError> {
        if target == schedule::pauses::REPLAYS {
            return Ok(target.to_owned());
        }
        let live = self.revisions.current();
        let (kind, name) = target.split_once(':').unwrap_or((target, ""));
        let names: Vec<&str> = match kind {
            "destination" => live.config.destinations.keys().map(String::as_str).collect(),
            "worker" | "playbook" => live.config.workers.keys().map(String::as_str).collect(),
            "queue" => live.config.queues.keys().map(String::as_str).collect(),
            "source" => live.config.flows.values().map(|flow| flow.source.as_str()).collect(),
            _ => {
                return Err(OperateError::Invalid(format!(
                    "`{target}` cannot be paused; write destination:NAME, worker:NAME, playbook:NAME, queue:NAME, source:NAME or replays"
                )));
            }
        };
        if names.contains(&name) {
            return Ok(format!("{}:{name}", if kind == "playbook" { "worker" } else { kind }));
        }
        let hint = crate::config::did_you_mean(name, names.iter().copied())
            .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        Err(OperateError::NotFound(format!("there is no {kind} `{name}`{hint}")))
    }

    /// Reads the configuration and its secrets again and puts them in force, unless there is a mistake: then those before stay.
    /// Answers the revision in force and whether anything is another than before.
    pub async fn reload(&self, actor: &str) -> Result<(String, bool), OperateError> {
        let _one_at_a_time = self.changing.lock().await;
        let loaded = run::load(&self.settings).map_err(|error| match error {
            run::StartError::Config(compiled, files) => OperateError::Config(crate::config::render_all(
                &compiled.problems,
                &files,
                crate::config::Colours::None,
            )),
            other => OperateError::Config(other.to_string()),
        });
        let run::LoadedConfig { live, files, warnings, .. } = loaded?;
        let revision = live.revision.clone();
        let before = self.revisions.current();
        if live.is_same(&before) {
            return Ok((revision.to_string(), false));
        }
        run::warn_of(&warnings);
        if revision == before.revision {
            self.ledger.audit(self.clock.wall(), actor, "secrets", &revision, "a secret has changed").await?;
        }
        self.keep(&files, &revision, actor, "reload").await?;
        self.put_in_force(live).await?;
        Ok((revision.to_string(), true))
    }
}

pub(super) fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}

pub(super) fn or_unknown(actor: &str) -> String {
    if actor.trim().is_empty() { "unknown".to_owned() } else { actor.trim().to_owned() }
}
