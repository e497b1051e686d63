//! `http.request`: sends one request, reads one answer.

mod request;
pub(crate) mod response;
mod settings;
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

/// Sends the effect.
pub(crate) async fn call(outbound: &Outbound, target: &Target, longest: Duration, call: Call<'_>) -> Outcome {
    let prepared = Settings::read(call.with).and_then(|settings| {
        let request = build(&settings, target, effect_marks(&call))?;
        Ok((settings, request))
    });
    let (settings, request) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return redact_outcome(Outcome::Reject { failure }, exposed(&target.secrets)),
    };
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let sent = Sent::of(&request);
    let until = deadline([call.timeout, longest, settings.timeout.unwrap_or(Duration::MAX)]);
    let outcome = match outbound.send(request, until).await {
        Ok(answer) => {
            let reading = ResponseContext {
                host: &host,
                class: settings.class,
                accept_status: &settings.accept_status,
                now: call.now,
            };
            outcome(&answer, reading)
        }
        Err(fault) => fault.into_outcome(),
    };
    redact_outcome(outcome, exposed(&target.secrets).chain(sent.secrets()))
}

/// Asks whether the effect is there.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, longest: Duration, call: Call<'_>) -> Readback {
    let prepared = Settings::read_verify(call.with).and_then(|settings| {
        let settings = settings.ok_or_else(|| {
            Failure::new(FailureClass::Mapping, "no-verify", "`with.verify` is missing, so nothing can be read back.")
        })?;
        build(&settings, target, EffectContext { effect_key: None, traceparent: call.traceparent })
    });
    let request = match prepared {
        Ok(request) => request,
        Err(failure) => return unreadable(failure, target, &Sent::default()),
    };
    let host = request.url.host_str().unwrap_or_default().to_owned();
    let sent = Sent::of(&request);
    let found = match outbound.send(request, deadline([call.timeout, longest])).await {
        Ok(answer) => readback(&answer, &host),
        Err(fault) => Readback::Unreadable(fault.into_failure()),
    };
    match found {
        Readback::Unreadable(failure) => unreadable(failure, target, &sent),
        found => found,
    }
}

/// Builds the request without sending it.
pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    build(&Settings::read(call.with)?, target, effect_marks(call))
}

fn effect_marks<'a>(call: &Call<'a>) -> EffectContext<'a> {
    EffectContext { effect_key: Some(call.effect_key), traceparent: call.traceparent }
}

fn unreadable(failure: Failure, target: &Target, sent: &Sent) -> Readback {
    let message = redact(failure.message, exposed(&target.secrets).chain(sent.secrets()));
    Readback::Unreadable(Failure { message, ..failure })
}

/// The credentials among the headers that were sent, some of which may be the step's own.
#[derive(Default)]
struct Sent(HeaderMap);

impl Sent {
    fn of(request: &Request) -> Sent {
        Sent(
            request
                .headers
                .iter()
                .filter(|(_, value)| value.is_sensitive())
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect(),
        )
    }

    fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(|value| value.to_str().ok()).map(|text| text.rsplit(' ').next().unwrap_or(text))
    }
}
