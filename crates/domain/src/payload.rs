//! From the bytes of a body to the events in it. Strict on purpose: what two readers could understand differently is refused.

mod form;
mod json;
mod multipart;
mod split;

pub use form::parse as parse_form;
pub use form::write as write_form;
pub use json::{DEPTH_MAX, parse as parse_json};
pub use multipart::{pairs as multipart_pairs, parse as parse_multipart};
pub use split::{EVENTS_MAX, split};

/// Why a body could not be read. Closed: each variant has one stable code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadProblem {
    /// There is none.
    #[error("the body is empty; a JSON object is expected")]
    Empty,
    /// Not text.
    #[error("the body is not UTF-8: the byte at offset {offset} belongs to no character")]
    Utf8 {
        /// Where the first wrong byte is, from 0.
        offset: usize,
    },
    /// Not JSON.
    #[error("the body is not JSON: {0}")]
    Json(String),
    /// A single value.
    #[error("the body is a single JSON value; a JSON object is expected")]
    NotAnObject,
    /// Objects within lists within objects.
    #[error("the body is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// One name, two values.
    #[error(
        "an object has the name \"{0}\" twice, so it says two things; write `duplicate_keys: last` to take the last one"
    )]
    DuplicateKey(String),
    /// A whole number that would be rounded.
    #[error("the whole number {0} does not fit into 64 bits and would be rounded; send it as text")]
    NumberTooLarge(String),
    /// Not a form.
    #[error("the body is not a form: {0}")]
    Form(String),
    /// A file in a form.
    #[error("the field `{0}` is a file, and files are not taken; send the form without it, or a link to it")]
    File(String),
    /// There is no list of events where one should be.
    #[error("the body has no list of events at {0}")]
    NoEvents(String),
    /// More than one commit should hold.
    #[error("the body holds more than {EVENTS_MAX} events; send fewer at once")]
    TooManyEvents,
}

impl PayloadProblem {
    /// The stable code: part of the API, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            PayloadProblem::Empty => "body-empty",
            PayloadProblem::Utf8 { .. } => "utf8-invalid",
            PayloadProblem::Json(_) => "json-invalid",
            PayloadProblem::NotAnObject => "json-not-an-object",
            PayloadProblem::TooDeep => "json-too-deep",
            PayloadProblem::DuplicateKey(_) => "json-duplicate-key",
            PayloadProblem::NumberTooLarge(_) => "number-too-large",
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
