//! `alerts:`, how alerts are tuned and whom they are sent to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::alert::digest::DigestSettings;
use sluice_domain::alert::kind::{ALERT_NAMES, Severity, Thresholds};
use sluice_domain::alert::rules::{AlertRule, AlertRules, Group};
use sluice_domain::alert::silence::Holidays;
use sluice_domain::alert::{AlertKind, AlertSettings};
use sluice_domain::flow::Flow;
use sluice_domain::policy::{self, TimeOfDay};
use sluice_domain::unit::DURATION_MAX;

use super::declarations::{Declarations, Placed, SourceLocation};
use super::destination::read_url;
use super::diagnostics::{Diagnostics, Report};
use super::fields::Fields;
use super::node::{Span, YamlNode};
use super::notify::{self, Channel};
use super::problem::did_you_mean;
use super::rule::at_most_one;
use super::table::{SectionSpec, ValueType, key};
use super::worker::ReadWorker;

const AGE: ValueType = ValueType::Between(Duration::from_secs(1), DURATION_MAX);

pub(super) static ALERTS: SectionSpec = SectionSpec {
    title: "alerts",
    about: "Tunes the alerts of the node and says whom they are sent to. Without it every alert is on with its defaults, and playbooks with `on: alert.changed` send them. At most one such section.",
    keys: &[
        key("rules", ValueType::Tables("an alert rule"), "Changes of single alerts."),
        key("notify", ValueType::Tables("a channel of notices"), "Channels that alerts are sent to."),
        key("digest", ValueType::Table("a digest"), "Daily summary of dead letters.").or("none"),
        key(
            "console_url",
            ValueType::Url,
            "URL of the admin listener as people reach it; notices link to the console.",
        ),
        key("runbook_url", ValueType::Url, "Where the pages of docs/runbooks are; notices link to them.")
            .or("the path in the documentation"),
        key(
            "holidays",
            ValueType::Described("a list of dates such as 2026-12-25"),
            "Days on which sources send as on Sundays: source-silent compares them with Sundays.",
        ),
        key("zone", ValueType::Zone, "Time zone of the holidays and of the days that source-silent compares.")
            .or("UTC"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static ALERT_RULE: SectionSpec = SectionSpec {
    title: "an alert rule",
    about: "Changes one kind of alert, or one kind about one subject. A value that is absent keeps its default; `sluice alerts rules` shows the values that apply.",
    keys: &[
        key("alert", ValueType::OneOf(&ALERT_NAMES), "Kind of the alert.").required(),
        key("subject", ValueType::Name, "Queue, worker, destination, source or flow, as the kind says.")
            .or("every subject without a rule of its own"),
        key("enabled", ValueType::Flag, "false turns the alert off.").or("true"),
        key("severity", ValueType::OneOf(&Severity::NAMES), "Severity of its notices.").or("that of the kind"),
        key("hold", ValueType::Duration, "How long the condition must hold before the alert fires.")
            .or("that of the kind"),
        key("age", AGE, "Threshold of dead-letters and queue-age.").or("1h and 15m"),
        key(
            "count",
            ValueType::Count(1, 1_000_000_000),
            "Threshold of late-duplicates (requests of an hour), unknown-outcomes, approvals-waiting and response-late; fewest calls of destination-failing and fewest usual events of source-silent.",
        )
        .or("10 for late-duplicates, destination-failing and source-silent; 1 for the others"),
        key("percent", ValueType::Count(1, 100), "Threshold of destination-failing (failed calls) and call-limit (used calls).").or("50 and 80"),
        key(
            "group",
            ValueType::OneOf(&["subject", "kind"]),
            "subject: one alert for each subject. kind: one alert for all subjects of the kind.",
        )
        .or("subject"),
    ],
    later: &[],
    rules: &[at_most_one(
        &["subject", "group"],
        "`group` applies to all subjects of a kind, so it cannot be set for one",
        "put `group` into a rule without `subject`",
    )],
};

pub(super) static DIGEST: SectionSpec = SectionSpec {
    title: "a digest",
    about: "Sends the dead letters by cause once per day, with the commands to act. A node that was down at that time sends it later on the same day.",
    keys: &[
        key("at", ValueType::Clock, "Time of day.").or("08:00"),
        key("zone", ValueType::Zone, "Time zone of `at`.").or("the `zone` of alerts"),
        key("when_empty", ValueType::Flag, "Send it also if there are no dead letters.").or("false"),
        key("notify", ValueType::Described("a list of names of channels"), "Channels that it is sent to.")
            .or("every channel but those of PagerDuty and Opsgenie"),
    ],
    later: &[],
    rules: &[],
};

/// Time of day of a digest that names none.
const DIGEST_AT: TimeOfDay = TimeOfDay(8 * 60);

/// The settings with the places of what they name.
#[derive(Debug, Default)]
pub(super) struct ReadAlerts {
    settings: AlertSettings,
    subjects: Vec<(AlertKind, String, Span)>,
    pub(super) channels: Vec<Channel>,
    /// Channels that the digest names; `None` for all that take one.
    digest_channels: Option<Vec<(String, Span)>>,
}

impl ReadAlerts {
    pub(super) fn into_settings(self) -> AlertSettings {
        self.settings
    }
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    if let Some(first) = &names.alerts {
        report
            .error(node.span, "duplicate-name", format!("alerts are already defined in {}", first.place.describe()))
            .hint("keep one `alerts:` section");
        return;
    }
    let Some(fields) = Fields::open(report, node, &[&ALERTS]) else { return };
    let mut read = ReadAlerts::default();
    let mut rules = vec![];
    for item in items(&fields, "rules") {
        read_rule(report, item, &mut rules, &mut read.subjects);
    }
    for item in items(&fields, "notify") {
        notify::read(report, item, &mut read.channels);
    }
    let url = |name| read_url(&fields, name).map(|url| url.trim_end_matches('/').to_owned());
    let zone_name = fields.node("zone").and_then(|_| fields.zone("zone")).unwrap_or("UTC");
    let digest = fields.node("digest").and_then(|node| read_digest(report, node, zone_name, &mut read));
    read.settings = AlertSettings {
        rules: AlertRules::new(rules),
        holidays: read_holidays(&fields, zone_name),
        console_url: url("console_url"),
        runbook_url: url("runbook_url"),
        digest,
    };
    names.alerts = Some(Placed { place: SourceLocation::new(report, node.span), value: read });
}

/// The items of a list; anything else is reported.
fn items<'n>(fields: &Fields<'n, '_>, name: &'static str) -> &'n [YamlNode] {
    let Some(node) = fields.node(name) else { return &[] };
    match node.items() {
        Some(items) => items,
        None => fields.wrong(name, node).unwrap_or_default(),
    }
}

fn read_rule(
    report: Report<'_>,
    node: &YamlNode,
    rules: &mut Vec<AlertRule>,
    subjects: &mut Vec<(AlertKind, String, Span)>,
) {
    let Some(fields) = Fields::open(report, node, &[&ALERT_RULE]) else { return };
    let values = (fields.duration("hold"), fields.duration("age"), fields.count("count"), fields.count("percent"));
    let (enabled, severity) = (fields.flag("enabled"), fields.one_of("severity").and_then(Severity::parse));
    let group = fields.one_of("group").map(|word| if word == "kind" { Group::Kind } else { Group::Subject });
    let subject = fields.name("subject");
    let Some(kind) = fields.one_of("alert").and_then(AlertKind::parse) else { return };
    check_thresholds(&fields, kind);
    if let Some((subject, span)) = subject {
        match kind.spec().subject {
            "node" => {
                let message = format!("{} is about the node, so it has no subject", kind.name());
                report.error(span, "bad-value", message).hint("remove `subject`");
            }
            _ => subjects.push((kind, subject.to_owned(), span)),
        }
    }
    let (hold, age, count, percent) = values;
    let rule = AlertRule {
        enabled,
        severity,
        hold,
        age,
        count: count.map(u64::from),
        percent: percent.map(u64::from),
        group,
        ..AlertRule::new(kind, subject.map(|(subject, _)| subject.to_owned()))
    };
    if rules.iter().any(|other| (other.kind, &other.subject) == (rule.kind, &rule.subject)) {
        let subject = rule.subject.as_deref().map_or(String::new(), |subject| format!(" about `{subject}`"));
        report
            .error(fields.span, "duplicate-name", format!("there are two rules of {}{subject}", kind.name()))
            .hint("join them");
    }
    rules.push(rule);
}

/// Reports thresholds that the kind does not have.
fn check_thresholds(fields: &Fields<'_, '_>, kind: AlertKind) {
    let Thresholds { age_seconds, count, percent } = kind.spec().thresholds;
    let known = [("age", age_seconds.is_some()), ("count", count.is_some()), ("percent", percent.is_some())];
    let own: Vec<&str> = known.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    for (name, has) in known {
        if !has && fields.node(name).is_some() {
            let hint = match own.as_slice() {
                [] => "remove it; set `hold` to wait longer".to_owned(),
                own => format!("its thresholds are {}", own.join(" and ")),
            };
            let message = format!("{} has no threshold `{name}`", kind.name());
            fields.report.error(fields.key_span(name), "unknown-key", message).hint(hint);
        }
    }
}

fn read_digest(report: Report<'_>, node: &YamlNode, zone_name: &str, read: &mut ReadAlerts) -> Option<DigestSettings> {
    let fields = Fields::open(report, node, &[&DIGEST])?;
    let at = if fields.node("at").is_some() { fields.clock("at")? } else { DIGEST_AT };
    let zone = if fields.node("zone").is_some() { fields.zone("zone")? } else { zone_name };
    read.digest_channels = fields.node("notify").map(|node| notify::channel_names(report, node));
    Some(DigestSettings { at, zone: policy::zone(zone)?, when_empty: fields.flag("when_empty").unwrap_or(false) })
}

fn read_holidays(fields: &Fields<'_, '_>, zone_name: &str) -> Holidays {
    let mut holidays = Holidays::default();
    holidays.zone = policy::zone(zone_name).unwrap_or(holidays.zone);
    for item in items(fields, "holidays") {
        match item.text().and_then(|text| text.parse::<jiff::civil::Date>().ok()) {
            Some(day) => drop(holidays.days.insert(day)),
            None => fields
                .report
                .error(item.span, "bad-value", "a holiday must be a date")
                .hint("such as 2026-12-25: year, month, day"),
        }
    }
    holidays
}

/// Adds the playbooks of the channels.
pub(super) fn expand(
    diagnostics: &Diagnostics<'_>,
    names: &Declarations,
    workers: &mut BTreeMap<String, Placed<ReadWorker>>,
) {
    let Some(Placed { place, value: alerts }) = &names.alerts else { return };
    let report = diagnostics.report(&place.file);
    for channel in &alerts.channels {
        notify::add_alerts(report, channel, names, workers);
        let is_named = |chosen: &Vec<(String, Span)>| chosen.iter().any(|(name, _)| *name == channel.name);
        let takes_digest = match &alerts.digest_channels {
            Some(chosen) => is_named(chosen),
            None => alerts.settings.digest.is_some() && !notify::is_incident_system(channel, names),
        };
        if takes_digest {
            notify::add_digest(report, channel, names, workers);
        }
    }
    for (name, span) in alerts.digest_channels.iter().flatten() {
        notify::check_channel(report, (name, *span), names);
    }
}

/// Warns of rules about subjects that do not exist.
pub(super) fn check(
    diagnostics: &Diagnostics<'_>,
    names: &Declarations,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let Some(Placed { place, value: alerts }) = &names.alerts else { return };
    for (kind, subject, span) in &alerts.subjects {
        let what = kind.spec().subject;
        let known: Vec<String> = match what {
            "worker" => workers.keys().cloned().collect(),
            "destination" => names.destinations.keys().cloned().collect(),
            "source" => flows.values().map(|flow| flow.value.source.clone()).collect(),
            "flow" => flows.keys().cloned().collect(),
            // Dead-letter queues may be implicit: NAME-dlq.
            _ => continue,
        };
        if known.contains(subject) {
            continue;
        }
        let hint = match did_you_mean(subject, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{} is about a {what}", kind.name()),
        };
        let message = format!("there is no {what} `{subject}`, so this rule is never used");
        diagnostics.report(&place.file).warning(*span, "unknown-subject", message).hint(hint);
    }
}
