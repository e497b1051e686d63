//! `event:` to an [`EventMapping`].

use sluice_domain::event::{EventMapping, FieldMapping};
use sluice_domain::flow::{OnMismatch, PayloadRules};
use sluice_domain::path::{Path, Segment};
use sluice_domain::template::{Expression, Template};

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::expression::{REQUEST, first_of_path, path_as_text, template, warn_of_fallback};
use super::field_mapping;
use super::fields::Fields;
use super::node::{YamlEntry, YamlKind, YamlNode};
use super::problem::did_you_mean;
use super::schema;
use super::table::{SectionSpec, ValueType, key};

pub(super) static EVENT: SectionSpec = SectionSpec {
    title: "an event",
    about: "Mapping of a payload to an event. A value is a path that starts with `body.` or `headers.`, text with `{{ … }}`, or plain text.",
    keys: &[
        key("schema_version", ValueType::Text, "Version of the event schema; part of every event.").or("1.0"),
        key("mapping_version", ValueType::Text, "Version of the mapping; part of every event. Change it with the mapping.").or("1"),
        key("type", ValueType::Template, "Event type, such as lead.created.").or("the flow's name"),
        key("id", ValueType::Template, "Event id assigned by the source."),
        key("occurred_at", ValueType::Template, "Time of the event: RFC 3339 text or a Unix time."),
        key("identity", ValueType::Described("a map of names to values, or to a field of an event"), "Fields that identify the entity of the event. If a part of a value is missing, null or blank, the whole value is missing."),
        key(
            "attributes",
            ValueType::Described("a map of names to values, or to a field of an event; or a list of fields of the body"),
            "Attributes of the event.",
        )
        .or("the whole body"),
        key("routing", ValueType::Described("a map of names to values, or to a field of an event"), "Routing hints."),
        key(
            "required",
            ValueType::Described("a list of paths into the event, such as identity.email"),
            "Paths that must have a value; otherwise the payload is invalid.",
        ),
        key(
            "schema",
            ValueType::Described("a JSON Schema, or the path of a file of this configuration that holds one"),
            "JSON Schema of the payload.",
        ),
        key(
            "on_mismatch",
            ValueType::OneOf(&["reject", "quarantine"]),
            "Handling of a payload that is invalid or cannot be mapped: reject the whole request, or keep the event for an \
             person.",
        )
        .or("reject; quarantine if the request carries several events"),
        key("require_identity", ValueType::Flag, "Whether the jobs of an event without identity fields wait for an operator.")
            .or("true if `identity` is mapped and a worker writes to a CRM, or looks up an identity"),
    ],
    later: &[],
    rules: &[],
};

pub(super) struct ReadEvent {
    pub(super) mapping: EventMapping,
    /// `type` is set, so the default of the sender's scheme does not apply.
    pub(super) type_written: bool,
    pub(super) admission: PayloadRules,
}

/// Reads the section; without one the event is the body.
pub(super) fn read(report: Report<'_>, node: Option<&YamlNode>, flow: &str, names: &Declarations) -> ReadEvent {
    let mut read =
        ReadEvent { mapping: EventMapping::plain(flow), type_written: false, admission: PayloadRules::default() };
    let mapping = &mut read.mapping;
    let Some(fields) = node.and_then(|node| Fields::open(report, node, &[&EVENT])) else { return read };
    if let Some(version) = fields.text("schema_version") {
        mapping.schema_version = version.to_owned();
    }
    if let Some(version) = fields.text("mapping_version") {
        mapping.mapping_version = version.to_owned();
    }
    if let Some(event_type) = fields.node("type").and_then(|node| value(report, node)) {
        mapping.event_type = event_type;
        read.type_written = true;
    }
    mapping.source_event_id = fields.node("id").and_then(|node| identifying(report, node, "event id"));
    mapping.occurred_at = fields.node("occurred_at").and_then(|node| value(report, node));
    mapping.identity = fields.node("identity").map(|node| section(report, node, "identity")).unwrap_or_default();
    mapping.attributes = fields.node("attributes").map(|node| match &node.kind {
        YamlKind::List(items) => listed(report, items),
        _ => section(report, node, "attributes"),
    });
    mapping.routing = fields.node("routing").map(|node| section(report, node, "routing")).unwrap_or_default();
    if let Some(node) = fields.node("required") {
        mapping.required = required(report, node, mapping);
    }
    read.admission = PayloadRules {
        schema: fields.node("schema").and_then(|node| schema::read(report, node, names)),
        on_mismatch: match fields.one_of("on_mismatch") {
            Some("reject") => OnMismatch::Reject,
            Some(_) => OnMismatch::Quarantine,
            None => OnMismatch::RejectUnlessBatch,
        },
        require_identity: fields.flag("require_identity"),
        known_fields: None,
    };
    if read.admission.require_identity == Some(true) && read.mapping.identity.is_empty() {
        report
            .error(
                fields.key_span("require_identity"),
                "never-filled",
                "`require_identity` is set but no identity is mapped, so every event would be quarantined",
            )
            .hint("such as: identity: {email: body.email}");
    }
    read
}

/// Value of the mapping. A plain path is an expression, so that the common case needs no braces.
fn value(report: Report<'_>, node: &YamlNode) -> Option<Template> {
    if let Some(text) = node.text()
        && ["body.", "headers.", "body["].iter().any(|root| text.starts_with(root))
        && Path::parse(text).is_some()
    {
        return Expression::parse(text).ok().map(Template::Expression);
    }
    template(report, node, REQUEST)
}

