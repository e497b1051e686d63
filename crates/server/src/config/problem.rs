//! What is wrong with a configuration, for a person and for a machine.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};
use sluice_domain::unit::plural;

use super::node::Span;
use super::plaintext_secrets::masked;
use super::read::Files;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, and it probably does not do what was meant.
    Warning,
}

impl Severity {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// The code of a flow that believes everybody.
pub(super) const OPEN_TO_EVERYBODY: &str = "open-to-everybody";

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for filters: `unknown-key`.
    pub code: &'static str,
    /// The file, relative to the directory that was read; empty when it is none in particular.
    pub file: String,
    /// The place in the file.
    pub span: Option<Span>,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl ConfigProblem {
    /// `file:line:column`, as far as there is one.
    pub fn place(&self) -> String {
        match self.span {
            Some(span) => format!("{}:{}:{}", self.file, span.line, span.column),
            None => self.file.clone(),
        }
    }

    /// As one object: `file, line, column, severity, code, message, hint`.
    pub fn to_json(&self) -> Value {
        json!({
            "file": self.file,
            "line": self.span.map(|span| span.line),
            "column": self.span.map(|span| span.column),
            "severity": self.severity.as_str(),
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        })
    }

    /// As a compiler would show it, with the line it is about.
    fn render(&self, text: Option<&str>, colours: Colours) -> String {
        let renderer = match colours {
            Colours::Ansi => Renderer::styled(),
            Colours::None => Renderer::plain(),
        };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            // Red, because it is the one warning that lets strangers in.
            Severity::Warning if self.code == OPEN_TO_EVERYBODY => Level::ERROR.with_name("warning"),
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()).id(self.code));
        match (self.span, text) {
            (Some(span), Some(text)) => {
                let range = on_one_line(text, span);
                group = group.element(
                    Snippet::source(text).path(self.file.as_str()).annotation(AnnotationKind::Primary.span(range)),
                );
            }
            _ if !self.file.is_empty() => {
                group = group.element(annotate_snippets::Origin::path(self.file.as_str()));
            }
            _ => {}
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        renderer.render(&[group])
    }
}

/// Whether text for a person has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Escape sequences; print through `anstream`, which takes them out where nobody can see them.
    Ansi,
    /// None.
    None,
}

/// Every problem as a compiler would show it, errors and warnings counted at the end.
pub fn render_all(problems: &[ConfigProblem], files: &Files, colours: Colours) -> String {
    let mut text = String::new();
    for problem in problems {
        let source = files.text(&problem.file).map(|source| masked(source, &problem.file, problems));
        text.push_str(&problem.render(source.as_deref(), colours));
        text.push_str("\n\n");
    }
    text.push_str(&summary(problems));
    text.push('\n');
    text
}

/// How many there are, in words.
pub fn summary(problems: &[ConfigProblem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count() as u64;
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => "no problems".into(),
        (0, warnings) => plural(warnings, "warning"),
        (errors, 0) => plural(errors, "error"),
        (errors, warnings) => format!("{}, {}", plural(errors, "error"), plural(warnings, "warning")),
    }
}

/// The part of the span that lies on its first line: a whole map underlined helps nobody.
fn on_one_line(text: &str, span: Span) -> std::ops::Range<usize> {
    let start = span.start.min(text.len());
    let end = span.end.clamp(start, text.len());
    let line = text[start..end].find(['\n', '\r']).map_or(end, |at| start + at);
    start..line
}

/// The candidate that was most likely meant.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(word);
    if wanted.is_empty() || wanted.len() > 80 {
        return None;
    }
    let allowed = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < plain(candidate).chars().count())
        .min_by_key(|(distance, candidate)| (*distance, *candidate))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_far_one_is_not() {
        let keys = ["max_attempts", "max_delay", "jitter", "ttl"];
        assert_eq!(did_you_mean("maxAttempts", keys), Some("max_attempts"));
        assert_eq!(did_you_mean("max-atempts", keys), Some("max_attempts"));
        assert_eq!(did_you_mean("jiter", keys), Some("jitter"));
        assert_eq!(did_you_mean("tt", keys), Some("ttl"));
        assert_eq!(did_you_mean("concurrency", keys), None);
        assert_eq!(did_you_mean("", keys), None);
    }
}
