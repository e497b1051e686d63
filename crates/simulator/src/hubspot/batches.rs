//! Batches: up to 100 records in one call, each with its own result or error.

use std::collections::HashSet;

use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::errors::ApiError;
use super::portal::{ApiCall, Portal, parse};
use super::properties::stored;
use super::store::Address;
use crate::crm::WriteKind;
use crate::reply::FakeReply;

const INPUTS_MAX: usize = 100;

impl ApiCall {
    /// Ids of the affected records, as the caller knows them.
    pub(crate) fn ids(&self) -> Vec<String> {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        let body = || parse(&self.body).unwrap_or_default();
        match segments.as_slice() {
            [_] => {
                let body = body();
                let properties = body.get("properties").and_then(Value::as_object);
                let texts = properties.into_iter().flat_map(Map::values).filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            }
            [_, "batch", _] => {
                let body = body();
                let inputs = body.get("inputs").and_then(Value::as_array);
                inputs.into_iter().flatten().filter_map(|input| input["id"].as_str()).map(str::to_owned).collect()
            }
            [_, id, ..] => vec![(*id).to_owned()],
            [] => Vec::new(),
        }
    }
}

impl Portal {
    pub(crate) fn batch(&mut self, call: &ApiCall, object: &str, operation: &str) -> Result<FakeReply, ApiError> {
        self.store.object(object)?;
        let body = parse(&call.body)?;
        let Some(inputs) = body.get("inputs").and_then(Value::as_array) else {
            return Err(ApiError::validation("Invalid input JSON: inputs is missing"));
        };
        if inputs.len() > INPUTS_MAX {
            return Err(ApiError::validation(format!("The maximum number of inputs is {INPUTS_MAX}")));
        }
        refuse_repeated(inputs)?;
        let mut results = Vec::new();
        let mut errors = Vec::new();
        for input in inputs {
            match self.input(call, object, operation, (&body, input)) {
                Ok(result) => results.push(result),
                Err(error) if operation == "upsert" || operation == "read" => errors.push(assigned(&error, input)),
                Err(error) => return Err(error),
            }
        }
        // The service promises no order.
        results.reverse();
        let now = Timestamp::now().to_string();
        let mut answer = json!({"status": "COMPLETE", "results": results, "startedAt": now, "completedAt": now});
        let status = match (errors.is_empty(), operation) {
            (false, _) => {
                answer["numErrors"] = json!(errors.len());
                answer["errors"] = json!(errors);
                StatusCode::MULTI_STATUS
            }
            (true, "create") => StatusCode::CREATED,
            (true, _) => StatusCode::OK,
        };
        Ok(FakeReply::json(status, &answer))
    }

    fn input(
        &mut self,
        call: &ApiCall,
        object: &str,
        operation: &str,
        (body, input): (&Map<String, Value>, &Value),
    ) -> Result<Value, ApiError> {
        let Value::Object(fields) = input else { return Err(ApiError::validation("Invalid input JSON")) };
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        let of_input = fields.get("idProperty").and_then(Value::as_str);
        let id_property = of_input.or_else(|| body.get("idProperty").and_then(Value::as_str));
        let change = match operation {
            "create" => self.create(call, object, fields)?,
            "read" => {
                let number = self.number(object, id_property, id)?;
                return Ok(self.store.get(object, number).map_or(Value::Null, |record| record.rendered(None)));
            }
            "update" => {
                let number = self.number(object, id_property, id)?;
                self.update(call, object, number, fields)?
            }
            "upsert" => match self.store.find(Address { object, id_property, id })? {
                Some(number) => self.update(call, object, number, fields)?,
                None => {
                    let property = id_property.ok_or_else(ApiError::not_found)?;
                    let mut fields = fields.clone();
                    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                        properties.insert(property.to_owned(), json!(stored(property, id)));
                    }
                    self.create(call, object, &fields)?
                }
            },
            _ => return Err(ApiError::not_found()),
        };
        let mut shown = self.shown(object, &change);
        if operation == "upsert" {
            shown["new"] = json!(change.action == WriteKind::Created);
        }
        if let Some(trace_id) = fields.get("objectWriteTraceId") {
            shown["objectWriteTraceId"] = trace_id.clone();
        }
        Ok(shown)
    }
}

fn refuse_repeated(inputs: &[Value]) -> Result<(), ApiError> {
    let mut seen = HashSet::new();
    let ids = inputs.iter().filter_map(|input| input["id"].as_str());
    for id in ids {
        if !seen.insert(id.to_lowercase()) {
            return Err(ApiError::validation(format!("Duplicate IDs found in batch input: [{id}].")));
        }
    }
    Ok(())
}

/// Error of one input, with what identifies it.
fn assigned(error: &ApiError, input: &Value) -> Value {
    let mut body = error.body();
    body["context"] = match input.get("objectWriteTraceId") {
        Some(trace_id) => json!({"objectWriteTraceId": [trace_id]}),
        None => json!({"ids": [input["id"]]}),
    };
    body
}
