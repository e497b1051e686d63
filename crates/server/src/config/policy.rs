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
    about: "What has to hold before an effect happens. A step names it with `policy:`. Policies follow the configuration in force, also for jobs that were accepted before.",
    keys: &[
        key("name", ValueType::Name, "Its name, where policies are a list."),
        key("contact", ValueType::Expression("event.email"), "Who is written to.")
            .or("event.email, then event.phone_e164, event.phone, event.contact_external_id"),
        key("channel", ValueType::Name, "By which way; caps count each channel for itself.").or("email"),
        key("rules", ValueType::Tables("a rule of a policy"), "In this order; the first that refuses decides.")
            .required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static RULE: SectionSpec = SectionSpec {
    title: "a rule of a policy",
    about: "One of these. What it refuses is a no-op with the rule's name in it.",
    keys: &[
        key("name", ValueType::Name, "What it is called in results and metrics.").or("its kind, such as consent"),
        key("consent", ValueType::Table("consent"), "The contact agreed."),
        key("quiet_hours", ValueType::Table("quiet hours"), "It is not night at the contact's."),
        key(
            "suppression",
            ValueType::Described("true, or a map with list"),
            "The contact is on no list: neither the one of `sluice suppress`, nor the file lists/NAME.txt that `list` names.",
        ),
        key(
            "daily",
            ValueType::Count(1, 100_000),
            "No more than so many effects for one contact and channel in any 24 hours, over all workers that share the policy.",
        ),
        key("weekly", ValueType::Count(1, 100_000), "The same for any 7 days."),
        key("limit", ValueType::Table("a limit of a policy"), "The same for any span."),
        key("when", ValueType::Condition, "This holds."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            KINDS,
            "a rule is exactly one of its kinds",
            "write one of consent, quiet_hours, suppression, daily, weekly, limit, when",
        ),
        at_most_one(
            KINDS,
            "a rule is exactly one of its kinds, and this is `{first}` and `{second}`",
            "make two rules of it",
        ),
    ],
};

pub(super) static CONSENT: SectionSpec = SectionSpec {
    title: "consent",
    about: "Where it stands whether the contact agreed: in the event, or in the ledger, where `consent.set` keeps it.",
    keys: &[
        key(
            "from",
            ValueType::Expression("event.consent"),
            "A field of the event: true, yes, granted, subscribed and the like mean yes.",
        ),
        key("purpose", ValueType::Name, "What was agreed to, in the ledger; instead of `from`.").or("marketing"),
        key("default", ValueType::OneOf(&["deny", "allow"]), "What holds when nothing is known.").or("deny"),
    ],
    later: &[],
    rules: &[same(&["from", "purpose"], "consent stands in the event (`from`) or in the ledger (`purpose`)")],
};

pub(super) static QUIET_HOURS: SectionSpec = SectionSpec {
    title: "quiet hours",
    about: "Hours in which nobody is written to, where the contact is.",
    keys: &[
        key("from", ValueType::Clock, "From this time on.").required(),
        key("to", ValueType::Clock, "Up to this time; an earlier one is that of the next day.").required(),
        key("zone", ValueType::Expression("event.time_zone"), "The contact's time zone, such as Europe/Berlin."),
        key("fallback", ValueType::Zone, "The zone of contacts that have none, or one that nobody knows.").or("UTC"),
        key(
            "then",
            ValueType::OneOf(&["skip", "wait"]),
            "skip: the effect does not happen. wait: the job waits for their end.",
        )
        .or("skip"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static LIMIT: SectionSpec = SectionSpec {
    title: "a limit of a policy",
    about: "No more than so many effects for one contact and channel in any such span.",
    keys: &[
        key("max", ValueType::Count(1, 100_000), "So many.").required(),
        key("per", ValueType::Between(SOME_TIME, Cap::WINDOW_MAX), "In any span of this length.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static SUPPRESSION: SectionSpec = SectionSpec {
    title: "suppression",
    about: "Beside the list of `sluice suppress`.",
    keys: &[key("list", ValueType::Name, "The file lists/NAME.txt: one contact or @domain a line, # begins a remark.")],
    later: &[],
    rules: &[],
};

/// The directory in which lists of contacts lie, at the top of the configuration.
pub(super) const LISTS: &str = "lists/";

/// The list that a file is, if it is one.
pub(super) fn list_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(LISTS)?.strip_suffix(".txt")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// What the expressions of a policy can see: it is shared, so it knows no steps.
const SEEN: Visible<'static> = Visible {
    roots: &["event", "body", "headers", "request", "safe_mode"],
    earlier: &[],
    later: &[],
    secrets: SecretUse::Refused,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Reads the whole section.
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
            .error(rules.span, "wrong-type", format!("`rules` is a list, and this is {}", rules.describe()))
            .hint("such as: rules: [{daily: 1}, {suppression: true}]");
        return None;
    };
    let rules: Vec<Option<Rule>> = items.iter().map(|item| read_rule(report, item, texts)).collect();
    let rules = rules.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Arc::new(Policy { name: Arc::from(name), contact, channel: Arc::from(channel), rules }))
}

/// Who an event is about, unless somebody says otherwise.
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
        report.error(span, "unknown-list", format!("there is no list `{name}`")).meant(name, known, &otherwise);
        return None;
    };
    Some(Suppression { listed: Arc::new(Suppression::read(text)) })
}

/// An expression, in `{{ }}` or not.
fn one_expression(report: Report<'_>, node: &YamlNode, name: &str) -> Option<Expression> {
    let Some(text) = node.text().map(str::trim) else {
        report.error(
            node.span,
            "wrong-type",
            format!("`{name}` must be an expression, and this is {}", node.describe()),
        );
        return None;
    };
    let inside = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}")).unwrap_or(text);
    expression(report, node.span, inside, SEEN)
}

/// `policy:` of a step: a name or several.
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
                format!("`policy` is the name of a policy, and this is {}", item.describe()),
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

/// Says so if there is no such policy.
pub(super) fn check_name(report: Report<'_>, span: Span, name: &str, names: &Declarations) {
    if names.incomplete || names.policies.contains_key(name) {
        return;
    }
    report.error(span, "unknown-policy", format!("no policy is called `{name}`")).meant(
        name,
        names.policies.keys().map(String::as_str),
        "declare it under `policies:`",
    );
}

/// Every policy that could be read.
pub(super) fn join(policies: BTreeMap<String, Placed<Option<Arc<Policy>>>>) -> BTreeMap<String, Arc<Policy>> {
    policies.into_iter().filter_map(|(name, placed)| Some((name, placed.value?))).collect()
}
