//! Builds the requests from the step's settings and the destination. Pure.

use std::fmt;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use sluice_domain::destination::{SlackDestination, SlackTransport};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::response::SHIPPED_RULES;
use super::settings::{Channel, Settings};
use crate::outbound::{AddressScope, Request, sensitive};

/// Event type of our message metadata.
const EVENT_TYPE: &str = "sluice_effect";

/// Messages per page of a read-back.
const PAGE_SIZE: &str = "100";

/// How far back a read-back searches.
const LOOK_BACK_SECONDS: i64 = 7 * 86_400;

/// Slack destination with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    transport: Transport,
    /// Redacted from every message about this destination.
    pub(crate) secrets: Vec<SecretValue>,
    /// What error responses mean.
    pub(crate) rules: FailureTable,
}

enum Transport {
    Webhook(Url),
    Api { base: String, authorization: HeaderValue },
}

/// Omits the webhook URL: it is a credential.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Webhook(url) => write!(f, "Webhook({})", url.host_str().unwrap_or_default()),
            Transport::Api { base, .. } => write!(f, "Api({base})"),
        }
    }
}

impl Target {
    /// The same, with rules of the destination before the shipped ones.
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { rules: SHIPPED_RULES.behind(own), ..self }
    }

    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &SlackDestination) -> Result<Target, String> {
        match &destination.transport {
            SlackTransport::Webhook(secret) => {
                let url = Url::parse(secret.expose()).map_err(|_| "webhook_url: is not a URL".to_owned())?;
                if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                    return Err("webhook_url: must be https:// and a host".to_owned());
                }
                let path = SecretValue::new(url.path());
                let full_url = SecretValue::new(url.as_str());
                let secrets = vec![secret.clone(), full_url, path];
                Ok(Target { transport: Transport::Webhook(url), secrets, rules: SHIPPED_RULES.clone() })
            }
            SlackTransport::Token(token) => {
                let base = destination.base_url.trim_end_matches('/').to_owned();
                let parsed = Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                parsed.ok_or("base_url: is not a URL such as https://slack.com/api")?;
                let authorization = sensitive(&format!("Bearer {}", token.expose()))
                    .ok_or("token: has a character that is not allowed in a header, such as a line break")?;
                let (secrets, rules) = (vec![token.clone()], SHIPPED_RULES.clone());
                Ok(Target { transport: Transport::Api { base, authorization }, secrets, rules })
            }
        }
    }

    /// Whether a step must name a channel.
    pub(crate) fn channel(&self) -> Channel {
        match self.transport {
            Transport::Webhook(_) => Channel::Fixed,
            Transport::Api { .. } => Channel::Required,
        }
    }

    /// Request that posts the message.
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
        match &self.transport {
            Transport::Webhook(url) => Ok(request(Method::POST, url.clone(), None, Some(message))),
            Transport::Api { authorization, .. } => {
                set("channel", settings.channel.as_ref().into());
                set("metadata", json!({"event_type": EVENT_TYPE, "event_payload": {"effect_key": effect_key}}));
                let url = self.method("chat.postMessage", &[])?;
                Ok(request(Method::POST, url, Some(authorization), Some(message)))
            }
        }
    }

    /// Request for one page of messages where the message would be; `None` for a webhook.
    pub(crate) fn read(
        &self,
        settings: &Settings<'_>,
        now: Time,
        cursor: Option<&str>,
    ) -> Option<Result<Request, Failure>> {
        let Transport::Api { authorization, .. } = &self.transport else { return None };
        let oldest = (now.0 / 1000 - LOOK_BACK_SECONDS).max(0).to_string();
        let mut query = vec![
            ("channel", settings.channel.as_ref()),
            ("include_all_metadata", "true"),
            ("limit", PAGE_SIZE),
            ("oldest", &oldest),
        ];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        // `conversations.history` does not include replies in a thread.
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
        let Transport::Api { base, .. } = &self.transport else {
            return Err(crate::parameter::problem("channel", "has no API"));
        };
        let text = format!("{base}/{name}");
        let parsed = if query.is_empty() { Url::parse(&text) } else { Url::parse_with_params(&text, query) };
        parsed.map_err(|error| crate::parameter::problem("channel", format_args!("does not form a valid URL: {error}")))
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
    Request { method, url, headers, body, scope: AddressScope::Anywhere }
}

/// Effect key in the metadata of a message.
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
    fn message_carries_the_effect_key_and_read_back_searches_its_place() {
        let target = target(SlackTransport::Token("xoxb-1".into()));
        let with = json!({"channel": "C1", "text": "hi", "blocks": [{"type": "divider"}]});
        let settings = Settings::read(&with, target.channel()).unwrap();
        let post = target.post(&settings, "eff_01").unwrap();
        assert_eq!(post.url.as_str(), "https://slack.com/api/chat.postMessage");
        assert_eq!(
            serde_json::from_slice::<Value>(&post.body).unwrap(),
            json!({
                "text": "hi", "blocks": [{"type": "divider"}], "channel": "C1",
                "metadata": {"event_type": "sluice_effect", "event_payload": {"effect_key": "eff_01"}},
            })
        );
        let now = Time::parse("2026-11-15T12:00:00Z").unwrap();
        let read = target.read(&settings, now, Some("abc=")).unwrap().unwrap();
        assert_eq!(
            read.url.as_str(),
            "https://slack.com/api/conversations.history?channel=C1&include_all_metadata=true&limit=100&oldest=1794139200&cursor=abc%3D"
        );
        let with = json!({"channel": "C1", "text": "hi", "thread_ts": "1.2"});
        let settings = Settings::read(&with, target.channel()).unwrap();
        let read = target.read(&settings, now, None).unwrap().unwrap();
        assert!(
            read.url.as_str().contains("/conversations.replies?") && read.url.as_str().ends_with("&ts=1.2"),
            "{}",
            read.url
        );
    }

    #[test]
    fn webhook_message_has_no_metadata_and_no_read_back() {
        let target = target(SlackTransport::Webhook("https://hooks.slack.com/services/T/B/x".into()));
        let with = json!({"text": "hi"});
        let settings = Settings::read(&with, target.channel()).unwrap();
        let post = target.post(&settings, "eff_01").unwrap();
        assert_eq!(&post.body[..], br#"{"text":"hi"}"#);
        assert!(target.read(&settings, Time(0), None).is_none());
    }

    #[test]
    fn invalid_destination_settings_are_rejected_by_key() {
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
