//! Parameters of `hubspot.upsert` and `hubspot.associate` steps.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

use crate::parameter::{kind, map, problem, required, scalar, text, trimmed, value};
use crate::url_path::has_dot_segment;

/// Property that holds HubSpot's own record id.
const RECORD_ID: &str = "hs_object_id";
/// HubSpot reads a list of values in this form.
const LIST_SEPARATOR: &str = ";";
/// Maximum associations of a new record.
const ASSOCIATIONS_MAX: usize = 100;

const CATEGORIES: [&str; 3] = ["HUBSPOT_DEFINED", "USER_DEFINED", "INTEGRATOR_DEFINED"];

/// Parsed `with:` of `hubspot.upsert`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) object: Cow<'a, str>,
    pub(crate) id_property: Cow<'a, str>,
    pub(crate) id: Cow<'a, str>,
    /// Every value as text, as HubSpot stores it.
    pub(crate) properties: Vec<(&'a str, Cow<'a, str>)>,
    pub(crate) associations: Vec<Association<'a>>,
    pub(crate) mode: Mode,
}

/// Association of a new record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Association<'a> {
    pub(crate) to: Cow<'a, str>,
    pub(crate) label: AssociationLabel<'a>,
}

/// Type of an association, as HubSpot expects it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssociationLabel<'a> {
    association_category: Cow<'a, str>,
    association_type_id: u32,
}

/// What happens if no record has the id.
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

/// The first call of an upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstCall {
    /// One call creates or updates by the unique property. May share a call with others.
    Upsert,
    /// Creates; if the record exists, a second call updates it.
    Create,
    /// Updates; nothing is created.
    Update,
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
        let id_property = property_name(with, "id_property")?;
        let mode = match Mode::read(with)? {
            // HubSpot assigns record ids: there is nothing to create.
            Mode::Upsert if id_property == RECORD_ID => Mode::UpdateOnly(OnAbsent::DeadLetter),
            mode => mode,
        };
        let written = map(with, "properties")?.ok_or_else(|| problem("properties", "is missing"))?;
        Ok(Settings {
            object: object_type(with, "object")?,
            id: record_id(with, "id")?,
            properties: properties(written)?,
            associations: associations(with)?,
            id_property,
            mode,
        })
    }

    /// HubSpot refuses partial upserts by email, and an upsert takes no associations: those records are created, and
    /// updated if they exist.
    pub(crate) fn first_call(&self) -> FirstCall {
        match self.mode {
            Mode::UpdateOnly(_) => FirstCall::Update,
            Mode::Upsert if self.id_property == "email" || !self.associations.is_empty() => FirstCall::Create,
            Mode::Upsert => FirstCall::Upsert,
        }
    }

    /// The property in requests; HubSpot's own id is the default.
    pub(crate) fn id_property(&self) -> Option<&str> {
        Some(&*self.id_property).filter(|name| *name != RECORD_ID)
    }
}

/// Parsed `with:` of `hubspot.associate`.
#[derive(Debug)]
pub(crate) struct AssociateSettings<'a> {
    pub(crate) from_object: Cow<'a, str>,
    pub(crate) from: Cow<'a, str>,
    pub(crate) to_object: Cow<'a, str>,
    pub(crate) to: Cow<'a, str>,
    /// `None`: the unlabelled type of the two objects.
    pub(crate) label: Option<AssociationLabel<'a>>,
}

impl<'a> AssociateSettings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<AssociateSettings<'a>, Failure> {
        Ok(AssociateSettings {
            from_object: object_type(with, "from_object")?,
            from: record_id(with, "from")?,
            to_object: object_type(with, "to_object")?,
            to: record_id(with, "to")?,
            label: match value(with, "type") {
                Some(_) => Some(AssociationLabel::read(with)?),
                None => None,
            },
        })
    }
}

impl<'a> AssociationLabel<'a> {
    fn read(item: &'a Value) -> Result<AssociationLabel<'a>, Failure> {
        let association_type_id = required(item, "type")?
            .trim()
            .parse()
            .map_err(|_| problem("type", "is not the number of an association type, such as 279"))?;
        let association_category = text(item, "category")?.unwrap_or(Cow::Borrowed(CATEGORIES[0]));
        if !CATEGORIES.contains(&&*association_category) {
            return Err(problem("category", format_args!("must be one of {}", CATEGORIES.join(", "))));
        }
        Ok(AssociationLabel { association_category, association_type_id })
    }
}

fn associations(with: &Value) -> Result<Vec<Association<'_>>, Failure> {
    let items = match value(with, "associations") {
        None => return Ok(vec![]),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(problem("associations", format_args!("must be a list; it is {}", kind(other)))),
    };
    if items.len() > ASSOCIATIONS_MAX {
        return Err(problem("associations", format_args!("has more than {ASSOCIATIONS_MAX} items")));
    }
    let read = |item| Ok(Association { to: record_id(item, "to")?, label: AssociationLabel::read(item)? });
    let in_list = |failure: Failure| Failure {
        message: failure.message.replacen("`with.", "`with.associations[].", 1),
        ..failure
    };
    items.iter().map(|item| read(item).map_err(in_list)).collect()
}

/// Values in HubSpot's form: text, empty to clear a property, and lists joined.
fn properties(written: &Map<String, Value>) -> Result<Vec<(&str, Cow<'_, str>)>, Failure> {
    written.iter().map(|(name, value)| Ok((name.as_str(), property_value(name, value)?))).collect()
}

