//! Response clocks.

use serde::{Deserialize, Serialize};
use sluice_domain::respond::ResponseClock;
use sluice_ledger::ResponseCount;
use utoipa::ToSchema;

/// A response clock that runs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResponseView {
    pub event: String,
    pub flow: String,
    /// The job that answers the event.
    pub job: String,
    pub worker: String,
    /// The step whose effect is the answer; absent if it is the whole job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
    /// `waiting`, `at_risk` (a person was told) or `late`.
    pub state: String,
    pub received_at: String,
    pub deadline: String,
}

impl From<ResponseClock> for ResponseView {
    fn from(clock: ResponseClock) -> ResponseView {
        ResponseView {
            event: clock.event_id.to_string(),
            flow: clock.flow.to_string(),
            job: clock.job.to_string(),
            worker: clock.worker.to_string(),
            step: clock.step.map(|step| step.to_string()),
            state: clock.state.as_str().to_owned(),
            received_at: clock.received_at.to_string(),
            deadline: clock.deadline.to_string(),
        }
    }
}

/// Response clocks that run, of one flow in one state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResponseCountView {
    pub flow: String,
    /// `waiting`, `at_risk` or `late`.
    pub state: String,
    pub count: u64,
}

impl From<ResponseCount> for ResponseCountView {
    fn from(count: ResponseCount) -> ResponseCountView {
        ResponseCountView { flow: count.flow.to_string(), state: count.state.as_str().to_owned(), count: count.count }
    }
}
