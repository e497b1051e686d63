//! One simulated organisation: records, logs and the data API.

use std::ops::RangeInclusive;

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::check;
use super::errors::ApiError;
use super::store::{Change, FakeStore, Record};
use super::tokens::Tokens;
use crate::apply_fault::Refusal;
use crate::crm::{CrmLog, ExternalId, Write, WriteActor, WriteKind};
use crate::reply::FakeReply;
use crate::uri;

/// From this version on an update by upsert responds 200 with a body; before, 204 without.
const UPSERT_BODY_SINCE: u32 = 46;
/// First version with collections of records by external id.
const COLLECTIONS_SINCE: u32 = 46;

const LIMIT_INFO: HeaderName = HeaderName::from_static("sforce-limit-info");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Parsed call to the data API.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub(crate) method: Method,
    /// `60` of `/services/data/v60.0/…`; none for the list of versions.
    pub(crate) version: Option<u32>,
    /// Decoded path after the version.
    pub(crate) segments: Vec<String>,
    pub(crate) query: String,
    pub(crate) token: Option<String>,
    pub(crate) request_id: String,
    pub(crate) body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Org {
    pub(crate) store: FakeStore,
    pub(crate) log: CrmLog,
    pub(crate) tokens: Tokens,
    pub(crate) api_usage: u64,
    pub(crate) api_limit: u64,
    pub(crate) versions: RangeInclusive<u32>,
}

impl Org {
    /// Executes a call.
    pub(crate) fn respond(&mut self, call: &ApiCall) -> FakeReply {
        let reply = self.route(call).unwrap_or_else(|error| error.reply());
        self.with_headers(call, reply)
    }

