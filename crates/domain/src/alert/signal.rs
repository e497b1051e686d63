//! What a node looks like now, and which conditions hold.

use std::time::Duration;

use super::kind::AlertKind;
use super::rules::{AlertRules, EffectiveRule, Group};
use super::silence::SourceActivity;
use crate::time::Time;
use crate::unit::{format_duration, grouped, plural};

/// Window of recent calls.
const CALLS_WINDOW_SECONDS: u64 = 300;
/// A limit that would be reached within this time is told, however much of it is used.
const LIMIT_LASTS_MIN: Duration = Duration::from_secs(3600);
/// Conditions at one time; further ones are left out. Subjects are names of the configuration, so there are few.
pub const CONDITIONS_MAX: usize = 1_000;
/// Details of a grouped alert, in bytes; further subjects are left out.
const GROUP_DETAIL_MAX: usize = 1_000;

/// Inputs of the alerts at one moment.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Age of the oldest dead letter of each queue.
    pub dead_letters: Vec<(String, Duration)>,
    /// Age of the oldest job of each worker, without workers whose jobs wait on purpose.
    pub queues: Vec<(String, Duration)>,
    /// Destinations whose breaker is open or half-open, and when their calls began to fail.
    pub open_breakers: Vec<(String, Option<Time>)>,
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
    /// Events of each flow that have waited longer than its `respond_within`.
    pub late_responses: Vec<(String, u64)>,
    /// Budgets of destinations, and what others report about their daily limits.
    pub call_limits: Vec<CallLimit>,
}

/// Use of a daily limit of calls: of a budget, or as the destination reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimit {
    pub destination: String,
    pub used: u64,
    pub limit: u64,
    pub forecast: LimitForecast,
}

/// How long the rest of a limit lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitForecast {
    /// By the calls of the last five minutes.
    #[default]
    Recent,
    /// By the budget; `None`: until used calls come back.
    Budget(Option<Duration>),
}

impl CallLimit {
    /// How long the rest lasts, with this number of calls in the last five minutes; `None` if it lasts.
    fn lasts(&self, recent: u64) -> Option<Duration> {
        if let LimitForecast::Budget(lasts) = self.forecast {
            return lasts;
        }
        let rest = self.limit.saturating_sub(self.used);
        (recent > 0).then(|| Duration::from_secs(rest.saturating_mul(CALLS_WINDOW_SECONDS) / recent))
    }
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
    /// When it began, if that was before it could be seen.
    pub began: Option<Time>,
}

/// The conditions that are found with the rules of their alerts.
struct Found<'r> {
    rules: &'r AlertRules,
    conditions: Vec<Condition>,
}

impl Found<'_> {
    /// The rule of an alert that is on.
    fn rule(&self, kind: AlertKind, subject: &str) -> Option<EffectiveRule> {
        Some(self.rules.of(kind, subject)).filter(|rule| rule.enabled)
    }

    fn push(&mut self, kind: AlertKind, subject: &str, detail: String) {
        self.push_since(kind, subject, detail, None);
    }

    fn push_since(&mut self, kind: AlertKind, subject: &str, detail: String, began: Option<Time>) {
        if self.rule(kind, subject).is_some() {
            self.conditions.push(Condition { kind, subject: subject.to_owned(), detail, began });
        }
    }

    /// Joins the conditions of every kind that is grouped: one alert stands for all its subjects.
    fn grouped(self) -> Vec<Condition> {
        let mut joined: Vec<Condition> = Vec::new();
        for condition in self.conditions {
            let is_grouped = self.rules.of(condition.kind, "").group == Group::Kind;
            let known = joined.iter_mut().find(|other| is_grouped && other.kind == condition.kind);
            match known {
                Some(known) => {
                    known.began = known.began.into_iter().chain(condition.began).min();
                    if known.detail.len() < GROUP_DETAIL_MAX {
                        known.detail = format!("{}; {}", known.detail, condition.detail);
                    }
                }
                None if is_grouped => joined.push(Condition { subject: String::new(), ..condition }),
                None => joined.push(condition),
            }
        }
        joined.truncate(CONDITIONS_MAX);
        joined
    }
}

