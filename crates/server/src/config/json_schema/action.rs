//! Schemas of actions and their parameters.

use serde_json::{Map, Value, json};
use sluice_domain::action::{Action, Parameter, ParameterType as ParameterShape};

use super::rules::{actions, any_of, runs};
use super::shape::{any_template, not_ended, schema, template};
use super::{pattern, reference};
use crate::config::parameters::{BODIES, DECIDED_BEFORE, INNER_KEYS, MEANS, is_verbatim, one_needed};
use crate::config::script::{OURS, SCRIPT_BYTES_MAX};
use crate::config::table::ValueType;

/// Schema of `with:` of an action.
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
    if !action.is_internal() {
        properties.insert("destination".into(), json!({ "type": "string", "description": "Where." }));
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
    let rules = rules_of(action);
    if !rules.is_empty() {
        object["allOf"] = Value::Array(rules);
    }
    object
}

/// Constraints between parameters.
fn rules_of(action: Action) -> Vec<Value> {
    let mut rules = vec![];
    if !one_needed(action).is_empty() {
        rules.push(any_of(one_needed(action)));
    }
    if action == Action::HttpRequest {
        for (place, one) in BODIES.iter().enumerate() {
            rules.extend(BODIES[place + 1..].iter().map(|other| json!({ "not": { "required": [one, other] } })));
        }
        for (word, means) in MEANS {
            let of_class = json!({ "required": ["class"], "properties": { "class": { "const": word } } });
            rules.push(json!({ "if": of_class, "then": { "required": [means] } }));
        }
    }
    rules
}

/// Schema of a parameter. A template may have any type.
fn of_parameter(action: Action, parameter: &Parameter) -> Value {
    let or_filled_in = |other: Value| json!({ "anyOf": [other, { "type": "string", "pattern": pattern::FILLED_IN, "not": not_ended() }] });
    let map = json!({ "allOf": [{ "type": "object" }, any_template()] });
    let inner = INNER_KEYS.iter().find(|(of, name, _)| *of == action && *name == parameter.name);
    match (&parameter.value_type, parameter.name) {
        _ if is_verbatim(action, parameter.name) => program(),
        (_, "runtime") => json!({ "type": "string", "pattern": pattern::RUNTIME }),
        (_, "command") => super::shape::described("a list of texts").unwrap_or_default(),
        (_, "env") => environment(),
        (_, "slack") => inner_map(inner.map(|(_, _, keys)| keys)),
        (_, "verify") => or_filled_in(verify(inner.map(|(_, _, keys)| keys))),
        (ParameterShape::OneOf(words), name) if DECIDED_BEFORE.contains(&name) => json!({ "enum": words }),
        (_, name) if DECIDED_BEFORE.contains(&name) => schema(&ValueType::Name),
        (ParameterShape::Text, _) => template(),
        (ParameterShape::Any, _) if parameter.required => {
            json!({ "allOf": [{ "not": { "type": "null" } }, any_template()] })
        }
        (ParameterShape::Any, _) => any_template(),
        (ParameterShape::Flag, _) => or_filled_in(json!({ "type": "boolean" })),
        (ParameterShape::OneOf(words), _) => or_filled_in(json!({ "enum": words })),
        (ParameterShape::Map, _) => or_filled_in(map),
        (ParameterShape::Duration, _) => or_filled_in(schema(&ValueType::Duration)),
        (ParameterShape::Number, _) => or_filled_in(json!({ "type": "number", "exclusiveMinimum": 0 })),
        (ParameterShape::Numbers, _) => json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } }),
        (ParameterShape::Texts, _) => json!({ "anyOf": [template(), { "type": "array", "items": template() }] }),
    }
}

/// A map with these keys and no others.
fn inner_map(keys: Option<&[&str; 2]>) -> Value {
    let properties: Map<String, Value> =
        keys.into_iter().flatten().map(|key| ((*key).to_owned(), any_template())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn verify(keys: Option<&[&str; 2]>) -> Value {
    let mut map = inner_map(keys);
    map["required"] = json!(["url"]);
    map
}

pub(super) fn program() -> Value {
    json!({ "type": ["string", "number", "boolean"], "pattern": r"\S", "maxLength": SCRIPT_BYTES_MAX })
}

pub(super) fn environment() -> Value {
    let names = json!({ "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": { "enum": OURS } });
    let map = json!({ "allOf": [{ "type": "object", "propertyNames": names }, any_template()] });
    json!({ "anyOf": [map, { "type": "string", "pattern": pattern::FILLED_IN, "not": not_ended() }] })
}

/// Rules shared by steps and undos: `with:` depends on the action, and scripts have additional keys.
pub(super) fn of_step() -> Vec<Value> {
    let mut rules: Vec<Value> = Action::ALL.into_iter().map(with_of).collect();
    rules.extend(scripts());
    let inner = actions(Action::is_internal);
    let inside = json!({ "anyOf": [runs(&inner), any_of(&["queue", "queue_pull"])] });
    rules.push(json!({ "if": inside, "then": { "not": { "required": ["destination"] } } }));
    rules
}

/// Rules for `policy:` and for approvals in Slack.
pub(super) fn guarded() -> Vec<Value> {
    let inner = actions(Action::is_internal);
    let inside = json!({ "anyOf": [runs(&inner), any_of(&["queue", "queue_pull"])] });
    let each = json!({ "allOf": [runs(&[Action::ApprovalRequest.name()]), { "required": ["foreach"] }] });
    vec![
        json!({ "if": inside, "then": { "not": { "required": ["policy"] } } }),
        json!({ "if": each, "then": { "properties": { "with": { "not": { "required": ["slack"] } } } } }),
        json!({ "if": runs(&[Action::QueuePull.name()]), "then": { "not": { "required": ["foreach"] } } }),
    ]
}

/// Schema of `with:` by action.
fn with_of(action: Action) -> Value {
    let name = action.name();
    let mut then = json!({ "properties": { "with": { "$ref": format!("#/definitions/with-{name}") } } });
    let needed = action.spec().parameters.iter().any(|parameter| parameter.required) || !one_needed(action).is_empty();
    // The program of a script may be beside `with`, so `with` is optional.
    if needed && action != Action::Script {
        then["required"] = json!(["with"]);
    }
    json!({ "if": runs(&[name]), "then": then })
}

/// Keys of a script step.
fn scripts() -> Vec<Value> {
    let inside =
        |key: &str| json!({ "required": ["with"], "properties": { "with": { "type": "object", "required": [key] } } });
    let has = |key: &str| json!({ "anyOf": [{ "required": [key] }, inside(key)] });
    let runtime = json!({ "required": ["uses"], "properties": { "uses": { "pattern": pattern::RUNTIME } } });
    let named = runs(&[Action::Script.name()]);
    let any_script = json!({ "anyOf": [runtime, named] });
    let mut rules = vec![
        json!({ "if": runtime, "then": { "properties": { "with": { "$ref": "#/definitions/with-script" } } } }),
        json!({ "if": any_script, "then": { "anyOf": [has("script"), has("command")] }, "else": { "not": any_of(&["script", "command", "env"]) } }),
        json!({ "not": { "allOf": [has("script"), has("command")] } }),
        json!({ "if": { "allOf": [named, has("script")] }, "then": inside("runtime") }),
        json!({ "not": { "allOf": [{ "anyOf": [runtime, inside("runtime")] }, any_script, has("command")] } }),
    ];
    for key in ["script", "command", "env"] {
        rules.push(json!({ "not": { "allOf": [{ "required": [key] }, inside(key)] } }));
    }
    rules
}
