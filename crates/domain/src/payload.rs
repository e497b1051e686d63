//! Parses request bodies into payloads. Strict: input that two parsers could read differently is rejected.

mod form;
mod json;
mod multipart;
mod split;

pub use form::parse as parse_form;
pub use form::write as write_form;
pub use json::{DEPTH_MAX, parse as parse_json};
pub use multipart::{pairs as multipart_pairs, parse as parse_multipart};
pub use split::{EVENTS_MAX, split};

/// Why a body was rejected. Closed: each variant has one stable code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadProblem {
    #[error("the body is empty; a JSON object is expected")]
    Empty,
    #[error("the body is not UTF-8: invalid byte at offset {offset}")]
    Utf8 {
        /// Of the first invalid byte, from 0.
        offset: usize,
    },
    #[error("the body is not JSON: {0}")]
    Json(String),
    #[error("the body is a single JSON value; a JSON object is expected")]
    NotAnObject,
    #[error("the body is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("an object has the key \"{0}\" twice; set `duplicate_keys: last` to use the last one")]
    DuplicateKey(String),
    #[error("the integer {0} exceeds 64 bits and would be rounded; send it as text")]
    NumberTooLarge(String),
    #[error("the number {0} has more digits than can be kept and would be rounded; send it as text")]
    NumberTooPrecise(String),
    #[error("the body is not a form: {0}")]
    Form(String),
    #[error("field `{0}` is a file, and files are not accepted; send the form without it, or send a link")]
    File(String),
    #[error("the body has no list of events at {0}")]
    NoEvents(String),
    /// All events of a request are written in one commit.
    #[error("the body holds more than {EVENTS_MAX} events; send fewer at once")]
    TooManyEvents,
}

impl PayloadProblem {
    /// Stable code: part of the API, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            PayloadProblem::Empty => "body-empty",
            PayloadProblem::Utf8 { .. } => "utf8-invalid",
            PayloadProblem::Json(_) => "json-invalid",
            PayloadProblem::NotAnObject => "json-not-an-object",
            PayloadProblem::TooDeep => "json-too-deep",
            PayloadProblem::DuplicateKey(_) => "json-duplicate-key",
            PayloadProblem::NumberTooLarge(_) => "number-too-large",
            PayloadProblem::NumberTooPrecise(_) => "number-too-precise",
            PayloadProblem::Form(_) => "form-invalid",
            PayloadProblem::File(_) => "multipart-file",
            PayloadProblem::NoEvents(_) => "events-missing",
            PayloadProblem::TooManyEvents => "too-many-events",
        }
    }
}

fn text(body: &[u8]) -> Result<&str, PayloadProblem> {
    std::str::from_utf8(body).map_err(|error| PayloadProblem::Utf8 { offset: error.valid_up_to() })
}