/// Every condition that holds, by the rules.
pub fn conditions(signals: &Signals, rules: &AlertRules) -> Vec<Condition> {
    let mut found = Found { rules, conditions: Vec::new() };
    of_jobs(signals, &mut found);
    of_destinations(signals, &mut found);
    of_sources(signals, &mut found);
    if signals.is_disk_full {
        found.push(AlertKind::DiskFull, "", "the disk is full: senders receive 503".into());
    }
    if let Some(problem) = &signals.clock {
        found.push(AlertKind::Clock, "", problem.clone());
    }
    found.grouped()
}

fn of_jobs(signals: &Signals, found: &mut Found<'_>) {
    for (queue, age) in &signals.dead_letters {
        let Some(rule) = found.rule(AlertKind::DeadLetters, queue).filter(|rule| *age >= rule.age()) else { continue };
        let detail = format!("the oldest dead letter of {queue} is older than {}", format_duration(rule.age()));
        found.push(AlertKind::DeadLetters, queue, detail);
    }
    for (worker, age) in &signals.queues {
        let Some(rule) = found.rule(AlertKind::QueueAge, worker).filter(|rule| *age >= rule.age()) else { continue };
        let detail = format!("the oldest job of worker:{worker} is older than {}", format_duration(rule.age()));
        found.push(AlertKind::QueueAge, worker, detail);
    }
    let reaches = |found: &Found<'_>, kind: AlertKind, subject: &str, count: u64| {
        found.rule(kind, subject).is_some_and(|rule| count >= rule.count())
    };
    if reaches(found, AlertKind::UnknownOutcomes, "", signals.unknown_outcomes) {
        let detail = format!("{} of unknown outcome to resolve", plural(signals.unknown_outcomes, "job"));
        found.push(AlertKind::UnknownOutcomes, "", detail);
    }
    if reaches(found, AlertKind::ApprovalsWaiting, "", signals.approvals_pending) {
        let detail = format!("{} pending", plural(signals.approvals_pending, "approval"));
        found.push(AlertKind::ApprovalsWaiting, "", detail);
    }
    for (flow, count) in &signals.late_responses {
        if reaches(found, AlertKind::ResponseLate, flow, *count) {
            let detail = format!("{} of flow:{flow} waited longer than respond_within", plural(*count, "event"));
            found.push(AlertKind::ResponseLate, flow, detail);
        }
    }
}

fn of_destinations(signals: &Signals, found: &mut Found<'_>) {
    for (name, since) in &signals.open_breakers {
        let detail = format!("the circuit breaker of destination:{name} is open: its calls keep failing");
        found.push_since(AlertKind::BreakerOpen, name, detail, *since);
    }
    for name in &signals.unauthorized {
        let detail = format!("destination:{name} rejects the credentials and is paused");
        found.push(AlertKind::Unauthorized, name, detail);
    }
    for limit in signals.call_limits.iter().filter(|limit| limit.limit > 0) {
        let name = &limit.destination;
        let Some(rule) = found.rule(AlertKind::CallLimit, name) else { continue };
        let recent = signals.calls.iter().find(|calls| calls.destination == *name).map_or(0, |calls| calls.total);
        let is_used = limit.used.saturating_mul(100) >= limit.limit.saturating_mul(rule.percent());
        let lasts = limit.lasts(recent);
        if is_used || lasts.is_some_and(|lasts| lasts < LIMIT_LASTS_MIN) {
            let (used, all) = (grouped(limit.used), grouped(limit.limit));
            let forecast = lasts.map_or(String::new(), |lasts| {
                let minutes = Duration::from_secs(lasts.as_secs() / 60 * 60);
                format!("; at the present pace the rest lasts {}", format_duration(minutes))
            });
            let detail = format!("{used} of {all} daily calls of destination:{name} are used{forecast}");
            found.push(AlertKind::CallLimit, name, detail);
        }
    }
    for calls in &signals.calls {
        let Some(rule) = found.rule(AlertKind::DestinationFailing, &calls.destination) else { continue };
        if calls.total < rule.count() || calls.failed.saturating_mul(100) < calls.total.saturating_mul(rule.percent()) {
            continue;
        }
        let (name, failed, total) = (&calls.destination, grouped(calls.failed), grouped(calls.total));
        let detail = format!("{failed} of {total} calls of destination:{name} failed within 5 minutes");
        found.push(AlertKind::DestinationFailing, name, detail);
    }
}

