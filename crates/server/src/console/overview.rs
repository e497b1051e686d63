//! Overview: what needs a person, what happens over time, jobs by state, north stars, destinations.

use axum::response::Response;

use super::chart::Unit;
use super::endpoints::destination_table;
use super::measures::Charts;
use super::page::{Block, Cell, Row, Table, Tile, TileGroup};
use super::state_map::{StateMap, list_of};
use super::visit::{Failure, Visit};
use crate::operate::views::{AlertView, Status, WaitingView};

pub(super) async fn page(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Overview", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let status = visit.operator.status().await?;
    let alerts = visit.operator.alerts().await?;
    let mut blocks = vec![Block::Heading("Needs you".into()), Block::Table(needs_you(&status, &alerts))];
    if status.events == 0 {
        let intake = if status.intake.is_empty() { "127.0.0.1:8080" } else { &status.intake };
        blocks.push(Block::Heading("Send a first event".into()));
        blocks.push(Block::Code(
            "Command".into(),
            format!("sluice send FLOW payload.json\n# or post to http://{intake}"),
        ));
    }
    blocks.push(Block::Heading("What happened".into()));
    blocks.extend(charts(visit).await?);
    blocks.push(Block::Heading("Jobs now".into()));
    blocks.push(Block::States(StateMap::counts(&status.jobs)));
    blocks.push(Block::Tiles(tiles(&status)));
    if !status.waiting.is_empty() {
        blocks.push(Block::Heading("Why jobs wait".into()));
        blocks.push(Block::Table(waiting_table(&status.waiting)));
    }
    let stars = north_stars(visit).await?;
    if !stars.is_empty() {
        blocks.push(Block::Heading("North stars".into()));
        blocks.push(Block::Stars(stars));
    }
    if !status.responses.is_empty() {
        blocks.push(Block::Heading("Response clocks".into()));
        blocks.push(Block::Table(response_counts(&status)));
    }
    blocks.push(Block::Heading("Destinations".into()));
    blocks.push(Block::Table(destination_table(visit).await?));
    blocks.push(Block::Twin(
        "sluice status".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/status\ncurl -H \"Authorization: Bearer $TOKEN\" \"$NODE/api/v1/series?measure=accepted&by=source\"".into(),
    ));
    Ok(blocks)
}

async fn charts(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let mut charts = Charts::begin(visit).await?;
    charts.requests(None).await?;
    charts.effects(None).await?;
    charts.ended_jobs().await?;
    charts.latency("From request to effect", "effect_seconds", None).await?;
    charts.calls(None).await?;
    charts.dead_letters().await?;
    Ok(charts.end())
}

fn needs_you(status: &Status, alerts: &[AlertView]) -> Table {
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
    let in_state =
        |state: &str| status.responses.iter().filter(|count| count.state == state).map(|count| count.count).sum();
    add(in_state("late"), "/responses", "responses are late".into());
    add(in_state("at_risk"), "/responses", "responses are about to be late".into());
    let firing = alerts.iter().filter(|alert| alert.state == "firing" && alert.acknowledged_by.is_none());
    add(firing.count() as u64, "/alerts", "alerts that no person has acknowledged".into());
    for warning in &status.warnings {
        let href = if warning.code.starts_with("config") { "/configuration" } else { "/node" };
        add(1, href, format!("{}: {}", warning.message, warning.action));
    }
    Table {
        caption: "What needs a person".into(),
        columns: vec!["Count", "What"],
        rows,
        empty: "Nothing waits for you.".into(),
        ..Table::default()
    }
}

fn tiles(status: &Status) -> Vec<TileGroup> {
    let tile = |state: &str| Tile {
        state: state.to_owned(),
        count: status.jobs.get(state).copied().unwrap_or_default(),
        href: list_of(state),
    };
    let group = |label, states: &[&str]| TileGroup { label, tiles: states.iter().map(|state| tile(state)).collect() };
    vec![
        group("Pending", &["queued", "running", "retrying", "waiting"]),
        group("Parked for a person", &["dead", "unknown"]),
        group("Over", &["succeeded", "noop", "dropped"]),
    ]
}

/// Jobs that do not run, by reason.
pub(super) fn waiting_table<'a>(waiting: impl IntoIterator<Item = &'a WaitingView>) -> Table {
    let row = |waiting: &WaitingView| Row {
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
        rows: waiting.into_iter().map(row).collect(),
        empty: "No job waits.".into(),
        ..Table::default()
    }
}

async fn north_stars(visit: &Visit) -> Result<Vec<(&'static str, String, &'static str)>, Failure> {
    let stars = visit.operator.north_stars().await?;
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let seconds = |value: f64| Unit::Seconds.text(value);
    let all = [
        (
            "Effects safe to repeat",
            stars.idempotent_effects.map(percent),
            "of those applied in 24 hours: a second call would not apply them twice",
        ),
        ("Replays that succeeded", stars.replay_success.map(percent), "of the jobs replayed in 24 hours"),
        ("Request to effect, p95", stars.intake_to_effect_p95.map(seconds), "in 24 hours"),
        (
            "Duplicates",
            stars.duplicates_per_10000.map(|count| format!("{count:.0}")),
            "per 10,000 requests in 7 days, each recognised",
        ),
        ("Trouble to notice, p95", stars.time_to_first_signal_p95.map(seconds), "in 7 days"),
    ];
    Ok(all.into_iter().filter_map(|(label, value, about)| Some((label, value?, about))).collect())
}

fn response_counts(status: &Status) -> Table {
    let row = |count: &crate::operate::views::ResponseCountView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Text(count.flow.clone()),
            Cell::Text(count.state.replace('_', " ")),
            Cell::Count("/responses".into(), count.count),
        ],
    };
    Table {
        caption: "Response clocks that run".into(),
        columns: vec!["Flow", "State", "Events"],
        rows: status.responses.iter().map(row).collect(),
        ..Table::default()
    }
}
