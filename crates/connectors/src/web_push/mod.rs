//! `webpush.send`: sends one message to a browser (RFC 8030), encrypted for it (RFC 8291) and signed with VAPID (RFC 8292).

mod encryption;
mod request;
pub(crate) mod response;
mod settings;

use std::time::Duration;

use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

pub(crate) use request::Target;
use settings::Settings;

use crate::outbound::{Outbound, Request};
use crate::text::{exposed, redact_outcome};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let outcome = match prepare(target, &call) {
        Ok(request) => {
            let host = request.url.host_str().unwrap_or_default().to_owned();
            match outbound.send(request, deadline([call.timeout, timeout_max])).await {
                Ok(response) => response::outcome(&response, &host, &target.rules, call.now),
                Err(error) => error.into_outcome(),
            }
        }
        Err(failure) => Outcome::Reject { failure },
    };
    redact_outcome(outcome, exposed(&target.secrets))
}

pub(crate) fn read_back() -> Readback {
    let message = "A push message cannot be looked up: there is no receipt.";
    Readback::Unreadable(Failure::new(FailureClass::Mapping, "no-read-back", message))
}

/// Builds the request. Its body differs each time: every message is encrypted with a key of its own.
pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    target.send(&Settings::read(call.with)?, call)
}
