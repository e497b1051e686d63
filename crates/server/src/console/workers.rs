//! Queues, workers and flows: what waits where, what runs it, and where it comes from.

use std::collections::BTreeMap;

use axum::response::Response;

use super::endpoints::pause_acts;
use super::measures::Charts;
use super::page::{Block, Cell, Field, Row, Table, query_value};
use super::visit::{Failure, Visit};
use crate::operate::views::{SourceView, WorkerView};

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Queues, workers and flows", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let workers = visit.operator.workers().await?;
    let mut blocks = vec![
        Block::Heading("Workers".into()),
        Block::Table(worker_table(visit, &workers).await?),
        Block::Heading("Queues".into()),
        Block::Table(queue_table(visit, &workers).await?),
        Block::Heading("What happened".into()),
    ];
    let mut charts = Charts::begin(visit).await?;
    charts.live_jobs().await?;
    charts.latency("From accepting to the first run", "queue_seconds", None).await?;
    charts.ended_jobs().await?;
    charts.dead_letters().await?;
    blocks.extend(charts.end());
    blocks.push(Block::Heading("Flows".into()));
    blocks.push(Block::Table(flow_table(&visit.operator.sources().await?)));
    blocks.push(Block::Twin(
        "sluice status; sluice pause worker:NAME --reason WHY; sluice safe-mode on --worker NAME --reason WHY".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/workers".into(),
    ));
    Ok(blocks)
}

async fn worker_table(visit: &Visit, workers: &[WorkerView]) -> Result<Table, Failure> {
    let modes = visit.operator.safe_modes().await?.into_iter();
    let safe: BTreeMap<String, String> = modes.map(|mode| (mode.worker.unwrap_or_default(), mode.until)).collect();
    let row = |worker: &WorkerView| {
        let link = |state: &str, count| {
            Cell::Count(format!("/jobs?worker={}&state={state}", query_value(&worker.name)), count)
        };
        let count = |state: &str| worker.jobs.get(state).copied().unwrap_or_default();
        let target = format!("worker:{}", worker.name);
        let mut acts = pause_acts(visit, &target, worker.paused, "/workers");
        let is_safe = safe.contains_key(&worker.name);
        let label = if is_safe { "End safe mode" } else { "Safe mode" };
        let on = if is_safe { "no" } else { "yes" };
        acts.push(visit.act("/safe-mode", label).with("worker", &*worker.name).with("on", on).asking(Field::reason()));
        let state = match (worker.paused, is_safe) {
            (true, true) => "paused, safe mode",
            (true, false) => "paused",
            (false, true) => "safe mode",
            (false, false) => "runs",
        };
        Row {
            mark: worker.name.clone(),
            cells: vec![
                Cell::Text(worker.name.clone()),
                Cell::Text(worker.queue.clone()),
                Cell::Text(worker.steps.join(", ")),
                link("queued", count("queued")),
                link("running", count("running")),
                link("retrying", count("retrying")),
                link("waiting", count("waiting")),
                link("dead", count("dead")),
                worker.oldest_at.clone().map_or_else(|| Cell::Text(String::new()), Cell::Time),
                Cell::Text(state.into()),
                Cell::Acts(acts),
            ],
        }
    };
    Ok(Table {
        caption: "Workers with their jobs".into(),
        columns: vec![
            "Worker",
            "Queue",
            "Steps",
            "Queued",
            "Running",
            "Retrying",
            "Waiting",
            "Dead",
            "Oldest live job",
            "State",
            "Act",
        ],
        rows: workers.iter().map(row).collect(),
        empty: "The configuration has no workers.".into(),
        ..Table::default()
    })
}

/// Jobs of all workers of a queue.
async fn queue_table(visit: &Visit, workers: &[WorkerView]) -> Result<Table, Failure> {
    let paused: Vec<String> = visit.operator.pauses().await?.into_iter().map(|pause| pause.target).collect();
    let mut queues: BTreeMap<&str, Vec<&WorkerView>> = BTreeMap::new();
    for worker in workers {
        queues.entry(&worker.queue).or_default().push(worker);
    }
    let row = |(queue, workers): (&str, Vec<&WorkerView>)| {
        let count = |states: &[&str]| -> u64 {
            let states = states.iter().flat_map(|state| workers.iter().filter_map(|worker| worker.jobs.get(*state)));
            states.sum()
        };
        let link = |states: &[&str]| {
            Cell::Count(format!("/jobs?queue={}&state={}", query_value(queue), states.join("%2C")), count(states))
        };
        let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
        let oldest = workers.iter().filter_map(|worker| worker.oldest_at.clone()).min();
        let target = format!("queue:{queue}");
        let is_paused = paused.contains(&target);
        Row {
            mark: queue.to_owned(),
            cells: vec![
                Cell::Text(queue.to_owned()),
                Cell::Text(names.join(", ")),
                link(&["queued", "running", "retrying", "waiting"]),
                link(&["dead", "unknown"]),
                oldest.map_or_else(|| Cell::Text(String::new()), Cell::Time),
                Cell::Text(if is_paused { "paused".into() } else { "open".into() }),
                Cell::Acts(pause_acts(visit, &target, is_paused, "/workers")),
            ],
        }
    };
    Ok(Table {
        caption: "Queues".into(),
        columns: vec!["Queue", "Workers", "Live", "Dead or unknown", "Oldest live job", "State", "Act"],
        rows: queues.into_iter().map(row).collect(),
        empty: "The configuration has no queues.".into(),
        ..Table::default()
    })
}

fn flow_table(sources: &[SourceView]) -> Table {
    let rows = sources.iter().flat_map(|source| {
        source.flows.iter().map(|flow| Row {
            mark: flow.name.clone(),
            cells: vec![
                Cell::Text(flow.name.clone()),
                Cell::Link(format!("/sources/{}", query_value(&source.name)), source.name.clone()),
                Cell::Code(flow.route.clone()),
                Cell::Text(if flow.open { "nothing: every caller is accepted".into() } else { flow.verify.clone() }),
            ],
        })
    });
    Table {
        caption: "Flows".into(),
        columns: vec!["Flow", "Source", "Route", "Verified by"],
        rows: rows.collect(),
        empty: "The configuration has no flows.".into(),
        ..Table::default()
    }
}
