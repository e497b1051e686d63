//! Configuration problems, rendered as text and JSON.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};
use sluice_domain::unit::plural;

use super::node::Span;
use super::plaintext_secrets::masked;
use super::read::Files;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// Usable, but probably not as intended.
    Warning,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Problem code of a flow without verification.
pub(super) const OPEN_TO_EVERYBODY: &str = "open-to-everybody";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub severity: Severity,
    /// Stable identifier, such as `unknown-key`.
    pub code: &'static str,
    /// Relative to the configuration directory; empty if the problem is not in one file.
    pub file: String,
    pub span: Option<Span>,
    pub message: String,
    pub hint: Option<String>,
}

impl ConfigProblem {
    /// `file:line:column`, as far as known.
    pub fn place(&self) -> String {
        match self.span {
            Some(span) => format!("{}:{}:{}", self.file, span.line, span.column),
            None => self.file.clone(),
        }
    }

    /// Object with `file, line, column, severity, code, message, hint`.
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

    /// Compiler-style text with the source line.
    fn render(&self, text: Option<&str>, colours: Colours) -> String {
        let renderer = match colours {
            Colours::Ansi => Renderer::styled(),
            Colours::None => Renderer::plain(),
        };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            // Red, because this warning means unauthenticated access.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// With escape sequences; print through `anstream`, which strips them if the output is not a terminal.
    Ansi,
    None,
}

/// Compiler-style text of all problems, followed by a summary.
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

/// Number of errors and warnings.
pub(crate) fn summary(problems: &[ConfigProblem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count() as u64;
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => "no problems".into(),
        (0, warnings) => plural(warnings, "warning"),
        (errors, 0) => plural(errors, "error"),
        (errors, warnings) => format!("{}, {}", plural(errors, "error"), plural(warnings, "warning")),
    }
}

/// Part of the span on its first line.
fn on_one_line(text: &str, span: Span) -> std::ops::Range<usize> {
    let start = span.start.min(text.len());
    let end = span.end.clamp(start, text.len());
    let line = text[start..end].find(['\n', '\r']).map_or(end, |at| start + at);
    start..line
}

/// Closest candidate by edit distance, if it is close enough.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    fn close_words_are_suggested_and_distant_ones_are_not() {
        let keys = ["max_attempts", "max_delay", "jitter", "ttl"];
        assert_eq!(did_you_mean("maxAttempts", keys), Some("max_attempts"));
        assert_eq!(did_you_mean("max-atempts", keys), Some("max_attempts"));
        assert_eq!(did_you_mean("jiter", keys), Some("jitter"));
        assert_eq!(did_you_mean("tt", keys), Some("ttl"));
        assert_eq!(did_you_mean("concurrency", keys), None);
        assert_eq!(did_you_mean("", keys), None);
    }
}
