//! A list of paths into the body.

use sluice_domain::path::Path;

use super::diagnostics::Report;
use super::node::YamlNode;

/// Reads one path or a list of paths. `name` is its key, for messages.
pub(super) fn read(report: Report<'_>, list: &YamlNode, name: &str) -> Vec<Path> {
    let items = match (list.items(), list.text()) {
        (Some(items), _) => items,
        (None, Some(_)) => std::slice::from_ref(list),
        (None, None) => {
            report.error(
                list.span,
                "wrong-type",
                format!("`{name}` must be a list of paths, found {}", list.describe()),
            );
            return vec![];
        }
    };
    let mut paths = vec![];
    for item in items {
        let text = item.text().unwrap_or_default();
        let path = text.strip_prefix("body.").unwrap_or(text);
        match Path::parse(path) {
            Some(path) => paths.push(path),
            None => {
                report
                    .error(item.span, "bad-path", format!("`{text}` is not a path into the body"))
                    .hint("such as: meta.sent_at");
            }
        }
    }
    paths
}
