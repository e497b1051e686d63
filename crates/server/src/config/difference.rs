//! Compares two configurations by resource and key.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plaintext_secrets::names_a_secret;
use super::reference::tables;
use super::resources::{Resource, ResourceName};
use super::table::{Absent, SectionSpec, ValueType};

/// Change of one resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub thing: ResourceName,
    /// File of the resource, in the newer configuration if both have it.
    pub file: String,
    pub before: bool,
    pub after: bool,
    /// Empty if only one side has the resource.
    pub fields: Vec<FieldDifference>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldDifference {
    /// For example `triggers[0].http.path` or `run.upsert.with.fields.Email`.
    pub path: String,
    /// `None` if the key is absent.
    pub from: Option<String>,
    pub to: Option<String>,
    pub default: Option<&'static str>,
}

/// All differences, ordered by kind and name.
pub(crate) fn differences(
    before: &BTreeMap<ResourceName, Resource>,
    after: &BTreeMap<ResourceName, Resource>,
) -> Vec<Difference> {
    let names: BTreeSet<&ResourceName> = before.keys().chain(after.keys()).collect();
    let mut found = vec![];
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        let mut fields = vec![];
        if let (Some(old), Some(new)) = (old, new) {
            let tables = tables_of(&name.0, &new.value);
            let mut walk = Walk { path: vec![], found: &mut fields };
            walk.compare(&old.value, &new.value, &tables);
            if fields.is_empty() {
                continue;
            }
        }
        let file = new.or(old).map_or(String::new(), |thing| thing.file.clone());
        found.push(Difference { thing: name.clone(), file, before: old.is_some(), after: new.is_some(), fields });
    }
    found
}

/// Section specs of a resource kind.
fn tables_of(kind: &str, value: &Value) -> Vec<&'static SectionSpec> {
    let article = |title: &str| title == format!("a {kind}") || title == format!("an {kind}");
    let of_type = value.get("type").and_then(Value::as_str).map(|of_type| format!("{of_type} {kind}"));
    let own = |title: &str| {
        article(title)
            || of_type
                .as_deref()
                .is_some_and(|wanted| title.strip_prefix("a ").or_else(|| title.strip_prefix("an ")) == Some(wanted))
    };
    tables().into_iter().filter(|table| own(table.title)).collect()
}

struct Walk<'f> {
    path: Vec<String>,
    found: &'f mut Vec<FieldDifference>,
}

impl Walk<'_> {
    fn compare(&mut self, old: &Value, new: &Value, tables: &[&'static SectionSpec]) {
        if old == new {
            return;
        }
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                // In the order of the newer file; removed keys come last.
                for name in new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))) {
                    self.path.push(name.clone());
                    match (old.get(name), new.get(name)) {
                        (Some(old), Some(new)) => self.compare(old, new, &below(tables, name)),
                        (old, new) => self.differs(old, new, default_of(tables, name)),
                    }
                    self.path.pop();
                }
            }
            (Value::Array(old), Value::Array(new)) => match (named(old), named(new)) {
                (Some(old), Some(new)) => self.compare_named(&old, &new, tables),
                _ if old.iter().chain(new).any(|item| item.is_object() || item.is_array()) => {
                    for place in 0..old.len().max(new.len()) {
                        self.in_place(place, |walk| match (old.get(place), new.get(place)) {
                            (Some(old), Some(new)) => walk.compare(old, new, tables),
                            (old, new) => walk.differs(old, new, None),
                        });
                    }
                }
                _ => self.differs(Some(&Value::Array(old.clone())), Some(&Value::Array(new.clone())), None),
            },
            _ => self.differs(Some(old), Some(new), None),
        }
    }

    /// Named items are compared by name; their order is compared too, because it may matter.
    fn compare_named(&mut self, old: &[(&str, &Value)], new: &[(&str, &Value)], tables: &[&'static SectionSpec]) {
        let find = |items: &[(&str, &Value)], name: &str| {
            items.iter().find(|(other, _)| *other == name).map(|(_, item)| (*item).clone())
        };
        let gone = old.iter().filter(|(name, _)| find(new, name).is_none());
        for (name, _) in new.iter().chain(gone) {
            self.path.push((*name).to_owned());
            match (find(old, name), find(new, name)) {
                (Some(old), Some(new)) => self.compare(&old, &new, tables),
                (old, new) => self.differs(old.as_ref(), new.as_ref(), None),
            }
            self.path.pop();
        }
        let order = |items: &[(&str, &Value)], others: &[(&str, &Value)]| {
            let kept: Vec<&str> =
                items.iter().map(|(name, _)| *name).filter(|name| find(others, name).is_some()).collect();
            kept.join(", ")
        };
        let (before, after) = (order(old, new), order(new, old));
        if before != after {
            self.path.push("(order)".to_owned());
            self.differs(Some(&Value::String(before)), Some(&Value::String(after)), None);
            self.path.pop();
        }
    }

    fn in_place(&mut self, place: usize, look: impl FnOnce(&mut Self)) {
        let item = format!("[{place}]");
        match self.path.last_mut() {
            Some(last) => last.push_str(&item),
            None => self.path.push(item.clone()),
        }
        look(self);
        if let Some(last) = self.path.last_mut() {
            last.truncate(last.len() - item.len());
        }
    }

    fn differs(&mut self, old: Option<&Value>, new: Option<&Value>, default: Option<&'static str>) {
        let secret = self.path.last().is_some_and(|name| names_a_secret(name));
        let shown = |value: &Value| shown(value, secret);
        let path = self.path.join(".");
        self.found.push(FieldDifference { path, from: old.map(shown), to: new.map(shown), default });
    }
}

