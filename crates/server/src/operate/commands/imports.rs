//! Start, check, continue, list and cancel imports.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::access::Permission;
use sluice_domain::flow::Flow;
use sluice_domain::import::{self, BATCH_ROWS_MAX, ImportId, ImportState, ROWS_MAX, RowTimes};
use sluice_domain::job::JobState;
use sluice_domain::key::KeyDigest;
use sluice_domain::mask;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, CancelImport, EventFilter, ImportRecord, ImportStep, NewEvent, NewImport, Page};
use utoipa::ToSchema;

use super::need;
use crate::config::did_you_mean;
use crate::intake::RowOrigin;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::LIST_MAX;
use crate::operate::views::{ImportStepView, ImportView, List, RowView};
use crate::revisions::LoadedRevision;

/// An import to start, or to continue.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StartImportRequest {
    /// Flow that the rows go through.
    pub flow: String,
    /// Digest of the file, in any notation: the same file and flow are the same import.
    pub content: String,
    /// Field that orders the rows, if it was named.
    pub time_field: Option<String>,
    /// Name of the file, for operators.
    pub file: String,
    /// Number of rows of the file.
    pub rows: u64,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
}

/// A row of an import.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImportRowRequest {
    /// Line of the file, for messages.
    pub line: u64,
    /// Payload of one event, as the flow receives it.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// Headers of its request.
    pub headers: BTreeMap<String, String>,
    /// Idempotency key that the event had; used if the flow derives none.
    pub key: Option<String>,
    /// When it happened; used if the flow maps no time.
    #[schema(value_type = Option<String>)]
    pub occurred_at: Option<Time>,
    /// When it was received first.
    #[schema(value_type = Option<String>)]
    pub received_at: Option<Time>,
    /// Number of this content among the rows of the file, from 1: the key of a row that has no other.
    pub occurrence: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckRowsRequest {
    pub flow: String,
    /// At most 500.
    pub rows: Vec<ImportRowRequest>,
}

/// The next rows of an import.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImportRowsRequest {
    /// Position of the import before these rows. Rows that were taken before are not taken again.
    pub after: u64,
    /// At most 500.
    pub rows: Vec<ImportRowRequest>,
    /// Rows of the file before and between these that could not be read.
    pub unreadable: u64,
    /// No row is left behind these.
    pub last: bool,
}

/// Rows as events, or why they are none.
struct PreparedRows {
    events: Vec<NewEvent>,
    /// In the order of the rows; `Ok` with the place in `events`.
    rows: Vec<(u64, Result<usize, RowView>)>,
}

