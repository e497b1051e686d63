//! Detects plain-text secrets in files and masks them in output.

use std::borrow::Cow;

use super::diagnostics::Report;
use super::node::{Span, YamlKind, YamlNode};
use super::problem::ConfigProblem;

/// Problem code of a plain-text secret; its span is always masked.
const SECRET_IN_FILE: &str = "secret-in-file";

/// Reports every literal under a key that usually holds a secret, at any depth.
pub(super) fn find(report: Report<'_>, node: &YamlNode) {
    match &node.kind {
        YamlKind::Scalar(_) => {}
        YamlKind::List(items) => items.iter().for_each(|item| find(report, item)),
        YamlKind::Map(entries) => {
            for entry in entries {
                if names_a_secret(&entry.key) && is_literal(&entry.value) {
                    secret_in_file(report, entry.value.span, &entry.key);
                }
                find(report, &entry.value);
            }
        }
    }
}

/// Literal text or number: neither a template nor a request path.
fn is_literal(node: &YamlNode) -> bool {
    let Some(text) = node.text() else { return false };
    let value = node.to_value();
    (value.is_string() || value.is_number())
        && !text.trim().is_empty()
        && !["{{", "${"].iter().any(|open| text.contains(open))
        && !["body.", "headers."].iter().any(|root| text.starts_with(root))
}

/// Reports a plain-text secret without showing it.
pub(super) fn secret_in_file(report: Report<'_>, span: Span, name: &str) {
    report
        .error(span, SECRET_IN_FILE, format!("`{name}` is a plain-text secret"))
        .hint("use ${secrets.NAME} and set the value in the environment or in the file secrets/NAME");
}

/// Keys that usually hold a secret, lower case, `_` for `-`.
pub(super) const SECRET_NAMES: [&str; 12] = [
    "secret",
    "secrets",
    "password",
    "passwd",
    "token",
    "client_secret",
    "api_key",
    "apikey",
    "x_api_key",
    "private_key",
    "access_token",
    "authorization",
];

/// Suffixes of such keys.
pub(super) const SECRET_ENDS: [&str; 4] = ["_secret", "_password", "_token", "_api_key"];

/// Whether a key of this name usually holds a secret.
pub(super) fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.contains(&key.as_str()) || SECRET_ENDS.iter().any(|end| key.ends_with(end))
}

/// Text with detected secrets masked, because displayed text ends up in logs.
pub(super) fn masked<'t>(text: &'t str, file: &str, problems: &[ConfigProblem]) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for problem in problems.iter().filter(|problem| problem.file == file) {
        let Some(span) = problem.span else { continue };
        let hidden = match problem.code {
            SECRET_IN_FILE => Some(span.start..span.end),
            // The file could not be parsed, so secrets are detected by line.
            "yaml-syntax" => secret_on_line(&text, span),
            _ => None,
        };
        if let Some(hidden) = hidden
            && let Some(secret) = text.get(hidden.clone())
        {
            // Same number of bytes, so that spans stay valid.
            let stars: String =
                secret.chars().map(|c| if c == '\n' { "\n".to_owned() } else { "*".repeat(c.len_utf8()) }).collect();
            text.to_mut().replace_range(hidden, &stars);
        }
    }
    text
}

fn secret_on_line(text: &str, span: Span) -> Option<std::ops::Range<usize>> {
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[begin..].lines().next()?;
    let (key, value) = line.split_once(':')?;
    let key = key.trim_matches(|c: char| !c.is_alphanumeric());
    let found = names_a_secret(key) && !value.contains("${");
    found.then(|| begin + line.len() - value.trim_start().len()..begin + line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_keys_are_detected_by_name() {
        for key in ["secret", "Password", "client_secret", "X-Api-Key", "DB_PASSWORD", "refresh-token", "Authorization"]
        {
            assert!(names_a_secret(key), "{key}");
        }
        for key in ["secret_prefix", "tokens_max", "key_from", "Email", "token_url"] {
            assert!(!names_a_secret(key), "{key}");
        }
    }
}
