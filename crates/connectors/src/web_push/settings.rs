//! Parameters of a `webpush.send` step.

use std::borrow::Cow;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};
use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass};

use crate::parameter::{problem, text, value};

/// Push services accept at least 4,096 bytes, of which 103 are not the message.
const MESSAGE_BYTES_MAX: usize = 3_993;
/// Time to live if the step has none: four weeks, the longest that services keep.
const TTL_SECONDS: u64 = 2_419_200;

#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) endpoint: String,
    /// Public key of the browser: an uncompressed point of P-256.
    pub(crate) public_key: Vec<u8>,
    /// Authentication secret of the browser.
    pub(crate) auth: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) ttl_seconds: u64,
    pub(crate) urgency: Option<Cow<'a, str>>,
    pub(crate) topic: Option<Cow<'a, str>>,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let subscription = match value(with, "subscription") {
            Some(Value::String(json)) => serde_json::from_str(json).unwrap_or_default(),
            Some(map) => map.clone(),
            None => Value::Null,
        };
        let part = |found: &Value, name: &str| {
            let text = found.as_str().filter(|text| !text.trim().is_empty());
            text.map(|text| text.trim().to_owned()).ok_or_else(|| {
                let message = format!("`with.subscription` has no `{name}`: the event lacks it.");
                Failure::new(FailureClass::Identity, "no-subscription", message)
            })
        };
        let endpoint = part(&subscription["endpoint"], "endpoint")?;
        let public_key = part(&subscription["keys"]["p256dh"], "keys.p256dh")?;
        let auth = part(&subscription["keys"]["auth"], "keys.auth")?;
        let message = message(with)?;
        let ttl_seconds = match value(with, "ttl") {
            None => TTL_SECONDS,
            Some(ttl) => {
                let seconds = ttl.as_u64().or_else(|| ttl.as_str()?.trim().parse().ok());
                seconds.ok_or_else(|| problem("ttl", "must be a number of seconds"))?
            }
        };
        let topic = text(with, "topic")?;
        let is_base64url = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if topic
            .as_deref()
            .is_some_and(|topic| topic.len() > 32 || topic.is_empty() || !topic.chars().all(is_base64url))
        {
            return Err(problem("topic", "must have 1 to 32 letters, digits, hyphens and underscores"));
        }
        Ok(Settings {
            endpoint,
            public_key: key("keys.p256dh", &public_key, 65)?,
            auth: key("keys.auth", &auth, 16)?,
            message,
            ttl_seconds,
            urgency: text(with, "urgency")?,
            topic,
        })
    }
}

fn message(with: &Value) -> Result<Vec<u8>, Failure> {
    let message = match (value(with, "json"), text(with, "text")?) {
        (Some(_), Some(_)) => return Err(problem("text", "and `with.json` are both set; a message has one content")),
        (Some(json), None) => json.to_string().into_bytes(),
        (None, Some(text)) => text.into_owned().into_bytes(),
        (None, None) => return Err(problem("json", "and `with.text` are missing; set one of them")),
    };
    if message.len() > MESSAGE_BYTES_MAX {
        let what = format!("makes a message of {} bytes; push services accept {MESSAGE_BYTES_MAX}", message.len());
        return Err(problem(if with.get("json").is_some() { "json" } else { "text" }, what));
    }
    Ok(message)
}

/// A key of the subscription: base64, with either alphabet and with or without padding.
fn key(name: &str, text: &str, bytes: usize) -> Result<Vec<u8>, Failure> {
    let text = text.trim_end_matches('=');
    let decoded = BASE64URL_NOPAD.decode(text.as_bytes()).or_else(|_| BASE64_NOPAD.decode(text.as_bytes()));
    decoded.ok().filter(|decoded| decoded.len() == bytes).ok_or_else(|| {
        let message = format!("`with.subscription.{name}` is not the base64 of {bytes} bytes.");
        Failure::new(FailureClass::Identity, "invalid-subscription", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

    #[test]
    fn subscriptions_are_maps_or_their_json() {
        let subscription =
            json!({"endpoint": "https://p.example/1", "keys": {"p256dh": KEY, "auth": "BTBZMqHH6r4Tts7J_aSIgg=="}});
        for given in [subscription.clone(), Value::String(subscription.to_string())] {
            let with = json!({"subscription": given, "json": {"a": 1}, "ttl": "60"});
            let settings = Settings::read(&with).unwrap();
            assert_eq!((settings.public_key.len(), settings.auth.len(), settings.ttl_seconds), (65, 16, 60));
        }
        let bad_key =
            json!({"endpoint": "https://p.example/1", "keys": {"p256dh": "AAAA", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}});
        for (with, code) in [
            (json!({"text": "x"}), "no-subscription"),
            (json!({"subscription": "not json", "text": "x"}), "no-subscription"),
            (json!({"subscription": bad_key, "text": "x"}), "invalid-subscription"),
            (json!({"subscription": subscription}), "invalid-parameter"),
            (json!({"subscription": subscription, "text": "x".repeat(3_994)}), "invalid-parameter"),
            (json!({"subscription": subscription, "text": "x", "topic": "a b"}), "invalid-parameter"),
        ] {
            assert_eq!(Settings::read(&with).unwrap_err().code, code, "{with}");
        }
    }
}
