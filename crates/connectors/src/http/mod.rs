//! `http.request`: sends one request and reads its response. `http.upsert` is beside it.

pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod settings;
mod target;
pub(crate) mod upsert;

use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

use request::{EffectContext, build};
use response::{ResponseContext, judge, readback};
use settings::{Settings, rule_scope};
pub(crate) use target::Target;
use tokio::time::Instant;

use crate::outbound::{HttpResponse, Outbound, Request};
use crate::text::{MASK, exposed, redact, redact_outcome};
use crate::token::{Exchange, bearer};
use crate::{Call, deadline};

pub(crate) async fn call(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return redact_outcome(Outcome::Reject { failure }, exposed(&target.secrets)),
    };
    let limit = deadline([call.timeout, timeout_max, settings.timeout.unwrap_or(Duration::MAX)]);
    let (answered, sent) = exchange(outbound, target, &settings, (effect_context(&call), limit)).await;
    let outcome = match answered {
        Ok(response) => {
            let context = ResponseContext {
                host: &sent.host,
                class: settings.class,
                accept_status: &settings.accept_status,
                rules: &target.rules,
                now: call.now,
            };
            judge(&response, &settings, context, || rule_scope(call.with, call.effect_key))
        }
        Err(outcome) => outcome,
    };
    sent.redact(outcome, target)
}

/// Sends the `verify:` request.
pub(crate) async fn read_back(outbound: &Outbound, target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let settings = Settings::read_verify(call.with).and_then(|settings| {
        settings.ok_or_else(|| {
            Failure::new(
                FailureClass::Mapping,
                "no-verify",
                "`with.verify` is missing: the effect cannot be read back.",
            )
        })
    });
    let settings = match settings {
        Ok(settings) => settings,
        Err(failure) => return Readback::Unreadable(failure),
    };
    let context = EffectContext { effect_key: None, traceparent: call.traceparent, now: call.now };
    let limit = deadline([call.timeout, timeout_max]);
    let (answered, sent) = exchange(outbound, target, &settings, (context, limit)).await;
    let found =
        match answered {
            Ok(response) => {
                let rule = settings.success_if.as_ref().map(|found| (found, rule_scope(call.with, call.effect_key)));
                readback(&response, &sent.host, rule)
            }
            Err(outcome) => Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(|| {
                Failure::new(FailureClass::Retryable, "unreadable", "The effect cannot be looked up.")
            })),
        };
    match found {
        Readback::Unreadable(failure) => {
            let message = redact(failure.message, sent.secrets(target));
            Readback::Unreadable(Failure { message, ..failure })
        }
        found => found,
    }
}

/// Sends a request once; with an access token that is refused, once more with a new one. The error is the outcome of an effect.
async fn exchange(
    outbound: &Outbound,
    target: &Target,
    settings: &Settings<'_>,
    (context, limit): (EffectContext<'_>, Instant),
) -> (Result<HttpResponse, Outcome>, Sent) {
    let own = target.outbound.as_ref().map(|own| own.metered_as(outbound));
    let outbound = own.as_ref().unwrap_or(outbound);
    let request = match build(settings, target, context) {
        Ok(request) => request,
        Err(failure) => return (Err(Outcome::Reject { failure }), Sent::default()),
    };
    let mut sent = Sent::of(&request);
    let Some(tokens) = &target.tokens else {
        return (outbound.send(request, limit).await.map_err(|error| error.into_outcome()), sent);
    };
    let with_token = |token: HeaderValue| {
        let mut request = build(settings, target, context)?;
        request.headers.entry(AUTHORIZATION).or_insert(token);
        Ok(request)
    };
    let exchange = Exchange { outbound, deadline: limit, now: context.now };
    let answered = tokens.exchange(exchange, with_token, |response| response.status == 401).await;
    sent.tokens = tokens.texts();
    (answered, sent)
}

pub(crate) fn prepare(target: &Target, call: &Call<'_>) -> Result<Request, Failure> {
    let mut request = build(&Settings::read(call.with)?, target, effect_context(call))?;
    if target.tokens.is_some() {
        let masked = bearer(MASK).expect("a mask is a valid header value");
        request.headers.entry(AUTHORIZATION).or_insert(masked);
    }
    Ok(request)
}

fn effect_context<'a>(call: &Call<'a>) -> EffectContext<'a> {
    EffectContext { effect_key: Some(call.effect_key), traceparent: call.traceparent, now: call.now }
}

/// What was sent: the host for messages, and credentials that no message may have, including those set by the step.
#[derive(Default)]
struct Sent {
    host: String,
    headers: HeaderMap,
    tokens: Vec<String>,
}

impl Sent {
    fn of(request: &Request) -> Sent {
        let sensitive = request.headers.iter().filter(|(_, value)| value.is_sensitive());
        Sent {
            host: request.url.host_str().unwrap_or_default().to_owned(),
            headers: sensitive.map(|(name, value)| (name.clone(), value.clone())).collect(),
            tokens: Vec::new(),
        }
    }

    fn secrets<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = &'a str> {
        let headers = self.headers.values().filter_map(|value| value.to_str().ok());
        let credentials = headers.map(|text| text.rsplit(' ').next().unwrap_or(text));
        exposed(&target.secrets).chain(credentials).chain(self.tokens.iter().map(String::as_str))
    }

    fn redact(&self, outcome: Outcome, target: &Target) -> Outcome {
        redact_outcome(outcome, self.secrets(target))
    }
}
