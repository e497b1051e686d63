//! A value of `identity`, `attributes` or `routing` to a [`FieldMapping`].

use serde_json::Value;
use sluice_domain::event::{FieldForm, FieldMapping, Selection};
use sluice_domain::path::Path;
use sluice_domain::template::Template;

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{YamlEntry, YamlKind, YamlNode};
use super::table::{SectionSpec, ValueType, key};

pub(super) static FIELD: SectionSpec = SectionSpec {
    title: "a field of an event",
    about: "A value of `identity`, `attributes` or `routing` that is selected or converted. A conversion that loses something is a warning on the event; the stored request has the original.",
    keys: &[
        key(
            "from",
            ValueType::Described("a path, or text with {{ … }}"),
            "Source of the value: a path that starts with `body.` or `headers.`, or text with `{{ … }}`.",
        )
        .required(),
        key(
            "where",
            ValueType::Described("a map of paths into an item to texts"),
            "Chooses the first item of the list `from` that has these values, such as {field.ref: email}.",
        ),
        key(
            "take",
            ValueType::Described("a path into the chosen item, or a list of paths"),
            "Value of the chosen item; of several paths, the first that has one.",
        )
        .or("the item"),
        key(
            "as",
            ValueType::OneOf(&FieldForm::NAMES),
            "Form of the value. `text` is trimmed; `email` is trimmed and in lower case; `first_name` and `last_name` are parts of a full name.",
        ),
        key("region", ValueType::Text, "With `as: phone`: country of numbers without a country code, such as US."),
        key(
            "format",
            ValueType::Text,
            "With `as: time` or `as: date`: form of the source in the notation of strftime, such as %d.%m.%Y.",
        )
        .or("RFC 3339, RFC 2822, a date, or a Unix time"),
        key("zone", ValueType::Zone, "With `as: time`: time zone of times without an offset.").or("UTC"),
        key(
            "default",
            ValueType::Described("text, a number, true or false"),
            "Value if the source has none, or none that can be converted.",
        ),
    ],
    later: &[],
    rules: &[],
};

/// Whether a value is written as a field with a source, and not as plain text or a nested map.
pub(super) fn is_field(node: &YamlNode) -> bool {
    node.get("from").is_some()
}

/// Reads the long form of a value. `source` reads the value of `from`.
pub(super) fn read(
    report: Report<'_>,
    node: &YamlNode,
    source: impl FnOnce(&YamlNode) -> Option<Template>,
) -> Option<FieldMapping> {
    let fields = Fields::open(report, node, &[&FIELD])?;
    let from = fields.node("from").and_then(source)?;
    let select = selection(report, &fields);
    let form = fields.one_of("as").and_then(|name| form(report, &fields, name));
    let default = fields.node("default").and_then(|node| default(report, node));
    Some(FieldMapping { from, select, form, default })
}

fn selection(report: Report<'_>, fields: &Fields<'_, '_>) -> Option<Selection> {
    let take = fields.node("take").map(|node| match &node.kind {
        YamlKind::List(items) => items.iter().filter_map(|item| path(report, item, "take")).collect(),
        _ => path(report, node, "take").into_iter().collect::<Vec<_>>(),
    });
    let Some(node) = fields.node("where") else {
        if take.is_some() {
            report
                .error(fields.key_span("take"), "key-without-effect", "`take` needs `where`, which chooses the item")
                .hint("to read one value, write its whole path in `from`");
        }
        return None;
    };
    let Some(entries) = node.entries().filter(|entries| !entries.is_empty()) else {
        return fields.wrong("where", node);
    };
    let condition = |entry: &YamlEntry| {
        let path = Path::parse(&entry.key).or_else(|| {
            report
                .error(entry.key_span, "bad-path", format!("`{}` is not a path into an item", entry.key))
                .hint("such as: field.ref");
            None
        })?;
        let Some(text) = entry.value.text() else {
            report.error(
                entry.value.span,
                "wrong-type",
                format!("`{}` must be text, found {}", entry.key, entry.value.describe()),
            );
            return None;
        };
        Some((path, text.to_owned()))
    };
    let conditions = entries.iter().filter_map(condition).collect();
    Some(Selection { conditions, take: take.unwrap_or_default() })
}

fn path(report: Report<'_>, node: &YamlNode, name: &str) -> Option<Path> {
    let text = node.text().unwrap_or_default();
    let path = Path::parse(text);
    if path.is_none() {
        report
            .error(node.span, "bad-path", format!("`{name}`: `{text}` is not a path into an item"))
            .hint("such as: choice.label");
    }
    path
}

fn form(report: Report<'_>, fields: &Fields<'_, '_>, name: &str) -> Option<FieldForm> {
    let text = |key: &'static str| fields.text(key).map(str::to_owned);
    let form = match name {
        "text" => FieldForm::Text,
        "lower" => FieldForm::Lower,
        "integer" => FieldForm::Integer,
        "number" => FieldForm::Number,
        "flag" => FieldForm::Flag,
        "email" => FieldForm::Email,
        "phone" => FieldForm::Phone { region: text("region") },
        "time" => FieldForm::Time { format: text("format"), zone: text("zone") },
        "date" => FieldForm::Date { format: text("format") },
        "first_name" => FieldForm::FirstName,
        "last_name" => FieldForm::LastName,
        _ => return None,
    };
    check_options(report, fields, &form);
    Some(form)
}

/// An option that the form does not read is a mistake, and so is one that it cannot use.
fn check_options(report: Report<'_>, fields: &Fields<'_, '_>, form: &FieldForm) {
    let read: &[&str] = match form {
        FieldForm::Phone { .. } => &["region"],
        FieldForm::Time { .. } => &["format", "zone"],
        FieldForm::Date { .. } => &["format"],
        _ => &[],
    };
    for name in ["region", "format", "zone"] {
        if fields.node(name).is_some() && !read.contains(&name) {
            report.error(fields.key_span(name), "key-without-effect", format!("`{name}` has no effect on this form"));
        }
    }
    match form {
        FieldForm::Phone { region: Some(region) } if !sluice_domain::normalize::is_region(region) => {
            report
                .error(fields.value_span("region"), "unknown-region", format!("unknown country `{region}`"))
                .hint("use an ISO 3166 code of two letters, such as US or DE");
        }
        FieldForm::Time { format: Some(format), .. } | FieldForm::Date { format: Some(format) }
            if !sluice_domain::event::is_time_format(format) =>
        {
            report
                .error(fields.value_span("format"), "bad-format", format!("`{format}` cannot be used to read a time"))
                .hint("use the notation of strftime, such as %d.%m.%Y %H:%M");
        }
        FieldForm::Time { zone: Some(zone), .. } if jiff::tz::TimeZone::get(zone).is_err() => {
            report
                .error(fields.value_span("zone"), "unknown-zone", format!("unknown time zone `{zone}`"))
                .hint("use an IANA name, such as Europe/Berlin");
        }
        _ => {}
    }
}

fn default(report: Report<'_>, node: &YamlNode) -> Option<Value> {
    match node.scalar() {
        Some(scalar) => Some(scalar.to_value()),
        None => {
            report.error(
                node.span,
                "wrong-type",
                format!("`default` must be text, a number, true or false, found {}", node.describe()),
            );
            None
        }
    }
}
