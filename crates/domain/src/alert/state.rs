//! State of each alert, and its changes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kind::{AlertKind, Severity};
use super::rules::AlertRules;
use super::signal::Condition;
use crate::time::Time;

/// A condition must be gone for so long before its alert recovers, so that one that comes and goes is one alert.
const RECOVERY: Duration = Duration::from_secs(60);
/// How long a recovered alert is listed.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The condition holds, and the hold time is not over.
    Pending,
    Firing,
    Recovered,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "pending",
            Phase::Firing => "firing",
            Phase::Recovered => "recovered",
        }
    }

    pub fn parse(word: &str) -> Option<Phase> {
        [Phase::Pending, Phase::Firing, Phase::Recovered].into_iter().find(|phase| phase.as_str() == word)
    }
}

/// An alert of one kind about one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    pub kind: AlertKind,
    /// Empty for the node.
    pub subject: String,
    pub phase: Phase,
    /// When the phase began.
    pub since: Time,
    /// By the rule that it fired under: its recovery is notified with the same severity.
    pub severity: Severity,
    /// When what it tells of began: at the latest when the condition was seen.
    pub began: Time,
    /// Since when the condition of a firing alert is gone.
    pub clear_since: Option<Time>,
    /// Number of changes to firing or recovered. It identifies the notification.
    pub changes: u64,
    /// The change that was notified last.
    pub notified: u64,
    /// What was wrong when it fired.
    pub detail: String,
    /// The operator who acknowledged it; empty for none.
    pub acknowledged_by: String,
    /// Changes until this time are not notified.
    pub snoozed_until: Option<Time>,
}

impl Alert {
    fn new(condition: &Condition, now: Time) -> Alert {
        Alert {
            kind: condition.kind,
            subject: condition.subject.clone(),
            phase: Phase::Pending,
            since: now,
            severity: condition.kind.spec().severity,
            began: condition.began.map_or(now, |began| began.min(now)),
            clear_since: None,
            changes: 0,
            notified: 0,
            detail: condition.detail.clone(),
            acknowledged_by: String::new(),
            snoozed_until: None,
        }
    }

    pub fn key(&self) -> (AlertKind, String) {
        (self.kind, self.subject.clone())
    }

    /// Whether the last change is not notified yet.
    pub fn is_to_notify(&self) -> bool {
        self.changes > self.notified
    }

    /// Whether the last change is notified now: not while the alert is snoozed.
    pub fn is_due(&self, now: Time) -> bool {
        self.is_to_notify() && self.snoozed_until.is_none_or(|until| until <= now)
    }

    /// The phase that the last change led to: firing and recovered alternate. A pending alert that fired before has recovered.
    pub fn last_change(&self) -> Phase {
        if self.changes.is_multiple_of(2) { Phase::Recovered } else { Phase::Firing }
    }

    /// Whether the last change led to the phase that was notified last.
    fn is_state_notified(&self) -> bool {
        (self.changes - self.notified.min(self.changes)).is_multiple_of(2)
    }

    /// The alert after its last change was notified.
    pub fn after_notice(self) -> Alert {
        Alert { notified: self.changes, ..self }
    }

    /// This state with what operators have marked on the stored one. An alert that begins again is not acknowledged.
    pub fn with_marks_of(self, stored: &Alert) -> Alert {
        let begins_again = stored.phase == Phase::Recovered && self.phase != Phase::Recovered;
        Alert {
            acknowledged_by: if begins_again { String::new() } else { stored.acknowledged_by.clone() },
            snoozed_until: stored.snoozed_until,
            ..self
        }
    }

    fn change(&mut self, phase: Phase, now: Time) {
        (self.phase, self.since, self.clear_since) = (phase, now, None);
        self.changes += 1;
    }

    /// The condition holds.
    fn hold(&mut self, condition: &Condition, rules: &AlertRules, now: Time) {
        match self.phase {
            Phase::Firing => self.clear_since = None,
            Phase::Pending => {}
            Phase::Recovered => {
                (self.phase, self.since) = (Phase::Pending, now);
                self.began = condition.began.map_or(now, |began| began.min(now));
                self.acknowledged_by.clear();
            }
        }
        if self.phase == Phase::Pending {
            self.detail.clone_from(&condition.detail);
            let rule = rules.of(self.kind, &self.subject);
            if now.since(self.since) >= rule.hold {
                self.severity = rule.severity;
                self.change(Phase::Firing, now);
            }
        }
    }

