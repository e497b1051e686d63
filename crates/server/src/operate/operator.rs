//! The acts of an operator, whoever asks for them: the API, or the command line while no node runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use sluice_domain::event::EventId;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::schedule::View;
use sluice_domain::schedule::gate::Pause;
use sluice_domain::time::Time;
use sluice_domain::verify::Scheme;
use sluice_ledger::{DropJobs, EventRecord, JobFilter, JobRecord, Ledger, Page, Replay, Resolve, Verdict};
use utoipa::ToSchema;

use super::view::{
    Acted, AttemptView, AuditView, DestinationView, EffectView, EventDetail, EventView, FlowView, JobDetail, JobView, Left,
    List, PauseView, ReasonView, RefusalView, RefusedView, SourceView, Status, preview, show,
};
use crate::clock::Clock;
use crate::config::SecretSource;
use crate::live::{Live, Revisions};
use crate::observe::Metrics;
use crate::observe::metrics::{DepthLabels, WorkerLabels};
use crate::run::Settings;
use crate::{intake, run, schedule};

/// Rows of a list, at the most.
pub const LIST_MAX: u32 = 500;
/// How many refused requests of a source are shown.
const REFUSALS_MAX: usize = 20;
/// Jobs that one act may change. More are done in several.
const ACT_MAX: usize = 100_000;
/// Jobs that are changed in one transaction.
const ACT_SLICE: usize = 500;

/// Why an act or a question could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The new configuration has mistakes; the old one stays.
    #[error("{0}")]
    Config(String),
    /// The ledger said no.
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
}

impl OperateError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            OperateError::NotFound(_) => "not-found",
            OperateError::Invalid(_) => "invalid",
            OperateError::Config(_) => "config-invalid",
            OperateError::Ledger(sluice_ledger::Error::TooSlow) => "too-slow",
            OperateError::Ledger(_) => "ledger",
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            OperateError::NotFound(_) => StatusCode::NOT_FOUND,
            OperateError::Invalid(_) => StatusCode::BAD_REQUEST,
            OperateError::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            OperateError::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Which jobs an act is for: these, or all that match.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// These jobs (`job_…`) or all jobs of these events (`evt_…`).
    pub ids: Vec<String>,
    /// All jobs that match this filter.
    #[schema(value_type = Option<Object>)]
    pub filter: Option<JobFilter>,
}

/// A replay, as it is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayOrder {
    /// Which jobs.
    #[serde(flatten)]
    pub selection: Selection,
    /// Why; stands in the audit trail.
    pub reason: String,
    /// Who asks.
    pub actor: String,
    /// Run them with the configuration in force instead of the one they were accepted under.
    pub newest: bool,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What operators can do. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(super) ledger: Ledger,
    revisions: Revisions,
    metrics: Metrics,
    pub(super) clock: Clock,
    scheduler: schedule::Handle,
    door: intake::Context,
    pub(super) settings: Arc<Settings>,
}

impl Operator {
    /// Joins the rooms that an operator acts on.
    pub fn new(
        ledger: Ledger,
        revisions: Revisions,
        metrics: Metrics,
        clock: Clock,
        scheduler: schedule::Handle,
        door: intake::Context,
        settings: Settings,
    ) -> Operator {
        Operator { ledger, revisions, metrics, clock, scheduler, door, settings: Arc::new(settings) }
    }

    /// For a data directory that no node has open: everything that needs no scheduler and no door. Jobs that come back to
    /// life run when a node starts.
    pub async fn offline(
        ledger: Ledger,
        live: Live,
        secrets: Arc<dyn SecretSource + Send + Sync>,
        settings: Settings,
    ) -> Result<Operator, OperateError> {
        let (clock, metrics, revisions) = (Clock::start(), Metrics::new(), Revisions::new(live, secrets));
        let (scheduler, _) = schedule::Handle::new();
        let door = intake::Context::new(ledger.clone(), revisions.clone(), metrics.clone(), clock.clone());
        let operator = Operator::new(ledger, revisions, metrics, clock, scheduler, door, settings);
        operator.put_paused_sources_in_force().await?;
        Ok(operator)
    }

