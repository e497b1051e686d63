//! Accepted mail and counts.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::faults::FaultKind;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmtpMessage {
    pub from: String,
    pub to: Vec<String>,
    /// Unfolded, in order.
    pub headers: Vec<(String, String)>,
    /// Content after the headers, without dot-stuffing.
    pub body: String,
    /// Received over TLS.
    pub encrypted: bool,
    /// The client received the reply that accepts the message.
    pub acknowledged: bool,
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
        SmtpMessage { from, to, headers, body: body.to_owned(), encrypted, acknowledged: false }
    }

    /// Value of a header; `name` is case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Counts of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SmtpTruth {
    pub connections: u64,
    pub accepted: u64,
    /// Accepted messages whose client did not receive the reply.
    pub accepted_unseen: u64,
    /// Messages by Message-ID; empty if the header is missing.
    pub by_message_id: BTreeMap<String, u64>,
    /// Injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) truth: SmtpTruth,
    pub(crate) messages: VecDeque<SmtpMessage>,
}

impl Mailbox {
    pub(crate) fn store(&mut self, message: SmtpMessage, kept_max: usize) {
        let id = message.header("Message-ID").unwrap_or_default().to_owned();
        *self.truth.by_message_id.entry(id).or_default() += 1;
        self.truth.accepted += 1;
        self.truth.accepted_unseen += u64::from(!message.acknowledged);
        if kept_max > 0 {
            self.messages.truncate(kept_max);
            if self.messages.len() == kept_max {
                self.messages.pop_front();
            }
            self.messages.push_back(message);
        }
    }
}
