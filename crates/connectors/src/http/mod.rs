//! `http.request`: sends one request and reads its response.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod settings;
mod target;

use std::time::Duration;

use hyper::header::HeaderMap;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

use request::{EffectContext, build};
use response::{ResponseContext, outcome, readback};
use settings::Settings;
pub(crate) use target::Target;

use crate::outbound::{Outbound, Request};
use crate::text::{exposed, redact, redact_outcome};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let prepared = Settings::read(call.with).and_then(|settings| {
        let request = build(&settings, target, effect_context(&call))?;
        Ok((settings, request))
    });
    let (settings, request) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return redact_outcome(Outcome::Reject { failure }, exposed(&target.secrets)),
    };
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let sent = SentCredentials::of(&request);
    let deadline_at = deadline([call.timeout, timeout_max, settings.timeout.unwrap_or(Duration::MAX)]);
    let outcome = match outbound.send(request, deadline_at).await {
        Ok(response) => {
            let context = ResponseContext {
                host: &host,
                class: settings.class,
                accept_status: &settings.accept_status,
                now: call.now,
            };
            outcome(&response, context)
        }
        Err(error) => error.into_outcome(),
    };
    redact_outcome(outcome, exposed(&target.secrets).chain(sent.secrets()))
}

/// Sends the `verify:` request.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let prepared = Settings::read_verify(call.with).and_then(|settings| {
        let settings = settings.ok_or_else(|| {
            Failure::new(
                FailureClass::Mapping,
                "no-verify",
                "`with.verify` is missing: the effect cannot be read back.",
            )
        })?;
        build(&settings, target, EffectContext { effect_key: None, traceparent: call.traceparent, now: call.now })
    });
    let request = match prepared {
        Ok(request) => request,
        Err(failure) => return unreadable(failure, target, &SentCredentials::default()),
    };
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let sent = SentCredentials::of(&request);
    let found = match outbound.send(request, deadline([call.timeout, timeout_max])).await {
        Ok(response) => readback(&response, &host),
        Err(error) => Readback::Unreadable(error.into_failure()),
    };
    match found {
        Readback::Unreadable(failure) => unreadable(failure, target, &sent),
        found => found,
    }
}

pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    build(&Settings::read(call.with)?, target, effect_context(call))
}

fn effect_context<'a>(call: &Call<'a>) -> EffectContext<'a> {
    EffectContext { effect_key: Some(call.effect_key), traceparent: call.traceparent, now: call.now }
}

fn unreadable(failure: Failure, target: &Target, sent: &SentCredentials) -> Readback {
    let message = redact(failure.message, exposed(&target.secrets).chain(sent.secrets()));
    Readback::Unreadable(Failure { message, ..failure })
}

/// Credentials among the sent headers, including those set by the step.
#[derive(Default)]
struct SentCredentials(HeaderMap);

impl SentCredentials {
    fn of(request: &Request) -> SentCredentials {
        SentCredentials(
            request
                .headers
                .iter()
                .filter(|(_, value)| value.is_sensitive())
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(|value| value.to_str().ok()).map(|text| text.rsplit(' ').next().unwrap_or(text))
    }
}