fn property_value<'a>(name: &str, value: &'a Value) -> Result<Cow<'a, str>, Failure> {
    let refused =
        |value: &Value| problem(&format!("properties.{name}"), format_args!("must be text; it is {}", kind(value)));
    match value {
        Value::Null => Ok(Cow::Borrowed("")),
        Value::Array(items) => {
            let texts: Option<Vec<Cow<'_, str>>> = items.iter().map(scalar).collect();
            texts.map(|texts| Cow::Owned(texts.join(LIST_SEPARATOR))).ok_or_else(|| refused(value))
        }
        other => scalar(other).ok_or_else(|| refused(other)),
    }
}

/// Name or id of an object type (`contacts`, `p123_cars`, `2-123`), so that it stays one path segment.
fn object_type<'a>(with: &'a Value, parameter: &str) -> Result<Cow<'a, str>, Failure> {
    let name = required(with, parameter)?;
    let valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match valid {
        true => Ok(name),
        false => {
            Err(problem(parameter, "is not an object type: letters, digits, underscores and hyphens, such as contacts"))
        }
    }
}

fn property_name<'a>(with: &'a Value, parameter: &str) -> Result<Cow<'a, str>, Failure> {
    let name = required(with, parameter)?;
    match name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
        true => Ok(name),
        false => Err(problem(parameter, "is not the internal name of a property, such as email or external_lead_id")),
    }
}

fn record_id<'a>(with: &'a Value, parameter: &str) -> Result<Cow<'a, str>, Failure> {
    let id = trimmed(text(with, parameter)?.unwrap_or_default());
    let what = match &*id {
        "" => "is empty: the event does not identify a record",
        // Not valid in a path, even escaped: servers and proxies decode it.
        id if has_dot_segment(id) => "has a `.` or `..` segment, which cannot address a record",
        _ => return Ok(id),
    };
    Err(Failure::new(FailureClass::Identity, "no-identity", format!("`with.{parameter}` {what}.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(changes: Value) -> Value {
        let mut with = json!({"object": "contacts", "id_property": "lead_key", "id": "a", "properties": {}});
        for (name, value) in changes.as_object().unwrap() {
            with[name] = value.clone();
        }
        with
    }

    #[test]
    fn values_are_texts() {
        let with = with(json!({"properties": {"a": "x", "b": 1.5, "c": true, "d": null, "e": ["x", 2]}}));
        let found = Settings::read(&with).unwrap().properties;
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(found, [("a", "x"), ("b", "1.5"), ("c", "true"), ("d", ""), ("e", "x;2")]);
    }

    #[test]
    fn first_call_depends_on_the_id_property_the_mode_and_the_associations() {
        let first = |changes: Value| Settings::read(&with(changes)).unwrap().first_call();
        assert_eq!(first(json!({})), FirstCall::Upsert);
        assert_eq!(Settings::read(&with(json!({"id": " a "}))).unwrap().id, "a");
        assert_eq!(first(json!({"id_property": "email"})), FirstCall::Create);
        assert_eq!(first(json!({"associations": [{"to": 7, "type": 279}]})), FirstCall::Create);
        assert_eq!(first(json!({"id_property": "hs_object_id"})), FirstCall::Update);
        assert_eq!(first(json!({"mode": "update_only"})), FirstCall::Update);
        assert_eq!(first(json!({"mode": "update_only", "on_absent": "create"})), FirstCall::Upsert);
    }

    #[test]
    fn problems_name_the_parameter_and_a_missing_id_has_class_identity() {
        let table = [
            (json!({"object": null}), "`with.object` is missing", FailureClass::Mapping),
            (json!({"object": "contacts/../x"}), "`with.object` is not an object type", FailureClass::Mapping),
            (json!({"id_property": "E-Mail"}), "`with.id_property` is not the internal name", FailureClass::Mapping),
            (json!({"properties": null}), "`with.properties` is missing", FailureClass::Mapping),
            (json!({"properties": {"a": {"b": 1}}}), "`with.properties.a` must be text", FailureClass::Mapping),
            (json!({"properties": {"a": [[1]]}}), "`with.properties.a` must be text", FailureClass::Mapping),
            (json!({"mode": "insert"}), "`with.mode` must be upsert or update_only", FailureClass::Mapping),
            (json!({"associations": {}}), "`with.associations` must be a list", FailureClass::Mapping),
            (json!({"associations": [{"to": 1}]}), "`with.associations[].type` is missing", FailureClass::Mapping),
            (json!({"associations": [{"type": 1}]}), "`with.associations[].to` is empty", FailureClass::Identity),
            (
                json!({"associations": [{"to": 1, "type": 1, "category": "MINE"}]}),
                "`with.associations[].category` must be one of",
                FailureClass::Mapping,
            ),
            (json!({"id": null}), "`with.id` is empty", FailureClass::Identity),
            (json!({"id": " \n"}), "`with.id` is empty", FailureClass::Identity),
            (json!({"id": ".."}), "`with.id` has a `.` or `..`", FailureClass::Identity),
        ];
        for (changes, expected, class) in table {
            let failure = Settings::read(&with(changes)).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
            assert_eq!(failure.class, class, "{}", failure.message);
        }
    }
}
