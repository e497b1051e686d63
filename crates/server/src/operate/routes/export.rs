//! Lists as CSV or NDJSON, if the caller accepts that rather than JSON.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use sluice_domain::import::formula_escaped;

use super::problem;

/// Longest list that is converted, in bytes of JSON.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Cursor of the next page, for `after`.
const NEXT: HeaderName = HeaderName::from_static("sluice-next");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Csv,
    Lines,
}

impl Form {
    /// The first media type that the caller names decides.
    pub(super) fn wanted(headers: &HeaderMap) -> Option<Form> {
        let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
        match accept.split([',', ';']).next()?.trim() {
            "text/csv" => Some(Form::Csv),
            "application/x-ndjson" => Some(Form::Lines),
            _ => None,
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Form::Csv => "text/csv; charset=utf-8; header=present",
            Form::Lines => "application/x-ndjson",
        }
    }
}

/// Converts the list of a successful response. Other responses stay as they are.
pub(super) async fn convert(request: Request, next: Next) -> Response {
    let wanted = Form::wanted(request.headers()).filter(|_| request.method().is_safe());
    let response = next.run(request).await;
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let Some(form) = wanted.filter(|_| is_json && response.status() == StatusCode::OK) else { return response };
    let Ok(bytes) = axum::body::to_bytes(response.into_body(), LIST_BYTES_MAX).await else {
        return problem(StatusCode::PAYLOAD_TOO_LARGE, "list-too-long", "the list is too long; set a smaller limit");
    };
    match serde_json::from_slice::<Value>(&bytes).ok().and_then(rows_of) {
        Some((rows, cursor)) => exported(form, &rows, cursor.as_deref()),
        None => {
            let detail = "this response is not a list; accept application/json";
            problem(StatusCode::NOT_ACCEPTABLE, "not-a-list", detail)
        }
    }
}

/// Rows of a list, and the cursor of the next page.
fn rows_of(value: Value) -> Option<(Vec<Value>, Option<String>)> {
    match value {
        Value::Array(rows) => Some((rows, None)),
        Value::Object(mut members) => {
            let cursor = members.get("next").and_then(Value::as_str).map(str::to_owned);
            match members.remove("items")? {
                Value::Array(rows) => Some((rows, cursor)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn exported(form: Form, rows: &[Value], cursor: Option<&str>) -> Response {
    let text = match form {
        Form::Lines => rows.iter().map(|row| format!("{row}\n")).collect(),
        Form::Csv => csv(rows),
    };
    let mut response = ([(header::CONTENT_TYPE, form.media_type())], Body::from(text)).into_response();
    if let Some(cursor) = cursor.and_then(|cursor| HeaderValue::from_str(cursor).ok()) {
        response.headers_mut().insert(NEXT, cursor);
    }
    response
}

/// One line per row; the columns are those of all rows, in the order in which they occur.
fn csv(rows: &[Value]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys()) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let line = |cells: Vec<String>| format!("{}\r\n", cells.join(","));
    let mut text = line(columns.iter().map(|name| cell(&Value::from(*name))).collect());
    for row in rows {
        text.push_str(&line(columns.iter().map(|name| cell(row.get(name).unwrap_or(&Value::Null))).collect()));
    }
    text
}

/// A text that a spreadsheet would take for a formula gets a leading apostrophe, which an import takes away again.
pub(super) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => formula_escaped(text).into_owned(),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn csv_has_the_columns_of_all_rows_and_no_formula() {
        let rows =
            [json!({ "id": "a", "n": -1 }), json!({ "id": "=cmd|'/c calc'!A1", "note": "x,\"y\"", "jobs": [1, 2] })];
        assert_eq!(csv(&rows), "id,n,note,jobs\r\na,-1,,\r\n'=cmd|'/c calc'!A1,,\"x,\"\"y\"\"\",\"[1,2]\"\r\n");
    }

    #[test]
    fn first_accepted_type_decides() {
        let wanted = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            Form::wanted(&headers)
        };
        assert_eq!(wanted("text/csv"), Some(Form::Csv));
        assert_eq!(wanted("application/x-ndjson;q=1, */*"), Some(Form::Lines));
        assert_eq!(wanted("application/json, text/csv"), None);
    }

    #[test]
    fn list_and_page_are_rows_and_an_object_is_not() {
        assert_eq!(rows_of(json!([1])), Some((vec![json!(1)], None)));
        assert_eq!(rows_of(json!({ "items": [], "next": "evt_1" })), Some((vec![], Some("evt_1".into()))));
        assert_eq!(rows_of(json!({ "events": 1 })), None);
    }
}
