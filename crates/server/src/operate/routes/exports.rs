//! Exports: every row that matches, as a stream of NDJSON or CSV.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, RequestExt, Router};
use hyper::body::Frame;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_ledger::JobFilter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use utoipa::{IntoParams, ToSchema};

use super::events::status;
use super::export::{Form, cell};
use super::jobs::moment;
use super::{QueryParams, problem};
use crate::operate::listener::Stopping;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::{EventsRequest, Export, ExportRequest, Reveal};

/// Exports that run at once; further ones are refused.
const EXPORTS_MAX: usize = 4;

/// Time in which a reader takes the next part.
const READER_IDLE_MAX: Duration = Duration::from_secs(60);

/// Permits of running exports.
#[derive(Clone, Debug)]
pub(super) struct Exports(Arc<Semaphore>);

impl Default for Exports {
    fn default() -> Exports {
        Exports(Arc::new(Semaphore::new(EXPORTS_MAX)))
    }
}

/// Filters of an export.
trait ExportQuery: DeserializeOwned + Send + 'static {
    fn request(self) -> Result<ExportRequest, OperateError>;
}

#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsExportQuery {
    /// Only of this flow.
    flow: Option<String>,
    /// Only from this source.
    source: Option<String>,
    /// Only of this type.
    r#type: Option<String>,
    /// Only with this idempotency key.
    key: Option<String>,
    /// Only about this person: email address, phone number or external id.
    contact: Option<String>,
    /// Only received within this duration (`1h`) or since this time.
    since: Option<String>,
    /// Only received before this duration ago (`1h`) or before this time.
    until: Option<String>,
    /// Only with this status: `working`, `done`, `dead`, `unknown`, `dropped` or `unrouted`.
    state: Option<String>,
}

impl ExportQuery for EventsExportQuery {
    fn request(self) -> Result<ExportRequest, OperateError> {
        let events = EventsRequest {
            source: self.source,
            event_type: self.r#type,
            key: self.key,
            contact: self.contact,
            since: self.since.as_deref().map(moment).transpose()?,
            status: self.state.as_deref().map(status).transpose()?,
            ..EventsRequest::default()
        };
        let until = self.until.as_deref().map(moment).transpose()?;
        Ok(ExportRequest::Events { events, until, flow: self.flow })
    }
}

#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DeadLettersExportQuery {
    /// Only of this worker.
    worker: Option<String>,
    /// Only in this queue.
    queue: Option<String>,
    /// Only in this dead-letter queue.
    dead_letter_queue: Option<String>,
    /// Only of jobs whose last call went to this destination.
    destination: Option<String>,
    /// Only from this source.
    source: Option<String>,
    /// Only with this failure class.
    class: Option<String>,
    /// Only with this failure code.
    code: Option<String>,
    /// Only changed within this duration (`1h`) or since this time.
    since: Option<String>,
    /// Only changed before this duration ago (`1h`) or before this time.
    until: Option<String>,
}

impl ExportQuery for DeadLettersExportQuery {
    fn request(self) -> Result<ExportRequest, OperateError> {
        let jobs = JobFilter {
            worker: self.worker,
            queue: self.queue,
            dead_letter_queue: self.dead_letter_queue,
            source: self.source,
            class: self.class,
            code: self.code,
            since: self.since.as_deref().map(moment).transpose()?,
            until: self.until.as_deref().map(moment).transpose()?,
            ..JobFilter::default()
        };
        Ok(ExportRequest::DeadLetters { jobs, destination: self.destination })
    }
}

#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ContactsExportQuery {
    /// Only contacts with conflicts.
    conflicts: bool,
}

impl ExportQuery for ContactsExportQuery {
    fn request(self) -> Result<ExportRequest, OperateError> {
        Ok(ExportRequest::Contacts { conflicts_only: self.conflicts })
    }
}

/// Filters of an export with personal data, and why it is made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevealedExportRequest<T> {
    #[serde(default)]
    filter: T,
    /// Recorded in the audit trail.
    reason: String,
    #[serde(default)]
    actor: String,
}

pub(super) fn routes() -> Router<Operator> {
    Router::new()
        .route("/exports/events", get(events).post(revealed_events))
        .route("/exports/dead-letters", get(dead_letters).post(revealed_dead_letters))
        .route("/exports/contacts", get(contacts).post(revealed_contacts))
}

