//! State shared by handle and server, and request handling.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::SlackSettings;
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, FaultKind, Injector};
use crate::inspect::{self, Inspect, Received};
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::Handler;
use crate::{lock, uri};

/// Larger requests are rejected with 413.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlackMessage {
    /// Empty for messages through the webhook.
    pub channel: String,
    pub ts: String,
    pub text: String,
    pub blocks: Value,
    pub thread_ts: Option<String>,
    pub metadata: Value,
}

/// Counts of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SlackTruth {
    /// Calls by API method or `webhook`.
    pub calls: BTreeMap<String, u64>,
    pub messages: u64,
    /// Messages whose sender got no accurate response.
    pub unseen: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: SlackSettings,
    pub(super) injector: Injector,
    log: Mutex<MessageLog>,
}

#[derive(Debug, Default)]
struct MessageLog {
    truth: SlackTruth,
    messages: Vec<SlackMessage>,
    refusals: VecDeque<&'static str>,
}

impl Shared {
    pub(super) fn new(settings: SlackSettings, injector: Injector) -> Shared {
        Shared { settings, injector, log: Mutex::default() }
    }

    pub(super) fn messages(&self) -> Vec<SlackMessage> {
        lock(&self.log).messages.clone()
    }

    pub(super) fn truth(&self) -> SlackTruth {
        let log = lock(&self.log);
        SlackTruth { messages: log.messages.len() as u64, faults: self.injector.counts(), ..log.truth.clone() }
    }

    pub(super) fn refuse_next(&self, errors: impl IntoIterator<Item = &'static str>) {
        lock(&self.log).refusals.extend(errors);
    }

    /// Stores a message and returns its timestamp id.
    fn store(&self, channel: &str, message: &Value) -> String {
        let mut log = lock(&self.log);
        // Unique per channel, as in Slack.
        let ts = format!("{}.{:06}", jiff::Timestamp::now().as_second(), log.messages.len() + 1);
        log.messages.push(SlackMessage {
            channel: channel.to_owned(),
            ts: ts.clone(),
            text: message["text"].as_str().unwrap_or_default().to_owned(),
            blocks: message["blocks"].clone(),
            thread_ts: message["thread_ts"].as_str().map(str::to_owned),
            metadata: message["metadata"].clone(),
        });
        ts
    }

    fn post(&self, body: &[u8]) -> Result<Value, &'static str> {
        let message: Value = serde_json::from_slice(body).map_err(|_| "invalid_json")?;
        let channel = message["channel"].as_str().unwrap_or_default();
        if !self.settings.channels.iter().any(|known| known == channel) {
            return Err("channel_not_found");
        }
        if !message["blocks"].is_null() && !message["blocks"].is_array() {
            return Err("invalid_blocks");
        }
        if message["text"].as_str().unwrap_or_default().is_empty() && message["blocks"].is_null() {
            return Err("no_text");
        }
        let ts = self.store(channel, &message);
        Ok(json!({"ok": true, "channel": channel, "ts": ts, "message": {"text": message["text"]}}))
    }

    fn history(&self, query: &str, thread: Option<&str>) -> Result<Value, &'static str> {
        let requested = |name: &str| parameter(query, name);
        let channel = requested("channel").unwrap_or_default();
        if !self.settings.channels.contains(&channel) {
            return Err("channel_not_found");
        }
        let oldest: f64 = requested("oldest").and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let limit =
            requested("limit").and_then(|text| text.parse().ok()).unwrap_or(100).min(self.settings.page_max).max(1);
        let from: usize = requested("cursor").and_then(|text| text.parse().ok()).unwrap_or(0);
        let metadata = requested("include_all_metadata").as_deref() == Some("true");
        let log = lock(&self.log);
        let matches = |message: &&SlackMessage| {
            message.channel == channel
                && message.ts.parse().is_ok_and(|ts: f64| ts >= oldest)
                && match thread {
                    Some(thread) => message.ts == thread || message.thread_ts.as_deref() == Some(thread),
                    None => message.thread_ts.is_none(),
                }
        };
        let found: Vec<&SlackMessage> = log.messages.iter().rev().filter(matches).collect();
        let rendered = |message: &&SlackMessage| {
            let mut rendered = json!({"type": "message", "ts": message.ts, "text": message.text});
            if metadata && !message.metadata.is_null() {
                rendered["metadata"] = message.metadata.clone();
            }
            rendered
        };
        let page: Vec<Value> = found.iter().skip(from).take(limit).map(rendered).collect();
        let next = from + page.len();
        let more = next < found.len();
        let cursor = if more { next.to_string() } else { String::new() };
        Ok(json!({"ok": true, "messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}))
    }
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(found, _)| *found == name).map(|(_, value)| uri::decode(value))
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        inspect::last(lock(&self.log).messages.iter(), limit)
    }

    fn truth(&self) -> Value {
        json!(Shared::truth(self))
    }

    fn injector(&self) -> &Injector {
        &self.injector
    }
}

