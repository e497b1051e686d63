//! `policies:` to [`Policy`]s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::policy::{
    Cap, ConsentDefault, ConsentSource, Policy, QuietAction, QuietHours, Rule, RuleKind, Suppression, zone,
};
use sluice_domain::template::Expression;

use super::declarations::{Declarations, Placed, add};
use super::diagnostics::Report;
use super::expression::{SecretUse, Visible, condition, expression};
use super::fields::Fields;
use super::node::{Span, YamlNode};
use super::parameters;
use super::queue::named_items;
use super::rule::{at_least_one, at_most_one, same};
use super::table::{SOME_TIME, SectionSpec, ValueType, key};

pub(super) static POLICY: SectionSpec = SectionSpec {
    title: "a policy",
    about: "Rules evaluated before an effect is sent. A step names it with `policy:`. The active configuration applies, also to jobs accepted before.",
    keys: &[
        key("name", ValueType::Name, "Unique name, if policies are a list."),
        key("contact", ValueType::Expression("event.email"), "Contact addressed by the effect.")
            .or("event.email, then event.phone_e164, event.phone, event.contact_external_id"),
        key("channel", ValueType::Name, "Channel; caps are per channel.").or("email"),
        key("rules", ValueType::Tables("a rule of a policy"), "Rules in order; the first that denies decides.")
            .required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static RULE: SectionSpec = SectionSpec {
    title: "a rule of a policy",
    about: "Set exactly one kind. A denied effect is a no-op that names the rule.",
    keys: &[
        key("name", ValueType::Name, "Name in results and metrics.").or("its kind, such as consent"),
        key("consent", ValueType::Table("consent"), "The contact has consented."),
        key("quiet_hours", ValueType::Table("quiet hours"), "It is outside the quiet hours of the contact."),
        key(
            "suppression",
            ValueType::Described("true, or a map with list"),
            "The contact is neither on the list of `sluice suppress` nor in the file lists/NAME.txt named by `list`.",
        ),
        key(
            "daily",
            ValueType::Count(1, 100_000),
            "Maximum number of effects per contact and channel in any 24 hours, over all workers that share the policy.",
        ),
        key("weekly", ValueType::Count(1, 100_000), "Maximum in any 7 days."),
        key("limit", ValueType::Table("a limit of a policy"), "Maximum in any interval."),
        key("when", ValueType::Condition, "The expression is true."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            KINDS,
            "a rule must have exactly one kind",
            "write one of consent, quiet_hours, suppression, daily, weekly, limit, when",
        ),
        at_most_one(
            KINDS,
            "a rule must have exactly one kind, found `{first}` and `{second}`",
            "split it into two rules",
        ),
    ],
};

pub(super) static CONSENT: SectionSpec = SectionSpec {
    title: "consent",
    about: "Consent of the contact: a field of the event, or stored in the ledger by `consent.set`.",
    keys: &[
        key(
            "from",
            ValueType::Expression("event.consent"),
            "Field of the event; true, yes, granted, subscribed and similar values mean consent.",
        ),
        key("purpose", ValueType::Name, "Purpose of the consent stored in the ledger; instead of `from`.")
            .or("marketing"),
        key("default", ValueType::OneOf(&["deny", "allow"]), "Result without stored consent.").or("deny"),
    ],
    later: &[],
    rules: &[same(&["from", "purpose"], "consent is read from the event (`from`) or from the ledger (`purpose`)")],
};

pub(super) static QUIET_HOURS: SectionSpec = SectionSpec {
    title: "quiet hours",
    about: "Hours without effects, in the time zone of the contact.",
    keys: &[
        key("from", ValueType::Clock, "Start.").required(),
        key("to", ValueType::Clock, "End; an earlier time is on the next day.").required(),
        key("zone", ValueType::Expression("event.time_zone"), "Time zone of the contact, such as Europe/Berlin."),
        key("fallback", ValueType::Zone, "Time zone of contacts without a valid one.").or("UTC"),
        key(
            "then",
            ValueType::OneOf(&["skip", "wait"]),
            "skip: the effect is skipped. wait: the job is deferred to the end of the quiet hours.",
        )
        .or("skip"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static LIMIT: SectionSpec = SectionSpec {
    title: "a limit of a policy",
    about: "Maximum number of effects per contact and channel in any interval.",
    keys: &[
        key("max", ValueType::Count(1, 100_000), "Maximum.").required(),
        key("per", ValueType::Between(SOME_TIME, Cap::WINDOW_MAX), "Length of the interval.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static SUPPRESSION: SectionSpec = SectionSpec {
    title: "suppression",
    about: "In addition to the list of `sluice suppress`.",
    keys: &[key(
        "list",
        ValueType::Name,
        "The file lists/NAME.txt: one contact or @domain per line; # starts a comment.",
    )],
    later: &[],
    rules: &[],
};

/// Directory of suppression lists, relative to the configuration.
pub(super) const LISTS: &str = "lists/";

/// Name of the suppression list in a file.
pub(super) fn list_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(LISTS)?.strip_suffix(".txt")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Scope of policy expressions. A policy is shared, so it cannot read steps.
const SEEN: Visible<'static> = Visible {
    roots: &["event", "body", "headers", "request", "safe_mode"],
    earlier: &[],
    later: &[],
    secrets: SecretUse::Refused,
};

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn read_all(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    let mut policies = std::mem::take(&mut names.policies);
    for (name, span, settings) in named_items(report, node, "policies", "a policy") {
        let policy = match settings {
            Some(settings) => read(report, name, settings, &names.texts),
            None => {
                report
                    .error(span, "missing-key", format!("the policy `{name}` needs `rules`"))
                    .hint("such as: rules: [{daily: 1}]");
                None
            }
        };
        add(&mut policies, report, "policy", (name, span), policy);
    }
    names.policies = policies;
}

fn read(report: Report<'_>, name: &str, node: &YamlNode, texts: &BTreeMap<String, String>) -> Option<Arc<Policy>> {
    let fields = Fields::open_named(report, node, &[&POLICY])?;
    let contact = match fields.node("contact") {
        Some(node) => vec![one_expression(report, node, "contact")?],
        None => contact_of_event(),
    };
    let channel = fields.name("channel").map_or("email", |(channel, _)| channel);
    let rules = fields.node("rules")?;
    let Some(items) = rules.items() else {
        report
            .error(rules.span, "wrong-type", format!("`rules` must be a list, found {}", rules.describe()))
            .hint("such as: rules: [{daily: 1}, {suppression: true}]");
        return None;
    };
    let rules: Vec<Option<Rule>> = items.iter().map(|item| read_rule(report, item, texts)).collect();
    let rules = rules.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Arc::new(Policy { name: Arc::from(name), contact, channel: Arc::from(channel), rules }))
}

/// Default contact of an event.
pub(super) fn contact_of_event() -> Vec<Expression> {
    let paths = ["event.email", "event.phone_e164", "event.phone", "event.contact_external_id"];
    paths.iter().filter_map(|path| Expression::parse(path).ok()).collect()
}

const KINDS: &[&str] = &["consent", "quiet_hours", "suppression", "daily", "weekly", "limit", "when"];

fn read_rule(report: Report<'_>, node: &YamlNode, texts: &BTreeMap<String, String>) -> Option<Rule> {
    let fields = Fields::open(report, node, &[&RULE])?;
    let mut there = KINDS.iter().filter(|kind| fields.node(kind).is_some());
    let (Some(kind), None) = (there.next(), there.next()) else { return None };
    let cap = |max: u32, window: Duration| RuleKind::Cap(Cap { max, window });
    let read = match *kind {
        "consent" => read_consent(report, fields.node("consent")?)?,
        "quiet_hours" => RuleKind::QuietHours(read_hours(report, fields.node("quiet_hours")?)?),
        "suppression" => RuleKind::Suppression(read_suppression(report, fields.node("suppression")?, texts)?),
        "daily" => cap(fields.count("daily")?, DAY),
        "weekly" => cap(fields.count("weekly")?, 7 * DAY),
        "limit" => {
            let limit = Fields::open(report, fields.node("limit")?, &[&LIMIT])?;
            cap(limit.count("max")?, limit.duration("per")?)
        }
        _ => RuleKind::When(condition(report, fields.node("when")?, SEEN)?),
    };
    let name = fields.name("name").map_or(*kind, |(name, _)| name);
    Some(Rule { name: Arc::from(name), kind: read })
}

fn read_consent(report: Report<'_>, node: &YamlNode) -> Option<RuleKind> {
    let fields = Fields::open(report, node, &[&CONSENT])?;
    let from = match fields.node("from") {
        Some(node) => ConsentSource::Event(one_expression(report, node, "from")?),
        None => ConsentSource::Table(Arc::from(fields.name("purpose").map_or("marketing", |(purpose, _)| purpose))),
    };
    let default = if fields.one_of("default") == Some("allow") { ConsentDefault::Allow } else { ConsentDefault::Deny };
    Some(RuleKind::Consent { from, default })
}

fn read_hours(report: Report<'_>, node: &YamlNode) -> Option<QuietHours> {
    let fields = Fields::open(report, node, &[&QUIET_HOURS])?;
    let (from, to) = (fields.clock("from"), fields.clock("to"));
    if from.is_some() && from == to {
        report
            .error(fields.value_span("to"), "contradiction", "`from` and `to` are the same time, so no hour is quiet")
            .hint("24:00 is 00:00; to send nothing at all, write `when: 'false'`");
    }
    let fallback = match fields.node("fallback") {
        None => zone("UTC"),
        Some(_) => fields.zone("fallback").and_then(zone),
    };
    let zone = match fields.node("zone") {
        Some(node) => Some(one_expression(report, node, "zone")?),
        None => None,
    };
    let action = if fields.one_of("then") == Some("wait") { QuietAction::Wait } else { QuietAction::Skip };
    Some(QuietHours { from: from?, to: to?, zone, fallback: fallback?, action })
}

fn read_suppression(report: Report<'_>, node: &YamlNode, texts: &BTreeMap<String, String>) -> Option<Suppression> {
    if node.text() == Some("true") {
        return Some(Suppression::default());
    }
    let fields = Fields::open(report, node, &[&SUPPRESSION])?;
    let Some((name, span)) = fields.name("list") else { return Some(Suppression::default()) };
    let Some(text) = texts.get(&format!("{LISTS}{name}.txt")) else {
        let known: Vec<&str> = texts.keys().filter_map(|path| list_of(path)).collect();
        let otherwise = format!("write {LISTS}{name}.txt");
        report.error(span, "unknown-list", format!("unknown list `{name}`")).meant(name, known, &otherwise);
        return None;
    };
    Some(Suppression { listed: Arc::new(Suppression::read(text)) })
}

/// Parses an expression with or without `{{ }}`.
fn one_expression(report: Report<'_>, node: &YamlNode, name: &str) -> Option<Expression> {
    let Some(text) = node.text().map(str::trim) else {
        report.error(node.span, "wrong-type", format!("`{name}` must be an expression, found {}", node.describe()));
        return None;
    };
    let inside = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}")).unwrap_or(text);
    expression(report, node.span, inside, SEEN)
}

/// `policy:` of a step: one or more names.
pub(super) fn read_names(report: Report<'_>, node: &YamlNode, names: &Declarations) -> Vec<Arc<str>> {
    let items = match node.items() {
        Some(items) => items.iter().collect(),
        None => vec![node],
    };
    let mut found = vec![];
    for item in items {
        let Some(name) = item.text() else {
            report.error(
                item.span,
                "wrong-type",
                format!("`policy` must be the name of a policy, found {}", item.describe()),
            );
            continue;
        };
        if parameters::is_filled_in(item) {
            parameters::decided_before(report, item.span, "policy");
            continue;
        }
        check_name(report, item.span, name, names);
        found.push(Arc::from(name));
    }
    found
}

/// Reports an unknown policy.
pub(super) fn check_name(report: Report<'_>, span: Span, name: &str, names: &Declarations) {
    if names.incomplete || names.policies.contains_key(name) {
        return;
    }
    report.error(span, "unknown-policy", format!("unknown policy `{name}`")).meant(
        name,
        names.policies.keys().map(String::as_str),
        "declare it under `policies:`",
    );
}

pub(super) fn join(policies: BTreeMap<String, Placed<Option<Arc<Policy>>>>) -> BTreeMap<String, Arc<Policy>> {
    policies.into_iter().filter_map(|(name, placed)| Some((name, placed.value?))).collect()
}
