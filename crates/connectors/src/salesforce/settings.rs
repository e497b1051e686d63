//! Parameters of a `salesforce.upsert` step.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

use crate::parameter::{map, problem, required, text, trimmed};
use crate::url_path::has_dot_segment;

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) object: Cow<'a, str>,
    pub(crate) external_id_field: Cow<'a, str>,
    pub(crate) external_id: Cow<'a, str>,
    pub(crate) fields: &'a Map<String, Value>,
    pub(crate) mode: Mode,
}

/// What happens if no record has the external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Upsert,
    UpdateOnly(OnAbsent),
}

/// What happens to an update without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAbsent {
    DeadLetter,
    Noop,
}

impl Mode {
    fn read(with: &Value) -> Result<Mode, Failure> {
        let update_only = match text(with, "mode")?.as_deref() {
            None | Some("upsert") => false,
            Some("update_only") => true,
            Some(other) => {
                return Err(problem("mode", format_args!("must be upsert or update_only; it is `{other}`")));
            }
        };
        Ok(match text(with, "on_absent")?.as_deref() {
            _ if !update_only => Mode::Upsert,
            None | Some("dead_letter") => Mode::UpdateOnly(OnAbsent::DeadLetter),
            Some("noop") => Mode::UpdateOnly(OnAbsent::Noop),
            Some("create") => Mode::Upsert,
            Some(other) => {
                return Err(problem("on_absent", format_args!("must be dead_letter, noop or create; it is `{other}`")));
            }
        })
    }
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        Ok(Settings {
            object: api_name(with, "object")?,
            external_id_field: api_name(with, "external_id_field")?,
            external_id: external_id(with)?,
            fields: map(with, "fields")?.ok_or_else(|| problem("fields", "is missing"))?,
            mode: Mode::read(with)?,
        })
    }
}

/// Valid Salesforce API name, so it stays one path segment.
fn api_name<'a>(with: &'a Value, parameter: &str) -> Result<Cow<'a, str>, Failure> {
    let name = required(with, parameter)?;
    let mut bytes = name.bytes();
    let valid = bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if valid {
        Ok(name)
    } else {
        Err(problem(
            parameter,
            "is not a Salesforce API name: letters, digits and underscores, such as Lead or Ext_Id__c",
        ))
    }
}

fn external_id(with: &Value) -> Result<Cow<'_, str>, Failure> {
    let id = trimmed(text(with, "external_id")?.unwrap_or_default());
    let what = match &*id {
        "" => "is empty: the event does not identify a record",
        // Not valid in a path, even escaped: servers and proxies decode it.
        id if has_dot_segment(id) => "has a `.` or `..` segment, which cannot address a record",
        _ => return Ok(id),
    };
    Err(Failure::new(FailureClass::Identity, "no-identity", format!("`with.external_id` {what}.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(changes: Value) -> Value {
        let mut with = json!({"object": "Lead", "external_id_field": "Ext__c", "external_id": "a", "fields": {}});
        for (name, value) in changes.as_object().unwrap() {
            with[name] = value.clone();
        }
        with
    }

    #[test]
    fn number_is_a_valid_external_id() {
        assert_eq!(Settings::read(&with(json!({"external_id": 42}))).unwrap().external_id, "42");
        let blanks = with(json!({"external_id": " a b\n"}));
        assert_eq!(Settings::read(&blanks).unwrap().external_id, "a b", "alone and in a batch it is the same record");
        let mode = |with_mode: Value| Settings::read(&with(with_mode)).unwrap().mode;
        assert_eq!(mode(json!({"mode": "update_only"})), Mode::UpdateOnly(OnAbsent::DeadLetter));
        for (on_absent, expected) in [
            ("dead_letter", Mode::UpdateOnly(OnAbsent::DeadLetter)),
            ("noop", Mode::UpdateOnly(OnAbsent::Noop)),
            ("create", Mode::Upsert),
        ] {
            assert_eq!(mode(json!({"mode": "update_only", "on_absent": on_absent})), expected);
        }
    }

    #[test]
    fn problems_name_the_parameter_and_a_missing_id_has_class_identity() {
        let table = [
            (json!({"object": null}), "`with.object` is missing", FailureClass::Mapping),
            (json!({"object": "Lead/../User"}), "`with.object` is not a Salesforce API name", FailureClass::Mapping),
            (json!({"external_id_field": "1x"}), "`with.external_id_field` is not", FailureClass::Mapping),
            (json!({"fields": null}), "`with.fields` is missing", FailureClass::Mapping),
            (json!({"fields": "x"}), "`with.fields` must be a map", FailureClass::Mapping),
            (json!({"mode": "insert"}), "`with.mode` must be upsert or update_only", FailureClass::Mapping),
            (
                json!({"mode": "update_only", "on_absent": "ignore"}),
                "`with.on_absent` must be dead_letter, noop or create",
                FailureClass::Mapping,
            ),
            (json!({"external_id": null}), "`with.external_id` is empty", FailureClass::Identity),
            (json!({"external_id": " "}), "`with.external_id` is empty", FailureClass::Identity),
            (json!({"external_id": ".."}), "`with.external_id` has a `.` or `..`", FailureClass::Identity),
            (json!({"external_id": ["a"]}), "`with.external_id` must be text", FailureClass::Mapping),
        ];
        for (changes, expected, class) in table {
            let failure = Settings::read(&with(changes)).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
            assert_eq!(failure.class, class, "{}", failure.message);
        }
    }
}
