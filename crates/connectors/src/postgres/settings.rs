//! Parameters of a `postgres.upsert` step, and the parsed database URL.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};
use tokio_postgres::config::{Host, SslMode};

use crate::parameter::{kind, map, problem, required, scalar, value};

/// Maximum columns of one row.
const COLUMNS_MAX: usize = 500;

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) table: Table,
    /// Columns of the unique index.
    pub(crate) key: Vec<Cow<'a, str>>,
    pub(crate) values: &'a Map<String, Value>,
    /// Columns of the output.
    pub(crate) returning: Vec<Cow<'a, str>>,
}

/// Table name in unquoted parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl Table {
    fn parse(text: &str) -> Result<Table, Failure> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let (schema, name) = match parts.as_slice() {
            [name] => (None, *name),
            [schema, name] => (Some((*schema).to_owned()), *name),
            _ => return Err(problem("table", "must be `table` or `schema.table`")),
        };
        if name.is_empty() || schema.as_deref() == Some("") || text.contains('\0') {
            return Err(problem("table", "must be `table` or `schema.table`"));
        }
        Ok(Table { schema, name: name.to_owned() })
    }
}

/// Quoted for use in SQL.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", quoted(schema))?;
        }
        f.write_str(&quoted(&self.name))
    }
}

/// Quoted SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let table = Table::parse(&required(with, "table")?)?;
        let key = columns(with, "key")?.ok_or_else(|| problem("key", "is missing"))?;
        let values = map(with, "values")?.ok_or_else(|| problem("values", "is missing"))?;
        if values.len() > COLUMNS_MAX {
            return Err(problem("values", format_args!("has more than {COLUMNS_MAX} columns")));
        }
        if values.keys().any(|name| name.is_empty() || name.contains('\0')) {
            return Err(problem("values", "has a column name that is empty or has a NUL character"));
        }
        for column in &key {
            let empty = match values.get(column.as_ref()) {
                None | Some(Value::Null) => true,
                Some(Value::String(text)) => text.trim().is_empty(),
                Some(_) => false,
            };
            if empty {
                return Err(Failure::new(
                    FailureClass::Identity,
                    "no-identity",
                    format!("`with.values.{column}` is empty, but `with.key` lists it as a key column."),
                ));
            }
        }
        let returning = columns(with, "returning")?.unwrap_or_else(|| key.clone());
        Ok(Settings { table, key, values, returning })
    }
}

/// A column name or a list of column names.
fn columns<'a>(with: &'a Value, name: &str) -> Result<Option<Vec<Cow<'a, str>>>, Failure> {
    let Some(given) = value(with, name) else { return Ok(None) };
    let items = given.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(given));
    let mut columns: Vec<Cow<'a, str>> = Vec::with_capacity(items.len());
    for item in items {
        let text = scalar(item).filter(|text| !text.trim().is_empty() && !text.contains('\0')).ok_or_else(|| {
            problem(name, format_args!("must be a column name or a list of column names; it contains {}", kind(item)))
        })?;
        if !columns.contains(&text) {
            columns.push(text);
        }
    }
    if columns.is_empty() {
        return Err(problem(name, "names no column"));
    }
    Ok(Some(columns))
}

/// Parses a database URL. The error does not quote it: it holds a password.
pub(crate) fn parse_url(url: &str) -> Result<tokio_postgres::Config, String> {
    if ["verify-full", "verify-ca"].iter().any(|mode| url.contains(mode)) {
        return Err("url: use sslmode=require; the server's certificate and host name are always verified".to_owned());
    }
    let mut config: tokio_postgres::Config =
        url.parse().map_err(|_| "url: is not postgres://user:password@host/database".to_owned())?;
    if config.get_hosts().is_empty() {
        return Err("url: names no host".to_owned());
    }
    // TLS is the default for every host except loopback and Unix sockets.
    let local = config.get_hosts().iter().all(is_local);
    config.ssl_mode(match config.get_ssl_mode() {
        SslMode::Prefer if local => SslMode::Disable,
        SslMode::Prefer => SslMode::Require,
        chosen => chosen,
    });
    config.application_name("sluice");
    Ok(config)
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Host and database for messages, without user and password.
pub(crate) fn location(config: &tokio_postgres::Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "PostgreSQL".to_owned(),
    };
    match config.get_dbname() {
        Some(database) => format!("{host}/{database}"),
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identifiers_are_always_quoted() {
        let table = |text: &str| Table::parse(text).map(|table| table.to_string());
        assert_eq!(table("contacts").unwrap(), "\"contacts\"");
        assert_eq!(table("crm.contacts").unwrap(), "\"crm\".\"contacts\"");
        assert_eq!(table("a\"; drop table b; --").unwrap(), "\"a\"\"; drop table b; --\"");
        for wrong in ["", ".a", "a.", "a.b.c"] {
            assert!(Table::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn problems_name_the_parameter() {
        let table = [
            (json!({}), "`with.table` is missing."),
            (json!({"table": "a", "values": {}}), "`with.key` is missing."),
            (json!({"table": "a", "key": []}), "`with.key` names no column."),
            (json!({"table": "a", "key": [[1]]}), "`with.key` must be a column name"),
            (json!({"table": "a", "key": "id"}), "`with.values` is missing."),
            (json!({"table": "a", "key": "id", "values": [1]}), "`with.values` must be a map"),
            (json!({"table": "a", "key": "id", "values": {"id": 1}, "returning": {}}), "`with.returning` must be"),
        ];
        for (with, expected) in table {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
        for absent in [json!({}), json!({"id": null}), json!({"id": " "})] {
            let with = json!({"table": "a", "key": "id", "values": absent});
            assert_eq!(Settings::read(&with).unwrap_err().class, FailureClass::Identity);
        }
    }

    #[test]
    fn tls_is_the_default_except_on_loopback() {
        let mode = |url: &str| parse_url(url).unwrap().get_ssl_mode();
        assert_eq!(mode("postgres://u:p@127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u:p@localhost/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u@%2Frun%2Fpostgresql/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u:p@db.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://u:p@db.example/d?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://u:p@localhost/d?sslmode=require"), SslMode::Require);
        for wrong in ["postgres://u:hunter2@db/d?sslmode=verify-full", "hunter2", "postgres://u:hunter2@db/d?x=y"] {
            let problem = parse_url(wrong).unwrap_err();
            assert!(problem.starts_with("url: ") && !problem.contains("hunter2"), "{problem}");
        }
        assert_eq!(location(&parse_url("postgres://u:p@db.example/crm").unwrap()), "db.example/crm");
    }
}
