//! Schemas of `with:`, one per action.

use serde_json::{Map, Value, json};
use sluice_domain::action::{Action, Parameter, ParameterType};

use super::keys::RUNTIME;
use super::reference;
use super::value_type::{duration, one_or_list, scalar};
use crate::config::catalogue::known_actions;
use crate::config::parameters::{INNER_KEYS, is_decided_before};

/// Schema of the parameters of an action.
pub(super) fn with(action: Action) -> Value {
    match action {
        Action::Queue => return json!({ "$ref": reference("the queue of a worker's step") }),
        Action::QueuePull => return json!({ "$ref": reference("a pull") }),
        _ => {}
    }
    let spec = action.spec();
    let mut properties = Map::new();
    for parameter in spec.parameters {
        let mut schema = of_parameter(action, parameter);
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".into(), json!(parameter.about));
        }
        properties.insert(parameter.name.to_owned(), schema);
    }
    if !spec.destination.is_empty() {
        let about = "Name of the destination; the same as `destination` of the step.";
        properties.insert("destination".into(), json!({ "type": "string", "description": about }));
    }
    let required: Vec<&str> =
        spec.parameters.iter().filter(|parameter| parameter.required).map(|parameter| parameter.name).collect();
    let mut object = json!({
        "type": "object",
        "description": spec.about,
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// Schema of a parameter. A template may take the place of a value that is only needed when the step runs.
fn of_parameter(action: Action, parameter: &Parameter) -> Value {
    let value = match &parameter.value_type {
        _ if inner_keys(action, parameter.name).is_some() => inner_map(action, parameter.name),
        ParameterType::Text | ParameterType::Url => return scalar(),
        ParameterType::Any => return json!({}),
        ParameterType::Texts => return one_or_list(scalar()),
        ParameterType::Expression => return json!({ "type": ["string", "boolean", "number"] }),
        ParameterType::Expressions => {
            return json!({ "type": "object", "additionalProperties": { "type": ["string", "boolean", "number"] } });
        }
        ParameterType::Flag => json!({ "type": "boolean" }),
        ParameterType::OneOf(words) => json!({ "enum": words }),
        ParameterType::Map => json!({ "type": "object" }),
        ParameterType::Duration => duration(),
        ParameterType::Number => json!({ "type": "number" }),
        ParameterType::Numbers => json!({ "type": "array", "items": { "type": "integer" } }),
    };
    if is_decided_before(action, parameter.name) {
        return value;
    }
    json!({ "anyOf": [value, { "type": "string", "pattern": r"\{\{|\$\{" }] })
}

fn inner_keys(action: Action, parameter: &str) -> Option<&'static [&'static str]> {
    INNER_KEYS.iter().find(|(of, name, _)| *of == action && *name == parameter).map(|(_, _, keys)| *keys)
}

/// A map with the inner keys of a parameter and no others.
fn inner_map(action: Action, parameter: &str) -> Value {
    let keys = inner_keys(action, parameter).into_iter().flatten();
    let properties: Map<String, Value> = keys.map(|key| ((*key).to_owned(), json!({}))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Selects the schema of `with:` by the action of a step or an undo.
pub(super) fn with_by_action() -> Vec<Value> {
    let with = |action: Action| json!({ "properties": { "with": { "$ref": format!("#/definitions/with-{}", action.name()) } } });
    let runs =
        |key: &str, action: Action| json!({ "required": [key], "properties": { key: { "const": action.name() } } });
    let mut rules: Vec<Value> = known_actions()
        .map(|action| json!({ "if": { "anyOf": [runs("run", action), runs("uses", action)] }, "then": with(action) }))
        .collect();
    let runtime = json!({ "required": ["uses"], "properties": { "uses": { "pattern": RUNTIME } } });
    rules.push(json!({ "if": runtime, "then": with(Action::Script) }));
    rules
}
