//! Notices of alerts: events that playbooks handle like any other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use sluice_domain::alert::{Alert, AlertKind, EVENT_TYPE, SOURCE};
use sluice_domain::event::{Audit, Event};
use sluice_domain::key::{self, KeyDigest, TENANT};
use sluice_domain::time::Time;
use sluice_ledger::{EventDraft, NewEvent};

use crate::revisions::LoadedRevision;

/// A key must outlive every repetition of its notice.
const KEY_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// What a notice says.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    kind: AlertKind,
    subject: String,
    /// firing, recovered or test.
    state: &'static str,
    detail: String,
    since: Time,
    key_text: String,
}

impl Notice {
    /// The last change of an alert. Its key is the same however often it is sent.
    pub fn of(alert: &Alert) -> Notice {
        Notice {
            kind: alert.kind,
            subject: alert.subject.clone(),
            state: alert.phase.as_str(),
            detail: alert.detail.clone(),
            since: alert.since,
            key_text: format!("alert:{}:{}:{}", alert.kind.name(), alert.subject, alert.changes),
        }
    }

    /// A notice that an operator asks for.
    pub fn test(now: Time) -> Notice {
        Notice {
            kind: AlertKind::BreakerOpen,
            subject: "test".to_owned(),
            state: "test",
            detail: "a test of the notification; nothing is wrong".to_owned(),
            since: now,
            key_text: format!("alert:test:{now}"),
        }
    }

    /// The event, with a job for each playbook that handles it.
    pub fn event(&self, live: &LoadedRevision, now: Time) -> NewEvent {
        let body = json!({
            "alert": self.kind.name(),
            "subject": self.subject,
            "state": self.state,
            "severity": self.kind.spec().severity.as_str(),
            "detail": self.detail,
            "since": self.since,
            "runbook": self.kind.runbook(),
        });
        let mut audit = Audit { received_at: now, mapping_version: "1".into(), ..Audit::default() };
        audit.locate(EventDraft::event_id(SOURCE, &self.key_text));
        let normalized = Event {
            schema_version: "1.0".into(),
            event_id: self.key_text.clone(),
            event_type: EVENT_TYPE.into(),
            source: SOURCE.into(),
            occurred_at: Some(self.since),
            idempotency_key: self.key_text.clone(),
            identity: Map::new(),
            attributes: body.as_object().cloned().unwrap_or_default(),
            routing: Map::new(),
            audit,
        };
        let digest = KeyDigest::new(TENANT, SOURCE, &self.key_text);
        let event = NewEvent::new(EventDraft {
            flow: SOURCE,
            source: &Arc::from(SOURCE),
            expires_at: now + KEY_LIFE,
            revision: &live.revision,
            trace: &data_encoding::HEXLOWER.encode(&digest.0),
            fingerprint: key::fingerprint_digest(&body, &[]),
            headers: "{}".to_owned(),
            raw: body.to_string().into_bytes(),
            event: &normalized,
            jobs: live.config.playbooks(EVENT_TYPE).map(|worker| worker.new_job()).collect(),
        });
        // Notices of one alert are sent in their order.
        let alert = format!("{}:{}", self.kind.name(), self.subject);
        NewEvent { entity: KeyDigest::new(TENANT, SOURCE, &alert).prefix(), ..event }
    }
}
