//! JSON Schema of a flow's payloads.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Maximum number of reported mismatches.
const MISMATCHES_MAX: usize = 10;

/// A compiled JSON Schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    validator: Arc<jsonschema::Validator>,
    properties: Arc<BTreeSet<String>>,
    text: Arc<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON Schema: {0}")]
pub struct SchemaProblem(String);

/// One mismatch. The message does not contain values of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON Pointer; empty for the whole payload.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        write!(f, "{path}: {}", self.message)
    }
}

impl Schema {
    /// Compiles a schema. References to other documents are rejected, not fetched.
    pub fn new(schema: &Value) -> Result<Schema, SchemaProblem> {
        let validator = jsonschema::validator_for(schema).map_err(|error| SchemaProblem(error.to_string()))?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.map(|members| members.keys().cloned().collect()).unwrap_or_default();
        Ok(Schema { validator: Arc::new(validator), properties: Arc::new(properties), text: Arc::new(schema.clone()) })
    }

    /// Mismatches of the payload, up to a maximum.
    pub fn check(&self, payload: &Value) -> Vec<Mismatch> {
        self.validator
            .iter_errors(payload)
            .take(MISMATCHES_MAX)
            .map(|error| Mismatch { path: error.instance_path().to_string(), message: error.masked().to_string() })
            .collect()
    }

    /// The schema as it is written in the configuration.
    pub fn as_value(&self) -> &Value {
        &self.text
    }

    /// Top-level properties that it names.
    pub fn properties(&self) -> &BTreeSet<String> {
        &self.properties
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("properties", &self.properties).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mismatch_shows_the_path_but_no_value() {
        let schema = Schema::new(&json!({
            "type": "object", "required": ["id", "email"],
            "properties": {"id": {"type": "string"}, "email": {"type": "string", "minLength": 3}, "items": {"items": {"type": "integer"}}}
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({"id": "1", "email": "a@b.c", "items": [1]})), vec![]);
        let wrong = schema.check(&json!({"id": 14155550123u64, "items": [1, "ada@example.com"]}));
        let shown: Vec<String> = wrong.iter().map(Mismatch::to_string).collect();
        assert_eq!(wrong.len(), 3, "{shown:?}");
        assert!(shown.iter().any(|line| line.starts_with("/items/1: ")), "{shown:?}");
        assert!(shown.iter().any(|line| line.contains("email")), "{shown:?}");
        assert!(!shown.iter().any(|line| line.contains("ada@") || line.contains("1415")), "{shown:?}");
        assert!(schema.properties().contains("email"));
    }

    #[test]
    fn invalid_schemas_and_external_references_are_rejected() {
        assert!(Schema::new(&json!({"type": 5})).is_err());
        assert!(Schema::new(&json!({"$ref": "https://elsewhere.example/schema.json"})).is_err());
        assert!(Schema::new(&json!({"$ref": "file:///etc/passwd"})).is_err());
    }
}
