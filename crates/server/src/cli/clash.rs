//! Renders the variants of an event.

use serde_json::Value;

use super::print::{heading, moment, plural};
use super::table::{Cell, Column, Table};
use crate::operate::views::{ChangeView, ClashView};

pub(super) fn render(clash: &ClashView) -> String {
    let mut text = String::new();
    if let Some(first) = &clash.variant_of {
        text.push_str(&heading("Key clash with an earlier event"));
        text.push_str(&format!("First event with this key: sluice events show {first}\n"));
        text.push_str(&changes(&clash.changes, VARIANTS));
    }
    if !clash.variants.is_empty() {
        text.push_str(&heading("Variants under this key"));
    }
    for (place, variant) in clash.variants.iter().enumerate() {
        let became = match &variant.event_id {
            Some(id) => format!("became {id}"),
            None => "stored only".to_owned(),
        };
        let times = plural(variant.times, "time");
        text.push_str(&format!("{}. {}, {times}: {became}\n", place + 1, moment(&variant.received_at)));
        match &variant.changes {
            Some(list) => text.push_str(&changes(list, VARIANTS)),
            None => text.push_str("Its body has been deleted by retention.\n"),
        }
    }
    if clash.further > 0 {
        text.push_str(&format!(
            "{} with further variants, which were not stored.\n",
            plural(clash.further, "more request")
        ));
    }
    text
}

/// Columns of a difference between the first content under a key and another one.
const VARIANTS: [&str; 2] = ["FIRST", "THIS ONE"];

/// Differences, with the headings of both values.
pub(super) fn changes(changes: &[ChangeView], [first, second]: [&'static str; 2]) -> String {
    if changes.is_empty() {
        return "No stored field differs.\n".to_owned();
    }
    let mut table = Table::new([Column::Wrap("FIELD"), Column::Wrap(first), Column::Wrap(second)]);
    let value = |value: &Option<Value>| value.as_ref().map_or("(nothing)".to_owned(), Value::to_string);
    for change in changes {
        table.row([Cell::from(change.path.as_str()), value(&change.before).into(), value(&change.after).into()]);
    }
    table.render()
}