/// Every event that matches, masked, newest first. `Accept: text/csv` for CSV, NDJSON otherwise.
#[utoipa::path(get, path = "/api/v1/exports/events", params(EventsExportQuery), responses((status = 200, content_type = "application/x-ndjson"), (status = 503)))]
pub(super) async fn events(operator: Operator, request: Request) -> Response {
    masked::<EventsExportQuery>(operator, request).await
}

/// Every event that matches, with its payload as it was received. Audited; needs the permission `reveal`.
#[utoipa::path(post, path = "/api/v1/exports/events", request_body = RevealedExportRequest<EventsExportQuery>, responses((status = 200, content_type = "application/x-ndjson"), (status = 403), (status = 503)))]
pub(super) async fn revealed_events(operator: Operator, request: Request) -> Response {
    revealed::<EventsExportQuery>(operator, request).await
}

/// Every dead letter that matches, masked, newest first. `Accept: text/csv` for CSV, NDJSON otherwise.
#[utoipa::path(get, path = "/api/v1/exports/dead-letters", params(DeadLettersExportQuery), responses((status = 200, content_type = "application/x-ndjson"), (status = 503)))]
pub(super) async fn dead_letters(operator: Operator, request: Request) -> Response {
    masked::<DeadLettersExportQuery>(operator, request).await
}

/// Every dead letter that matches, with its payload as it was received. Audited; needs the permission `reveal`.
#[utoipa::path(post, path = "/api/v1/exports/dead-letters", request_body = RevealedExportRequest<DeadLettersExportQuery>, responses((status = 200, content_type = "application/x-ndjson"), (status = 403), (status = 503)))]
pub(super) async fn revealed_dead_letters(operator: Operator, request: Request) -> Response {
    revealed::<DeadLettersExportQuery>(operator, request).await
}

/// Every contact with the values that count, masked, newest first. `Accept: text/csv` for CSV, NDJSON otherwise.
#[utoipa::path(get, path = "/api/v1/exports/contacts", params(ContactsExportQuery), responses((status = 200, content_type = "application/x-ndjson"), (status = 503)))]
pub(super) async fn contacts(operator: Operator, request: Request) -> Response {
    masked::<ContactsExportQuery>(operator, request).await
}

/// Every contact with the values that count. Audited; needs the permission `reveal`.
#[utoipa::path(post, path = "/api/v1/exports/contacts", request_body = RevealedExportRequest<ContactsExportQuery>, responses((status = 200, content_type = "application/x-ndjson"), (status = 403), (status = 503)))]
pub(super) async fn revealed_contacts(operator: Operator, request: Request) -> Response {
    revealed::<ContactsExportQuery>(operator, request).await
}

async fn masked<T: ExportQuery>(operator: Operator, mut request: Request) -> Response {
    match request.extract_parts::<QueryParams<T>>().await {
        Ok(QueryParams(query)) => start(operator, request, query, None).await,
        Err(rejection) => rejection,
    }
}

async fn revealed<T: ExportQuery + Default>(operator: Operator, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let head = Request::from_parts(head, Body::empty());
    let bytes = axum::body::to_bytes(body, super::change::ORDER_BYTES_MAX).await.unwrap_or_default();
    match Json::<RevealedExportRequest<T>>::from_bytes(&bytes) {
        Ok(Json(RevealedExportRequest { filter, reason, actor })) => {
            start(operator, head, filter, Some(Reveal { actor, reason })).await
        }
        Err(rejection) => problem(rejection.status(), "body-invalid", &rejection.body_text()),
    }
}

async fn start<T: ExportQuery>(operator: Operator, mut request: Request, query: T, reveal: Option<Reveal>) -> Response {
    let Ok(Extension(Exports(permits))) = request.extract_parts::<Extension<Exports>>().await else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "exports are not set up");
    };
    let Ok(Extension(stopping)) = request.extract_parts::<Extension<Stopping>>().await else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "exports are not set up");
    };
    let Ok(permit) = permits.try_acquire_owned() else {
        let detail = format!("{EXPORTS_MAX} exports are running; try again when one has ended");
        let mut refusal = problem(StatusCode::SERVICE_UNAVAILABLE, "too-many-exports", &detail);
        refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        return refusal;
    };
    let export = match query.request() {
        Ok(request) => operator.export(request, reveal).await,
        Err(error) => Err(error),
    };
    match export {
        Ok(export) => stream(export, form_of(request.headers()), stopping, permit),
        Err(error) => error.into_response(),
    }
}

fn form_of(headers: &HeaderMap) -> Form {
    Form::wanted(headers).unwrap_or(Form::Lines)
}

