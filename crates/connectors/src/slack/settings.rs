//! Parameters of a `slack.post` step.

use std::borrow::Cow;

use serde_json::Value;
use sluice_domain::outcome::Failure;

use crate::parameter::{kind, problem, required, text, value};

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// Empty for a webhook, which posts to its own channel.
    pub(crate) channel: Cow<'a, str>,
    pub(crate) text: Option<Cow<'a, str>>,
    pub(crate) blocks: Option<&'a Value>,
    pub(crate) thread_ts: Option<Cow<'a, str>>,
}

/// Whether a step must name a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Required,
    /// An incoming webhook posts to one channel.
    Fixed,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value, channel: Channel) -> Result<Settings<'a>, Failure> {
        let channel = match channel {
            Channel::Required => required(with, "channel")?,
            Channel::Fixed if value(with, "channel").is_some() => {
                return Err(problem("channel", "is not allowed: an incoming webhook posts to its own channel"));
            }
            Channel::Fixed => Cow::Borrowed(""),
        };
        let blocks = value(with, "blocks");
        if let Some(other) = blocks.filter(|blocks| !blocks.is_array()) {
            return Err(problem("blocks", format_args!("must be a list of blocks; it is {}", kind(other))));
        }
        let text = text(with, "text")?.filter(|text| !text.trim().is_empty());
        if text.is_none() && blocks.is_none() {
            return Err(problem("text", "and `with.blocks` are missing; set at least one"));
        }
        Ok(Settings { channel, text, blocks, thread_ts: crate::parameter::text(with, "thread_ts")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn problems_name_the_parameter() {
        for (with, channel, expected) in [
            (json!({"text": "x"}), Channel::Required, "`with.channel` is missing."),
            (json!({"text": "x", "channel": "C1"}), Channel::Fixed, "`with.channel` is not allowed"),
            (json!({"channel": "C1"}), Channel::Required, "`with.text` and `with.blocks` are missing"),
            (json!({"channel": "C1", "text": " "}), Channel::Required, "`with.text` and `with.blocks` are missing"),
            (json!({"blocks": {}}), Channel::Fixed, "`with.blocks` must be a list"),
        ] {
            let failure = Settings::read(&with, channel).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
        assert!(Settings::read(&json!({"blocks": []}), Channel::Fixed).is_ok());
    }
}
