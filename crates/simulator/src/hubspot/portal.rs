//! One simulated account: records, logs and the data API.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::errors::ApiError;
use super::properties;
use super::store::{Address, Change, HubspotRecord, RecordStore};
use super::tokens::Tokens;
use crate::apply_fault::Refusal;
use crate::crm::{CrmLog, ExternalId, Write, WriteActor, WriteKind};
use crate::reply::FakeReply;
use crate::uri;

const INTERVAL: Duration = Duration::from_secs(10);
/// Results of a search that names no limit.
const SEARCH_LIMIT_DEFAULT: u64 = 10;
const SEARCH_LIMIT_MAX: u64 = 200;
/// Association type of two records without a label.
const UNLABELLED: u32 = 1;

/// Parsed call to the data API.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub(crate) method: Method,
    /// Decoded path after the object API: object type, and what follows.
    pub(crate) segments: Vec<String>,
    pub(crate) query: String,
    pub(crate) token: Option<String>,
    pub(crate) request_id: String,
    pub(crate) body: Bytes,
}

/// Limits of calls and their use.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) daily_used: u64,
    pub(crate) daily_max: u64,
    interval_max: Option<u64>,
    interval_start: Instant,
    interval_used: u64,
}

impl Limits {
    pub(crate) fn new(daily_max: u64, interval_max: Option<u64>) -> Limits {
        Limits { daily_used: 0, daily_max, interval_max, interval_start: Instant::now(), interval_used: 0 }
    }

    pub(crate) fn new_day(&mut self) {
        self.daily_used = 0;
    }

    /// Counts a call, or refuses it.
    fn take(&mut self) -> Result<(), ApiError> {
        if self.interval_start.elapsed() >= INTERVAL {
            (self.interval_start, self.interval_used) = (Instant::now(), 0);
        }
        if self.interval_max.is_some_and(|max| self.interval_used >= max) {
            return Err(ApiError::rate_limit("TEN_SECONDLY_ROLLING"));
        }
        if self.daily_used >= self.daily_max {
            return Err(ApiError::rate_limit("DAILY"));
        }
        self.interval_used += 1;
        self.daily_used += 1;
        Ok(())
    }

    fn headers(&self, reply: FakeReply) -> FakeReply {
        let max = self.interval_max.unwrap_or(u64::from(u32::MAX));
        [
            ("x-hubspot-ratelimit-max", max),
            ("x-hubspot-ratelimit-remaining", max.saturating_sub(self.interval_used)),
            ("x-hubspot-ratelimit-interval-milliseconds", 10_000),
            ("x-hubspot-ratelimit-daily", self.daily_max),
            ("x-hubspot-ratelimit-daily-remaining", self.daily_max.saturating_sub(self.daily_used)),
        ]
        .into_iter()
        .fold(reply, |reply, (name, value)| reply.with(HeaderName::from_static(name), &value.to_string()))
    }
}

#[derive(Debug)]
pub(crate) struct Portal {
    pub(crate) store: RecordStore,
    pub(crate) log: CrmLog,
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    pub(crate) search_lag: Duration,
}

impl Portal {
    /// Executes a call.
    pub(crate) fn respond(&mut self, call: &ApiCall) -> FakeReply {
        let reply = self.route(call).unwrap_or_else(|error| error.reply());
        self.with_headers(call, reply)
    }

    /// Refuses a call without executing it.
    pub(crate) fn respond_refused(&mut self, call: &ApiCall, refusal: Refusal) -> FakeReply {
        let error = match refusal {
            Refusal::TooManyRequests => ApiError::rate_limit("TEN_SECONDLY_ROLLING"),
            Refusal::RequestLimitExceeded => ApiError::rate_limit("DAILY"),
            Refusal::ServerError => ApiError::new(500, "INTERNAL_ERROR", "internal error"),
            Refusal::ServerUnavailable => ApiError::new(503, "SERVICE_UNAVAILABLE", "temporarily unavailable"),
            Refusal::LockRow => ApiError::new(423, "LOCKED", "Lock already exists"),
            Refusal::DuplicateValue => self.lose_race(call),
            Refusal::InvalidSession => ApiError::unauthorized(),
        };
        self.with_headers(call, error.reply())
    }

    /// Response of a read that finds nothing.
    pub(crate) fn respond_absent(&self, call: &ApiCall) -> FakeReply {
        let reply = match call.segments.last().map(String::as_str) {
            Some("search") => FakeReply::json(StatusCode::OK, &json!({"total": 0, "results": []})),
            _ => ApiError::not_found().reply(),
        };
        self.with_headers(call, reply)
    }

    fn with_headers(&self, call: &ApiCall, reply: FakeReply) -> FakeReply {
        let reply = reply.with(HeaderName::from_static("x-hubspot-correlation-id"), &call.request_id);
        match call.segments.last().is_some_and(|last| last == "search") {
            true => reply,
            false => self.limits.headers(reply),
        }
    }

