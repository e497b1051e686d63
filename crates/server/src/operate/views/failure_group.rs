//! Failure groups.

use serde::{Deserialize, Serialize};
use sluice_domain::failure_group::FailureGroup;
use utoipa::ToSchema;

/// Dead letters of one worker with one failure.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroupView {
    /// `group_7`.
    pub id: String,
    pub worker: String,
    /// Failure class, such as `permanent`.
    pub class: String,
    /// Failure code, such as `STRING_TOO_LONG`.
    pub code: String,
    /// `open`, `acknowledged` or `resolved`.
    pub state: String,
    /// Dead letters now.
    pub count: u64,
    /// Dead letters ever: those that were replayed or dropped count too.
    pub total: u64,
    pub first_at: String,
    pub last_at: String,
    /// The newest dead letter.
    pub last_job: String,
    /// What the newest one failed with, masked; empty once it is replayed or deleted.
    pub message: String,
    /// When the state began.
    pub changed_at: String,
    /// Who set the state; absent if a dead letter did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

impl FailureGroupView {
    /// `message` is masked.
    pub fn new(group: FailureGroup, message: String) -> FailureGroupView {
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        FailureGroupView {
            id: group.id.to_string(),
            worker: group.key.worker.to_string(),
            class: group.key.class.to_owned(),
            code: group.key.code.to_string(),
            state: group.state.to_string(),
            count: group.count,
            total: group.total,
            first_at: group.first_at.to_string(),
            last_at: group.last_at.to_string(),
            last_job: group.last_job.to_string(),
            message,
            changed_at: group.changed_at.to_string(),
            actor: said(group.actor),
            reason: said(group.reason),
        }
    }
}
