//! The learned shape of the payloads of a source.

use serde::{Deserialize, Serialize};
use sluice_domain::drift::{FieldShape, LEARNED_AFTER, Notice, Shape};
use sluice_domain::flow::Flow;
use sluice_domain::mask;
use sluice_ledger::ShapeRecord;
use utoipa::ToSchema;

/// Shape of the payloads of one type of event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShapeView {
    pub event_type: String,
    /// Requests that it was learned from.
    pub samples: u64,
    /// Requests after which departures are noticed.
    pub learned_after: u64,
    pub fields: Vec<ShapeFieldView>,
    /// Departures that no operator has accepted, oldest first.
    pub notices: Vec<NoticeView>,
    /// Fields and departures beyond the limits.
    pub left_out: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShapeFieldView {
    /// Such as `customer.email` or `items[].sku`; `*` stands for names that are data.
    pub path: String,
    /// Such as `text` or `text or number`.
    pub types: String,
    /// Share of the requests that had it, in percent.
    pub percent: f64,
    /// Values that come often, if there are only a few. Never those of a person.
    pub values: Vec<String>,
    /// `new` or `vanished`; absent for a usual field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<String>,
    /// Whether the schema, the key or the mapping of a flow reads it.
    pub used: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NoticeView {
    pub path: String,
    /// appeared, vanished or retyped.
    pub kind: String,
    /// As a sentence.
    pub text: String,
    /// Masked; absent for a vanished field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub example: Option<String>,
    /// Arrival of the request that raised it.
    pub at: String,
}

impl ShapeView {
    pub(in crate::operate) fn new(record: &ShapeRecord, flows: &[&Flow]) -> ShapeView {
        let Shape { samples, fields, notices, left_out, .. } = &record.shape;
        ShapeView {
            event_type: mask::text(&record.event_type).into_owned(),
            samples: *samples,
            learned_after: LEARNED_AFTER,
            fields: fields.iter().map(|(path, field)| ShapeFieldView::new(path, field, flows)).collect(),
            notices: notices.iter().map(NoticeView::new).collect(),
            left_out: *left_out,
        }
    }
}

impl ShapeFieldView {
    fn new(path: &str, field: &FieldShape, flows: &[&Flow]) -> ShapeFieldView {
        let member = path.split(['.', '[']).next().unwrap_or_default();
        let reads = |flow: &&Flow| flow.admission.known_fields.as_ref().is_none_or(|known| known.contains(member));
        let state = match (field.is_new, field.is_vanished) {
            (_, true) => Some("vanished"),
            (true, false) => Some("new"),
            (false, false) => None,
        };
        ShapeFieldView {
            path: mask::text(path).into_owned(),
            types: field.types.to_string(),
            percent: (field.rate() * 1_000.0).round() / 10.0,
            values: field.typical_values().into_iter().map(|value| mask::text(value).into_owned()).collect(),
            state: state.map(str::to_owned),
            used: flows.iter().any(reads),
        }
    }
}

impl NoticeView {
    fn new(notice: &Notice) -> NoticeView {
        NoticeView {
            path: mask::text(&notice.path).into_owned(),
            kind: notice.kind.as_str().to_owned(),
            text: notice.to_string(),
            example: Some(notice.example.clone()).filter(|example| !example.is_empty()),
            at: notice.at.to_string(),
        }
    }
}
