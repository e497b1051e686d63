//! Overview: what needs a person, jobs by state, destinations.

use axum::response::Response;

use super::endpoints::destination_table;
use super::page::{Block, Cell, Row, Table, Tile, TileGroup};
use super::visit::{Failure, Visit};
use crate::operate::views::Status;

pub(super) async fn page(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Overview", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let status = visit.operator.status().await?;
    let mut blocks = vec![Block::Heading("Needs you".into()), Block::Table(needs_you(&status))];
    blocks.push(Block::Heading("Jobs".into()));
    blocks.push(Block::Tiles(state_map(&status)));
    if !status.waiting.is_empty() {
        blocks.push(Block::Heading("Why jobs wait".into()));
        blocks.push(Block::Table(waiting(&status)));
    }
    blocks.push(Block::Heading("Destinations".into()));
    blocks.push(Block::Table(destination_table(visit).await?));
    if status.events == 0 {
        let intake = if status.intake.is_empty() { "127.0.0.1:8080" } else { &status.intake };
        blocks.push(Block::Heading("Send a first event".into()));
        blocks.push(Block::Code(
            "Command".into(),
            format!("sluice send FLOW payload.json\n# or post to http://{intake}"),
        ));
    }
    blocks.push(Block::Twin(
        "sluice status".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/status".into(),
    ));
    Ok(blocks)
}

fn needs_you(status: &Status) -> Table {
    let count = |state: &str| status.jobs.get(state).copied().unwrap_or_default();
    let mut rows = vec![];
    let mut add = |count: u64, href: &str, what: String| {
        if count > 0 {
            rows.push(Row {
                mark: String::new(),
                cells: vec![Cell::Count(href.into(), count), Cell::Link(href.into(), what)],
            });
        }
    };
    add(count("dead"), "/dead-letters", "dead letters: fix the cause, then replay or drop them".into());
    add(count("unknown"), "/unknown", "unknown outcomes: say whether the effect happened".into());
    add(status.approvals_pending, "/approvals", "approvals wait for a decision".into());
    for warning in &status.warnings {
        add(1, "/node", format!("{}: {}", warning.message, warning.action));
    }
    Table {
        caption: "What needs a person".into(),
        columns: vec!["Count", "What"],
        rows,
        empty: "Nothing waits for you.".into(),
        ..Table::default()
    }
}

fn state_map(status: &Status) -> Vec<TileGroup> {
    let tile = |state: &str| Tile {
        state: state.to_owned(),
        count: status.jobs.get(state).copied().unwrap_or_default(),
        href: match state {
            "dead" => "/dead-letters".to_owned(),
            "unknown" => "/unknown".to_owned(),
            state => format!("/jobs?state={state}"),
        },
    };
    let group = |label, states: &[&str]| TileGroup { label, tiles: states.iter().map(|state| tile(state)).collect() };
    vec![
        group("Pending", &["queued", "running", "retrying", "waiting"]),
        group("Parked for a person", &["dead", "unknown"]),
        group("Over", &["succeeded", "noop", "dropped"]),
    ]
}

fn waiting(status: &Status) -> Table {
    let row = |waiting: &crate::operate::views::WaitingView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Number(waiting.jobs),
            Cell::Text(waiting.wait.message.clone()),
            waiting.wait.until.clone().map_or_else(|| Cell::Text("not known".into()), Cell::Time),
        ],
    };
    Table {
        caption: "Jobs that do not run, by reason".into(),
        columns: vec!["Jobs", "Reason", "Until"],
        rows: status.waiting.iter().map(row).collect(),
        ..Table::default()
    }
}
