//! `ses.send`: sends one mail through Amazon SES (API v2). It cannot be read back.

mod request;
pub(crate) mod response;

use std::time::Duration;

use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

pub(crate) use request::Target;

use crate::email::settings::Settings;
use crate::outbound::{Outbound, Request};
use crate::text::{exposed, redact_outcome};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let outcome = match prepare(target, &call) {
        Ok(request) => match outbound.send(request, deadline([call.timeout, timeout_max])).await {
            Ok(response) => response::outcome(&response, &target.host, &target.rules, call.now),
            Err(error) => error.into_outcome(),
        },
        Err(failure) => Outcome::Reject { failure },
    };
    redact_outcome(outcome, exposed(&target.secrets))
}

pub(crate) fn read_back() -> Readback {
    Readback::Unreadable(Failure::new(
        FailureClass::Mapping,
        "no-read-back",
        "A mail sent through SES cannot be looked up by its effect key.",
    ))
}

pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    target.send(&Settings::read(call.with)?, call)
}
