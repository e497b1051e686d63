//! Records of an organisation, with uniqueness and required fields enforced.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::errors::ApiError;
use super::schema::{Object, Schema};
use crate::crm::WriteKind;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    /// Fields with a value, under their canonical names.
    pub fields: Map<String, Value>,
}

/// Applied change that can be undone.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) object: String,
    pub(crate) id: String,
    pub(crate) action: WriteKind,
    before: Option<Record>,
}

#[derive(Debug)]
pub(crate) struct FakeStore {
    pub(crate) schema: Schema,
    tables: BTreeMap<String, FakeTable>,
    created: u64,
    records_max: u64,
}

#[derive(Debug, Default)]
struct FakeTable {
    records: BTreeMap<String, Record>,
    /// Per indexed field: comparison form of the value, and the ids of the records that have it.
    index: HashMap<String, HashMap<String, Vec<String>>>,
    deleted: HashSet<String>,
}

impl FakeStore {
    pub(crate) fn new(schema: Schema, records_max: u64) -> FakeStore {
        FakeStore { schema, tables: BTreeMap::new(), created: 0, records_max }
    }

    pub(crate) fn clear(&mut self) {
        self.tables.clear();
        self.created = 0;
    }

    pub(crate) fn object(&self, name: &str) -> Result<(&str, &Object), ApiError> {
        self.schema.object(name).ok_or_else(ApiError::not_found)
    }

    pub(crate) fn records(&self, object: &str) -> impl Iterator<Item = &Record> {
        self.tables.get(object).into_iter().flat_map(|table| table.records.values())
    }

    pub(crate) fn count(&self, object: &str) -> u64 {
        self.tables.get(object).map_or(0, |table| table.records.len() as u64)
    }

    /// Ids of the records with `value` in an indexed field, oldest first.
    pub(crate) fn find(&self, object: &str, field: &str, value: &str) -> &[String] {
        let Some((_, schema)) = self.schema.object(object).and_then(|(_, known)| known.field(field)) else {
            return &[];
        };
        self.tables
            .get(object)
            .and_then(|table| table.index.get(field))
            .and_then(|values| values.get(&schema.index_key(value)))
            .map_or(&[], Vec::as_slice)
    }

    /// Record by its 18- or 15-character id.
    pub(crate) fn get(&self, object: &str, id: &str) -> Result<&Record, ApiError> {
        let table = self.tables.get(object);
        let id = if id.len() == 15 { long_id(id) } else { id.to_owned() };
        match table.and_then(|table| table.records.get(&id)) {
            Some(record) => Ok(record),
            None if table.is_some_and(|table| table.deleted.contains(&id)) => Err(ApiError::deleted()),
            None => Err(ApiError::not_found()),
        }
    }

    /// Adds a record; the values are validated already.
    pub(crate) fn create(&mut self, object: &str, fields: Map<String, Value>) -> Result<Change, ApiError> {
        let (name, schema) = self.schema.object(object).ok_or_else(ApiError::not_found)?;
        let name = name.to_owned();
        let missing = schema.fields.iter().filter(|(field, rule)| rule.required && is_blank(fields.get(*field)));
        let missing: Vec<&str> = missing.map(|(field, _)| field.as_str()).collect();
        if !missing.is_empty() {
            let message = format!("Required fields are missing: [{}]", missing.join(", "));
            return Err(ApiError::bad_request("REQUIRED_FIELD_MISSING", message).on(missing));
        }
        if self.created >= self.records_max {
            return Err(ApiError::bad_request("STORAGE_LIMIT_EXCEEDED", "storage limit exceeded"));
        }
        self.check_unique(&name, &fields, None)?;

        self.created += 1;
        let id = long_id(&format!("{:0<3.3}Sm000{:0>7}", schema.key_prefix, base62(self.created)));
        let fields = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
        let now = Timestamp::now();
        let record = Record { id: id.clone(), created_at: now, modified_at: now, fields };
        self.put(&name, record);
        Ok(Change { object: name, id, action: WriteKind::Created, before: None })
    }