impl Handler for Shared {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Payload>, Hangup> {
        let (parts, body) = match inspect::receive(&*self, request, BODY_BYTES_MAX).await? {
            Received::Call(parts, body) => (parts, body),
            Received::Answered(reply) => return Ok(reply.complete()),
        };
        let path = parts.uri.path().to_owned();
        let method = path.strip_prefix("/api/").unwrap_or("webhook").to_owned();
        *lock(&self.log).truth.calls.entry(method.clone()).or_default() += 1;
        let kind = if parts.method == Method::GET { CallKind::Read } else { CallKind::Write };
        let key = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let key = key["metadata"]["event_payload"]["effect_key"].as_str().map(str::to_owned);
        let keys: Vec<&str> = key.as_deref().into_iter().collect();
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path: &path, keys: &keys });
        apply_fault(decision, FakeCall { shared: self, parts, body, method, stored: false }).await
    }
}

/// One call in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    parts: Parts,
    body: Bytes,
    method: String,
    stored: bool,
}

impl FakeCall {
    fn webhook(&mut self) -> FakeReply {
        let text = |status, text: &'static str| FakeReply::of(status, "text/plain", text);
        let hook = self.parts.uri.path().strip_prefix("/services/").unwrap_or_default();
        if hook != self.shared.settings.webhook {
            return text(StatusCode::NOT_FOUND, "no_service");
        }
        match serde_json::from_slice::<Value>(&self.body) {
            Ok(message) if message["text"].is_string() || message["blocks"].is_array() => {
                self.shared.store("", &message);
                self.stored = true;
                text(StatusCode::OK, "ok")
            }
            _ => text(StatusCode::BAD_REQUEST, "invalid_payload"),
        }
    }
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        if self.method == "webhook" {
            return self.webhook();
        }
        let refusal = lock(&self.shared.log).refusals.pop_front();
        let expected = format!("Bearer {}", self.shared.settings.token);
        let authorized =
            self.parts.headers.get(AUTHORIZATION).is_some_and(|given| given.as_bytes() == expected.as_bytes());
        let query = self.parts.uri.query().unwrap_or_default();
        let result = match (refusal, authorized, self.method.as_str()) {
            (Some(error), ..) => Err(error),
            (None, false, _) => Err("invalid_auth"),
            (None, true, "chat.postMessage") => self.shared.post(&self.body).inspect(|_| self.stored = true),
            (None, true, "conversations.history") => self.shared.history(query, None),
            (None, true, "conversations.replies") => {
                let thread = parameter(query, "ts").unwrap_or_default();
                self.shared.history(query, Some(&thread))
            }
            (None, true, _) => Err("unknown_method"),
        };
        let body = result.unwrap_or_else(|error| json!({"ok": false, "error": error}));
        FakeReply::json(StatusCode::OK, &body)
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        let (status, error) = match refusal {
            Refusal::TooManyRequests | Refusal::RequestLimitExceeded => (StatusCode::TOO_MANY_REQUESTS, "ratelimited"),
            Refusal::ServerError | Refusal::LockRow => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
            Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"),
            Refusal::DuplicateValue => (StatusCode::OK, "duplicate_message_not_found"),
            Refusal::InvalidSession => (StatusCode::OK, "invalid_auth"),
        };
        FakeReply::json(status, &json!({"ok": false, "error": error}))
    }

    fn absent(&mut self) -> FakeReply {
        FakeReply::json(StatusCode::OK, &json!({"ok": true, "messages": [], "has_more": false}))
    }

    fn address(&self) -> String {
        self.parts.uri.to_string()
    }

    fn settle(&mut self, reply: ReplyTruth) {
        if self.stored && !matches!(reply, ReplyTruth::Accurate(_)) {
            lock(&self.shared.log).truth.unseen += 1;
        }
    }
}
