//! Error responses in Salesforce's formats.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::reply::FakeReply;

/// Status, error code and message of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) fields: Vec<String>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), fields: Vec::new() }
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn on(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> ApiError {
        self.fields = fields.into_iter().map(Into::into).collect();
        self
    }

    pub(crate) fn not_found() -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "NOT_FOUND", "The requested resource does not exist")
    }

    pub(crate) fn no_external_id_field(field: &str) -> ApiError {
        let message = format!("Provided external ID field does not exist or is not accessible: {field}");
        ApiError::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    pub(crate) fn deleted() -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "ENTITY_IS_DELETED", "entity is deleted")
    }

    pub(crate) fn invalid_session() -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "INVALID_SESSION_ID", "Session expired or invalid")
    }

    pub(crate) fn request_limit() -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")
    }

    pub(crate) fn method_not_allowed(method: &str, allowed: &str) -> ApiError {
        let message = format!("HTTP Method '{method}' not allowed. Allowed are {allowed}");
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message)
    }

    pub(crate) fn duplicate_value(field: &str, record_id: &str) -> ApiError {
        let message = format!("duplicate value found: {field} duplicates value on record with id: {record_id}");
        ApiError::bad_request("DUPLICATE_VALUE", message).on([field])
    }

    pub(crate) fn lock_row() -> ApiError {
        ApiError::bad_request("UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access to this record or 1 records")
    }

    pub(crate) fn no_such_column(field: &str, object: &str) -> ApiError {
        ApiError::bad_request("INVALID_FIELD", format!("No such column '{field}' on sobject of type {object}"))
    }

    /// Array with the error, the response to a single call.
    pub(crate) fn reply(&self) -> FakeReply {
        let mut error = json!({"message": self.message, "errorCode": self.code});
        if !self.fields.is_empty() {
            error["fields"] = json!(self.fields);
        }
        FakeReply::json(self.status, &json!([error]))
    }

    /// Result of one record in a collection, where the code is called `statusCode`.
    pub(crate) fn entry(&self) -> Value {
        json!({
            "success": false,
            "errors": [{"statusCode": self.code, "message": self.message, "fields": self.fields}],
        })
    }
}