fn stream(export: Export, form: Form, stopping: Stopping, permit: OwnedSemaphorePermit) -> Response {
    let (chunks, received) = mpsc::channel(2);
    let is_complete: Arc<AtomicBool> = Arc::default();
    let body = Chunks { received, is_complete: is_complete.clone(), has_failed: false };
    tokio::spawn(async move {
        send(export, form, (chunks, is_complete), stopping).await;
        drop(permit);
    });
    let headers = [(header::CONTENT_TYPE, form.media_type()), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::new(body)).into_response()
}

/// Sends every row until the last one, until the reader goes or until the node stops.
async fn send(
    mut export: Export,
    form: Form,
    (chunks, is_complete): (mpsc::Sender<Bytes>, Arc<AtomicBool>),
    stopping: Stopping,
) {
    let columns = export.table_columns();
    let mut text = if form == Form::Csv { header_line(&columns) } else { String::new() };
    loop {
        if !text.is_empty() {
            let sending = chunks.send(Bytes::from(std::mem::take(&mut text)));
            if !matches!(tokio::time::timeout(READER_IDLE_MAX, sending).await, Ok(Ok(()))) {
                break;
            }
        }
        if *stopping.0.borrow() {
            break;
        }
        match export.next_rows().await {
            Ok(Some(rows)) => rows.iter().for_each(|row| text.push_str(&line(row, form, &columns))),
            Ok(None) => {
                is_complete.store(true, Ordering::Release);
                break;
            }
            Err(error) => {
                tracing::warn!(%error, "export ended early");
                break;
            }
        }
    }
    // The body ends once the number of rows is in the audit trail.
    export.finish().await;
    drop(chunks);
}

fn header_line(columns: &[String]) -> String {
    joined(columns.iter().map(|name| cell(&Value::from(name.as_str()))))
}

fn joined(cells: impl Iterator<Item = String>) -> String {
    format!("{}\r\n", cells.collect::<Vec<_>>().join(","))
}

/// Members that are JSON text in a table, whatever their type, so that they can be read back.
const JSON_COLUMNS: [&str; 3] = ["headers", "payload", "fields"];

fn line(row: &Map<String, Value>, form: Form, columns: &[String]) -> String {
    if form == Form::Lines {
        return format!("{}\n", Value::Object(row.clone()));
    }
    let fields = row.get("fields");
    joined(columns.iter().map(|name| {
        let value = row.get(name).or_else(|| fields.and_then(|fields| fields.get(name)));
        match value {
            None | Some(Value::Null) => String::new(),
            Some(value) if JSON_COLUMNS.contains(&name.as_str()) => cell(&Value::String(value.to_string())),
            Some(value) => cell(value),
        }
    }))
}

/// An export ended before its last row. The connection is closed without the end of the body, so that the caller notices.
#[derive(Debug, thiserror::Error)]
#[error("the export ended early")]
struct EndedEarly;

/// Chunks as the body of a response. Fails at the end unless all rows were sent.
struct Chunks {
    received: mpsc::Receiver<Bytes>,
    is_complete: Arc<AtomicBool>,
    has_failed: bool,
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = EndedEarly;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EndedEarly>>> {
        self.received.poll_recv(context).map(|chunk| match chunk {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if self.is_complete.load(Ordering::Acquire) || self.has_failed => None,
            None => {
                self.has_failed = true;
                Some(Err(EndedEarly))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_members_are_json_text_in_a_table() {
        let row = json!({ "a": "=1", "payload": "x,y", "fields": { "identity.email": "a@b.c" } });
        let Value::Object(row) = row else { panic!("an object") };
        let columns = ["a", "payload", "identity.email", "gone"].map(str::to_owned);
        assert_eq!(line(&row, Form::Csv, &columns), "'=1,\"\"\"x,y\"\"\",a@b.c,\r\n");
        assert_eq!(header_line(&columns), "a,payload,identity.email,gone\r\n");
        assert!(line(&row, Form::Lines, &columns).ends_with("}\n"));
    }

    #[tokio::test]
    async fn a_body_that_ends_early_fails() {
        use http_body_util::BodyExt;
        for is_complete in [true, false] {
            let (chunks, received) = mpsc::channel(2);
            chunks.send(Bytes::from_static(b"row")).await.unwrap();
            drop(chunks);
            let body = Chunks { received, is_complete: Arc::new(is_complete.into()), has_failed: false };
            assert_eq!(body.collect().await.is_ok(), is_complete);
        }
    }
}
