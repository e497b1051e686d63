//! Checks of `enrich.geoip` and `enrich.http` beyond the action catalogue.

use sluice_domain::action::Action;
use sluice_domain::enrich::{RESERVED, TIMEOUT_MAX};
use sluice_domain::path::Path;
use sluice_domain::unit;

use super::diagnostics::Report;
use super::node::{Span, YamlNode};

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
