//! A row of an import: a payload as the sender sent it, or an event as an export wrote it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::event::read_time;
use crate::time::Time;

/// Form of an exported event, in its member `sluice_export`.
pub const EVENT_FORM: &str = "event/1";
/// Member that says that a row was written by an export.
const FORM_MEMBER: &str = "sluice_export";
/// Member that orders the rows of other files, unless the operator names another one.
const TIME_MEMBER: &str = "occurred_at";

/// When a row happened and arrived, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTimes {
    pub occurred_at: Option<Time>,
    /// When the request arrived at the node that exported it.
    pub received_at: Option<Time>,
}

impl RowTimes {
    /// The time that orders rows: as they arrived, if that is known.
    pub fn arrival(self) -> Option<Time> {
        self.received_at.or(self.occurred_at)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportRow {
    pub payload: Value,
    /// Lower-case names and values.
    pub headers: Vec<(String, String)>,
    pub times: RowTimes,
    /// Idempotency key of the event that was exported.
    pub key: Option<String>,
    /// Its order of acceptance.
    pub seq: Option<i64>,
    /// Written by an export.
    pub is_exported: bool,
}

/// Why a row cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowProblem {
    #[error("the row is masked and would overwrite data with asterisks; export with --reveal --reason")]
    Masked,
    #[error("the row has no payload: retention had deleted it before the export")]
    PayloadMissing,
    #[error("the row is of the flow `{0}`")]
    OtherFlow(String),
    #[error("the row has the form `{0}`; only exported events (`{EVENT_FORM}`) and payloads can be imported")]
    Form(String),
    #[error("`{column}` is not a time; use RFC 3339 text or a Unix time in seconds or milliseconds")]
    Time { column: String },
    #[error("`{column}` is not valid: {reason}")]
    Member { column: String, reason: String },
}

impl RowProblem {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            RowProblem::Masked => "row-masked",
            RowProblem::PayloadMissing => "payload-missing",
            RowProblem::OtherFlow(_) => "other-flow",
            RowProblem::Form(_) => "form-unknown",
            RowProblem::Time { .. } => "time-invalid",
            RowProblem::Member { .. } => "member-invalid",
        }
    }

    /// The member or column at fault.
    pub fn column(&self) -> Option<&str> {
        match self {
            RowProblem::Masked => Some("masked"),
            RowProblem::PayloadMissing => Some("payload"),
            RowProblem::OtherFlow(_) => Some("flow"),
            RowProblem::Form(_) => Some(FORM_MEMBER),
            RowProblem::Time { column } | RowProblem::Member { column, .. } => Some(column),
        }
    }
}

impl ImportRow {
    /// Reads a row for a flow. `time_field` names the member that orders the rows of a file that no export wrote.
    pub fn read(row: Value, flow: &str, time_field: Option<&str>) -> Result<ImportRow, RowProblem> {
        let mut members = match row {
            Value::Object(members) if members.contains_key(FORM_MEMBER) => members,
            payload => return ImportRow::of_payload(payload, time_field),
        };
        match members.get(FORM_MEMBER).and_then(Value::as_str) {
            Some(EVENT_FORM) => {}
            other => return Err(RowProblem::Form(other.unwrap_or_default().to_owned())),
        }
        if members.get("masked") != Some(&Value::Bool(false)) {
            return Err(RowProblem::Masked);
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        if let Some(other) = text("flow").filter(|other| other != flow) {
            return Err(RowProblem::OtherFlow(other));
        }
        let times =
            RowTimes { occurred_at: time(&members, "occurred_at")?, received_at: time(&members, "received_at")? };
        let (key, seq) = (text("key"), members.get("seq").and_then(Value::as_i64));
        let headers = headers(members.remove("headers"))?;
        match members.remove("payload") {
            None | Some(Value::Null) => Err(RowProblem::PayloadMissing),
            Some(payload) => Ok(ImportRow { payload, headers, times, key, seq, is_exported: true }),
        }
    }

    fn of_payload(payload: Value, time_field: Option<&str>) -> Result<ImportRow, RowProblem> {
        let none = Map::new();
        let members = payload.as_object().unwrap_or(&none);
        let occurred_at = match time_field {
            Some(name) => time(members, name)?,
            // A member of this name that is not a time may mean anything.
            None => time(members, TIME_MEMBER).unwrap_or_default(),
        };
        let times = RowTimes { occurred_at, received_at: None };
        Ok(ImportRow { payload, times, ..ImportRow::default() })
    }

    /// The row of a table. A table that an export wrote has JSON in two of its columns, and escaped formulas.
    pub fn from_cells<'c>(cells: impl IntoIterator<Item = (&'c str, &'c str)>) -> Result<Value, RowProblem> {
        let mut members = Map::new();
        for (column, cell) in cells {
            members.insert(column.to_owned(), Value::from(cell));
        }
        if !members.contains_key(FORM_MEMBER) {
            return Ok(Value::Object(members));
        }
        for (column, cell) in &mut members {
            let text = formula_unescaped(cell.as_str().unwrap_or_default()).to_owned();
            *cell = match column.as_str() {
                _ if text.is_empty() => Value::Null,
                "headers" | "payload" => serde_json::from_str(&text)
                    .map_err(|error| RowProblem::Member { column: column.clone(), reason: error.to_string() })?,
                "masked" => Value::Bool(text != "false"),
                "seq" => text.parse::<i64>().map_or(Value::Null, Value::from),
                _ => Value::from(text),
            };
        }
        Ok(Value::Object(members))
    }
}

