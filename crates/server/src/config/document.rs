//! Classifies a document by its keys.

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{YamlEntry, YamlNode};
use super::parse;
use super::problem::did_you_mean;
use super::schema;
use super::table::{SectionSpec, ValueType, key};

pub(super) static FILE: SectionSpec = SectionSpec {
    title: "a file",
    about: "A file holds one document, or several with `---` between them. Its path and name do not matter; its keys determine what it declares.",
    keys: &[key("version", ValueType::OneOf(&["1"]), "Version of the configuration language.").or("1")],
    later: &[],
    rules: &[],
};

pub(super) static DOCUMENT: SectionSpec = SectionSpec {
    title: "any document",
    about: "Sections allowed in any document, including documents of flows and workers.",
    keys: &[
        key("queues", ValueType::Tables("a queue"), "Queues of jobs."),
        key(
            "destinations",
            ValueType::Described("a map of names to destinations, or a list of them"),
            "External systems.",
        ),
        key(
            "policies",
            ValueType::Described("a map of names to policies, or a list of them"),
            "Rules that are evaluated before an effect is sent.",
        ),
        key("contacts", ValueType::Table("contacts"), "Keeps one contact for each person; at most one such section."),
        key("alerts", ValueType::Table("alerts"), "Tunes alerts and sends them; at most one such section."),
        key(
            "traces",
            ValueType::Table("traces"),
            "Sends traces to a receiver of OpenTelemetry; at most one such section.",
        ),
        key(
            "oidc",
            ValueType::Table("oidc"),
            "Sign-in to the console by an OpenID provider; at most one such section.",
        ),
    ],
    later: &[],
    rules: &[],
};

pub(super) static POLICY: SectionSpec = SectionSpec {
    title: "a policy document",
    about: "A document with only `retry:` is the retry policy of every worker without its own.",
    keys: &[key("retry", ValueType::Table("a retry policy"), "Default retry policy.")],
    later: &[],
    rules: &[],
};

/// Keys that determine a worker.
const WORK: [&str; 3] = ["consumes", "on", "schedule"];
/// Keys of sections.
const SECTIONS: [&str; 7] = ["queues", "destinations", "policies", "contacts", "traces", "alerts", "oidc"];
/// Keys that determine a document of a connector.
const CONNECTORS: [&str; 2] = ["connector", "answers"];
/// Keys that determine the kind of a document, for hints.
const KINDS: [&str; 11] = [
    "triggers",
    "consumes",
    "schedule",
    "queues",
    "destinations",
    "policies",
    "contacts",
    "alerts",
    "traces",
    "oidc",
    "retry",
];
/// Keys of flows and workers that do not determine the kind.
const MARKS: [&str; 5] = ["steps", "run", "event", "responses", "concurrency"];

/// Whether a file belongs to another program: it has no key of a configuration, nor one that looks like a typing error of
/// it. JSON is also the form of payloads and of many tools, so only the keys that a document must have count there.
pub(super) fn is_foreign(path: &str, text: &str) -> bool {
    let is_json = path.to_ascii_lowercase().ends_with(".json");
    let (nodes, flaws) = parse::parse(&if is_json { text.replace('\t', " ") } else { text.to_owned() });
    if !flaws.is_empty() {
        return is_json && !KINDS.iter().any(|kind| text.contains(&format!("\"{kind}\"")));
    }
    let is_foreign = |node: &YamlNode| match node.entries() {
        None => !node.is_null(),
        Some(entries) if is_json => !is_json_configuration(entries),
        Some(entries) => {
            let ours = |key: &str| {
                WORK.contains(&key) || SECTIONS.contains(&key) || MARKS.contains(&key) || CONNECTORS.contains(&key)
            };
            let is_near = |key: &str| KINDS.contains(&key) || did_you_mean(key, KINDS).is_some();
            !entries.iter().any(|entry| ours(&entry.key) || is_near(&entry.key))
        }
    };
    !nodes.is_empty() && nodes.iter().all(is_foreign)
}

fn is_json_configuration(entries: &[YamlEntry]) -> bool {
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    let is_policy = has("retry") && entries.iter().all(|entry| ["retry", "version"].contains(&entry.key.as_str()));
    has("triggers")
        || (has("connector") && has("actions"))
        || (has("answers") && has("cases"))
        || (WORK.iter().any(|name| has(name)) && has("run"))
        || SECTIONS.iter().any(|name| has(name))
        || is_policy
}

