//! Where an error answer of a declared connector has its code and its message. What they mean is decided by
//! [`crate::failure_rules`].

use crate::template::Template;

/// Code and message of an error answer; over `response`.
#[derive(Debug, Default)]
pub struct ErrorFields {
    pub code: Option<Template>,
    pub message: Option<Template>,
}
