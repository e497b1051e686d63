//! `body:` and `dedup:` of an http trigger.

use std::time::Duration;

use sluice_domain::flow::{BodyFormat, BodySettings, ContentDedup, DuplicateKeys, OnClash};
use sluice_domain::path::Path;

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::path_list;
use super::table::{SOME_TIME, SectionSpec, ValueType, key};

pub(super) static BODY: SectionSpec = SectionSpec {
    title: "a body",
    about: "Format of the body. Overrides the defaults of the sender's scheme.",
    keys: &[
        key("format", ValueType::OneOf(&["json", "form", "json-or-form"]), "Format of the body.")
            .or("the format of the sender's scheme; else json-or-form"),
        key(
            "events",
            ValueType::Described("a path such as value or entry.changes, or [] when the body is the list"),
            "Path of the events, if one request carries several. Each event has its own key; all are written in one commit.",
        )
        .or("the path of the sender's scheme; else the body is one event"),
        key("duplicate_keys", ValueType::OneOf(&["refuse", "last"]), "Handling of an object with the same name twice.")
            .or("refuse"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static DEDUP: SectionSpec = SectionSpec {
    title: "dedup",
    about: "Duplicate detection beyond the key.",
    keys: &[
        key(
            "content_window",
            ValueType::Described("a duration from 1ms to 2d, or off"),
            "Within this time an event with the same type and content is a duplicate even if its key differs. The event's own id and \
             timestamp do not count. Its key stays bound to the first event for the lifetime of that event's key. If the sender signs the \
             body but not the id, the signed content is owned for the lifetime of the key too, unless this is off.",
        )
        .or("15m if the key is a fingerprint or a fallback; off if the sender provides the key"),
        key("volatile", ValueType::Described("a list of paths into the body"), "Fields that change between deliveries; ignored by the comparison.")
            .or("the defaults of the sender's scheme"),
        key(
            "on_clash",
            ValueType::OneOf(&["drop", "update", "quarantine"]),
            "Handling of a key clash (same key, different content). drop: stored as a variant of the first event. update: accepted as a separate event. quarantine: accepted, and its jobs wait for an operator.",
        )
        .or("drop"),
    ],
    later: &[],
    rules: &[],
};

/// Reads `body:` over the defaults of the sender's scheme.
pub(super) fn read(report: Report<'_>, node: &YamlNode, body: &mut BodySettings) {
    let Some(fields) = Fields::open(report, node, &[&BODY]) else { return };
    match fields.one_of("format") {
        Some("json") => body.format = BodyFormat::Json,
        Some("form") => body.format = BodyFormat::Form,
        Some(_) => body.format = BodyFormat::JsonOrForm,
        None => {}
    }
    if fields.one_of("duplicate_keys") == Some("last") {
        body.duplicate_keys = DuplicateKeys::Last;
    }
    if let Some(node) = fields.node("events") {
        body.events = read_events(report, node).or(body.events.take());
    }
}

fn read_events(report: Report<'_>, node: &YamlNode) -> Option<Vec<String>> {
    if node.items().is_some_and(<[YamlNode]>::is_empty) {
        return Some(vec![]);
    }
    let text = node.text().unwrap_or_default();
    let names: Vec<String> = text
        .strip_prefix("body.")
        .unwrap_or(text)
        .split('.')
        .map(|name| name.trim_end_matches("[]").to_owned())
        .collect();
    if text.is_empty() || names.iter().any(|name| name.is_empty() || name.contains(['[', ']', ' ', '{'])) {
        report
            .error(node.span, "bad-path", "`events` must be a path of names, or [] if the body is the list")
            .hint("such as: events: entry.changes");
        return None;
    }
    Some(names)
}

#[derive(Default)]
pub(super) struct Dedup {
    pub(super) content_window: ContentDedup,
    pub(super) volatile: Vec<Path>,
    pub(super) on_clash: OnClash,
}

/// Beyond two days, equal contents are more likely two events than one.
pub(super) const CONTENT_WINDOW: ValueType = ValueType::Between(SOME_TIME, Duration::from_secs(2 * 86_400));

pub(super) fn read_dedup(report: Report<'_>, node: &YamlNode) -> Dedup {
    let mut dedup = Dedup::default();
    let Some(fields) = Fields::open(report, node, &[&DEDUP]) else { return dedup };
    dedup.on_clash = match fields.one_of("on_clash") {
        Some("update") => OnClash::Update,
        Some("quarantine") => OnClash::Quarantine,
        _ => OnClash::Drop,
    };
    dedup.volatile = fields.node("volatile").map(|list| path_list::read(report, list, "volatile")).unwrap_or_default();
    match fields.node("content_window").map(|node| (node, node.text())) {
        // YAML parsers read a bare `off` as text or as false.
        Some((_, Some("off" | "false"))) => dedup.content_window = ContentDedup::Off,
        Some(_) => {
            if let Some(window) = fields.duration_in("content_window", CONTENT_WINDOW) {
                dedup.content_window = ContentDedup::Always(window);
            }
        }
        None => {}
    }
    dedup
}
