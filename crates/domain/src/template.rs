//! Expressions and templates in the configuration: `{{ event.email }}`, `steps.upsert.output.id`.
//!
//! An expression reads what it is given and nothing else, and it has fuel: it cannot reach out, and it
//! cannot run for ever. A plain path is looked up directly; anything more is a minijinja expression.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};

use crate::path::Path;
use crate::verify::SecretValue;

/// How many instructions one evaluation may take. A typical one takes under a hundred.
const FUEL: u64 = 50_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    environment
});

/// The names that an expression may start from.
pub const ROOTS: [&str; 8] = ["event", "body", "headers", "request", "steps", "vars", "item", "now"];

/// Why an expression could not be read or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateProblem(pub String);

/// What an expression can see: a value for each root name.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    roots: Map<String, Value>,
}

impl Scope {
    /// Nothing to see yet.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Makes a value visible under a root name.
    pub fn set(&mut self, root: &str, value: Value) {
        self.roots.insert(root.to_owned(), value);
    }

    /// What stands under a root name.
    pub fn get(&self, root: &str) -> Option<&Value> {
        self.roots.get(root)
    }

    fn with_request(&self) -> Cow<'_, Map<String, Value>> {
        let part = |name: &str| self.roots.get(name).cloned().unwrap_or(Value::Null);
        let request = Map::from_iter([("body".to_owned(), part("body")), ("headers".to_owned(), part("headers"))]);
        let mut roots = self.roots.clone();
        roots.insert("request".to_owned(), Value::Object(request));
        Cow::Owned(roots)
    }

    /// Makes a step's output visible as `steps.<id>.output`.
    pub fn set_step_output(&mut self, id: &str, output: Value) {
        let steps = self.roots.entry("steps").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(steps) = steps {
            let mut step = Map::new();
            step.insert("output".to_owned(), output);
            steps.insert(id.to_owned(), Value::Object(step));
        }
    }
}

/// An expression, read and ready.
pub struct Expression {
    source: String,
    form: Form,
}

enum Form {
    Path(String, Path),
    Jinja(Box<minijinja::Expression<'static, 'static>>),
}