    /// Refuses a call without executing it.
    pub(crate) fn respond_refused(&mut self, call: &ApiCall, refusal: Refusal) -> FakeReply {
        let error = match refusal {
            Refusal::TooManyRequests => {
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", "Too many requests")
            }
            Refusal::RequestLimitExceeded => ApiError::request_limit(),
            Refusal::ServerError => {
                let message = "An unexpected error occurred. Please include this ErrorId if you contact support";
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN_EXCEPTION", message)
            }
            Refusal::ServerUnavailable => {
                let message = "We are temporarily unable to process your request. Try again later.";
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "SERVER_UNAVAILABLE", message)
            }
            Refusal::LockRow => ApiError::lock_row(),
            Refusal::DuplicateValue => self.lose_race(call),
            Refusal::InvalidSession => ApiError::invalid_session(),
        };
        // A collection reports errors of its records inside a 200.
        let is_record_error = matches!(refusal, Refusal::LockRow | Refusal::DuplicateValue);
        let reply = match call.collection_length() {
            Some(length) if is_record_error => FakeReply::json(StatusCode::OK, &vec![error.entry(); length]),
            _ => error.reply(),
        };
        self.with_headers(call, reply)
    }

    /// Response of a read that finds nothing.
    pub(crate) fn respond_absent(&self, call: &ApiCall) -> FakeReply {
        let reply = match call.segments.first().map(String::as_str) {
            Some("query") => FakeReply::json(StatusCode::OK, &json!({"totalSize": 0, "done": true, "records": []})),
            _ => ApiError::not_found().reply(),
        };
        self.with_headers(call, reply)
    }

    fn with_headers(&self, call: &ApiCall, reply: FakeReply) -> FakeReply {
        let usage = format!("api-usage={}/{}", self.api_usage, self.api_limit);
        reply.with(LIMIT_INFO, &usage).with(REQUEST_ID, &call.request_id)
    }

    fn route(&mut self, call: &ApiCall) -> Result<FakeReply, ApiError> {
        let Some(version) = call.version else { return Ok(self.list_versions()) };
        if !call.token.as_deref().is_some_and(|token| self.tokens.is_valid(token)) {
            return Err(ApiError::invalid_session());
        }
        if self.api_usage >= self.api_limit {
            return Err(ApiError::request_limit());
        }
        self.api_usage += 1;
        if !self.versions.contains(&version) {
            return Err(ApiError::not_found());
        }
        let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
        let (get, patch, post, delete) = (
            call.method == Method::GET,
            call.method == Method::PATCH,
            call.method == Method::POST,
            call.method == Method::DELETE,
        );
        match segments.as_slice() {
            [] if get => Ok(resources(version)),
            ["limits"] if get => Ok(self.limits()),
            ["query"] if get => self.query(call, version),
            ["query", locator] if get => self.query_more(locator, version),
            ["sobjects", object] if post => self.create(call, object),
            ["sobjects", object, "describe"] if get => self.describe(object),
            ["sobjects", object, id] if get => self.read(call, version, object, id),
            ["sobjects", object, id] if patch => self.update(call, object, id),
            ["sobjects", object, id] if delete => self.delete(call, object, id),
            ["sobjects", object, field, value] if patch => self.upsert(call, version, [object, field, value]),
            ["sobjects", object, field, value] if get => match self.by_external_id(version, [object, field, value])? {
                Lookup::One(id) => self.read(call, version, object, &id),
                Lookup::Several(reply) => Ok(reply),
            },
            ["sobjects", object, field, value] if delete => {
                match self.by_external_id(version, [object, field, value])? {
                    Lookup::One(id) => self.delete(call, object, &id),
                    Lookup::Several(reply) => Ok(reply),
                }
            }
            ["composite", "sobjects", object, field] if patch && version >= COLLECTIONS_SINCE => {
                self.upsert_collection(call, object, field)
            }
            ["limits"] | ["query", ..] => Err(ApiError::method_not_allowed(call.method.as_str(), "GET")),
            ["sobjects", _] => Err(ApiError::method_not_allowed(call.method.as_str(), "POST")),
            ["sobjects", _, _] | ["sobjects", _, _, _] => {
                Err(ApiError::method_not_allowed(call.method.as_str(), "GET,PATCH,DELETE"))
            }
            _ => Err(ApiError::not_found()),
        }
    }

    fn create(&mut self, call: &ApiCall, object: &str) -> Result<FakeReply, ApiError> {
        let body = check::parse(&call.body)?;
        let fields = check::fields(&self.store, object, body)?;
        let change = self.store.create(object, fields)?;
        let reply = json!({"id": change.id, "success": true, "errors": []});
        self.record_write(call, &change, None, WriteActor::Caller);
        Ok(FakeReply::json(StatusCode::CREATED, &reply))
    }

    fn update(&mut self, call: &ApiCall, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        let (object, _) = self.store.object(object)?;
        let object = object.to_owned();
        let fields = check::fields(&self.store, &object, check::parse(&call.body)?)?;
        let change = self.store.update(&object, id, fields)?;
        self.record_write(call, &change, None, WriteActor::Caller);
        Ok(FakeReply::empty(StatusCode::NO_CONTENT))
    }

    fn delete(&mut self, call: &ApiCall, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        let (object, _) = self.store.object(object)?;
        let object = object.to_owned();
        let change = self.store.delete(&object, id)?;
        self.record_write(call, &change, None, WriteActor::Caller);
        Ok(FakeReply::empty(StatusCode::NO_CONTENT))
    }

    fn upsert(&mut self, call: &ApiCall, version: u32, path: [&str; 3]) -> Result<FakeReply, ApiError> {
        let key = self.key(path)?;
        let body = check::parse(&call.body)?;
        if let Some(field) = body.keys().find(|name| name.eq_ignore_ascii_case(&key.field)) {
            let message = format!("The {field} field should not be specified in the sobject data.");
            return Err(ApiError::bad_request("INVALID_FIELD", message).on([field]));
        }
        let update_only = uri::form_value(&call.query, "updateOnly").is_some_and(|value| value == "true");
        let found = self.store.find(&key.object, &key.field, &key.value);
        if found.len() > 1 {
            return Ok(multiple_choices(version, &key.object, found));
        }
        if found.is_empty() && update_only {
            return Err(ApiError::not_found());
        }
        let change = self.put(&key, body)?;
        let created = change.action == WriteKind::Created;
        let id = change.id.clone();
        self.record_write(call, &change, Some(&key), WriteActor::Caller);
        if !created && version < UPSERT_BODY_SINCE {
            return Ok(FakeReply::empty(StatusCode::NO_CONTENT));
        }
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(FakeReply::json(status, &json!({"id": id, "success": true, "errors": [], "created": created})))
    }

    /// Creates the record of a key or updates the existing one.
    pub(crate) fn put(&mut self, key: &FakeKey, mut body: Map<String, Value>) -> Result<Change, ApiError> {
        match self.store.find(&key.object, &key.field, &key.value) {
            [] => {
                body.insert(key.field.clone(), Value::String(key.value.clone()));
                let fields = check::fields(&self.store, &key.object, body)?;
                self.store.create(&key.object, fields)
            }
            [id] => {
                let id = id.clone();
                let fields = check::fields(&self.store, &key.object, body)?;
                self.store.update(&key.object, &id, fields)
            }
            _ => {
                let message = format!("{}: more than one record found for external id {}", key.field, key.value);
                Err(ApiError::bad_request("DUPLICATE_EXTERNAL_ID", message))
            }
        }
    }

    /// Object and external id field of a path, with canonical names.
    pub(crate) fn key(&self, [object, field, value]: [&str; 3]) -> Result<FakeKey, ApiError> {
        let (object, schema) = self.store.object(object)?;
        let known = schema.field(field).filter(|(_, rule)| rule.external_id);
        let (field, _) = known.ok_or_else(|| ApiError::no_external_id_field(field))?;
        Ok(FakeKey { object: object.to_owned(), field: field.to_owned(), value: value.trim().to_owned() })
    }

    fn by_external_id(&self, version: u32, path: [&str; 3]) -> Result<Lookup, ApiError> {
        let key = self.key(path)?;
        match self.store.find(&key.object, &key.field, &key.value) {
            [] => Err(ApiError::not_found()),
            [id] => Ok(Lookup::One(id.clone())),
            ids => Ok(Lookup::Several(multiple_choices(version, &key.object, ids))),
        }
    }

    /// Simulates a concurrent writer that creates the record just before this upsert, with the required fields only.
    fn lose_race(&mut self, call: &ApiCall) -> ApiError {
        let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
        let &["sobjects", object, field, value] = segments.as_slice() else {
            return ApiError::bad_request(
                "DUPLICATE_VALUE",
                "duplicate value found: <unknown> duplicates value on record",
            );
        };
        let Ok(key) = self.key([object, field, value]) else { return ApiError::no_external_id_field(field) };
        if let Some(id) = self.store.find(&key.object, &key.field, &key.value).first() {
            return ApiError::duplicate_value(&key.field, id);
        }
        match check::parse(&call.body).and_then(|body| self.put(&key, self.required_only(&key.object, body))) {
            Ok(change) => {
                self.record_write(call, &change, Some(&key), WriteActor::Rival);
                ApiError::duplicate_value(&key.field, &change.id)
            }
            Err(error) => error,
        }
    }

    fn required_only(&self, object: &str, mut body: Map<String, Value>) -> Map<String, Value> {
        let Ok((_, schema)) = self.store.object(object) else { return body };
        body.retain(|name, _| schema.field(name).is_some_and(|(_, rule)| rule.required));
        body
    }

    /// Adds a change to the write log. Only for changes that are not undone later.
    pub(crate) fn record_write(&mut self, call: &ApiCall, change: &Change, key: Option<&FakeKey>, writer: WriteActor) {
        let external_id = match key {
            Some(key) => Some(ExternalId { field: key.field.clone(), value: key.value.clone() }),
            None => self.store.external_id(change).map(|(field, value)| ExternalId { field, value }),
        };
        self.log.record(Write {
            number: 0,
            at: Timestamp::now(),
            request_id: call.request_id.clone(),
            object: change.object.clone(),
            record_id: change.id.clone(),
            external_id,
            action: change.action,
            writer,
        });
    }
}

