//! What else came under an event's key, field by field.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::diff::{FieldChange, diff};
use sluice_domain::mask;
use sluice_ledger::{EventBody, EventRecord};
use utoipa::ToSchema;

use super::operator::{OperateError, Operator};

/// What else came under an event's key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ClashView {
    /// The event that had the key first, if this is one of the others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant_of: Option<String>,
    /// What this says differently from the first.
    #[serde(default)]
    pub changes: Vec<ChangeView>,
    /// The other contents that came under the key of this event.
    #[serde(default)]
    pub variants: Vec<VariantView>,
    /// Requests with yet other contents, which were counted and not kept.
    #[serde(default)]
    pub further: u64,
}

/// Another content under the key of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VariantView {
    /// When it came first.
    pub received_at: String,
    /// How often it came.
    pub times: u64,
    /// The event that it became; absent if it was only kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// What it says differently from the first; absent once either body is past its retention.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changes: Option<Vec<ChangeView>>,
}

/// One place at which two contents differ.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Where: `contact.emails[0]`.
    pub path: String,
    /// What the first says, masked unless revealed; absent if it says nothing there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// What the other says, masked unless revealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

impl Operator {
    pub(super) async fn clash(
        &self,
        event: &EventRecord,
        body: Option<&EventBody>,
        revealed: bool,
    ) -> Result<Option<ClashView>, OperateError> {
        let variants = self.ledger.variants(event.seq).await?;
        let became: Vec<i64> = variants.kept.iter().filter_map(|variant| variant.event).collect();
        let events = self.ledger.events(became.into_iter().chain(event.variant_of).collect()).await?;
        let find = |ord: i64| events.iter().find(|(other, _)| other.seq == ord);
        let changed = |first: Option<&EventBody>, other: Option<&EventBody>| Some(changes(first?, other?, revealed));
        let mut clash = ClashView { further: variants.further, ..ClashView::default() };
        if let Some((first, first_body)) = event.variant_of.and_then(find) {
            clash.variant_of = Some(first.id.to_string());
            clash.changes = changed(first_body.as_ref(), body).unwrap_or_default();
        }
        for variant in &variants.kept {
            let event_of = variant.event.and_then(find);
            let other = variant.body.as_ref().or(event_of.and_then(|(_, body)| body.as_ref()));
            clash.variants.push(VariantView {
                received_at: variant.received_at.to_string(),
                times: variant.times,
                event_id: event_of.map(|(event, _)| event.id.to_string()),
                changes: changed(body, other),
            });
        }
        let is_clash = clash.variant_of.is_some() || !clash.variants.is_empty() || clash.further > 0;
        Ok(is_clash.then_some(clash))
    }
}

fn changes(first: &EventBody, other: &EventBody, revealed: bool) -> Vec<ChangeView> {
    let read = |body: &EventBody| {
        serde_json::from_slice(&body.raw)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body.raw).into_owned()))
    };
    diff(&read(first), &read(other))
        .into_iter()
        .map(|FieldChange { path, before, after }| {
            let shown = |value: Option<Value>| if revealed { value } else { value.map(|value| masked(&path, value)) };
            ChangeView { before: shown(before), after: shown(after), path: path.clone() }
        })
        .collect()
}

/// The names on the way to a value decide whether it is covered altogether.
fn masked(path: &str, value: Value) -> Value {
    let named = Value::Object([(path.to_owned(), value)].into_iter().collect());
    mask::value(&named).get(path).cloned().unwrap_or_default()
}
