//! Files in `templates/` to [`Messages`], and checks of the steps that send them.

use std::collections::BTreeMap;

use sluice_domain::template::{Messages, Part, ROOTS};

use super::declarations::Declarations;
use super::diagnostics::{Diagnostics, Report};
use super::expression::{FUNCTIONS, Visible};
use super::node::{Span, YamlNode};
use super::problem::did_you_mean;
use super::read::Files;

/// Directory of message templates, relative to the configuration.
pub(super) const DIRECTORY: &str = "templates";

/// Message name and part of a template file.
pub(super) fn part_of(path: &str) -> Option<(&str, Part)> {
    let file = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
    let (name, extension) = file.rsplit_once('.')?;
    (!name.contains('/') && !name.is_empty()).then_some(())?;
    Some((name, Part::of_extension(extension)?))
}

pub(super) fn read_all(diagnostics: &Diagnostics<'_>, files: &Files) -> Messages {
    let mut messages = Messages::default();
    let parts: Vec<(&str, &str, Part, &str)> =
        files.iter().filter_map(|(path, text)| part_of(path).map(|(name, part)| (path, name, part, text))).collect();
    for (path, name, part, text) in &parts {
        let report = diagnostics.report(path);
        super::fields::check_name(report, line_span(text, 1), name);
        if let Err(problem) = messages.add(name, *part, text) {
            let message = format!("template syntax error: {}", problem.message);
            report.error(line_span(text, problem.line), "bad-template", message);
        }
    }
    for name in messages.names() {
        let Some(message) = messages.get(name) else { continue };
        let path = |part: Part| format!("{DIRECTORY}/{name}.{}", part.extension());
        let file = Part::ALL.into_iter().map(path).find(|path| files.text(path).is_some()).unwrap_or_default();
        if files.text(&path(Part::Subject)).is_none() {
            diagnostics
                .report(&file)
                .file_error("template-without-subject", format!("the template `{name}` has no subject"))
                .hint(format!("write it into {}", path(Part::Subject)));
        }
        if files.text(&path(Part::Text)).is_none() && files.text(&path(Part::Html)).is_none() {
            diagnostics
                .report(&file)
                .file_error("template-without-body", format!("the template `{name}` has no body"))
                .hint(format!("write one into {} or {}, or both", path(Part::Text), path(Part::Html)));
        }
        for (part, read, line) in message.reads() {
            let (root, path) = (root_of(&read), path(part));
            if ROOTS.contains(&root) || FUNCTIONS.contains(&root) || root == SAFE_MODE {
                continue;
            }
            let text = files.text(&path).unwrap_or_default();
            let hint = match did_you_mean(root, ROOTS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a value starts with event, body, headers, request, steps or vars".to_owned(),
            };
            diagnostics
                .report(&path)
                .error(word_span(text, line, &read), "unknown-name", format!("unknown name `{root}` in a template"))
                .hint(hint);
        }
    }
    messages
}

/// Variable that is true while the worker is in safe mode.
pub(super) const SAFE_MODE: &str = "safe_mode";

/// Fields of the event that a message reads, with the file and the location.
pub(super) fn event_reads(files: &Files, messages: &Messages, name: &str) -> Vec<(String, String, Span)> {
    let reads = messages.get(name).map(|message| message.reads()).unwrap_or_default();
    let of_event = reads.into_iter().filter_map(|(part, read, line)| {
        let field = read.strip_prefix("event.")?.split('.').next()?.to_owned();
        let path = format!("{DIRECTORY}/{name}.{}", part.extension());
        let span = word_span(files.text(&path)?, line, &read);
        Some((path, field, span))
    });
    of_event.collect()
}

