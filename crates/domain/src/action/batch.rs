//! Batches: calls of several jobs in one request.

use std::sync::Arc;

use serde_json::Value;

use super::Action;

/// Records in one Salesforce collection request.
const SALESFORCE_RECORDS_MAX: u32 = 200;
/// Records in one HubSpot batch.
const HUBSPOT_RECORDS_MAX: u32 = 100;

/// Lines of one write to a file.
const FILE_LINES_MAX: u32 = 500;

/// How calls of one step share a request. Known before any call is made: the scheduler reads it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchForm {
    /// Calls in one request, at the most.
    pub max: u32,
    /// Parameters that have the same value in all calls of one request.
    pub same: Arc<[Arc<str>]>,
    /// Parameters that identify what a call writes. No two calls of one request have the same values here. Empty: no two calls
    /// write the same.
    pub identity: Arc<[Arc<str>]>,
}

impl BatchForm {
    pub fn new(max: u32, same: &[&str], identity: &[&str]) -> BatchForm {
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        BatchForm { max, same: names(same), identity: names(identity) }
    }

    /// The same form with fewer calls in one request; `None` if each call has a request of its own.
    pub fn limited(self, max: u32) -> Option<BatchForm> {
        let max = self.max.min(max);
        (max > 1).then_some(BatchForm { max, ..self })
    }

    /// The values that all calls of one request share, as text.
    pub fn shared(&self, with: &Value) -> String {
        text_of(&self.same, with, str::to_owned)
    }

    /// What a call writes, as text; `None` if no two calls write the same. Letter case and surrounding blanks are ignored: destinations differ in whether they matter,
    /// and two calls that are wrongly taken for equal only go in two requests.
    pub fn identity(&self, with: &Value) -> Option<String> {
        let is_known = !self.identity.is_empty();
        is_known.then(|| text_of(&self.identity, with, |text| text.trim().to_lowercase()))
    }
}

/// Values of parameters as the text of a JSON list. Numbers count as their text.
fn text_of(names: &[Arc<str>], with: &Value, normalize: impl Fn(&str) -> String) -> String {
    let quoted = |text: &str| serde_json::to_string(text).expect("a text has a JSON form");
    let value = |name: &Arc<str>| match with.get(&**name) {
        Some(Value::String(text)) => quoted(&normalize(text)),
        Some(Value::Number(number)) => quoted(&number.to_string()),
        Some(other) => other.to_string(),
        None => "null".to_owned(),
    };
    let values: Vec<String> = names.iter().map(value).collect();
    ["[", &values.join(","), "]"].concat()
}

impl Action {
    /// How calls of this action share a request, from `with:` as written; `None` if each has a request of its own.
    pub fn batch_form(self, with: &Value) -> Option<BatchForm> {
        match self {
            // A collection has no update_only.
            Action::SalesforceUpsert if matches!(with.get("mode").and_then(Value::as_str), None | Some("upsert")) => {
                Some(BatchForm::new(SALESFORCE_RECORDS_MAX, &["object", "external_id_field", "mode"], &["external_id"]))
            }
            // Contacts by email are created one by one, and so are records with associations.
            Action::HubspotUpsert
                if matches!(with.get("mode").and_then(Value::as_str), None | Some("upsert"))
                    && with.get("associations").is_none()
                    && with.get("id_property").and_then(Value::as_str).is_some_and(is_own_property) =>
            {
                Some(BatchForm::new(HUBSPOT_RECORDS_MAX, &["object", "id_property", "mode"], &["id"]))
            }
            Action::FileAppend => Some(BatchForm::new(FILE_LINES_MAX, &[], &[])),
            Action::Declared(declared) => declared.definition().batch.as_ref().map(|batch| {
                let names = |names: &[String]| names.iter().map(|name| Arc::from(name.as_str())).collect();
                BatchForm { max: batch.max, same: names(&batch.same), identity: names(&batch.identity) }
            }),
            _ => None,
        }
    }
}

/// Whether a HubSpot property with unique values is named, rather than an address, HubSpot's own id or an expression.
fn is_own_property(name: &str) -> bool {
    !matches!(name, "email" | "hs_object_id") && !name.contains("{{")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn upsert(external_id: Value) -> Value {
        json!({ "object": "Lead", "external_id_field": "Ext__c", "external_id": external_id, "fields": {} })
    }

    #[test]
    fn upserts_of_one_object_share_a_request_and_those_of_another_do_not() {
        let form = Action::SalesforceUpsert.batch_form(&upsert(json!("{{ event.id }}"))).unwrap();
        assert_eq!(form.max, 200);
        let mut contact = upsert(json!("a"));
        contact["object"] = json!("Contact");
        assert_eq!(form.shared(&upsert(json!("a"))), form.shared(&upsert(json!("b"))));
        assert_ne!(form.shared(&upsert(json!("a"))), form.shared(&contact));
    }

    #[test]
    fn identities_ignore_case_and_blanks_and_whether_they_are_numbers() {
        let form = Action::SalesforceUpsert.batch_form(&Value::Null).unwrap();
        let identity = |id: Value| form.identity(&upsert(id)).unwrap();
        assert_eq!(identity(json!("Ada@x.org ")), identity(json!("ada@X.ORG")));
        assert_eq!(identity(json!(42)), identity(json!("42")));
        assert_ne!(identity(json!("a")), identity(json!("b")));
        assert_ne!(identity(json!("a")), identity(Value::Null));
    }

    #[test]
    fn update_only_and_other_actions_have_requests_of_their_own() {
        for mode in ["update_only", "{{ event.mode }}"] {
            assert_eq!(Action::SalesforceUpsert.batch_form(&json!({ "mode": mode })), None);
        }
        assert_eq!(Action::HttpRequest.batch_form(&Value::Null), None);
    }

    #[test]
    fn a_form_for_one_call_is_no_form() {
        let form = BatchForm::new(200, &[], &[]);
        assert_eq!(form.clone().limited(1), None);
        assert_eq!(form.clone().limited(25).map(|form| form.max), Some(25));
        assert_eq!(form.limited(1_000).map(|form| form.max), Some(200));
    }
}
