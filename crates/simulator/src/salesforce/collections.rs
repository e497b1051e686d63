//! Collection upserts: many records in one call.

use std::collections::HashSet;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::check;
use super::errors::ApiError;
use super::org::{ApiCall, FakeKey, Org};
use super::store::{Change, text_of};
use crate::crm::{WriteActor, WriteKind};
use crate::reply::FakeReply;

const RECORDS_MAX: usize = 200;

impl ApiCall {
    /// Number of records of a collection call; `None` for other calls and invalid bodies.
    pub(crate) fn collection_length(&self) -> Option<usize> {
        if self.segments.first().map(String::as_str) != Some("composite") {
            return None;
        }
        check::parse(&self.body).ok()?.get("records")?.as_array().map(Vec::len)
    }

    /// External ids of the affected records.
    pub(crate) fn external_ids(&self) -> Vec<String> {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["sobjects", _, _, value] => vec![(*value).to_owned()],
            ["composite", "sobjects", _, field] => {
                let body = check::parse(&self.body).unwrap_or_default();
                let records = body.get("records").and_then(Value::as_array);
                records.into_iter().flatten().filter_map(|record| record.get(field).map(text_of)).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Org {
    /// Responds 200 to every valid call; each record has its own result, in order.
    pub(crate) fn upsert_collection(
        &mut self,
        call: &ApiCall,
        object: &str,
        field: &str,
    ) -> Result<FakeReply, ApiError> {
        let FakeKey { object, field, .. } = self.key([object, field, ""])?;
        let mut body = check::parse(&call.body)?;
        let all_or_none = body.get("allOrNone").and_then(Value::as_bool).unwrap_or(false);
        let Some(Value::Array(records)) = body.shift_remove("records") else {
            return Err(ApiError::bad_request("JSON_PARSER_ERROR", "The records of the collection are missing"));
        };
        if records.len() > RECORDS_MAX {
            let message = format!("The collection may hold at most {RECORDS_MAX} records");
            return Err(ApiError::bad_request("LIMIT_EXCEEDED", message));
        }

        let mut seen = HashSet::new();
        let mut results = Vec::new();
        for record in records {
            let result = self.member_key(&object, &field, record).and_then(|(key, fields)| {
                // Salesforce rejects a duplicate within one call instead of updating the first record.
                if !seen.insert(key.value.to_lowercase()) {
                    let message = format!("Duplicate external id specified: {}", key.value);
                    return Err(ApiError::bad_request("DUPLICATE_VALUE", message).on([field.as_str()]));
                }
                let change = self.put(&key, fields)?;
                Ok((key, change))
            });
            results.push(result);
        }
        if all_or_none && results.iter().any(Result::is_err) {
            return Ok(self.roll_back(results));
        }
        for (key, change) in results.iter().flatten() {
            self.record_write(call, change, Some(key), WriteActor::Caller);
        }
        let entries: Vec<Value> =
            results.iter().map(|result| result.as_ref().map_or_else(ApiError::entry, success_entry)).collect();
        Ok(FakeReply::json(StatusCode::OK, &entries))
    }

    fn member_key(&self, object: &str, field: &str, record: Value) -> Result<(FakeKey, Map<String, Value>), ApiError> {
        let Value::Object(mut fields) = record else {
            return Err(ApiError::bad_request("JSON_PARSER_ERROR", "A record is required to be a JSON object"));
        };
        let type_name = fields.get("attributes").and_then(|attributes| attributes.get("type")).and_then(Value::as_str);
        if !type_name.is_some_and(|type_name| type_name.eq_ignore_ascii_case(object)) {
            let message = format!("The type of every record in this collection must be {object}");
            return Err(ApiError::bad_request("INVALID_INPUT", message));
        }
        let member_name = fields.keys().find(|name| name.eq_ignore_ascii_case(field)).cloned();
        let value = member_name.and_then(|name| fields.shift_remove(&name)).filter(|value| !value.is_null());
        let Some(value) = value.map(|value| text_of(&value).trim().to_owned()).filter(|value| !value.is_empty()) else {
            let message = format!("{field} not specified");
            return Err(ApiError::bad_request("MISSING_ARGUMENT", message).on([field]));
        };
        Ok((FakeKey { object: object.to_owned(), field: field.to_owned(), value }, fields))
    }

    fn roll_back(&mut self, results: Vec<Result<(FakeKey, Change), ApiError>>) -> FakeReply {
        let message =
            "Record rolled back because not all records were valid and the request was using AllOrNone header";
        let rolled_back = ApiError::bad_request("ALL_OR_NONE_OPERATION_ROLLED_BACK", message);
        let mut entries = Vec::new();
        for result in results.into_iter().rev() {
            entries.push(match result {
                Ok((_, change)) => {
                    self.store.undo(change);
                    rolled_back.entry()
                }
                Err(error) => error.entry(),
            });
        }
        entries.reverse();
        FakeReply::json(StatusCode::OK, &entries)
    }
}

fn success_entry((_, change): &(FakeKey, Change)) -> Value {
    json!({"id": change.id, "success": true, "errors": [], "created": change.action == WriteKind::Created})
}
