//! `key_from:` to key strategies.

use std::time::Duration;

use sluice_domain::key::{KeyPart, KeyStrategy};
use sluice_domain::path::Segment;
use sluice_domain::template::{Expression, Piece, Template};

use super::diagnostics::Report;
use super::expression::{REQUEST, expression, text_template, warn_of_fallback};
use super::fields::Fields;
use super::node::{Span, YamlKind, YamlNode};
use super::path_list;
use super::rule::{at_least_one, at_most_one, needs};
use super::table::{SectionSpec, ValueType, key};

pub(super) static KEY_FROM: SectionSpec = SectionSpec {
    title: "a key",
    about: "`key_from:` is `header:NAME`, a path such as `body.id`, an expression, a list of these whose values are joined, `fingerprint`, or a map with one of these keys. In a list `source`, `event_type`, `event_id` and `tenant` are the values of the event; the usual key is [source, event_type, event_id]. A part that is missing, null or blank has no value: the next strategy applies. An email address, a phone number and a digest of one are replaced by a digest under a secret key of the ledger.",
    keys: &[
        key("first_of", ValueType::Described("a list of keys"), "Strategies; the first with a value gives the key."),
        key(
            "fields",
            ValueType::Described("a list of parts"),
            "Fields that identify the entity, for a key with `bucket`.",
        ),
        key(
            "bucket",
            ValueType::Between(Duration::from_secs(1), Duration::from_secs(7 * 86_400)),
            "Length of a time bucket. Two equal events up to half a bucket apart are always one event, across a boundary too; one and a half buckets apart they are always two.",
        ),
        key("at", ValueType::Described("a path"), "Sender's timestamp of the event, for `bucket`.")
            .or("event.occurred_at"),
        key("fingerprint", ValueType::Table("a fingerprint"), "Digest of the body, independent of member order."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            WAYS,
            "a key needs `fields` that identify the entity",
            "such as: {fields: [body.customer_id], bucket: 5m, at: body.created_at}",
        )
        .coded("bad-key"),
        at_most_one(WAYS, "a key must have `{first}` or `{second}`, not both", "list both in `first_of`"),
        needs(
            &["bucket", "fields"],
            "a key with `bucket` needs `fields` that identify the entity",
            "such as: {fields: [body.customer_id], bucket: 5m, at: body.created_at}",
        )
        .coded("bad-key"),
        needs(&["at", "bucket"], "`at` requires `bucket`", "such as: bucket: 5m").coded("bad-key"),
    ],
};

pub(super) static FINGERPRINT: SectionSpec = SectionSpec {
    title: "a fingerprint",
    about: "Digest of the content.",
    keys: &[key(
        "volatile",
        ValueType::Described("a list of paths into the body"),
        "Fields that change on a resend and do not count.",
    )],
    later: &[],
    rules: &[],
};

/// Alternatives of a key written as a map.
const WAYS: &[&str] = &["first_of", "fingerprint", "fields"];

const FORMS: &str = "write header:NAME, body.path, {{ an expression }}, a list of these, or fingerprint";

/// Event fields that key parts may refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// The flow or the sender's scheme maps the event id.
    pub(super) event_id: bool,
    /// Paths of the event timestamp.
    pub(super) occurred_at: &'a [Expression],
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, known: Known<'_>) -> Vec<KeyStrategy> {
    match &node.kind {
        YamlKind::Scalar(_) => read_text(report, node, known).into_iter().collect(),
        YamlKind::List(items) if items.is_empty() => {
            report.error(node.span, "bad-key", "a key needs at least one part").hint(FORMS);
            vec![]
        }
        YamlKind::List(items) => {
            let parts = items.iter().flat_map(|item| read_part(report, item, known)).collect();
            vec![KeyStrategy::Parts(parts)]
        }
        YamlKind::Map(_) => read_map(report, node, known),
    }
}

fn read_map(report: Report<'_>, node: &YamlNode, known: Known<'_>) -> Vec<KeyStrategy> {
    let Some(fields) = Fields::open(report, node, &[&KEY_FROM]) else { return vec![] };
    let present: Vec<&'static str> = WAYS.iter().copied().filter(|name| fields.node(name).is_some()).collect();
    match present.as_slice() {
        ["first_of"] => match fields.node("first_of").map(|list| (list, list.items())) {
            Some((_, Some(items))) if !items.is_empty() => {
                items.iter().flat_map(|item| read(report, item, known)).collect()
            }
            Some((list, _)) => {
                report.error(list.span, "bad-key", "`first_of` is a list of keys").hint(FORMS);
                vec![]
            }
            None => vec![],
        },
        ["fields"] => read_bucket(&fields, known).into_iter().collect(),
        ["fingerprint"] => fields.node("fingerprint").map(|node| read_fingerprint(report, node)).into_iter().collect(),
        _ => vec![],
    }
}

fn read_bucket(fields: &Fields<'_, '_>, known: Known<'_>) -> Option<KeyStrategy> {
    let report = fields.report;
    let list = fields.node("fields")?;
    let parts: Vec<KeyPart> = match list.items() {
        Some(items) => items.iter().flat_map(|item| read_part(report, item, known)).collect(),
        None => read_part(report, list, known),
    };
    if parts.is_empty() {
        if list.items().is_some_and(<[YamlNode]>::is_empty) {
            report.error(list.span, "bad-key", "a key needs at least one part").hint(FORMS);
        }
        return None;
    }
    let Some(width) = fields.duration("bucket") else {
        return fields.node("bucket").is_none().then_some(KeyStrategy::Parts(parts));
    };
    let at = match fields.node("at") {
        Some(node) => {
            read_part(report, node, Known { occurred_at: &[], ..known }).into_iter().find_map(|part| match part {
                KeyPart::Value(expression) => Some(expression),
                _ => None,
            })
        }
        None => known.occurred_at.first().cloned(),
    };
    if at.is_none() && fields.node("at").is_none() {
        report
            .error(fields.key_span("bucket"), "bad-key", "`bucket` needs the timestamp of the event")
            .hint("add `at:` with the path of the sender's timestamp, or map `event.occurred_at`");
    }
    Some(KeyStrategy::Bucket { parts, at: at?, width })
}

