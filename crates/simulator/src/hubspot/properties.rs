//! Object types, their properties, and the validation of written values.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::errors::ApiError;

/// Object type of the account.
#[derive(Debug, Clone, Default)]
pub struct ObjectType {
    pub properties: BTreeMap<String, Property>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Property {
    /// Created with `hasUniqueValue: true`.
    pub unique: bool,
}

impl ObjectType {
    /// An object type with these properties, the unique ones first.
    pub fn new(unique: &[&str], others: &[&str]) -> ObjectType {
        let named = |names: &[&str], unique| {
            names.iter().map(|name| ((*name).to_owned(), Property { unique })).collect::<Vec<_>>()
        };
        ObjectType { properties: named(unique, true).into_iter().chain(named(others, false)).collect() }
    }

    pub(crate) fn is_unique(&self, property: &str) -> bool {
        self.properties.get(property).is_some_and(|property| property.unique)
    }

    pub(crate) fn unique(&self) -> impl Iterator<Item = &str> {
        self.properties.iter().filter(|(_, property)| property.unique).map(|(name, _)| name.as_str())
    }
}

pub(crate) fn usual_objects() -> BTreeMap<String, ObjectType> {
    let contact = ["firstname", "lastname", "phone", "company", "jobtitle", "city", "lifecyclestage", "score"];
    [
        ("contacts", ObjectType::new(&["email", "external_lead_id"], &contact)),
        ("companies", ObjectType::new(&["external_company_id"], &["name", "domain", "city"])),
        ("deals", ObjectType::new(&["external_deal_id"], &["dealname", "amount", "dealstage", "pipeline"])),
        ("tickets", ObjectType::new(&["external_ticket_id"], &["subject", "content", "hs_pipeline_stage"])),
    ]
    .into_iter()
    .map(|(name, object)| (name.to_owned(), object))
    .collect()
}

/// Comparison and stored form of a value: HubSpot trims text and lowers email addresses.
pub(crate) fn stored(property: &str, value: &str) -> String {
    match property {
        "email" => value.trim().to_lowercase(),
        _ => value.trim().to_owned(),
    }
}

/// Properties of a body in their stored form; the empty text clears a property.
pub(crate) fn check(object: &ObjectType, body: &Map<String, Value>) -> Result<Vec<(String, String)>, ApiError> {
    let Some(Value::Object(written)) = body.get("properties") else {
        return Err(ApiError::validation("Invalid input JSON: properties is missing"));
    };
    let mut checked = Vec::new();
    for (name, value) in written {
        if !object.properties.contains_key(name) {
            let detail = json!([{
                "message": format!("Property \"{name}\" does not exist"),
                "code": "PROPERTY_DOESNT_EXIST",
                "context": {"propertyName": [name]},
            }]);
            return Err(ApiError::validation("Property values were not valid").with("errors", detail));
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null => String::new(),
            _ => return Err(ApiError::validation(format!("Invalid input JSON: {name} is not text"))),
        };
        let text = stored(name, &text);
        if name == "email" && !text.is_empty() && !is_email(&text) {
            let message = format!("Email address {text} is invalid");
            let detail = json!([{"message": message, "code": "INVALID_EMAIL", "context": {"propertyName": ["email"]}}]);
            return Err(ApiError::validation("Property values were not valid").with("errors", detail));
        }
        checked.push((name.clone(), text));
    }
    Ok(checked)
}

fn is_email(address: &str) -> bool {
    let Some((local, domain)) = address.split_once('@') else { return false };
    !local.is_empty() && domain.contains('.') && !domain.contains('@') && !address.contains(char::is_whitespace)
}
