//! Queries of operators.

pub(super) mod approvals;
mod balance;
pub(super) mod change;
mod clash;
mod clock;
mod contact_merge;
mod contacts;
mod destinations;
mod event_warnings;
mod events;
mod exports;
pub(super) mod failure_groups;
mod guards;
mod history;
mod key_ttl_advice;
mod keys;
mod queues;
mod users;
mod waits;
mod warnings;
mod workers;

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_domain::access::Permission;
use sluice_domain::contact::awaits_identity;
use sluice_domain::event::Audit;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::time::Time;
use sluice_domain::verify::Scheme;
use sluice_ledger::{AuditEntry, AuditFilter, EventRecord, JobFilter, JobSummary, ListPage, ListedEvent, Page};

pub(super) use clash::masked_change;
pub(super) use contacts::contact_id;

use super::commands::need;
use super::operator::{OperateError, Operator, job_id};
use super::views::{
    AlertRuleView, AlertView, AttemptView, AuditView, DuplicatesView, EffectView, EventDetail, EventView, FlowView,
    IdentifiedView, IdentityLookupView, JobDetail, JobView, List, PauseView, ReasonView, RefusalView, RefusedView,
    ResponseCountView, ResponseView, SourceView, Status, preview, show,
};
use crate::intake;
use crate::levels::Levels;
use crate::observe::metrics::{
    DepthLabels, DestinationLabels, GroupStateLabels, NorthStarLabels, QueueLabels, TargetLabels, WorkerLabels,
};

/// Actor and reason for revealing personal data.
#[derive(Clone, Debug)]
pub struct Reveal {
    pub actor: String,
    /// Recorded in the audit trail.
    pub reason: String,
}

/// Maximum rows per page.
pub(super) const LIST_MAX: u32 = 500;
pub(crate) use balance::{Account, Effort};
pub(crate) use events::EventsRequest;
pub(super) use exports::{Export, ExportRequest};
pub(crate) use history::SeriesRequest;

/// Rejected requests shown per source.
const REFUSALS_MAX: usize = 20;

impl Operator {
    /// Event with its details. Revealing personal data leaves an audit entry.
    pub async fn event(&self, id: &str, reveal: Option<&Reveal>) -> Result<EventDetail, OperateError> {
        if let Some(Reveal { reason, .. }) = reveal {
            self.permit(Permission::Reveal)?;
            need(reason, "revealing personal data needs a reason")?;
        }
        let ListedEvent { event, jobs } = self.event_named(id).await?;
        let body = self.ledger.events(vec![event.seq]).await?.pop().and_then(|(_, body)| body);
        if let Some(Reveal { actor, reason }) = reveal {
            let entry = AuditEntry {
                at: self.clock.ledger_time(),
                actor: self.actor(actor),
                action: "reveal".to_owned(),
                object: event.id.to_string(),
                detail: reason.to_owned(),
            };
            self.ledger.audit(entry).await?;
        }
        let clash = self.clash(&event, body.as_ref(), reveal.is_some()).await?;
        let shown = body.as_ref().map(|body| show(body, reveal.is_some()));
        let (normalized, raw, headers) = match shown {
            Some(mut shown) => {
                // The id was unknown when the event was created.
                if let Some(members) = shown.normalized.get_mut("audit").and_then(Value::as_object_mut) {
                    let mut audit = Audit::default();
                    audit.locate(event.id);
                    members.insert("raw_event_ref".to_owned(), audit.raw_event_ref.into());
                    members.insert("normalized_event_ref".to_owned(), audit.normalized_event_ref.into());
                }
                (Some(shown.normalized), Some(shown.raw), Some(shown.headers))
            }
            None => (None, None, None),
        };
        let identity = self.ledger.event_identity(event.seq).await?;
        let quarantined = self.quarantined(&event, &jobs).await?;
        Ok(EventDetail {
            event: EventView::new(&event, &jobs),
            warnings: self.event_warnings(normalized.as_ref(), &jobs).await?,
            normalized,
            raw,
            headers,
            clash,
            identified: identity.supplied.as_ref().map(IdentifiedView::new),
            quarantined,
            waits_for_identity_until: identity.waits_until.map(|until| until.to_string()),
            identity_lookup: identity.lookup.as_ref().map(IdentityLookupView::new),
            duplicates: self.ledger.event_duplicates(event.seq).await?.as_ref().map(DuplicatesView::new),
            revealed: reveal.is_some(),
        })
    }

