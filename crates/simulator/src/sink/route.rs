//! Recorded replies to requests.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName};
use serde_json::Value;

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
    /// The reply has a list with as many results as the request has items.
    pub batch: Option<BatchRoute>,
}

/// Where a request has its items and a reply its results, as names of members from the outside in; an empty one is the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchRoute {
    pub items: Vec<String>,
    pub results: Vec<String>,
}

impl BatchRoute {
    /// The reply with its first result once for each item of the request.
    fn repeat(&self, reply: &str, request: &[u8]) -> Option<String> {
        let request: Value = serde_json::from_slice(request).ok()?;
        let items = self.items.iter().try_fold(&request, |value, name| value.get(name))?.as_array()?.len();
        let mut reply: Value = serde_json::from_str(reply).ok()?;
        let results = self.results.iter().try_fold(&mut reply, |value, name| value.get_mut(name))?.as_array_mut()?;
        let first = results.first()?.clone();
        *results = vec![first; items];
        Some(reply.to_string())
    }
}

#[derive(Debug, Clone)]
pub struct RecordedReply {
    /// An invalid status is answered as 500.
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl SinkRoute {
    /// The reply to a request with this body.
    pub(super) fn reply_to(&self, request: &[u8]) -> FakeReply {
        let body = self.batch.as_ref().and_then(|batch| batch.repeat(&self.reply.body, request));
        match body {
            Some(body) => RecordedReply { body, ..self.reply.clone() }.reply(),
            None => self.reply.reply(),
        }
    }

    pub(super) fn matches(&self, method: &str, path: &str) -> bool {
        self.method == method && matches(&self.path, path)
    }
}

/// Whether the text has the form of the pattern.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
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
    fn reply_has_one_result_for_each_item() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let batch = BatchRoute { items: names(&["data"]), results: names(&["out", "list"]) };
        let reply = batch.repeat(r#"{"out":{"list":[{"ok":1},{"no":2}]}}"#, br#"{"data":[1,2,3]}"#);
        assert_eq!(reply.as_deref(), Some(r#"{"out":{"list":[{"ok":1},{"ok":1},{"ok":1}]}}"#));
        let whole = BatchRoute::default();
        assert_eq!(whole.repeat(r#"[{"ok":1}]"#, b"[7]").as_deref(), Some(r#"[{"ok":1}]"#));
        assert_eq!(whole.repeat("{}", b"[7]"), None);
    }

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