impl Operator {
    /// Starts an import, or continues the one of the same file and flow.
    pub async fn start_import(&self, request: StartImportRequest) -> Result<ImportView, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "an import needs a reason")?;
        need(&request.content, "an import needs the digest of its file")?;
        self.flow_named(&self.revisions.current(), &request.flow)?;
        if request.rows > ROWS_MAX as u64 {
            return Err(OperateError::Invalid(format!("an import has at most {ROWS_MAX} rows; split the file")));
        }
        let id = ImportId::new(&request.flow, &request.content, request.time_field.as_deref());
        let StartImportRequest { flow, file, rows, reason, actor, .. } = request;
        let new = NewImport { id, flow, file, rows, actor: self.actor(&actor), reason, at: self.clock.ledger_time() };
        Ok(self.ledger.start_import(new).await?.into())
    }

    /// What rows would become. Nothing is written. Rows of one file that repeat each other are not compared.
    pub async fn check_rows(&self, request: CheckRowsRequest) -> Result<Vec<RowView>, OperateError> {
        self.permit(Permission::Operate)?;
        let live = self.revisions.current();
        let flow = self.flow_named(&live, &request.flow)?;
        let now = self.clock.ledger_time();
        let prepared = self.prepare_rows(&live, &flow, request.rows, "import")?;
        let known = self.known_keys(&prepared.events, now).await?;
        let row = |(line, row): (u64, Result<usize, RowView>)| match row {
            Ok(place) => RowView::expected(line, &prepared.events[place], known.get(&place).copied()),
            Err(refused) => refused,
        };
        Ok(prepared.rows.into_iter().map(row).collect())
    }

    /// Takes the next rows of an import: all of them, or none if other rows come next.
    pub async fn import_rows(&self, id: &str, request: ImportRowsRequest) -> Result<ImportStepView, OperateError> {
        self.permit(Permission::Operate)?;
        let record = self.import_named(id).await?;
        if record.state != ImportState::Running || record.position != request.after {
            return Ok(ImportStepView { import: record.into(), rows: vec![], taken: false, wait_ms: None });
        }
        let live = self.revisions.current();
        let flow = self.flow_named(&live, &record.flow)?;
        if self.intake.paused().contains(&flow.source) {
            let detail = format!("the source `{}` is paused; resume it, then import again", flow.source);
            return Err(OperateError::Refused("source-paused", detail));
        }
        let until = request.after.saturating_add(request.rows.len() as u64).saturating_add(request.unreadable);
        if until > record.rows {
            let detail = format!("the import has {} rows; these would be {until}", record.rows);
            return Err(OperateError::Invalid(detail));
        }
        let PreparedRows { events, rows } = self.prepare_rows(&live, &flow, request.rows, &record.id.verified_by())?;
        if let Some(pause) = self.import_pause(&events).await? {
            let wait_ms = Some(pause.as_millis() as u64);
            return Ok(ImportStepView { import: record.into(), rows: vec![], taken: false, wait_ms });
        }
        let refused = rows.iter().filter(|(_, row)| row.is_err()).count() as u64 + request.unreadable;
        let reasons: Vec<_> = events.iter().map(|event| event.quarantine.clone()).collect();
        let at = self.clock.ledger_time();
        let step = ImportStep { id: record.id, after: request.after, until, refused, is_last: request.last, at };
        let accepted = self.ledger.accept_rows(events, step).await?;
        let taken = accepted.is_some();
        let accepted = accepted.unwrap_or_default();
        if taken {
            self.intake.count_rows(&flow, &accepted, refused);
        }
        let outcome = |(line, row): (u64, Result<usize, RowView>)| match row {
            Ok(place) => Some(RowView::of(line, accepted.get(place)?, reasons.get(place)?.as_ref())),
            Err(refused) => Some(refused),
        };
        let rows = if taken { rows.into_iter().filter_map(outcome).collect() } else { vec![] };
        Ok(ImportStepView { import: self.import_named(id).await?.into(), rows, taken, wait_ms: None })
    }

    /// Newest first.
    pub async fn imports(&self, after: Option<String>, limit: u32) -> Result<List<ImportView>, OperateError> {
        let after = match after {
            Some(id) => Some(self.import_named(&id).await?.n),
            None => None,
        };
        let limit = limit.clamp(1, LIST_MAX);
        let records = self.ledger.imports(Page { after, limit }).await?;
        let next = records.last().filter(|_| records.len() == limit as usize).map(|last| last.id.to_string());
        Ok(List::new(records.into_iter().map(ImportView::from).collect(), next))
    }

    pub async fn import_view(&self, id: &str) -> Result<ImportView, OperateError> {
        Ok(self.import_named(id).await?.into())
    }

    /// Cancels a running import. Rows that were taken stay; starting it again continues behind them.
    pub async fn cancel_import(&self, id: &str, actor: &str, reason: &str) -> Result<ImportView, OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "this needs a reason")?;
        let id = import_id(id)?;
        let (actor, reason, at) = (self.actor(actor), reason.to_owned(), self.clock.ledger_time());
        match self.ledger.cancel_import(CancelImport { id, actor, reason, at }).await? {
            Some(record) if record.state == ImportState::Done => {
                Err(OperateError::Refused("import-finished", format!("{id} is done; nothing is left to cancel")))
            }
            Some(record) => Ok(record.into()),
            None => Err(unknown_import(id)),
        }
    }

    async fn import_named(&self, id: &str) -> Result<ImportRecord, OperateError> {
        let id = import_id(id)?;
        self.ledger.import_record(id).await?.ok_or_else(|| unknown_import(id))
    }

    fn flow_named(&self, live: &LoadedRevision, name: &str) -> Result<Arc<Flow>, OperateError> {
        live.config.flows.get(name).cloned().ok_or_else(|| {
            let names = live.config.flows.keys().map(String::as_str);
            let hint = did_you_mean(name, names).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            OperateError::NotFound(format!("the active configuration has no flow `{name}`{hint}"))
        })
    }

    /// How long these rows wait: jobs of the same workers that wait or run go first. Without a node nothing runs, and nothing is
    /// waited for.
    async fn import_pause(&self, events: &[NewEvent]) -> Result<Option<Duration>, OperateError> {
        if self.is_offline() {
            return Ok(None);
        }
        let workers: HashSet<&str> = events.iter().flat_map(|event| &event.jobs).map(|job| &*job.worker).collect();
        let is_due = |state: JobState| matches!(state, JobState::Queued | JobState::Running | JobState::Retrying);
        let totals = self.ledger.job_totals().await?;
        let ahead = totals.iter().filter(|total| is_due(total.state) && workers.contains(&*total.worker));
        Ok(import::pause(ahead.map(|total| total.count).sum()))
    }

    fn prepare_rows(
        &self,
        live: &LoadedRevision,
        flow: &Flow,
        rows: Vec<ImportRowRequest>,
        verified_by: &str,
    ) -> Result<PreparedRows, OperateError> {
        if rows.len() > BATCH_ROWS_MAX {
            return Err(OperateError::Invalid(format!("a batch has at most {BATCH_ROWS_MAX} rows")));
        }
        let received_at = self.clock.ledger_time();
        let mut prepared =
            PreparedRows { events: Vec::with_capacity(rows.len()), rows: Vec::with_capacity(rows.len()) };
        for row in rows {
            let (line, payload, origin) = match origin(row) {
                Ok(origin) => origin,
                Err((line, detail)) => {
                    prepared.rows.push((line, Err(RowView::refused(line, "header-invalid", detail))));
                    continue;
                }
            };
            let event = self.intake.prepare_row((live, flow), payload, &origin, verified_by, received_at);
            prepared.rows.push((
                line,
                match event {
                    Ok(event) => {
                        prepared.events.push(event);
                        Ok(prepared.events.len() - 1)
                    }
                    Err(problem) => Err(RowView::refused(line, problem.code, mask::text(&problem.detail).into_owned())),
                },
            ));
        }
        Ok(prepared)
    }

    /// Events that own the key of a row, by the place of the row.
    async fn known_keys(
        &self,
        events: &[NewEvent],
        now: Time,
    ) -> Result<HashMap<usize, sluice_domain::event::EventId>, OperateError> {
        let keys: Vec<KeyDigest> = events.iter().map(|event| event.key).collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        // A key that was used again after it expired has several events.
        let page = Page { after: None, limit: LIST_MAX * 4 };
        let filter = EventFilter { keys: Some(keys), ..EventFilter::default() };
        let found = self.ledger.find_events(filter, page).await?.rows;
        let valid = found.iter().filter(|listed| listed.event.expires_at > now);
        let by_key: HashMap<(&str, &str), _> =
            valid.map(|listed| ((&*listed.event.flow, &*listed.event.key_text), listed.event.id)).collect();
        let owner = |event: &NewEvent| by_key.get(&(&*event.flow, &*event.key_text)).copied();
        Ok(events.iter().enumerate().filter_map(|(place, event)| Some((place, owner(event)?))).collect())
    }
}

