//! Read operations of the data API.

use data_encoding::HEXLOWER;
use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::errors::ApiError;
use super::org::{ApiCall, Org, rendered};
use super::schema::{Field, FieldKind, Object};
use super::soql::{self, Condition, Query};
use super::store::{Record, text_of};
use crate::reply::FakeReply;
use crate::uri;

/// Records per page of a query.
const PAGE_RECORDS: usize = 2_000;
const SYSTEM_FIELDS: [&str; 5] = ["Id", "IsDeleted", "CreatedDate", "LastModifiedDate", "SystemModstamp"];

impl Org {
    pub(crate) fn list_versions(&self) -> FakeReply {
        let version = |number: u32| json!({"label": format!("Release {number}"), "url": format!("/services/data/v{number}.0"), "version": format!("{number}.0")});
        FakeReply::json(StatusCode::OK, &self.versions.clone().map(version).collect::<Vec<Value>>())
    }

    pub(crate) fn limits(&self) -> FakeReply {
        let remaining = self.api_limit.saturating_sub(self.api_usage);
        FakeReply::json(StatusCode::OK, &json!({"DailyApiRequests": {"Max": self.api_limit, "Remaining": remaining}}))
    }

    pub(crate) fn describe(&self, object: &str) -> Result<FakeReply, ApiError> {
        let (name, schema) = self.store.object(object)?;
        let fields: Vec<Value> = schema.fields.iter().map(|(name, field)| described(name, field)).collect();
        let described = json!({"name": name, "keyPrefix": schema.key_prefix, "createable": true, "updateable": true, "fields": fields});
        Ok(FakeReply::json(StatusCode::OK, &described))
    }

    pub(crate) fn read(&self, call: &ApiCall, version: u32, object: &str, id: &str) -> Result<FakeReply, ApiError> {
        let (name, schema) = self.store.object(object)?;
        let record = self.store.get(name, id)?;
        let only = uri::form_value(&call.query, "fields")
            .map(|list| {
                list.split(',').map(|field| canonical_name(name, schema, field.trim())).collect::<Result<Vec<_>, _>>()
            })
            .transpose()?;
        Ok(FakeReply::json(StatusCode::OK, &rendered(&self.store, version, name, record, only.as_deref())))
    }

    pub(crate) fn query(&self, call: &ApiCall, version: u32) -> Result<FakeReply, ApiError> {
        let text = uri::form_value(&call.query, "q").ok_or_else(|| soql::malformed("the query is missing"))?;
        self.run(&text, version, 0)
    }

    /// The locator holds the query text itself, so no state is kept between pages.
    pub(crate) fn query_more(&self, locator: &str, version: u32) -> Result<FakeReply, ApiError> {
        let parsed = locator.split_once('-').and_then(|(query, offset)| {
            let text = String::from_utf8(HEXLOWER.decode(query.as_bytes()).ok()?).ok()?;
            Some((text, offset.parse().ok()?))
        });
        let Some((text, offset)) = parsed else {
            return Err(ApiError::bad_request("INVALID_QUERY_LOCATOR", "invalid query locator"));
        };
        self.run(&text, version, offset)
    }

    fn run(&self, text: &str, version: u32, offset: usize) -> Result<FakeReply, ApiError> {
        let query = soql::parse(text)?;
        let Some((object, schema)) = self.store.schema.object(&query.object) else {
            return Err(ApiError::bad_request(
                "INVALID_TYPE",
                format!("sObject type '{}' is not supported.", query.object),
            ));
        };
        let fields =
            query.fields.iter().map(|field| canonical_name(object, schema, field)).collect::<Result<Vec<_>, _>>()?;
        let mut found = self.matching(object, schema, &query)?;
        found.truncate(query.limit.unwrap_or(usize::MAX));
        let total = found.len();
        if query.fields.is_empty() {
            return Ok(FakeReply::json(StatusCode::OK, &json!({"totalSize": total, "done": true, "records": []})));
        }
        let page = found.into_iter().skip(offset).take(PAGE_RECORDS);
        let records: Vec<Value> =
            page.map(|record| rendered(&self.store, version, object, record, Some(&fields))).collect();
        let end = offset + records.len();
        let mut result = json!({"totalSize": total, "done": end >= total, "records": records});
        if end < total {
            let locator = HEXLOWER.encode(text.as_bytes());
            result["nextRecordsUrl"] = format!("/services/data/v{version}.0/query/{locator}-{end}").into();
        }
        Ok(FakeReply::json(StatusCode::OK, &result))
    }

    fn matching<'a>(&'a self, object: &str, schema: &Object, query: &Query) -> Result<Vec<&'a Record>, ApiError> {
        let mut conditions = Vec::new();
        for Condition { field, values } in &query.conditions {
            conditions.push((canonical_name(object, schema, field)?, values));
        }
        let matches = |record: &&Record| {
            conditions
                .iter()
                .all(|(field, values)| values.iter().any(|value| field_equals(schema, record, field, value)))
        };
        // A unique field uses the index instead of a scan.
        let indexed =
            conditions.iter().find_map(|(field, values)| match (schema.fields.get(field), values.as_slice()) {
                (Some(rule), [Value::String(value)]) if rule.unique => Some(self.store.find(object, field, value)),
                _ => None,
            });
        Ok(match indexed {
            Some(ids) => ids.iter().filter_map(|id| self.store.get(object, id).ok()).filter(matches).collect(),
            None => self.store.records(object).filter(matches).collect(),
        })
    }
}

fn canonical_name(object: &str, schema: &Object, field: &str) -> Result<String, ApiError> {
    let system = SYSTEM_FIELDS.iter().find(|known| known.eq_ignore_ascii_case(field));
    match (schema.field(field), system) {
        (Some((known, _)), _) => Ok(known.to_owned()),
        (None, Some(known)) => Ok((*known).to_owned()),
        (None, None) => Err(ApiError::no_such_column(field, object)),
    }
}

/// Text comparison ignores case, except in case-sensitive fields.
fn field_equals(schema: &Object, record: &Record, field: &str, wanted: &Value) -> bool {
    if field == "Id" {
        return wanted.as_str().is_some_and(|id| record.id == id || record.id[..15] == *id);
    }
    let stored = record.fields.get(field).unwrap_or(&Value::Null);
    let exact = schema.fields.get(field).is_some_and(|rule| rule.case_sensitive);
    match (stored, wanted) {
        (Value::String(stored), Value::String(wanted)) if exact => stored == wanted,
        (Value::String(stored), Value::String(wanted)) => stored.to_lowercase() == wanted.to_lowercase(),
        (Value::Number(stored), Value::Number(wanted)) => stored.as_f64() == wanted.as_f64(),
        (stored, wanted) => text_of(stored) == text_of(wanted),
    }
}

fn described(name: &str, field: &Field) -> Value {
    let (kind, length) = match &field.kind {
        FieldKind::Text(length_max) => ("string", *length_max),
        FieldKind::Email => ("email", 80),
        FieldKind::Number => ("double", 0),
        FieldKind::Checkbox => ("boolean", 0),
        FieldKind::Reference(_) => ("reference", 18),
    };
    let mut described = Map::new();
    described.insert("name".to_owned(), name.into());
    described.insert("type".to_owned(), kind.into());
    described.insert("length".to_owned(), length.into());
    described.insert("nillable".to_owned(), (!field.required).into());
    described.insert("externalId".to_owned(), field.external_id.into());
    described.insert("idLookup".to_owned(), field.external_id.into());
    described.insert("unique".to_owned(), field.unique.into());
    described.insert("caseSensitive".to_owned(), field.case_sensitive.into());
    Value::Object(described)
}
