//! Validation of write bodies against the schema.

use serde_json::{Map, Number, Value};

use super::errors::ApiError;
use super::schema::{Field, FieldKind};
use super::store::{FakeStore, text_of};

const EMAIL_LENGTH_MAX: usize = 80;
const READ_ONLY: [&str; 5] = ["Id", "CreatedDate", "LastModifiedDate", "SystemModstamp", "IsDeleted"];

/// Parses a body as a JSON object.
pub(crate) fn parse(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => {
            Err(ApiError::bad_request("JSON_PARSER_ERROR", "The HTTP entity body is required to be a JSON object"))
        }
        Err(error) => {
            let place = format!("[line:{}, column:{}]", error.line(), error.column());
            Err(ApiError::bad_request("JSON_PARSER_ERROR", format!("Unexpected character or end of input at {place}")))
        }
    }
}

/// Fields of a body with canonical names and values in their stored form.
pub(crate) fn fields(
    store: &FakeStore,
    object: &str,
    body: Map<String, Value>,
) -> Result<Map<String, Value>, ApiError> {
    let (object, schema) = store.object(object)?;
    let mut checked = Map::new();
    for (name, value) in body {
        if name == "attributes" {
            continue;
        }
        if READ_ONLY.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            let message =
                format!("Unable to create/update fields: {name}. Please check the security settings of this field.");
            return Err(ApiError::bad_request("INVALID_FIELD_FOR_INSERT_UPDATE", message).on([name]));
        }
        if let Some((known, field)) = schema.field(&name) {
            let value = value_for(store, known, field, value)?;
            checked.insert(known.to_owned(), value);
        } else if let (Some((known, target)), Value::Object(by)) = (schema.relationship(&name), &value) {
            checked.insert(known.to_owned(), referenced(store, target, by)?);
        } else {
            return Err(ApiError::no_such_column(&name, object));
        }
    }
    Ok(checked)
}

fn value_for(store: &FakeStore, name: &str, field: &Field, value: Value) -> Result<Value, ApiError> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    match &field.kind {
        FieldKind::Text(length_max) => text(name, value, *length_max),
        FieldKind::Email => {
            let value = text(name, value, EMAIL_LENGTH_MAX)?;
            match value.as_str() {
                Some(address) if !is_email(address) => {
                    let message = format!("{name}: invalid email address: {address}");
                    Err(ApiError::bad_request("INVALID_EMAIL_ADDRESS", message).on([name]))
                }
                _ => Ok(value),
            }
        }
        FieldKind::Number => match value {
            Value::Number(_) => Ok(value),
            Value::String(digits) => digits.trim().parse::<Number>().map(Value::Number).map_err(|_| {
                ApiError::bad_request(
                    "JSON_PARSER_ERROR",
                    format!("Cannot deserialize instance of double from {digits:?}"),
                )
                .on([name])
            }),
            other => Err(wrong_type("double", &other, name)),
        },
        FieldKind::Checkbox => match value {
            Value::Bool(_) => Ok(value),
            Value::String(word) if word == "true" || word == "false" => Ok(Value::Bool(word == "true")),
            other => Err(wrong_type("boolean", &other, name)),
        },
        FieldKind::Reference(target) => {
            let id = text_of(&value);
            let found = store.get(target, &id).map(|record| Value::String(record.id.clone()));
            found.map_err(|_| {
                ApiError::bad_request("INVALID_CROSS_REFERENCE_KEY", format!("invalid cross reference id: {id}"))
                    .on([name])
            })
        }
    }
}

/// Trims text; empty text becomes null.
fn text(name: &str, value: Value, length_max: usize) -> Result<Value, ApiError> {
    let value = match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        other => return Err(wrong_type("string", &other, name)),
    };
    let value = value.trim();
    if value.is_empty() {
        return Ok(Value::Null);
    }
    if value.chars().count() > length_max {
        let message = format!("{name}: data value too large: {value} (max length={length_max})");
        return Err(ApiError::bad_request("STRING_TOO_LONG", message).on([name]));
    }
    Ok(Value::String(value.to_owned()))
}

