//! What the finished steps of a job left.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Outputs by the names of their steps, in the order of the steps. They are shared: nothing is copied to pass one on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs(Vec<(Arc<str>, Arc<Value>)>);

impl Outputs {
    /// This step left this, whatever it left before.
    pub fn put(&mut self, step: &Arc<str>, output: Arc<Value>) {
        match self.0.iter_mut().find(|(name, _)| name == step) {
            Some((_, before)) => *before = output,
            None => self.0.push((step.clone(), output)),
        }
    }

    /// What this step left.
    pub fn get(&self, step: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| **name == *step).map(|(_, output)| &**output)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        self.0.iter().map(|(name, output)| (name, output))
    }

    /// All outputs by the names of their steps.
    pub fn to_value(&self) -> Value {
        let entry = |(name, output): (&Arc<str>, &Arc<Value>)| (name.to_string(), Value::clone(output));
        Value::Object(self.iter().map(entry).collect::<Map<_, _>>())
    }

    /// Whether no step left anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What came of the job. One output stands for itself: the record's id is what a sender asks for.
    pub fn result(&self) -> Option<Arc<Value>> {
        match &self.0[..] {
            [] => None,
            [(_, output)] => Some(output.clone()),
            _ => Some(Arc::new(self.to_value())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_output_stands_for_itself_and_several_keep_their_order() {
        let mut outputs = Outputs::default();
        assert_eq!((outputs.is_empty(), outputs.result()), (true, None));
        outputs.put(&"upsert".into(), json!({ "id": 7 }).into());
        assert_eq!(outputs.result().as_deref(), Some(&json!({ "id": 7 })));
        outputs.put(&"mail".into(), json!(true).into());
        outputs.put(&"upsert".into(), json!({ "id": 8 }).into());
        let result = outputs.result().expect("something was left");
        assert_eq!(result.to_string(), r#"{"upsert":{"id":8},"mail":true}"#);
    }
}
