//! Destinations of declared types: their keys as a table, and their values.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sluice_domain::connector::{DeclaredDestination, DestinationKey, KeyType, RegisteredConnector};
use sluice_domain::verify::SecretValue;

use super::destination::{read_revealed, read_url};
use super::fields::Fields;
use super::table::{KeySpec, SectionSpec, ValueType, key};

/// Tables of registered connectors, by the document of the connector. Both live as long as the process.
static TABLES: LazyLock<Mutex<BTreeMap<&'static str, &'static SectionSpec>>> = LazyLock::new(Mutex::default);

/// Keys of a destination of this type, besides those of every destination.
pub(super) fn table(connector: &'static RegisteredConnector) -> &'static SectionSpec {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.entry(&connector.definition.source).or_insert_with(|| {
        let definition = connector.definition;
        let base_url = key("base_url", ValueType::Url, "Address of the API, in place of the connector's own.");
        let base_url = definition.base_url.is_some().then_some(base_url);
        let largest = definition.actions.iter().filter_map(|action| Some(action.batch.as_ref()?.max)).max();
        let batch_max = largest.map(|max| {
            let about = "Maximum number of waiting jobs that share a call. 1: every job has a call of its own.";
            key("batch_max", ValueType::Count(1, max), about).or(String::leak(max.to_string()))
        });
        let keys = base_url.into_iter().chain(definition.keys.iter().map(spec)).chain(batch_max).collect();
        Box::leak(Box::new(SectionSpec {
            title: String::leak(format!("a {} destination", definition.name)),
            about: &definition.about,
            keys: Vec::leak(keys),
            later: &[],
            rules: &[],
        }))
    })
}

fn spec(declared: &'static DestinationKey) -> KeySpec {
    let shape = match &declared.key_type {
        KeyType::Text => ValueType::Plain,
        KeyType::Secret => ValueType::Secret,
        KeyType::Url => ValueType::Url,
        KeyType::OneOf(words) => ValueType::OneOf(Vec::leak(words.iter().map(String::as_str).collect())),
    };
    let spec = key(&declared.name, shape, &declared.about);
    match (&declared.default, declared.required) {
        (Some(default), _) => spec.or(default),
        (None, true) => spec.required(),
        (None, false) => spec,
    }
}

/// Values of a destination; defaults are filled in.
pub(super) fn read(fields: &Fields<'_, '_>, connector: &'static RegisteredConnector) -> Option<DeclaredDestination> {
    let mut values = vec![];
    let mut complete = true;
    for declared in &connector.definition.keys {
        let name = declared.name.as_str();
        if fields.node(name).is_none() {
            values.extend(
                declared.default.as_ref().map(|default| (name.to_owned(), SecretValue::from(default.as_str()))),
            );
            complete &= !declared.required || declared.default.is_some();
            continue;
        }
        let value = match &declared.key_type {
            KeyType::Secret => fields.secret(name),
            KeyType::Text => read_revealed(fields, name).map(SecretValue::from),
            KeyType::Url => read_url(fields, name).map(SecretValue::from),
            KeyType::OneOf(_) => fields.one_of(name).map(SecretValue::from),
        };
        complete &= value.is_some();
        values.extend(value.map(|value| (name.to_owned(), value)));
    }
    let base_url = match fields.node_if_known("base_url") {
        Some(_) => Some(read_url(fields, "base_url")?),
        None => None,
    };
    complete.then_some(DeclaredDestination { connector, base_url, values })
}
