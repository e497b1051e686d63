//! What a document is: its keys say it.

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{YamlEntry, YamlNode};
use super::problem::did_you_mean;
use super::schema;
use super::table::{SectionSpec, ValueType, key};

pub(super) static FILE: SectionSpec = SectionSpec {
    title: "a file",
    about: "A file holds one document, or several with `---` between them. Where it lies and what it is called does not matter: its keys say what it is.",
    keys: &[key("version", ValueType::OneOf(&["1"]), "The version of the language.").or("1")],
    later: &[],
    rules: &[],
};

pub(super) static DOCUMENT: SectionSpec = SectionSpec {
    title: "any document",
    about: "These sections may stand in any document, beside a flow or a worker too.",
    keys: &[
        key("queues", ValueType::Tables("a queue"), "Where jobs wait."),
        key(
            "destinations",
            ValueType::Described("a map of names to destinations, or a list of them"),
            "Where effects go.",
        ),
        key(
            "policies",
            ValueType::Described("a map of names to policies, or a list of them"),
            "What has to hold before an effect happens.",
        ),
    ],
    later: &["alerts"],
    rules: &[],
};

pub(super) static POLICY: SectionSpec = SectionSpec {
    title: "a policy document",
    about: "A document with nothing but `retry:` is the policy of every worker that has none of its own.",
    keys: &[key("retry", ValueType::Table("a retry policy"), "The policy.")],
    later: &[],
    rules: &[],
};

/// What a document is, beside its sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Flow,
    Worker,
    /// Only sections.
    Sections,
    /// Ours, and what is wrong with it was said; what it would have held is not known.
    Broken,
    /// Somebody else's.
    Foreign,
}

/// Says what a document is. A document that is none of ours gets a warning, and one that should be gets an error.
pub(super) fn classify(report: Report<'_>, node: &YamlNode) -> What {
    if node.is_null() {
        return What::Foreign;
    }
    let Some(entries) = node.entries() else {
        report.warning(
            node.span,
            "not-ours",
            format!("this file is skipped: it holds {} and no section of ours", node.describe()),
        );
        return What::Foreign;
    };
    let find = |name: &str| entries.iter().find(|entry| entry.key == name);
    let works = ["consumes", "on", "schedule"];
    match (find("triggers"), works.iter().find_map(|name| find(name))) {
        (Some(_), Some(work)) => {
            report
                .error(
                    work.key_span,
                    "two-kinds",
                    format!("this document has `triggers` and `{}`, so it is a flow and a worker at once", work.key),
                )
                .hint("put the worker into a document of its own, after a line with ---");
            return What::Broken;
        }
        (Some(_), None) => return What::Flow,
        (None, Some(_)) => return What::Worker,
        (None, None) => {}
    }
    if ["queues", "destinations", "policies", "alerts"].iter().any(|name| find(name).is_some()) {
        Fields::open(report, node, &[&FILE, &DOCUMENT]).map(|fields| fields.one_of("version"));
        return What::Sections;
    }
    if find("retry").is_some() && entries.iter().all(|entry| ["retry", "version"].contains(&entry.key.as_str())) {
        Fields::open(report, node, &[&FILE, &DOCUMENT, &POLICY]).map(|fields| fields.one_of("version"));
        return What::Sections;
    }
    unclear(report, node, entries)
}

/// A document in which no key says what it is.
fn unclear(report: Report<'_>, node: &YamlNode, entries: &[YamlEntry]) -> What {
    if schema::is_schema(entries) {
        return What::Foreign;
    }
    let kinds = ["triggers", "consumes", "schedule", "queues", "destinations", "policies", "retry"];
    let near = entries.iter().find_map(|entry| Some((entry, did_you_mean(&entry.key, kinds)?)));
    let ours = ["steps", "run", "event", "responses", "concurrency"];
    let marked = entries.iter().find(|entry| ours.contains(&entry.key.as_str()));
    match (near, marked) {
        (Some((entry, meant)), _) => {
            report
                .error(entry.key_span, "unknown-kind", format!("`{}` does not say what this is", entry.key))
                .hint(format!("did you mean `{meant}`?"));
            What::Broken
        }
        (None, Some(entry)) => {
            report
                .error(
                    entry.key_span,
                    "unknown-kind",
                    format!("there is `{}`, but nothing says whether this is a flow or a worker", entry.key),
                )
                .hint("a flow has `triggers:`, a worker `consumes:`, `on:` or `schedule:`");
            What::Broken
        }
        (None, None) => {
            let span = entries.first().map_or(node.span, |entry| entry.key_span);
            report
                .warning(span, "not-ours", "this document is skipped: it has no key of ours")
                .hint("a flow has `triggers:`, a worker `consumes:`; there are also `queues:` and `destinations:`");
            What::Foreign
        }
    }
}