    /// Why the jobs of an event wait for an identity; `None` if none does.
    async fn quarantined(&self, event: &EventRecord, jobs: &[JobSummary]) -> Result<Option<String>, OperateError> {
        if !jobs.iter().any(|job| job.state == JobState::Dead) {
            return Ok(None);
        }
        let jobs = self.ledger.jobs_of_event(event.clone()).await?;
        let failure = jobs.into_iter().filter(awaits_identity).find_map(|job| job.failure);
        Ok(failure.map(|failure| mask::text(&failure.message).into_owned()))
    }

    /// Newest first, without results: a destination may quote personal data in its response.
    pub async fn jobs(
        &self,
        filter: JobFilter,
        after: Option<String>,
        limit: u32,
    ) -> Result<List<JobView>, OperateError> {
        let after = after.map(|id| job_id(&id)).transpose()?.map(|id| id.0);
        let limit = limit.clamp(1, LIST_MAX);
        let ListPage { rows: jobs, next, scanned_to } = self.ledger.list_jobs(filter, Page { after, limit }).await?;
        let waits = self.waits(&jobs.iter().map(|(job, _)| job).collect::<Vec<_>>()).await?;
        let listed = |((job, event), wait)| JobView { result: None, ..JobView::new(job, event, wait) };
        let items = jobs.iter().map(|(job, event)| (job, event)).zip(waits).map(listed).collect();
        let next = next.map(|id| JobId(id).to_string());
        Ok(List { items, next, scanned_to: scanned_to.map(|at| at.to_string()) })
    }

    pub async fn job(&self, id: &str) -> Result<JobDetail, OperateError> {
        let id = job_id(id)?;
        let job = self.job_record(id).await?;
        let (event, body) = self
            .ledger
            .events(vec![job.seq])
            .await?
            .pop()
            .ok_or_else(|| OperateError::NotFound(format!("the event of {id} has been deleted")))?;
        let effects = self.ledger.effects(id).await?;
        let attempts = self.ledger.attempts(id).await?;
        let wait = self.waits(&[&job]).await?.pop().flatten();
        Ok(JobDetail {
            job: JobView::new(&job, &event, wait),
            effects: effects.iter().map(EffectView::from).collect(),
            attempts_made: attempts.iter().map(AttemptView::from).collect(),
            preview: body.as_ref().map(preview).unwrap_or_default(),
        })
    }

    /// Failures of dead jobs, most frequent first.
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

    pub async fn status(&self) -> Result<Status, OperateError> {
        let found = self.scheduler.view().await;
        let (warnings, waiting) = (self.warnings(found.as_ref()).await?, self.waiting(found.as_ref()).await?);
        let view = found.unwrap_or_default();
        let jobs = self.ledger.job_counts().await?;
        Ok(Status {
            warnings,
            waiting,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: self.revisions.current().revision.to_string(),
            intake: Some(self.settings.intake)
                .filter(|intake| intake.port() != 0)
                .map_or(String::new(), |intake| intake.to_string()),
            events: self.ledger.event_count().await?,
            jobs: jobs.into_iter().map(|(state, count)| (state.to_string(), count)).collect(),
            jobs_in_memory: view.jobs_in_memory as u64,
            in_flight: view.in_flight as u64,
            paused: self.pauses().await?,
            safe_modes: self.safe_modes().await?,
            approvals_pending: self.approvals_pending().await?,
            responses: self.ledger.response_counts().await?.into_iter().map(ResponseCountView::from).collect(),
        })
    }

