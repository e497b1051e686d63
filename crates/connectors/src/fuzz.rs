//! The pure readers of this crate, for whoever throws bytes at them. Not part of the interface.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use sluice_domain::outcome::{EffectClass, Outcome};
use sluice_domain::time::Time;

use crate::outbound::{HttpResponse, retry_after as read_retry_after};
use crate::{email, http, salesforce, slack};

/// What a destination answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The status.
    pub status: u16,
    /// The value of `Retry-After`.
    pub retry_after: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// Whether the body was cut at the limit.
    pub cut: bool,
}

impl Answered<'_> {
    fn answer(&self) -> HttpResponse {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(self.retry_after) {
            headers.insert(RETRY_AFTER, value);
        }
        HttpResponse { status: self.status, headers, body: self.body.to_vec().into(), cut: self.cut }
    }
}

/// What every connector makes of an answer.
pub fn outcomes(answered: Answered<'_>, now: Time) -> Vec<Outcome> {
    let answer = answered.answer();
    let host = "host";
    let mut outcomes = Vec::new();
    for mode in [salesforce::settings::Mode::Upsert, salesforce::settings::Mode::UpdateOnly] {
        let reading = salesforce::response::ResponseContext { host, object: "Lead", mode, now };
        outcomes.push(salesforce::response::outcome(&answer, reading));
        salesforce::response::readback(&answer, reading);
    }
    outcomes.extend(salesforce::response::token(&answer, host, now).err());
    for channel in [slack::settings::Channel::Needed, slack::settings::Channel::Fixed] {
        let reading = slack::response::ResponseContext { host, channel, now };
        outcomes.push(slack::response::outcome(&answer, reading));
        slack::response::page(&answer, "eff_1", "C1", reading);
    }
    for class in [EffectClass::Natural, EffectClass::Keyed, EffectClass::Verifiable, EffectClass::Blind] {
        let reading = http::response::ResponseContext { host, class, accept_status: &[404], now };
        outcomes.push(http::response::outcome(&answer, reading));
    }
    http::response::readback(&answer, host);
    outcomes
}

/// How long this value of `Retry-After` asks to wait.
pub fn retry_after(text: &str, now: Time) -> Option<Duration> {
    read_retry_after::parse(text, now)
}

/// Reads one reply of a mail server, and what a refusal like it would come to.
pub async fn smtp_reply(bytes: &[u8]) -> Option<(u16, Outcome)> {
    let reply = email::session::first_reply(bytes).await?;
    Some((reply.code, email::response::refused("host", email::response::SmtpPhase::Recipient, &reply)))
}