fn read_fingerprint(report: Report<'_>, node: &YamlNode) -> KeyStrategy {
    let list = Fields::open(report, node, &[&FINGERPRINT]).and_then(|fields| fields.node("volatile"));
    let volatile = list.map(|list| path_list::read(report, list, "volatile")).unwrap_or_default();
    KeyStrategy::Fingerprint { parts: vec![], volatile }
}

fn read_text(report: Report<'_>, node: &YamlNode, known: Known<'_>) -> Option<KeyStrategy> {
    let Some(text) = words(node) else {
        report.error(node.span, "bad-key", "a key needs at least one part").hint(FORMS);
        return None;
    };
    if text == "fingerprint" {
        return Some(KeyStrategy::Fingerprint { parts: vec![], volatile: vec![] });
    }
    if let Some(name) = header_name(text) {
        check_header(report, node.span, name);
        return Some(KeyStrategy::Header(name.to_ascii_lowercase()));
    }
    let parts = read_part(report, node, known);
    (!parts.is_empty()).then_some(KeyStrategy::Parts(parts))
}

/// Non-empty text. A literal number or flag would be the same for every request.
fn words(node: &YamlNode) -> Option<&str> {
    node.text().map(str::trim).filter(|text| !text.is_empty() && node.to_value().is_string())
}

fn header_name(text: &str) -> Option<&str> {
    text.strip_prefix("header:").or_else(|| text.strip_prefix("headers:")).map(str::trim)
}

fn check_header(report: Report<'_>, span: Span, name: &str) {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        report
            .error(span, "bad-key", format!("`{name}` is not a valid header name"))
            .hint("such as header:Idempotency-Key");
    }
}

/// One part of a key. Text around `{{ }}` is kept, except separators: parts are joined with one.
fn read_part(report: Report<'_>, node: &YamlNode, known: Known<'_>) -> Vec<KeyPart> {
    let Some(text) = words(node) else {
        report
            .error(node.span, "bad-key", format!("a part of a key must be text, found {}", node.describe()))
            .hint(FORMS);
        return vec![];
    };
    match text {
        "tenant" => return vec![KeyPart::Tenant],
        "source" => return vec![KeyPart::Source],
        "event_type" => return vec![KeyPart::EventType],
        "event_id" => {
            if !known.event_id {
                report.error(node.span, "bad-key", "`event_id` is not mapped").hint("map it: event: {id: body.id}");
            }
            return vec![KeyPart::EventId];
        }
        _ => {}
    }
    if let Some(name) = header_name(text) {
        check_header(report, node.span, name);
        let source = format!("headers[\"{}\"]", name.to_ascii_lowercase().replace(['"', '\\'], ""));
        return Expression::parse(&source).map(KeyPart::Value).into_iter().collect();
    }
    if text == "fingerprint" {
        report
            .error(node.span, "bad-key", "a fingerprint cannot be combined with other parts: it covers the whole body")
            .hint("use `key_from: fingerprint`, or put it last in `first_of`");
        return vec![];
    }
    let mut parts = vec![];
    if !text.contains("{{") && !text.contains("${") {
        parts.extend(expression(report, node.span, text, REQUEST));
    } else {
        match text_template(report, node.span, text, REQUEST) {
            Some(Template::Expression(expression)) => parts.push(expression),
            Some(Template::Text(pieces)) => {
                for piece in pieces {
                    match piece {
                        Piece::Expression(expression) => parts.push(expression),
                        Piece::Text(text) => {
                            let word = text.trim_matches(|c: char| !c.is_alphanumeric());
                            if !word.is_empty() {
                                parts.extend(Expression::parse(&format!("\"{}\"", word.replace(['"', '\\'], ""))));
                            }
                        }
                        Piece::Secret(_) => {}
                    }
                }
            }
            _ => {}
        }
    }
    for part in &parts {
        check_time(report, node.span, part, known);
        warn_of_fallback(report, node.span, &Template::Expression(part.clone()), "part of a key");
    }
    parts.into_iter().map(KeyPart::Value).collect()
}

/// A delivery timestamp in a key makes every delivery a new event; only the event timestamp is safe.
fn check_time(report: Report<'_>, span: Span, part: &Expression, known: Known<'_>) {
    let Some((root, path)) = part.as_path() else { return };
    let Some(Segment::Key(name)) = path.0.last() else { return };
    let lower = name.to_ascii_lowercase();
    let is_time = name.ends_with("At")
        || ["_at", "timestamp", "_time", "_ts", "-timestamp", "-time"].iter().any(|end| lower.ends_with(end))
        || ["ts", "time", "date", "datetime", "now"].contains(&lower.as_str());
    let own = known.occurred_at.iter().filter_map(Expression::as_path).any(|place| place == (root, path));
    if is_time && !own {
        report
            .warning(
                span,
                "time-in-key",
                format!(
                    "`{name}` looks like a timestamp: if it changes between deliveries, a duplicate is accepted as a new event"
                ),
            )
            .hint("if it is the time of the event itself, map it: event: {occurred_at: …}");
    }
}
