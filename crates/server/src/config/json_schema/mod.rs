//! A JSON Schema of the language, for editors: completion, explanations, and most mistakes while they are typed. Made from
//! the tables and rules that the reader uses. What only the whole configuration can show stays `sluice check`'s.

mod action;
mod keys;
mod pattern;
mod rules;
mod shape;
mod verification;

use serde_json::{Map, Value, json};
use sluice_domain::action::Action;
use sluice_domain::destination::DestinationKind;

use super::document::{DOCUMENT, FILE};
use super::parse;
use super::read::{Files, is_document};
use super::reference::tables;
use super::table::{Absent, SectionSpec};

/// What kind of a document has which key, asked in this order.
const KINDS: [(&str, &str); 5] = [
    ("triggers", "a flow"),
    ("consumes", "a worker"),
    ("on", "a worker"),
    ("schedule", "a worker"),
    ("retry", "a policy document"),
];

/// The schema of one document of a configuration.
pub fn editor_schema() -> Value {
    let mut definitions = Map::new();
    for table in tables() {
        let sections: &[&SectionSpec] = match table.title {
            "a flow" | "a worker" => &[table, &DOCUMENT],
            "any document" => &[&FILE, table],
            "a policy document" => &[&FILE, &DOCUMENT, table],
            _ => &[table],
        };
        definitions.insert(slug(table.title), object(sections, Named::Here));
    }
    for section in ["a queue", "a destination", "a policy"] {
        definitions.insert(format!("{}-by-name", slug(section)), named(section));
    }
    for kind in DestinationKind::NAMES {
        definitions.insert(format!("destination-{kind}"), destination(kind));
    }
    for action in Action::ALL {
        definitions.insert(format!("with-{}", action.name()), action::with(action));
    }
    definitions.extend(shape::values().map(|(name, value)| (name.to_owned(), value)));
    definitions.insert("key-without-id".into(), keys::without_id());
    definitions.insert("key-without-moment".into(), keys::without_moment());
    let otherwise = json!({ "$ref": reference("any document") });
    let document = KINDS.iter().rev().fold(otherwise, |otherwise, (key, title)| {
        json!({ "if": { "required": [key] }, "then": { "$ref": reference(title) }, "else": otherwise })
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://sluice.invalid/sluice.schema.json",
        "title": "Sluice configuration",
        "description": "Made by `sluice reference schema`; do not edit it by hand.",
        "type": "object",
        "allOf": [document],
        "definitions": definitions,
    })
}

/// Every document of every file as the schema sees it, with the file; `None` for one that no parser can read.
pub fn documents(files: &Files) -> Vec<(String, Option<Value>)> {
    let mut found = vec![];
    for (file, text) in files.iter().filter(|(file, _)| is_document(file)) {
        let (nodes, flaws) = parse::parse(text);
        let values = nodes.iter().filter(|node| !node.is_null()).map(|node| Some(node.to_value()));
        found.extend(values.map(|value| (file.to_owned(), value)));
        if !flaws.is_empty() {
            found.push((file.to_owned(), None));
        }
    }
    found
}

/// `a retry policy` is `retry-policy`.
fn slug(title: &str) -> String {
    let words = ["a ", "an ", "the ", "any "].iter().find_map(|article| title.strip_prefix(article)).unwrap_or(title);
    words.replace(' ', "-")
}

fn reference(title: &str) -> String {
    format!("#/definitions/{}", slug(title))
}

/// Where a thing has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// Under `name`, as the table says.
    Here,
    /// It is the key that the thing stands under, too.
    Elsewhere,
}

/// A map with the keys of these tables and no others.
fn object(tables: &[&SectionSpec], naming: Named) -> Value {
    let mut properties = Map::new();
    let mut required = vec![];
    for (table, key) in tables.iter().flat_map(|table| table.keys.iter().map(move |key| (table, key))) {
        let mut schema = keys::of(table.title, key.name).unwrap_or_else(|| shape::schema(&key.shape));
        let mut about = key.about.to_owned();
        if let Absent::Default(text) = key.default {
            about.push_str(&format!(" When left out: {text}."));
        }
        // Beside a reference nothing else counts.
        if schema.get("$ref").is_some() {
            schema = json!({ "allOf": [schema] });
        }
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".into(), Value::String(about));
        }
        properties.insert(key.name.to_owned(), schema);
        if key.default == Absent::Required && !(naming == Named::Elsewhere && key.name == "name") {
            required.push(key.name);
        }
    }
    let about = tables.first().map_or("", |table| table.about);
    let mut object = json!({
        "type": "object",
        "description": about,
        "properties": properties,
        "additionalProperties": false,
    });
    if let Some(members) = object.as_object_mut() {
        if !required.is_empty() {
            members.insert("required".into(), json!(required));
        }
        let rules: Vec<Value> = tables.iter().flat_map(|table| rules::of(table)).collect();
        if !rules.is_empty() {
            members.insert("allOf".into(), Value::Array(rules));
        }
    }
    object
}

/// A thing whose name is the key that it stands under.
fn named(title: &str) -> Value {
    let found: Vec<&SectionSpec> = tables().into_iter().filter(|table| table.title == title).collect();
    match title {
        "a destination" => {
            let types: Vec<Value> = DestinationKind::NAMES
                .iter()
                .map(|kind| {
                    let of_kind = json!({ "properties": { "type": { "const": kind } } });
                    json!({ "if": of_kind, "then": { "$ref": format!("#/definitions/destination-{kind}") } })
                })
                .collect();
            json!({
                "type": "object",
                "required": ["type"],
                "properties": { "type": { "enum": DestinationKind::NAMES } },
                "allOf": types,
            })
        }
        _ => object(&found, Named::Elsewhere),
    }
}

/// A destination of one type has the keys of all and its own.
fn destination(kind: &str) -> Value {
    let own = [format!("a {kind} destination"), format!("an {kind} destination")];
    let found: Vec<&SectionSpec> = tables()
        .into_iter()
        .filter(|table| table.title == "a destination" || own.iter().any(|title| title == table.title))
        .collect();
    object(&found, Named::Elsewhere)
}

#[cfg(test)]
mod tests {
    use sluice_domain::schema::Schema;

    use super::*;
    use crate::config::table::ValueType;

    #[test]
    fn it_is_a_schema_and_every_reference_leads_somewhere() {
        let schema = editor_schema();
        Schema::new(&schema).unwrap();
        let text = schema.to_string();
        for (at, _) in text.match_indices("#/definitions/") {
            let name = text[at + "#/definitions/".len()..].split('"').next().unwrap();
            assert!(schema["definitions"].get(name).is_some(), "{name} is not defined");
        }
    }

    #[test]
    fn editors_are_told_what_every_described_value_may_be() {
        for table in tables() {
            for key in table.keys {
                if let ValueType::Described(words) = key.shape {
                    let told = keys::of(table.title, key.name).is_some() || shape::described(words).is_some();
                    assert!(told, "`{}` of {} is {words}: say it in editor/shape.rs too", key.name, table.title);
                }
            }
        }
    }
}