fn of_sources(signals: &Signals, found: &mut Found<'_>) {
    for activity in &signals.sources {
        let Some(rule) = found.rule(AlertKind::SourceSilent, &activity.source) else { continue };
        let Some(usual) = activity.silent(rule.count()) else { continue };
        let (source, quiet) = (&activity.source, format_duration(activity.quiet_minutes()));
        let detail = format!("no event of source:{source} for {quiet}; this hour of the week usually brings {usual}");
        found.push(AlertKind::SourceSilent, source, detail);
    }
    for (source, code) in &signals.refused_jumps {
        // One alert for a source, whatever codes jump.
        let is_known = |known: &Condition| known.kind == AlertKind::RefusedJump && known.subject == *source;
        if !found.conditions.iter().any(is_known) {
            found.push(AlertKind::RefusedJump, source, format!("rejected requests of source:{source} jumped: {code}"));
        }
    }
    for (source, count) in &signals.late_duplicates {
        let Some(rule) = found.rule(AlertKind::LateDuplicates, source) else { continue };
        if *count >= rule.count() {
            let requests = plural(*count, "request");
            let detail = format!("{requests} of source:{source} came after their key had expired, within an hour");
            found.push(AlertKind::LateDuplicates, source, detail);
        }
    }
    for (source, notices) in &signals.payload_drift {
        let Some(rule) = found.rule(AlertKind::PayloadDrift, source) else { continue };
        if *notices >= rule.count() {
            let detail =
                format!("the payloads of source:{source} have changed: fields appeared, are gone or have another type");
            found.push(AlertKind::PayloadDrift, source, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::kind::ALERTS;
    use crate::alert::rules::AlertRule;

    const MINUTES: fn(u64) -> Duration = |minutes| Duration::from_secs(minutes * 60);

    fn kinds(signals: &Signals, rules: AlertRules) -> Vec<(&'static str, String)> {
        conditions(signals, &rules).into_iter().map(|found| (found.kind.name(), found.subject)).collect()
    }

    #[test]
    fn healthy_node_has_no_condition() {
        let signals = Signals {
            dead_letters: vec![("leads-dlq".into(), MINUTES(59))],
            queues: vec![("crm".into(), MINUTES(14))],
            calls: vec![CallCounts { destination: "crm".into(), failed: 9, total: 9 }],
            late_duplicates: vec![("website".into(), 9)],
            late_responses: vec![("website".into(), 0)],
            ..Signals::default()
        };
        assert_eq!(kinds(&signals, AlertRules::default()), []);
    }

    #[test]
    fn every_kind_of_alert_has_its_condition_and_can_be_turned_off() {
        let signals = Signals {
            dead_letters: vec![("leads-dlq".into(), MINUTES(60))],
            queues: vec![("to-crm".into(), MINUTES(15))],
            open_breakers: vec![("crm".into(), None)],
            unauthorized: vec!["mail".into()],
            calls: vec![CallCounts { destination: "crm".into(), failed: 5, total: 10 }],
            sources: vec![SourceActivity::stopped("shop", 20)],
            refused_jumps: vec![("website".into(), "signature".into()), ("website".into(), "replayed".into())],
            late_duplicates: vec![("website".into(), 10)],
            unknown_outcomes: 1,
            approvals_pending: 1,
            is_disk_full: true,
            clock: Some("the clock is ahead".into()),
            payload_drift: vec![("website".into(), 1)],
            late_responses: vec![("website-leads".into(), 1)],
            call_limits: vec![CallLimit {
                destination: "crm".into(),
                used: 80,
                limit: 100,
                forecast: LimitForecast::Recent,
            }],
        };
        let found = |rules: Vec<AlertRule>| {
            let mut found: Vec<&str> =
                kinds(&signals, AlertRules::new(rules)).into_iter().map(|(kind, _)| kind).collect();
            found.sort_unstable();
            found
        };
        let mut all: Vec<&str> = ALERTS.iter().map(|spec| spec.name).collect();
        all.sort_unstable();
        assert_eq!(found(vec![]), all);
        for spec in &ALERTS {
            let off = AlertRule { enabled: Some(false), ..AlertRule::new(spec.kind, None) };
            assert!(!found(vec![off]).contains(&spec.name), "{}", spec.name);
        }
    }

    #[test]
    fn thresholds_of_a_subject_apply_to_it_alone() {
        let signals = Signals {
            queues: vec![("crm".into(), MINUTES(2)), ("mail".into(), MINUTES(2))],
            calls: vec![CallCounts { destination: "crm".into(), failed: 1, total: 4 }],
            ..Signals::default()
        };
        let age = AlertRule { age: Some(MINUTES(1)), ..AlertRule::new(AlertKind::QueueAge, Some("crm".into())) };
        let calls =
            AlertRule { count: Some(4), percent: Some(25), ..AlertRule::new(AlertKind::DestinationFailing, None) };
        let found = kinds(&signals, AlertRules::new(vec![age, calls]));
        assert_eq!(found, [("queue-age", "crm".to_owned()), ("destination-failing", "crm".to_owned())]);
    }

    #[test]
    fn daily_limit_is_told_by_its_share_or_by_the_pace() {
        let details = |used: u64, recent: u64| {
            let signals = Signals {
                calls: vec![CallCounts { destination: "crm".into(), failed: 0, total: recent }],
                call_limits: vec![CallLimit {
                    destination: "crm".into(),
                    used,
                    limit: 12_000,
                    forecast: LimitForecast::Recent,
                }],
                ..Signals::default()
            };
            conditions(&signals, &AlertRules::default()).pop().map(|found| found.detail)
        };
        assert_eq!(details(9_599, 0), None);
        assert_eq!(details(9_600, 0).unwrap(), "9,600 of 12,000 daily calls of destination:crm are used");
        assert_eq!(details(0, 999), None, "an hour and a moment");
        let soon = details(0, 2_000).unwrap();
        assert!(soon.ends_with("are used; at the present pace the rest lasts 30m"), "{soon}");
    }

    #[test]
    fn grouped_kind_is_one_condition_for_all_subjects() {
        let names = || (0..10_000).map(|n| (format!("d{n}"), Some(Time(n))));
        let signals = Signals { open_breakers: names().collect(), ..Signals::default() };
        let group = AlertRule { group: Some(Group::Kind), ..AlertRule::new(AlertKind::BreakerOpen, None) };
        let off = AlertRule { enabled: Some(false), ..AlertRule::new(AlertKind::BreakerOpen, Some("d0".into())) };
        let found = conditions(&signals, &AlertRules::new(vec![group, off]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].subject.as_str(), found[0].began), ("", Some(Time(1))));
        assert!(found[0].detail.contains("destination:d2") && found[0].detail.len() < 2 * GROUP_DETAIL_MAX);
        assert_eq!(conditions(&signals, &AlertRules::default()).len(), CONDITIONS_MAX);
    }
}
