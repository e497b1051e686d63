//! One destination: its gate as a picture, its latency, its calls, what its errors mean.

use axum::extract::Path;
use axum::response::Response;

use super::endpoints::pause_acts;
use super::measures::Charts;
use super::overview::waiting_table;
use super::page::{Block, Cell, Row, Table, query_value, shell};
use super::svg::{Gate, GatePicture};
use super::visit::{Failure, Visit};
use crate::operate::views::{DestinationDetail, FailureRuleView, WaitingView};

pub(super) async fn show(visit: Visit, Path(name): Path<String>) -> Response {
    let blocks = blocks(&visit, &name).await;
    visit.show(&format!("Destination {name}"), blocks).await
}

async fn blocks(visit: &Visit, name: &str) -> Result<Vec<Block>, Failure> {
    let detail = visit.operator.destination(name).await?;
    let status = visit.operator.status().await?;
    let target = format!("destination:{name}");
    let waiting: Vec<&WaitingView> =
        status.waiting.iter().filter(|waiting| waiting.wait.target.as_deref() == Some(&target)).collect();
    let gate = detail.destination.gate.clone().unwrap_or_default();
    let picture = GatePicture {
        gate: Gate::new(&gate),
        name: name.to_owned(),
        waiting: waiting.iter().map(|waiting| waiting.jobs).sum(),
        rate: detail.rate.clone().unwrap_or_default(),
    };
    let is_paused = status.paused.iter().any(|pause| pause.target == target);
    let back = format!("/destinations/{}", query_value(name));
    let mut blocks = vec![Block::Gate(picture), Block::Facts(facts(&detail, &gate))];
    let label = if is_paused { "Resume" } else { "Pause" };
    blocks.push(Block::Fold(label.into(), pause_acts(visit, &target, is_paused, &back)));
    if !waiting.is_empty() {
        blocks.push(Block::Heading("Why jobs wait for it".into()));
        blocks.push(Block::Table(waiting_table(waiting)));
    }
    blocks.push(Block::Heading("What happened".into()));
    let mut charts = Charts::begin(visit).await?;
    charts.calls(Some(name)).await?;
    charts.latency("Duration of calls", "call_seconds", Some(("destination", name))).await?;
    charts.latency("From request to effect", "effect_seconds", Some(("destination", name))).await?;
    charts.effects(Some(name)).await?;
    charts.breaker(name).await?;
    blocks.extend(charts.end());
    blocks.push(Block::Heading("What its errors mean".into()));
    blocks.push(Block::Table(rules(&detail.failure_rules)));
    blocks.push(Block::Twin(
        format!("sluice destinations show {0}; sluice pause destination:{0} --reason WHY", shell(name)),
        format!("curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/destinations/{}", query_value(name)),
    ));
    Ok(blocks)
}

fn facts(detail: &DestinationDetail, gate: &serde_json::Value) -> Vec<(String, Cell)> {
    let word = |name: &str| gate.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let mut facts = vec![
        ("Type".to_owned(), Cell::Text(detail.destination.kind.clone())),
        ("Breaker".to_owned(), Cell::Text(word("breaker").unwrap_or_else(|| "not used yet".into()))),
        ("Rate limit".to_owned(), Cell::Text(detail.rate.clone().unwrap_or_else(|| "none".into()))),
    ];
    let learned = gate.get("learned_rate").and_then(serde_json::Value::as_f64);
    facts.extend(learned.map(|rate| ("Learned rate".to_owned(), Cell::Text(format!("{rate:.1} calls a second")))));
    for (name, label) in [
        ("open_until", "Breaker open until"),
        ("not_before", "Asked for a pause until"),
        ("failing_since", "Failing since"),
    ] {
        facts.extend(word(name).map(|at| (label.to_owned(), Cell::Time(at))));
    }
    if word("paused").as_deref() == Some("auth") {
        facts.push(("Paused".to_owned(), Cell::Text("it rejected the credentials; fix them, then resume".into())));
    }
    facts.extend(
        detail
            .calls_today
            .map(|calls| ("Calls today, of the daily limit".to_owned(), Cell::Meter(calls.used, calls.limit))),
    );
    facts
}

fn rules(rules: &[FailureRuleView]) -> Table {
    let any = |text: &str| if text.is_empty() { "any".to_owned() } else { text.to_owned() };
    let row = |rule: &FailureRuleView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Text(if rule.own { "configuration".into() } else { "connector".into() }),
            Cell::Text(any(&rule.status)),
            Cell::Code(any(&rule.code)),
            Cell::Text(rule.contains.clone()),
            Cell::Text(rule.action.clone()),
            Cell::Text(rule.advice.clone()),
        ],
    };
    Table {
        caption: "Failure rules, the first that matches counts".into(),
        columns: vec!["From", "Status", "Code", "Contains", "Then", "What to do"],
        rows: rules.iter().map(row).collect(),
        empty: "Its connector has no table: the status decides.".into(),
        ..Table::default()
    }
}
