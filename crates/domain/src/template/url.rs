//! URL templates: a value is percent-encoded, so that it stays inside its path segment or query parameter.
//!
//! The authority of a URL decides where credentials go, so a value in it must be one host label. `raw_url` marks a value
//! that is inserted as it is; `urlencode` marks one that is already encoded.

use std::fmt::{self, Write};
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr};
use serde_json::Value;

use super::{Expression, Piece, Scope, Secrets, Template, TemplateProblem};

/// Bytes besides letters and digits that stay unescaped (RFC 3986 unreserved).
pub const UNRESERVED: &[u8] = b"-._~";

/// Percent-encodes every byte except ASCII letters, digits and the bytes in `kept`.
pub fn percent_encode(text: &str, kept: &[u8], into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            into.push(char::from(byte));
        } else {
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

/// True for `http://…` and `https://…`.
pub fn is_absolute(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Text that a URL template inserts without encoding it. Every other operation of the interpreter turns it into plain text,
/// which is encoded.
#[derive(Debug)]
pub(super) struct UrlText(pub(super) String);

impl Object for UrlText {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A parsed URL template.
#[derive(Clone, Debug)]
pub struct UrlTemplate(Vec<(Piece, Place)>);

/// Part of the URL that a piece is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// First characters; may turn out to be a whole URL.
    Start,
    Authority,
    Path,
    /// After `?` or `#`.
    Query,
}

impl UrlTemplate {
    /// Reads a template as a URL; lists and maps stay as they are.
    pub(super) fn of(template: Template) -> Template {
        let pieces = match template {
            Template::Expression(expression) => vec![Piece::Expression(expression)],
            Template::Text(pieces) => pieces,
            other => return other,
        };
        let mut before = String::new();
        let placed = pieces.into_iter().map(|piece| {
            let place = Place::after(&before);
            match &piece {
                Piece::Text(text) => before.push_str(text),
                // The length of a value does not matter, only that there is one.
                Piece::Expression(_) | Piece::Secret(_) => before.push('x'),
            }
            (piece, place)
        });
        Template::Url(UrlTemplate(placed.collect()))
    }

    /// The expressions in it.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter().map(|(piece, _)| piece)
    }

    /// Expression that the URL begins with, unless it is marked with `raw_url`.
    pub fn leading_value(&self) -> Option<&Expression> {
        match self.0.first()? {
            (Piece::Expression(expression), _) if !expression.source().contains("raw_url") => Some(expression),
            _ => None,
        }
    }

    pub(super) fn render(&self, scope: &Scope, secrets: &dyn Secrets) -> Result<Value, TemplateProblem> {
        let mut text = String::new();
        let mut blank_at = None;
        for (piece, place) in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Secret(name) => text.push_str(super::secret_text(secrets, name)?),
                Piece::Expression(expression) => {
                    let start = text.len();
                    insert(&mut text, expression, *place, scope)?;
                    if text.len() == start && *place != Place::Query {
                        blank_at = Some((start, expression));
                    }
                }
            }
            check_blank(&text, &mut blank_at, End::Open)?;
        }
        check_blank(&text, &mut blank_at, End::Reached)?;
        Ok(Value::String(text))
    }
}

impl Place {
    /// Place of what follows this text.
    fn after(before: &str) -> Place {
        let rest = match before.split_once("://") {
            _ if before.is_empty() => return Place::Start,
            Some((_, rest)) if is_absolute(before) => match rest.contains(['/', '\\', '?', '#']) {
                true => rest,
                false => return Place::Authority,
            },
            _ => before,
        };
        if rest.contains(['?', '#']) { Place::Query } else { Place::Path }
    }
}

/// Appends the value of an expression.
fn insert(text: &mut String, expression: &Expression, place: Place, scope: &Scope) -> Result<(), TemplateProblem> {
    let source = expression.source();
    let (value, marked) = match expression.evaluate_marked(scope)? {
        None | Some((Value::Null, _)) => return Err(TemplateProblem(format!("`{source}` has no value"))),
        Some((Value::String(value), marked)) => (value, marked),
        Some((value, marked)) => (value.to_string(), marked),
    };
    if marked {
        text.push_str(&value);
        return Ok(());
    }
    match place {
        Place::Start if is_absolute(value.trim_start()) => Err(TemplateProblem(format!(
            "`{source}` is a whole URL, and values are percent-encoded; write `{{{{ {source} | raw_url }}}}` if its sender may choose the URL"
        ))),
        Place::Authority if !is_host_label(&value) => Err(TemplateProblem(format!(
            "`{source}` is part of the host and may contain letters, digits and hyphens only; mark a whole host with `| raw_url`"
        ))),
        Place::Start | Place::Authority | Place::Path | Place::Query => {
            percent_encode(&value, UNRESERVED, text);
            Ok(())
        }
    }
}