    /// The condition is gone. `false` if the alert is removed.
    fn clear(&mut self, now: Time) -> bool {
        match self.phase {
            Phase::Pending if self.changes == 0 => return false,
            // It fired before: it goes back to where it was.
            Phase::Pending => (self.phase, self.since) = (Phase::Recovered, now),
            Phase::Firing => {
                let since = *self.clear_since.get_or_insert(now);
                if now.since(since) >= RECOVERY {
                    self.change(Phase::Recovered, now);
                }
            }
            Phase::Recovered => return now.since(self.since) < KEPT || self.is_to_notify(),
        }
        true
    }
}

/// Alerts that are written and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertChanges {
    pub changed: Vec<Alert>,
    pub removed: Vec<(AlertKind, String)>,
}

impl AlertChanges {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Compares the conditions with the known alerts. A change that is due to be notified is notified before the next one: until then the
/// alert stays as it is, so that its notice says what was stored and has the same key however often it is sent.
pub fn step(known: &[Alert], conditions: &[Condition], rules: &AlertRules, now: Time) -> AlertChanges {
    let mut holds: BTreeMap<(AlertKind, &str), &Condition> = BTreeMap::new();
    for condition in conditions {
        holds.entry((condition.kind, condition.subject.as_str())).or_insert(condition);
    }
    let mut changes = AlertChanges::default();
    for alert in known {
        let mut next = alert.clone();
        let condition = holds.remove(&(alert.kind, alert.subject.as_str()));
        if alert.is_due(now) {
            if !alert.is_state_notified() {
                continue;
            }
            // The alert changed and changed back while it was snoozed.
            next.notified = next.changes;
        }
        let stays = match condition {
            Some(condition) => {
                next.hold(condition, rules, now);
                true
            }
            None => next.clear(now),
        };
        match stays {
            true if next != *alert => changes.changed.push(next),
            true => {}
            false => changes.removed.push(next.key()),
        }
    }
    for condition in holds.into_values() {
        let mut alert = Alert::new(condition, now);
        alert.hold(condition, rules, now);
        changes.changed.push(alert);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::rules::AlertRule;

    const START: Time = Time(1_772_323_200_000);

    fn breaker() -> Condition {
        Condition { kind: AlertKind::BreakerOpen, subject: "crm".into(), detail: "open".into(), began: Some(START) }
    }

    fn unknown() -> Condition {
        Condition { kind: AlertKind::UnknownOutcomes, subject: String::new(), detail: "1 job".into(), began: None }
    }

    fn at(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    /// A store of alerts that counts notices.
    #[derive(Default)]
    struct World {
        alerts: Vec<Alert>,
        notices: Vec<(Phase, u64)>,
    }

    impl World {
        fn step(&mut self, conditions: &[Condition], now: Time) {
            let changes = step(&self.alerts, conditions, &AlertRules::default(), now);
            self.alerts.retain(|alert| !changes.removed.contains(&alert.key()));
            for alert in changes.changed {
                self.alerts.retain(|known| known.key() != alert.key());
                self.alerts.push(alert);
            }
            for alert in self.alerts.iter_mut().filter(|alert| alert.is_due(now)) {
                self.notices.push((alert.phase, alert.changes));
                *alert = alert.clone().after_notice();
            }
        }
    }

    #[test]
    fn ten_thousand_failures_of_one_kind_make_one_alert_and_one_recovery() {
        let mut world = World::default();
        // The breaker closes for a moment with every probe.
        for second in 0..10_000 {
            let conditions = if second % 40 == 39 { vec![] } else { vec![breaker()] };
            world.step(&conditions, at(second));
        }
        (10_000..20_000).for_each(|second| world.step(&[], at(second)));
        assert_eq!(world.notices, [(Phase::Firing, 1), (Phase::Recovered, 2)]);
        world.step(&[breaker()], at(20_000));
        assert_eq!(world.notices.last(), Some(&(Phase::Firing, 3)), "it is an alert again");
    }

    #[test]
    fn alert_fires_once_its_hold_time_is_over_and_a_shorter_condition_leaves_no_trace() {
        let mut world = World::default();
        world.step(&[unknown()], at(0));
        world.step(&[unknown()], at(599));
        assert_eq!((world.alerts[0].phase, world.notices.len()), (Phase::Pending, 0));
        world.step(&[], at(599));
        assert!(world.alerts.is_empty());
        world.step(&[unknown()], at(700));
        world.step(&[unknown()], at(1_300));
        assert_eq!(world.notices, [(Phase::Firing, 1)]);
    }

    #[test]
    fn snoozed_alert_changes_and_is_not_notified() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        world.alerts[0].snoozed_until = Some(at(600));
        world.step(&[], at(10));
        world.step(&[], at(100));
        assert_eq!((world.alerts[0].phase, world.notices.len()), (Phase::Recovered, 1));
        world.step(&[], at(600));
        assert_eq!(world.notices.last(), Some(&(Phase::Recovered, 2)), "who was told that it fires is told of its end");
        world.step(&[breaker()], at(700));
        assert_eq!(world.notices.last(), Some(&(Phase::Firing, 3)));
    }

    #[test]
    fn alert_that_fires_at_the_end_of_its_snooze_is_told() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        world.step(&[], at(10));
        world.step(&[], at(100));
        world.alerts[0].snoozed_until = Some(at(600));
        world.step(&[breaker()], at(200));
        assert_eq!((world.alerts[0].phase, world.notices.len()), (Phase::Firing, 2));
        world.step(&[breaker()], at(600));
        assert_eq!(world.notices.last(), Some(&(Phase::Firing, 3)));
    }

    #[test]
    fn alert_that_is_back_in_the_state_that_was_told_is_not_told_again_after_its_snooze() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        world.alerts[0].snoozed_until = Some(at(600));
        world.step(&[], at(10));
        world.step(&[], at(100));
        world.step(&[breaker()], at(200));
        world.step(&[breaker()], at(600));
        world.step(&[breaker()], at(700));
        assert_eq!((world.notices.len(), world.alerts[0].is_to_notify()), (1, false), "it still fires");
    }