fn wrong_type(expected: &str, value: &Value, name: &str) -> ApiError {
    let found = match value {
        Value::Object(_) => "START_OBJECT",
        Value::Array(_) => "START_ARRAY",
        Value::String(_) => "VALUE_STRING",
        Value::Bool(_) => "VALUE_BOOLEAN",
        Value::Number(_) => "VALUE_NUMBER",
        Value::Null => "VALUE_NULL",
    };
    let message = format!("Cannot deserialize instance of {expected} from {found} value {value}");
    ApiError::bad_request("JSON_PARSER_ERROR", message).on([name])
}

fn is_email(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_valid = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == '@');
    is_valid(local) && is_valid(domain) && domain.contains('.') && domain.split('.').all(|label| !label.is_empty())
}

/// Id of the record that `{"External_Id__c": "123"}` refers to.
fn referenced(store: &FakeStore, target: &str, by: &Map<String, Value>) -> Result<Value, ApiError> {
    let mut fields = by.iter().filter(|(field, _)| field.as_str() != "attributes");
    let (Some((field, value)), None) = (fields.next(), fields.next()) else {
        return Err(ApiError::bad_request("INVALID_FIELD", format!("Exactly one field must name the {target}")));
    };
    let (_, schema) = store.object(target)?;
    let known = schema.field(field).filter(|(_, rule)| rule.external_id).map(|(known, _)| known);
    let Some(known) = known else { return Err(ApiError::no_such_column(field, target)) };
    let value = text_of(value);
    match store.find(target, known, &value) {
        [id] => Ok(Value::String(id.clone())),
        [] => {
            let message = format!("Foreign key external ID: {value} not found for field {known} in entity {target}");
            Err(ApiError::bad_request("INVALID_FIELD", message))
        }
        _ => Err(ApiError::bad_request(
            "DUPLICATE_EXTERNAL_ID",
            format!("{known}: more than one record found for {value}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::Schema;
    use super::*;
    use serde_json::json;

    fn check(object: &str, body: Value) -> Result<Value, &'static str> {
        let mut store = FakeStore::new(Schema::default(), 10);
        let account = json!({"Name": "Kraal", "External_Id__c": "k-1"});
        store.create("Account", account.as_object().unwrap().clone()).unwrap();
        fields(&store, object, body.as_object().unwrap().clone()).map(Value::Object).map_err(|error| error.code)
    }

    #[test]
    fn values_are_normalized_like_salesforce() {
        let checked = check("Lead", json!({"lastname": "  Nkosi ", "Title": "", "Company": 7, "AnnualRevenue": "1.5"}));
        assert_eq!(checked, Ok(json!({"LastName": "Nkosi", "Title": null, "Company": "7", "AnnualRevenue": 1.5})));
    }

    #[test]
    fn each_invalid_value_has_its_error_code() {
        let codes = [
            (json!({"Nope__c": 1}), "INVALID_FIELD"),
            (json!({"Id": "x"}), "INVALID_FIELD_FOR_INSERT_UPDATE"),
            (json!({"FirstName": "x".repeat(41)}), "STRING_TOO_LONG"),
            (json!({"Email": "not mail"}), "INVALID_EMAIL_ADDRESS"),
            (json!({"Email": "a@b..org"}), "INVALID_EMAIL_ADDRESS"),
            (json!({"Consent__c": "maybe"}), "JSON_PARSER_ERROR"),
            (json!({"AnnualRevenue": "much"}), "JSON_PARSER_ERROR"),
            (json!({"LastName": {"a": 1}}), "JSON_PARSER_ERROR"),
        ];
        for (body, code) in codes {
            assert_eq!(check("Lead", body.clone()), Err(code), "{body}");
        }
        assert_eq!(check("Lead", json!({"FirstName": "é".repeat(40)})), Ok(json!({"FirstName": "é".repeat(40)})));
        assert_eq!(check("Contact", json!({"AccountId": "001x"})), Err("INVALID_CROSS_REFERENCE_KEY"));
    }

    #[test]
    fn record_can_be_referenced_by_its_external_id() {
        let checked = check("Contact", json!({"Account": {"External_Id__c": "K-1"}})).unwrap();
        assert!(checked["AccountId"].as_str().unwrap().starts_with("001"));
        assert_eq!(check("Contact", json!({"Account": {"External_Id__c": "k-2"}})), Err("INVALID_FIELD"));
        assert_eq!(check("Contact", json!({"Account": {"Name": "Kraal"}})), Err("INVALID_FIELD"));
    }
}
