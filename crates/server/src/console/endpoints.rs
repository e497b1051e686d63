//! Sources and destinations; pause, resume and safe mode.

use axum::response::Response;
use sluice_domain::access::own_path;
use sluice_domain::unit::grouped;

use super::page::{Act, Block, Cell, Field, Row, Table, query_value};
use super::svg::Gate;
use super::visit::{Failure, Sent, Visit};
use crate::operate::SafeModeRequest;
use crate::operate::views::{DestinationView, SourceView};

/// Forms that pause a target, or end its pause.
pub(super) fn pause_acts(visit: &Visit, target: &str, is_paused: bool, back: &str) -> Vec<Act> {
    let act = match is_paused {
        true => visit.act("/resume", "Resume"),
        false => visit.act("/pause", "Pause"),
    };
    let field = if is_paused { Field { required: false, ..Field::reason() } } else { Field::reason() };
    vec![act.with("target", target).with("next", back).asking(field)]
}

pub(super) async fn sources(visit: Visit) -> Response {
    let blocks = visit.operator.sources().await.map_err(Failure::from).map(|sources| {
        let rows = sources.iter().map(|source| source_row(&visit, source)).collect();
        let table = Table {
            caption: "Sources, last 7 days".into(),
            columns: vec![
                "Source",
                "Flows",
                "Accepted",
                "Duplicates",
                "Key clashes",
                "Rejected, last day",
                "State",
                "Act",
            ],
            rows,
            empty: "The configuration has no flows.".into(),
            ..Table::default()
        };
        vec![
            Block::Table(table),
            Block::Twin(
                "sluice sources".into(),
                "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/sources".into(),
            ),
        ]
    });
    visit.show("Sources", blocks).await
}

fn source_row(visit: &Visit, source: &SourceView) -> Row {
    let flows: Vec<&str> = source.flows.iter().map(|flow| flow.name.as_str()).collect();
    let target = format!("source:{}", source.name);
    Row {
        mark: source.name.clone(),
        cells: vec![
            Cell::Link(format!("/sources/{}", query_value(&source.name)), source.name.clone()),
            Cell::Text(flows.join(", ")),
            Cell::Count(format!("/events?source={}", query_value(&source.name)), source.accepted),
            Cell::Number(source.duplicates),
            Cell::Number(source.clashes),
            Cell::Number(source.refused.values().sum()),
            Cell::Text(if source.paused { "paused".into() } else { "open".into() }),
            Cell::Acts(pause_acts(visit, &target, source.paused, "/sources")),
        ],
    }
}

pub(super) async fn destinations(visit: Visit) -> Response {
    let blocks = destination_table(&visit).await.map(|table| {
        vec![
            Block::Text("The bar is the gate: calls in flight, those allowed now, and the configured maximum.".into()),
            Block::Table(table),
            Block::Twin(
                "sluice destinations".into(),
                "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/destinations".into(),
            ),
        ]
    });
    visit.show("Destinations", blocks).await
}

pub(super) async fn destination_table(visit: &Visit) -> Result<Table, Failure> {
    let destinations = visit.operator.destinations().await?;
    let paused: Vec<String> = visit.operator.pauses().await?.into_iter().map(|pause| pause.target).collect();
    let row = |destination: &DestinationView| {
        let gate = destination.gate.clone().unwrap_or_default();
        let word = |name: &str| gate.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let target = format!("destination:{}", destination.name);
        let is_paused = paused.contains(&target);
        let held = match (word("paused").as_str(), word("open_until"), word("not_before")) {
            ("auth", ..) => Cell::Text("paused: it rejected the credentials".into()),
            ("", until, _) if !until.is_empty() => Cell::Time(until),
            ("", _, until) if !until.is_empty() => Cell::Time(until),
            ("", ..) => Cell::Text(String::new()),
            _ => Cell::Text("paused by an operator".into()),
        };
        let breaker = word("breaker");
        Row {
            mark: destination.name.clone(),
            cells: vec![
                Cell::Link(format!("/destinations/{}", query_value(&destination.name)), destination.name.clone()),
                Cell::Text(destination.kind.clone()),
                Cell::Text(if breaker.is_empty() { "not used yet".into() } else { breaker }),
                Cell::Gate(Gate::new(&gate)),
                held,
                Cell::Text(budget(&gate).unwrap_or_default()),
                Cell::Acts(pause_acts(visit, &target, is_paused, "/destinations")),
            ],
        }
    };
    Ok(Table {
        caption: "Destinations".into(),
        columns: vec!["Destination", "Type", "Breaker", "Gate", "Held back until", "Budget", "Act"],
        rows: destinations.iter().map(row).collect(),
        empty: "The configuration has no destinations.".into(),
        ..Table::default()
    })
}

/// `8,400 of 10,000 calls; runs out at 2026-11-18T17:20:00Z`.
fn budget(gate: &serde_json::Value) -> Option<String> {
    let budget = gate.get("budget")?;
    let (used, limit) = (budget.get("used")?.as_u64()?, budget.get("limit")?.as_u64()?);
    let calls = format!("{} of {} calls", grouped(used), grouped(limit));
    let time = |name: &str| budget.get(name).and_then(serde_json::Value::as_str);
    Some(match (budget.get("left").and_then(serde_json::Value::as_u64), time("runs_out_at"), time("resets_at")) {
        (Some(0), _, Some(resets)) => format!("{calls}; none are left until {resets}"),
        (_, Some(runs_out), _) => format!("{calls}; runs out at {runs_out}"),
        _ => calls,
    })
}

/// The page that a form came from; it is one of ours.
fn back(sent: &Sent) -> String {
    match sent.form.get("next") {
        "" => "/workers",
        next => own_path(next),
    }
    .to_owned()
}

pub(super) async fn pause(sent: Sent) -> Response {
    let paused = sent.visit.operator.pause(sent.form.get("target"), "", sent.form.get("reason")).await;
    sent.visit.done(paused.map(|()| back(&sent)).map_err(Failure::from)).await
}

pub(super) async fn resume(sent: Sent) -> Response {
    let resumed = sent.visit.operator.resume(sent.form.get("target"), "", sent.form.get("reason")).await;
    sent.visit.done(resumed.map(|()| back(&sent)).map_err(Failure::from)).await
}

pub(super) async fn safe_mode(sent: Sent) -> Response {
    let request = SafeModeRequest {
        on: sent.form.get("on") == "yes",
        worker: sent.form.option("worker"),
        r#for: None,
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let set = sent.visit.operator.set_safe_mode(request).await;
    sent.visit.done(set.map(|()| back(&sent)).map_err(Failure::from)).await
}
