//! Records of an account, with unique properties enforced.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::errors::ApiError;
use super::properties::{ObjectType, stored};
use crate::crm::WriteKind;

/// Ids of an account begin here.
const FIRST_ID: u64 = 101;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HubspotRecord {
    pub id: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Properties with a value.
    pub properties: BTreeMap<String, String>,
    /// Associated records: object type, id and number of the association type.
    pub associations: Vec<(String, String, u32)>,
    #[serde(skip)]
    pub(crate) indexed_from: Instant,
}

/// How a record is addressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address<'a> {
    pub(crate) object: &'a str,
    /// `None`: HubSpot's own id.
    pub(crate) id_property: Option<&'a str>,
    pub(crate) id: &'a str,
}

/// A change, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) id: String,
    pub(crate) action: WriteKind,
}

#[derive(Debug)]
pub(crate) struct RecordStore {
    pub(crate) objects: BTreeMap<String, ObjectType>,
    tables: BTreeMap<String, RecordTable>,
    created: u64,
    records_max: usize,
}

#[derive(Debug, Default)]
struct RecordTable {
    records: BTreeMap<u64, HubspotRecord>,
    /// Per unique property: value to the id of its record.
    unique: HashMap<String, HashMap<String, u64>>,
}

impl RecordStore {
    pub(crate) fn new(objects: BTreeMap<String, ObjectType>, records_max: usize) -> RecordStore {
        RecordStore { objects, tables: BTreeMap::new(), created: 0, records_max }
    }

    pub(crate) fn clear(&mut self) {
        self.tables.clear();
        self.created = 0;
    }

    pub(crate) fn object(&self, name: &str) -> Result<&ObjectType, ApiError> {
        let unknown = || ApiError::validation(format!("Unable to infer object type from: {name}"));
        self.objects.get(name).ok_or_else(unknown)
    }

    pub(crate) fn records(&self, object: &str) -> impl Iterator<Item = &HubspotRecord> {
        self.tables.get(object).into_iter().flat_map(|table| table.records.values())
    }

    pub(crate) fn count(&self, object: &str) -> u64 {
        self.tables.get(object).map_or(0, |table| table.records.len() as u64)
    }

    /// Number of the record at an address; `None` if there is none.
    pub(crate) fn find(&self, address: Address<'_>) -> Result<Option<u64>, ApiError> {
        let object = self.object(address.object)?;
        let table = self.tables.get(address.object);
        match address.id_property {
            None | Some("hs_object_id") => {
                let number = address.id.parse().ok();
                Ok(number.filter(|number| table.is_some_and(|table| table.records.contains_key(number))))
            }
            Some(property) if object.is_unique(property) => {
                let values = table.and_then(|table| table.unique.get(property));
                Ok(values.and_then(|values| values.get(&stored(property, address.id)).copied()))
            }
            Some(property) => Err(ApiError::validation(format!("{property} is not a unique property"))),
        }
    }

    pub(crate) fn get(&self, object: &str, number: u64) -> Option<&HubspotRecord> {
        self.tables.get(object)?.records.get(&number)
    }

    /// Adds a record; the values are validated already.
    pub(crate) fn create(&mut self, object: &str, properties: Vec<(String, String)>) -> Result<Change, ApiError> {
        self.check_unique(object, &properties, None)?;
        if self.tables.values().map(|table| table.records.len()).sum::<usize>() >= self.records_max {
            return Err(ApiError::validation("The account has reached its limit of records"));
        }
        let number = FIRST_ID + self.created;
        self.created += 1;
        let (now, id) = (Timestamp::now(), number.to_string());
        let record = HubspotRecord {
            id: id.clone(),
            created_at: now,
            updated_at: now,
            properties: BTreeMap::new(),
            associations: Vec::new(),
            indexed_from: Instant::now(),
        };
        self.tables.entry(object.to_owned()).or_default().records.insert(number, record);
        self.write(object, number, properties);
        Ok(Change { id, action: WriteKind::Created })
    }

    pub(crate) fn update(
        &mut self,
        object: &str,
        number: u64,
        properties: Vec<(String, String)>,
    ) -> Result<Change, ApiError> {
        self.check_unique(object, &properties, Some(number))?;
        self.write(object, number, properties);
        Ok(Change { id: number.to_string(), action: WriteKind::Updated })
    }

    pub(crate) fn archive(&mut self, object: &str, number: u64) -> Option<(HubspotRecord, Change)> {
        let table = self.tables.get_mut(object)?;
        let record = table.records.remove(&number)?;
        table.unique.values_mut().for_each(|values| values.retain(|_, owner| *owner != number));
        let change = Change { id: record.id.clone(), action: WriteKind::Deleted };
        Some((record, change))
    }

    /// Associates a record with another one; repeating it changes nothing.
    pub(crate) fn associate(&mut self, object: &str, number: u64, to: (String, String, u32)) {
        let record = self.tables.get_mut(object).and_then(|table| table.records.get_mut(&number));
        if let Some(record) = record.filter(|record| !record.associations.contains(&to)) {
            record.associations.push(to);
        }
    }

    fn check_unique(&self, object: &str, properties: &[(String, String)], number: Option<u64>) -> Result<(), ApiError> {
        let Some(table) = self.tables.get(object) else { return Ok(()) };
        for (name, value) in properties {
            let owner = table.unique.get(name).and_then(|values| values.get(value)).copied();
            if let Some(owner) = owner.filter(|owner| Some(*owner) != number) {
                return Err(match name == "email" {
                    true => ApiError::exists(object, &owner.to_string()),
                    false => ApiError::conflicting_value(name, value),
                });
            }
        }
        Ok(())
    }

    fn write(&mut self, object: &str, number: u64, properties: Vec<(String, String)>) {
        let Some(schema) = self.objects.get(object) else { return };
        let Some(table) = self.tables.get_mut(object) else { return };
        let Some(record) = table.records.get_mut(&number) else { return };
        record.updated_at = Timestamp::now();
        for (name, value) in properties {
            if schema.is_unique(&name) {
                let values = table.unique.entry(name.clone()).or_default();
                if let Some(old) = record.properties.get(&name) {
                    values.remove(old);
                }
                if !value.is_empty() {
                    values.insert(value.clone(), number);
                }
            }
            match value.is_empty() {
                true => record.properties.remove(&name),
                false => record.properties.insert(name, value),
            };
        }
    }
}

impl HubspotRecord {
    /// As in a response; `only` selects properties.
    pub(crate) fn rendered(&self, only: Option<&[String]>) -> Value {
        let date = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
        let mut properties: Map<String, Value> = match only {
            Some(names) => names.iter().map(|name| (name.clone(), json!(self.properties.get(name)))).collect(),
            None => self.properties.iter().map(|(name, value)| (name.clone(), json!(value))).collect(),
        };
        properties.insert("hs_object_id".to_owned(), json!(self.id));
        properties.insert("createdate".to_owned(), json!(date(self.created_at)));
        properties.insert("lastmodifieddate".to_owned(), json!(date(self.updated_at)));
        json!({
            "id": self.id,
            "properties": properties,
            "createdAt": date(self.created_at),
            "updatedAt": date(self.updated_at),
            "archived": false,
        })
    }
}