/// Paths of schemas that the documents of a file name.
pub(super) fn named_schemas(text: &str) -> Vec<String> {
    fn find(node: &YamlNode, paths: &mut Vec<String>) {
        for entry in node.entries().unwrap_or_default() {
            if let Some(path) = entry.value.text().filter(|_| entry.key == "schema") {
                paths.push(path.trim_start_matches("./").to_owned());
            }
            find(&entry.value, paths);
        }
        node.items().unwrap_or_default().iter().for_each(|item| find(item, paths));
    }
    let mut paths = vec![];
    parse::parse(&text.replace('\t', " ")).0.iter().for_each(|node| find(node, &mut paths));
    paths
}

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentKind {
    Flow,
    Worker,
    /// Declares a type of destination.
    Connector,
    /// Recorded answers of a connector.
    Answers,
    Sections,
    /// Has reported errors; its content is unknown.
    Broken,
    Foreign,
}

/// Classifies a document. A foreign document gets a warning, an ambiguous one an error.
pub(super) fn classify(report: Report<'_>, node: &YamlNode) -> DocumentKind {
    if node.is_null() {
        return DocumentKind::Foreign;
    }
    let Some(entries) = node.entries() else {
        report.warning(
            node.span,
            "not-ours",
            format!("skipped: the file contains {} and no section of a Sluice configuration", node.describe()),
        );
        return DocumentKind::Foreign;
    };
    let find = |name: &str| entries.iter().find(|entry| entry.key == name);
    match (find("triggers"), WORK.iter().find_map(|name| find(name))) {
        (Some(_), Some(work)) => {
            report
                .error(
                    work.key_span,
                    "two-kinds",
                    format!("this document has `triggers` and `{}`, so it would be a flow and a worker", work.key),
                )
                .hint("put the worker into a separate document, after a line with ---");
            return DocumentKind::Broken;
        }
        (Some(_), None) => return DocumentKind::Flow,
        (None, Some(_)) => return DocumentKind::Worker,
        (None, None) => {}
    }
    if find("connector").is_some() {
        return DocumentKind::Connector;
    }
    if find("answers").is_some() {
        return DocumentKind::Answers;
    }
    if SECTIONS.iter().any(|name| find(name).is_some()) {
        Fields::open(report, node, &[&FILE, &DOCUMENT]).map(|fields| fields.one_of("version"));
        return DocumentKind::Sections;
    }
    if find("retry").is_some() && entries.iter().all(|entry| ["retry", "version"].contains(&entry.key.as_str())) {
        Fields::open(report, node, &[&FILE, &DOCUMENT, &POLICY]).map(|fields| fields.one_of("version"));
        return DocumentKind::Sections;
    }
    unclear(report, node, entries)
}

/// Reports a document without a key that determines its kind.
fn unclear(report: Report<'_>, node: &YamlNode, entries: &[YamlEntry]) -> DocumentKind {
    if schema::is_schema(entries) {
        return DocumentKind::Foreign;
    }
    let near = entries.iter().find_map(|entry| Some((entry, did_you_mean(&entry.key, KINDS)?)));
    let marked = entries.iter().find(|entry| MARKS.contains(&entry.key.as_str()));
    match (near, marked) {
        (Some((entry, meant)), _) => {
            report
                .error(
                    entry.key_span,
                    "unknown-kind",
                    format!("`{}` does not determine the kind of the document", entry.key),
                )
                .hint(format!("did you mean `{meant}`?"));
            DocumentKind::Broken
        }
        (None, Some(entry)) => {
            report
                .error(
                    entry.key_span,
                    "unknown-kind",
                    format!("the document has `{}`, but no key determines whether it is a flow or a worker", entry.key),
                )
                .hint("a flow has `triggers:`, a worker `consumes:`, `on:` or `schedule:`");
            DocumentKind::Broken
        }
        (None, None) => {
            let span = entries.first().map_or(node.span, |entry| entry.key_span);
            report
                .warning(span, "not-ours", "skipped: the document has no key of a Sluice configuration")
                .hint("a flow has `triggers:`, a worker `consumes:`; there are also `queues:` and `destinations:`");
            DocumentKind::Foreign
        }
    }
}