    /// Events, newest first.
    pub async fn events(&self, source: Option<String>, event_type: Option<String>, after: Option<String>, limit: u32) -> Result<List<EventView>, OperateError> {
        let after = match after {
            Some(id) => Some(self.find(&id).await?.ord),
            None => None,
        };
        let limit = limit.clamp(1, LIST_MAX);
        let events = self.ledger.list_events(source, event_type, Page { after, limit }).await?;
        let next = (events.len() == limit as usize).then(|| events.last().map(|event| event.id.to_string())).flatten();
        let mut items = Vec::with_capacity(events.len());
        for event in events {
            let jobs = self.ledger.jobs_of_event(event.clone()).await?;
            items.push(EventView::new(&event, &jobs));
        }
        Ok(List { items, next })
    }

    async fn find(&self, id: &str) -> Result<EventRecord, OperateError> {
        let parsed = EventId::parse(id).ok_or_else(|| OperateError::Invalid(format!("`{id}` is not an event id; those look like evt_…")))?;
        let found = self.ledger.find_event(parsed).await?;
        found.ok_or_else(|| OperateError::NotFound(format!("there is no event {id}; it may be past its retention")))
    }

    /// An event with everything that is known about it. To reveal personal data leaves a line in the audit trail.
    pub async fn event(&self, id: &str, reveal: Option<&str>) -> Result<EventDetail, OperateError> {
        let event = self.find(id).await?;
        let jobs = self.ledger.jobs_of_event(event.clone()).await?;
        let body = self.ledger.events(vec![event.ord]).await?.pop().and_then(|(_, body)| body);
        if let Some(actor) = reveal {
            self.ledger.audit(self.clock.wall(), actor, "reveal", &event.id.to_string(), "").await?;
        }
        let shown = body.as_ref().map(|body| show(body, reveal.is_some()));
        let (normalized, raw, headers) = match shown {
            Some(mut shown) => {
                // The name was not known yet when the event was made.
                if let Some(reference) = shown.normalized.pointer_mut("/audit/raw_event_ref") {
                    *reference = format!("ledger://events/{}/raw", event.id).into();
                }
                (Some(shown.normalized), Some(shown.raw), Some(shown.headers))
            }
            None => (None, None, None),
        };
        Ok(EventDetail { event: EventView::new(&event, &jobs), normalized, raw, headers, revealed: reveal.is_some() })
    }

    /// Jobs that match, newest first.
    pub async fn jobs(&self, filter: JobFilter, after: Option<String>, limit: u32) -> Result<List<JobView>, OperateError> {
        let after = after.map(|id| job_id(&id)).transpose()?.map(|id| id.0);
        let limit = limit.clamp(1, LIST_MAX);
        let jobs = self.ledger.list_jobs(filter, Page { after, limit }).await?;
        let next = (jobs.len() == limit as usize).then(|| jobs.last().map(|(job, _)| job.id.to_string())).flatten();
        let view = self.scheduler.view().await.unwrap_or_default();
        let items = jobs.iter().map(|(job, event)| JobView::new(job, event, self.waiting_for(job, &view))).collect();
        Ok(List { items, next })
    }

    async fn job_record(&self, id: JobId) -> Result<JobRecord, OperateError> {
        self.ledger.job(id).await?.ok_or_else(|| OperateError::NotFound(format!("there is no {id}; it may be past its retention")))
    }

