//! The admin listener: the API, health, metrics.

use std::net::SocketAddr;

use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_domain::unit;
use sluice_domain::verify::SecretValue;
use sluice_ledger::{JobFilter, Verdict};
use tokio::net::TcpListener;
use tokio::sync::watch;
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::operator::{OperateError, Operator, ReplayOrder, Selection};
use super::questions::Reveal;
use super::{approvals, change, guards, keys, view};

/// The admin listener, ready to be opened.
#[derive(Debug)]
pub struct Window {
    listener: TcpListener,
    operator: Operator,
    token: Option<SecretValue>,
}

impl Window {
    /// Takes the address.
    pub async fn bind(address: SocketAddr, operator: Operator, token: Option<SecretValue>) -> std::io::Result<Window> {
        Ok(Window { listener: TcpListener::bind(address).await?, operator, token })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until told to stop.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let router = router(self.operator, self.token);
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(self.listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "the admin listener ended");
        }
    }
}

fn router(operator: Operator, token: Option<SecretValue>) -> Router {
    let api = Router::new()
        .route("/status", get(status))
        .route("/events", get(events))
        .route("/events/{id}", get(event))
        .route("/jobs", get(jobs))
        .route("/jobs/{id}", get(job))
        .route("/jobs/{id}/resolve", post(resolve))
        .route("/dead-letters", get(dead_letters))
        .route("/dead-letters/top", get(dead_reasons))
        .route("/dead-letters/drop", post(drop_jobs))
        .route("/replays", post(replay))
        .route("/sources", get(sources))
        .route("/sources/{name}", get(source))
        .route("/destinations", get(destinations))
        .route("/pauses", get(pauses))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/reload", post(reload))
        .route("/approvals", get(approvals::list).post(approvals::decide_many))
        .route("/approvals/{id}", get(approvals::show).post(approvals::decide_one))
        .route("/suppressions", get(guards::suppressions).post(guards::suppress))
        .route("/safe-mode", get(guards::safe_modes).post(guards::set_safe_mode))
        .route("/plan", post(change::plan_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/apply", post(change::apply_route).layer(DefaultBodyLimit::max(change::ORDER_BYTES_MAX)))
        .route("/revisions", get(change::revisions))
        .route("/revisions/{revision}", get(change::revision))
        .route("/keys", get(keys::show))
        .route("/keys/rotate", post(keys::rotate))
        .route("/audit", get(audit));
    let guarded = Router::new()
        .nest("/api/v1", api)
        .route("/metrics", get(metrics))
        .route("/openapi/intake.json", get(intake_api))
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let token = token.clone();
            async move {
                match guard(token.as_ref(), &request) {
                    Ok(()) => next.run(request).await,
                    Err(refusal) => *refusal,
                }
            }
        }));
    Router::new()
        .merge(guarded)
        .route("/healthz", get(|| async { Json(json!({ "status": "alive" })) }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], openapi()) }))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "not-found", "there is nothing here; see /openapi.json") })
        .with_state(operator)
}

/// Lets in who shows the token; and, so that no web page can act through an operator's browser, nobody whose request a browser
/// says was made by another site.
fn guard(token: Option<&SecretValue>, request: &Request) -> Result<(), Box<Response>> {
    let foreign = request.headers().get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if foreign {
        let refusal = problem(StatusCode::FORBIDDEN, "cross-site", "requests from other web sites are not answered");
        return Err(Box::new(refusal));
    }
    let Some(token) = token else { return Ok(()) };
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let matches = shown.is_some_and(|shown| token.matches(shown));
    if matches {
        return Ok(());
    }
    let mut refusal =
        problem(StatusCode::UNAUTHORIZED, "unauthorized", "show the admin token: Authorization: Bearer …");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refusal))
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    let body = json!({
        "type": format!("urn:sluice:problem:{code}"),
        "title": status.canonical_reason().unwrap_or("Problem"),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

impl IntoResponse for OperateError {
    fn into_response(self) -> Response {
        problem(self.status(), self.code(), &self.to_string())
    }
}

pub(super) type Answer<T> = Result<Json<T>, OperateError>;

/// A body that is read with a clear word about what is wrong in it.
pub(super) struct Body<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(problem(rejection.status(), "body-invalid", &rejection.body_text())),
        }
    }
}