    /// Sets the given fields of a record; null removes the value.
    pub(crate) fn update(&mut self, object: &str, id: &str, fields: Map<String, Value>) -> Result<Change, ApiError> {
        let before = self.get(object, id)?.clone();
        let (name, schema) = self.schema.object(object).ok_or_else(ApiError::not_found)?;
        let name = name.to_owned();
        let blanked = fields.iter().filter(|(_, value)| value.is_null());
        let blanked = blanked.filter(|(field, _)| schema.fields.get(*field).is_some_and(|rule| rule.required));
        let blanked: Vec<&str> = blanked.map(|(field, _)| field.as_str()).collect();
        if !blanked.is_empty() {
            let message = format!("Required fields are missing: [{}]", blanked.join(", "));
            return Err(ApiError::bad_request("REQUIRED_FIELD_MISSING", message).on(blanked));
        }
        self.check_unique(&name, &fields, Some(&before.id))?;

        let mut after = Record { modified_at: Timestamp::now(), ..before.clone() };
        for (field, value) in fields {
            match value {
                Value::Null => after.fields.shift_remove(&field),
                value => after.fields.insert(field, value),
            };
        }
        let id = before.id.clone();
        self.take(&name, &id);
        self.put(&name, after);
        Ok(Change { object: name, id, action: WriteKind::Updated, before: Some(before) })
    }

    pub(crate) fn delete(&mut self, object: &str, id: &str) -> Result<Change, ApiError> {
        let id = self.get(object, id)?.id.clone();
        let before = self.take(object, &id);
        self.tables.entry(object.to_owned()).or_default().deleted.insert(id.clone());
        Ok(Change { object: object.to_owned(), id, action: WriteKind::Deleted, before })
    }

    /// Undoes a change. Several changes are undone in reverse order.
    pub(crate) fn undo(&mut self, change: Change) {
        match change.action {
            WriteKind::Deleted => {
                self.tables.entry(change.object.clone()).or_default().deleted.remove(&change.id);
            }
            WriteKind::Created | WriteKind::Updated => {
                self.take(&change.object, &change.id);
            }
        }
        if let Some(before) = change.before {
            self.put(&change.object, before);
        }
    }

    /// First external id of the changed record, after the change or, if deleted, before it.
    pub(crate) fn external_id(&self, change: &Change) -> Option<(String, String)> {
        let record = self.get(&change.object, &change.id).ok().or(change.before.as_ref())?;
        let (_, schema) = self.schema.object(&change.object)?;
        let external_ids = schema.fields.iter().filter(|(_, rule)| rule.external_id);
        external_ids.filter_map(|(field, _)| Some((field.clone(), text_of(record.fields.get(field)?)))).next()
    }

    fn check_unique(&self, object: &str, fields: &Map<String, Value>, own_id: Option<&str>) -> Result<(), ApiError> {
        let Some((_, schema)) = self.schema.object(object) else { return Ok(()) };
        for (field, value) in fields {
            let unique = schema.fields.get(field).is_some_and(|rule| rule.unique);
            if !unique || value.is_null() {
                continue;
            }
            let holder = self.find(object, field, &text_of(value)).iter().find(|id| own_id != Some(id.as_str()));
            if let Some(holder) = holder {
                return Err(ApiError::duplicate_value(field, holder));
            }
        }
        Ok(())
    }

    fn put(&mut self, object: &str, record: Record) {
        let table = self.tables.entry(object.to_owned()).or_default();
        for (field, key) in index_keys(&self.schema, object, &record) {
            table.index.entry(field).or_default().entry(key).or_default().push(record.id.clone());
        }
        table.records.insert(record.id.clone(), record);
    }

    fn take(&mut self, object: &str, id: &str) -> Option<Record> {
        let table = self.tables.get_mut(object)?;
        let record = table.records.remove(id)?;
        for (field, key) in index_keys(&self.schema, object, &record) {
            let Some(values) = table.index.get_mut(&field) else { continue };
            let Some(holders) = values.get_mut(&key) else { continue };
            holders.retain(|holder| holder != id);
            if holders.is_empty() {
                values.remove(&key);
            }
        }
        Some(record)
    }
}

