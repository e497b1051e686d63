//! Key clashes: other content under the key of an event, field by field.

use serde_json::Value;
use sluice_domain::diff::{FieldChange, diff};
use sluice_domain::mask;
use sluice_ledger::{EventBody, EventRecord};

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{ChangeView, ClashView, VariantView};

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
        .map(|change| match revealed {
            true => ChangeView { path: change.path, before: change.before, after: change.after },
            false => masked_change(change),
        })
        .collect()
}

pub(in crate::operate) fn masked_change(change: FieldChange) -> ChangeView {
    let FieldChange { path, before, after } = change;
    let shown = |value: Option<Value>| value.map(|value| masked(&path, value));
    ChangeView { before: shown(before), after: shown(after), path: path.clone() }
}

/// Path segments decide whether a value is masked completely.
fn masked(path: &str, value: Value) -> Value {
    let named = Value::Object([(path.to_owned(), value)].into_iter().collect());
    mask::value(&named).get(path).cloned().unwrap_or_default()
}
