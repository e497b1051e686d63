//! Start, preview, pause, resume and cancel replays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::job::JobId;
use sluice_domain::mask;
use sluice_domain::outcome::EffectClass;
use sluice_domain::replay::{BATCH, BATCH_MAX, Reapply, ReplayId, ReplayState, replayable};
use sluice_domain::run::{Forecast, ReplayPlan, RunContext, forecast};
use sluice_domain::unit::{self, Rate};
use sluice_ledger::{ControlReplay, Controlled, LoadedJob, NewReplay, Page, ReplayRecord, ReplaySelection};
use utoipa::ToSchema;

use super::jobs::Selection;
use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::LIST_MAX;
use crate::operate::views::{
    BulkResult, DestinationCalls, ForecastFailure, List, ReplayPreview, ReplayResult, ReplayView, SkippedJob, rate_text,
};

/// Skipped jobs that are named in a result; the rest is counted.
const SKIPPED_MAX: usize = 1_000;
/// Jobs of one answer of a preview; the next request continues behind them.
const PREVIEW_JOBS: usize = 2_000;
/// Jobs that are loaded at once.
const LOAD_JOBS: usize = 100;
/// Bytes of bodies that are loaded at once.
const LOAD_BYTES: usize = 8 * 1024 * 1024;
/// Remaining jobs of a replay that are counted.
const REMAINING_MAX: u32 = 10_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayRequest {
    #[serde(flatten)]
    pub selection: Selection,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
    /// Run the jobs with the active configuration instead of the one they were accepted under.
    pub latest_config: bool,
    /// Classes of effects that are applied again although they are applied: natural, transactional, keyed, verifiable, blind.
    pub reapply: Vec<String>,
    /// Jobs per time, such as `10/s`. Without it the replay is done when the response comes.
    pub rate: Option<String>,
    /// Jobs per batch: 100 by default, 500 at most.
    pub batch: Option<u32>,
    /// Report the result without changing anything. The jobs are gone through in parts: while the preview has a `next`, repeat the
    /// request with it as `after`.
    pub dry_run: bool,
    /// Continues a dry run behind this job.
    pub after: Option<String>,
}

/// A valid [`ReplayRequest`].
struct ReplayOrder {
    selection: ReplaySelection,
    revision: Option<Arc<str>>,
    reapply: Reapply,
    rate: Option<Rate>,
    batch: u32,
}