    fn route(&mut self, call: &ApiCall) -> Result<FakeReply, ApiError> {
        if !call.token.as_deref().is_some_and(|token| self.tokens.is_valid(token)) {
            return Err(ApiError::unauthorized());
        }
        self.limits.take()?;
        let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
        match (call.method.as_str(), segments.as_slice()) {
            ("POST", [object]) => self.create_one(call, object),
            ("POST", [object, "search"]) => self.search(call, object),
            ("POST", [object, "batch", operation]) => self.batch(call, object, operation),
            ("GET", [object, id]) => self.read(call, object, id),
            ("PATCH", [object, id]) => self.update_one(call, object, id),
            ("DELETE", [object, id]) => self.archive(call, object, id),
            ("PUT", [from, id, "associations", "default", to, to_id]) => {
                self.associate(call, (from, id), (to, to_id), UNLABELLED)
            }
            ("PUT", [from, id, "associations", to, to_id]) => {
                let labels: Vec<Value> = serde_json::from_slice(&call.body)
                    .map_err(|error| ApiError::validation(format!("Invalid input JSON: {error}")))?;
                let label = labels.first().and_then(|label| label["associationTypeId"].as_u64());
                let label = label.and_then(|label| u32::try_from(label).ok());
                let label = label.ok_or_else(|| ApiError::validation("associationTypeId is missing"))?;
                self.associate(call, (from, id), (to, to_id), label)
            }
            (_, [_] | [_, _]) => Err(ApiError::new(405, "METHOD_NOT_ALLOWED", "Method Not Allowed")),
            _ => Err(ApiError::not_found()),
        }
    }

    fn create_one(&mut self, call: &ApiCall, object: &str) -> Result<FakeReply, ApiError> {
        let body = parse(&call.body)?;
        let change = self.create(call, object, &body)?;
        Ok(FakeReply::json(StatusCode::CREATED, &self.shown(object, &change)))
    }

    /// Creates the record of a body, with its associations.
    pub(crate) fn create(
        &mut self,
        call: &ApiCall,
        object: &str,
        body: &Map<String, Value>,
    ) -> Result<Change, ApiError> {
        let properties = properties::check(self.store.object(object)?, body)?;
        let associations = associations(body)?;
        let change = self.store.create(object, properties)?;
        let number = change.id.parse().unwrap_or(0);
        for to in associations {
            self.store.associate(object, number, to);
        }
        self.record_write(call, object, &change, WriteActor::Caller);
        Ok(change)
    }

    fn update_one(&mut self, call: &ApiCall, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        let id_property = uri::form_value(&call.query, "idProperty");
        let number = self.number(object, id_property.as_deref(), id)?;
        let change = self.update(call, object, number, &parse(&call.body)?)?;
        Ok(FakeReply::json(StatusCode::OK, &self.shown(object, &change)))
    }

    pub(crate) fn update(
        &mut self,
        call: &ApiCall,
        object: &str,
        number: u64,
        body: &Map<String, Value>,
    ) -> Result<Change, ApiError> {
        let properties = properties::check(self.store.object(object)?, body)?;
        let change = self.store.update(object, number, properties)?;
        self.record_write(call, object, &change, WriteActor::Caller);
        Ok(change)
    }

    fn archive(&mut self, call: &ApiCall, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        // Archiving a record that is not there succeeds as well.
        if let Some(number) = self.store.find(Address { object, id_property: None, id })?
            && let Some((record, change)) = self.store.archive(object, number)
        {
            let external_id = self.external_id(object, &record);
            self.log(call, object, &change, external_id, WriteActor::Caller);
        }
        Ok(FakeReply::empty(StatusCode::NO_CONTENT))
    }

    fn read(&mut self, call: &ApiCall, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        let id_property = uri::form_value(&call.query, "idProperty");
        let number = self.number(object, id_property.as_deref(), id)?;
        let record = self.store.get(object, number).ok_or_else(ApiError::not_found)?;
        let only = uri::form_value(&call.query, "properties");
        let only: Option<Vec<String>> = only.map(|names| names.split(',').map(str::to_owned).collect());
        Ok(FakeReply::json(StatusCode::OK, &record.rendered(only.as_deref())))
    }

    pub(crate) fn number(&self, object: &str, id_property: Option<&str>, id: &str) -> Result<u64, ApiError> {
        self.store.find(Address { object, id_property, id })?.ok_or_else(ApiError::not_found)
    }

