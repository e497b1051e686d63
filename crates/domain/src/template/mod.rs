//! Expressions and templates of the configuration: `{{ event.email }}`, `steps.upsert.output.id`.
//!
//! An expression reads only the scope that it is given, and its number of instructions is limited. A plain path is looked
//! up directly; anything else is a minijinja expression.

mod expression;
mod function;
mod message;
mod scope;
mod scope_reads;
mod text_filter;
pub mod url;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::event::scalar;
use crate::verify::SecretValue;
pub use expression::{Expression, ROOTS, TemplateProblem};
pub use function::Function;
pub use message::{Message, MessageTemplate, Messages, Part, PartProblem};
pub use scope::Scope;
pub use url::UrlTemplate;

/// A value under `with:` that may contain expressions.
#[derive(Clone, Debug)]
pub enum Template {
    Literal(Value),
    /// A single expression: its value keeps its type.
    Expression(Expression),
    /// Text with expressions or secrets.
    Text(Vec<Piece>),
    List(Vec<Template>),
    /// Entries in the order written. An entry whose value is undefined is omitted.
    Map(Vec<(String, Template)>),
    /// First value found among the locations that a preset knows for a sender.
    Coalesce(Coalesce),
    /// A URL: values in it are percent-encoded.
    Url(UrlTemplate),
}

/// Alternative ways to read one value, in order of preference.
#[derive(Clone, Debug)]
pub struct Coalesce {
    /// Each consists of parts. It applies if every part has a value that is neither null nor blank.
    pub alternatives: Vec<Vec<Expression>>,
    /// Joins the parts.
    pub separator: char,
    /// Used if no alternative applies.
    pub fallback: Option<String>,
}

impl Coalesce {
    fn find(&self, scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        for alternative in &self.alternatives {
            if let Some(found) = self.join(alternative, scope)? {
                return Ok(Some(found));
            }
        }
        Ok(self.fallback.clone().map(Value::String))
    }

    /// A single part keeps its type.
    fn join(&self, parts: &[Expression], scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        let mut text = String::new();
        for (index, part) in parts.iter().enumerate() {
            let Some(value) = part.evaluate(scope)?.filter(is_present) else { return Ok(None) };
            if parts.len() == 1 {
                return Ok(scalar(&value).is_some().then_some(value));
            }
            let Some(part) = scalar(&value) else { return Ok(None) };
            if index > 0 {
                text.push(self.separator);
            }
            text.push_str(&part);
        }
        Ok((!parts.is_empty()).then_some(Value::String(text)))
    }
}

/// True for a value that can identify something: not null, not blank text.
pub fn is_present(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    }
}

/// A segment of a text template.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(String),
    /// Rendering fails if it has no value.
    Expression(Expression),
    /// `${secrets.NAME}`.
    Secret(String),
}

/// Source of the secrets that templates refer to as `${secrets.NAME}`.
pub trait Secrets {
    fn secret(&self, name: &str) -> Option<&SecretValue>;
}

impl Template {
    /// Parses text: `{{ … }}` is an expression, `${secrets.NAME}` a secret, the rest literal.
    pub fn parse_text(text: &str) -> Result<Template, TemplateProblem> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix("{{") {
                let end = closing(inside).ok_or_else(|| TemplateProblem(format!("`{text}`: `{{{{` without `}}}}`")))?;
                flush(&mut plain, &mut pieces);
                pieces.push(Piece::Expression(Expression::parse(&inside[..end])?));
                rest = &inside[end + 2..];
            } else if let Some(inside) = rest.strip_prefix("${secrets.") {
                let end =
                    inside.find('}').ok_or_else(|| TemplateProblem(format!("`{text}`: `${{secrets.` without `}}`")))?;
                flush(&mut plain, &mut pieces);
                pieces.push(Piece::Secret(inside[..end].to_owned()));
                rest = &inside[end + 1..];
            } else {
                let c = rest.chars().next().expect("rest is not empty");
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        flush(&mut plain, &mut pieces);
        Ok(match <[Piece; 1]>::try_from(pieces) {
            Ok([Piece::Text(text)]) => Template::Literal(Value::String(text)),
            Ok([Piece::Expression(expression)]) => Template::Expression(expression),
            Ok([piece @ Piece::Secret(_)]) => Template::Text(vec![piece]),
            Err(pieces) if pieces.is_empty() => Template::Literal(Value::String(String::new())),
            Err(pieces) => Template::Text(pieces),
        })
    }