    /// Response clocks that run, newest event first.
    pub async fn responses(&self, after: Option<i64>, limit: u32) -> Result<List<ResponseView>, OperateError> {
        let limit = limit.clamp(1, LIST_MAX);
        let clocks = self.ledger.responses(Page { after, limit }).await?;
        let next = (clocks.len() == limit as usize).then(|| clocks.last().map(|last| last.event.to_string())).flatten();
        Ok(List::new(clocks.into_iter().map(ResponseView::from).collect(), next))
    }

    pub async fn pauses(&self) -> Result<Vec<PauseView>, OperateError> {
        let pauses = self.ledger.pauses().await?;
        Ok(pauses
            .into_iter()
            .map(|pause| PauseView {
                target: pause.target,
                at: pause.at.to_string(),
                actor: pause.actor,
                reason: pause.reason,
            })
            .collect())
    }

    /// By kind and subject.
    pub async fn alerts(&self) -> Result<Vec<AlertView>, OperateError> {
        let live = self.revisions.current();
        let settings = &live.config.alerts;
        Ok(self.ledger.alerts().await?.into_iter().map(|alert| AlertView::new(alert, settings)).collect())
    }

    /// What applies to every kind of alert.
    pub fn alert_rules(&self) -> Vec<AlertRuleView> {
        AlertRuleView::all(&self.revisions.current().config.alerts)
    }

