//! `alerts.notify`: each channel becomes playbooks like any other, so that notices have the retries, effect keys, gates and dead
//! letters of every effect.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_domain::alert::kind::{ALERT_NAMES, Severity};
use sluice_domain::alert::{self, DIGEST_EVENT_TYPE, EVENT_TYPE};
use sluice_domain::destination::{DestinationKind, SlackTransport};

use super::declarations::{Declarations, Placed, add};
use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{Scalar, Span, YamlEntry, YamlKind, YamlNode};
use super::table::{SectionSpec, ValueType, key};
use super::worker::{self, ReadWorker};

pub(super) static CHANNEL: SectionSpec = SectionSpec {
    title: "a channel of notices",
    about: "Sends notices through a destination of type slack, smtp, http, pagerduty, opsgenie, teams, discord or twilio. It becomes a playbook `alert-NAME`: its jobs, retries and dead letters are those of any worker. PagerDuty and Opsgenie are told to close the incident when the alert recovers.",
    keys: &[
        key("name", ValueType::Name, "Unique name.").required(),
        key("destination", ValueType::Name, "Destination that carries the notices; its type decides how.").required(),
        key("severity", ValueType::Described("critical, warning, or a list of them"), "Severities that are sent here.")
            .or("all"),
        key("alerts", ValueType::Described("a list of kinds of alerts"), "Kinds that are sent here.").or("all"),
        key("recovery", ValueType::Flag, "Send a notice also when an alert recovers.").or("true"),
        key("channel", ValueType::Text, "For slack with a token: the channel's id, such as C0123456789."),
        key(
            "to",
            ValueType::Described("an address or a number, or a list of addresses"),
            "For smtp and twilio: recipients.",
        ),
        key(
            "url",
            ValueType::Text,
            "For http: path below the destination's base_url, or a whole URL. The body is JSON; see docs/observability.md.",
        ),
    ],
    later: &[],
    rules: &[],
};

/// Name of a channel's playbook, before the name of the channel.
pub(crate) const CHANNEL_PREFIX: &str = "alert-";
/// Types of destinations that carry notices.
const CARRIERS: [&str; 8] = ["slack", "smtp", "http", "pagerduty", "opsgenie", "teams", "discord", "twilio"];

/// The text of a notice for Slack. It may quote what a sender wrote: without its marks that is no mention of everybody and no link with
/// another name.
const SLACK_TEXT: &str = "{{ event.text | replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;') }}";

/// A channel as written.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: String,
    pub(super) span: Span,
    destination: (String, Span),
    severities: Vec<&'static str>,
    alerts: Vec<&'static str>,
    recovery: bool,
    /// Parameters of the action: name, value and place.
    parameters: Vec<(&'static str, Value, Span)>,
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, channels: &mut Vec<Channel>) {
    let Some(fields) = Fields::open(report, node, &[&CHANNEL]) else { return };
    let severities = words(&fields, "severity", &Severity::NAMES);
    let alerts = words(&fields, "alerts", &ALERT_NAMES);
    let recovery = fields.flag("recovery").unwrap_or(true);
    let parameters = ["channel", "to", "url"]
        .into_iter()
        .filter_map(|name| fields.node(name).map(|node| (name, node.to_value(), node.span)))
        .collect();
    let (Some((name, span)), Some((destination, at))) = (fields.name("name"), fields.name("destination")) else {
        return;
    };
    if channels.iter().any(|other| other.name == name) {
        report.error(span, "duplicate-name", format!("two channels have the name `{name}`"));
        return;
    }
    channels.push(Channel {
        name: name.to_owned(),
        span,
        destination: (destination.to_owned(), at),
        severities,
        alerts,
        recovery,
        parameters,
    });
}

/// One word or a list of them, each of these; empty if the key is absent.
fn words(fields: &Fields<'_, '_>, name: &'static str, known: &'static [&'static str]) -> Vec<&'static str> {
    let Some(node) = fields.node(name) else { return vec![] };
    let items = node.items().map_or_else(|| vec![node], |items| items.iter().collect());
    let mut found = vec![];
    for item in items {
        let text = item.text().unwrap_or_default();
        match known.iter().find(|word| **word == text) {
            Some(word) => found.push(*word),
            None => fields.report.error(item.span, "bad-value", format!("`{text}` is no value of `{name}`")).meant(
                text,
                known.iter().copied(),
                &format!("use {}", known.join(", ")),
            ),
        }
    }
    found
}

/// Names of channels: one, or a list.
pub(super) fn channel_names(report: Report<'_>, node: &YamlNode) -> Vec<(String, Span)> {
    let items = node.items().map_or_else(|| vec![node], |items| items.iter().collect());
    let mut found = vec![];
    for item in items {
        match item.text() {
            Some(name) => found.push((name.to_owned(), item.span)),
            None => report
                .error(
                    item.span,
                    "wrong-type",
                    format!("`notify` must be names of channels, found {}", item.describe()),
                )
                .hint("such as: notify: [team]"),
        }
    }
    found
}

/// Reports an unknown channel. The channel, if it is known.
pub(super) fn check_channel<'n>(
    report: Report<'_>,
    (name, span): (&str, Span),
    names: &'n Declarations,
) -> Option<&'n Channel> {
    let channels = names.alerts.as_ref().map_or(&[][..], |alerts| &alerts.value.channels);
    let found = channels.iter().find(|channel| channel.name == name);
    if found.is_none() && !names.incomplete {
        report.error(span, "unknown-channel", format!("unknown channel `{name}`")).meant(
            name,
            channels.iter().map(|channel| channel.name.as_str()),
            "declare it under `alerts: {notify: […]}`",
        );
    }
    found
}

