//! Connectors over real sockets: simulated systems, and servers that misbehave at the byte level.

#![allow(clippy::unwrap_used)]

mod channel;
mod declared;
mod declared_batch;
mod email;
mod http;
mod hubspot;
mod limits;
mod openid;
mod postgres;
mod raw;
mod salesforce;
mod script;
mod secrets;
mod slack;
mod stores;
mod upsert;

use std::time::Duration;

use serde_json::Value;
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{
    Destination, DestinationKind, GateSettings, HttpDestination, SalesforceAuth, SalesforceDestination,
};
use sluice_domain::outcome::Outcome;
use sluice_domain::time::Time;

/// Long enough for a loaded machine; no test waits this long.
const PATIENT: Duration = Duration::from_secs(20);
/// Timeout for tests with a server that never responds.
const SHORT: Duration = Duration::from_millis(60);

fn destination(name: &str, kind: DestinationKind) -> Destination {
    Destination {
        name: name.to_owned(),
        kind,
        timeout: PATIENT,
        straggler_horizon: None,
        batch_max: None,
        gate: GateSettings::default(),
        failure_rules: vec![],
    }
}

fn http_at(base_url: &str) -> HttpDestination {
    HttpDestination { base_url: Some(base_url.to_owned()), ..HttpDestination::default() }
}

fn salesforce_at(instance_url: &str, auth: SalesforceAuth) -> SalesforceDestination {
    SalesforceDestination {
        instance_url: instance_url.to_owned(),
        api_version: "v60.0".to_owned(),
        auth,
        allow_duplicates: false,
    }
}

fn client_credentials(client_secret: &str) -> SalesforceAuth {
    SalesforceAuth::ClientCredentials { client_id: "sim-client".into(), client_secret: client_secret.into() }
}

fn connectors(kinds: impl IntoIterator<Item = (&'static str, DestinationKind)>) -> Connectors {
    let destinations: Vec<Destination> = kinds.into_iter().map(|(name, kind)| destination(name, kind)).collect();
    Connectors::new(&destinations, &OutboundSettings::default()).unwrap()
}

/// Connectors with one HTTP destination, named `there`.
fn to_http(base_url: &str) -> Connectors {
    connectors([("there", DestinationKind::Http(http_at(base_url)))])
}

fn call<'a>(action: Action, with: &'a Value, timeout: Duration) -> Call<'a> {
    Call {
        action,
        destination: "there",
        with,
        effect_key: "effect-1",
        message_key: None,
        record: None,
        attempt: 1,
        traceparent: None,
        timeout,
        now: Time::from(jiff::Timestamp::now()),
    }
}

fn request<'a>(with: &'a Value, timeout: Duration) -> Call<'a> {
    call(Action::HttpRequest, with, timeout)
}

/// Outcome, class and code of the failure, or `done`.
fn brief(outcome: &Outcome) -> String {
    match outcome.failure() {
        Some(failure) => format!("{} {} {}", outcome.as_str(), failure.class.as_str(), failure.code),
        None => outcome.as_str().to_owned(),
    }
}
