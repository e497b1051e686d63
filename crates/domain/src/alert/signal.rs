//! What a node looks like now, and which conditions hold.

use std::time::Duration;

use super::kind::AlertKind;
use super::silence::SourceActivity;
use crate::unit::{format_duration, grouped, plural};

/// Age of the oldest dead letter from which an alert fires.
const DEAD_LETTER_AGE: Duration = Duration::from_secs(60 * 60);
/// Age of the oldest job from which an alert fires.
const JOB_AGE: Duration = Duration::from_secs(15 * 60);
/// Calls of five minutes, and the share of failed ones in percent, from which a destination is failing.
const CALLS_MIN: u64 = 10;
const FAILED_PERCENT: u64 = 50;
/// Late duplicates of an hour from which an alert fires.
const LATE_DUPLICATES_MIN: u64 = 10;
/// Conditions at one time; further ones are left out. Subjects are names of the configuration, so there are few.
pub const CONDITIONS_MAX: usize = 1_000;

/// Inputs of the alerts at one moment.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Age of the oldest dead letter of each queue.
    pub dead_letters: Vec<(String, Duration)>,
    /// Age of the oldest job of each worker, without workers whose jobs wait on purpose.
    pub queues: Vec<(String, Duration)>,
    /// Destinations whose breaker is open or half-open.
    pub open_breakers: Vec<String>,
    /// Destinations that rejected the credentials.
    pub unauthorized: Vec<String>,
    /// Calls of the last five minutes.
    pub calls: Vec<CallCounts>,
    pub sources: Vec<SourceActivity>,
    /// Sources with a jump of rejected requests, and the problem code.
    pub refused_jumps: Vec<(String, String)>,
    /// Late duplicates of the last hour by source.
    pub late_duplicates: Vec<(String, u64)>,
    pub unknown_outcomes: u64,
    pub approvals_pending: u64,
    pub is_disk_full: bool,
    /// What is wrong with the clock.
    pub clock: Option<String>,
    /// Open notices about the payloads of each source.
    pub payload_drift: Vec<(String, u64)>,
}

/// Calls of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    pub destination: String,
    /// Outcomes retry, wait and unsure.
    pub failed: u64,
    pub total: u64,
}

/// Something that is wrong now. Alerts are grouped by kind and subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: AlertKind,
    /// Empty for the node.
    pub subject: String,
    pub detail: String,
}

fn condition(kind: AlertKind, subject: &str, detail: String) -> Condition {
    Condition { kind, subject: subject.to_owned(), detail }
}

/// Every condition that holds.
pub fn conditions(signals: &Signals) -> Vec<Condition> {
    let mut found = Vec::new();
    of_jobs(signals, &mut found);
    of_destinations(signals, &mut found);
    of_sources(signals, &mut found);
    if signals.is_disk_full {
        found.push(condition(AlertKind::DiskFull, "", "the disk is full: senders receive 503".into()));
    }
    found.extend(signals.clock.iter().map(|problem| condition(AlertKind::Clock, "", problem.clone())));
    found.truncate(CONDITIONS_MAX);
    found
}

fn of_jobs(signals: &Signals, found: &mut Vec<Condition>) {
    for (queue, _) in signals.dead_letters.iter().filter(|(_, age)| *age >= DEAD_LETTER_AGE) {
        let detail = format!("the oldest dead letter of {queue} is older than {}", format_duration(DEAD_LETTER_AGE));
        found.push(condition(AlertKind::DeadLetters, queue, detail));
    }
    for (worker, _) in signals.queues.iter().filter(|(_, age)| *age >= JOB_AGE) {
        let detail = format!("the oldest job of worker:{worker} is older than {}", format_duration(JOB_AGE));
        found.push(condition(AlertKind::QueueAge, worker, detail));
    }
    if signals.unknown_outcomes > 0 {
        let detail = format!("{} of unknown outcome to resolve", plural(signals.unknown_outcomes, "job"));
        found.push(condition(AlertKind::UnknownOutcomes, "", detail));
    }
    if signals.approvals_pending > 0 {
        let detail = format!("{} pending", plural(signals.approvals_pending, "approval"));
        found.push(condition(AlertKind::ApprovalsWaiting, "", detail));
    }
}

