//! Recorded replies to requests.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName};

use crate::reply::FakeReply;

/// Requests with one method and form of path, and the reply to them.
#[derive(Debug, Clone)]
pub struct SinkRoute {
    pub method: String,
    /// `*` stands for any text.
    pub path: String,
    pub reply: RecordedReply,
    /// Reply in place of the other one before any write was applied: of a read that looks for an effect.
    pub absent: Option<RecordedReply>,
}

#[derive(Debug, Clone)]
pub struct RecordedReply {
    /// An invalid status is answered as 500.
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl SinkRoute {
    pub(super) fn matches(&self, method: &str, path: &str) -> bool {
        self.method == method && matches(&self.path, path)
    }
}

/// Whether the text has the form of the pattern.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches(rest, &text[at..]))
        }),
    }
}

impl RecordedReply {
    pub(super) fn reply(&self) -> FakeReply {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut reply = FakeReply { body: Bytes::from(self.body.clone()), ..FakeReply::empty(status) };
        if self.body.starts_with(['{', '[']) {
            reply = reply.with(CONTENT_TYPE, "application/json");
        }
        for (name, value) in &self.headers {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                reply = reply.with(name, value);
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_text() {
        for (pattern, path, expected) in [
            ("/v1/track", "/v1/track", true),
            ("/v1/track", "/v1/track/x", false),
            ("*/Accounts/*/Messages.json", "/2010/Accounts/AC1/Messages.json", true),
            ("/lists/*/members/*", "/lists/a/members/b", true),
            ("/lists/*/members/*", "/lists/a", false),
            ("*", "/anything", true),
            ("/é*", "/éé", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
