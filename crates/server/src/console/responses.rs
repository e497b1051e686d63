//! Response clocks: events that a person or a message must answer in time.

use axum::response::Response;

use super::events::PAGE_ROWS;
use super::page::{Block, Cell, More, Row, Table};
use super::visit::{Failure, Visit};
use crate::operate::views::ResponseView;

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Response clocks", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let after = query.option("after").and_then(|after| after.parse().ok());
    let found = visit.operator.responses(after, PAGE_ROWS).await?;
    let row = |clock: &ResponseView| Row {
        mark: clock.event.clone(),
        cells: vec![
            Cell::Id(format!("/events/{}", clock.event), clock.event.clone()),
            Cell::Text(clock.state.replace('_', " ")),
            Cell::Text(clock.flow.clone()),
            Cell::Id(format!("/jobs/{}", clock.job), clock.job.clone()),
            Cell::Text(clock.step.clone().unwrap_or_else(|| "the whole job".into())),
            Cell::Time(clock.received_at.clone()),
            Cell::Time(clock.deadline.clone()),
        ],
    };
    let table = Table {
        caption: "Response clocks that run, newest event first".into(),
        columns: vec!["Event", "State", "Flow", "Job that answers", "Step", "Received", "Deadline"],
        rows: found.items.iter().map(row).collect(),
        empty: "No event waits for a response. A flow sets the time with `respond_within`.".into(),
        more: More::of(&found, "/responses", query),
        bulk: None,
    };
    let twin = Block::Twin(
        "sluice responses".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/responses".into(),
    );
    Ok(vec![Block::Table(table), twin])
}
