//! The alerts: one row per kind.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    DeadLetters,
    QueueAge,
    BreakerOpen,
    Unauthorized,
    DestinationFailing,
    SourceSilent,
    RefusedJump,
    LateDuplicates,
    UnknownOutcomes,
    ApprovalsWaiting,
    DiskFull,
    Clock,
    PayloadDrift,
    ResponseLate,
    CallLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Needs a person today.
    Warning,
    /// Needs a person now.
    Critical,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }

    pub const NAMES: [&'static str; 2] = ["critical", "warning"];

    pub fn parse(word: &str) -> Option<Severity> {
        [Severity::Critical, Severity::Warning].into_iter().find(|severity| severity.as_str() == word)
    }
}

/// What a condition is compared with. A kind has the values that its condition uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    pub age_seconds: Option<u64>,
    pub count: Option<u64>,
    pub percent: Option<u64>,
}

const NONE: Thresholds = Thresholds { age_seconds: None, count: None, percent: None };

const fn age(seconds: u64) -> Thresholds {
    Thresholds { age_seconds: Some(seconds), ..NONE }
}

const fn count(count: u64) -> Thresholds {
    Thresholds { count: Some(count), ..NONE }
}

/// Description of a kind of alert.
#[derive(Clone, Copy, Debug)]
pub struct AlertSpec {
    pub kind: AlertKind,
    /// In the ledger, the API and the name of the runbook; never changes.
    pub name: &'static str,
    pub severity: Severity,
    /// How long the condition must hold, in seconds.
    pub hold_seconds: u64,
    pub thresholds: Thresholds,
    /// What the subject names.
    pub subject: &'static str,
    pub about: &'static str,
}

use Severity::{Critical, Warning};

const MINUTE: u64 = 60;

/// All kinds, in the order of the enum.
pub const ALERTS: [AlertSpec; 15] = [
    row(
        AlertKind::DeadLetters,
        "dead-letters",
        (Warning, 0, age(60 * MINUTE)),
        "queue",
        "The oldest dead letter is older than an hour.",
    ),
    row(
        AlertKind::QueueAge,
        "queue-age",
        (Warning, 0, age(15 * MINUTE)),
        "worker",
        "The oldest job of a worker that nothing delays on purpose is older than 15 minutes.",
    ),
    row(
        AlertKind::BreakerOpen,
        "breaker-open",
        (Critical, 0, NONE),
        "destination",
        "The circuit breaker is open: calls keep failing and jobs wait.",
    ),
    row(
        AlertKind::Unauthorized,
        "unauthorized",
        (Critical, 0, NONE),
        "destination",
        "The destination rejected the credentials and is paused.",
    ),
    row(
        AlertKind::DestinationFailing,
        "destination-failing",
        (Warning, 2 * MINUTE, Thresholds { count: Some(10), percent: Some(50), ..NONE }),
        "destination",
        "At least half of the calls of the last five minutes failed or were throttled.",
    ),
    row(
        AlertKind::SourceSilent,
        "source-silent",
        (Warning, 0, count(10)),
        "source",
        "No event in the last hour, although this hour of the week usually brings some.",
    ),
    row(
        AlertKind::RefusedJump,
        "refused-jump",
        (Warning, MINUTE, NONE),
        "source",
        "Rejected requests jumped, such as those with a wrong signature.",
    ),
    row(
        AlertKind::LateDuplicates,
        "late-duplicates",
        (Warning, 0, count(10)),
        "source",
        "Requests were sent again after their key had expired, and each became a new event.",
    ),
    row(
        AlertKind::UnknownOutcomes,
        "unknown-outcomes",
        (Warning, 10 * MINUTE, count(1)),
        "node",
        "Effects of unknown outcome wait for an operator.",
    ),
    row(
        AlertKind::ApprovalsWaiting,
        "approvals-waiting",
        (Warning, 60 * MINUTE, count(1)),
        "node",
        "Approvals have waited for an operator for an hour.",
    ),
    row(AlertKind::DiskFull, "disk-full", (Critical, 0, NONE), "node", "The disk is full: senders receive 503."),
    row(
        AlertKind::Clock,
        "clock",
        (Warning, MINUTE, NONE),
        "node",
        "The clock of the machine differs from the ledger's time: nothing is pruned.",
    ),
    row(
        AlertKind::PayloadDrift,
        "payload-drift",
        (Warning, 0, count(1)),
        "source",
        "Fields of a source's payloads have appeared, are gone or have another type.",
    ),
    row(
        AlertKind::ResponseLate,
        "response-late",
        (Warning, 0, count(1)),
        "flow",
        "Events have waited longer than the `respond_within` of their flow.",
    ),
    row(
        AlertKind::CallLimit,
        "call-limit",
        (Warning, 0, Thresholds { percent: Some(80), ..NONE }),
        "destination",
        "The daily calls that the destination allows are nearly used, or would be within an hour.",
    ),
];

/// Names of all kinds, in the order of the enum.
pub const ALERT_NAMES: [&str; ALERTS.len()] = {
    let mut names = [""; ALERTS.len()];
    let mut place = 0;
    while place < ALERTS.len() {
        names[place] = ALERTS[place].name;
        place += 1;
    }
    names
};

const fn row(
    kind: AlertKind,
    name: &'static str,
    (severity, hold_seconds, thresholds): (Severity, u64, Thresholds),
    subject: &'static str,
    about: &'static str,
) -> AlertSpec {
    AlertSpec { kind, name, severity, hold_seconds, thresholds, subject, about }
}

impl AlertKind {
    pub fn spec(self) -> &'static AlertSpec {
        &ALERTS[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.spec().name
    }

    pub fn parse(name: &str) -> Option<AlertKind> {
        ALERTS.iter().find(|spec| spec.name == name).map(|spec| spec.kind)
    }

    /// How long the condition must hold before the alert fires, unless a rule says otherwise.
    pub fn hold(self) -> Duration {
        Duration::from_secs(self.spec().hold_seconds)
    }

    /// Path of the runbook in the documentation.
    pub fn runbook(self) -> String {
        format!("docs/runbooks/{}.md", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_row() {
        for (place, spec) in ALERTS.iter().enumerate() {
            assert_eq!((spec.kind as usize, AlertKind::parse(spec.name)), (place, Some(spec.kind)), "{}", spec.name);
        }
    }
}
