//! Variables of expressions.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::TemplateProblem;
use crate::pseudonym::PseudonymKey;

/// Variables of an expression: a value per root name. Some are loaded on first access.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Linear search: a scope has few roots.
    roots: Vec<(Cow<'static, str>, Root)>,
    pseudonyms: PseudonymKey,
}

#[derive(Clone, Debug)]
enum Root {
    Value(Value),
    Shared(Arc<Value>),
    Lazy(Arc<Lazy>),
}

/// A value that is loaded on first access, once.
struct Lazy {
    value: OnceLock<Result<Value, TemplateProblem>>,
    read: Box<dyn Fn() -> Result<Value, TemplateProblem> + Send + Sync>,
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lazy")
    }
}

impl Scope {
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Sets the key of the pseudonyms in idempotency and deduplication keys.
    pub fn set_pseudonyms(&mut self, key: PseudonymKey) {
        self.pseudonyms = key;
    }

    /// Expressions have no access to it.
    pub(crate) fn pseudonyms(&self) -> &PseudonymKey {
        &self.pseudonyms
    }

    /// Sets the value of a root.
    pub fn set(&mut self, root: impl Into<Cow<'static, str>>, value: Value) {
        self.put(root.into(), Root::Value(value));
    }

    /// Sets a root to a value that other scopes have as well.
    pub fn set_shared(&mut self, root: &'static str, value: Arc<Value>) {
        self.put(root.into(), Root::Shared(value));
    }

    /// Sets a root that is loaded on first access.
    pub fn set_lazy(
        &mut self,
        root: &'static str,
        read: impl Fn() -> Result<Value, TemplateProblem> + Send + Sync + 'static,
    ) {
        let lazy = Lazy { value: OnceLock::new(), read: Box::new(read) };
        self.put(root.into(), Root::Lazy(Arc::new(lazy)));
    }

    fn put(&mut self, name: Cow<'static, str>, value: Root) {
        match self.roots.iter_mut().find(|(root, _)| *root == name) {
            Some((_, value_slot)) => *value_slot = value,
            None => self.roots.push((name, value)),
        }
    }

    /// Removes a root and returns its value; `None` for a lazy one.
    pub fn take(&mut self, root: &str) -> Option<Value> {
        let at = self.roots.iter().position(|(name, _)| name == root)?;
        match self.roots.remove(at).1 {
            Root::Value(value) => Some(value),
            Root::Shared(value) => Some(Arc::unwrap_or_clone(value)),
            Root::Lazy(_) => None,
        }
    }

    /// The value of a root; `None` if it is absent or cannot be loaded.
    pub fn get(&self, root: &str) -> Option<&Value> {
        self.read(root).ok().flatten()
    }

    /// The value of a root, or why it cannot be loaded.
    pub(super) fn read(&self, root: &str) -> Result<Option<&Value>, TemplateProblem> {
        match self.roots.iter().find(|(name, _)| name == root) {
            None => Ok(None),
            Some((_, Root::Value(value))) => Ok(Some(value)),
            Some((_, Root::Shared(value))) => Ok(Some(value)),
            Some((_, Root::Lazy(lazy))) => {
                lazy.value.get_or_init(|| (lazy.read)()).as_ref().map(Some).map_err(TemplateProblem::clone)
            }
        }
    }

    /// All root names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|(name, _)| name.as_ref())
    }

    /// Sets `steps.<id>.output`.
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
    fn lazy_root_is_loaded_once_and_only_on_access() {
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
        assert_eq!(reads.load(Ordering::Relaxed), 0, "the body is not loaded");
        for source in ["body.name", "body.name | lower | title", "request.body.name ~ ''", "body['name'] ~ ''"] {
            assert_eq!(value(source), Some(json!("Ada")), "{source}");
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn failed_load_is_reported() {
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
