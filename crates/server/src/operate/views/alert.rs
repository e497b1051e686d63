//! Alerts.

use serde::{Deserialize, Serialize};
use sluice_domain::alert::Alert;
use utoipa::ToSchema;

/// An alert of one kind about one subject.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertView {
    /// Kind of the alert, such as `breaker-open`.
    pub alert: String,
    /// Queue, worker, destination or source; empty for the node.
    pub subject: String,
    /// `pending`, `firing` or `recovered`.
    pub state: String,
    /// `critical` or `warning`.
    pub severity: String,
    /// When the state began.
    pub since: String,
    /// What was wrong when it fired.
    pub detail: String,
    /// Path of the runbook in the documentation.
    pub runbook: String,
    /// The operator who acknowledged it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acknowledged_by: Option<String>,
    /// Changes until this time are not notified.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snoozed_until: Option<String>,
}

impl From<Alert> for AlertView {
    fn from(alert: Alert) -> AlertView {
        AlertView {
            alert: alert.kind.name().to_owned(),
            state: alert.phase.as_str().to_owned(),
            severity: alert.kind.spec().severity.as_str().to_owned(),
            since: alert.since.to_string(),
            detail: alert.detail,
            runbook: alert.kind.runbook(),
            acknowledged_by: Some(alert.acknowledged_by).filter(|name| !name.is_empty()),
            snoozed_until: alert.snoozed_until.map(|at| at.to_string()),
            subject: alert.subject,
        }
    }
}
