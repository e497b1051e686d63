//! `slack.post`: posts one message through the Web API or an incoming webhook.

mod request;
pub(crate) mod response;
pub(crate) mod settings;

use std::time::Duration;

use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

pub(crate) use request::Target;
use response::{Page, ResponseContext, outcome, page};
use settings::{Channel, Settings};

use crate::outbound::{Outbound, Request};
use crate::text::{exposed, redact, redact_outcome};
use crate::{Call, deadline};

/// Maximum pages searched by a read-back.
const PAGES_MAX: usize = 20;

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let request = match prepare(target, &call) {
        Ok(request) => request,
        Err(failure) => return Outcome::Reject { failure },
    };
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let outcome = match outbound.send(request, deadline([call.timeout, timeout_max])).await {
        Ok(response) => outcome(&response, context(&host, target, &call)),
        Err(error) => error.into_outcome(),
    };
    redact_outcome(outcome, exposed(&target.secrets))
}

/// Searches the recent messages of the channel or thread.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let found = search(outbound, target, timeout_max, call).await.unwrap_or_else(Readback::Unreadable);
    match found {
        Readback::Unreadable(failure) => {
            let message = redact(failure.message, exposed(&target.secrets));
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

async fn search(
    outbound: &Outbound,
    target: &Target,
    timeout_max: Duration,
    call: Call<'_>,
) -> Result<Readback, Failure> {
    let unreadable = |code: &str, message: &str| Failure::new(FailureClass::Retryable, code, message);
    if target.channel() == Channel::Fixed {
        return Err(unreadable("no-read-back", "Messages of an incoming webhook cannot be read back."));
    }
    let settings = Settings::read(call.with, target.channel())?;
    if settings.channel.starts_with('#') {
        return Err(unreadable(
            "no-read-back",
            "Read-back needs the channel id (C…) instead of its name; set it in `with.channel`.",
        ));
    }
    let deadline_at = deadline([call.timeout, timeout_max]);
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let Some(request) = target.read(&settings, call.now, cursor.as_deref()).transpose()? else { break };
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let response = outbound.send(request, deadline_at).await.map_err(crate::outbound::SendError::into_failure)?;
        match page(&response, call.effect_key, &settings.channel, context(&host, target, &call)) {
            Page::Final(found) => return Ok(found),
            Page::Next(next) => cursor = Some(next),
            Page::End => return Ok(Readback::Absent),
        }
    }
    Err(unreadable("too-many", "The channel has more recent messages than a read-back searches."))
}

pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    target.post(&Settings::read(call.with, target.channel())?, call.effect_key)
}

fn context<'a>(host: &'a str, target: &'a Target, call: &Call<'_>) -> ResponseContext<'a> {
    ResponseContext { host, channel: target.channel(), rules: &target.rules, now: call.now }
}