    /// A job with everything that is known about it.
    pub async fn job(&self, id: &str) -> Result<JobDetail, OperateError> {
        let id = job_id(id)?;
        let job = self.job_record(id).await?;
        let (event, body) = self
            .ledger
            .events(vec![job.ord])
            .await?
            .pop()
            .ok_or_else(|| OperateError::NotFound(format!("the event of {id} is gone")))?;
        let effects = self.ledger.effects(id).await?;
        let attempts = self.ledger.attempts(id).await?;
        let view = self.scheduler.view().await.unwrap_or_default();
        Ok(JobDetail {
            job: JobView::new(&job, &event, self.waiting_for(&job, &view)),
            effects: effects.iter().map(EffectView::from).collect(),
            attempts_made: attempts.iter().map(AttemptView::from).collect(),
            preview: body.as_ref().map(preview).unwrap_or_default(),
        })
    }

    /// What holds a live job, other than its turn or its time.
    fn waiting_for(&self, job: &JobRecord, view: &View) -> Option<String> {
        if !job.state.is_live() {
            return None;
        }
        if view.workers_paused.iter().any(|worker| **worker == *job.worker) {
            return Some(format!("worker:{} is paused", job.worker));
        }
        let live = self.revisions.current();
        let destination = &live.config.workers.get(&*job.worker)?.steps.get(job.step as usize)?.destination;
        let gate = view.gates.get(destination)?;
        match (&gate.paused, gate.open_until, gate.not_before) {
            (Some(Pause::Auth), ..) => Some(format!("destination:{destination} is paused: it refused our credentials")),
            (Some(Pause::Operator), ..) => Some(format!("destination:{destination} is paused")),
            (None, Some(until), _) => Some(format!("destination:{destination} keeps failing; its breaker is open until {until}")),
            (None, None, Some(until)) => Some(format!("destination:{destination} asked to wait until {until}")),
            (None, None, None) if job.verifying => Some("the outcome of the last attempt is read back first".to_owned()),
            (None, None, None) => None,
        }
    }

