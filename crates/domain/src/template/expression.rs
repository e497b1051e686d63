//! Expressions: parsing and evaluation.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use minijinja::{Environment, UndefinedBehavior};
use serde_json::Value;

use super::function::{Call, Function};
use super::scope::Scope;
use super::scope_reads::ScopeReads;
use super::text_filter::TextFilters;
use super::url::UrlText;
use crate::path::Path;

/// Maximum number of instructions per evaluation. A typical one takes fewer than a hundred.
const FUEL: u64 = 50_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    Function::register(&mut environment);
    environment
});

/// Names that an expression may start from.
pub const ROOTS: [&str; 10] =
    ["event", "body", "headers", "request", "steps", "vars", "item", "index", "now", "safe_mode"];

/// Names that an expression of a declared connector may start from.
const CONNECTOR_ROOTS: [&str; 5] = ["with", "destination", "effect", "mail", "response"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateProblem(pub String);

/// A parsed expression. A clone shares it.
#[derive(Clone)]
pub struct Expression(Arc<Parsed>);

struct Parsed {
    source: String,
    form: Form,
}

enum Form {
    Path(String, Path),
    /// One built-in function over one path: frequent in keys and cheap, so it bypasses the interpreter.
    Call(Call, String, Path),
    Jinja(Box<Jinja>),
}

/// An expression that reads the interpreter.
struct Jinja {
    expression: minijinja::Expression<'static, 'static>,
    /// Fast path for text values, if the expression is a path followed by simple filters.
    fast_path: Option<(TextFilters, String, Path)>,
    reads: ScopeReads,
}

impl Expression {
    /// Parses an expression. A hyphen between letters belongs to the name (`steps.check-and-set`); write a minus with spaces
    /// around it.
    pub fn parse(source: &str) -> Result<Expression, TemplateProblem> {
        let source = source.trim();
        if source.is_empty() {
            return Err(TemplateProblem("the expression is empty".into()));
        }
        if let Some((root, path)) = plain_path(source) {
            return Ok(Expression::new(source, Form::Path(root, path)));
        }
        if let Some((call, inside)) = Call::parse(source)
            && let Some((root, path)) = plain_path(inside)
        {
            return Ok(Expression::new(source, Form::Call(call, root, path)));
        }
        let quoted = quote_hyphens(source);
        let expression = ENVIRONMENT
            .compile_expression_owned(quoted.clone())
            .map_err(|error| TemplateProblem(format!("`{source}` is not an expression: {}", describe(&error))))?;
        let fast_path = TextFilters::parse(source)
            .and_then(|(filters, inside)| plain_path(inside).map(|(root, path)| (filters, root, path)));
        let reads = ScopeReads::of(&quoted, &expression);
        Ok(Expression::new(source, Form::Jinja(Box::new(Jinja { expression, fast_path, reads }))))
    }

    fn new(source: &str, form: Form) -> Expression {
        Expression(Arc::new(Parsed { source: source.to_owned(), form }))
    }

    /// As written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Root name and path, if the expression reads a single path and nothing else.
    pub fn as_path(&self) -> Option<(&str, &Path)> {
        match &self.0.form {
            Form::Path(root, path) | Form::Call(_, root, path) => Some((root, path)),
            Form::Jinja(_) => None,
        }
    }

    /// True if the value is a digest of personal data.
    pub fn is_digest(&self) -> bool {
        match &self.0.form {
            Form::Path(..) => false,
            Form::Call(call, ..) => call.function.is_digest(),
            Form::Jinja(_) => {
                Function::ALL.iter().any(|function| function.is_digest() && self.0.source.contains(function.name()))
            }
        }
    }

    /// Root names that it reads.
    pub fn roots(&self) -> BTreeSet<String> {
        match &self.0.form {
            Form::Path(root, _) | Form::Call(_, root, _) => BTreeSet::from([root.clone()]),
            Form::Jinja(jinja) => jinja.expression.undeclared_variables(false).into_iter().collect(),
        }
    }

    /// Names of the headers that it reads, in lower case, as far as the text shows.
    pub fn headers(&self) -> BTreeSet<String> {
        match &self.0.form {
            Form::Path(root, path) | Form::Call(_, root, path) => match path.0.first() {
                Some(crate::path::Segment::Key(name)) if root == "headers" => BTreeSet::from([name.clone()]),
                _ => BTreeSet::new(),
            },
            Form::Jinja(_) => members(&self.0.source, "headers").map(|name| name.to_ascii_lowercase()).collect(),
        }
    }

    /// Members of a root that it reads, as far as the text shows: `event.email | lower` reads `email` of `event`.
    pub fn members(&self, root: &str) -> BTreeSet<String> {
        match &self.0.form {
            Form::Path(own, path) | Form::Call(_, own, path) => match path.0.first() {
                Some(crate::path::Segment::Key(name)) if own == root => BTreeSet::from([name.clone()]),
                _ => BTreeSet::new(),
            },
            Form::Jinja(jinja) => {
                let member = |name: String| {
                    let (own, rest) = name.split_once('.')?;
                    let member = rest.split('.').next().unwrap_or(rest);
                    let is_call = self.0.source.contains(&format!("{own}.{member}("));
                    (own == root && !is_call).then(|| member.to_owned())
                };
                jinja.expression.undeclared_variables(true).into_iter().filter_map(member).collect()
            }
        }
    }

    /// Steps whose output it reads, as far as the text shows.
    pub fn steps(&self) -> BTreeSet<String> {
        match &self.0.form {
            Form::Path(root, path) | Form::Call(_, root, path) if root == "steps" => match path.0.first() {
                Some(crate::path::Segment::Key(id)) => BTreeSet::from([id.clone()]),
                _ => BTreeSet::new(),
            },
            Form::Path(..) | Form::Call(..) => BTreeSet::new(),
            Form::Jinja(_) => self
                .0
                .source
                .match_indices("steps.")
                .filter(|(at, _)| {
                    !self.0.source[..*at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
                })
                .map(|(at, found)| {
                    let rest = &self.0.source[at + found.len()..];
                    let end =
                        rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-'))).unwrap_or(rest.len());
                    rest[..end].to_owned()
                })
                .collect(),
        }
    }

    /// The value; `None` if the path does not exist.
    pub fn evaluate(&self, scope: &Scope) -> Result<Option<Value>, TemplateProblem> {
        Ok(self.evaluate_marked(scope)?.map(|(value, _)| value))
    }

    /// The value, and whether `raw_url` or `urlencode` mark it as text that a URL takes as it is.
    pub(super) fn evaluate_marked(&self, scope: &Scope) -> Result<Option<(Value, bool)>, TemplateProblem> {
        let plain = |value: Option<Value>| Ok(value.map(|value| (value, false)));
        match &self.0.form {
            Form::Path(root, path) => plain(scope.find(root, path)?.cloned()),
            Form::Call(call, root, path) => {
                let value = scope.find(root, path)?.and_then(|value| call.apply(value));
                Ok(value.map(|value| (value, call.function.is_url_text())))
            }
            Form::Jinja(jinja) => {
                if let Some((filters, root, path)) = &jinja.fast_path
                    && let Some(Value::String(text)) = scope.find(root, path)?
                {
                    return plain(Some(Value::String(filters.apply(text))));
                }
                let visible = jinja.reads.of_scope(scope)?;
                let value = jinja
                    .expression
                    .eval(minijinja::Value::from(minijinja::value::Serde(&visible)))
                    .map_err(|error| TemplateProblem(format!("`{}` failed: {}", self.0.source, describe(&error))))?;
                if value.is_undefined() {
                    return Ok(None);
                }
                let marked = value.downcast_object_ref::<UrlText>().is_some();
                serde_json::to_value(&value)
                    .map(|value| Some((value, marked)))
                    .map_err(|error| TemplateProblem(format!("`{}` has no JSON value: {error}", self.0.source)))
            }
        }
    }

    /// Evaluates as a condition: absent, null, false, zero and empty values are false.
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

/// Names that follow a root in a text: of `root.name`, `root["name"]` and `root['name']`.
fn members<'a>(source: &'a str, root: &'a str) -> impl Iterator<Item = &'a str> {
    source.match_indices(root).filter_map(move |(at, _)| {
        let is_word = source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = source[at + root.len()..].trim_start();
        let (rest, end): (&str, fn(char) -> bool) = match rest.strip_prefix('.') {
            Some(rest) => (rest, |c| !(c.is_alphanumeric() || matches!(c, '_' | '-'))),
            None => (rest.strip_prefix('[')?.trim_start().strip_prefix(['"', '\''])?, |c| matches!(c, '"' | '\'')),
        };
        let name = &rest[..rest.find(end).unwrap_or(rest.len())];
        (!is_word && !name.is_empty()).then_some(name)
    })
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{{ {} }}}}", self.0.source)
    }
}

pub(super) fn describe(error: &minijinja::Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    if text.contains("fuel") { format!("{text} (an expression may take {FUEL} steps)") } else { text }
}

/// Root name and path. `request.body` and `request.headers` are aliases of `body` and `headers`.
fn plain_path(source: &str) -> Option<(String, Path)> {
    let aliased =
        source.strip_prefix("request.").filter(|rest| rest.starts_with("body") || rest.starts_with("headers"));
    let path = Path::parse(aliased.unwrap_or(source))?;
    let (root, rest) = path.split_root().filter(|(root, _)| ROOTS.contains(root) || CONNECTOR_ROOTS.contains(root))?;
    let path = Path(rest.to_vec());
    Some((root.to_owned(), if root == "headers" { lower_case_first(path) } else { path }))
}

fn lower_case_first(path: Path) -> Path {
    let mut segments = path.0;
    if let Some(crate::path::Segment::Key(name)) = segments.first_mut() {
        *name = name.to_ascii_lowercase();
    }
    Path(segments)
}

/// Rewrites `a.b-c` as `a["b-c"]`, outside of quotes.
pub(super) fn quote_hyphens(source: &str) -> String {
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
            let name_end =
                rest[1..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len() - 1);
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