    /// Searches by equality. New records are found after the index's lag only.
    fn search(&mut self, call: &ApiCall, object: &str) -> Result<FakeReply, ApiError> {
        self.store.object(object)?;
        let body = parse(&call.body)?;
        let groups = body.get("filterGroups").and_then(Value::as_array).cloned().unwrap_or_default();
        let holds = |record: &HubspotRecord, filter: &Value| {
            let property = filter["propertyName"].as_str().unwrap_or_default();
            let value = filter["value"].as_str().unwrap_or_default();
            record.properties.get(property).is_some_and(|found| *found == properties::stored(property, value))
        };
        let in_group = |record: &HubspotRecord, group: &Value| {
            group["filters"].as_array().into_iter().flatten().all(|filter| holds(record, filter))
        };
        let found: Vec<&HubspotRecord> = self
            .store
            .records(object)
            .filter(|record| record.indexed_from.elapsed() >= self.search_lag)
            .filter(|record| groups.is_empty() || groups.iter().any(|group| in_group(record, group)))
            .collect();
        let limit = body.get("limit").and_then(Value::as_u64).unwrap_or(SEARCH_LIMIT_DEFAULT).min(SEARCH_LIMIT_MAX);
        let page: Vec<Value> = found.iter().take(limit as usize).map(|record| record.rendered(None)).collect();
        Ok(FakeReply::json(StatusCode::OK, &json!({"total": found.len(), "results": page})))
    }

    fn associate(
        &mut self,
        call: &ApiCall,
        (from_object, from): (&str, &str),
        (to_object, to): (&str, &str),
        label: u32,
    ) -> Result<FakeReply, ApiError> {
        let number = self.number(from_object, None, from)?;
        self.number(to_object, None, to)?;
        self.store.associate(from_object, number, (to_object.to_owned(), to.to_owned(), label));
        let change = Change { id: from.to_owned(), action: WriteKind::Updated };
        self.record_write(call, from_object, &change, WriteActor::Caller);
        let spec = json!({"associationCategory": "HUBSPOT_DEFINED", "associationTypeId": label});
        let result = json!({"from": {"id": from}, "to": {"id": to}, "associationSpec": spec});
        let now = Timestamp::now().to_string();
        let body = json!({"status": "COMPLETE", "results": [result], "startedAt": now, "completedAt": now});
        Ok(FakeReply::json(StatusCode::OK, &body))
    }

    /// Simulates a concurrent writer that creates the record just before this call, with its unique property only.
    fn lose_race(&mut self, call: &ApiCall) -> ApiError {
        let conflict = || ApiError::new(409, "CONFLICT", "Write conflict");
        let [object] = call.segments.as_slice() else { return conflict() };
        let Ok(body) = parse(&call.body) else { return conflict() };
        let Ok(properties) = self.store.object(object).and_then(|schema| properties::check(schema, &body)) else {
            return conflict();
        };
        let unique = properties
            .into_iter()
            .filter(|(name, _)| self.store.object(object).is_ok_and(|schema| schema.is_unique(name)));
        let unique: Vec<(String, String)> = unique.take(1).collect();
        match self.store.create(object, unique) {
            Ok(change) => {
                self.record_write(call, object, &change, WriteActor::Rival);
                ApiError::exists(object, &change.id)
            }
            Err(error) => error,
        }
    }

    pub(crate) fn shown(&self, object: &str, change: &Change) -> Value {
        let number = change.id.parse().unwrap_or(0);
        self.store.get(object, number).map_or(Value::Null, |record| record.rendered(None))
    }

    /// The first unique property of a record that has a value.
    fn external_id(&self, object: &str, record: &HubspotRecord) -> Option<ExternalId> {
        let schema = self.store.object(object).ok()?;
        let found = schema.unique().find_map(|name| Some((name, record.properties.get(name)?)));
        found.map(|(name, value)| ExternalId { field: name.to_owned(), value: value.clone() })
    }

    fn record_write(&mut self, call: &ApiCall, object: &str, change: &Change, writer: WriteActor) {
        let number = change.id.parse().unwrap_or(0);
        let external_id = self.store.get(object, number).and_then(|record| self.external_id(object, record));
        self.log(call, object, change, external_id, writer);
    }

    fn log(
        &mut self,
        call: &ApiCall,
        object: &str,
        change: &Change,
        external_id: Option<ExternalId>,
        writer: WriteActor,
    ) {
        self.log.record(Write {
            number: 0,
            at: Timestamp::now(),
            request_id: call.request_id.clone(),
            object: object.to_owned(),
            record_id: change.id.clone(),
            external_id,
            action: change.action,
            writer,
        });
    }
}

/// Parses a body as a JSON object.
pub(crate) fn parse(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::validation(format!("Invalid input JSON: {error}")))
}

/// Associations of a create: the other record and the number of the type. The object type is not part of the request.
fn associations(body: &Map<String, Value>) -> Result<Vec<(String, String, u32)>, ApiError> {
    let refused = || ApiError::validation("Invalid input JSON: an association needs to.id and types");
    let items = body.get("associations").and_then(Value::as_array).cloned().unwrap_or_default();
    items
        .iter()
        .map(|item| {
            let to = item["to"]["id"].as_str().ok_or_else(refused)?;
            let label = item["types"][0]["associationTypeId"].as_u64().and_then(|label| u32::try_from(label).ok());
            Ok((String::new(), to.to_owned(), label.ok_or_else(refused)?))
        })
        .collect()
}
