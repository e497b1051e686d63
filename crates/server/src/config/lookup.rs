//! Checks of `enrich.geoip` and `enrich.http` beyond the action catalogue.

use std::collections::BTreeSet;

use sluice_domain::action::Action;
use sluice_domain::enrich::{COMPANY_FIELDS, RESERVED, TIMEOUT_MAX, geo_field_names};
use sluice_domain::path::Path;
use sluice_domain::template::Template;
use sluice_domain::unit;
use sluice_domain::worker::{Step, Worker};

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::expression::{SecretUse, Visible, text_template};
use super::fields::Fields;
use super::node::{Span, YamlKind, YamlNode};

/// The type of `identity` of a step.
pub(super) const IDENTITY: &str = "a map of identity fields to text that reads steps.NAME.output";

/// Geo database that a step reads, with its location.
#[derive(Clone, Debug)]
pub struct NeededDatabase {
    /// As written.
    pub path: String,
    pub(super) file: String,
    pub(super) span: Span,
}

/// Parameters of lookups that are read at startup; templates are not allowed.
pub(super) fn is_decided_before(action: Action, parameter: &str) -> bool {
    match action {
        Action::EnrichGeoip => parameter == "database",
        Action::EnrichHttp => matches!(parameter, "fields" | "timeout" | "cache" | "negative_cache"),
        _ => false,
    }
}

/// Database of a step, if it names one.
pub(super) fn needed_database(report: Report<'_>, action: Action, with: Option<&YamlNode>) -> Option<NeededDatabase> {
    let node = with.filter(|_| action == Action::EnrichGeoip)?.get("database")?;
    let path = node.text().filter(|text| !text.trim().is_empty() && !text.contains("{{"))?.to_owned();
    Some(NeededDatabase { path, file: report.file().to_owned(), span: node.span })
}

/// Checks `fields` and `timeout` of `enrich.http`.
pub(super) fn check_http(report: Report<'_>, with: &YamlNode) {
    if let Some(timeout) = with.get("timeout")
        && timeout.text().and_then(|text| unit::duration(text).ok()).is_some_and(|timeout| timeout > TIMEOUT_MAX)
    {
        report
            .error(timeout.span, "bad-value", "a lookup may take at most 10s")
            .hint("the job continues without it; use http.request for a call that it must wait for");
    }
    let Some(fields) = with.get("fields").and_then(YamlNode::entries) else { return };
    if fields.is_empty() {
        report
            .error(with.get("fields").map_or(with.span, |fields| fields.span), "missing-parameter", "`fields` is empty")
            .hint("name what is taken from the response: fields: {size: company.size}");
    }
    for entry in fields {
        if RESERVED.contains(&entry.key.as_str()) {
            report
                .error(entry.key_span, "bad-value", format!("every output of a lookup has its own `{}`", entry.key))
                .hint("choose another name");
        }
        if entry.value.text().is_none_or(|path| Path::parse(path).is_none()) {
            report
                .error(
                    entry.value.span,
                    "bad-value",
                    format!("`fields.{}` must be a path into the response", entry.key),
                )
                .hint("such as: company.size or matches[0].title");
        }
    }
}

