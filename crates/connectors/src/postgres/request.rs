//! Builds the statement from the step's settings and the table's columns. Pure.

use std::collections::HashMap;

use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass};

use super::settings::{Settings, quoted};
use crate::parameter::{kind, problem, scalar};

/// Effects table: a row in it proves that the effect's transaction committed.
pub(crate) const CREATE_EFFECTS: &str = "CREATE TABLE IF NOT EXISTS sluice_effects (\
    effect_key text PRIMARY KEY, effect_type text NOT NULL, ref jsonb, created_at timestamptz NOT NULL DEFAULT now())";

/// Claims the effect key. A concurrent transaction with the same key waits here until this one ends.
pub(crate) const INSERT_EFFECT: &str = "INSERT INTO sluice_effects (effect_key, effect_type) VALUES ($1, $2) ON CONFLICT (effect_key) DO NOTHING RETURNING 1";

/// Stores the output of the effect.
pub(crate) const UPDATE_EFFECT: &str = "UPDATE sluice_effects SET ref = $2::text::jsonb WHERE effect_key = $1";

/// Output of a committed effect.
pub(crate) const SELECT_EFFECT: &str = "SELECT ref::text FROM sluice_effects WHERE effect_key = $1";

/// Columns of a table with their type names for a cast. Type modifier `-1` omits lengths: a cast to varchar(3)
/// would truncate a text that an assignment rejects.
pub(crate) const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, -1), t.typcategory::text \
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
    WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Quoted by the server where needed.
    pub(crate) type_name: String,
    pub(crate) is_list: bool,
}

/// Upsert statement. Every value is sent as text and cast to the type of its column.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) values: Vec<Option<String>>,
}