    /// Why jobs died since then, most frequent first.
    pub async fn dead_reasons(&self, since: Time, limit: u32) -> Result<Vec<ReasonView>, OperateError> {
        let reasons = self.ledger.dead_reasons(since, limit.clamp(1, LIST_MAX)).await?;
        Ok(reasons
            .into_iter()
            .map(|reason| ReasonView {
                count: reason.count,
                class: reason.class,
                code: reason.code,
                message: mask::text(&reason.message).into_owned(),
                last_at: reason.last_at.to_string(),
            })
            .collect())
    }

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
                    return Err(OperateError::Invalid(format!("more than {ACT_MAX} jobs match; narrow the filter and go in steps")));
                }
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        Ok(jobs)
    }

    /// Brings jobs back to life with their own keys: effects that were applied stay applied. Twice is harmless.
    pub async fn replay(&self, order: ReplayOrder) -> Result<Acted, OperateError> {
        need(&order.reason, "a replay needs a reason")?;
        let jobs = self.select(&order.selection).await?;
        let mut acted = Acted { matched: jobs.len() as u64, dry_run: order.dry_run, ..Acted::default() };
        let revision = order.newest.then(|| self.revisions.current().revision.clone());
        let (mut wanted, mut left) = (Vec::new(), Vec::new());
        for id in jobs {
            match self.job_record(id).await?.state {
                JobState::Succeeded | JobState::Noop | JobState::Dead => wanted.push(id),
                JobState::Unknown => left.push(Left {
                    job: id.to_string(),
                    reason: "its effect may have happened; say which with `sluice jobs resolve`".into(),
                }),
                JobState::Dropped => left.push(Left { job: id.to_string(), reason: "it was dropped".into() }),
                state => left.push(Left { job: id.to_string(), reason: format!("it is {state} already") }),
            }
        }
        acted.left = left;
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
    pub async fn drop_jobs(&self, selection: &Selection, actor: &str, reason: &str, dry_run: bool) -> Result<Acted, OperateError> {
        need(reason, "to drop a job needs a reason: somebody signs it off")?;
        let jobs = self.select(selection).await?;
        let mut acted = Acted { matched: jobs.len() as u64, dry_run, ..Acted::default() };
        let mut wanted = Vec::new();
        for id in jobs {
            match self.job_record(id).await?.state {
                JobState::Dead | JobState::Unknown => wanted.push(id),
                state => acted.left.push(Left { job: id.to_string(), reason: format!("it is {state}; only dead and unknown jobs are dropped") }),
            }
        }
        if dry_run {
            acted.changed = wanted.len() as u64;
            return Ok(acted);
        }
        for slice in wanted.chunks(ACT_SLICE) {
            let order = DropJobs { jobs: slice.to_vec(), actor: or_unknown(actor), reason: reason.to_owned(), at: self.clock.wall() };
            acted.changed += self.ledger.drop_jobs(order).await?.len() as u64;
        }
        Ok(acted)
    }

    /// Records what a person found out about a parked effect, and lets the job go on.
    pub async fn resolve(&self, id: &str, verdict: Verdict, actor: &str, reason: &str) -> Result<JobDetail, OperateError> {
        need(reason, "to resolve a job needs a reason: how do you know?")?;
        let job = job_id(id)?;
        let state = self.job_record(job).await?.state;
        if state != JobState::Unknown {
            return Err(OperateError::Invalid(format!("{job} is {state}; only a job whose outcome is unknown can be resolved")));
        }
        let order = Resolve { job, verdict, actor: or_unknown(actor), reason: reason.to_owned(), at: self.clock.wall() };
        let changed = self.ledger.resolve(order).await?;
        self.scheduler.revived(changed);
        self.job(id).await
    }

    /// Stops a source, a worker or a destination until it is resumed.
    pub async fn pause(&self, target: &str, actor: &str, reason: &str) -> Result<(), OperateError> {
        need(reason, "a pause needs a reason")?;
        self.check_target(target)?;
        self.ledger.pause(target.to_owned(), or_unknown(actor), reason.to_owned(), self.clock.wall()).await?;
        self.put_pauses_in_force(target, true).await
    }

    /// Lets it go on.
    pub async fn resume(&self, target: &str, actor: &str) -> Result<(), OperateError> {
        self.check_target(target)?;
        self.ledger.resume(target.to_owned(), or_unknown(actor), self.clock.wall()).await?;
        self.put_pauses_in_force(target, false).await
    }

    async fn put_pauses_in_force(&self, target: &str, paused: bool) -> Result<(), OperateError> {
        if let Some(target) = schedule::target_of(target) {
            if paused { self.scheduler.pause(target) } else { self.scheduler.resume(target) }
        }
        self.put_paused_sources_in_force().await
    }

    async fn put_paused_sources_in_force(&self) -> Result<(), OperateError> {
        let pauses = self.ledger.pauses().await?;
        self.door.set_paused(pauses.iter().filter_map(|pause| pause.target.strip_prefix("source:").map(str::to_owned)).collect());
        Ok(())
    }

    fn check_target(&self, target: &str) -> Result<(), OperateError> {
        let live = self.revisions.current();
        let (kind, name) = target.split_once(':').unwrap_or((target, ""));
        let names: Vec<&str> = match kind {
            "destination" => live.config.destinations.keys().map(String::as_str).collect(),
            "worker" => live.config.workers.keys().map(String::as_str).collect(),
            "source" => live.config.flows.values().map(|flow| flow.source.as_str()).collect(),
            _ => {
                return Err(OperateError::Invalid(format!(
                    "`{target}` cannot be paused; write destination:NAME, worker:NAME or source:NAME"
                )));
            }
        };
        if names.contains(&name) {
            return Ok(());
        }
        let hint = crate::config::did_you_mean(name, names.iter().copied()).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        Err(OperateError::NotFound(format!("there is no {kind} `{name}`{hint}")))
    }

    /// The node at a glance.
    pub async fn status(&self) -> Result<Status, OperateError> {
        let view = self.scheduler.view().await.unwrap_or_default();
        let jobs = self.ledger.job_counts().await?;
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: self.revisions.current().revision.to_string(),
            intake: Some(self.settings.intake).filter(|intake| intake.port() != 0).map_or(String::new(), |intake| intake.to_string()),
            events: self.ledger.event_count().await?,
            jobs: jobs.into_iter().map(|(state, count)| (state.to_string(), count)).collect(),
            jobs_held: view.jobs_held as u64,
            in_flight: view.in_flight as u64,
            paused: self.pauses().await?,
        })
    }

    /// What is paused.
    pub async fn pauses(&self) -> Result<Vec<PauseView>, OperateError> {
        let pauses = self.ledger.pauses().await?;
        Ok(pauses
            .into_iter()
            .map(|pause| PauseView { target: pause.target, at: pause.at.to_string(), actor: pause.actor, reason: pause.reason })
            .collect())
    }

    /// Every destination and its gate.
    pub async fn destinations(&self) -> Result<Vec<DestinationView>, OperateError> {
        let view = self.scheduler.view().await.unwrap_or_default();
        let live = self.revisions.current();
        Ok(live
            .config
            .destinations
            .values()
            .map(|destination| DestinationView {
                name: destination.name.clone(),
                kind: destination.kind.as_str().to_owned(),
                gate: view.gates.get(&destination.name).and_then(|gate| serde_json::to_value(gate).ok()),
            })
            .collect())
    }

    /// Every source, what it sent and what was refused.
    pub async fn sources(&self) -> Result<Vec<SourceView>, OperateError> {
        let since = (self.clock.wall() - std::time::Duration::from_secs(6 * 86_400)).to_jiff().strftime("%Y-%m-%d").to_string();
        let tallies = self.ledger.tallies(since).await?;
        let refused = self.door.refused();
        let paused = self.door.paused();
        let live = self.revisions.current();
        let mut sources: BTreeMap<String, SourceView> = BTreeMap::new();
        for flow in live.config.flows.values() {
            let source = sources.entry(flow.source.clone()).or_insert_with(|| SourceView {
                name: flow.source.clone(),
                flows: vec![],
                paused: paused.contains(&flow.source),
                accepted: 0,
                duplicates: 0,
                clashes: 0,
                refused: BTreeMap::new(),
                refused_lately: BTreeMap::new(),
                refusals: vec![],
            });
            source.flows.push(FlowView {
                name: flow.name.clone(),
                route: format!("{} {}", flow.method, flow.path),
                verify: flow.verify.as_ref().map_or("nobody is verified", |verifier| verifier.scheme().name()).to_owned(),
                open: flow.verify.as_ref().is_some_and(|verifier| verifier.scheme() == Scheme::None),
            });
        }
        for tally in tallies {
            if let Some(source) = sources.get_mut(&tally.source) {
                source.accepted += tally.accepted;
                source.duplicates += tally.duplicates;
                source.clashes += tally.clashes;
            }
        }
        for (source, code, lately) in self.door.refused_lately() {
            if let Some(source) = sources.get_mut(&source) {
                let intake::Lately { minute, hour, day } = lately;
                source.refused.insert(code.to_owned(), day);
                source.refused_lately.insert(code.to_owned(), RefusedView { minute, hour, day });
            }
        }
        for refusal in refused {
            if let Some(source) = sources.get_mut(&refusal.source).filter(|source| source.refusals.len() < REFUSALS_MAX) {
                source.refusals.push(RefusalView {
                    at: refusal.at.to_string(),
                    address: refusal.address,
                    code: refusal.code.to_owned(),
                    detail: mask::text(&refusal.detail).into_owned(),
                });
            }
        }
        Ok(sources.into_values().collect())
    }

    /// The audit trail, newest first.
    pub async fn audit(&self, after: Option<i64>, limit: u32) -> Result<List<AuditView>, OperateError> {
        let limit = limit.clamp(1, LIST_MAX);
        let lines = self.ledger.audit_trail(Page { after, limit }).await?;
        let next = (lines.len() == limit as usize).then(|| lines.last().map(|line| line.id.to_string())).flatten();
        let items = lines
            .into_iter()
            .map(|line| AuditView {
                id: line.id,
                at: line.at.to_string(),
                actor: line.actor,
                action: line.action,
                object: line.object,
                detail: mask::text(&line.detail).into_owned(),
            })
            .collect();
        Ok(List { items, next })
    }

    /// Reads the configuration again and puts it in force, unless it has a mistake: then the one before stays. Answers the
    /// revision in force and whether it is another than before.
    pub async fn reload(&self, actor: &str) -> Result<(String, bool), OperateError> {
        let loaded = run::load(&self.settings).map_err(|error| match error {
            run::StartError::Config(compiled, files) => OperateError::Config(crate::config::render_all(
                &compiled.problems,
                &files,
                crate::config::Colours::None,
            )),
            other => OperateError::Config(other.to_string()),
        });
        let (live, files, _) = loaded?;
        let revision = live.revision.clone();
        if revision == self.revisions.current().revision {
            return Ok((revision.to_string(), false));
        }
        let kept = serde_json::to_string(&files.iter().collect::<Vec<_>>()).expect("texts have a JSON form");
        self.ledger.keep_revision(revision.clone(), kept, actor.to_owned(), self.clock.wall()).await?;
        self.revisions.replace(live);
        self.scheduler.reconfigured();
        tracing::info!(%revision, "a new configuration is in force");
        Ok((revision.to_string(), true))
    }

    /// Metrics in Prometheus' form, with the gauges read just now.
    pub async fn metrics(&self) -> Result<String, OperateError> {
        use std::sync::atomic::Ordering::Relaxed;
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        if let Some(view) = self.scheduler.view().await {
            self.metrics.in_flight.set(gauge(view.in_flight as u64));
            self.metrics.jobs_held.set(gauge(view.jobs_held as u64));
        }
        let counts = self.ledger.live_counts().await?;
        self.metrics.depth.clear();
        for (worker, state, count) in counts {
            let labels = DepthLabels { worker, state: state.to_string() };
            self.metrics.depth.get_or_create(&labels).set(gauge(count));
        }
        self.metrics.oldest_seconds.clear();
        for worker in self.ledger.live_workers().await? {
            let name: Arc<str> = Arc::from(worker.as_str());
            if let Some(oldest) = self.ledger.live_jobs(name, JobId(0), 1).await?.first() {
                let age = self.clock.wall().since(oldest.created_at).as_secs();
                self.metrics.oldest_seconds.get_or_create(&WorkerLabels { worker }).set(gauge(age));
            }
        }
        let stats = self.ledger.stats();
        self.metrics.ledger_commits.set(gauge(stats.batches.load(Relaxed)));
        self.metrics.ledger_operations.set(gauge(stats.operations.load(Relaxed)));
        self.metrics.ledger_queue.set(gauge(stats.queued.load(Relaxed)));
        self.metrics.ledger_wal_pages.set(gauge(stats.wal_pages.load(Relaxed)));
        self.metrics.render().map_err(|error| OperateError::Invalid(error.to_string()))
    }

    /// Whether events can be accepted right now.
    pub fn is_ready(&self) -> bool {
        !self.ledger.is_overloaded()
    }
}

fn need(text: &str, complaint: &str) -> Result<(), OperateError> {
    if text.trim().is_empty() { Err(OperateError::Invalid(complaint.to_owned())) } else { Ok(()) }
}

fn or_unknown(actor: &str) -> String {
    if actor.trim().is_empty() { "unknown".to_owned() } else { actor.trim().to_owned() }
}

fn job_id(text: &str) -> Result<JobId, OperateError> {
    JobId::parse(text).ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a job id; those look like job_17")))
}
