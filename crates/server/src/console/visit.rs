//! A request to the console: who makes it, and what its form contains.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, request};
use axum::response::{IntoResponse, Redirect, Response};

use jiff::tz::TimeZone;
use tokio::sync::Mutex;

use super::chart::{Axis, Window};
use super::page::{Act, Block, Frame, Page, Viewer, query_value, rendered};
use super::views::saved_views;
use super::{Console, sign_in};
use crate::access::{Identified, Refusal, Session};
use crate::operate::views::Status;
use crate::operate::{OperateError, Operator, Peer};

/// Largest form, in bytes.
const FORM_BYTES_MAX: usize = 1024 * 1024;
/// Time in which a form must arrive.
const FORM_TIME_MAX: Duration = Duration::from_secs(15);

/// Age of the frame of a page that reads itself again.
const FRAME_AGE_MAX: Duration = Duration::from_secs(1);
/// Header of a page that reads itself again.
const LIVE_HEADER: &str = "sluice-live";

/// A page that a signed-in user opens.
#[derive(Debug)]
pub(super) struct Visit {
    /// Acts for the user.
    pub operator: Operator,
    pub session: Session,
    /// Path without the query.
    path: String,
    fields: Fields,
    /// Of the reader; UTC if it is not known.
    zone: TimeZone,
    /// Name and address.
    views: Vec<(String, String)>,
    frame: FrameFacts,
    /// The page reads itself again because something has changed.
    is_live: bool,
}

/// What the frame of every page shows, computed once for all open consoles.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameFacts(Arc<Mutex<Option<ReadFacts>>>);

/// With the time of the read.
type ReadFacts = (Instant, Arc<FrameFact>);

/// State of the node, and the number of alerts that fire.
#[derive(Debug)]
struct FrameFact {
    status: Status,
    alerts: u64,
}

impl FrameFacts {
    /// A page that reads itself again takes facts of the last second: with many consoles open they are read once for all of them. A page
    /// that a reader opens reads them itself, so that it shows what an act has just done.
    async fn get(&self, operator: &Operator, is_live: bool) -> Result<Arc<FrameFact>, OperateError> {
        let mut kept = self.0.lock().await;
        if let Some((read_at, facts)) = &*kept
            && is_live
            && read_at.elapsed() < FRAME_AGE_MAX
        {
            return Ok(facts.clone());
        }
        let status = operator.status().await?;
        let alerts = operator.alerts().await?.iter().filter(|alert| alert.state == "firing").count() as u64;
        let facts = Arc::new(FrameFact { status, alerts });
        *kept = Some((Instant::now(), facts.clone()));
        Ok(facts)
    }
}

/// A form that a signed-in user has sent from a page of this session.
#[derive(Debug)]
pub(super) struct Sent {
    pub visit: Visit,
    pub form: Fields,
}

/// Names and values, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads an encoded query or form.
    pub(super) fn parse(text: &str) -> Fields {
        Fields(form_pairs(text.as_bytes()))
    }

    /// Trimmed; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    pub(super) fn option(&self, name: &str) -> Option<String> {
        Some(self.get(name)).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    }

    /// The query of an address, without empty fields and places in a list.
    pub(super) fn to_query(&self) -> String {
        let kept = self.0.iter().filter(|(name, value)| name != "after" && !value.is_empty());
        let texts = kept.map(|(name, value)| format!("{}={}", query_value(name), query_value(value)));
        texts.collect::<Vec<_>>().join("&")
    }

    /// The query of an address with another value of one field.
    pub(super) fn query_with(&self, name: &str, value: &str) -> String {
        let kept = self.0.iter().filter(|(known, value)| known != name && !value.is_empty());
        let pairs = kept.map(|(name, value)| (name.as_str(), value.as_str())).chain([(name, value)]);
        let texts = pairs.map(|(name, value)| format!("{}={}", query_value(name), query_value(value)));
        texts.collect::<Vec<_>>().join("&")
    }
}

/// Why a page is not shown.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Failure {
        Failure { status: error.status(), code: error.code(), detail: error.to_string() }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure { status: refusal.status, code: refusal.code, detail: refusal.detail }
    }
}

impl Failure {
    pub(super) fn invalid(detail: impl Into<String>) -> Failure {
        Failure { status: StatusCode::BAD_REQUEST, code: "invalid", detail: detail.into() }
    }
}