impl Operator {
    /// Requeues jobs with the same keys: applied effects are not sent again, unless the request says so. With a rate the replay
    /// runs in the background; either way it is durable and continues after a restart.
    pub async fn replay(&self, request: ReplayRequest) -> Result<ReplayResult, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "a replay needs a reason")?;
        if let Some(pause) = crate::pauses::of_replays(&self.ledger.pauses().await?).filter(|_| !request.dry_run) {
            return Err(OperateError::Invalid(format!(
                "replays have been paused since {} by {}: {}; run `sluice resume replays`",
                pause.at, pause.actor, pause.reason
            )));
        }
        let order = self.order(&request).await?;
        if request.dry_run {
            return self.preview(order, &request).await;
        }
        let ReplayOrder { selection, revision, reapply, rate, batch } = order;
        let (actor, reason, at) = (self.actor(&request.actor), request.reason, self.clock.ledger_time());
        let new = NewReplay { selection, actor, reason, revision, reapply, rate, batch, at };
        let started = self.ledger.start_replay(new).await?;
        let mut jobs = BulkResult::default();
        if rate.is_none() {
            while let Some(taken) = self.replays.take_batch(started.id).await? {
                let skipped = taken.skipped.into_iter().map(|(job, why)| skipped_job(job, &why.to_string()));
                jobs.skipped.extend(skipped.take(SKIPPED_MAX.saturating_sub(jobs.skipped.len())));
                if taken.is_last {
                    break;
                }
            }
        }
        self.replays.wake();
        let replay = self.replay_record(started.id).await?;
        if rate.is_none() {
            // The loop of the node may have taken some of the batches.
            (jobs.matched, jobs.changed) = (replay.replayed + replay.skipped, replay.replayed);
        }
        Ok(ReplayResult { jobs, replay: Some(replay.into()), preview: None })
    }

    async fn order(&self, request: &ReplayRequest) -> Result<ReplayOrder, OperateError> {
        let selection = match &request.selection {
            Selection { ids, filter: Some(filter) } if ids.is_empty() => ReplaySelection::Filter(filter.clone()),
            named => ReplaySelection::Jobs(self.select(named).await?.into_iter().map(|id| id.0).collect()),
        };
        let class = |word: &String| {
            EffectClass::parse(word.trim()).ok_or_else(|| {
                OperateError::Invalid(format!(
                    "`{word}` is not a class of effects; use natural, transactional, keyed, verifiable or blind"
                ))
            })
        };
        let reapply = Reapply(request.reapply.iter().map(class).collect::<Result<_, _>>()?);
        let rate = request.rate.as_deref().map(unit::rate).transpose();
        let batch = request.batch.unwrap_or(BATCH);
        if !(1..=BATCH_MAX).contains(&batch) {
            return Err(OperateError::Invalid(format!("a batch has 1 to {BATCH_MAX} jobs, not {batch}")));
        }
        Ok(ReplayOrder {
            selection,
            revision: request.latest_config.then(|| self.revisions.current().revision.clone()),
            reapply,
            rate: rate.map_err(|problem| OperateError::Invalid(problem.to_string()))?,
            batch: if request.rate.is_some() { batch } else { BATCH_MAX },
        })
    }

    /// What a replay would do, from the steps and effects of its jobs.
    async fn preview(&self, order: ReplayOrder, request: &ReplayRequest) -> Result<ReplayResult, OperateError> {
        let after = request.after.as_deref().map(job_id).transpose()?.unwrap_or_default();
        let ids = self.selected(&order.selection, after).await?;
        let next = ids.last().filter(|_| ids.len() == PREVIEW_JOBS).map(JobId::to_string);
        let mut jobs = BulkResult { matched: ids.len() as u64, dry_run: true, ..BulkResult::default() };
        let mut forecasts = Forecasts::default();
        for slice in ids.chunks(LOAD_JOBS) {
            let records = self.ledger.jobs(slice.to_vec()).await?;
            let mut wanted = Vec::new();
            for job in records {
                match replayable(job.state) {
                    Ok(()) => wanted.push(job.id),
                    Err(why) if jobs.skipped.len() < SKIPPED_MAX => {
                        jobs.skipped.push(skipped_job(job.id, &why.to_string()));
                    }
                    Err(_) => {}
                }
            }
            jobs.changed += wanted.len() as u64;
            self.forecast_all(wanted, &order, &mut forecasts).await?;
        }
        let destinations = self.revisions.current().config.destinations.clone();
        let rate_of = |name: &str| destinations.get(name).and_then(|destination| destination.gate.rate);
        let mut preview = forecasts.preview(request.rate.clone(), rate_of);
        preview.next = next;
        preview.estimate(jobs.changed);
        Ok(ReplayResult { jobs, replay: None, preview: Some(preview) })
    }

    /// The oldest selected jobs behind this one, as many as a preview has.
    async fn selected(&self, selection: &ReplaySelection, after: JobId) -> Result<Vec<JobId>, OperateError> {
        let filter = match selection {
            ReplaySelection::Jobs(ids) => {
                let behind: BTreeSet<JobId> = ids.iter().map(|id| JobId(*id)).filter(|id| *id > after).collect();
                return Ok(behind.into_iter().take(PREVIEW_JOBS).collect());
            }
            ReplaySelection::Filter(filter) => filter,
        };
        let mut found: Vec<JobId> = Vec::new();
        while found.len() < PREVIEW_JOBS {
            let after = found.last().copied().unwrap_or(after);
            let page = self.ledger.matching_jobs(filter.clone(), after, BATCH_MAX).await?;
            let is_last = page.len() < BATCH_MAX as usize;
            found.extend(page);
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    async fn forecast_all(
        &self,
        mut jobs: Vec<JobId>,
        order: &ReplayOrder,
        forecasts: &mut Forecasts,
    ) -> Result<(), OperateError> {
        let (now, at, term) = (self.clock.now(), self.clock.ledger_time(), self.ledger.term());
        let context = RunContext {
            now,
            at,
            wall: self.clock.wall(),
            term,
            safe_mode_until: None,
            record_first: false,
            at_boot: self.clock.at_boot(),
        };
        while !jobs.is_empty() {
            let loaded = self.ledger.load_jobs(jobs.clone(), LOAD_BYTES).await?;
            let seen: BTreeSet<JobId> = loaded.iter().map(|loaded| loaded.job.id).collect();
            // A job whose event is gone is not loaded.
            jobs = match seen.iter().next_back() {
                Some(last) => jobs.into_iter().filter(|id| id > last).collect(),
                None => vec![],
            };
            for loaded in loaded {
                forecasts.add(self.forecast(loaded, order, context).await);
            }
        }
        Ok(())
    }

    async fn forecast(&self, loaded: LoadedJob, order: &ReplayOrder, context: RunContext) -> Forecast {
        let revision = order.revision.clone().unwrap_or_else(|| loaded.job.revision.clone());
        let config = self.revisions.for_run(&revision, &self.ledger).await;
        forecast(loaded, ReplayPlan { config, reapply: &order.reapply }, context)
    }

    /// Pauses, resumes or cancels a replay.
    pub async fn control_replay(
        &self,
        id: &str,
        state: ReplayState,
        actor: &str,
        reason: &str,
    ) -> Result<ReplayView, OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "this needs a reason")?;
        let id = replay_id(id)?;
        let (actor, reason, at) = (self.actor(actor), reason.to_owned(), self.clock.ledger_time());
        let controlled = self.ledger.control_replay(ControlReplay { id, state, actor, reason, at }).await?;
        self.replays.wake();
        match controlled {
            Controlled::Changed(record) | Controlled::Same(record) => Ok(record.into()),
            Controlled::Refused(record) => Err(OperateError::Refused(
                "replay-finished",
                format!("{id} is {}; start a new replay for jobs that are left", record.state.as_str()),
            )),
            Controlled::Unknown => Err(unknown_replay(id)),
        }
    }

    /// Newest first.
    pub async fn replays(&self, after: Option<String>, limit: u32) -> Result<List<ReplayView>, OperateError> {
        let after = after.map(|id| replay_id(&id)).transpose()?.map(|id| id.0);
        let limit = limit.clamp(1, LIST_MAX);
        let records = self.ledger.replays(Page { after, limit }).await?;
        let next = records.last().filter(|_| records.len() == limit as usize).map(|last| last.id.to_string());
        Ok(List::new(records.into_iter().map(ReplayView::from).collect(), next))
    }

    /// One replay, with the number of jobs that are left.
    pub async fn replay_view(&self, id: &str) -> Result<ReplayView, OperateError> {
        let record = self.replay_record(replay_id(id)?).await?;
        let is_open = matches!(record.state, ReplayState::Running | ReplayState::Paused);
        let remaining = match is_open {
            true => Some(self.replays.next_jobs(&record, REMAINING_MAX).await?.len() as u64),
            false => None,
        };
        Ok(ReplayView { remaining, ..record.into() })
    }

    async fn replay_record(&self, id: ReplayId) -> Result<ReplayRecord, OperateError> {
        self.ledger.replay_record(id).await?.ok_or_else(|| unknown_replay(id))
    }
}

