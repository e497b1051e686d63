//! What a mail server has taken.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::faults::FaultKind;

/// One message, as it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmtpMessage {
    /// The sender of the envelope.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// Names and values, unfolded, in their order.
    pub headers: Vec<(String, String)>,
    /// Everything after the headers, dots undoubled.
    pub body: String,
    /// Whether it came over TLS.
    pub encrypted: bool,
    /// Whether the sender was told that it was taken.
    pub told: bool,
}

impl SmtpMessage {
    pub(crate) fn parse(from: String, to: Vec<String>, content: &[u8], encrypted: bool) -> SmtpMessage {
        let content = String::from_utf8_lossy(content).into_owned();
        let (head, body) = content.split_once("\r\n\r\n").unwrap_or((&content, ""));
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in head.split("\r\n") {
            match (line.starts_with([' ', '\t']), headers.last_mut(), line.split_once(':')) {
                (true, Some((_, value)), _) => {
                    value.push(' ');
                    value.push_str(line.trim());
                }
                (_, _, Some((name, value))) => headers.push((name.to_owned(), value.trim().to_owned())),
                _ => {}
            }
        }
        SmtpMessage { from, to, headers, body: body.to_owned(), encrypted, told: false }
    }

    /// The value of a header, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A mail server in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SmtpTruth {
    pub connections: u64,
    /// Messages that were taken.
    pub taken: u64,
    /// Those among them whose sender was not told.
    pub taken_unseen: u64,
    /// Messages by their Message-ID; what has none counts under an empty one.
    pub by_message_id: BTreeMap<String, u64>,
    /// The faults that were ordered, by their kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) truth: SmtpTruth,
    pub(crate) messages: VecDeque<SmtpMessage>,
}

impl Mailbox {
    pub(crate) fn take(&mut self, message: SmtpMessage, kept_max: usize) {
        let id = message.header("Message-ID").unwrap_or_default().to_owned();
        *self.truth.by_message_id.entry(id).or_default() += 1;
        self.truth.taken += 1;
        self.truth.taken_unseen += u64::from(!message.told);
        if kept_max > 0 {
            self.messages.truncate(kept_max);
            if self.messages.len() == kept_max {
                self.messages.pop_front();
            }
            self.messages.push_back(message);
        }
    }
}