fn of_destinations(signals: &Signals, found: &mut Vec<Condition>) {
    for name in &signals.open_breakers {
        let detail = format!("the circuit breaker of destination:{name} is open: its calls keep failing");
        found.push(condition(AlertKind::BreakerOpen, name, detail));
    }
    for name in &signals.unauthorized {
        let detail = format!("destination:{name} rejects the credentials and is paused");
        found.push(condition(AlertKind::Unauthorized, name, detail));
    }
    let failing = |calls: &&CallCounts| {
        calls.total >= CALLS_MIN && calls.failed.saturating_mul(100) >= calls.total.saturating_mul(FAILED_PERCENT)
    };
    for calls in signals.calls.iter().filter(failing) {
        let (name, failed, total) = (&calls.destination, grouped(calls.failed), grouped(calls.total));
        let detail = format!("{failed} of {total} calls of destination:{name} failed within 5 minutes");
        found.push(condition(AlertKind::DestinationFailing, name, detail));
    }
}

fn of_sources(signals: &Signals, found: &mut Vec<Condition>) {
    for activity in signals.sources.iter().filter(|activity| activity.is_silent()) {
        let (source, usual) = (&activity.source, activity.usual().unwrap_or_default());
        let detail =
            format!("no event of source:{source} in the last hour; this hour of the week usually brings {usual}");
        found.push(condition(AlertKind::SourceSilent, source, detail));
    }
    for (source, code) in &signals.refused_jumps {
        // One alert for a source, whatever codes jump.
        if !found.iter().any(|known| known.kind == AlertKind::RefusedJump && known.subject == *source) {
            let detail = format!("rejected requests of source:{source} jumped: {code}");
            found.push(condition(AlertKind::RefusedJump, source, detail));
        }
    }
    for (source, count) in signals.late_duplicates.iter().filter(|(_, count)| *count >= LATE_DUPLICATES_MIN) {
        let requests = plural(*count, "request");
        let detail = format!("{requests} of source:{source} came after their key had expired, within an hour");
        found.push(condition(AlertKind::LateDuplicates, source, detail));
    }
    for (source, _) in signals.payload_drift.iter().filter(|(_, notices)| *notices > 0) {
        let detail =
            format!("the payloads of source:{source} have changed: fields appeared, are gone or have another type");
        found.push(condition(AlertKind::PayloadDrift, source, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(signals: &Signals) -> Vec<(&'static str, String)> {
        conditions(signals).into_iter().map(|found| (found.kind.name(), found.subject)).collect()
    }

    #[test]
    fn healthy_node_has_no_condition() {
        let signals = Signals {
            dead_letters: vec![("leads-dlq".into(), Duration::from_secs(59 * 60))],
            queues: vec![("crm".into(), Duration::from_secs(14 * 60))],
            calls: vec![CallCounts { destination: "crm".into(), failed: 9, total: 9 }],
            late_duplicates: vec![("website".into(), 9)],
            ..Signals::default()
        };
        assert_eq!(kinds(&signals), []);
    }

    #[test]
    fn every_kind_of_alert_has_its_condition() {
        let silent = SourceActivity { source: "shop".into(), last_hour: 0, weeks: vec![Some(20); 4] };
        let signals = Signals {
            dead_letters: vec![("leads-dlq".into(), DEAD_LETTER_AGE)],
            queues: vec![("to-crm".into(), JOB_AGE)],
            open_breakers: vec!["crm".into()],
            unauthorized: vec!["mail".into()],
            calls: vec![CallCounts { destination: "crm".into(), failed: 5, total: 10 }],
            sources: vec![silent],
            refused_jumps: vec![("website".into(), "signature".into()), ("website".into(), "replayed".into())],
            late_duplicates: vec![("website".into(), 10)],
            unknown_outcomes: 1,
            approvals_pending: 1,
            is_disk_full: true,
            clock: Some("the clock is ahead".into()),
            payload_drift: vec![("website".into(), 1)],
        };
        let mut found: Vec<&str> = conditions(&signals).iter().map(|found| found.kind.name()).collect();
        found.sort_unstable();
        let mut all: Vec<&str> = super::super::kind::ALERTS.iter().map(|spec| spec.name).collect();
        all.sort_unstable();
        assert_eq!(found, all);
    }
}