/// Value of a cookie that is no secret.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(axum::http::header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn zone_of(headers: &HeaderMap) -> TimeZone {
    let name = cookie(headers, "zone").map(|value| Fields::parse(&format!("zone={value}")).get("zone").to_owned());
    name.and_then(|name| TimeZone::get(&name).ok()).unwrap_or(TimeZone::UTC)
}

pub(super) fn peer_of(head: &request::Parts) -> IpAddr {
    head.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0)
}

impl Visit {
    async fn admit(head: &request::Parts, console: &Console) -> Result<(Visit, Identified), Response> {
        let identified = match console.access.identify(head, peer_of(head)).await {
            Ok(identified) => identified,
            Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => {
                return Err(if head.method.is_safe() {
                    let next = head.uri.path_and_query().map_or("/", |path| path.as_str());
                    Redirect::to(&format!("/sign-in?next={}", query_value(next))).into_response()
                } else {
                    sign_in::page(console, StatusCode::UNAUTHORIZED, Some(refusal.detail))
                });
            }
            Err(refusal) => return Err(sign_in::page(console, refusal.status, Some(refusal.detail))),
        };
        let Some(session) = identified.session.clone() else {
            let detail = "the console needs a session; tokens are for the API".to_owned();
            return Err(sign_in::page(console, StatusCode::FORBIDDEN, Some(detail)));
        };
        let visit = Visit {
            operator: console.operator.acting_for(identified.caller.clone()),
            session,
            // A page that answers a form cannot be fetched again.
            path: if head.method.is_safe() { head.uri.path().to_owned() } else { String::new() },
            fields: Fields::parse(head.uri.query().unwrap_or_default()),
            zone: zone_of(&head.headers),
            views: saved_views(&head.headers),
            frame: console.frame.clone(),
            is_live: head.headers.contains_key(LIVE_HEADER),
        };
        Ok((visit, identified))
    }

    /// Path and query of the page.
    pub(super) fn address(&self) -> String {
        match self.fields.to_query() {
            query if query.is_empty() => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }

    /// Form that gives a name to this list with its filter, or removes the name.
    pub(super) fn save_view(&self) -> Block {
        let address = self.address();
        let known = self.views.iter().find(|(_, path)| *path == address);
        let (label, act) = match known {
            Some((name, _)) => {
                let act = self.act("/views", "Remove this view").with("name", name).with("remove", "yes");
                (format!("Saved as {name}"), act)
            }
            None => {
                let name = super::page::Field::text("name", "Name", "", "kept in this browser");
                (
                    "Save this view".to_owned(),
                    self.act("/views", "Save").asking(super::page::Field { required: true, ..name }),
                )
            }
        };
        Block::Fold(label, vec![act.with("path", address)])
    }

    /// The fields of the address.
    pub(super) fn query(&self) -> &Fields {
        &self.fields
    }

    /// Time zone that charts and pictures are labelled in.
    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    pub(super) fn views(&self) -> &[(String, String)] {
        &self.views
    }

    /// The time that the charts of this page show.
    pub(super) fn axis(&self) -> Result<Axis, Failure> {
        let word = self.fields.get("window");
        let window = Window::parse(word)
            .ok_or_else(|| Failure::invalid(format!("`{word}` is no time of charts; use 1h, 24h, 7d or 90d")))?;
        Ok(Axis::new(window, self.operator.now(), self.zone.clone()))
    }

    /// This page with other times of its charts.
    pub(super) fn windows(&self, current: Window) -> Vec<(String, &'static str, bool)> {
        let link = |window: Window| {
            let query = self.fields.query_with("window", window.as_str());
            (format!("{}?{query}", self.path), window.as_str(), window == current)
        };
        Window::ALL.map(link).to_vec()
    }

    pub(super) async fn page(&self, title: impl Into<String>, blocks: Vec<Block>) -> Result<Page, Failure> {
        let facts = self.frame.get(&self.operator, self.is_live).await?;
        let who = self.operator.whoami();
        let viewer = Viewer {
            role: if who.reveal { format!("{} + reveal", who.role) } else { who.role },
            user: who.name,
            form_token: self.session.form_token.clone(),
            path: self.path.clone(),
            views: self.views.clone(),
            alerts: facts.alerts,
        };
        Ok(Page { title: title.into(), frame: Frame::new(&facts.status, viewer), blocks })
    }

    /// A form that changes something, without fields.
    pub(super) fn act(&self, action: impl Into<String>, button: impl Into<String>) -> Act {
        Act {
            action: action.into(),
            button: button.into(),
            form_token: self.session.form_token.clone(),
            hidden: vec![],
            fields: vec![],
            is_final: false,
        }
    }

    /// Shows a page, or what prevents it.
    pub(super) async fn show(&self, title: &str, blocks: Result<Vec<Block>, Failure>) -> Response {
        let shown = match blocks {
            Ok(blocks) => self.page(title, blocks).await,
            Err(failure) => Err(failure),
        };
        match shown {
            Ok(page) => page.into_response(),
            Err(failure) => self.failed(failure).await,
        }
    }

    /// Goes to another page after an act, or says what prevented it.
    pub(super) async fn done(&self, done: Result<String, Failure>) -> Response {
        match done {
            Ok(next) => Redirect::to(&next).into_response(),
            Err(failure) => self.failed(failure).await,
        }
    }

    async fn failed(&self, failure: Failure) -> Response {
        let Failure { status, code, detail } = failure;
        let what = match status {
            StatusCode::FORBIDDEN => "You may not do this",
            StatusCode::NOT_FOUND => "There is no such thing",
            StatusCode::SERVICE_UNAVAILABLE => "The node could not do this now",
            _ => "Nothing was done",
        };
        let problem = Block::Problem(what.to_owned(), code.to_owned(), detail.clone());
        match self.page(what, vec![problem]).await {
            Ok(page) => rendered(&page, status),
            Err(_) => (status, format!("{what}: {detail} ({code})")).into_response(),
        }
    }
}

impl FromRequestParts<Console> for Visit {
    type Rejection = Response;