    /// Sources with accepted and rejected requests.
    pub async fn sources(&self) -> Result<Vec<SourceView>, OperateError> {
        let first = self.clock.ledger_time() - std::time::Duration::from_secs(6 * 86_400);
        let since = first.to_jiff().strftime("%Y-%m-%d").to_string();
        let tallies = self.ledger.source_day_counts(since).await?;
        let refused = self.intake.refused();
        let paused = self.intake.paused();
        let live = self.revisions.current();
        let mut sources: BTreeMap<String, SourceView> = BTreeMap::new();
        for flow in live.config.flows.values() {
            let source = sources.entry(flow.source.clone()).or_insert_with(|| SourceView {
                name: flow.source.clone(),
                flows: vec![],
                paused: paused.contains(&flow.source),
                accepted: 0,
                duplicates: 0,
                by_content: 0,
                clashes: 0,
                refused: BTreeMap::new(),
                refused_lately: BTreeMap::new(),
                refusals: vec![],
            });
            source.flows.push(FlowView {
                name: flow.name.clone(),
                route: format!("{} {}", flow.method, flow.path),
                verify: flow.verify.as_ref().map_or("none", |verifier| verifier.scheme().name()).to_owned(),
                open: flow.verify.as_ref().is_some_and(|verifier| verifier.scheme() == Scheme::None),
            });
        }
        for tally in tallies {
            if let Some(source) = sources.get_mut(&tally.source) {
                source.accepted += tally.accepted;
                source.duplicates += tally.duplicates;
                source.by_content += tally.by_content;
                source.clashes += tally.clashes;
            }
        }
        for (source, code, lately) in self.intake.refused_lately() {
            if let Some(source) = sources.get_mut(&source) {
                let intake::Lately { minute, hour, day } = lately;
                source.refused.insert(code.to_owned(), day);
                source
                    .refused_lately
                    .insert(code.to_owned(), RefusedView { minute, hour, day, jump: lately.is_jump() });
            }
        }
        for refusal in refused {
            if let Some(source) = sources.get_mut(&refusal.source).filter(|source| source.refusals.len() < REFUSALS_MAX)
            {
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

    /// Newest first.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        after: Option<i64>,
        limit: u32,
    ) -> Result<List<AuditView>, OperateError> {
        let limit = limit.clamp(1, LIST_MAX);
        let ListPage { rows, next, scanned_to } = self.ledger.audit_entries(filter, Page { after, limit }).await?;
        let items = rows
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
        let next = next.map(|next| next.to_string());
        Ok(List { items, next, scanned_to: scanned_to.map(|at| at.to_string()) })
    }

    /// Metrics page with current gauges.
    pub async fn metrics(&self) -> Result<String, OperateError> {
        use std::sync::atomic::Ordering::Relaxed;
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let view = self.scheduler.view().await;
        if let Some(view) = &view {
            self.metrics.in_flight.set(gauge(view.in_flight as u64));
            self.metrics.jobs_in_memory.set(gauge(view.jobs_in_memory as u64));
            let times = (self.clock.now(), self.clock.ledger_time());
            self.metrics.gate_levels.set(view.gates.iter(), times);
        }
        let levels = Levels::read(&self.ledger, &self.clock, view.as_ref()).await?;
        self.metrics.unknown_outcomes.set(gauge(levels.unknown_outcomes));
        self.set_levels(levels);
        self.set_limits().await?;
        self.metrics.north_stars.clear();
        for (name, value) in self.north_stars().await?.values() {
            self.metrics.north_stars.get_or_create(&NorthStarLabels { name }).set(value);
        }
        self.metrics.approvals_pending.set(gauge(self.approvals_pending().await?));
        let stats = self.ledger.stats();
        self.metrics.ledger_commits.set(gauge(stats.batches.load(Relaxed)));
        self.metrics.ledger_operations.set(gauge(stats.operations.load(Relaxed)));
        self.metrics.ledger_queue.set(gauge(stats.queued.load(Relaxed)));
        self.metrics.ledger_wal_pages.set(gauge(stats.wal_pages.load(Relaxed)));
        self.metrics.render().map_err(|error| OperateError::Invalid(error.to_string()))
    }

    fn set_levels(&self, levels: Levels) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        metrics.depth.clear();
        for (worker, state, count) in levels.live {
            let labels = DepthLabels { worker, state: state.to_string() };
            metrics.depth.get_or_create(&labels).set(gauge(count));
        }
        metrics.oldest_seconds.clear();
        for (worker, age) in levels.oldest {
            metrics.oldest_seconds.get_or_create(&WorkerLabels { worker }).set(gauge(age.as_secs()));
        }
        metrics.contact_dlq_depth.set(gauge(levels.dead_letters.values().sum()));
        metrics.dead_letter_depth.clear();
        for (queue, count) in levels.dead_letters {
            metrics.dead_letter_depth.get_or_create(&QueueLabels { queue }).set(gauge(count));
        }
        metrics.oldest_dead_letter_seconds.clear();
        for (queue, age) in levels.oldest_dead_letters {
            metrics.oldest_dead_letter_seconds.get_or_create(&QueueLabels { queue }).set(gauge(age.as_secs()));
        }
        metrics.breakers.clear();
        for (destination, level) in levels.breakers {
            metrics.breakers.get_or_create(&DestinationLabels { destination }).set(gauge(level));
        }
        metrics.paused.clear();
        for (destination, is_paused) in levels.paused {
            metrics.paused.get_or_create(&DestinationLabels { destination }).set(i64::from(is_paused));
        }
    }

    /// Pauses, failure groups, quotas of destinations and the clock.
    async fn set_limits(&self) -> Result<(), OperateError> {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        metrics.pauses.clear();
        for pause in self.ledger.pauses().await? {
            metrics.pauses.get_or_create(&TargetLabels { target: pause.target }).set(1);
        }
        metrics.failure_groups.clear();
        for (state, count) in self.ledger.failure_group_counts().await? {
            metrics.failure_groups.get_or_create(&GroupStateLabels { state: state.as_str() }).set(gauge(count));
        }
        metrics.calls_today.clear();
        metrics.calls_today_limit.clear();
        let live = self.revisions.current();
        for destination in live.config.destinations.keys() {
            if let Some(quota) = live.connectors.quota(destination) {
                let labels = DestinationLabels { destination: destination.clone() };
                metrics.calls_today.get_or_create(&labels).set(gauge(quota.used));
                metrics.calls_today_limit.get_or_create(&labels).set(gauge(quota.limit));
            }
        }
        let is_in_doubt = self.clock.warning(self.clock.read_ledger_clock()).is_some();
        metrics.clock_in_doubt.set(i64::from(is_in_doubt));
        Ok(())
    }

    /// OpenAPI description of the intake.
    pub(crate) fn intake_api(&self) -> serde_json::Value {
        intake::describe(&self.revisions.current().config)
    }

    pub fn is_ready(&self) -> bool {
        !self.ledger.is_overloaded()
    }
}
