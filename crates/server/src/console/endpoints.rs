//! Sources, destinations and workers; pause, resume and safe mode.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;

use super::page::{Act, Block, Cell, Field, Row, Table, query_value};
use super::svg::Gate;
use super::visit::{Failure, Sent, Visit};
use crate::operate::SafeModeRequest;
use crate::operate::views::{DestinationView, SourceView, WorkerView};

/// Forms that pause a target, or end its pause.
fn pause_acts(visit: &Visit, target: &str, is_paused: bool, back: &str) -> Vec<Act> {
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

pub(super) async fn source(visit: Visit, Path(name): Path<String>) -> Response {
    let blocks = source_blocks(&visit, &name).await;
    visit.show(&format!("Source {name}"), blocks).await
}

async fn source_blocks(visit: &Visit, name: &str) -> Result<Vec<Block>, Failure> {
    let detail = visit.operator.source(name).await?;
    let source = &detail.source;
    let optional = |value: &Option<String>| Cell::Text(value.clone().unwrap_or_else(|| "not known".into()));
    let facts = vec![
        ("Accepted, 7 days".to_owned(), Cell::Number(source.accepted)),
        ("Duplicates, 7 days".to_owned(), Cell::Number(source.duplicates)),
        ("Duplicates in all".to_owned(), Cell::Number(detail.keys.duplicates)),
        ("After the key expired".to_owned(), Cell::Number(detail.keys.after_expiry)),
        ("Delay of duplicates, median".to_owned(), optional(&detail.keys.p50)),
        ("Delay, 99.9 %".to_owned(), optional(&detail.keys.p999)),
        ("Key lifetime that covers 99.9 %".to_owned(), optional(&detail.keys.lifetime_wanted)),
    ];
    let plain = |cells: Vec<Cell>| Row { mark: String::new(), cells };
    let flows = source.flows.iter().map(|flow| {
        plain(vec![Cell::Text(flow.name.clone()), Cell::Code(flow.route.clone()), Cell::Text(flow.verify.clone())])
    });
    let refusals = source.refusals.iter().map(|refusal| {
        plain(vec![
            Cell::Code(refusal.code.clone()),
            Cell::Text(refusal.address.clone()),
            Cell::Text(refusal.detail.clone()),
            Cell::Time(refusal.at.clone()),
        ])
    });
    let lifetimes = detail.keys.lifetimes.iter().map(|lifetime| {
        plain(vec![
            Cell::Text(lifetime.flow.clone()),
            Cell::Text(lifetime.lifetime.clone()),
            Cell::Text(lifetime.advice.clone()),
        ])
    });
    let table = |caption: &str, columns: Vec<&'static str>, rows: Vec<Row>, empty: &str| {
        Block::Table(Table { caption: caption.into(), columns, rows, empty: empty.into(), ..Table::default() })
    };
    Ok(vec![
        Block::Facts(facts),
        Block::Heading("Flows".into()),
        table("Flows", vec!["Flow", "Route", "Verified by"], flows.collect(), ""),
        Block::Heading("Key lifetimes".into()),
        table("Key lifetimes", vec!["Flow", "Lifetime", "Advice"], lifetimes.collect(), "No flow has a key lifetime."),
        Block::Heading("Rejected requests".into()),
        table(
            "Rejected requests",
            vec!["Code", "Address", "Detail", "At"],
            refusals.collect(),
            "No request was rejected lately.",
        ),
        Block::Twin(format!("sluice sources show {}", super::page::shell(name)), String::new()),
    ])
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
                Cell::Text(destination.name.clone()),
                Cell::Text(destination.kind.clone()),
                Cell::Text(if breaker.is_empty() { "not used yet".into() } else { breaker }),
                Cell::Gate(Gate::new(&gate)),
                held,
                Cell::Acts(pause_acts(visit, &target, is_paused, "/destinations")),
            ],
        }
    };
    Ok(Table {
        caption: "Destinations".into(),
        columns: vec!["Destination", "Type", "Breaker", "Gate", "Held back until", "Act"],
        rows: destinations.iter().map(row).collect(),
        empty: "The configuration has no destinations.".into(),
        ..Table::default()
    })
}

pub(super) async fn workers(visit: Visit) -> Response {
    let blocks = worker_blocks(&visit).await;
    visit.show("Workers", blocks).await
}

async fn worker_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let workers = visit.operator.workers().await?;
    let safe: BTreeMap<String, String> = visit
        .operator
        .safe_modes()
        .await?
        .into_iter()
        .map(|mode| (mode.worker.unwrap_or_default(), mode.until))
        .collect();
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
        Row {
            mark: worker.name.clone(),
            cells: vec![
                Cell::Text(worker.name.clone()),
                Cell::Text(worker.queue.clone()),
                link("queued", count("queued")),
                link("retrying", count("retrying")),
                link("waiting", count("waiting")),
                link("dead", count("dead")),
                worker.oldest_at.clone().map_or_else(|| Cell::Text(String::new()), Cell::Time),
                Cell::Text(if worker.paused { "paused".into() } else { String::new() }),
                Cell::Acts(acts),
            ],
        }
    };
    let table = Table {
        caption: "Workers with their queues".into(),
        columns: vec!["Worker", "Queue", "Queued", "Retrying", "Waiting", "Dead", "Oldest live job", "State", "Act"],
        rows: workers.iter().map(row).collect(),
        empty: "The configuration has no workers.".into(),
        ..Table::default()
    };
    let twin =
        Block::Twin("sluice status".into(), "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/workers".into());
    Ok(vec![Block::Table(table), twin])
}

/// The page that a form came from; it is one of ours.
fn back(sent: &Sent) -> String {
    match sent.form.get("next") {
        "/sources" => "/sources",
        "/destinations" => "/destinations",
        _ => "/workers",
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
    sent.visit.done(set.map(|()| "/workers".to_owned()).map_err(Failure::from)).await
}
