//! The fields of one payload.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::field::{FieldType, FieldTypes};

/// Nesting that is looked into.
const DEPTH_MAX: usize = 6;
/// Items of a list that are looked at.
const ITEMS_MAX: usize = 8;
/// Longest path, in bytes. Longer names are left out.
const PATH_BYTES_MAX: usize = 120;
/// Fields of one payload that are looked at.
const FIELDS_MAX: usize = 512;

/// A field of a payload: its types and its first value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'v> {
    pub types: FieldTypes,
    pub first: &'v Value,
}

/// The fields of a payload by path. Members of the objects in `maps` are one field, `*`.
pub(super) fn fields<'v>(payload: &'v Value, maps: &BTreeSet<String>) -> BTreeMap<String, Found<'v>> {
    let mut found = BTreeMap::new();
    visit(payload, String::new(), DEPTH_MAX, maps, &mut found);
    found
}

fn visit<'v>(
    value: &'v Value,
    path: String,
    depth: usize,
    maps: &BTreeSet<String>,
    found: &mut BTreeMap<String, Found<'v>>,
) {
    let Some(kind) = FieldType::of(value) else { return };
    if path.len() > PATH_BYTES_MAX || found.len() >= FIELDS_MAX {
        return;
    }
    if !path.is_empty() {
        let field = found.entry(path.clone()).or_insert(Found { types: FieldTypes::default(), first: value });
        field.types.insert(kind);
    }
    if depth == 0 {
        return;
    }
    match value {
        Value::Object(members) => {
            let is_map = maps.contains(&path);
            for (name, member) in members {
                let name = if is_map { "*" } else { name.as_str() };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                visit(member, path, depth - 1, maps, found);
            }
        }
        Value::Array(items) => {
            for item in items.iter().take(ITEMS_MAX) {
                visit(item, format!("{path}[]"), depth - 1, maps, found);
            }
        }
        _ => {}
    }
}

/// The object or list that a path is in; empty for a member of the payload itself.
pub(super) fn parent(path: &str) -> &str {
    match path.strip_suffix("[]") {
        Some(list) => list,
        None => path.rfind('.').map_or("", |at| &path[..at]),
    }
}

/// Whether a path is inside another one.
pub(super) fn is_inside(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
}