fn time(members: &Map<String, Value>, name: &str) -> Result<Option<Time>, RowProblem> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(value) => read_time(value).map(Some).ok_or_else(|| RowProblem::Time { column: name.to_owned() }),
    }
}

fn headers(value: Option<Value>) -> Result<Vec<(String, String)>, RowProblem> {
    let invalid = |reason: &str| RowProblem::Member { column: "headers".to_owned(), reason: reason.to_owned() };
    match value {
        None | Some(Value::Null) => Ok(vec![]),
        Some(Value::Object(members)) => members
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name.to_ascii_lowercase(), text)),
                _ => Err(invalid("every value must be text")),
            })
            .collect(),
        Some(_) => Err(invalid("an object is expected")),
    }
}

/// Characters that make a spreadsheet take a cell for a formula, and the one that prevents it.
const FORMULA_START: [char; 7] = ['=', '+', '-', '@', '\t', '\r', '\''];

/// A cell that a spreadsheet does not take for a formula.
pub fn formula_escaped(text: &str) -> Cow<'_, str> {
    match text.starts_with(FORMULA_START) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

/// The text of a cell that [`formula_escaped`] wrote.
pub fn formula_unescaped(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(text) if text.starts_with(FORMULA_START) => text,
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exported() -> Value {
        json!({
            "sluice_export": EVENT_FORM, "flow": "leads", "masked": false, "key": "k", "seq": 7,
            "received_at": "2026-11-15T10:00:00Z", "occurred_at": null,
            "headers": { "X-Id": "a" }, "payload": { "id": 1 },
        })
    }

    fn with(member: &str, value: Value) -> Value {
        let mut row = exported();
        row[member] = value;
        row
    }

    #[test]
    fn an_exported_event_is_read_as_it_was() {
        let row = ImportRow::read(exported(), "leads", None).unwrap();
        let received_at = Time::parse("2026-11-15T10:00:00Z");
        assert_eq!(row.times, RowTimes { occurred_at: None, received_at });
        assert_eq!((row.payload, row.key.as_deref(), row.seq), (json!({ "id": 1 }), Some("k"), Some(7)));
        assert_eq!(row.headers, [("x-id".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn a_payload_is_a_row_of_its_own() {
        let row = |payload: Value, field: Option<&str>| ImportRow::read(payload, "leads", field);
        let found = row(json!({ "id": 1, "occurred_at": 1_700_000_000 }), None).unwrap();
        assert_eq!(found.times.occurred_at, Some(Time(1_700_000_000_000)));
        assert_eq!(row(json!({ "occurred_at": "whenever" }), None).unwrap().times, RowTimes::default());
        assert_eq!(row(json!({ "at": "whenever" }), Some("at")), Err(RowProblem::Time { column: "at".into() }));
        assert_eq!(row(json!([1]), None).unwrap().payload, json!([1]));
    }

    #[test]
    fn rows_that_would_do_harm_are_refused() {
        let code = |row: Value| ImportRow::read(row, "leads", None).map_err(|problem| problem.code()).unwrap_err();
        assert_eq!(code(with("masked", json!(true))), "row-masked");
        assert_eq!(code(with("masked", Value::Null)), "row-masked");
        assert_eq!(code(with("payload", Value::Null)), "payload-missing");
        assert_eq!(code(with("flow", json!("orders"))), "other-flow");
        assert_eq!(code(with("sluice_export", json!("contact/1"))), "form-unknown");
        assert_eq!(code(with("received_at", json!("soon"))), "time-invalid");
        assert_eq!(code(with("headers", json!({ "a": 1 }))), "member-invalid");
        assert_eq!(ImportRow::read(with("headers", json!([])), "leads", None).unwrap_err().column(), Some("headers"));
    }

    #[test]
    fn cells_of_an_export_are_read_back() {
        let cells = [
            ("sluice_export", EVENT_FORM),
            ("masked", "false"),
            ("seq", "7"),
            ("flow", "leads"),
            ("key", "'=k"),
            ("occurred_at", ""),
            ("headers", ""),
            ("payload", r#"{"a":"=1"}"#),
        ];
        let row = ImportRow::read(ImportRow::from_cells(cells).unwrap(), "leads", None).unwrap();
        assert_eq!((row.payload, row.key.as_deref(), row.seq), (json!({ "a": "=1" }), Some("=k"), Some(7)));
        let plain = ImportRow::from_cells([("id", "1"), ("note", "'=1")]).unwrap();
        assert_eq!(plain, json!({ "id": "1", "note": "'=1" }));
        let broken = ImportRow::from_cells([("sluice_export", EVENT_FORM), ("payload", "{")]);
        assert_eq!(broken.unwrap_err().code(), "member-invalid");
    }

    proptest::proptest! {
        #[test]
        fn escaped_cells_are_read_back(text in "[=+@'\\-\ta]{0,4}[a-z=]{0,3}") {
            let cell = formula_escaped(&text);
            proptest::prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']));
            proptest::prop_assert_eq!(formula_unescaped(&cell), text.as_str());
        }
    }
}