fn kind_of<'n>(channel: &Channel, names: &'n Declarations) -> Option<&'n DestinationKind> {
    names.destinations.get(&channel.destination.0)?.value.as_ref().map(|destination| &destination.kind)
}

/// Whether a channel opens incidents, which somebody has to close.
pub(super) fn is_incident_system(channel: &Channel, names: &Declarations) -> bool {
    kind_of(channel, names).is_some_and(|kind| matches!(kind.as_str(), "pagerduty" | "opsgenie"))
}

type Workers = BTreeMap<String, Placed<ReadWorker>>;

/// The playbook of a channel for alerts.
pub(super) fn add_alerts(report: Report<'_>, channel: &Channel, names: &Declarations, workers: &mut Workers) {
    let list =
        |words: &[&str]| format!("[{}]", words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", "));
    let mut rules = vec![];
    if !channel.severities.is_empty() {
        rules.push(format!("event.severity in {}", list(&channel.severities)));
    }
    if !channel.alerts.is_empty() {
        rules.push(format!("event.alert in {}", list(&channel.alerts)));
    }
    if !channel.recovery {
        rules.push("event.state == 'firing'".to_owned());
    }
    let is_own = format!("event.source == '{}'", alert::SOURCE);
    let condition = match rules.as_slice() {
        [] => is_own,
        // A test is sent whatever its severity.
        rules => format!("{is_own} and (event.state == 'test' or ({}))", rules.join(" and ")),
    };
    add_playbook(
        report,
        (channel, names),
        (format!("{CHANNEL_PREFIX}{}", channel.name), EVENT_TYPE, condition),
        workers,
    );
}

/// The playbook of a channel for the digest.
pub(super) fn add_digest(report: Report<'_>, channel: &Channel, names: &Declarations, workers: &mut Workers) {
    let condition = format!("event.source == '{}'", alert::SOURCE);
    add_playbook(report, (channel, names), (format!("digest-{}", channel.name), DIGEST_EVENT_TYPE, condition), workers);
}

/// Adds a playbook that sends events of a type through a channel: its document is read like any other.
pub(super) fn add_playbook(
    report: Report<'_>,
    (channel, names): (&Channel, &Declarations),
    (name, on, condition): (String, &str, String),
    workers: &mut Workers,
) {
    let Some(steps) = steps(report, channel, names) else { return };
    let step = |(id, run, only, with): (&str, &str, &str, Map<String, Value>)| {
        let condition = if only.is_empty() { condition.clone() } else { format!("({condition}) and ({only})") };
        json!({ "id": id, "if": condition, "run": run, "destination": channel.destination.0, "with": with })
    };
    let steps: Vec<Value> = steps.into_iter().map(step).collect();
    let document = json!({ "name": name, "on": on, "run": steps });
    let mut node = node_of(&document, channel.span);
    place_parameters(&mut node, channel);
    if let Some(read) = worker::read(report, &node, names) {
        add(workers, report, "worker", (&name, channel.span), read);
    }
}

