//! What operators tune: thresholds, hold times, severities and the grouping of alerts.

use std::time::Duration;

use super::kind::{AlertKind, Severity, Thresholds};

/// Rules of the configuration. Without any, every alert has its defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertRules {
    rules: Vec<AlertRule>,
}

/// Changes of one kind of alert, or of one kind about one subject. `None` keeps the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRule {
    pub kind: AlertKind,
    /// `None`: every subject without a rule of its own.
    pub subject: Option<String>,
    pub enabled: Option<bool>,
    pub severity: Option<Severity>,
    pub hold: Option<Duration>,
    pub age: Option<Duration>,
    pub count: Option<u64>,
    pub percent: Option<u64>,
    pub group: Option<Group>,
}

impl AlertRule {
    /// A rule that changes nothing.
    pub fn new(kind: AlertKind, subject: Option<String>) -> AlertRule {
        AlertRule {
            kind,
            subject,
            enabled: None,
            severity: None,
            hold: None,
            age: None,
            count: None,
            percent: None,
            group: None,
        }
    }
}

/// What one alert stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// One subject.
    #[default]
    Subject,
    /// All subjects of the kind.
    Kind,
}

impl Group {
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Subject => "subject",
            Group::Kind => "kind",
        }
    }
}

/// The rule that applies to an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveRule {
    pub enabled: bool,
    pub severity: Severity,
    pub hold: Duration,
    pub thresholds: Thresholds,
    pub group: Group,
}

impl EffectiveRule {
    /// Threshold of an age; never reached by a kind without one.
    pub fn age(&self) -> Duration {
        self.thresholds.age_seconds.map_or(Duration::MAX, Duration::from_secs)
    }

    pub fn count(&self) -> u64 {
        self.thresholds.count.unwrap_or(u64::MAX)
    }

    pub fn percent(&self) -> u64 {
        self.thresholds.percent.unwrap_or(u64::MAX)
    }
}

impl AlertRules {
    /// The caller makes sure that no two rules have the same kind and subject.
    pub fn new(rules: Vec<AlertRule>) -> AlertRules {
        AlertRules { rules }
    }

    /// Rules as written.
    pub fn written(&self) -> &[AlertRule] {
        &self.rules
    }

    /// The rule of an alert: that of its subject over that of its kind, each value by itself.
    pub fn of(&self, kind: AlertKind, subject: &str) -> EffectiveRule {
        let spec = kind.spec();
        let mut rule = EffectiveRule {
            enabled: true,
            severity: spec.severity,
            hold: kind.hold(),
            thresholds: spec.thresholds,
            group: Group::Subject,
        };
        let of_kind = self.rules.iter().filter(|written| written.kind == kind);
        let (general, own): (Vec<&AlertRule>, Vec<&AlertRule>) = of_kind
            .filter(|written| written.subject.as_deref().is_none_or(|own| own == subject))
            .partition(|written| written.subject.is_none());
        for written in general.into_iter().chain(own) {
            rule.enabled = written.enabled.unwrap_or(rule.enabled);
            rule.severity = written.severity.unwrap_or(rule.severity);
            rule.hold = written.hold.unwrap_or(rule.hold);
            rule.group = written.group.unwrap_or(rule.group);
            rule.thresholds = Thresholds {
                age_seconds: written.age.map(|age| age.as_secs()).or(rule.thresholds.age_seconds),
                count: written.count.or(rule.thresholds.count),
                percent: written.percent.or(rule.thresholds.percent),
            };
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_of_the_subject_counts_over_the_rule_of_the_kind() {
        let kind = AlertKind::QueueAge;
        let rules = AlertRules::new(vec![
            AlertRule { severity: Some(Severity::Critical), ..AlertRule::new(kind, Some("crm".into())) },
            AlertRule { age: Some(Duration::from_secs(60)), ..AlertRule::new(kind, None) },
            AlertRule { enabled: Some(false), ..AlertRule::new(kind, Some("slow".into())) },
        ]);
        let crm = rules.of(kind, "crm");
        assert_eq!((crm.severity, crm.age()), (Severity::Critical, Duration::from_secs(60)));
        assert_eq!(rules.of(kind, "other").severity, Severity::Warning);
        assert!(!rules.of(kind, "slow").enabled && rules.of(kind, "crm").enabled);
        assert_eq!(rules.of(AlertKind::DeadLetters, "crm").age(), Duration::from_secs(3600));
    }
}
