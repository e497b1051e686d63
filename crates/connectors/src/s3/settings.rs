//! Parameters of an `s3.put` step.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use sluice_domain::outcome::Failure;

use crate::parameter::{problem, required, text, value};

/// Largest object, in bytes. Larger ones need a multipart upload.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) body: Bytes,
    pub(crate) content_type: Cow<'a, str>,
    /// Whether an object of this key is replaced.
    pub(crate) overwrite: bool,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let key = required(with, "key")?;
        if key.len() > KEY_BYTES_MAX || key.starts_with('/') || key.split('/').any(|part| matches!(part, "." | "..")) {
            let what = "must be at most 1,024 bytes, without a leading slash and without `.` or `..` between slashes";
            return Err(problem("key", what));
        }
        let (body, usual) = match (with.get("json"), text(with, "text")?) {
            (Some(_), Some(_)) => return Err(problem("text", "and `with.json` are both set; an object has one body")),
            (Some(json), None) => (Bytes::from(json.to_string()), "application/json"),
            (None, Some(text)) => (Bytes::copy_from_slice(text.as_bytes()), "text/plain; charset=utf-8"),
            (None, None) => return Err(problem("json", "and `with.text` are missing; set one of them")),
        };
        if body.len() > BODY_BYTES_MAX {
            return Err(problem("json", "makes an object of more than 16 MiB"));
        }
        let overwrite = match value(with, "overwrite") {
            None => false,
            Some(Value::Bool(overwrite)) => *overwrite,
            Some(_) => return Err(problem("overwrite", "must be true or false")),
        };
        let content_type = text(with, "content_type")?.unwrap_or(Cow::Borrowed(usual));
        Ok(Settings { key, body, content_type, overwrite })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bodies_and_keys_are_checked() {
        let with = json!({"key": "leads/7.json", "json": {"b": 1, "a": 2}});
        let settings = Settings::read(&with).unwrap();
        assert_eq!((&settings.body[..], &*settings.content_type), (&br#"{"b":1,"a":2}"#[..], "application/json"));
        for (with, expected) in [
            (json!({"json": 1}), "`with.key` is missing"),
            (json!({"key": "/a", "json": 1}), "`with.key` must be"),
            (json!({"key": "a/../b", "json": 1}), "`with.key` must be"),
            (json!({"key": "a"}), "`with.json` and `with.text` are missing"),
            (json!({"key": "a", "json": 1, "text": "x"}), "`with.text` and `with.json` are both set"),
            (json!({"key": "a", "json": 1, "overwrite": "yes"}), "`with.overwrite` must be"),
        ] {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
    }
}