impl Expression {
    /// Reads an expression. A hyphen between letters belongs to the name (`steps.check-and-set`); put spaces
    /// around a minus.
    pub fn parse(source: &str) -> Result<Expression, TemplateProblem> {
        let source = source.trim();
        if source.is_empty() {
            return Err(TemplateProblem("the expression is empty".into()));
        }
        // `request.body` is the body, `request.headers` the headers: one value under two names.
        let short = source.strip_prefix("request.").filter(|rest| rest.starts_with("body") || rest.starts_with("headers"));
        if let Some((root, path)) = Path::parse(short.unwrap_or(source)).as_ref().and_then(Path::split_root)
            && ROOTS.contains(&root)
        {
            let path = if root == "headers" { lower_case_first(path) } else { path };
            return Ok(Expression { source: source.to_owned(), form: Form::Path(root.to_owned(), path) });
        }
        let expression = ENVIRONMENT
            .compile_expression_owned(quote_hyphens(source))
            .map_err(|error| TemplateProblem(format!("`{source}` is not an expression: {}", describe(&error))))?;
        Ok(Expression { source: source.to_owned(), form: Form::Jinja(Box::new(expression)) })
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The root names that it reads.
    pub fn roots(&self) -> BTreeSet<String> {
        match &self.form {
            Form::Path(root, _) => BTreeSet::from([root.clone()]),
            Form::Jinja(expression) => expression.undeclared_variables(false).into_iter().collect(),
        }
    }

    /// The steps whose output it reads, as far as that can be seen.
    pub fn steps(&self) -> BTreeSet<String> {
        match &self.form {
            Form::Path(root, path) if root == "steps" => match path.0.first() {
                Some(crate::path::Segment::Key(id)) => BTreeSet::from([id.clone()]),
                _ => BTreeSet::new(),
            },
            Form::Path(..) => BTreeSet::new(),
            Form::Jinja(_) => self
                .source
                .match_indices("steps.")
                .filter(|(at, _)| !self.source[..*at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.')))
                .map(|(at, found)| {
                    let rest = &self.source[at + found.len()..];
                    let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-'))).unwrap_or(rest.len());
                    rest[..end].to_owned()
                })
                .collect(),
        }
    }

    /// Its value; `None` when what it names is not there.
    pub fn evaluate(&self, scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        match &self.form {
            Form::Path(root, path) => Ok(scope.get(root).and_then(|value| path.find(value)).cloned()),
            Form::Jinja(expression) => {
                let roots = if self.source.contains("request.") { scope.with_request() } else { Cow::Borrowed(&scope.roots) };
                let value = expression
                    .eval(minijinja::Value::from(minijinja::value::Serde(&roots)))
                    .map_err(|error| TemplateProblem(format!("`{}` failed: {}", self.source, describe(&error))))?;
                if value.is_undefined() {
                    return Ok(None);
                }
                serde_json::to_value(&value)
                    .map(Some)
                    .map_err(|error| TemplateProblem(format!("`{}` has no JSON value: {error}", self.source)))
            }
        }
    }

    /// Whether it holds: what is absent, null, false, zero or empty does not.
    pub fn holds(&self, scope: &Scope) -> Result<bool, TemplateProblem> {
        Ok(match self.evaluate(scope)? {
            None | Some(Value::Null) => false,
            Some(Value::Bool(value)) => value,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(members)) => !members.is_empty(),
        })
    }
}

impl Clone for Expression {
    fn clone(&self) -> Expression {
        Expression::parse(&self.source).expect("it was parsed from this source before")
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{{ {} }}}}", self.source)
    }
}

fn describe(error: &minijinja::Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    if text.contains("fuel") { format!("{text} (an expression may take {FUEL} steps)") } else { text }
}

fn lower_case_first(path: Path) -> Path {
    let mut segments = path.0;
    if let Some(crate::path::Segment::Key(name)) = segments.first_mut() {
        *name = name.to_ascii_lowercase();
    }
    Path(segments)
}

/// `a.b-c` becomes `a["b-c"]`, outside of quotes.
fn quote_hyphens(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut quote: Option<char> = None;
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if let Some(open) = quote {
            if c == open {
                quote = None;
            }
        } else if c == '"' || c == '\'' {
            quote = Some(c);
        } else if c == '.' && out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ']' | '"')) {
            let name_end = rest[1..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len() - 1);
            let name = &rest[1..=name_end];
            if name.contains('-') && !name.ends_with('-') {
                let key = if out.ends_with("headers") { name.to_ascii_lowercase() } else { name.to_owned() };
                out.push_str(&format!("[\"{key}\"]"));
                rest = &rest[1 + name_end..];
                continue;
            }
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// A value with expressions in it, as it stands under `with:`.
#[derive(Clone, Debug)]
pub enum Template {
    /// Taken as it is.
    Literal(Value),
    /// Exactly one expression: its value keeps its type.
    Expression(Expression),
    /// Text with expressions or secrets in it.
    Text(Vec<Piece>),
    /// A list of templates.
    List(Vec<Template>),
    /// Names to templates, in the order written. An entry whose value is undefined is left out.
    Map(Vec<(String, Template)>),
}

/// A stretch of a text template.
#[derive(Clone, Debug)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// The value of an expression; it must be there.
    Expression(Expression),
    /// `${secrets.NAME}`.
    Secret(String),
}

/// Where `${secrets.NAME}` gets its value when a template is rendered.
pub trait Secrets {
    /// The secret of this name.
    fn secret(&self, name: &str) -> Option<&SecretValue>;
}

