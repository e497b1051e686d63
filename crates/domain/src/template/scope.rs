//! What expressions see.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::TemplateProblem;

/// What an expression can see: a value for each root name. Some of them are read only when somebody looks.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// There are a handful of them at the most.
    roots: Vec<(Cow<'static, str>, Root)>,
}

/// What stands under a root name.
#[derive(Clone, Debug)]
enum Root {
    Value(Value),
    Later(Arc<Later>),
}

/// A value that is read when it is needed, and then once.
struct Later {
    value: OnceLock<Result<Value, TemplateProblem>>,
    read: Box<dyn Fn() -> Result<Value, TemplateProblem> + Send + Sync>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that is read when it is needed")
    }
}

impl Scope {
    /// Nothing to see yet.
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Makes a value visible under a root name.
    pub fn set(&mut self, root: impl Into<Cow<'static, str>>, value: Value) {
        self.put(root.into(), Root::Value(value));
    }

    /// Makes a value visible under a root name, which is read when somebody looks.
    pub fn set_lazy(
        &mut self,
        root: &'static str,
        read: impl Fn() -> Result<Value, TemplateProblem> + Send + Sync + 'static,
    ) {
        let later = Later { value: OnceLock::new(), read: Box::new(read) };
        self.put(root.into(), Root::Later(Arc::new(later)));
    }

    fn put(&mut self, name: Cow<'static, str>, value: Root) {
        match self.roots.iter_mut().find(|(root, _)| *root == name) {
            Some((_, before)) => *before = value,
            None => self.roots.push((name, value)),
        }
    }

    /// Takes the value under a root name away. What was to be read later is nobody's.
    pub fn take(&mut self, root: &str) -> Option<Value> {
        let at = self.roots.iter().position(|(name, _)| name == root)?;
        match self.roots.remove(at).1 {
            Root::Value(value) => Some(value),
            Root::Later(_) => None,
        }
    }

    /// What stands under a root name. What cannot be read is not there.
    pub fn get(&self, root: &str) -> Option<&Value> {
        self.read(root).ok().flatten()
    }

    /// What stands under a root name, or why it cannot be read.
    pub(super) fn read(&self, root: &str) -> Result<Option<&Value>, TemplateProblem> {
        match self.roots.iter().find(|(name, _)| name == root) {
            None => Ok(None),
            Some((_, Root::Value(value))) => Ok(Some(value)),
            Some((_, Root::Later(later))) => {
                later.value.get_or_init(|| (later.read)()).as_ref().map(Some).map_err(TemplateProblem::clone)
            }
        }
    }

    /// Every root name that has a value.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|(name, _)| name.as_ref())
    }

    /// Makes a step's output visible as `steps.<id>.output`.
    pub fn set_step_output(&mut self, id: &str, output: Value) {
        let step = Value::Object(Map::from_iter([("output".to_owned(), output)]));
        match self.roots.iter_mut().find(|(name, _)| name == "steps") {
            Some((_, Root::Value(Value::Object(steps)))) => {
                steps.insert(id.to_owned(), step);
            }
            Some(_) => {}
            None => self.set("steps", Value::Object(Map::from_iter([(id.to_owned(), step)]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Expression;
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn what_is_read_later_is_read_once_and_only_if_it_is_needed() {
        let reads = Arc::new(AtomicU32::new(0));
        let counted = reads.clone();
        let mut scope = Scope::new();
        scope.set("event", json!({"email": "ada@x.org"}));
        scope.set_lazy("body", move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(json!({"name": "Ada"}))
        });
        let value = |source: &str| Expression::parse(source).unwrap().evaluate(&scope).unwrap();
        assert_eq!(value("event.email ~ ''"), Some(json!("ada@x.org")));
        assert_eq!(reads.load(Ordering::Relaxed), 0, "nobody asked for the body");
        for source in ["body.name", "body.name | lower | title", "request.body.name ~ ''", "body['name'] ~ ''"] {
            assert_eq!(value(source), Some(json!("Ada")), "{source}");
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let mut scope = Scope::new();
        scope.set_lazy("body", || Err(TemplateProblem("the stored body cannot be read".into())));
        for source in ["body.name", "body.name | lower", "body.name ~ 'x'", "sha256(body.name)"] {
            let problem = Expression::parse(source).unwrap().evaluate(&scope).unwrap_err();
            assert!(problem.0.contains("cannot be read"), "{source}: {problem}");
        }
        scope.set("body", json!({"name": "Ada"}));
        assert_eq!(Expression::parse("body.name").unwrap().evaluate(&scope), Ok(Some(json!("Ada"))));
    }
}
