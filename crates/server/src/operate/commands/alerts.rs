//! Commands on alerts: acknowledge, snooze, test.

use serde::Deserialize;
use sluice_domain::access::Permission;
use sluice_domain::alert::kind::ALERTS;
use sluice_domain::alert::{AlertKind, EVENT_TYPE, Notice, Severity};
use sluice_domain::unit;
use sluice_ledger::{AlertMark, AuditEntry, MarkAlert};
use utoipa::ToSchema;

use super::need;
use crate::config::CHANNEL_PREFIX;
use crate::operate::operator::{OperateError, Operator};

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertRequest {
    /// Kind of the alert, such as `breaker-open`.
    pub alert: String,
    /// Queue, worker, destination or source; empty for the node.
    #[serde(default)]
    pub subject: String,
    /// Only of a snooze: duration without notices, such as `2h`.
    #[serde(rename = "for", default)]
    pub duration: Option<String>,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestAlertRequest {
    /// Channel of `alerts.notify`, or a playbook; every one if absent.
    #[serde(default)]
    pub channel: Option<String>,
    /// `critical` (default) or `warning`. A channel sends a test whatever severities it takes.
    #[serde(default)]
    pub severity: Option<String>,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    pub async fn acknowledge_alert(&self, request: &AlertRequest) -> Result<(), OperateError> {
        self.mark_alert(request, AlertMark::Acknowledged).await
    }

    pub async fn snooze_alert(&self, request: &AlertRequest) -> Result<(), OperateError> {
        let text = request.duration.as_deref().unwrap_or_default();
        need(text, "a snooze needs a duration, such as for: 2h")?;
        let duration = unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
        self.mark_alert(request, AlertMark::SnoozedUntil(self.clock.ledger_time() + duration)).await
    }

    async fn mark_alert(&self, request: &AlertRequest, mark: AlertMark) -> Result<(), OperateError> {
        self.permit(Permission::Operate)?;
        let kind = AlertKind::parse(&request.alert).ok_or_else(|| {
            let names: Vec<&str> = ALERTS.iter().map(|spec| spec.name).collect();
            OperateError::Invalid(format!("unknown alert `{}`; use one of {}", request.alert, names.join(", ")))
        })?;
        let mark = MarkAlert {
            kind,
            subject: request.subject.clone(),
            mark,
            actor: self.actor(&request.actor),
            reason: request.reason.clone(),
            at: self.clock.ledger_time(),
        };
        if self.ledger.mark_alert(mark).await? {
            return Ok(());
        }
        let subject = if request.subject.is_empty() { "the node" } else { &request.subject };
        Err(OperateError::NotFound(format!(
            "there is no alert {} about {subject}; `sluice alerts` lists them",
            request.alert
        )))
    }

    /// Sends a test notice through every channel, or through one. Returns the playbooks that handle it.
    pub async fn test_alerts(&self, request: &TestAlertRequest) -> Result<Vec<String>, OperateError> {
        self.permit(Permission::Operate)?;
        let severity = match request.severity.as_deref() {
            None => Severity::Critical,
            Some(word) => Severity::parse(word).ok_or_else(|| {
                OperateError::Invalid(format!("unknown severity `{word}`; use {}", Severity::NAMES.join(" or ")))
            })?,
        };
        let live = self.revisions.current();
        let all: Vec<String> = live.config.playbooks(EVENT_TYPE).map(|worker| worker.name.clone()).collect();
        if all.is_empty() {
            let problem = format!(
                "there is no channel under `alerts.notify` and no playbook with `on: {EVENT_TYPE}`, so nothing is sent; see docs/observability.md"
            );
            return Err(OperateError::Refused("no-playbook", problem));
        }
        let at = self.clock.ledger_time();
        let mut event = Notice::test(severity, at).event(&live.config.alerts).accept(&live.config, &live.revision, at);
        if let Some(channel) = &request.channel {
            let playbook = format!("{CHANNEL_PREFIX}{channel}");
            event.jobs.retain(|job| *job.worker == playbook || *job.worker == *channel);
            if event.jobs.is_empty() {
                let known: Vec<&str> =
                    all.iter().map(|name| name.strip_prefix(CHANNEL_PREFIX).unwrap_or(name)).collect();
                let problem = format!("there is no channel `{channel}`; there are {}", known.join(", "));
                return Err(OperateError::NotFound(problem));
            }
        }
        let playbooks: Vec<String> = event.jobs.iter().map(|job| job.worker.to_string()).collect();
        self.ledger.accept(event).await?;
        let entry = AuditEntry {
            at,
            actor: self.actor(&request.actor),
            action: "test".to_owned(),
            object: "alerts".to_owned(),
            detail: playbooks.join(", "),
        };
        self.ledger.audit(entry).await?;
        Ok(playbooks)
    }
}
