//! Entry points for fuzzing the pure parsers of this crate. Not part of the public interface.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use sluice_domain::outcome::{EffectClass, Outcome};
use sluice_domain::time::Time;

use crate::batch::BatchOutcome;
use crate::outbound::{HttpResponse, retry_after as read_retry_after};
use crate::{email, http, hubspot, salesforce, slack};

/// HTTP response of a destination, as raw parts.
#[derive(Clone, Copy, Debug)]
pub struct RawResponse<'a> {
    pub status: u16,
    /// The value of `Retry-After`.
    pub retry_after: &'a [u8],
    pub body: &'a [u8],
    /// The body was truncated at the size limit.
    pub truncated: bool,
}

impl RawResponse<'_> {
    fn into_response(self) -> HttpResponse {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(self.retry_after) {
            headers.insert(RETRY_AFTER, value);
        }
        HttpResponse { status: self.status, headers, body: self.body.to_vec().into(), truncated: self.truncated }
    }
}

/// Outcomes that every HTTP connector derives from this response.
pub fn outcomes(raw: RawResponse<'_>, now: Time) -> Vec<Outcome> {
    let response = raw.into_response();
    let host = "host";
    let mut outcomes = Vec::new();
    for mode in [
        salesforce::settings::Mode::Upsert,
        salesforce::settings::Mode::UpdateOnly(salesforce::settings::OnAbsent::DeadLetter),
    ] {
        let rules = &salesforce::response::SHIPPED_RULES;
        let context = salesforce::response::ResponseContext { host, object: "Lead", mode, rules, now };
        outcomes.push(salesforce::response::outcome(&response, context));
        salesforce::response::readback(&response, &serde_json::Map::new(), context);
    }
    outcomes.extend(salesforce::response::grant(&response, host, now).err());
    outcomes.extend(of_hubspot(&response, now));
    for channel in [slack::settings::Channel::Required, slack::settings::Channel::Fixed] {
        let rules = &slack::response::SHIPPED_RULES;
        let context = slack::response::ResponseContext { host, channel, rules, now };
        outcomes.push(slack::response::outcome(&response, context));
        slack::response::page(&response, "eff_1", "C1", context);
    }
    for class in [EffectClass::Natural, EffectClass::Keyed, EffectClass::Verifiable, EffectClass::Blind] {
        let rules = &http::response::SHIPPED_RULES;
        let context = http::response::ResponseContext { host, class, accept_status: &[404], rules, now };
        outcomes.push(http::response::outcome(&response, context));
    }
    http::response::readback(&response, host, None);
    outcomes
}

fn of_hubspot(response: &HttpResponse, now: Time) -> Vec<Outcome> {
    let context = hubspot::response::ResponseContext { host: "host", rules: &hubspot::response::SHIPPED_RULES, now };
    let with = serde_json::json!({"object": "contacts", "id_property": "key", "id": "a", "properties": {"b": "c"}});
    let Ok(settings) = hubspot::settings::Settings::read(&with) else { return vec![] };
    let records = [(&settings, "eff_1"), (&settings, "eff_2")];
    let mut outcomes = match hubspot::response::batch(response, &records, context) {
        BatchOutcome::Whole(outcome) => vec![outcome],
        BatchOutcome::Each(outcomes) => outcomes,
    };
    outcomes.push(hubspot::response::outcome(response, settings.mode, "contacts", context));
    outcomes.push(hubspot::response::converted(response, &settings, context));
    if let hubspot::response::Answer::Settled(outcome) = hubspot::response::created(response, context) {
        outcomes.push(outcome);
    }
    hubspot::response::readback(response, &settings, context);
    outcomes.extend(hubspot::response::grant(response, "host", now).err());
    outcomes
}

/// Parses a `Retry-After` value.
pub fn retry_after(text: &str, now: Time) -> Option<Duration> {
    read_retry_after::parse(text, now)
}

/// Parses one SMTP reply; returns its code and the outcome of a rejected recipient with it.
pub async fn smtp_reply(bytes: &[u8]) -> Option<(u16, Outcome)> {
    let reply = email::session::first_reply(bytes).await?;
    Some((
        reply.code,
        email::response::rejected(
            "host",
            email::response::SmtpPhase::Recipient,
            &reply,
            &email::response::SHIPPED_RULES,
        ),
    ))
}
