//! Alerts.

use serde::{Deserialize, Serialize};
use sluice_domain::alert::kind::{ALERTS, AlertSpec};
use sluice_domain::alert::{Alert, AlertSettings};
use sluice_domain::unit::format_duration;
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
    /// URL of the runbook, or its path in the documentation.
    pub runbook: String,
    /// The operator who acknowledged it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acknowledged_by: Option<String>,
    /// Changes until this time are not notified.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snoozed_until: Option<String>,
}

impl AlertView {
    pub fn new(alert: Alert, settings: &AlertSettings) -> AlertView {
        AlertView {
            alert: alert.kind.name().to_owned(),
            state: alert.phase.as_str().to_owned(),
            severity: alert.severity.as_str().to_owned(),
            since: alert.since.to_string(),
            detail: alert.detail,
            runbook: settings.runbook(alert.kind),
            acknowledged_by: Some(alert.acknowledged_by).filter(|name| !name.is_empty()),
            snoozed_until: alert.snoozed_until.map(|at| at.to_string()),
            subject: alert.subject,
        }
    }
}

/// What applies to one kind of alert, or to one kind about one subject.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertRuleView {
    /// Kind of the alert, such as `breaker-open`.
    pub alert: String,
    /// Queue, worker, destination, source or flow; empty for every subject without a rule of its own.
    pub subject: String,
    /// What the subjects are: queue, worker, destination, source, flow or node.
    pub about: String,
    pub enabled: bool,
    pub severity: String,
    /// How long the condition must hold.
    pub hold: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent: Option<u64>,
    /// `subject`: one alert for each subject. `kind`: one for all.
    pub group: String,
    /// What it fires for, with the default thresholds.
    pub fires_when: String,
    /// URL of the runbook, or its path in the documentation.
    pub runbook: String,
}

impl AlertRuleView {
    /// Every kind, each followed by the subjects that have a rule of their own.
    pub fn all(settings: &AlertSettings) -> Vec<AlertRuleView> {
        let mut views = Vec::new();
        for spec in &ALERTS {
            views.push(AlertRuleView::new(spec, "", settings));
            let own = settings.rules.written().iter().filter(|rule| rule.kind == spec.kind);
            views.extend(own.filter_map(|rule| Some(AlertRuleView::new(spec, rule.subject.as_deref()?, settings))));
        }
        views
    }

    fn new(spec: &AlertSpec, subject: &str, settings: &AlertSettings) -> AlertRuleView {
        let rule = settings.rules.of(spec.kind, subject);
        AlertRuleView {
            alert: spec.name.to_owned(),
            subject: subject.to_owned(),
            about: spec.subject.to_owned(),
            enabled: rule.enabled,
            severity: rule.severity.as_str().to_owned(),
            hold: format_duration(rule.hold),
            age: rule.thresholds.age_seconds.map(|_| format_duration(rule.age())),
            count: rule.thresholds.count,
            percent: rule.thresholds.percent,
            group: rule.group.as_str().to_owned(),
            fires_when: spec.about.to_owned(),
            runbook: settings.runbook(spec.kind),
        }
    }
}
