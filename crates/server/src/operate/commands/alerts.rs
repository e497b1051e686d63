//! Commands on alerts: acknowledge, snooze, test.

use serde::Deserialize;
use sluice_domain::access::Permission;
use sluice_domain::alert::kind::ALERTS;
use sluice_domain::alert::{AlertKind, EVENT_TYPE};
use sluice_domain::unit;
use sluice_ledger::{AlertMark, AuditEntry, MarkAlert};
use utoipa::ToSchema;

use super::need;
use crate::operate::operator::{OperateError, Operator};
use crate::watch::Notice;

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

    /// Sends a test notice. Returns the playbooks that handle it.
    pub async fn test_alerts(&self, actor: &str) -> Result<Vec<String>, OperateError> {
        self.permit(Permission::Operate)?;
        let live = self.revisions.current();
        let playbooks: Vec<String> = live.config.playbooks(EVENT_TYPE).map(|worker| worker.name.clone()).collect();
        if playbooks.is_empty() {
            let problem = format!("no playbook has `on: {EVENT_TYPE}`, so nothing is sent; see docs/observability.md");
            return Err(OperateError::Refused("no-playbook", problem));
        }
        let at = self.clock.ledger_time();
        self.ledger.accept(Notice::test(at).event(&live, at)).await?;
        let entry = AuditEntry {
            at,
            actor: self.actor(actor),
            action: "test".to_owned(),
            object: "alerts".to_owned(),
            detail: playbooks.join(", "),
        };
        self.ledger.audit(entry).await?;
        Ok(playbooks)
    }
}
