//! Settings and the columns of a table become one statement and its values. Pure.

use std::collections::HashMap;

use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass};

use super::settings::{Settings, quoted};
use crate::parameter::{kind, problem, scalar};

/// The table of effects: who has it in its transaction has the effect.
pub(crate) const CREATE_EFFECTS: &str = "CREATE TABLE IF NOT EXISTS sluice_effects (\
    effect_key text PRIMARY KEY, effect_type text NOT NULL, ref jsonb, created_at timestamptz NOT NULL DEFAULT now())";

/// Takes the effect's key. A rival with the same key waits here until this transaction has ended.
pub(crate) const MARK: &str = "INSERT INTO sluice_effects (effect_key, effect_type) VALUES ($1, $2) ON CONFLICT (effect_key) DO NOTHING RETURNING 1";

/// Notes what the effect left.
pub(crate) const REFER: &str = "UPDATE sluice_effects SET ref = $2::text::jsonb WHERE effect_key = $1";

/// What an effect left that was done before.
pub(crate) const MARKED: &str = "SELECT ref::text FROM sluice_effects WHERE effect_key = $1";

/// The columns of a table with the names of their types, as a cast writes them. `-1` keeps lengths out of them: a cast to
/// varchar(3) would cut a text that an assignment refuses.
pub(crate) const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, -1), t.typcategory::text \
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
    WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped";

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// The name of its type, quoted by the server where that is needed.
    pub(crate) type_name: String,
    pub(crate) is_list: bool,
}

/// One statement. Every value goes as text and is read by the server as its column's type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) values: Vec<Option<String>>,
}

/// Builds the upsert.
pub(crate) fn build(settings: &Settings<'_>, columns: &HashMap<String, Column>) -> Result<Statement, Failure> {
    let table = &settings.table;
    let column = |name: &str| {
        columns.get(name).ok_or_else(|| {
            let message =
                format!("The table {table} has no column {}; correct the mapping, then replay the job.", quoted(name));
            Failure::new(FailureClass::Permanent, "42703", message)
        })
    };
    let (mut names, mut places, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in settings.values {
        let column = column(name)?;
        values.push(text(name, value, column)?);
        names.push(quoted(name));
        places.push(format!("${}::text::{}", values.len(), column.type_name));
    }
    let is_key = |name: &str| settings.key.iter().any(|key| key == name);
    let mut changes: Vec<String> = settings
        .values
        .keys()
        .filter(|name| !is_key(name))
        .map(|name| format!("{0} = EXCLUDED.{0}", quoted(name)))
        .collect();
    let key: Vec<String> = settings.key.iter().map(|name| quoted(name)).collect();
    // A row that is only its key must still be returned, which `DO NOTHING` would not do.
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
        places.join(", "),
        key.join(", "),
        changes.join(", "),
        returned.join(", ")
    );
    Ok(Statement { sql, values })
}

/// A value as the server reads it; `None` for null.
fn text(name: &str, value: &Value, column: &Column) -> Result<Option<String>, Failure> {
    if column.type_name == "json" || column.type_name == "jsonb" {
        return Ok((!value.is_null()).then(|| value.to_string()));
    }
    let wrong = |value: &Value| {
        let about = format!("must fit a column of type {}; it is {}", column.type_name, kind(value));
        problem(&format!("values.{name}"), about)
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
                        let text = scalar(item).ok_or_else(|| wrong(item))?;
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
            let text = scalar(value).ok_or_else(|| wrong(value))?;
            if text.contains('\0') {
                return Err(problem(&format!("values.{name}"), "holds a character that PostgreSQL cannot keep"));
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
    fn values_go_as_parameters_of_their_columns_types() {
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
    fn a_row_that_is_only_its_key_is_returned_too() {
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
    fn what_does_not_fit_is_refused_before_anything_is_asked() {
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
            (with(json!({"email": "a\0b"}), "id"), "cannot keep"),
        ] {
            let failure = built(with).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
