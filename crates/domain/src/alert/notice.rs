//! Notices: events that playbooks handle like any other, with their retries, effect keys, gates and dead letters.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::kind::{AlertKind, Severity};
use super::settings::AlertSettings;
use super::state::{Alert, Phase};
use super::{EVENT_TYPE, SOURCE};
use crate::config::Config;
use crate::event::{Audit, Event};
use crate::key::{self, KeyDigest, TENANT};
use crate::mutant::Mutant;
use crate::record::{EventDraft, EventRecord, NewEvent};
use crate::time::Time;
use crate::unit::format_duration;

/// A key must outlive every repetition of its notice.
const KEY_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// Length of a title: PagerDuty takes 1,024 characters, Opsgenie 130.
const TITLE_MAX: usize = 130;

/// What a notice of an alert says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    kind: AlertKind,
    subject: String,
    /// firing, recovered or test.
    state: &'static str,
    severity: Severity,
    detail: String,
    since: Time,
    began: Time,
    key_text: String,
}

impl Notice {
    /// The last change of an alert. Its key is the same however often it is sent. The time of the change is part of it: an alert that
    /// was forgotten after its recovery counts its changes from one again.
    pub fn of(alert: &Alert) -> Notice {
        let (name, subject) = (alert.kind.name(), &alert.subject);
        Notice {
            kind: alert.kind,
            subject: subject.clone(),
            state: alert.last_change().as_str(),
            severity: alert.severity,
            detail: alert.detail.clone(),
            since: alert.since,
            began: alert.began,
            key_text: format!("alert:{name}:{subject}:{}:{}", alert.changes, alert.since.0),
        }
    }

    /// A notice that an operator asks for.
    pub fn test(severity: Severity, now: Time) -> Notice {
        Notice {
            kind: AlertKind::BreakerOpen,
            subject: "test".to_owned(),
            state: "test",
            severity,
            detail: "a test of the notification; nothing is wrong".to_owned(),
            since: now,
            began: now,
            key_text: format!("alert:test:{now}"),
        }
    }

    #[cfg(test)]
    pub(super) fn key_state(&self) -> String {
        self.state.to_owned()
    }

    /// Name of the alert in other systems: the same for its firing and its recovery.
    fn alias(&self) -> String {
        match self.state {
            "test" => format!("sluice:test:{}", self.since.0),
            _ => format!("sluice:{}:{}", self.kind.name(), self.subject),
        }
    }

    fn title(&self) -> String {
        let subject = if self.subject.is_empty() { String::new() } else { format!(" {}", self.subject) };
        Notice::shorten(&format!("{} {}{subject}: {}", self.state.to_uppercase(), self.kind.name(), self.detail))
    }

    /// Cuts a title to the length that every channel takes.
    pub(super) fn shorten(text: &str) -> String {
        match text.char_indices().nth(TITLE_MAX - 1) {
            Some((end, _)) if text[end..].chars().count() > 1 => format!("{}…", &text[..end]),
            _ => text.to_owned(),
        }
    }

    fn text(&self, settings: &AlertSettings) -> String {
        let subject = if self.subject.is_empty() { "the node".to_owned() } else { self.subject.clone() };
        let lasted = match self.state {
            "recovered" => {
                format!(" It began {} before.", format_duration(whole_seconds(self.since.since(self.began))))
            }
            _ => String::new(),
        };
        let mut lines = vec![format!(
            "{} {} alert {} about {subject}: {}.{lasted}",
            self.state.to_uppercase(),
            self.severity.as_str(),
            self.kind.name(),
            self.detail
        )];
        lines.push(format!("Runbook: {}", settings.runbook(self.kind)));
        lines.extend(settings.console_page().map(|page| format!("Console: {page}")));
        lines.join("\n")
    }

    /// The event that carries the notice.
    pub fn event(&self, settings: &AlertSettings) -> NoticeEvent {
        NoticeEvent {
            event_type: EVENT_TYPE,
            key_text: self.key_text.clone(),
            // Notices of one alert are sent in their order.
            lane: format!("{}:{}", self.kind.name(), self.subject),
            // A recovery and a test are no signal of something that happened.
            occurred_at: (self.state == Phase::Firing.as_str()).then_some(self.began),
            attributes: json!({
                "alert": self.kind.name(),
                "subject": self.subject,
                "state": self.state,
                "severity": self.severity.as_str(),
                "detail": self.detail,
                "since": self.since,
                "began": self.began,
                "runbook": settings.runbook(self.kind),
                "console": settings.console_page(),
                "alias": self.alias(),
                "title": self.title(),
                "text": self.text(settings),
            }),
            is_told: true,
        }
    }
}