    #[test]
    fn recovery_during_a_snooze_that_ends_while_the_alert_is_pending_is_told_as_a_recovery() {
        let mut world = World::default();
        world.step(&[unknown()], at(0));
        world.step(&[unknown()], at(600));
        world.alerts[0].snoozed_until = Some(at(1_000));
        world.step(&[], at(700));
        world.step(&[], at(800));
        world.step(&[unknown()], at(900));
        assert_eq!((world.alerts[0].phase, world.alerts[0].last_change()), (Phase::Pending, Phase::Recovered));
        world.step(&[unknown()], at(1_000));
        world.step(&[unknown()], at(1_500));
        let states: Vec<u64> = world.notices.iter().map(|(_, change)| *change).collect();
        assert_eq!(states, [1, 2, 3]);
    }

    #[test]
    fn acknowledgement_ends_with_the_alert() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        world.alerts[0].acknowledged_by = "ann".into();
        world.step(&[], at(10));
        world.step(&[], at(100));
        assert_eq!(world.alerts[0].acknowledged_by, "ann");
        world.step(&[breaker()], at(200));
        assert_eq!(world.alerts[0].acknowledged_by, "");
    }

    #[test]
    fn unchanged_conditions_write_nothing() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        assert_eq!(step(&world.alerts, &[breaker()], &AlertRules::default(), at(500)), AlertChanges::default());
    }

    #[test]
    fn recovered_alert_is_listed_for_a_week() {
        let mut world = World::default();
        world.step(&[breaker()], at(0));
        world.step(&[], at(10));
        world.step(&[], at(100));
        world.step(&[], at(6 * 86_400));
        assert_eq!(world.alerts.len(), 1);
        world.step(&[], at(8 * 86_400));
        assert!(world.alerts.is_empty());
    }

    #[test]
    fn severity_and_hold_time_are_those_of_the_rule() {
        let rule = AlertRule {
            severity: Some(Severity::Warning),
            hold: Some(Duration::from_secs(30)),
            ..AlertRule::new(AlertKind::BreakerOpen, Some("crm".into()))
        };
        let rules = AlertRules::new(vec![rule]);
        let pending = step(&[], &[breaker()], &rules, at(0)).changed;
        assert_eq!(pending[0].phase, Phase::Pending);
        let fired = step(&pending, &[breaker()], &rules, at(30)).changed;
        assert_eq!((fired[0].phase, fired[0].severity, fired[0].began), (Phase::Firing, Severity::Warning, START));
        let notified: Vec<Alert> = fired.into_iter().map(Alert::after_notice).collect();
        // The rule is gone when it recovers: the channel that was told of the alert is told of its end.
        let gone = step(&notified, &[], &AlertRules::default(), at(40)).changed;
        let recovered = step(&gone, &[], &AlertRules::default(), at(100)).changed;
        assert_eq!((recovered[0].phase, recovered[0].severity), (Phase::Recovered, Severity::Warning));
    }
}
