//! `safe_mode:` of a worker.

use std::collections::BTreeMap;

use sluice_domain::safe_mode::{RateRule, SafeMode, Trigger};

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::expression::{SecretUse, Visible, WORKED};
use super::fields::Fields;
use super::message;
use super::node::YamlNode;
use super::policy;
use super::table::{LASTING, SectionSpec, ValueType, key};

pub(super) static SAFE_MODE: SectionSpec = SectionSpec {
    title: "safe mode",
    about: "Behaviour of a worker in safe mode. `sluice safe-mode on` turns it on, for one worker or all; `when` turns it on automatically. It ends automatically.",
    keys: &[
        key(
            "templates",
            ValueType::Described("a map of templates to templates"),
            "Replacement messages, such as cart_recovery_v3: cart_recovery_short.",
        ),
        key("policy", ValueType::Name, "Policy evaluated for every external step, in addition to its own."),
        key("hold", ValueType::Flag, "External steps wait until safe mode ends.").or("false"),
        key("when", ValueType::Table("what turns safe mode on"), "Conditions that turn it on automatically."),
        key("for", LASTING, "Duration.").or("30m"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static WHEN: SectionSpec = SectionSpec {
    title: "what turns safe mode on",
    about: "Set one or both.",
    keys: &[
        key("breaker", ValueType::Name, "The circuit breaker of this destination opens."),
        key("error_rate", ValueType::Table("an error rate"), "Too many of the worker's attempts fail."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static ERROR_RATE: SectionSpec = SectionSpec {
    title: "an error rate",
    about: "Share of failed attempts: retried, rejected or with an unknown outcome.",
    keys: &[
        key("over", ValueType::Share, "Threshold.").required(),
        key("window", ValueType::Duration, "Interval.").or("5m"),
        key("calls_min", ValueType::Count(1, 10_000), "Minimum number of attempts before the share is evaluated.")
            .or("20"),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &Declarations) -> Option<SafeMode> {
    let fields = Fields::open(report, node, &[&SAFE_MODE])?;
    let mut mode = SafeMode { hold: fields.flag("hold").unwrap_or(false), ..SafeMode::default() };
    if let Some(lasts) = fields.duration("for") {
        mode.duration = lasts;
    }
    if let Some((name, span)) = fields.name("policy") {
        policy::check_name(report, span, name, names);
        mode.policy = Some(name.into());
    }
    if let Some(templates) = fields.node("templates") {
        read_templates(report, templates, names, &mut mode);
    }
    if let Some(when) = fields.node("when") {
        read_when(report, when, names, &mut mode);
    }
    Some(mode)
}

/// Replacement messages as written; problems are reported elsewhere.
pub(super) fn written_templates(node: Option<&YamlNode>) -> BTreeMap<String, String> {
    let entries = node.and_then(|node| node.get("templates")).and_then(YamlNode::entries).unwrap_or_default();
    entries.iter().filter_map(|entry| Some((entry.key.clone(), entry.value.text()?.to_owned()))).collect()
}

fn read_templates(report: Report<'_>, node: &YamlNode, names: &Declarations, mode: &mut SafeMode) {
    let Some(entries) = node.entries() else {
        report
            .error(node.span, "wrong-type", format!("`templates` must be a map, found {}", node.describe()))
            .hint("such as: templates: {cart_recovery_v3: cart_recovery_short}");
        return;
    };
    for entry in entries {
        let known = |name: &str| names.messages.get(name).is_some();
        for (name, span) in
            [Some((entry.key.as_str(), entry.key_span)), entry.value.text().map(|text| (text, entry.value.span))]
                .into_iter()
                .flatten()
        {
            if !known(name) {
                // Whether its variables are available depends on the step that sends it.
                let visible = Visible { roots: WORKED, earlier: &[], later: &[], secrets: SecretUse::Refused };
                message::check_name(report, span, name, None, names, visible);
            }
        }
        match entry.value.text() {
            Some(safer) => drop(mode.templates.insert(entry.key.clone(), safer.to_owned())),
            None => report
                .error(
                    entry.value.span,
                    "wrong-type",
                    format!("expected the name of a template, found {}", entry.value.describe()),
                )
                .hint("such as: cart_recovery_v3: cart_recovery_short"),
        }
    }
}

fn read_when(report: Report<'_>, node: &YamlNode, names: &Declarations, mode: &mut SafeMode) {
    let Some(fields) = Fields::open(report, node, &[&WHEN]) else { return };
    if let Some((destination, span)) = fields.name("breaker") {
        if !names.incomplete && !names.destinations.contains_key(destination) {
            let known = names.destinations.keys().map(String::as_str);
            report.error(span, "unknown-destination", format!("unknown destination `{destination}`")).meant(
                destination,
                known,
                "declare it under `destinations:`",
            );
        }
        mode.when.push(Trigger::Breaker(destination.to_owned()));
    }
    let Some(rate) = fields.node("error_rate").and_then(|node| Fields::open(report, node, &[&ERROR_RATE])) else {
        return;
    };
    let Some(over_percent) = rate.share("over") else { return };
    let window = rate.duration("window").unwrap_or(std::time::Duration::from_secs(300));
    let calls_min = rate.count("calls_min").unwrap_or(20);
    mode.when.push(Trigger::ErrorRate(RateRule { over_percent, window, calls_min }));
}
