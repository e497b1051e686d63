//! Settings and a destination become requests. Pure.

use std::fmt;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use sluice_domain::destination::{SlackDestination, SlackTransport};
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::settings::{Channel, Settings};
use crate::outbound::{AddressScope, Request, sensitive};

/// Names our metadata among that of other apps.
const EVENT_TYPE: &str = "sluice_effect";

/// Messages that one page of a read-back holds.
const PAGE: &str = "100";

/// How far back a message is looked for.
const LOOK_BACK_SECONDS: i64 = 7 * 86_400;

/// A Slack workspace, prepared once.
#[derive(Debug)]
pub(crate) struct Target {
    way: Way,
    /// What must not appear in any text about this destination.
    pub(crate) secrets: Vec<SecretValue>,
}

enum Way {
    Webhook(Url),
    Api { base: String, authorization: HeaderValue },
}

/// The URL of a webhook is all that anybody needs to post there, so it is not shown.
impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Webhook(url) => write!(f, "Webhook({})", url.host_str().unwrap_or_default()),
            Way::Api { base, .. } => write!(f, "Api({base})"),
        }
    }
}

impl Target {
    /// Prepares a destination, or says which of its keys is wrong.
    pub(crate) fn new(destination: &SlackDestination) -> Result<Target, String> {
        match &destination.transport {
            SlackTransport::Webhook(secret) => {
                let url = Url::parse(secret.expose()).map_err(|_| "webhook_url: is not a URL".to_owned())?;
                if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                    return Err("webhook_url: must be https:// and a host".to_owned());
                }
                let path = SecretValue::new(url.path());
                let whole = SecretValue::new(url.as_str());
                Ok(Target { way: Way::Webhook(url), secrets: vec![secret.clone(), whole, path] })
            }
            SlackTransport::Token(token) => {
                let base = destination.base_url.trim_end_matches('/').to_owned();
                let parsed = Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                parsed.ok_or("base_url: is not a URL such as https://slack.com/api")?;
                let authorization = sensitive(&format!("Bearer {}", token.expose()))
                    .ok_or("token: has a character that no header may have, such as a line break")?;
                Ok(Target { way: Way::Api { base, authorization }, secrets: vec![token.clone()] })
            }
        }
    }

    /// Whether a step has to name a channel.
    pub(crate) fn channel(&self) -> Channel {
        match self.way {
            Way::Webhook(_) => Channel::Fixed,
            Way::Api { .. } => Channel::Needed,
        }
    }

    /// The request that posts the message.
    pub(crate) fn post(&self, settings: &Settings<'_>, effect_key: &str) -> Result<Request, Failure> {
        let mut message = Map::new();
        let mut set = |name: &str, value: Value| message.insert(name.to_owned(), value);
        if let Some(text) = &settings.text {
            set("text", text.as_ref().into());
        }
        if let Some(blocks) = settings.blocks {
            set("blocks", blocks.clone());
        }
        if let Some(thread) = &settings.thread_ts {
            set("thread_ts", thread.as_ref().into());
        }
        match &self.way {
            Way::Webhook(url) => Ok(request(Method::POST, url.clone(), None, Some(message))),
            Way::Api { authorization, .. } => {
                set("channel", settings.channel.as_ref().into());
                set("metadata", json!({"event_type": EVENT_TYPE, "event_payload": {"effect_key": effect_key}}));
                let url = self.method("chat.postMessage", &[])?;
                Ok(request(Method::POST, url, Some(authorization), Some(message)))
            }
        }
    }

    /// The request that reads one page of where the message would be; `None` behind a webhook.
    pub(crate) fn read(
        &self,
        settings: &Settings<'_>,
        now: Time,
        cursor: Option<&str>,
    ) -> Option<Result<Request, Failure>> {
        let Way::Api { authorization, .. } = &self.way else { return None };
        let oldest = (now.0 / 1000 - LOOK_BACK_SECONDS).max(0).to_string();
        let mut query = vec![
            ("channel", settings.channel.as_ref()),
            ("include_all_metadata", "true"),
            ("limit", PAGE),
            ("oldest", &oldest),
        ];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        // An answer in a thread is not part of the channel's own history.
        let method = match &settings.thread_ts {
            Some(thread) => {
                query.push(("ts", thread));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        Some(self.method(method, &query).map(|url| request(Method::GET, url, Some(authorization), None)))
    }

    fn method(&self, name: &str, query: &[(&str, &str)]) -> Result<Url, Failure> {
        let Way::Api { base, .. } = &self.way else { return Err(crate::parameter::problem("channel", "has no API")) };
        let text = format!("{base}/{name}");
        let parsed = if query.is_empty() { Url::parse(&text) } else { Url::parse_with_params(&text, query) };
        parsed.map_err(|error| crate::parameter::problem("channel", format_args!("makes no URL: {error}")))
    }
}

fn request(
    method: Method,
    url: Url,
    authorization: Option<&HeaderValue>,
    message: Option<Map<String, Value>>,
) -> Request {
    let mut headers = HeaderMap::new();
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    let body = message.map_or_else(Bytes::new, |message| {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        Value::Object(message).to_string().into()
    });
    Request { method, url, headers, body, reach: AddressScope::Anywhere }
}

/// The effect's key in a message that was read back.
pub(crate) fn effect_key(message: &Value) -> Option<&str> {
    let metadata = message.get("metadata")?;
    (metadata.get("event_type")?.as_str()? == EVENT_TYPE).then_some(())?;
    metadata.get("event_payload")?.get("effect_key")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(way: SlackTransport) -> Target {
        Target::new(&SlackDestination {
            base_url: "https://slack.com/api".into(),
            transport: way,
            signing_secret: None,
        })
        .unwrap()
    }

    #[test]
    fn a_message_carries_the_key_and_is_looked_for_where_it_would_be() {
        let there = target(SlackTransport::Token("xoxb-1".into()));
        let with = json!({"channel": "C1", "text": "hi", "blocks": [{"type": "divider"}]});
        let settings = Settings::read(&with, there.channel()).unwrap();
        let post = there.post(&settings, "eff_01").unwrap();
        assert_eq!(post.url.as_str(), "https://slack.com/api/chat.postMessage");
        assert_eq!(
            serde_json::from_slice::<Value>(&post.body).unwrap(),
            json!({
                "text": "hi", "blocks": [{"type": "divider"}], "channel": "C1",
                "metadata": {"event_type": "sluice_effect", "event_payload": {"effect_key": "eff_01"}},
            })
        );
        let now = Time::parse("2026-11-15T12:00:00Z").unwrap();
        let read = there.read(&settings, now, Some("abc=")).unwrap().unwrap();
        assert_eq!(
            read.url.as_str(),
            "https://slack.com/api/conversations.history?channel=C1&include_all_metadata=true&limit=100&oldest=1794139200&cursor=abc%3D"
        );
        let with = json!({"channel": "C1", "text": "hi", "thread_ts": "1.2"});
        let settings = Settings::read(&with, there.channel()).unwrap();
        let read = there.read(&settings, now, None).unwrap().unwrap();
        assert!(
            read.url.as_str().contains("/conversations.replies?") && read.url.as_str().ends_with("&ts=1.2"),
            "{}",
            read.url
        );
    }

    #[test]
    fn a_webhook_gets_the_message_and_nothing_to_recognise_it_by() {
        let there = target(SlackTransport::Webhook("https://hooks.slack.com/services/T/B/x".into()));
        let with = json!({"text": "hi"});
        let settings = Settings::read(&with, there.channel()).unwrap();
        let post = there.post(&settings, "eff_01").unwrap();
        assert_eq!(&post.body[..], br#"{"text":"hi"}"#);
        assert!(there.read(&settings, Time(0), None).is_none());
    }

    #[test]
    fn a_destination_that_cannot_work_is_refused_at_the_start() {
        for (base_url, way, expected) in [
            ("slack.com", SlackTransport::Token("x".into()), "base_url: "),
            ("https://slack.com/api", SlackTransport::Token("a\nb".into()), "token: "),
            ("", SlackTransport::Webhook("hooks.slack.com/services".into()), "webhook_url: "),
        ] {
            let problem =
                Target::new(&SlackDestination { base_url: base_url.into(), transport: way, signing_secret: None })
                    .unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
