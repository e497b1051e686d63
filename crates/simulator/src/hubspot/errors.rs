//! Error responses in HubSpot's format.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::reply::FakeReply;

pub(crate) const CORRELATION_ID: &str = "00000000-0000-4000-8000-000000000000";

/// Status, category and message of an error, and further members of its body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    category: &'static str,
    message: String,
    more: Vec<(&'static str, Value)>,
}

impl ApiError {
    pub(crate) fn new(status: u16, category: &'static str, message: impl Into<String>) -> ApiError {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ApiError { status, category, message: message.into(), more: Vec::new() }
    }

    pub(crate) fn validation(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "VALIDATION_ERROR", message)
    }

    pub(crate) fn not_found() -> ApiError {
        ApiError::new(404, "OBJECT_NOT_FOUND", "resource not found")
    }

    pub(crate) fn unauthorized() -> ApiError {
        let message = "Authentication credentials not found. This API supports OAuth 2.0 authentication.";
        ApiError::new(401, "INVALID_AUTHENTICATION", message)
    }

    pub(crate) fn rate_limit(policy: &'static str) -> ApiError {
        let message = format!("You have reached your {} limit.", policy.to_lowercase());
        ApiError::new(429, "RATE_LIMITS", message).with("policyName", json!(policy))
    }

    pub(crate) fn exists(object: &str, id: &str) -> ApiError {
        let kind = if object == "contacts" { "Contact" } else { "Object" };
        ApiError::new(409, "CONFLICT", format!("{kind} already exists. Existing ID: {id}"))
    }

    pub(crate) fn conflicting_value(property: &str, value: &str) -> ApiError {
        let detail = json!([{
            "isValid": false,
            "message": format!("{value} already has that value. "),
            "error": "CONFLICTING_UNIQUE_VALUE",
            "name": property,
        }]);
        ApiError::validation(format!("Property values were not valid: {detail}"))
    }

    pub(crate) fn with(mut self, name: &'static str, value: Value) -> ApiError {
        self.more.push((name, value));
        self
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "status": "error",
            "message": self.message,
            "correlationId": CORRELATION_ID,
            "category": self.category,
        });
        for (name, value) in &self.more {
            body[*name] = value.clone();
        }
        body
    }

    pub(crate) fn reply(&self) -> FakeReply {
        FakeReply::json(self.status, &self.body())
    }
}