fn is_host_label(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether more text may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Reached,
}

/// An empty value must not be a whole path segment: `/contacts/` is the collection, not a contact.
fn check_blank(text: &str, blank_at: &mut Option<(usize, &Expression)>, end: End) -> Result<(), TemplateProblem> {
    let Some((at, expression)) = *blank_at else { return Ok(()) };
    let (before, after) = text.split_at(at);
    if after.is_empty() && end == End::Open {
        return Ok(());
    }
    *blank_at = None;
    let opens = before.is_empty() || before.ends_with('/');
    let closes = after.is_empty() || after.starts_with(['/', '?', '#']);
    match opens && closes {
        true => {
            Err(TemplateProblem(format!("`{}` is empty, and it is a whole segment of the path", expression.source())))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::SecretValue;
    use serde_json::json;

    struct OneSecret(SecretValue);
    impl Secrets for OneSecret {
        fn secret(&self, _: &str) -> Option<&SecretValue> {
            Some(&self.0)
        }
    }

    fn rendered(template: &str, value: Value) -> Result<String, String> {
        let mut scope = Scope::new();
        scope.set("body", json!({ "v": value }));
        let template = Template::parse_text(template).unwrap().into_url();
        let url = template.render(&scope, &OneSecret("bot:1".into())).map_err(|problem| problem.0)?;
        Ok(url.unwrap().as_str().unwrap().to_owned())
    }

    #[test]
    fn values_are_encoded_in_paths_and_queries() {
        for (template, value, expected) in [
            ("/p/{{ body.v }}", json!("../admin/delete"), "/p/..%2Fadmin%2Fdelete"),
            ("/p/{{ body.v }}/x?q={{ body.v }}", json!("a?b#c&d"), "/p/a%3Fb%23c%26d/x?q=a%3Fb%23c%26d"),
            ("/p/{{ body.v }}", json!("a%2Fb\\c\r\nd"), "/p/a%252Fb%5Cc%0D%0Ad"),
            ("/p/{{ body.v }}", json!("Ünï"), "/p/%C3%9Cn%C3%AF"),
            ("/p/{{ body.v }}", json!(42), "/p/42"),
            ("/p/{{ body.v | urlencode }}", json!("a b/c"), "/p/a%20b%2Fc"),
            ("/p/{{ urlencode(body.v) }}", json!("a b/c"), "/p/a%20b%2Fc"),
            ("/p/{{ body.v | trim | urlencode }}", json!(" a b "), "/p/a%20b"),
            ("/p/{{ (body.v | raw_url) ~ 'x' }}", json!("a/b"), "/p/a%2Fbx"),
            ("/p/{{ body.v | safe }}", json!("a/b"), "/p/a%2Fb"),
            ("/p/{{ body.v | tojson }}", json!("a/b"), "/p/%22a%2Fb%22"),
            ("{{ body.v | raw_url }}", json!("https://a.example/b?c=d"), "https://a.example/b?c=d"),
            ("{{ body.v | trim | raw_url }}", json!(" https://a.example/ "), "https://a.example/"),
            ("https://{{ body.v }}.example/x", json!("eu-1"), "https://eu-1.example/x"),
            ("/${secrets.T}/{{ body.v }}", json!("a:b"), "/bot:1/a%3Ab"),
            ("/p{{ body.v }}/x?q={{ body.v }}", json!(""), "/p/x?q="),
        ] {
            assert_eq!(rendered(template, value).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn value_that_would_change_the_target_is_refused() {
        for (template, value, expected) in [
            ("{{ body.v }}", json!("https://evil.example/"), "raw_url"),
            ("{{ body.v }}/x", json!("HTTP://evil.example"), "raw_url"),
            ("https://{{ body.v }}/x", json!("evil.example"), "part of the host"),
            ("https://a.example:{{ body.v }}/x", json!("1@evil.example"), "part of the host"),
            ("/contacts/{{ body.v }}", json!(""), "is empty"),
            ("/contacts/{{ body.v }}/notes", json!(""), "is empty"),
            ("/contacts/{{ body.v }}?x=1", json!(""), "is empty"),
            ("/contacts/{{ body.v }}", json!(null), "has no value"),
        ] {
            let problem = rendered(template, value).unwrap_err();
            assert!(problem.contains(expected), "{template}: {problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn value_adds_no_segment_and_no_query(value in "\\PC{1,40}") {
            let url = rendered("/p/{{ body.v }}?q={{ body.v }}", json!(value)).unwrap();
            proptest::prop_assert_eq!(url.matches(['/', '?', '#', '&', '\\']).count(), 3);
        }
    }
}
