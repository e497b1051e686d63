//! `s3.put`: stores one object in an S3-compatible store.
//!
//! The object is created with `If-None-Match: *`. If it exists, its checksum tells whether it is this one, so that a repeated
//! request changes nothing and finds its own earlier write.

mod request;
pub(crate) mod response;
mod settings;

use std::time::Duration;

use sluice_domain::outcome::{Failure, Outcome};

pub(crate) use request::Target;
use settings::Settings;

use crate::outbound::{Outbound, Request};
use crate::text::{exposed, redact_outcome};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let outcome = put(outbound, target, timeout_max, &call).await.unwrap_or_else(|outcome| outcome);
    redact_outcome(outcome, exposed(&target.secrets))
}

async fn put(outbound: &Outbound, target: &Target, timeout_max: Duration, call: &Call<'_>) -> Result<Outcome, Outcome> {
    let reject = |failure| Outcome::Reject { failure };
    let settings = Settings::read(call.with).map_err(reject)?;
    let deadline_at = deadline([call.timeout, timeout_max]);
    let request = target.put(&settings, call).map_err(reject)?;
    let stored = outbound.send(request, deadline_at).await.map_err(|error| error.into_outcome())?;
    let context = target.context(call.now);
    if settings.overwrite || !response::exists(&stored) {
        return Ok(response::stored(&stored, &target.url_text(&settings), context));
    }
    let request = target.head(&settings, call).map_err(reject)?;
    let found = outbound.send(request, deadline_at).await.map_err(|error| {
        // The object exists already, and reading it changes nothing.
        Outcome::Retry { failure: error.into_failure(), after: None }
    })?;
    Ok(response::compared(&stored, &found, &settings.body, (&target.url_text(&settings), call.effect_key), context))
}

pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    target.put(&Settings::read(call.with)?, call)
}
