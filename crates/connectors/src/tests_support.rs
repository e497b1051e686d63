//! A call for unit tests.

use std::time::Duration;

use serde_json::Value;
use sluice_domain::action::Action;
use sluice_domain::time::Time;

use crate::Call;

/// A call with these parameters at a fixed time.
pub(crate) fn call(with: &Value) -> Call<'_> {
    Call {
        action: Action::HttpRequest,
        destination: "there",
        with,
        effect_key: "effect-1",
        message_key: None,
        record: None,
        attempt: 1,
        traceparent: None,
        timeout: Duration::from_secs(20),
        now: Time(1_772_323_200_000),
    }
}
