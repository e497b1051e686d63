//! Which parts of its scope an expression reads. Only these are passed to the interpreter, which copies its input.

use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use super::{Scope, TemplateProblem};

/// Alias root with body and headers of the request.
const REQUEST: &str = "request";

/// The parts of a scope that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScopeReads {
    /// Cannot be determined.
    All,
    /// Members of roots, or whole roots.
    Some(Vec<(String, Option<String>)>),
}

impl ScopeReads {
    /// Analyses a compiled expression. With computed members (`body[name]`) or method calls (`body.items()`) it may read
    /// anything.
    pub(super) fn of(source: &str, expression: &minijinja::Expression<'_, '_>) -> ScopeReads {
        if source.contains('[') || calls_a_method(source) {
            return ScopeReads::All;
        }
        let mut parts: Vec<(String, Option<String>)> = expression
            .undeclared_variables(true)
            .into_iter()
            .map(|name| {
                let mut names = name.split('.');
                let root = names.next().unwrap_or_default().to_owned();
                (root, names.next().map(str::to_owned))
            })
            .collect();
        // A whole root sorts before its members and makes them redundant.
        parts.sort();
        parts.dedup_by(|later, first| later.0 == first.0 && (first.1.is_none() || later.1 == first.1));
        ScopeReads::Some(parts)
    }

    /// The parts of a scope that the expression reads, or why one of them cannot be loaded.
    pub(super) fn of_scope<'a>(&'a self, scope: &'a Scope) -> Result<VisibleScope<'a>, TemplateProblem> {
        let mut roots = Vec::new();
        match self {
            ScopeReads::All => {
                for name in scope.names() {
                    roots.extend(scope.read(name)?.map(|value| (name, Part::Members(value, &[][..]))));
                }
                roots.push((REQUEST, Part::of_request(scope)?));
            }
            ScopeReads::Some(parts) => {
                for of_root in parts.chunk_by(|a, b| a.0 == b.0) {
                    let root = of_root[0].0.as_str();
                    match scope.read(root)? {
                        Some(value) => roots.push((root, Part::Members(value, of_root))),
                        None if root == REQUEST => roots.push((REQUEST, Part::of_request(scope)?)),
                        None => {}
                    }
                }
            }
        }
        Ok(VisibleScope(roots))
    }
}

fn calls_a_method(source: &str) -> bool {
    source.match_indices('(').any(|(at, _)| {
        let before = source[..at].trim_end();
        before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').ends_with('.')
    })
}

/// The part of a scope that is passed to the interpreter.
#[derive(Debug)]
pub(super) struct VisibleScope<'a>(Vec<(&'a str, Part<'a>)>);

/// The part of one root.
#[derive(Debug)]
enum Part<'a> {
    /// These members of a value; the whole value if they are not named.
    Members(&'a Value, &'a [(String, Option<String>)]),
    /// Body and headers.
    Request(Option<&'a Value>, Option<&'a Value>),
}

impl<'a> Part<'a> {
    fn of_request(scope: &'a Scope) -> Result<Part<'a>, TemplateProblem> {
        Ok(Part::Request(scope.read("body")?, scope.read("headers")?))
    }
}

impl Serialize for VisibleScope<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(root, part)| (root, part)))
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Request(body, headers) => serializer.collect_map([("body", body), ("headers", headers)]),
            Part::Members(Value::Object(members), wanted)
                if !wanted.is_empty() && wanted.iter().all(|(_, member)| member.is_some()) =>
            {
                let names = wanted.iter().filter_map(|(_, member)| member.as_ref());
                serializer.collect_map(names.filter_map(|name| members.get(name).map(|value| (name, value))))
            }
            Part::Members(value, _) => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expression, Scope};
    use serde_json::json;

    #[test]
    fn expression_sees_everything_it_reads() {
        let mut scope = Scope::new();
        scope.set("body", json!({"a": {"b": [1, 2, 3]}, "items": 5, "name": "a", "x.y": 9, "t": "q"}));
        scope.set("event", json!({"email": "ada@x.org"}));
        let value = |source: &str| Expression::parse(source).unwrap().evaluate(&scope).unwrap();
        for (source, expected) in [
            ("body.a.b | length", json!(3)),
            ("body.a.b[1] + 1", json!(3)),
            ("body[body.name].b | first", json!(1)),
            ("body.a.b[0:2] | length", json!(2)),
            ("body['x.y'] + 1", json!(10)),
            ("body.t ~ event.email", json!("qada@x.org")),
            ("body | length + 0", json!(5)),
            ("'t' in body", json!(true)),
            ("(body.missing.deeper or 'none') ~ ''", json!("none")),
            ("body.a.b | map('string') | join('-') | upper ~ body.t", json!("1-2-3q")),
            ("[body.t, body.name] | join(',')", json!("q,a")),
        ] {
            assert_eq!(value(source), Some(expected), "{source}");
        }
    }
}
