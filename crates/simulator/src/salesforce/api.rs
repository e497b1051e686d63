//! Requests to the organisation: paths, credentials and tokens.

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::json;

use super::errors::ApiError;
use super::org::{ApiCall, Org};
use super::store::Record;
use crate::apply_fault::Refusal;
use crate::crm::{Crm, CrmLog};
use crate::reply::FakeReply;
use crate::uri;

const TOKEN_PATH: &str = "/services/oauth2/token";

impl Crm for Org {
    const NAME: &'static str = "salesforce";
    const EXAMPLE: (&'static str, &'static str) = ("Lead", "External_Lead_Id__c");

    type Call = ApiCall;
    type TokenCall = TokenCall;
    type Record = Record;

    fn is_token_path(path: &str) -> bool {
        path == TOKEN_PATH
    }

    fn token_call(parts: &Parts, body: &Bytes) -> TokenCall {
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
        TokenCall {
            form: String::from_utf8_lossy(body).into_owned(),
            basic: credential(&parts.headers, "Basic"),
            instance_url: format!("http://{host}"),
        }
    }

    fn data_call(parts: &Parts, body: Bytes, number: u64) -> Result<ApiCall, Box<FakeReply>> {
        api_call(parts, body, number).map_err(|error| Box::new(error.reply()))
    }

    fn is_read(call: &ApiCall) -> bool {
        call.method == Method::GET || call.method == Method::HEAD
    }

    fn written_ids(call: &ApiCall) -> Vec<String> {
        call.external_ids()
    }

    fn execute(&mut self, call: &ApiCall) -> FakeReply {
        self.respond(call)
    }

    fn refuse(&mut self, call: &ApiCall, refusal: Refusal) -> FakeReply {
        self.respond_refused(call, refusal)
    }

    fn absent(&self, call: &ApiCall) -> FakeReply {
        self.respond_absent(call)
    }

    fn issue_token(&mut self, call: &TokenCall) -> Result<FakeReply, Box<FakeReply>> {
        let reply = self.tokens.issue_for(&call.form, call.basic.as_deref(), &call.instance_url);
        reply.map_err(|refused| Box::new(refused.reply()))
    }

    fn refuse_token(refusal: Refusal) -> FakeReply {
        let (status, error) = match refusal {
            Refusal::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            Refusal::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "unknown_error"),
            Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
            _ => (StatusCode::BAD_REQUEST, "invalid_grant"),
        };
        FakeReply::json(status, &json!({"error": error, "error_description": "authentication failure"}))
    }

    fn expire_tokens(&mut self) {
        self.tokens.expire_all();
    }

    fn log(&self) -> &CrmLog {
        &self.log
    }

    fn log_mut(&mut self) -> &mut CrmLog {
        &mut self.log
    }

    fn records(&self, object: &str, after: &str, limit: usize) -> Vec<Record> {
        self.store.records(object).filter(|record| record.id.as_str() > after).take(limit).cloned().collect()
    }

    fn record_count(&self, object: &str) -> u64 {
        self.store.count(object)
    }

    fn delete_records(&mut self) {
        self.store.clear();
    }

    fn daily_calls(&self) -> (u64, u64) {
        (self.api_usage, self.api_limit)
    }

    fn new_day(&mut self) {
        self.api_usage = 0;
    }
}

#[derive(Debug)]
pub(crate) struct TokenCall {
    form: String,
    basic: Option<String>,
    instance_url: String,
}

/// Parses the path of a data call.
fn api_call(parts: &Parts, body: Bytes, number: u64) -> Result<ApiCall, ApiError> {
    let path = parts.uri.path();
    let rest = path.strip_prefix("/services/data").ok_or_else(ApiError::not_found)?;
    let mut segments = rest.split('/').filter(|segment| !segment.is_empty()).map(uri::decode);
    let version = segments.next().map(|segment| version(&segment).ok_or_else(ApiError::not_found)).transpose()?;
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !body.is_empty() && content_type.is_some_and(|value| !value.starts_with("application/json")) {
        let message = "The request content type is not supported: send application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    Ok(ApiCall {
        method: parts.method.clone(),
        version,
        segments: segments.collect(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        token: credential(&parts.headers, "Bearer").or_else(|| credential(&parts.headers, "OAuth")),
        request_id: format!("sim-{number:08}"),
        body,
    })
}

fn version(segment: &str) -> Option<u32> {
    segment.strip_prefix('v')?.strip_suffix(".0")?.parse().ok()
}

fn credential(headers: &HeaderMap, scheme: &str) -> Option<String> {
    let (found, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| value.trim().to_owned())
}
