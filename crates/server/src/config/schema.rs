//! `schema:` to a [`Schema`].

use serde_json::Value;
use sluice_domain::schema::Schema;

use super::declarations::Declarations;
use super::diagnostics::Report;
use super::node::{YamlEntry, YamlNode};
use super::parse;

/// Reads an inline schema or one from another file of the configuration.
pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &Declarations) -> Option<Schema> {
    let value: Value = match node.text() {
        None => node.to_value(),
        Some(path) => {
            let path = path.trim_start_matches("./");
            let Some(text) = names.texts.get(path) else {
                let known = names.texts.keys().map(String::as_str);
                report.error(node.span, "unknown-file", format!("the configuration has no file `{path}`")).meant(
                    path,
                    known,
                    "use the path of a .json or .yml file, relative to the configuration",
                );
                return None;
            };
            let (nodes, flaws) = parse::parse(&text.replace('\t', " "));
            match (nodes.as_slice(), flaws.is_empty()) {
                ([one], true) => one.to_value(),
                _ => {
                    report.error(node.span, "bad-schema", format!("`{path}` must contain exactly one document"));
                    return None;
                }
            }
        }
    };
    match Schema::new(&value) {
        Ok(schema) => Some(schema),
        Err(problem) => {
            report.error(node.span, "bad-schema", problem.to_string());
            None
        }
    }
}

/// Whether a document is a JSON Schema rather than a part of the configuration.
pub(super) fn is_schema(entries: &[YamlEntry]) -> bool {
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    has("$schema") || (has("properties") && has("type"))
}