fn index_keys(schema: &Schema, object: &str, record: &Record) -> Vec<(String, String)> {
    let Some((_, object)) = schema.object(object) else { return Vec::new() };
    let indexed = object.fields.iter().filter(|(_, rule)| rule.is_indexed());
    indexed
        .filter_map(|(field, rule)| Some((field.clone(), rule.index_key(&text_of(record.fields.get(field)?)))))
        .collect()
}

fn is_blank(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

/// Text form of a value for comparison and lookup.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn base62(mut number: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(DIGITS[(number % 62) as usize]);
        number /= 62;
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

/// 18-character id: the 15-character id plus three characters that encode which letters are upper case.
fn long_id(short: &str) -> String {
    const CHECKS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345";
    let checks = short.as_bytes().chunks(5).map(|chunk| {
        let bits = chunk.iter().enumerate().filter(|(_, character)| character.is_ascii_uppercase());
        char::from(CHECKS[bits.map(|(bit, _)| 1 << bit).sum::<usize>()])
    });
    short.chars().chain(checks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn lead(key: &str) -> Map<String, Value> {
        fields(json!({"LastName": "Nkosi", "Company": "Kraal", "External_Lead_Id__c": key}))
    }

    #[test]
    fn ids_have_eighteen_characters_with_the_documented_checksum() {
        assert_eq!(long_id("001A0000006Vm9u"), "001A0000006Vm9uIAC");
        let mut store = FakeStore::new(Schema::default(), 10);
        let change = store.create("Lead", lead("a")).unwrap();
        assert_eq!(change.id.len(), 18);
        assert!(change.id.starts_with("00Q"));
        assert_eq!(store.get("Lead", &change.id[..15]).unwrap().id, change.id);
    }

    #[test]
    fn unique_value_is_case_insensitive() {
        let mut store = FakeStore::new(Schema::default(), 10);
        let first = store.create("Lead", lead("Abc")).unwrap();
        assert_eq!(store.find("Lead", "External_Lead_Id__c", "aBC"), std::slice::from_ref(&first.id));
        let error = store.create("Lead", lead("abc")).unwrap_err();
        assert_eq!(error.code, "DUPLICATE_VALUE");
        assert!(error.message.contains(&first.id));
        store.update("Lead", &first.id, lead("abC")).unwrap();
        assert_eq!(store.count("Lead"), 1);
    }

    #[test]
    fn undoing_in_reverse_restores_every_record_and_index() {
        let mut store = FakeStore::new(Schema::default(), 10);
        let kept = store.create("Lead", lead("kept")).unwrap();
        let before: Vec<Record> = store.records("Lead").cloned().collect();
        let changes = [
            store.update("Lead", &kept.id, lead("moved")).unwrap(),
            store.create("Lead", lead("new")).unwrap(),
            store.delete("Lead", &kept.id).unwrap(),
        ];
        assert_eq!(store.find("Lead", "External_Lead_Id__c", "kept").len(), 0);
        changes.into_iter().rev().for_each(|change| store.undo(change));
        assert_eq!(store.records("Lead").cloned().collect::<Vec<_>>(), before);
        assert_eq!(store.find("Lead", "External_Lead_Id__c", "kept"), [kept.id]);
        assert!(store.find("Lead", "External_Lead_Id__c", "new").is_empty());
        assert!(store.find("Lead", "External_Lead_Id__c", "moved").is_empty());
    }

    #[test]
    fn required_values_cannot_be_missing_or_removed() {
        let mut store = FakeStore::new(Schema::default(), 10);
        let error = store.create("Lead", fields(json!({"LastName": "x"}))).unwrap_err();
        assert_eq!((error.code, error.fields), ("REQUIRED_FIELD_MISSING", vec!["Company".to_owned()]));
        let id = store.create("Lead", lead("a")).unwrap().id;
        let error = store.update("Lead", &id, fields(json!({"LastName": null}))).unwrap_err();
        assert_eq!(error.code, "REQUIRED_FIELD_MISSING");
    }

    #[test]
    fn storage_limit_rejects_new_records() {
        let mut store = FakeStore::new(Schema::default(), 1);
        store.create("Lead", lead("a")).unwrap();
        assert_eq!(store.create("Lead", lead("b")).unwrap_err().code, "STORAGE_LIMIT_EXCEEDED");
    }
}