/// A step: id, action, additional condition, parameters.
type ChannelStep = (&'static str, &'static str, &'static str, Map<String, Value>);

/// What the type of the destination needs to carry a notice with `title`, `text` and `alias`.
fn steps(report: Report<'_>, channel: &Channel, names: &Declarations) -> Option<Vec<ChannelStep>> {
    let (name, span) = &channel.destination;
    let Some(placed) = names.destinations.get(name) else {
        if !names.incomplete {
            let known = names.destinations.keys().map(String::as_str);
            let otherwise = "declare it under `destinations:`";
            report
                .error(*span, "unknown-destination", format!("unknown destination `{name}`"))
                .meant(name, known, otherwise);
        }
        return None;
    };
    let kind = &placed.value.as_ref()?.kind;
    let carrier = kind.as_str();
    if !CARRIERS.contains(&carrier) {
        report
            .error(*span, "wrong-destination", format!("`{name}` has the type {carrier}, which carries no notices"))
            .hint(format!("use a destination of type {}, or a playbook with `on: {EVENT_TYPE}`", CARRIERS.join(", ")));
        return None;
    }
    let needed: &[&str] = match kind {
        DestinationKind::Slack(slack) if matches!(slack.transport, SlackTransport::Token(_)) => &["channel"],
        DestinationKind::Smtp(_) => &["to"],
        DestinationKind::Http(_) => &["url"],
        _ if carrier == "twilio" => &["to"],
        _ => &[],
    };
    check_parameters(report, channel, carrier, needed)?;
    let value =
        |name: &str| channel.parameters.iter().find(|(own, ..)| *own == name).map(|(_, value, _)| value.clone());
    let own = |name: &str| value(name).map(|value| (name.to_owned(), value));
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let with = |value: Value, names: &[&str]| {
        let mut with = map(value);
        with.extend(names.iter().filter_map(|name| own(name)));
        with
    };
    Some(match carrier {
        "slack" => vec![("send", "slack.post", "", with(json!({ "text": SLACK_TEXT }), &["channel"]))],
        "smtp" => {
            let mail = json!({ "subject": "{{ event.title }}", "text": "{{ event.text }}" });
            vec![("send", "email.send", "", with(mail, &["to"]))]
        }
        "http" => {
            let request = json!({ "json": "{{ event.attributes }}", "idempotency_header": "webhook-id" });
            vec![("send", "http.request", "", with(request, &["url"]))]
        }
        "teams" => {
            vec![("send", "teams.post", "", map(json!({ "title": "{{ event.title }}", "text": "{{ event.text }}" })))]
        }
        "discord" => vec![("send", "discord.post", "", map(json!({ "content": "{{ event.text }}" })))],
        "twilio" => {
            // A text that is unique is found again after an unknown outcome.
            let sms = json!({ "body": "{{ event.title }} ({{ event.since }})" });
            vec![("send", "twilio.sms", "", with(sms, &["to"]))]
        }
        "pagerduty" => pagerduty(),
        _ => opsgenie(),
    })
}

fn pagerduty() -> Vec<ChannelStep> {
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let trigger = json!({
        "action": "trigger",
        "dedup_key": "{{ event.alias }}",
        "summary": "{{ event.title }}",
        "source": "{{ event.subject or 'sluice' }}",
        "severity": "{{ event.severity }}",
        "details": { "text": "{{ event.text }}" },
    });
    let resolve = json!({ "action": "resolve", "dedup_key": "{{ event.alias }}" });
    vec![
        ("trigger", "pagerduty.event", "event.state != 'recovered'", map(trigger)),
        // A test leaves no incident behind.
        ("resolve", "pagerduty.event", "event.state in ['recovered', 'test']", map(resolve)),
    ]
}

fn opsgenie() -> Vec<ChannelStep> {
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let alert = json!({
        "message": "{{ event.title }}",
        "alias": "{{ event.alias }}",
        "description": "{{ event.text }}",
        "priority": "{{ 'P1' if event.severity == 'critical' else 'P3' }}",
    });
    let close = json!({ "alias": "{{ event.alias }}", "note": "{{ event.title }}" });
    vec![
        ("trigger", "opsgenie.alert", "event.state != 'recovered'", map(alert)),
        ("resolve", "opsgenie.close", "event.state in ['recovered', 'test']", map(close)),
    ]
}

/// Reports missing keys and keys that the type does not use.
fn check_parameters(report: Report<'_>, channel: &Channel, carrier: &str, needed: &[&str]) -> Option<()> {
    let used: &[&str] = match carrier {
        "slack" => &["channel"],
        "smtp" | "twilio" => &["to"],
        "http" => &["url"],
        _ => &[],
    };
    let mut is_complete = true;
    for (name, _, span) in &channel.parameters {
        if !used.contains(name) {
            let message = format!("a channel of type {carrier} does not use `{name}`");
            report.error(*span, "unknown-key", message).hint("remove it");
            is_complete = false;
        }
    }
    for name in needed {
        if !channel.parameters.iter().any(|(own, ..)| own == name) {
            let message = format!("the channel `{}` of type {carrier} needs `{name}`", channel.name);
            report.error(channel.span, "missing-key", message).hint(format!("add `{name}:`"));
            is_complete = false;
        }
    }
    is_complete.then_some(())
}

/// A document from a value; every part has the place of the channel.
fn node_of(value: &Value, span: Span) -> YamlNode {
    let kind = match value {
        Value::Array(items) => YamlKind::List(items.iter().map(|item| node_of(item, span)).collect()),
        Value::Object(members) => YamlKind::Map(
            members
                .iter()
                .map(|(key, value)| YamlEntry { key: key.clone(), key_span: span, value: node_of(value, span) })
                .collect(),
        ),
        Value::String(text) => YamlKind::Scalar(Scalar { text: text.clone(), quoted: true }),
        other => YamlKind::Scalar(Scalar { text: other.to_string(), quoted: false }),
    };
    YamlNode { span, kind }
}

/// Gives the parameters that were written, and the destination, their own places, for messages.
fn place_parameters(node: &mut YamlNode, channel: &Channel) {
    fn place(node: &mut YamlNode, name: &str, span: Span) {
        match &mut node.kind {
            YamlKind::Map(entries) => {
                for entry in entries {
                    if entry.key == name {
                        (entry.key_span, entry.value.span) = (span, span);
                    }
                    place(&mut entry.value, name, span);
                }
            }
            YamlKind::List(items) => items.iter_mut().for_each(|item| place(item, name, span)),
            YamlKind::Scalar(_) => {}
        }
    }
    place(node, "destination", channel.destination.1);
    for (name, _, span) in &channel.parameters {
        place(node, name, *span);
    }
}