fn replay_id(text: &str) -> Result<ReplayId, OperateError> {
    ReplayId::parse(text)
        .ok_or_else(|| OperateError::Invalid(format!("`{text}` is not the id of a replay, such as replay_7")))
}

fn job_id(text: &str) -> Result<JobId, OperateError> {
    JobId::parse(text).ok_or_else(|| OperateError::Invalid(format!("`{text}` is not the id of a job, such as job_17")))
}

fn unknown_replay(id: ReplayId) -> OperateError {
    OperateError::NotFound(format!("unknown replay {id}; `sluice replays` lists them"))
}

fn skipped_job(job: JobId, reason: &str) -> SkippedJob {
    SkippedJob { job: job.to_string(), reason: reason.to_owned() }
}

/// Forecasts of several jobs, added up.
#[derive(Default)]
struct Forecasts {
    preview: ReplayPreview,
    destinations: BTreeMap<Arc<str>, u64>,
    failures: BTreeMap<String, (String, u64)>,
}

impl Forecasts {
    fn add(&mut self, forecast: Forecast) {
        let preview = &mut self.preview;
        preview.examined += 1;
        preview.at_risk += u64::from(forecast.rejected_before);
        preview.noops += u64::from(forecast.calls.is_empty() && forecast.failure.is_none());
        for call in &forecast.calls {
            let overwrites = Reapply::OVERWRITING.contains(&call.class);
            *(if overwrites { &mut preview.writes } else { &mut preview.sends }) += 1;
            preview.updates += u64::from(overwrites && call.updates);
            *self.destinations.entry(call.destination.clone()).or_default() += 1;
        }
        preview.calls += forecast.calls.len() as u64;
        if let Some(failure) = forecast.failure {
            preview.fails += 1;
            let message = || mask::text(&failure.message).into_owned();
            self.failures.entry(failure.code.clone()).or_insert_with(|| (message(), 0)).1 += 1;
        }
    }

    fn preview(self, rate: Option<String>, rate_of: impl Fn(&str) -> Option<Rate>) -> ReplayPreview {
        let Forecasts { preview, destinations, failures } = self;
        let mut failures: Vec<ForecastFailure> =
            failures.into_iter().map(|(code, (message, jobs))| ForecastFailure { code, message, jobs }).collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.jobs));
        let calls = |(name, calls): (Arc<str>, u64)| {
            let rate = rate_of(&name).map(rate_text);
            DestinationCalls { destination: name.to_string(), calls, rate }
        };
        ReplayPreview { destinations: destinations.into_iter().map(calls).collect(), failures, rate, ..preview }
    }
}