/// Kind and age of the trouble that an event tells of, if it is the notice of an alert that fired.
pub fn signal(event: &EventRecord, now: Time) -> Option<(AlertKind, Duration)> {
    if event.event_type != EVENT_TYPE || &*event.source != SOURCE {
        return None;
    }
    let kind = AlertKind::parse(event.key_text.split(':').nth(1)?)?;
    Some((kind, now.since(event.occurred_at?)))
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

impl AlertSettings {
    /// Where the runbook of an alert is.
    pub fn runbook(&self, kind: AlertKind) -> String {
        match &self.runbook_url {
            Some(base) => format!("{base}/{}.md", kind.name()),
            None => kind.runbook(),
        }
    }

    fn console_page(&self) -> Option<String> {
        self.console_url.as_ref().map(|base| format!("{base}/console"))
    }
}

/// An event of the node itself, before it is accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeEvent {
    pub event_type: &'static str,
    /// Decides whether it was accepted before.
    pub key_text: String,
    /// Events of one lane are handled in order.
    pub lane: String,
    pub occurred_at: Option<Time>,
    pub attributes: Value,
    /// Without, the event is recorded and no playbook handles it.
    pub is_told: bool,
}

impl NoticeEvent {
    /// The event with a job for each playbook of its type.
    pub fn accept(&self, config: &Config, revision: &Arc<str>, now: Time) -> NewEvent {
        let key_text = match Mutant::NoticeKeyWithTime.is_on() {
            true => format!("{}:{}", self.key_text, now.0),
            false => self.key_text.clone(),
        };
        let mut audit = Audit { received_at: now, mapping_version: "1".into(), ..Audit::default() };
        audit.locate(EventDraft::event_id(SOURCE, &key_text));
        let event = Event {
            schema_version: "1.0".into(),
            event_id: key_text.clone(),
            event_type: self.event_type.into(),
            source: SOURCE.into(),
            occurred_at: self.occurred_at,
            idempotency_key: key_text.clone(),
            identity: Map::new(),
            attributes: self.attributes.as_object().cloned().unwrap_or_default(),
            routing: Map::new(),
            audit,
        };
        let playbooks = config.playbooks(self.event_type).filter(|_| self.is_told);
        let accepted = NewEvent::new(EventDraft {
            flow: SOURCE,
            source: &Arc::from(SOURCE),
            expires_at: now + KEY_LIFE,
            revision,
            trace: &data_encoding::HEXLOWER.encode(&KeyDigest::new(TENANT, SOURCE, &key_text).0),
            // The key alone says what is told. A repetition may count and date it otherwise, and is no other content.
            fingerprint: key::fingerprint_digest(&Value::from(key_text.as_str()), &[]),
            headers: "{}".to_owned(),
            raw: self.attributes.to_string().into_bytes(),
            event: &event,
            jobs: playbooks.map(|worker| worker.new_job()).collect(),
        });
        NewEvent { entity: KeyDigest::new(TENANT, SOURCE, &self.lane).prefix(), ..accepted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::rules::AlertRules;
    use crate::alert::signal::Condition;
    use crate::alert::state::step;

    fn fired(now: Time) -> Alert {
        let condition = Condition {
            kind: AlertKind::BreakerOpen,
            subject: "crm".into(),
            detail: "calls keep failing".into(),
            began: None,
        };
        step(&[], &[condition], &AlertRules::default(), now).changed.remove(0)
    }

    #[test]
    fn alert_that_was_forgotten_and_fires_again_is_another_notice() {
        let (first, again) = (fired(Time(1)), fired(Time(8 * 86_400_000)));
        assert_eq!((first.changes, again.changes), (1, 1));
        assert_ne!(Notice::of(&first).key_text, Notice::of(&again).key_text);
        assert_eq!(Notice::of(&first), Notice::of(&first.clone()));
    }

    #[test]
    fn notice_links_to_the_runbook_and_the_console() {
        let settings = AlertSettings {
            console_url: Some("https://sluice.example".into()),
            runbook_url: Some("https://wiki.example/runbooks".into()),
            ..AlertSettings::default()
        };
        let event = Notice::of(&fired(Time(0))).event(&settings);
        let lines: Vec<&str> = event.attributes["text"].as_str().unwrap().lines().collect();
        assert_eq!(
            lines,
            [
                "FIRING critical alert breaker-open about crm: calls keep failing.",
                "Runbook: https://wiki.example/runbooks/breaker-open.md",
                "Console: https://sluice.example/console",
            ]
        );
        let plain = Notice::of(&fired(Time(0))).event(&AlertSettings::default());
        assert_eq!(
            (&plain.attributes["runbook"], &plain.attributes["console"]),
            (&json!("docs/runbooks/breaker-open.md"), &Value::Null)
        );
    }

    #[test]
    fn title_fits_every_channel() {
        assert_eq!(Notice::shorten("short"), "short");
        assert_eq!(Notice::shorten(&"é".repeat(130)).chars().count(), 130);
        let long = Notice::shorten(&"é".repeat(131));
        assert!(long.chars().count() == 130 && long.ends_with('…'));
    }
}