/// Names of the items, if all are unique.
fn named(items: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let name = |item: &'_ Value| -> Option<String> {
        ["id", "name"].iter().find_map(|key| item.get(*key)?.as_str().map(str::to_owned))
    };
    let names: BTreeSet<String> = items.iter().filter_map(name).collect();
    if items.is_empty() || names.len() != items.len() {
        return None;
    }
    let pair = |item| ["id", "name"].iter().find_map(|key| Some((Value::get(item, *key)?.as_str()?, item)));
    items.iter().map(pair).collect()
}

/// Section specs of the value under a key.
fn below(of: &[&'static SectionSpec], name: &str) -> Vec<&'static SectionSpec> {
    let title = of.iter().find_map(|table| table.key(name)).and_then(|key| match key.shape {
        ValueType::Table(title) | ValueType::Tables(title) => Some(title),
        _ => None,
    });
    tables().into_iter().filter(|table| Some(table.title) == title).collect()
}

fn default_of(of: &[&'static SectionSpec], name: &str) -> Option<&'static str> {
    match of.iter().find_map(|table| table.key(name))?.default {
        Absent::Default(text) => Some(text),
        Absent::Required | Absent::Nothing => None,
    }
}

/// Text of a value for display. A plain-text secret is not shown.
fn shown(value: &Value, secret: bool) -> String {
    match value {
        Value::String(text) if secret && !text.contains("${") && !text.contains("{{") => "(not shown)".to_owned(),
        Value::Number(_) if secret => "(not shown)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let inner: Vec<String> =
                members.iter().map(|(name, value)| format!("{name}: {}", shown(value, names_a_secret(name)))).collect();
            format!("{{{}}}", inner.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| shown(item, secret)).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Files;
    use crate::config::resources::resources;

    fn rendered(before: &str, after: &str) -> Vec<String> {
        let [before, after] = [before, after].map(|text| resources(&Files::from_texts([("a.yml", text)])));
        let line = |difference: Difference| {
            let head = format!("{} {}", difference.thing.0, difference.thing.1);
            match (difference.before, difference.after) {
                (false, _) => vec![format!("+ {head}")],
                (_, false) => vec![format!("- {head}")],
                _ => difference
                    .fields
                    .into_iter()
                    .map(|field| {
                        let absent =
                            |default: Option<&str>| default.map_or("nothing".into(), |text| format!("({text})"));
                        let from = field.from.unwrap_or_else(|| absent(field.default));
                        let to = field.to.unwrap_or_else(|| absent(field.default));
                        format!("{head} {}: {from} -> {to}", field.path)
                    })
                    .collect(),
            }
        };
        differences(&before, &after).into_iter().flat_map(line).collect()
    }

    #[test]
    fn comments_and_key_order_are_ignored() {
        assert_eq!(rendered("queues: {a: {retention: 1d}}", "# new\nqueues:\n  - {retention: 1d, name: a}\n"), [""; 0]);
    }

    #[test]
    fn absent_key_is_shown_with_its_default() {
        assert_eq!(
            rendered("name: w\nconsumes: q", "name: w\nconsumes: q\nconcurrency: 2\nretry: {max_attempts: 3}"),
            [
                "worker w concurrency: (8) -> 2",
                "worker w retry: (the policy of a document with only `retry:`) -> {max_attempts: 3}"
            ]
        );
        let (before, after) =
            ("destinations: {a: {type: salesforce, api_version: v58.0}}", "destinations: {a: {type: salesforce}}");
        assert_eq!(rendered(before, after), ["destination a api_version: v58.0 -> (v60.0)"]);
    }

    #[test]
    fn steps_are_compared_by_name_and_order() {
        let worker = |steps: &str| format!("name: w\nconsumes: q\nrun: [{steps}]");
        let before = worker("{id: a, run: x}, {id: b, run: y}, {id: c, run: z}");
        let after = worker("{id: c, run: z}, {id: a, run: other}, {id: d, run: new}");
        assert_eq!(
            rendered(&before, &after),
            [
                "worker w run.a.run: x -> other",
                "worker w run.d: nothing -> {id: d, run: new}",
                "worker w run.b: {id: b, run: y} -> nothing",
                "worker w run.(order): a, c -> c, a",
            ]
        );
    }

    #[test]
    fn added_and_removed_resources_are_listed() {
        assert_eq!(rendered("queues: [a, b]", "queues: [b, c]"), ["- queue a", "+ queue c"]);
    }

    #[test]
    fn plain_text_secrets_are_not_shown() {
        let with = |token: &str| format!("destinations: {{a: {{type: http, auth: {{bearer: x, token: {token}}}}}}}");
        assert_eq!(
            rendered(&with("hunter2"), &with("\"${secrets.NEW}\"")),
            ["destination a auth.token: (not shown) -> ${secrets.NEW}"]
        );
    }
}
