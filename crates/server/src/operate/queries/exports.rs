//! Rows of an export: events, dead letters or contacts, page by page, so that an export of any length needs the same memory.
//!
//! The lists are walked by their cursor alone, and the filters are applied here: a page takes the same time however few rows match.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sluice_domain::access::Permission;
use sluice_domain::event::EventStatus;
use sluice_domain::import::EVENT_FORM;
use sluice_domain::job::JobState;
use sluice_domain::mask;
use sluice_domain::time::Time;
use sluice_ledger::{
    AuditEntry, ContactRecord, EventBody, EventRecord, EventSeq, JobFilter, JobRecord, ListPage, ListedEvent, Page,
};

use super::Reveal;
use super::events::EventsRequest;
use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::show;

/// Rows that are read at once.
const PAGE_ROWS: u32 = 256;
/// Bodies that are read at once: a body may have hundreds of kilobytes.
const BODIES: usize = 32;
/// How far the times of arrival of neighbouring events may be out of order: the ledger's clock may have been corrected.
const DISORDER_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Columns of contact fields in CSV; the other fields share one column.
const FIELD_COLUMNS_MAX: usize = 256;

/// What is exported. An absent field does not restrict.
#[derive(Clone, Debug)]
pub enum ExportRequest {
    Events {
        /// `after` and `limit` do not count.
        events: EventsRequest,
        /// Received before this time.
        until: Option<Time>,
        flow: Option<String>,
    },
    DeadLetters {
        /// The states do not count.
        jobs: JobFilter,
        destination: Option<String>,
    },
    Contacts {
        conflicts_only: bool,
    },
}

impl ExportRequest {
    /// The filters for the audit trail, which does not name persons.
    fn describe(&self) -> String {
        let mut filters: Vec<(&str, String)> = Vec::new();
        let mut add = |name, value: Option<String>| filters.extend(value.map(|value| (name, value)));
        match self {
            ExportRequest::Events { events, until, flow } => {
                add("flow", flow.clone());
                add("source", events.source.clone());
                add("type", events.event_type.clone());
                add("key", events.key.as_ref().map(|_| "one".to_owned()));
                add("contact", events.contact.as_ref().map(|_| "one".to_owned()));
                add("since", events.since.map(|at| at.to_string()));
                add("until", until.map(|at| at.to_string()));
                add("state", events.status.map(|status| status.to_string()));
            }
            ExportRequest::DeadLetters { jobs, destination } => {
                add("worker", jobs.worker.clone());
                add("queue", jobs.queue.clone());
                add("dead_letter_queue", jobs.dead_letter_queue.clone());
                add("destination", destination.clone());
                add("source", jobs.source.clone());
                add("class", jobs.class.clone());
                add("code", jobs.code.clone());
                add("since", jobs.since.map(|at| at.to_string()));
                add("until", jobs.until.map(|at| at.to_string()));
            }
            ExportRequest::Contacts { conflicts_only } => add("conflicts", conflicts_only.then(|| "true".to_owned())),
        }
        filters.iter().map(|(name, value)| format!("; {name}={value}")).collect()
    }

    pub fn name(&self) -> &'static str {
        match self {
            ExportRequest::Events { .. } => "events",
            ExportRequest::DeadLetters { .. } => "dead-letters",
            ExportRequest::Contacts { .. } => "contacts",
        }
    }
}

/// An export that is being read.
#[derive(Debug)]
pub struct Export {
    operator: Operator,
    request: ExportRequest,
    reveal: Option<Reveal>,
    /// Number of the last row that was looked at.
    after: Option<i64>,
    is_done: bool,
    rows: u64,
}

impl Operator {
    /// Begins an export. One with personal data needs the permission and a reason, and is audited before the first row is read.
    pub async fn export(&self, request: ExportRequest, reveal: Option<Reveal>) -> Result<Export, OperateError> {
        if let Some(Reveal { reason, .. }) = &reveal {
            self.permit(Permission::Reveal)?;
            need(reason, "an export with personal data needs a reason")?;
        }
        let export = Export { operator: self.clone(), request, reveal, after: None, is_done: false, rows: 0 };
        if let Some(Reveal { reason, .. }) = &export.reveal {
            export.audit("export", format!("{reason}{}", export.request.describe())).await?;
        }
        Ok(export)
    }
}

