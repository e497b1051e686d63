//! `body:` and `dedup:`: what a request's body is, and what counts as the same.

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
    about: "What the body is, where the sender's own way is not known or not used.",
    keys: &[
        key("format", ValueType::OneOf(&["json", "form", "json-or-form"]), "How it is written.")
            .or("the sender's own; else json-or-form"),
        key(
            "events",
            ValueType::Described("a path such as value or entry.changes, or [] when the body is the list"),
            "Where the events are, when one request carries several. Each is an event with a key of its own, and all go into \
             one commit.",
        )
        .or("the sender's own; else the body is one event"),
        key("duplicate_keys", ValueType::OneOf(&["refuse", "last"]), "What is done with an object that has a name twice.")
            .or("refuse"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static DEDUP: SectionSpec = SectionSpec {
    title: "dedup",
    about: "What counts as the same beside the key.",
    keys: &[
        key(
            "content_window",
            ValueType::Described("a duration from 1ms to 2d, or off"),
            "Within this time an event with the same content is a duplicate even if its key differs. The event's own id and \
             timestamp do not count.",
        )
        .or("15m for requests whose key is the content or a fallback; off for those that carry the sender's own"),
        key("volatile", ValueType::Described("a list of paths into the body"), "Fields that change on a resend and do not count.")
            .or("what is known of the sender"),
        key(
            "on_clash",
            ValueType::OneOf(&["drop", "update", "quarantine"]),
            "What is done with a repeat of a key that says something else: kept and shown, done as an event of its own, or kept \
             for a person.",
        )
        .or("drop"),
    ],
    later: &[],
    rules: &[],
};

/// Reads `body:` over what is known of the sender.
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
            .error(node.span, "bad-path", "`events` is a path of names, or [] when the body is the list")
            .hint("such as: events: entry.changes");
        return None;
    }
    Some(names)
}

/// What `dedup:` says.
#[derive(Default)]
pub(super) struct Dedup {
    pub(super) content_window: ContentDedup,
    pub(super) volatile: Vec<Path>,
    pub(super) on_clash: OnClash,
}

/// Beyond two days, equal contents are more likely two events than one.
pub(super) const CONTENT_WINDOW: ValueType = ValueType::Between(SOME_TIME, Duration::from_secs(2 * 86_400));

/// Reads `dedup:`.
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
        // YAML takes a bare `off` for text or for false, as it likes.
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
