//! Views of workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Worker of the active configuration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    pub name: String,
    pub queue: String,
    /// Event type that it is bound to, for a playbook.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on: Option<String>,
    /// Jobs in flight at once, at most.
    pub concurrency: u32,
    /// Step ids, in their order.
    pub steps: Vec<String>,
    pub paused: bool,
    /// Number of jobs by state.
    #[schema(value_type = Object)]
    pub jobs: BTreeMap<String, u64>,
    /// When its oldest live job was created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_at: Option<String>,
}
