//! `key_from:` to the ways in which a request's key is found.

use sluice_domain::key::KeyStrategy;
use sluice_domain::path::Path;
use sluice_domain::template::{Expression, Piece, Template};

use super::expression::{REQUEST, expression, text_template};
use super::fields::Fields;
use super::node::{Kind, Node, Span};
use super::report::Report;
use super::table::{Shape, Table, key};

pub(super) static KEY_FROM: Table = Table {
    title: "a key",
    about: "`key_from:` is `header:NAME`, a path such as `body.id`, an expression, a list of these whose values are joined, \
            `fingerprint`, or a map with one of these keys.",
    keys: &[
        key("first_of", Shape::Described("a list of keys"), "The first one that has a value gives the key."),
        key("fingerprint", Shape::Table("a fingerprint"), "A digest of the body, whatever the order of its members."),
    ],
    later: &[],
};

pub(super) static FINGERPRINT: Table = Table {
    title: "a fingerprint",
    about: "A digest of the content.",
    keys: &[key(
        "volatile",
        Shape::Described("a list of paths into the body"),
        "Fields that change on a resend and do not count.",
    )],
    later: &[],
};

const FORMS: &str = "write header:NAME, body.path, {{ an expression }}, a list of these, or fingerprint";

/// Reads every strategy, in order.
pub(super) fn read(report: Report<'_>, node: &Node) -> Vec<KeyStrategy> {
    match &node.kind {
        Kind::Scalar(_) => read_text(report, node).into_iter().collect(),
        Kind::List(items) if items.is_empty() => {
            report.error(node.span, "bad-key", "a key needs at least one part").hint(FORMS);
            vec![]
        }
        Kind::List(items) => {
            let parts: Vec<Expression> = items.iter().flat_map(|item| read_part(report, item)).collect();
            vec![KeyStrategy::Parts(parts)]
        }
        Kind::Map(_) => read_map(report, node),
    }
}

fn read_map(report: Report<'_>, node: &Node) -> Vec<KeyStrategy> {
    let Some(fields) = Fields::open(report, node, &[&KEY_FROM]) else { return vec![] };
    match (fields.node("first_of"), fields.node("fingerprint")) {
        (Some(_), Some(_)) => {
            report
                .error(
                    fields.key_span("fingerprint"),
                    "exclusive-keys",
                    "a key has `first_of` or `fingerprint`, not both",
                )
                .hint("put the fingerprint at the end of the list of `first_of`");
            vec![]
        }
        (Some(list), None) => match list.items() {
            Some(items) if !items.is_empty() => items.iter().flat_map(|item| read(report, item)).collect(),
            _ => {
                report.error(list.span, "bad-key", "`first_of` is a list of keys").hint(FORMS);
                vec![]
            }
        },
        (None, Some(node)) => vec![read_fingerprint(report, node)],
        (None, None) => {
            if node.entries().is_some_and(|entries| entries.is_empty()) {
                report.error(node.span, "bad-key", "a key needs at least one part").hint(FORMS);
            }
            vec![]
        }
    }
}

fn read_fingerprint(report: Report<'_>, node: &Node) -> KeyStrategy {
    let mut volatile = vec![];
    if let Some(list) = Fields::open(report, node, &[&FINGERPRINT]).and_then(|fields| fields.node("volatile")) {
        for item in list.items().unwrap_or_default() {
            let text = item.text().unwrap_or_default();
            let path = text.strip_prefix("body.").unwrap_or(text);
            match Path::parse(path) {
                Some(path) => volatile.push(path),
                None => {
                    report
                        .error(item.span, "bad-path", format!("`{text}` is not a path into the body"))
                        .hint("such as: meta.sent_at");
                }
            }
        }
        if list.items().is_none() {
            report.error(
                list.span,
                "wrong-type",
                format!("`volatile` is a list of paths, and this is {}", list.describe()),
            );
        }
    }
    KeyStrategy::Fingerprint { volatile }
}

fn read_text(report: Report<'_>, node: &Node) -> Option<KeyStrategy> {
    let Some(text) = node.text().map(str::trim).filter(|text| !text.is_empty()) else {
        report.error(node.span, "bad-key", "a key needs at least one part").hint(FORMS);
        return None;
    };
    if text == "fingerprint" {
        return Some(KeyStrategy::Fingerprint { volatile: vec![] });
    }
    if let Some(name) = header_name(text) {
        check_header(report, node.span, name);
        return Some(KeyStrategy::Header(name.to_ascii_lowercase()));
    }
    let parts = read_part(report, node);
    (!parts.is_empty()).then_some(KeyStrategy::Parts(parts))
}

fn header_name(text: &str) -> Option<&str> {
    text.strip_prefix("header:").or_else(|| text.strip_prefix("headers:")).map(str::trim)
}

fn check_header(report: Report<'_>, span: Span, name: &str) {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        report
            .error(span, "bad-key", format!("`{name}` cannot be the name of a header"))
            .hint("such as header:Idempotency-Key");
    }
}

/// One part of a key. Text around `{{ }}` is kept, apart from what only separates: the parts are joined anyway.
fn read_part(report: Report<'_>, node: &Node) -> Vec<Expression> {
    let Some(text) = node.text().map(str::trim).filter(|text| !text.is_empty()) else {
        report
            .error(node.span, "bad-key", format!("a part of a key is text, and this is {}", node.describe()))
            .hint(FORMS);
        return vec![];
    };
    if let Some(name) = header_name(text) {
        check_header(report, node.span, name);
        let source = format!("headers[\"{}\"]", name.to_ascii_lowercase().replace(['"', '\\'], ""));
        return Expression::parse(&source).into_iter().collect();
    }
    if text == "fingerprint" {
        report
            .error(node.span, "bad-key", "a fingerprint cannot be one part of a key: it covers the whole body")
            .hint("write `key_from: fingerprint`, or put it last in `first_of`");
        return vec![];
    }
    if !text.contains("{{") && !text.contains("${") {
        return expression(report, node.span, text, REQUEST).into_iter().collect();
    }
    let mut parts = vec![];
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
    parts
}
