//! Configuration: revisions, their files, the plan back to one.

use axum::extract::Path;
use axum::response::Response;

use super::events::PAGE_ROWS;
use super::page::{Block, Cell, Field, More, Row, Table};
use super::pending::{pending_blocks, shadow_blocks};
use super::visit::{Failure, Sent, Visit};
use crate::change::Plan;
use crate::operate::views::RevisionView;
use crate::operate::{ApplyRequest, Wanted};

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("Configuration", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let after = query.option("after").and_then(|after| after.parse().ok());
    let found = visit.operator.configured(after, PAGE_ROWS).await?;
    let row = |revision: &RevisionView| Row {
        mark: revision.revision.clone(),
        cells: vec![
            Cell::Id(format!("/configuration/{}", revision.revision), revision.revision.clone()),
            Cell::Text(if revision.current { "active".into() } else { String::new() }),
            Cell::Text(revision.actor.clone()),
            Cell::Text(revision.reason.clone()),
            Cell::Time(revision.at.clone()),
        ],
    };
    let table = Table {
        caption: "Activations, newest first".into(),
        columns: vec!["Revision", "State", "Who", "Why", "Activated"],
        rows: found.items.iter().map(row).collect(),
        empty: "No configuration was ever active.".into(),
        more: More::of(&found, "/configuration", query),
        bulk: None,
    };
    let twin = Block::Twin(
        "sluice revisions".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/revisions".into(),
    );
    let mut blocks = pending_blocks(visit).await;
    blocks.extend(shadow_blocks(visit).await?);
    blocks.extend([Block::Heading("Revisions".into()), Block::Table(table), twin]);
    Ok(blocks)
}

pub(super) async fn show(visit: Visit, Path(revision): Path<String>) -> Response {
    let blocks = revision_blocks(&visit, &revision).await;
    visit.show(&format!("Revision {revision}"), blocks).await
}

async fn revision_blocks(visit: &Visit, name: &str) -> Result<Vec<Block>, Failure> {
    let detail = visit.operator.revision(name).await?;
    let mut blocks = vec![];
    if !detail.current {
        let wanted = Wanted { files: None, revision: Some(detail.revision.clone()) };
        match visit.operator.plan(&wanted).await {
            Ok(plan) => blocks.extend(plan_blocks(visit, &detail.revision, &plan)),
            Err(error) => blocks.push(Block::Problem(
                "This revision cannot be activated now".into(),
                error.code().to_owned(),
                error.to_string(),
            )),
        }
    }
    blocks.push(Block::Heading("Files".into()));
    blocks.extend(detail.files.into_iter().map(|(path, text)| Block::Code(path, text)));
    blocks.push(Block::Twin(format!("sluice rollback {name} --reason WHY"), String::new()));
    Ok(blocks)
}

/// What a plan changes, field by field.
pub(super) fn change_table(plan: &Plan) -> Table {
    let rows = plan.changes.iter().flat_map(|change| {
        let what = format!("{} {} {}", change.kind, change.name, change.change);
        let plain = |field: String, from: String, to: String| Row {
            mark: String::new(),
            cells: vec![Cell::Text(what.clone()), Cell::Code(field), Cell::Text(from), Cell::Text(to)],
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        match change.fields.is_empty() {
            true => vec![plain(change.file.clone(), String::new(), change.notes.join("; "))],
            false => {
                let fields = change.fields.iter();
                fields.map(|field| plain(field.path.clone(), text(&field.from), text(&field.to))).collect()
            }
        }
    });
    Table {
        caption: "Changes".into(),
        columns: vec!["What", "Field", "From", "To"],
        rows: rows.collect(),
        empty: "Nothing would change.".into(),
        ..Table::default()
    }
}

fn plan_blocks(visit: &Visit, revision: &str, plan: &Plan) -> Vec<Block> {
    let affected: u64 = plan.affected.iter().map(|affected| affected.live).sum();
    let facts = vec![
        ("Active now".to_owned(), Cell::Code(plan.running.clone())),
        ("Plan".to_owned(), Cell::Code(plan.plan.clone())),
        ("Live jobs affected".to_owned(), Cell::Number(affected)),
        ("Removed resources that jobs need".to_owned(), Cell::Number(plan.stranded.len() as u64)),
    ];
    let act = visit
        .act("/configuration/apply", "Activate this revision")
        .with("revision", revision)
        .with("plan", plan.plan.clone())
        .asking(Field::reason())
        .that_is_final();
    vec![
        Block::Heading("What going to this revision would change".into()),
        Block::Facts(facts),
        Block::Table(change_table(plan)),
        Block::Fold("Activate".into(), vec![act]),
    ]
}

pub(super) async fn apply(sent: Sent) -> Response {
    let done = apply_plan(&sent).await;
    sent.visit.done(done).await
}

async fn apply_plan(sent: &Sent) -> Result<String, Failure> {
    let reason = sent.form.get("reason");
    if reason.is_empty() {
        return Err(Failure::invalid("a change of the configuration needs a reason"));
    }
    let request = ApplyRequest {
        wanted: Wanted { files: None, revision: sent.form.option("revision") },
        plan: sent.form.get("plan").to_owned(),
        reason: reason.to_owned(),
        ..ApplyRequest::default()
    };
    sent.visit.operator.apply(&request).await?;
    Ok("/configuration".to_owned())
}