impl Export {
    /// Columns of the rows, in their order.
    pub fn columns(&self) -> Vec<String> {
        let names: &[&str] = match &self.request {
            ExportRequest::Events { .. } => &EVENT_COLUMNS,
            ExportRequest::DeadLetters { .. } => &DEAD_LETTER_COLUMNS,
            ExportRequest::Contacts { .. } => &CONTACT_COLUMNS,
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Columns of a table: the same, and for contacts one for each field that the flows map.
    pub fn table_columns(&self) -> Vec<String> {
        let mut columns = self.columns();
        if let ExportRequest::Contacts { .. } = self.request {
            let live = self.operator.revisions.current();
            let flows = || live.config.flows.values();
            let identity = flows().flat_map(|flow| &flow.event.identity);
            let attributes = flows().flat_map(|flow| flow.event.attributes.iter().flatten());
            let identity: BTreeSet<String> = identity.map(|(name, _)| format!("identity.{name}")).collect();
            let attributes: BTreeSet<String> = attributes.map(|(name, _)| format!("attributes.{name}")).collect();
            columns.extend(identity.into_iter().chain(attributes).take(FIELD_COLUMNS_MAX));
        }
        columns
    }

    /// The next rows; `None` once all were read. A page may be empty.
    pub async fn next_rows(&mut self) -> Result<Option<Vec<Map<String, Value>>>, OperateError> {
        if self.is_done {
            return Ok(None);
        }
        let rows = match self.request.clone() {
            ExportRequest::Events { events, until, flow } => self.events(&events, until, flow.as_deref()).await?,
            ExportRequest::DeadLetters { jobs, destination } => {
                self.dead_letters(&jobs, destination.as_deref()).await?
            }
            ExportRequest::Contacts { conflicts_only } => self.contacts(conflicts_only).await?,
        };
        self.rows += rows.len() as u64;
        Ok(Some(rows))
    }

    /// Records how many rows with personal data were read.
    pub async fn finish(self) {
        if self.reveal.is_none() {
            return;
        }
        let end = if self.is_done { "all" } else { "stopped early" };
        if let Err(error) = self.audit("export ended", format!("{} rows, {end}", self.rows)).await {
            tracing::warn!(%error, rows = self.rows, "end of an export not written to the audit trail");
        }
    }

    async fn audit(&self, action: &str, detail: String) -> Result<(), OperateError> {
        let stated = self.reveal.as_ref().map_or("", |reveal| reveal.actor.as_str());
        let entry = AuditEntry {
            at: self.operator.clock.ledger_time(),
            actor: self.operator.actor(stated),
            action: action.to_owned(),
            object: self.request.name().to_owned(),
            detail,
        };
        Ok(self.operator.ledger.audit(entry).await?)
    }

    fn page(&self) -> Page {
        Page { after: self.after, limit: PAGE_ROWS }
    }

    /// Moves on to the next page.
    fn advance(&mut self, next: Option<i64>) {
        self.is_done = next.is_none();
        self.after = next.or(self.after);
    }

    async fn events(
        &mut self,
        wanted: &EventsRequest,
        until: Option<Time>,
        flow: Option<&str>,
    ) -> Result<Vec<Map<String, Value>>, OperateError> {
        let filter = self.operator.looked_up(wanted)?;
        let ListPage { rows: mut listed, next, .. } = self.operator.ledger.find_events(filter, self.page()).await?;
        self.advance(next);
        let too_old = |event: &EventRecord| wanted.since.is_some_and(|since| event.received_at + DISORDER_MAX < since);
        self.is_done |= listed.last().is_some_and(|last| too_old(&last.event));
        listed.retain(|listed| is(flow, &listed.event.flow) && matches_event(listed, wanted, until));
        let bodies = self.bodies(listed.iter().map(|listed| listed.event.seq).collect()).await?;
        let rows = listed.iter().zip(bodies).map(|(listed, body)| self.event_row(listed, body.as_ref()));
        Ok(rows.collect())
    }

    async fn dead_letters(
        &mut self,
        filter: &JobFilter,
        destination: Option<&str>,
    ) -> Result<Vec<Map<String, Value>>, OperateError> {
        let parked = JobFilter { states: vec![JobState::Dead, JobState::Unknown], ..JobFilter::default() };
        let ListPage { rows: mut jobs, next, .. } = self.operator.ledger.list_jobs(parked, self.page()).await?;
        self.advance(next);
        jobs.retain(|(job, event)| matches_job(job, event, filter));
        for (job, _) in &mut jobs {
            self.locate(job).await?;
        }
        jobs.retain(|(job, _)| is(destination, &job.destination));
        let bodies = self.bodies(jobs.iter().map(|(job, _)| job.seq).collect()).await?;
        let rows = jobs.iter().zip(bodies).map(|((job, event), body)| self.dead_letter_row(job, event, body.as_ref()));
        Ok(rows.collect())
    }

    /// A job that has ended calls nothing next: its destination is that of its last effect.
    async fn locate(&self, job: &mut JobRecord) -> Result<(), OperateError> {
        if job.destination.is_empty() {
            let effects = self.operator.ledger.effects(job.id).await?;
            let last =
                effects.into_iter().filter(|effect| !effect.destination.is_empty()).max_by_key(|effect| effect.last_at);
            job.destination = last.map_or_else(|| job.destination.clone(), |last| last.destination.into());
        }
        Ok(())
    }

    async fn contacts(&mut self, conflicts_only: bool) -> Result<Vec<Map<String, Value>>, OperateError> {
        let records = self.operator.ledger.contacts(conflicts_only, self.page()).await?;
        self.advance(records.last().filter(|_| records.len() == PAGE_ROWS as usize).map(|last| last.id.0));
        Ok(records.iter().map(|record| self.contact_row(record)).collect())
    }

    /// The bodies of these events, in their order; `None` for one that retention has deleted.
    async fn bodies(&self, seqs: Vec<EventSeq>) -> Result<Vec<Option<EventBody>>, OperateError> {
        let mut bodies = Vec::with_capacity(seqs.len());
        for slice in seqs.chunks(BODIES) {
            let mut found = self.operator.ledger.events(slice.to_vec()).await?;
            for seq in slice {
                let at = found.iter().position(|(event, _)| event.seq == *seq);
                // Taken out of the list without a copy; several jobs may have one event.
                let body = at.and_then(|at| match slice.iter().filter(|other| *other == seq).count() {
                    1 => found.swap_remove(at).1,
                    _ => found[at].1.clone(),
                });
                bodies.push(body.filter(|body| !body.is_removed()));
            }
        }
        Ok(bodies)
    }

    fn text(&self, text: &str) -> Value {
        match self.reveal {
            Some(_) => Value::from(text),
            None => Value::from(mask::text(text).into_owned()),
        }
    }

    /// The members that make an exported event importable again.
    fn origin(&self, event: &EventRecord, body: Option<&EventBody>) -> Map<String, Value> {
        let shown = body.map(|body| show(body, self.reveal.is_some()));
        let (payload, headers) = shown.map_or((Value::Null, Value::Null), |shown| (shown.raw, shown.headers));
        members(json!({
            "event": event.id, "seq": event.seq, "flow": event.flow, "source": event.source, "type": event.event_type,
            "key": self.text(&event.key_text), "received_at": event.received_at.to_string(),
            "occurred_at": event.occurred_at.map(|at| at.to_string()), "trace": event.trace,
            "masked": self.reveal.is_none(), "headers": headers, "payload": payload,
        }))
    }

    fn event_row(&self, listed: &ListedEvent, body: Option<&EventBody>) -> Map<String, Value> {
        let mut row = self.origin(&listed.event, body);
        row.insert("sluice_export".to_owned(), EVENT_FORM.into());
        row.insert("status".to_owned(), EventStatus::of(listed.jobs.iter().map(|job| job.state)).to_string().into());
        in_order(row, &EVENT_COLUMNS)
    }

    fn dead_letter_row(&self, job: &JobRecord, event: &EventRecord, body: Option<&EventBody>) -> Map<String, Value> {
        let mut row = self.origin(event, body);
        let failure = job.failure.as_ref();
        row.extend(members(json!({
            "sluice_export": "dead-letter/1", "job": job.id.to_string(), "worker": job.worker, "queue": job.queue,
            "dead_letter_queue": job.dead_letter_queue, "destination": job.destination, "state": job.state.as_str(),
            "class": failure.map(|failure| failure.class.as_str()), "code": failure.map(|failure| &failure.code),
            "message": failure.map(|failure| self.text(&failure.message)),
            "http_status": failure.and_then(|failure| failure.status), "attempts_total": job.attempts_total,
            "updated_at": job.updated_at.to_string(),
        })));
        in_order(row, &DEAD_LETTER_COLUMNS)
    }

    fn contact_row(&self, record: &ContactRecord) -> Map<String, Value> {
        let winners = record.state.fields().filter_map(|(name, registers)| {
            let value = &registers.first()?.value;
            let value = if self.reveal.is_some() { value.clone() } else { mask::member(name, value) };
            Some((name.to_owned(), value))
        });
        let mut row = members(json!({
            "sluice_export": "contact/1", "contact": record.id.to_string(),
            "merged_into": record.merged_into.map(|parent| parent.to_string()),
            "members": record.members.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>(),
            "created_at": record.created_at.to_string(), "conflicts": record.state.conflicts().count(),
            "masked": self.reveal.is_none(),
        }));
        row.insert("fields".to_owned(), Value::Object(winners.collect()));
        in_order(row, &CONTACT_COLUMNS)
    }
}

const EVENT_COLUMNS: [&str; 14] = [
    "sluice_export",
    "event",
    "seq",
    "flow",
    "source",
    "type",
    "key",
    "received_at",
    "occurred_at",
    "status",
    "trace",
    "masked",
    "headers",
    "payload",
];

const DEAD_LETTER_COLUMNS: [&str; 25] = [
    "sluice_export",
    "job",
    "event",
    "seq",
    "flow",
    "source",
    "type",
    "key",
    "received_at",
    "occurred_at",
    "worker",
    "queue",
    "dead_letter_queue",
    "destination",
    "state",
    "class",
    "code",
    "message",
    "http_status",
    "attempts_total",
    "updated_at",
    "trace",
    "masked",
    "headers",
    "payload",
];

const CONTACT_COLUMNS: [&str; 8] =
    ["sluice_export", "contact", "merged_into", "members", "created_at", "conflicts", "masked", "fields"];

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The members of a row in the order of its columns.
fn in_order(mut row: Map<String, Value>, columns: &[&str]) -> Map<String, Value> {
    columns.iter().filter_map(|name| Some(((*name).to_owned(), row.remove(*name)?))).collect()
}

fn is(wanted: Option<&str>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

fn matches_event(listed: &ListedEvent, wanted: &EventsRequest, until: Option<Time>) -> bool {
    let event = &listed.event;
    is(wanted.source.as_deref(), &event.source)
        && is(wanted.event_type.as_deref(), &event.event_type)
        && wanted.since.is_none_or(|since| event.received_at >= since)
        && until.is_none_or(|until| event.received_at < until)
        && wanted.status.is_none_or(|status| EventStatus::of(listed.jobs.iter().map(|job| job.state)) == status)
}

fn matches_job(job: &JobRecord, event: &EventRecord, filter: &JobFilter) -> bool {
    let failure = job.failure.as_ref();
    is(filter.worker.as_deref(), &job.worker)
        && is(filter.queue.as_deref(), &job.queue)
        && is(filter.dead_letter_queue.as_deref(), job.dead_letter_queue.as_deref().unwrap_or_default())
        && is(filter.source.as_deref(), &event.source)
        && is(filter.class.as_deref(), failure.map_or("", |failure| failure.class.as_str()))
        && is(filter.code.as_deref(), failure.map_or("", |failure| &failure.code))
        && filter.since.is_none_or(|since| job.updated_at >= since)
        && filter.until.is_none_or(|until| job.updated_at < until)
}