/// Reads `identity` of a step: what its output supplies for an event without an identity. `before` are the steps in front of it.
pub(super) fn read_identity(
    fields: &Fields<'_, '_>,
    step: &Step,
    before: &[Step],
    visible: Visible<'_>,
    names: &Declarations,
) -> Vec<(String, Template)> {
    let report = fields.report;
    let Some(node) = fields.node("identity") else { return vec![] };
    let span = fields.key_span("identity");
    if !step.action.is_lookup() {
        report
            .error(
                span,
                "unknown-parameter",
                format!("{} is no lookup, so it supplies no identity", step.action.name()),
            )
            .hint("`identity` belongs to an `enrich` step; a flow maps `event.identity` from the request");
        return vec![];
    }
    if let Some(first) = before.iter().find(|step| !step.action.is_lookup()) {
        let message =
            format!("`{}` runs after `{}`, and an event without an identity runs no other action", step.id, first.id);
        report.error(span, "step-order", message).hint("move the lookup to the front of the worker");
    }
    match &names.contacts {
        None if !names.incomplete => {
            report
                .error(span, "missing-section", "`identity` names a contact, and no contacts are kept")
                .hint("add a section `contacts: {}`, or remove `identity`");
        }
        _ => {}
    }
    let Some(entries) = node.entries().filter(|entries| !entries.is_empty()) else {
        let message = format!("`identity` must be {IDENTITY}, found {}", node.describe());
        report
            .error(node.span, "wrong-type", message)
            .hint("such as: identity: {email: \"{{ steps.person.output.email }}\"}");
        return vec![];
    };
    let visible = Visible { secrets: SecretUse::Refused, ..visible };
    let mut identity = vec![];
    for entry in entries {
        if let Some(contacts) = &names.contacts {
            let known: Vec<&str> = contacts.value.identifiers().collect();
            if !known.contains(&entry.key.as_str()) {
                let message = format!("`{}` identifies no contact", entry.key);
                let otherwise = format!("the identifiers are {}", known.join(", "));
                report.error(entry.key_span, "unknown-field", message).meant(&entry.key, known, &otherwise);
            }
        }
        match entry.value.text().filter(|text| text.contains("steps.")) {
            Some(text) => {
                identity.extend(
                    text_template(report, entry.value.span, text, visible).map(|value| (entry.key.clone(), value)),
                );
            }
            None => report
                .error(
                    entry.value.span,
                    "bad-value",
                    format!(
                        "`identity.{}` reads no output of a lookup, so it would be the same for every event",
                        entry.key
                    ),
                )
                .hint(format!("such as: {{{{ steps.{}.output.{} }}}}", step.id, entry.key)),
        }
    }
    identity
}

/// Warns of outputs of lookups that the document of a worker reads and that never have a value.
pub(super) fn check_reads(report: Report<'_>, document: &YamlNode, worker: &Worker) {
    let lookups = worker.steps.iter().filter(|step| step.action.is_lookup() && step.foreach.is_none());
    let lookups: Vec<(String, BTreeSet<String>)> =
        lookups.map(|step| (format!("steps.{}.output.", step.id), outputs(step))).collect();
    if !lookups.is_empty() {
        visit(report, document, &lookups);
    }
}

/// Names in the output of a lookup.
fn outputs(step: &Step) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = RESERVED.map(str::to_owned).into();
    match step.action {
        Action::EnrichCompany => names.extend(COMPANY_FIELDS.map(str::to_owned)),
        Action::EnrichGeoip => names.extend(geo_field_names().map(str::to_owned)),
        _ => {
            let Template::Map(with) = &step.with else { return names };
            match with.iter().find(|(name, _)| name == "fields").map(|(_, fields)| fields) {
                Some(Template::Map(fields)) => names.extend(fields.iter().map(|(name, _)| name.clone())),
                Some(Template::Literal(fields)) => {
                    names.extend(fields.as_object().into_iter().flatten().map(|(name, _)| name.clone()));
                }
                _ => {}
            }
        }
    }
    names
}

fn visit(report: Report<'_>, node: &YamlNode, lookups: &[(String, BTreeSet<String>)]) {
    match &node.kind {
        YamlKind::Map(entries) => {
            // A program is not a template.
            let templates = entries.iter().filter(|entry| entry.key != "script");
            templates.for_each(|entry| visit(report, &entry.value, lookups));
        }
        YamlKind::List(items) => items.iter().for_each(|item| visit(report, item, lookups)),
        YamlKind::Scalar(scalar) => {
            for (prefix, known) in lookups {
                for (at, _) in scalar.text.match_indices(prefix.as_str()) {
                    let rest = &scalar.text[at + prefix.len()..];
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                    let name = &rest[..end];
                    if !name.is_empty() && !known.contains(name) {
                        let message = format!("`{prefix}{name}` never has a value");
                        let names: Vec<&str> = known.iter().map(String::as_str).collect();
                        let otherwise = format!("the output has {}", names.join(", "));
                        report.warning(node.span, "unknown-output", message).meant(name, names, &otherwise);
                    }
                }
            }
        }
    }
}