/// The parts of a row, or its line and what is wrong with it.
fn origin(row: ImportRowRequest) -> Result<(u64, Value, RowOrigin), (u64, String)> {
    let mut headers = HeaderMap::with_capacity(row.headers.len());
    for (name, value) in &row.headers {
        let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        let (Ok(name), Ok(value)) = parsed else {
            return Err((row.line, format!("the header `{}` is not valid", mask::text(name))));
        };
        headers.append(name, value);
    }
    let times = RowTimes { occurred_at: row.occurred_at, received_at: row.received_at };
    let origin = RowOrigin { headers, times, key: row.key, occurrence: row.occurrence.max(1) };
    Ok((row.line, row.payload, origin))
}

impl RowView {
    fn of(line: u64, acceptance: &Acceptance, quarantine: Option<&sluice_ledger::Quarantine>) -> RowView {
        let row = |outcome: &str, event: Option<String>| RowView {
            line,
            outcome: outcome.to_owned(),
            event,
            ..RowView::default()
        };
        match acceptance {
            Acceptance::Accepted(accepted) if accepted.quarantined => {
                let failure = quarantine.map(|quarantine| &quarantine.failure);
                RowView {
                    code: failure.map(|failure| failure.code.clone()),
                    detail: failure.map(|failure| mask::text(&failure.message).into_owned()),
                    ..row("quarantined", Some(accepted.id.to_string()))
                }
            }
            Acceptance::Accepted(accepted) => row("accepted", Some(accepted.id.to_string())),
            Acceptance::Duplicate(first) => row("duplicate", Some(first.id.to_string())),
            Acceptance::ProofUsed => row("refused", None),
        }
    }

    fn expected(line: u64, event: &NewEvent, owner: Option<sluice_domain::event::EventId>) -> RowView {
        let outcome = match (&event.quarantine, owner) {
            (_, Some(_)) => "duplicate",
            (Some(_), None) => "quarantined",
            (None, None) => "accepted",
        };
        let failure = event.quarantine.as_ref().map(|quarantine| &quarantine.failure).filter(|_| owner.is_none());
        RowView {
            line,
            outcome: outcome.to_owned(),
            code: failure.map(|failure| failure.code.clone()),
            detail: failure.map(|failure| mask::text(&failure.message).into_owned()),
            event: owner.map(|id| id.to_string()),
            key_digest: Some(data_encoding::HEXLOWER.encode(&event.key.0)),
            occurred_at: event.occurred_at.map(|at| at.to_string()),
        }
    }

    fn refused(line: u64, code: &str, detail: String) -> RowView {
        let (outcome, code) = ("refused".to_owned(), Some(code.to_owned()));
        RowView { line, outcome, code, detail: Some(detail), ..RowView::default() }
    }
}

fn import_id(text: &str) -> Result<ImportId, OperateError> {
    ImportId::parse(text)
        .ok_or_else(|| OperateError::Invalid(format!("`{text}` is not the id of an import, such as imp_…")))
}

fn unknown_import(id: ImportId) -> OperateError {
    OperateError::NotFound(format!("unknown import {id}; `sluice imports` lists them"))
}