/// Address of a record by external id.
#[derive(Debug)]
pub(crate) struct FakeKey {
    pub(crate) object: String,
    pub(crate) field: String,
    pub(crate) value: String,
}

#[derive(Debug)]
enum Lookup {
    One(String),
    Several(FakeReply),
}

fn multiple_choices(version: u32, object: &str, ids: &[String]) -> FakeReply {
    let urls: Vec<String> = ids.iter().map(|id| record_url(version, object, id)).collect();
    FakeReply::json(StatusCode::MULTIPLE_CHOICES, &urls)
}

pub(crate) fn record_url(version: u32, object: &str, id: &str) -> String {
    format!("/services/data/v{version}.0/sobjects/{object}/{id}")
}

fn resources(version: u32) -> FakeReply {
    let path = |name: &str| format!("/services/data/v{version}.0/{name}");
    let names = ["sobjects", "query", "limits", "composite"];
    let resources: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), path(name).into())).collect();
    FakeReply::json(StatusCode::OK, &resources)
}

/// Record as returned by a read: every field of the object, null if it has no value.
pub(crate) fn rendered(
    store: &FakeStore,
    version: u32,
    object: &str,
    record: &Record,
    only: Option<&[String]>,
) -> Value {
    let date = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%3f+0000").to_string();
    let mut all = Map::new();
    all.insert("Id".to_owned(), record.id.clone().into());
    for name in store.object(object).into_iter().flat_map(|(_, schema)| schema.fields.keys()) {
        all.insert(name.clone(), record.fields.get(name).cloned().unwrap_or(Value::Null));
    }
    all.insert("IsDeleted".to_owned(), false.into());
    all.insert("CreatedDate".to_owned(), date(record.created_at).into());
    all.insert("LastModifiedDate".to_owned(), date(record.modified_at).into());
    all.insert("SystemModstamp".to_owned(), date(record.modified_at).into());
    let mut rendered = Map::new();
    rendered.insert("attributes".to_owned(), json!({"type": object, "url": record_url(version, object, &record.id)}));
    let selected = all.into_iter().filter(|(name, _)| only.is_none_or(|only| only.contains(name)));
    rendered.extend(selected);
    Value::Object(rendered)
}