/// A query that is read with a clear word about what is wrong in it.
pub(super) struct Asked<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> axum::extract::FromRequestParts<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<Asked<T>, Response> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Asked(query)),
            Err(rejection) => Err(problem(StatusCode::BAD_REQUEST, "query-invalid", &rejection.body_text())),
        }
    }
}

pub(super) const LIMIT: u32 = 50;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Only from this source.
    source: Option<String>,
    /// Only of this type.
    r#type: Option<String>,
    /// Go on after this event.
    after: Option<String>,
    /// At most so many.
    limit: Option<u32>,
}

/// Accepted events, newest first.
#[utoipa::path(get, path = "/api/v1/events", params(EventsQuery), responses((status = 200, body = view::List<view::EventView>)))]
async fn events(
    State(operator): State<Operator>,
    Asked(query): Asked<EventsQuery>,
) -> Answer<view::List<view::EventView>> {
    Ok(Json(operator.events(query.source, query.r#type, query.after, query.limit.unwrap_or(LIMIT)).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    /// Show personal data; whoever asks is named in the audit trail.
    reveal: Option<bool>,
    /// Who asks.
    actor: Option<String>,
    /// Why; needed to reveal, and stands in the audit trail.
    reason: Option<String>,
}

/// One event with its jobs and its body, masked unless revealed.
#[utoipa::path(get, path = "/api/v1/events/{id}", params(("id" = String, Path), EventQuery), responses((status = 200, body = view::EventDetail), (status = 404)))]
async fn event(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    Asked(query): Asked<EventQuery>,
) -> Answer<view::EventDetail> {
    if !query.reveal.unwrap_or(false) {
        return Ok(Json(operator.event(&id, None).await?));
    }
    let reason = query.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.ok_or_else(|| OperateError::Invalid("to see personal data needs a reason".to_owned()))?;
    let reveal = Reveal { actor: query.actor.unwrap_or_else(|| "unknown".to_owned()), reason };
    Ok(Json(operator.event(&id, Some(&reveal)).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct JobsQuery {
    /// Only in these states, separated by commas.
    state: Option<String>,
    /// Only of this worker.
    worker: Option<String>,
    /// Only in this queue.
    queue: Option<String>,
    /// Only in this dead-letter queue.
    dead_letter_queue: Option<String>,
    /// Only from this source.
    source: Option<String>,
    /// Only with this failure class.
    class: Option<String>,
    /// Only with this failure code.
    code: Option<String>,
    /// Only changed within this span (`1h`) or since this time.
    since: Option<String>,
    /// Go on after this job.
    after: Option<String>,
    /// At most so many.
    limit: Option<u32>,
}

impl JobsQuery {
    fn filter(self, states: Vec<JobState>) -> Result<JobFilter, OperateError> {
        let states = match self.state {
            None => states,
            Some(words) => words
                .split(',')
                .map(|word| {
                    JobState::parse(word.trim()).ok_or_else(|| {
                        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
                        OperateError::Invalid(format!("`{word}` is no state of a job; those are {}", known.join(", ")))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(JobFilter {
            states,
            worker: self.worker,
            queue: self.queue,
            dead_letter_queue: self.dead_letter_queue,
            source: self.source,
            class: self.class,
            code: self.code,
            since: self.since.map(|since| moment(&since)).transpose()?,
            until: None,
        })
    }
}

/// `1h` ago, or a time.
fn moment(text: &str) -> Result<Time, OperateError> {
    if let Some(time) = Time::parse(text) {
        return Ok(time);
    }
    let ago = unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
    Ok(Time::from(jiff::Timestamp::now()) - ago)
}

/// Jobs, newest first.
#[utoipa::path(get, path = "/api/v1/jobs", params(JobsQuery), responses((status = 200, body = view::List<view::JobView>)))]
async fn jobs(State(operator): State<Operator>, Asked(query): Asked<JobsQuery>) -> Answer<view::List<view::JobView>> {
    let (after, limit) = (query.after.clone(), query.limit.unwrap_or(LIMIT));
    Ok(Json(operator.jobs(query.filter(vec![])?, after, limit).await?))
}

/// Jobs that failed for good or whose outcome is unknown, newest first.
#[utoipa::path(get, path = "/api/v1/dead-letters", params(JobsQuery), responses((status = 200, body = view::List<view::JobView>)))]
async fn dead_letters(
    State(operator): State<Operator>,
    Asked(query): Asked<JobsQuery>,
) -> Answer<view::List<view::JobView>> {
    let (after, limit) = (query.after.clone(), query.limit.unwrap_or(LIMIT));
    Ok(Json(operator.jobs(query.filter(vec![JobState::Dead, JobState::Unknown])?, after, limit).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    /// Within this span (`1h`) or since this time; the last hour when left out.
    since: Option<String>,
    /// At most so many.
    limit: Option<u32>,
}

/// Why jobs died, most frequent first.
#[utoipa::path(get, path = "/api/v1/dead-letters/top", params(TopQuery), responses((status = 200, body = Vec<view::ReasonView>)))]
async fn dead_reasons(
    State(operator): State<Operator>,
    Asked(query): Asked<TopQuery>,
) -> Answer<Vec<view::ReasonView>> {
    let since = moment(query.since.as_deref().unwrap_or("1h"))?;
    Ok(Json(operator.dead_reasons(since, query.limit.unwrap_or(10)).await?))
}

/// One job with its effects and attempts.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", params(("id" = String, Path)), responses((status = 200, body = view::JobDetail), (status = 404)))]
async fn job(State(operator): State<Operator>, Path(id): Path<String>) -> Answer<view::JobDetail> {
    Ok(Json(operator.job(&id).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResolveOrder {
    /// `happened` or `did-not-happen`.
    verdict: String,
    /// How you know.
    reason: String,
    /// Who says so.
    #[serde(default)]
    actor: String,
}

/// Say what became of an effect whose outcome is unknown; its job goes on from there.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/resolve", params(("id" = String, Path)), request_body = ResolveOrder, responses((status = 200, body = view::JobDetail)))]
async fn resolve(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    Body(order): Body<ResolveOrder>,
) -> Answer<view::JobDetail> {
    let verdict = match order.verdict.as_str() {
        "happened" => Verdict::Happened,
        "did-not-happen" => Verdict::DidNotHappen,
        other => return Err(OperateError::Invalid(format!("`{other}` is no verdict; say happened or did-not-happen"))),
    };
    Ok(Json(operator.resolve(&id, verdict, &order.actor, &order.reason).await?))
}

/// Bring jobs back to life, with their own keys.
#[utoipa::path(post, path = "/api/v1/replays", request_body = ReplayOrder, responses((status = 200, body = view::Acted)))]
async fn replay(State(operator): State<Operator>, Body(order): Body<ReplayOrder>) -> Answer<view::Acted> {
    Ok(Json(operator.replay(order).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
struct DropOrder {
    /// Which jobs.
    #[serde(flatten)]
    selection: Selection,
    /// Why; somebody signs it off.
    reason: String,
    /// Who.
    #[serde(default)]
    actor: String,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// Give dead or parked jobs up.
#[utoipa::path(post, path = "/api/v1/dead-letters/drop", request_body = DropOrder, responses((status = 200, body = view::Acted)))]
async fn drop_jobs(State(operator): State<Operator>, Body(order): Body<DropOrder>) -> Answer<view::Acted> {
    Ok(Json(operator.drop_jobs(&order.selection, &order.actor, &order.reason, order.dry_run).await?))
}

/// The node at a glance.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = view::Status)))]
async fn status(State(operator): State<Operator>) -> Answer<view::Status> {
    Ok(Json(operator.status().await?))
}

/// Every source: what it sent, what was refused.
#[utoipa::path(get, path = "/api/v1/sources", responses((status = 200, body = Vec<view::SourceView>)))]
async fn sources(State(operator): State<Operator>) -> Answer<Vec<view::SourceView>> {
    Ok(Json(operator.sources().await?))
}

/// One source: how often and how late it repeats itself, the lifetime that its keys need, what was refused, its limits.
#[utoipa::path(get, path = "/api/v1/sources/{name}", params(("name" = String, Path)), responses((status = 200, body = view::SourceDetail), (status = 404)))]
async fn source(State(operator): State<Operator>, Path(name): Path<String>) -> Answer<view::SourceDetail> {
    Ok(Json(operator.source(&name).await?))
}

/// Every destination and its gate.
#[utoipa::path(get, path = "/api/v1/destinations", responses((status = 200, body = Vec<view::DestinationView>)))]
async fn destinations(State(operator): State<Operator>) -> Answer<Vec<view::DestinationView>> {
    Ok(Json(operator.destinations().await?))
}

/// What is paused.
#[utoipa::path(get, path = "/api/v1/pauses", responses((status = 200, body = Vec<view::PauseView>)))]
async fn pauses(State(operator): State<Operator>) -> Answer<Vec<view::PauseView>> {
    Ok(Json(operator.pauses().await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PauseOrder {
    /// `destination:NAME`, `worker:NAME`, `playbook:NAME`, `queue:NAME`, `source:NAME` or `replays`.
    target: String,
    /// Why.
    #[serde(default)]
    reason: String,
    /// Who.
    #[serde(default)]
    actor: String,
}

/// Stop a source, a worker or a destination until it is resumed.
#[utoipa::path(post, path = "/api/v1/pause", request_body = PauseOrder, responses((status = 200, body = Vec<view::PauseView>)))]
async fn pause(State(operator): State<Operator>, Body(order): Body<PauseOrder>) -> Answer<Vec<view::PauseView>> {
    operator.pause(&order.target, &order.actor, &order.reason).await?;
    Ok(Json(operator.pauses().await?))
}

/// Let it go on.
#[utoipa::path(post, path = "/api/v1/resume", request_body = PauseOrder, responses((status = 200, body = Vec<view::PauseView>)))]
async fn resume(State(operator): State<Operator>, Body(order): Body<PauseOrder>) -> Answer<Vec<view::PauseView>> {
    operator.resume(&order.target, &order.actor).await?;
    Ok(Json(operator.pauses().await?))
}

/// Read the configuration again; one with mistakes does not replace the one in force.
#[utoipa::path(post, path = "/api/v1/reload", responses((status = 200), (status = 422)))]
async fn reload(State(operator): State<Operator>) -> Answer<serde_json::Value> {
    let (revision, changed) = operator.reload("api").await?;
    Ok(Json(json!({ "revision": revision, "changed": changed })))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// Go on after this line.
    after: Option<i64>,
    /// At most so many.
    limit: Option<u32>,
}

/// Who did what and why, newest first.
#[utoipa::path(get, path = "/api/v1/audit", params(AuditQuery), responses((status = 200, body = view::List<view::AuditView>)))]
async fn audit(
    State(operator): State<Operator>,
    Asked(query): Asked<AuditQuery>,
) -> Answer<view::List<view::AuditView>> {
    Ok(Json(operator.audit(query.after, query.limit.unwrap_or(LIMIT)).await?))
}

async fn metrics(State(operator): State<Operator>) -> Result<Response, OperateError> {
    let page = operator.metrics().await?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], page).into_response())
}

async fn intake_api(State(operator): State<Operator>) -> Json<serde_json::Value> {
    Json(operator.intake_api())
}

async fn ready(State(operator): State<Operator>) -> Response {
    if operator.is_ready() {
        return Json(json!({ "status": "ready" })).into_response();
    }
    let mut response =
        problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "more is arriving than can be written down");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
    response
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluice admin API",
        description = "What operators can see and do. Times are RFC 3339; errors are application/problem+json with a stable code."
    ),
    paths(
        status,
        events,
        event,
        jobs,
        job,
        resolve,
        dead_letters,
        dead_reasons,
        drop_jobs,
        replay,
        sources,
        source,
        destinations,
        pauses,
        pause,
        resume,
        reload,
        change::plan_route,
        change::apply_route,
        change::revisions,
        change::revision,
        audit,
        approvals::list,
        approvals::show,
        approvals::decide_one,
        approvals::decide_many,
        guards::suppressions,
        guards::suppress,
        guards::safe_modes,
        guards::set_safe_mode,
        keys::show,
        keys::rotate
    )
)]
struct Document;

/// The description of the API.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
