//! Views of flows and queues.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Flow of the active configuration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowDetail {
    pub name: String,
    pub source: String,
    /// Method and path.
    pub route: String,
    /// Verification scheme; `none` without verification.
    pub verify: String,
    /// Accepts every caller.
    pub open: bool,
    /// Whether its source is paused.
    pub paused: bool,
    /// Queues that its events are put in.
    pub queues: Vec<String>,
    /// Workers of these queues.
    pub workers: Vec<String>,
    /// How long a key is remembered, such as `30d`.
    pub key_lifetime: String,
    /// Requests that its source may send, such as `100/s`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_limit: Option<String>,
    /// Longest body, in bytes.
    pub body_bytes_max: u64,
}

/// Queue of the active configuration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    pub name: String,
    /// Workers that consume it.
    pub workers: Vec<String>,
    /// Jobs that wait or run.
    pub live: u64,
    /// Dead and unknown jobs that are in it as a dead-letter queue.
    pub dead_letters: u64,
    /// Whether it is paused; its workers are too.
    pub paused: bool,
    /// How long a job may wait, such as `14d`.
    pub retention: String,
    /// How long one attempt may take, such as `90s`.
    pub visibility_timeout: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dead_letter_queue: Option<String>,
    /// When the oldest live job of its workers was created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_at: Option<String>,
}
