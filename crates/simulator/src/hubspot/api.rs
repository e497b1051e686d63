//! Requests to the account: paths, credentials and tokens.

use bytes::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::json;

use super::errors::ApiError;
use super::portal::{ApiCall, Portal};
use super::store::HubspotRecord;
use crate::apply_fault::Refusal;
use crate::crm::{Crm, CrmLog};
use crate::reply::FakeReply;
use crate::uri;

const TOKEN_PATHS: [&str; 2] = ["/oauth/v1/token", "/oauth/v3/token"];

impl Crm for Portal {
    const NAME: &'static str = "hubspot";
    const EXAMPLE: (&'static str, &'static str) = ("contacts", "email");

    type Call = ApiCall;
    /// Its form.
    type TokenCall = String;
    type Record = HubspotRecord;

    fn is_token_path(path: &str) -> bool {
        TOKEN_PATHS.contains(&path)
    }

    fn token_call(_: &Parts, body: &Bytes) -> String {
        String::from_utf8_lossy(body).into_owned()
    }

    fn data_call(parts: &Parts, body: Bytes, number: u64) -> Result<ApiCall, Box<FakeReply>> {
        Ok(api_call(parts, body, number))
    }

    fn is_read(call: &ApiCall) -> bool {
        let operation = call.segments.last().map(String::as_str);
        call.method == Method::GET || matches!(operation, Some("search" | "read"))
    }

    fn written_ids(call: &ApiCall) -> Vec<String> {
        call.ids()
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

    fn issue_token(&mut self, form: &String) -> Result<FakeReply, Box<FakeReply>> {
        self.tokens.issue_for(form).map_err(|refused| Box::new(refused.reply()))
    }

    fn refuse_token(refusal: Refusal) -> FakeReply {
        match refusal {
            Refusal::TooManyRequests => ApiError::rate_limit("SECONDLY").reply(),
            Refusal::ServerError => ApiError::new(500, "INTERNAL_ERROR", "internal error").reply(),
            Refusal::ServerUnavailable => ApiError::new(503, "SERVICE_UNAVAILABLE", "unavailable").reply(),
            _ => {
                FakeReply::json(StatusCode::BAD_REQUEST, &json!({"status": "BAD_REFRESH_TOKEN", "message": "refused"}))
            }
        }
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

    fn records(&self, object: &str, after: &str, limit: usize) -> Vec<HubspotRecord> {
        let after = after.parse().unwrap_or(0);
        let is_after = |record: &&HubspotRecord| record.id.parse::<u64>().is_ok_and(|number| number > after);
        self.store.records(object).filter(is_after).take(limit).cloned().collect()
    }

    fn record_count(&self, object: &str) -> u64 {
        self.store.count(object)
    }

    fn delete_records(&mut self) {
        self.store.clear();
    }

    fn daily_calls(&self) -> (u64, u64) {
        (self.limits.daily_used, self.limits.daily_max)
    }

    fn new_day(&mut self) {
        self.limits.new_day();
    }
}

/// Parses the path of a data call, in the classic and in the dated form.
fn api_call(parts: &Parts, body: Bytes, number: u64) -> ApiCall {
    let mut segments: Vec<String> =
        parts.uri.path().split('/').filter(|segment| !segment.is_empty()).map(uri::decode).collect();
    let is_api = |segments: &[String]| match segments {
        [crm, version, objects, ..] if crm == "crm" && objects == "objects" => version == "v3" || version == "v4",
        [crm, objects, version, ..] if crm == "crm" && objects == "objects" => version.starts_with("20"),
        _ => false,
    };
    segments = if is_api(&segments) { segments.split_off(3) } else { Vec::new() };
    let authorization = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    ApiCall {
        method: parts.method.clone(),
        segments,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        token: authorization.and_then(|text| text.strip_prefix("Bearer ")).map(|token| token.trim().to_owned()),
        request_id: format!("sim-{number:08}"),
        body,
    }
}