/// Value that identifies something.
fn identifying(report: Report<'_>, node: &YamlNode, what: &str) -> Option<Template> {
    let template = value(report, node)?;
    warn_of_fallback(report, node.span, &template, what);
    Some(template)
}

fn section(report: Report<'_>, node: &YamlNode, name: &str) -> Vec<(String, FieldMapping)> {
    let Some(entries) = node.entries() else {
        report
            .error(
                node.span,
                "wrong-type",
                format!("`{name}` must be a map of names to values, found {}", node.describe()),
            )
            .hint(format!("such as: {name}: {{email: body.email}}"));
        return vec![];
    };
    let read = |entry: &YamlEntry| {
        let source = |node: &YamlNode| {
            if name != "routing" {
                warn_of_path(report, node);
            }
            match name {
                "identity" => identifying(report, node, "identity"),
                _ => value(report, node),
            }
        };
        let field = match field_mapping::is_field(&entry.value) {
            true => field_mapping::read(report, &entry.value, source),
            false => source(&entry.value).map(FieldMapping::from),
        };
        Some((entry.key.clone(), field?))
    };
    entries.iter().filter_map(read).collect()
}

/// Warns of unquoted text that looks like a path and has no root at all. [`template`] warns of one whose root is misspelled.
fn warn_of_path(report: Report<'_>, node: &YamlNode) {
    let Some(scalar) = node.scalar().filter(|scalar| !scalar.quoted) else { return };
    let Some(first) = first_of_path(&scalar.text) else { return };
    if REQUEST.roots.contains(&first) || did_you_mean(first, REQUEST.roots.iter().copied()).is_some() {
        return;
    }
    let hint = format!("did you mean `body.{}`? Put text in quotes", scalar.text);
    path_as_text(report, node.span, &scalar.text, &hint);
}

/// `[first_name, company.name]`: each field is named by its last path segment.
fn listed(report: Report<'_>, items: &[YamlNode]) -> Vec<(String, FieldMapping)> {
    let mut attributes: Vec<(String, FieldMapping)> = vec![];
    for item in items {
        let text = item.text().unwrap_or_default();
        let path = text.strip_prefix("body.").unwrap_or(text);
        let name = Path::parse(path).and_then(|path| match path.0.last() {
            Some(Segment::Key(name)) => Some(name.clone()),
            _ => None,
        });
        match (name, Expression::parse(&format!("body.{path}"))) {
            (Some(name), _) if attributes.iter().any(|(taken, _)| *taken == name) => {
                report
                    .error(item.span, "duplicate-name", format!("two attributes have the name `{name}`"))
                    .hint("write `attributes` as a map to give them different names");
            }
            (Some(name), Ok(expression)) => attributes.push((name, Template::Expression(expression).into())),
            _ => {
                report
                    .error(item.span, "bad-path", format!("`{text}` is not a field of the body"))
                    .hint("such as: first_name");
            }
        }
    }
    attributes
}

const SHAPE: [&str; 6] = ["schema_version", "event_id", "event_type", "source", "occurred_at", "idempotency_key"];

fn required(report: Report<'_>, node: &YamlNode, mapping: &EventMapping) -> Vec<(String, Path)> {
    let Some(items) = node.items() else {
        report.error(node.span, "wrong-type", format!("`required` must be a list of paths, found {}", node.describe()));
        return vec![];
    };
    let mut paths = vec![];
    for item in items {
        let written = item.text().unwrap_or_default();
        let text = written.strip_prefix("event.").unwrap_or(written);
        let Some(path) = Path::parse(text) else {
            report
                .error(item.span, "bad-path", format!("`{written}` is not a path into the event"))
                .hint("such as: identity.email");
            continue;
        };
        check_reachable(report, item, text, &path, mapping);
        paths.push((text.to_owned(), path));
    }
    paths
}

/// A required field that the mapping never fills would reject every event.
fn check_reachable(report: Report<'_>, item: &YamlNode, text: &str, path: &Path, mapping: &EventMapping) {
    let Some(Segment::Key(first)) = path.0.first() else { return };
    let names = |section: &[(String, FieldMapping)]| section.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let open = mapping.attributes.is_none();
    let attributes = mapping.attributes.as_deref().map(names).unwrap_or_default();
    let (known, wanted, prefix): (Vec<String>, Option<&Segment>, &str) = match first.as_str() {
        "identity" => (names(&mapping.identity), path.0.get(1), "identity."),
        "attributes" if open => return,
        "attributes" => (attributes, path.0.get(1), "attributes."),
        "routing" => (names(&mapping.routing), path.0.get(1), "routing."),
        "audit" => return,
        other if SHAPE.contains(&other) || (open && other != "body" && other != "headers") => return,
        _ => ([names(&mapping.identity), attributes].concat(), path.0.first(), ""),
    };
    let Some(Segment::Key(wanted)) = wanted else { return };
    if !known.contains(wanted) {
        let filled: Vec<String> = known.iter().map(|name| format!("{prefix}{name}")).collect();
        let hint = match known.is_empty() {
            true => "add it to the mapping, or remove it from `required`".to_owned(),
            false => format!("the mapping fills {}", filled.join(", ")),
        };
        report
            .error(
                item.span,
                "never-filled",
                format!("`{text}` is required but never mapped, so every event would be rejected"),
            )
            .meant(&format!("{prefix}{wanted}"), filled.iter().map(String::as_str), &hint);
    }
}