    /// Reads it as a URL: from now on values in it are percent-encoded.
    pub fn into_url(self) -> Template {
        UrlTemplate::of(self)
    }

    /// Renders without access to secrets.
    pub fn render_plain(&self, scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        struct NoSecrets;
        impl Secrets for NoSecrets {
            fn secret(&self, _: &str) -> Option<&SecretValue> {
                None
            }
        }
        self.render(scope, &NoSecrets)
    }

    /// Renders a value that identifies something: `None` if any expression in it is missing, null or blank. Text around a missing
    /// part would be the same for every event that lacks it.
    pub fn render_identity(&self, scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        if !self.is_complete(scope)? {
            return Ok(None);
        }
        Ok(self.render_plain(scope)?.filter(is_present))
    }

    /// True if every expression of a text has a value that is neither null nor blank; of other templates, always.
    pub fn is_complete(&self, scope: &Scope) -> Result<bool, TemplateProblem> {
        let Template::Text(pieces) = self else { return Ok(true) };
        for piece in pieces {
            if let Piece::Expression(expression) = piece
                && !expression.evaluate(scope)?.is_some_and(|value| is_present(&value))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Renders; `None` if the template is a single expression without a value.
    pub fn render(&self, scope: &Scope, secrets: &dyn Secrets) -> Result<Option<Value>, TemplateProblem> {
        Ok(Some(match self {
            Template::Literal(value) => value.clone(),
            Template::Expression(expression) => return expression.evaluate(scope),
            Template::Coalesce(coalesce) => return coalesce.find(scope),
            Template::Url(url) => url.render(scope, secrets)?,
            Template::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(plain) => text.push_str(plain),
                        Piece::Expression(expression) => match expression.evaluate(scope)? {
                            Some(Value::String(value)) => text.push_str(&value),
                            Some(Value::Null) | None => {
                                return Err(TemplateProblem(format!("`{}` has no value", expression.source())));
                            }
                            Some(value) => text.push_str(&value.to_string()),
                        },
                        Piece::Secret(name) => text.push_str(secret_text(secrets, name)?),
                    }
                }
                Value::String(text)
            }
            Template::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.push(item.render(scope, secrets)?.unwrap_or(Value::Null));
                }
                Value::Array(list)
            }
            Template::Map(entries) => {
                let mut map = Map::with_capacity(entries.len());
                for (name, template) in entries {
                    if let Some(value) = template.render(scope, secrets)? {
                        map.insert(name.clone(), value);
                    }
                }
                Value::Object(map)
            }
        }))
    }

    /// Visits every expression.
    pub fn visit_expressions<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        match self {
            Template::Literal(_) => {}
            Template::Expression(expression) => visit(expression),
            Template::Coalesce(coalesce) => coalesce.alternatives.iter().flatten().for_each(visit),
            Template::Text(pieces) => visit_pieces(pieces.iter(), visit),
            Template::Url(url) => visit_pieces(url.pieces(), visit),
            Template::List(items) => items.iter().for_each(|item| item.visit_expressions(visit)),
            Template::Map(entries) => entries.iter().for_each(|(_, template)| template.visit_expressions(visit)),
        }
    }

    /// Names of the headers that it reads, in lower case, as far as the text shows.
    pub fn headers(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.visit_expressions(&mut |expression| names.extend(expression.headers()));
        names
    }

    /// Names of the secrets that it reads.
    pub fn secrets(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.collect_secrets(&mut names);
        names
    }

    fn collect_secrets(&self, names: &mut BTreeSet<String>) {
        match self {
            Template::Literal(_) | Template::Expression(_) | Template::Coalesce(_) => {}
            Template::Text(pieces) => names.extend(secret_names(pieces.iter())),
            Template::Url(url) => names.extend(secret_names(url.pieces())),
            Template::List(items) => items.iter().for_each(|item| item.collect_secrets(names)),
            Template::Map(entries) => entries.iter().for_each(|(_, template)| template.collect_secrets(names)),
        }
    }
}