    async fn from_request_parts(head: &mut request::Parts, console: &Console) -> Result<Visit, Response> {
        Visit::admit(head, console).await.map(|(visit, _)| visit)
    }
}

impl FromRequest<Console> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Sent, Response> {
        let (head, body) = request.into_parts();
        let (visit, identified) = Visit::admit(&head, console).await?;
        let form = read_form(console, &head.headers, body).await?;
        if let Err(refusal) = identified.check_form(&head.headers, Some(form.get("form_token"))) {
            return Err(visit.failed(refusal.into()).await);
        }
        Ok(Sent { visit, form })
    }
}

/// Reads a form in limited time.
pub(super) async fn read_form(
    console: &Console,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Fields, Response> {
    let is_form = headers
        .get(axum::http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    let refused = |status: StatusCode, detail: &str| sign_in::page(console, status, Some(detail.to_owned()));
    if !is_form {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send a form of this console"));
    }
    let reading = axum::body::to_bytes(body, FORM_BYTES_MAX);
    match tokio::time::timeout(FORM_TIME_MAX, reading).await {
        Ok(Ok(bytes)) => Ok(Fields(form_pairs(&bytes))),
        Ok(Err(_)) => Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the form is longer than 1 MiB")),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the form did not arrive in time")),
    }
}

fn form_pairs(bytes: &[u8]) -> Vec<(String, String)> {
    let text = |part: &[u8]| {
        let mut plain = Vec::with_capacity(part.len());
        let mut rest = part.iter().copied();
        while let Some(byte) = rest.next() {
            match byte {
                b'+' => plain.push(b' '),
                b'%' => {
                    let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                    if let (Some(high), Some(low)) = (digit(), digit()) {
                        plain.push((high * 16 + low) as u8);
                    }
                }
                other => plain.push(other),
            }
        }
        String::from_utf8_lossy(&plain).into_owned()
    };
    let pairs = bytes.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.iter().position(|byte| *byte == b'=') {
            Some(place) => (text(&pair[..place]), text(&pair[place + 1..])),
            None => (text(pair), String::new()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_read_with_repeated_and_encoded_fields() {
        let form = Fields(form_pairs(b"id=job_1&id=job_2&reason=a+b%26c%C3%A9&x&bad=%zz1"));
        assert_eq!(form.all("id"), ["job_1", "job_2"]);
        assert_eq!((form.get("reason"), form.get("x"), form.get("absent")), ("a b&cé", "", ""));
    }

    #[test]
    fn next_page_keeps_the_filter() {
        let fields = Fields(form_pairs(b"source=web%20site&after=evt_1&state="));
        assert_eq!(fields.query_with("after", "evt_2"), "source=web%20site&after=evt_2");
    }
}
