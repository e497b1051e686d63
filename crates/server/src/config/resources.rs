//! Named resources of a configuration as written, for comparing two configurations. [`compile`](super::compile)
//! interprets them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::document::DOCUMENT;
use super::message;
use super::parse;
use super::read::{Files, is_document};

/// Kind and name.
pub(super) type ResourceName = (String, String);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub file: String,
    /// Value without its name.
    pub value: Value,
}

/// All resources. Unreadable documents are skipped.
pub(crate) fn resources(files: &Files) -> BTreeMap<ResourceName, Resource> {
    let mut found = BTreeMap::new();
    for (file, text) in files.iter() {
        if !is_document(file) {
            let kind = if message::part_of(file).is_some() { "template" } else { "list" };
            add(&mut found, file, (kind, file), Value::String(text.to_owned()));
            continue;
        }
        let spaced = file.to_ascii_lowercase().ends_with(".json").then(|| text.replace('\t', " "));
        let (nodes, _) = parse::parse(spaced.as_deref().unwrap_or(text));
        for node in nodes.iter().filter(|node| !node.is_null()) {
            match node.to_value() {
                Value::Object(members) => take_document(&mut found, file, members),
                other => add(&mut found, file, ("file", file), other),
            }
        }
    }
    found
}

fn take_document(found: &mut BTreeMap<ResourceName, Resource>, file: &str, mut members: Map<String, Value>) {
    let is_flow = members.contains_key("triggers");
    let is_worker = ["consumes", "schedule", "on", "run"].iter().any(|key| members.contains_key(*key));
    let sections: Vec<&str> =
        DOCUMENT.keys.iter().map(|key| key.name).filter(|name| members.contains_key(*name)).collect();
    for kind in ["connector", "answers"] {
        if let Some(Value::String(name)) = members.get(kind).cloned()
            && !is_flow
            && !is_worker
        {
            members.shift_remove(kind);
            return add(found, file, (kind, &name), Value::Object(members));
        }
    }
    let is_policy = members.contains_key("retry") && members.keys().all(|key| key == "retry" || key == "version");
    if is_policy {
        let policy = members.shift_remove("retry").unwrap_or_default();
        return add(found, file, ("retry policy", "of every worker that has none"), policy);
    }
    let foreign = !is_flow && !is_worker && sections.is_empty();
    if foreign {
        return add(found, file, ("file", file), Value::Object(members));
    }
    for section in sections {
        if let Some(value) = members.shift_remove(section) {
            take_section(found, file, section, value);
        }
    }
    members.shift_remove("version");
    if members.is_empty() {
        return;
    }
    let name = match members.shift_remove("name") {
        Some(Value::String(name)) => name,
        Some(other) => other.to_string(),
        None => file.to_owned(),
    };
    let kind = if is_flow {
        "flow"
    } else if is_worker {
        "worker"
    } else {
        "file"
    };
    add(found, file, (kind, &name), Value::Object(members));
}

/// `queues: [{name: a}]`, `queues: [a]` and `queues: {a: {}}` are equivalent.
fn take_section(found: &mut BTreeMap<ResourceName, Resource>, file: &str, section: &str, value: Value) {
    let kind = singular(section);
    match value {
        Value::Object(items) => {
            for (name, item) in items {
                let item = if item.is_null() { Value::Object(Map::new()) } else { item };
                add(found, file, (&kind, &name), without_name(item).1);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.into_iter().enumerate() {
                let (name, item) = match item {
                    Value::String(name) => (Some(name), Value::Object(Map::new())),
                    other => without_name(other),
                };
                add(found, file, (&kind, &name.unwrap_or_else(|| format!("{section}[{place}]"))), item);
            }
        }
        other => add(found, file, (&kind, section), other),
    }
}

fn without_name(mut item: Value) -> (Option<String>, Value) {
    let name = match item.as_object_mut().and_then(|members| members.shift_remove("name")) {
        Some(Value::String(name)) => Some(name),
        Some(other) => Some(other.to_string()),
        None => None,
    };
    (name, item)
}

fn add(found: &mut BTreeMap<ResourceName, Resource>, file: &str, (kind, name): (&str, &str), value: Value) {
    let thing = Resource { file: file.to_owned(), value };
    found.entry((kind.to_owned(), name.to_owned())).or_insert(thing);
}

/// `policies` is `policy`, `queues` is `queue`.
fn singular(section: &str) -> String {
    match section.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => section.strip_suffix('s').unwrap_or(section).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let files = Files::from_texts([("a.yml", text)]);
        resources(&files).into_keys().map(|(kind, name)| format!("{kind} {name}")).collect()
    }

    #[test]
    fn three_notations_of_a_section_are_equivalent() {
        let [list, names_only, map] = ["queues: [{name: a}, {name: b}]", "queues: [a, b]", "queues: {a: , b: {}}"]
            .map(|text| resources(&Files::from_texts([("a.yml", text)])));
        assert_eq!(list, names_only);
        assert_eq!(list, map);
    }

    #[test]
    fn document_yields_its_resource_and_those_of_its_sections() {
        let text = "version: 1\nname: f\ntriggers: []\nqueues: [q]\n---\nname: w\nconsumes: q\n---\nhello: 1\n";
        assert_eq!(names(text), ["file a.yml", "flow f", "queue q", "worker w"]);
        assert_eq!(names("destinations:\n  crm: {type: http}\n"), ["destination crm"]);
        assert_eq!(names("- 1\n- 2\n"), ["file a.yml"]);
    }
}
