//! A step that runs a script: `uses: node:18` and `script:`, or `run: script` and `command:`.

use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::script::Runtime;
use sluice_domain::unit;

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::{Scalar, Span, YamlEntry, YamlKind, YamlNode};

/// Default timeout.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of the runtime's command line; a longer program must be in a file.
pub(super) const SCRIPT_BYTES_MAX: usize = 100 * 1024;
/// Environment variables set by Sluice.
pub(super) const OURS: [&str; 6] = ["BODY", "BODY_FILE", "EVENT", "IDEMPOTENCY_KEY", "EFFECT_KEY", "ATTEMPT"];
/// Keys allowed on the step as well as under `with:`.
const ON_STEP: [&str; 3] = ["script", "command", "env"];

/// Runtime required by a step, with its location.
#[derive(Clone, Debug)]
pub struct NeededRuntime {
    pub runtime: Runtime,
    pub(super) file: String,
    pub(super) span: Span,
}

/// Parameters of a script step, and its timeout.
pub(super) struct ReadScript {
    pub(super) with: YamlNode,
    pub(super) timeout: Duration,
    pub(super) needed: Option<NeededRuntime>,
}

/// Reports script keys on a step that is not a script.
pub(super) fn refuse_keys(fields: &Fields<'_, '_>, action: Action) {
    for name in ON_STEP {
        if fields.node(name).is_some() {
            fields
                .report
                .error(
                    fields.key_span(name),
                    "unknown-parameter",
                    format!("{} does not support `{name}`", action.name()),
                )
                .hint("`script`, `command` and `env` require `uses: node:18` or `run: script`");
        }
    }
}

/// Merges the keys of the step with those under `with:` and adds defaults.
pub(super) fn read(fields: &Fields<'_, '_>, with: Option<&YamlNode>, named: &str, span: Span) -> ReadScript {
    let report = fields.report;
    if let Some(node) = with.filter(|node| node.entries().is_none()) {
        report
            .error(node.span, "wrong-type", format!("`with` must be a map, found {}", node.describe()))
            .hint("such as: with: {timeout: 5s}");
    }
    let mut entries: Vec<YamlEntry> = with.and_then(YamlNode::entries).unwrap_or_default().to_vec();
    for name in ON_STEP {
        let Some(node) = fields.node(name) else { continue };
        if entries.iter().any(|entry| entry.key == name) {
            report
                .error(fields.key_span(name), "exclusive-keys", format!("`{name}` is set on the step and under `with`"))
                .hint("remove one of them");
            continue;
        }
        entries.push(YamlEntry { key: name.to_owned(), key_span: fields.key_span(name), value: node.clone() });
    }
    if named != Action::Script.name() {
        entries.retain(|entry| entry.key != "runtime");
        entries.push(written("runtime", named, span));
    }
    for name in ["body", "event"] {
        if !entries.iter().any(|entry| entry.key == name) {
            entries.push(written(name, &format!("{{{{ {name} }}}}"), span));
        }
    }
    let with = YamlNode { span: with.map_or(span, |node| node.span), kind: YamlKind::Map(entries) };
    let needed = check(report, &with, span);
    let timeout =
        with.get("timeout").and_then(YamlNode::text).and_then(|text| unit::duration(text).ok()).unwrap_or(TIMEOUT);
    ReadScript { with, timeout, needed }
}

fn written(key: &str, text: &str, span: Span) -> YamlEntry {
    let value = YamlNode { span, kind: YamlKind::Scalar(Scalar { text: text.to_owned(), quoted: true }) };
    YamlEntry { key: key.to_owned(), key_span: span, value }
}

/// Checks beyond the action catalogue.
fn check(report: Report<'_>, with: &YamlNode, span: Span) -> Option<NeededRuntime> {
    for entry in with.get("env").and_then(YamlNode::entries).unwrap_or_default() {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if entry.key.is_empty() || !entry.key.chars().all(good) || entry.key.starts_with(|c: char| c.is_ascii_digit()) {
            report.error(entry.key_span, "bad-name", format!("`{}` is not a valid variable name", entry.key));
        } else if OURS.contains(&entry.key.as_str()) {
            report
                .error(entry.key_span, "bad-name", format!("`{}` is set by Sluice", entry.key))
                .hint("rename it, or set `body` or `event` under `with`");
        }
    }
    let runtime = with.get("runtime").and_then(|node| {
        let found = node.text().and_then(Runtime::parse);
        if found.is_none() {
            unknown_runtime(report, node.span, node.text().unwrap_or_default());
        }
        Some(NeededRuntime { runtime: found?, file: report.file().to_owned(), span: node.span })
    });
    match (with.get("script"), with.get("command")) {
        (Some(script), None) => {
            if with.get("runtime").is_none() {
                report
                    .error(script.span, "missing-parameter", "the script has no runtime")
                    .hint("use uses: node:18, uses: python:3 or uses: bash instead of run: script");
            }
            if script.text().is_none_or(|text| text.trim().is_empty()) {
                report.error(script.span, "wrong-type", "`script` must be the text of a program");
            }
            if script.text().is_some_and(|text| text.len() > SCRIPT_BYTES_MAX) {
                report
                    .error(script.span, "bad-value", format!("the script has more than {SCRIPT_BYTES_MAX} bytes"))
                    .hint("move it to a file in the configuration directory and import it");
            }
        }
        (None, Some(command)) => {
            let empty = match command.items() {
                Some(items) => items.is_empty(),
                None => command.text().is_none_or(|text| text.trim().is_empty()),
            };
            if empty {
                report.error(command.span, "bad-value", "`command` is empty");
            }
            if let Some(node) = with.get("runtime") {
                report
                    .error(node.span, "exclusive-keys", "`command` and a runtime cannot be combined")
                    .hint("write run: script");
            }
        }
        (Some(_), Some(command)) => {
            report
                .error(command.span, "exclusive-keys", "a step runs a `script` or a `command`, not both")
                .hint("remove one of them");
        }
        (None, None) => {
            report
                .error(span, "missing-parameter", "the step has neither `script` nor `command`")
                .hint("add script: | with the program, or command: [program, argument]");
        }
    }
    runtime.filter(|_| with.get("script").is_some())
}

/// Reports an unknown runtime.
pub(super) fn unknown_runtime(report: Report<'_>, span: Span, written: &str) {
    report.error(span, "unknown-runtime", format!("unknown runtime `{written}`")).meant(
        written,
        Runtime::EXAMPLES,
        "scripts run with node:18, python:3 or bash; for any other program write run: script and command: […]",
    );
}
