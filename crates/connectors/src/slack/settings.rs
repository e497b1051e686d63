//! What a step of `slack.post` asks for, typed.

use std::borrow::Cow;

use serde_json::Value;
use sluice_domain::outcome::Failure;

use crate::parameter::{kind, problem, required, text, value};

/// A rendered `with:`, read. Borrows from it.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// Empty behind a webhook, which has a channel of its own.
    pub(crate) channel: Cow<'a, str>,
    pub(crate) text: Option<Cow<'a, str>>,
    pub(crate) blocks: Option<&'a Value>,
    pub(crate) thread_ts: Option<Cow<'a, str>>,
}

/// Whether the destination needs to be told a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Needed,
    /// An incoming webhook belongs to one channel.
    Fixed,
}

impl<'a> Settings<'a> {
    /// Reads a rendered `with:`.
    pub(crate) fn read(with: &'a Value, channel: Channel) -> Result<Settings<'a>, Failure> {
        let channel = match channel {
            Channel::Needed => required(with, "channel")?,
            Channel::Fixed if value(with, "channel").is_some() => {
                return Err(problem("channel", "has no use here: an incoming webhook posts to its own channel"));
            }
            Channel::Fixed => Cow::Borrowed(""),
        };
        let blocks = value(with, "blocks");
        if let Some(other) = blocks.filter(|blocks| !blocks.is_array()) {
            return Err(problem("blocks", format_args!("must be a list of blocks; it is {}", kind(other))));
        }
        let text = text(with, "text")?.filter(|text| !text.trim().is_empty());
        if text.is_none() && blocks.is_none() {
            return Err(problem("text", "is missing, and so is `with.blocks`"));
        }
        Ok(Settings { channel, text, blocks, thread_ts: crate::parameter::text(with, "thread_ts")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_problem_names_its_parameter() {
        for (with, channel, expected) in [
            (json!({"text": "x"}), Channel::Needed, "`with.channel` is missing."),
            (json!({"text": "x", "channel": "C1"}), Channel::Fixed, "`with.channel` has no use here"),
            (json!({"channel": "C1"}), Channel::Needed, "`with.text` is missing, and so is"),
            (json!({"channel": "C1", "text": " "}), Channel::Needed, "`with.text` is missing"),
            (json!({"blocks": {}}), Channel::Fixed, "`with.blocks` must be a list"),
        ] {
            let failure = Settings::read(&with, channel).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
        assert!(Settings::read(&json!({"blocks": []}), Channel::Fixed).is_ok());
    }
}