fn visit_pieces<'a>(pieces: impl Iterator<Item = &'a Piece>, visit: &mut dyn FnMut(&'a Expression)) {
    for piece in pieces {
        if let Piece::Expression(expression) = piece {
            visit(expression);
        }
    }
}

fn secret_names<'a>(pieces: impl Iterator<Item = &'a Piece>) -> impl Iterator<Item = String> {
    pieces.filter_map(|piece| match piece {
        Piece::Secret(name) => Some(name.clone()),
        Piece::Text(_) | Piece::Expression(_) => None,
    })
}

fn secret_text<'a>(secrets: &'a dyn Secrets, name: &str) -> Result<&'a str, TemplateProblem> {
    let secret = secrets.secret(name).ok_or_else(|| TemplateProblem(format!("the secret `{name}` is not set")))?;
    Ok(secret.expose())
}

fn flush(plain: &mut String, pieces: &mut Vec<Piece>) {
    if !plain.is_empty() {
        pieces.push(Piece::Text(std::mem::take(plain)));
    }
}

/// Index of the `}}` that closes an expression, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with("}}") => return Some(at),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct NoSecrets;
    impl Secrets for NoSecrets {
        fn secret(&self, _: &str) -> Option<&SecretValue> {
            None
        }
    }

    fn scope() -> Scope {
        let mut scope = Scope::new();
        scope.set("event", json!({"email": "ada@example.com", "score": 7, "tags": ["a"]}));
        scope.set("headers", json!({"idempotency-key": "k1"}));
        scope.set_step_output("check-and-set", json!({"set": true}));
        scope
    }

    fn evaluate(source: &str) -> Option<Value> {
        Expression::parse(source).unwrap().evaluate(&scope()).unwrap()
    }

    #[test]
    fn expressions_evaluate_against_the_scope() {
        assert_eq!(evaluate("event.email"), Some(json!("ada@example.com")));
        assert_eq!(evaluate("headers.Idempotency-Key"), Some(json!("k1")));
        assert_eq!(evaluate("steps.check-and-set.output.set == true"), Some(json!(true)));
        assert_eq!(evaluate("event.score - 2"), Some(json!(5)));
        assert_eq!(evaluate("event.email | upper"), Some(json!("ADA@EXAMPLE.COM")));
        assert_eq!(evaluate("request.headers.Idempotency-Key"), Some(json!("k1")));
        assert_eq!(evaluate("request.headers['idempotency-key'] | upper"), Some(json!("K1")));
        assert_eq!(evaluate("event.absent"), None);
        assert_eq!(evaluate("event.absent | default('x')"), Some(json!("x")));
        assert_eq!(
            Expression::parse("steps.check-and-set.output.set == true").unwrap().steps(),
            BTreeSet::from(["check-and-set".to_owned()])
        );
    }

    #[test]
    fn evaluation_is_bounded() {
        let long_running = Expression::parse("range(10000) | map('string') | join(',') | length * 1").unwrap();
        let _ = long_running.evaluate(&scope());
        let nested = "range(9999)|map('string')|list + ".repeat(30) + "[]";
        if let Ok(expression) = Expression::parse(&nested) {
            let _ = expression.evaluate(&scope());
        }
    }

    #[test]
    fn single_expression_keeps_its_type() {
        let render = |text: &str| Template::parse_text(text).unwrap().render(&scope(), &NoSecrets);
        assert_eq!(render("{{ event.score }}").unwrap(), Some(json!(7)));
        assert_eq!(render("score {{ event.score }}!").unwrap(), Some(json!("score 7!")));
        assert_eq!(render("{{ event.absent }}").unwrap(), None);
        assert!(render("hello {{ event.absent }}").unwrap_err().0.contains("event.absent"));
        assert!(render("x ${secrets.KEY}").unwrap_err().0.contains("KEY"));
        assert!(Template::parse_text("{{ event.email").is_err());
        assert!(Expression::parse("event.").is_err());
    }

    proptest::proptest! {
        #[test]
        fn parse_and_render_never_panic(text in ".{0,80}") {
            if let Ok(template) = Template::parse_text(&text) {
                let _ = template.render(&scope(), &NoSecrets);
            }
        }
    }
}