impl Template {
    /// Reads a text: `{{ … }}` is an expression, `${secrets.NAME}` a secret, the rest stands as it is.
    pub fn parse_text(text: &str) -> Result<Template, TemplateProblem> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix("{{") {
                let end = closing(inside).ok_or_else(|| TemplateProblem(format!("`{text}`: a {{{{ has no }}}}")))?;
                flush(&mut plain, &mut pieces);
                pieces.push(Piece::Expression(Expression::parse(&inside[..end])?));
                rest = &inside[end + 2..];
            } else if let Some(inside) = rest.strip_prefix("${secrets.") {
                let end = inside.find('}').ok_or_else(|| TemplateProblem(format!("`{text}`: ${{secrets. has no }}")))?;
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

    /// Its value; `None` when it is a single expression whose value is not there.
    pub fn render(&self, scope: &Scope, secrets: &dyn Secrets) -> Result<Option<Value>, TemplateProblem> {
        Ok(Some(match self {
            Template::Literal(value) => value.clone(),
            Template::Expression(expression) => return expression.evaluate(scope),
            Template::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(plain) => text.push_str(plain),
                        Piece::Expression(expression) => match expression.evaluate(scope)? {
                            Some(Value::String(value)) => text.push_str(&value),
                            Some(Value::Null) | None => {
                                return Err(TemplateProblem(format!("`{}` has no value here", expression.source())));
                            }
                            Some(value) => text.push_str(&value.to_string()),
                        },
                        Piece::Secret(name) => text.push_str(
                            secrets
                                .secret(name)
                                .ok_or_else(|| TemplateProblem(format!("the secret `{name}` is not set")))?
                                .expose(),
                        ),
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

    /// Calls back for every expression in it.
    pub fn visit_expressions<'a>(&'a self, visit: &mut dyn FnMut(&'a Expression)) {
        match self {
            Template::Literal(_) => {}
            Template::Expression(expression) => visit(expression),
            Template::Text(pieces) => {
                for piece in pieces {
                    if let Piece::Expression(expression) = piece {
                        visit(expression);
                    }
                }
            }
            Template::List(items) => items.iter().for_each(|item| item.visit_expressions(visit)),
            Template::Map(entries) => entries.iter().for_each(|(_, template)| template.visit_expressions(visit)),
        }
    }

    /// The names of the secrets that it needs.
    pub fn secrets(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.collect_secrets(&mut names);
        names
    }

    fn collect_secrets(&self, names: &mut BTreeSet<String>) {
        match self {
            Template::Literal(_) | Template::Expression(_) => {}
            Template::Text(pieces) => names.extend(pieces.iter().filter_map(|piece| match piece {
                Piece::Secret(name) => Some(name.clone()),
                _ => None,
            })),
            Template::List(items) => items.iter().for_each(|item| item.collect_secrets(names)),
            Template::Map(entries) => entries.iter().for_each(|(_, template)| template.collect_secrets(names)),
        }
    }
}

fn flush(plain: &mut String, pieces: &mut Vec<Piece>) {
    if !plain.is_empty() {
        pieces.push(Piece::Text(std::mem::take(plain)));
    }
}

/// Where the `}}` is that closes an expression, quotes respected.
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
    fn expressions_read_their_scope() {
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
    fn an_expression_cannot_run_for_ever() {
        let endless = Expression::parse("range(10000) | map('string') | join(',') | length * 1").unwrap();
        let _ = endless.evaluate(&scope());
        let nested = "range(9999)|map('string')|list + ".repeat(30) + "[]";
        if let Ok(expression) = Expression::parse(&nested) {
            let _ = expression.evaluate(&scope());
        }
    }

    #[test]
    fn text_keeps_types_only_when_it_is_one_expression() {
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
        fn no_text_makes_it_panic(text in ".{0,80}") {
            if let Ok(template) = Template::parse_text(&text) {
                let _ = template.render(&scope(), &NoSecrets);
            }
        }
    }
}
