//! Node, audit trail and API.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::Value;
use sluice_ledger::AuditFilter;

use super::events::PAGE_ROWS;
use super::page::{Block, Cell, More, Row, Table};
use super::visit::{Failure, Visit};
use crate::operate::views::AuditView;

pub(super) async fn audit(visit: Visit) -> Response {
    let blocks = audit_blocks(&visit).await;
    visit.show("Audit", blocks).await
}

async fn audit_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let after = query.option("after").and_then(|after| after.parse().ok());
    let found = visit.operator.audit(AuditFilter::default(), after, PAGE_ROWS).await?;
    let row = |entry: &AuditView| Row {
        mark: entry.id.to_string(),
        cells: vec![
            Cell::Time(entry.at.clone()),
            Cell::Text(entry.actor.clone()),
            Cell::Text(entry.action.clone()),
            Cell::Text(entry.object.clone()),
            Cell::Text(entry.detail.clone()),
        ],
    };
    let table = Table {
        caption: "Audit trail, newest first".into(),
        columns: vec!["When", "Who", "Did", "What", "Why"],
        rows: found.items.iter().map(row).collect(),
        empty: "Nothing was done yet.".into(),
        more: More::of(&found, "/audit", query),
        bulk: None,
    };
    let twin = Block::Twin("sluice audit".into(), "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/audit".into());
    Ok(vec![Block::Table(table), twin])
}

pub(super) async fn show(visit: Visit) -> Response {
    let blocks = node_blocks(&visit).await;
    visit.show("Node", blocks).await
}

async fn node_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let status = visit.operator.status().await?;
    let keys = visit.operator.keys().await?;
    let facts = vec![
        ("Version".to_owned(), Cell::Text(status.version.clone())),
        ("Revision".to_owned(), Cell::Id(format!("/configuration/{}", status.revision), status.revision.clone())),
        ("Intake".to_owned(), Cell::Text(status.intake.clone())),
        ("Events".to_owned(), Cell::Number(status.events)),
        ("Jobs in memory".to_owned(), Cell::Number(status.jobs_in_memory)),
        ("Calls in flight".to_owned(), Cell::Number(status.in_flight)),
        ("Root key".to_owned(), Cell::Text(format!("{}, from {}", keys.root_key, keys.root_key_from))),
        ("Tenant key".to_owned(), Cell::Text(format!("version {}", keys.tenant_key_version))),
    ];
    let warnings = status.warnings.iter().map(|warning| Row {
        mark: String::new(),
        cells: vec![
            Cell::Code(warning.code.clone()),
            Cell::Text(warning.message.clone()),
            Cell::Text(warning.action.clone()),
        ],
    });
    let table = Table {
        caption: "Warnings".into(),
        columns: vec!["Code", "What", "What to do"],
        rows: warnings.collect(),
        empty: "No warnings.".into(),
        ..Table::default()
    };
    Ok(vec![
        Block::Facts(facts),
        Block::Heading("Warnings".into()),
        Block::Table(table),
        Block::Twin("sluice status".into(), "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/status".into()),
    ])
}

/// The routes of the admin API, from its description: they are those of this build, so they are read once.
static ROUTES: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(&crate::operate::openapi()).unwrap_or_default();
    let rows = document["paths"].as_object().into_iter().flatten().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| {
            let summary = operation["summary"].as_str().or(operation["description"].as_str()).unwrap_or_default();
            let cells =
                vec![Cell::Code(method.to_uppercase()), Cell::Code(path.clone()), Cell::Text(summary.to_owned())];
            Row { mark: String::new(), cells }
        })
    });
    rows.collect()
});

pub(super) async fn api(visit: Visit) -> Response {
    let table = Table {
        caption: "Routes".into(),
        columns: vec!["Method", "Path", "What it does"],
        rows: ROUTES.clone(),
        ..Table::default()
    };
    let text = "Programs send `Authorization: Bearer slu_…` with a token from the page Users and tokens. Errors are \
                application/problem+json with a stable code. The whole description is an OpenAPI document at /openapi.json.";
    let blocks = vec![Block::Text(text.into()), Block::Table(table)];
    visit.show("API", Ok(blocks)).await
}