pub(crate) fn build(settings: &Settings<'_>, columns: &HashMap<String, Column>) -> Result<Statement, Failure> {
    let table = &settings.table;
    let column = |name: &str| {
        columns.get(name).ok_or_else(|| {
            let message =
                format!("Table {table} has no column {}. Correct the mapping, then replay the job.", quoted(name));
            Failure::new(FailureClass::Permanent, "42703", message)
        })
    };
    let (mut names, mut placeholders, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in settings.values {
        let column = column(name)?;
        values.push(text(name, value, column)?);
        names.push(quoted(name));
        placeholders.push(format!("${}::text::{}", values.len(), column.type_name));
    }
    let is_key = |name: &str| settings.key.iter().any(|key| key == name);
    let mut changes: Vec<String> = settings
        .values
        .keys()
        .filter(|name| !is_key(name))
        .map(|name| format!("{0} = EXCLUDED.{0}", quoted(name)))
        .collect();
    let key: Vec<String> = settings.key.iter().map(|name| quoted(name)).collect();
    // A row of only key columns must still be returned, which `DO NOTHING` does not do.
    changes.extend(changes.is_empty().then(|| format!("{0} = EXCLUDED.{0}", key[0])));
    let mut returned = Vec::with_capacity(settings.returning.len());
    for name in &settings.returning {
        column(name)?;
        returned.push(quoted(name));
    }
    let sql = format!(
        "WITH changed AS (INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {} RETURNING {}) \
         SELECT to_jsonb(changed)::text FROM changed",
        names.join(", "),
        placeholders.join(", "),
        key.join(", "),
        changes.join(", "),
        returned.join(", ")
    );
    Ok(Statement { sql, values })
}

/// Value in PostgreSQL's text format; `None` for null.
fn text(name: &str, value: &Value, column: &Column) -> Result<Option<String>, Failure> {
    if column.type_name == "json" || column.type_name == "jsonb" {
        return Ok((!value.is_null()).then(|| value.to_string()));
    }
    let mismatch = |value: &Value| {
        let what = format!("must fit a column of type {}; it is {}", column.type_name, kind(value));
        problem(&format!("values.{name}"), what)
    };
    match value {
        Value::Null => Ok(None),
        Value::Array(items) if column.is_list => {
            let mut list = String::from("{");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    list.push(',');
                }
                match item {
                    Value::Null => list.push_str("NULL"),
                    item => {
                        let text = scalar(item).ok_or_else(|| mismatch(item))?;
                        list.push('"');
                        list.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
                        list.push('"');
                    }
                }
            }
            list.push('}');
            Ok(Some(list))
        }
        value => {
            let text = scalar(value).ok_or_else(|| mismatch(value))?;
            if text.contains('\0') {
                return Err(problem(&format!("values.{name}"), "has a NUL character, which PostgreSQL cannot store"));
            }
            Ok(Some(text.into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn columns() -> HashMap<String, Column> {
        [
            ("tenant", "text", false),
            ("email", "text", false),
            ("score", "integer", false),
            ("tags", "text[]", true),
            ("extra", "jsonb", false),
            ("id", "bigint", false),
        ]
        .into_iter()
        .map(|(name, type_name, is_list)| (name.to_owned(), Column { type_name: type_name.to_owned(), is_list }))
        .collect()
    }

    fn built(with: Value) -> Result<Statement, Failure> {
        build(&Settings::read(&with).unwrap(), &columns())
    }

    #[test]
    fn values_are_parameters_cast_to_their_column_types() {
        let statement = built(json!({
            "table": "crm.contacts", "key": ["tenant", "email"], "returning": "id",
            "values": {"tenant": "acme", "email": "a@b.c", "score": 7, "tags": ["x", "a\"b\\", null], "extra": {"a": "é"}},
        }))
        .unwrap();
        assert_eq!(
            statement.sql,
            "WITH changed AS (INSERT INTO \"crm\".\"contacts\" (\"tenant\", \"email\", \"score\", \"tags\", \"extra\") \
             VALUES ($1::text::text, $2::text::text, $3::text::integer, $4::text::text[], $5::text::jsonb) \
             ON CONFLICT (\"tenant\", \"email\") DO UPDATE SET \"score\" = EXCLUDED.\"score\", \"tags\" = EXCLUDED.\"tags\", \
             \"extra\" = EXCLUDED.\"extra\" RETURNING \"id\") SELECT to_jsonb(changed)::text FROM changed"
        );
        let values: Vec<&str> = statement.values.iter().map(|value| value.as_deref().unwrap()).collect();
        assert_eq!(values, ["acme", "a@b.c", "7", r#"{"x","a\"b\\",NULL}"#, r#"{"a":"é"}"#]);
    }

    #[test]
    fn row_of_only_key_columns_is_returned() {
        let statement = built(json!({"table": "t", "key": "email", "values": {"email": "a"}})).unwrap();
        assert!(
            statement.sql.contains("DO UPDATE SET \"email\" = EXCLUDED.\"email\" RETURNING \"email\""),
            "{}",
            statement.sql
        );
    }

    #[test]
    fn null_clears_a_column_of_any_type() {
        let statement =
            built(json!({"table": "t", "key": "email", "values": {"email": "a", "extra": null, "score": null}}))
                .unwrap();
        assert_eq!(statement.values[1..], [None, None]);
    }

    #[test]
    fn values_that_do_not_fit_are_rejected_before_sending() {
        let with =
            |values: Value, more: &str| json!({"table": "t", "key": "email", "values": values, "returning": more});
        for (with, expected) in [
            (with(json!({"email": "a", "nope": 1}), "id"), "has no column \"nope\""),
            (with(json!({"email": "a"}), "nope"), "has no column \"nope\""),
            (
                with(json!({"email": {"a": 1}}), "id"),
                "`with.values.email` must fit a column of type text; it is a map.",
            ),
            (with(json!({"email": ["a"]}), "id"), "it is a list."),
            (with(json!({"email": "a", "tags": [["x"]]}), "id"), "`with.values.tags` must fit"),
            (with(json!({"email": "a\0b"}), "id"), "cannot store"),
        ] {
            let failure = built(with).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
