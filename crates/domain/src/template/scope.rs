//! Variables of expressions.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::TemplateProblem;
use crate::outputs::Outputs;
use crate::path::{self, Path, Segment};
use crate::pseudonym::PseudonymKey;

/// Variables of an expression: a value per root name. Some are loaded on first access.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Linear search: a scope has few roots.
    roots: Vec<(Cow<'static, str>, Root)>,
    pseudonyms: PseudonymKey,
}

/// Roots of most scopes, at the most.
const ROOTS: usize = 8;

#[derive(Clone, Debug)]
enum Root {
    Value(Value),
    Shared(Arc<Value>),
    Lazy(Arc<Lazy>),
    Steps(Steps),
}

/// A value that is loaded on first access, once.
struct Lazy<Read: ?Sized = dyn Fn() -> Result<Value, TemplateProblem> + Send + Sync> {
    value: OnceLock<Result<Value, TemplateProblem>>,
    read: Read,
}

/// Root with the outputs of finished steps.
const STEPS: &str = "steps";

/// Outputs of finished steps. Most expressions read a path of one output: only others need them as one value.
#[derive(Clone, Debug, Default)]
struct Steps {
    outputs: Outputs,
    value: OnceLock<Value>,
}

impl Steps {
    /// `steps.<id>.output` of every step.
    fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let step = |(id, output): (&Arc<str>, &Arc<Value>)| {
                let step = Map::from_iter([("output".to_owned(), Value::clone(output))]);
                (id.to_string(), Value::Object(step))
            };
            Value::Object(self.outputs.iter().map(step).collect())
        })
    }

    fn find(&self, path: &Path) -> Option<&Value> {
        match path.0.as_slice() {
            [Segment::Key(id), Segment::Key(output), rest @ ..] if output == "output" => {
                path::find(rest, self.outputs.get(id)?)
            }
            _ => path.find(self.value()),
        }
    }
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
        self.put(root.into(), Root::Lazy(Arc::new(Lazy { value: OnceLock::new(), read })));
    }

    fn put(&mut self, name: Cow<'static, str>, value: Root) {
        match self.roots.iter_mut().find(|(root, _)| *root == name) {
            Some((_, value_slot)) => *value_slot = value,
            None => self.push(name, value),
        }
    }

    fn push(&mut self, name: Cow<'static, str>, value: Root) {
        if self.roots.is_empty() {
            self.roots.reserve(ROOTS);
        }
        self.roots.push((name, value));
    }

    /// Removes a root and returns its value; `None` for a lazy one.
    pub fn take(&mut self, root: &str) -> Option<Value> {
        let at = self.roots.iter().position(|(name, _)| name == root)?;
        match self.roots.remove(at).1 {
            Root::Value(value) => Some(value),
            Root::Shared(value) => Some(Arc::unwrap_or_clone(value)),
            Root::Steps(steps) => Some(steps.value().clone()),
            Root::Lazy(_) => None,
        }
    }

    /// The value of a root; `None` if it is absent or cannot be loaded.
    pub fn get(&self, root: &str) -> Option<&Value> {
        self.read(root).ok().flatten()
    }

    /// The same for a caller that keeps it: a shared value is not copied.
    pub(crate) fn get_shared(&self, root: &str) -> Option<Arc<Value>> {
        match self.roots.iter().find(|(name, _)| name == root) {
            Some((_, Root::Shared(value))) => Some(value.clone()),
            _ => self.get(root).map(|value| Arc::new(value.clone())),
        }
    }

    /// The value of a root, or why it cannot be loaded.
    pub(super) fn read(&self, root: &str) -> Result<Option<&Value>, TemplateProblem> {
        match self.roots.iter().find(|(name, _)| name == root) {
            None => Ok(None),
            Some((_, Root::Value(value))) => Ok(Some(value)),
            Some((_, Root::Shared(value))) => Ok(Some(value)),
            Some((_, Root::Steps(steps))) => Ok(Some(steps.value())),
            Some((_, Root::Lazy(lazy))) => {
                lazy.value.get_or_init(|| (lazy.read)()).as_ref().map(Some).map_err(TemplateProblem::clone)
            }
        }
    }

    /// All root names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|(name, _)| name.as_ref())
    }

    /// The value at a path of a root, or why the root cannot be loaded.
    pub(super) fn find(&self, root: &str, path: &Path) -> Result<Option<&Value>, TemplateProblem> {
        match self.roots.iter().find(|(name, _)| name == root) {
            Some((_, Root::Steps(steps))) => Ok(steps.find(path)),
            _ => Ok(self.read(root)?.and_then(|value| path.find(value))),
        }
    }

    /// Sets `steps.<id>.output`.
    pub fn set_step_output(&mut self, id: impl Into<Arc<str>>, output: impl Into<Arc<Value>>) {
        let (id, output) = (id.into(), output.into());
        match self.roots.iter_mut().find(|(name, _)| name == STEPS) {
            Some((_, Root::Steps(steps))) => {
                steps.outputs.put(&id, output);
                steps.value.take();
            }
            Some(_) => {}
            None => {
                let mut steps = Steps::default();
                steps.outputs.put(&id, output);
                self.push(STEPS.into(), Root::Steps(steps));
            }
        }
    }

    /// Outputs of the finished steps.
    pub(crate) fn step_outputs(&self) -> impl Iterator<Item = &Value> {
        let steps = self.roots.iter().filter_map(|(_, root)| match root {
            Root::Steps(steps) => Some(steps),
            _ => None,
        });
        steps.flat_map(|steps| steps.outputs.iter()).map(|(_, output)| &**output)
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
    fn outputs_of_steps_are_read_by_path_and_as_one_value() {
        let mut scope = Scope::new();
        let value = |scope: &Scope, source: &str| Expression::parse(source).unwrap().evaluate(scope).unwrap();
        assert_eq!(value(&scope, "steps.find.output.id"), None);
        scope.set_step_output("find", json!({"id": 1}));
        scope.set_step_output("list", json!([7, 8]));
        assert_eq!(value(&scope, "steps.find.output.id + 1"), Some(json!(2)));
        scope.set_step_output("find", json!({"id": 3}));
        for (source, expected) in [
            ("steps.find.output.id", Some(json!(3))),
            ("steps.find.output.id + 1", Some(json!(4))),
            ("steps.list.output[1]", Some(json!(8))),
            ("steps.list.output", Some(json!([7, 8]))),
            ("steps.find", Some(json!({"output": {"id": 3}}))),
            ("steps.find.error", None),
            ("steps.none.output", None),
        ] {
            assert_eq!(value(&scope, source), expected, "{source}");
        }
        let all = scope.get("steps").unwrap().to_string();
        assert_eq!(all, r#"{"find":{"output":{"id":3}},"list":{"output":[7,8]}}"#);
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
