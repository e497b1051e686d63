//! `queues:` to [`Queue`]s.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_domain::worker::Queue;

use super::declarations::{Placed, add};
use super::diagnostics::Report;
use super::fields::{Fields, check_name};
use super::node::{Span, YamlKind, YamlNode};
use super::table::{LASTING, SectionSpec, ValueType, key};

/// Retention of implicit dead-letter queues.
pub(super) const IMPLICIT_RETENTION: Duration = Duration::from_secs(30 * 86_400);

pub(super) static QUEUE: SectionSpec = SectionSpec {
    title: "a queue",
    about: "Queue of jobs. `queues:` is a list of queues, or a map of names to queues.",
    keys: &[
        key("name", ValueType::Name, "Unique name; in a map, the key is the name.").required(),
        key("visibility_timeout", LASTING, "Timeout of one attempt; after it the outcome is unknown.").or("90s"),
        key("retention", LASTING, "Maximum waiting time of a job. Older jobs become dead letters; in a dead-letter queue they are dropped, with an audit entry.").or("14d"),
        key("dead_letter_queue", ValueType::Name, "Queue of permanently failed jobs.").or("NAME-dlq, created implicitly with a retention of 30 days"),
    ],
    later: &[],
    rules: &[],
};

/// Reference from a queue to its dead-letter queue.
pub(super) struct DeadLetter {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) span: Span,
}

/// The caller checks the names of dead-letter queues, once all queues are known.
pub(super) fn read_all(
    report: Report<'_>,
    node: &YamlNode,
    queues: &mut BTreeMap<String, Placed<Queue>>,
) -> Vec<DeadLetter> {
    let mut dead_letters = vec![];
    for (name, span, settings) in named_items(report, node, "queues", "a queue") {
        let queue = match settings {
            Some(settings) => read(report, name, settings, &mut dead_letters),
            None => plain(name),
        };
        add(queues, report, "queue", (name, span), queue);
    }
    dead_letters
}

/// Queue with default settings.
pub(super) fn plain(name: &str) -> Queue {
    Queue {
        name: name.to_owned(),
        visibility_timeout: Queue::VISIBILITY_TIMEOUT,
        retention: Queue::RETENTION,
        dead_letter_queue: None,
    }
}

fn read(report: Report<'_>, name: &str, node: &YamlNode, dead_letters: &mut Vec<DeadLetter>) -> Queue {
    let mut queue = plain(name);
    let Some(fields) = Fields::open_named(report, node, &[&QUEUE]) else { return queue };
    if let Some(timeout) = fields.duration("visibility_timeout") {
        queue.visibility_timeout = timeout;
    }
    if let Some(retention) = fields.duration("retention") {
        queue.retention = retention;
    }
    if let Some((to, span)) = fields.name("dead_letter_queue") {
        dead_letters.push(DeadLetter { from: name.to_owned(), to: to.to_owned(), span });
        queue.dead_letter_queue = Some(to.into());
    }
    queue
}

/// Items of a section: a list of maps with `name`, a list of names, or a map of names to settings.
pub(super) fn named_items<'n>(
    report: Report<'_>,
    node: &'n YamlNode,
    section: &str,
    what: &str,
) -> Vec<(&'n str, Span, Option<&'n YamlNode>)> {
    let mut found = vec![];
    match &node.kind {
        YamlKind::Map(entries) => {
            for entry in entries {
                if check_name(report, entry.key_span, &entry.key) {
                    let settings = (!entry.value.is_null()).then_some(&entry.value);
                    found.push((entry.key.as_str(), entry.key_span, settings));
                }
            }
        }
        YamlKind::List(items) => {
            for item in items {
                if let Some(name) = item.text() {
                    if check_name(report, item.span, name) {
                        found.push((name, item.span, None));
                    }
                } else if let Some(name) = item.get("name").filter(|name| name.text().is_some()) {
                    let text = name.text().unwrap_or_default();
                    if check_name(report, name.span, text) {
                        found.push((text, name.span, Some(item)));
                    }
                } else {
                    report
                        .error(item.span, "missing-key", format!("{what} needs `name`"))
                        .hint(format!("write `- name: …` for each item of `{section}`"));
                }
            }
        }
        YamlKind::Scalar(_) => {
            report
                .error(
                    node.span,
                    "wrong-type",
                    format!("`{section}` must be a list or a map, found {}", node.describe()),
                )
                .hint(format!("for example: {section}: [{{name: contacts}}]"));
        }
    }
    found
}