fn root_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Checks that the message of a step exists and that the names it reads are available.
pub(super) fn check_step(
    report: Report<'_>,
    with: Option<&YamlNode>,
    names: &Declarations,
    visible: Visible<'_>,
    safer: &BTreeMap<String, String>,
) {
    let Some(node) = with.and_then(|with| with.get("template")) else { return };
    // A templated name is only known at run time.
    let Some(name) = node.text().filter(|text| !text.contains("{{")) else { return };
    let vars = with.and_then(|with| with.get("vars"));
    check_name(report, node.span, name, vars, names, visible);
    if let Some(safer) = safer.get(name).filter(|safer| names.messages.get(safer).is_some()) {
        check_name(report, node.span, safer, vars, names, visible);
    }
}

/// Checks a message named outside of a step.
pub(super) fn check_name(
    report: Report<'_>,
    span: Span,
    name: &str,
    vars: Option<&YamlNode>,
    names: &Declarations,
    visible: Visible<'_>,
) {
    let Some(message) = names.messages.get(name) else {
        let otherwise = format!("write {DIRECTORY}/{name}.subject and {DIRECTORY}/{name}.txt or .html");
        report.error(span, "unknown-template", format!("unknown template `{name}`")).meant(
            name,
            names.messages.names(),
            &otherwise,
        );
        return;
    };
    for (part, read, line) in message.reads() {
        let place = format!("{DIRECTORY}/{name}.{}, line {line}", part.extension());
        let mut parts = read.split('.');
        match (parts.next(), parts.next()) {
            (Some("steps"), Some(step)) if !visible.earlier.iter().any(|earlier| earlier == step) => {
                let message = match visible.later.iter().any(|later| later == step) {
                    true => format!("the template reads the step `{step}`, which has not run yet here ({place})"),
                    false => format!("the template reads the step `{step}`, which does not exist here ({place})"),
                };
                report.error(span, "template-needs-step", message).meant(
                    step,
                    visible.earlier.iter().map(String::as_str),
                    "a message can read the outputs of steps before the one that sends it",
                );
            }
            (Some("vars"), Some(wanted)) => {
                let given: Option<Vec<&str>> = vars
                    .map_or(Some(&[][..]), YamlNode::entries)
                    .map(|entries| entries.iter().map(|entry| entry.key.as_str()).collect());
                if let Some(given) = given.filter(|given| !given.contains(&wanted)) {
                    report
                        .error(
                            span,
                            "template-needs-var",
                            format!("the template reads `{read}`, which this step does not pass ({place})"),
                        )
                        .meant(wanted, given, &format!("add `vars: {{{wanted}: …}}` under `with`"));
                }
            }
            (Some(root), _) => {
                let known =
                    visible.roots.contains(&root) || FUNCTIONS.contains(&root) || ["vars", SAFE_MODE].contains(&root);
                // A name unknown everywhere is reported in the template itself.
                if !known && ROOTS.contains(&root) {
                    report.error(
                        span,
                        "template-needs-name",
                        format!("the template reads `{root}`, which does not exist here ({place})"),
                    );
                }
            }
            (None, _) => {}
        }
    }
}

fn line_span(text: &str, line: usize) -> Span {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let start = start.min(text.len());
    let length = text[start..].find('\n').unwrap_or(text.len() - start);
    Span { start, end: start + length, line, column: 1 }
}

/// Span of a word on a line; of the whole line if the word is absent.
fn word_span(text: &str, line: usize, word: &str) -> Span {
    let whole = line_span(text, line);
    match text[whole.start..whole.end].find(word) {
        Some(at) => {
            let column = text[whole.start..whole.start + at].chars().count() + 1;
            Span { start: whole.start + at, end: whole.start + at + word.len(), line, column }
        }
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_the_directory_are_messages() {
        assert_eq!(part_of("templates/cart.txt"), Some(("cart", Part::Text)));
        assert_eq!(part_of("templates/cart.v3.html"), Some(("cart.v3", Part::Html)));
        for path in
            ["cart.txt", "templates/.txt", "templates/old/cart.txt", "templates/cart.yml", "x/templates/cart.txt"]
        {
            assert_eq!(part_of(path), None, "{path}");
        }
    }
}
