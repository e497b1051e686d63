//! Targets for operator input (configuration, expressions, units, paths) and for masking.

use std::io;
use std::sync::LazyLock;

use serde_json::json;
use sluice_domain::path::{Path, Segment};
use sluice_domain::template::{Expression, Scope, Template};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use sluice_domain::{mask, unit};
use sluice_server::config::{Colours, Files, SecretSource, compile, render_all};

/// Secret source with a value for every name.
#[derive(Debug)]
pub(crate) struct Secrets;

impl SecretSource for Secrets {
    fn lookup(&self, _: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from("a secret of some length")))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// Compiles or reports problems; every span lies within the text.
pub(crate) fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let files = Files::from_texts([("a.yml", text.as_ref())]);
    let compiled = compile(&files, &Secrets);
    for span in compiled.problems.iter().filter_map(|problem| problem.span) {
        assert!(span.start <= span.end && span.end <= text.len(), "{span:?}");
        assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end), "{span:?}");
    }
    render_all(&compiled.problems, &files, Colours::None);
}

static SCOPE: LazyLock<Scope> = LazyLock::new(|| {
    let mut scope = Scope::new();
    scope.set("body", json!({"id": 7, "email": " Ada@Example.com", "tags": ["a", "b"], "n": 1.5, "deep": {"x": null}}));
    scope.set("headers", json!({"x-id": "42"}));
    scope.set("event", json!({"type": "lead", "email": "ada@example.com"}));
    scope
});

/// Evaluation of a parsed expression is deterministic and bounded by its fuel.
pub(crate) fn expression(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(expression) = Expression::parse(&text) {
        let first = expression.evaluate(&SCOPE);
        assert_eq!(format!("{first:?}"), format!("{:?}", expression.evaluate(&SCOPE)), "not deterministic");
        let _ = expression.holds(&SCOPE);
        let _ = (expression.roots(), expression.steps(), expression.is_digest());
    }
    if let Ok(template) = Template::parse_text(&text) {
        let _ = template.render_plain(&SCOPE);
        let _ = template.secrets();
    }
}

/// A parsed value survives formatting and parsing.
pub(crate) fn unit(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(duration) = unit::duration(text) {
        assert_eq!(
            unit::duration(&unit::format_duration(duration)).ok().map(|read| read.as_millis()),
            Some(duration.as_millis())
        );
    }
    if let Ok(rate) = unit::rate(text) {
        let _ = rate.interval();
    }
    let _ = unit::size(text);
    if let Some(time) = Time::parse(text) {
        assert_eq!(Time::parse(&time.to_string()), Some(time));
    }
}

/// A key removed by a path is not found by it.
pub(crate) fn path(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(path) = Path::parse(text) else { return };
    let mut value = json!({"a": {"b": [1, {"c": "d"}, [2]], "e f": null}, "$id": 1, "id": "x"});
    let before = value.clone();
    assert_eq!(path.remove(&mut value), value != before, "{text}");
    // In a list the next item moves to the index of the removed one.
    if matches!(path.0.last(), Some(Segment::Key(_))) {
        assert!(path.find(&value).is_none(), "{text}");
    }
    let _ = path.split_root();
}

/// Masking does not panic, and its output length is bounded.
pub(crate) fn mask(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let masked = mask::text(&text).into_owned();
    assert!(masked.len() <= 4 * text.len() + 16);
    mask::value(&json!({ "a": [text.as_ref()], text.as_ref(): 1 }));
}
