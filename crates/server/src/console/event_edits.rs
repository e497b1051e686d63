//! Edit an event and replay it: a form, a sheet with the differences, and the act.

use axum::extract::Path;
use axum::response::Response;
use serde_json::Value;

use super::events::pretty;
use super::page::{Block, Cell, Field, Row, Table, shell};
use super::visit::{Failure, Fields, Sent, Visit};
use crate::operate::EditRequest;
use crate::operate::views::{ChangeView, EditView, EventRevisionView};

/// Fields of one form.
const PAIRS: [(&str, &str); 3] = [("path1", "value1"), ("path2", "value2"), ("path3", "value3")];
/// Text before a value that is not text.
const JSON: &str = "json:";

/// The form, and the revisions that there are.
pub(super) async fn blocks(visit: &Visit, id: &str) -> Result<Vec<Block>, Failure> {
    let revisions = visit.operator.event_revisions(id).await?;
    let mut act = visit.act(format!("/events/{id}/edit"), "Show the differences…");
    for (path, value) in PAIRS {
        act = act.asking(Field::text(path, "Field", "", "such as attributes.last_name")).asking(Field::text(
            value,
            "New value",
            "",
            "empty removes the field; json:[1] for other than text",
        ));
    }
    let mut blocks = vec![Block::Fold("Edit and replay".into(), vec![act.asking(Field::reason())])];
    if revisions.len() > 1 {
        blocks.push(Block::Heading("Revisions".into()));
        blocks.push(Block::Table(revision_table(&revisions)));
    }
    Ok(blocks)
}

fn revision_table(revisions: &[EventRevisionView]) -> Table {
    let row = |revision: &EventRevisionView| {
        let paths: Vec<&str> = revision.changes.iter().map(|change| change.path.as_str()).collect();
        let number = if revision.current { format!("{}, current", revision.n) } else { revision.n.to_string() };
        Row {
            mark: String::new(),
            cells: vec![
                Cell::Text(number),
                Cell::Time(revision.at.clone()),
                Cell::Text(revision.actor.clone().unwrap_or_else(|| "as it was accepted".into())),
                Cell::Text(revision.reason.clone().unwrap_or_default()),
                Cell::Text(paths.join(", ")),
            ],
        }
    };
    Table {
        caption: "Revisions of this event".into(),
        columns: vec!["Revision", "When", "Who", "Why", "Fields"],
        rows: revisions.iter().map(row).collect(),
        ..Table::default()
    }
}

fn request(form: &Fields) -> Result<EditRequest, Failure> {
    let mut request = EditRequest { reason: form.get("reason").to_owned(), ..EditRequest::default() };
    for (path, value) in PAIRS {
        let (path, value) = (form.get(path), form.get(value));
        match (path, value) {
            ("", "") => {}
            ("", _) => return Err(Failure::invalid("a value needs the field that it belongs to")),
            (path, "") => request.remove.push(path.to_owned()),
            (path, value) => {
                let value = match value.strip_prefix(JSON) {
                    Some(text) => serde_json::from_str(text)
                        .map_err(|error| Failure::invalid(format!("`{text}` is not JSON: {error}")))?,
                    None => Value::String(value.to_owned()),
                };
                request.set.insert(path.to_owned(), value);
            }
        }
    }
    if let Some(base) = form.option("base") {
        request.base = Some(base.parse().map_err(|_| Failure::invalid("the revision is not a number"))?);
    }
    Ok(request)
}

/// Shows what would change.
pub(super) async fn sheet(Path(id): Path<String>, sent: Sent) -> Response {
    let blocks = sheet_blocks(&sent, &id).await;
    sent.visit.show("Edit and replay", blocks).await
}

async fn sheet_blocks(sent: &Sent, id: &str) -> Result<Vec<Block>, Failure> {
    let request = request(&sent.form)?;
    let planned = sent.visit.operator.edit_event(id, EditRequest { dry_run: true, ..request.clone() }).await?;
    let mut act = sent.visit.act(format!("/events/{id}/edit/confirm"), "Edit and replay");
    for name in PAIRS.iter().flat_map(|(path, value)| [*path, *value]).chain(["reason"]) {
        act = act.with(name, sent.form.get(name));
    }
    let act = act.with("base", (planned.revision - 1).to_string());
    let facts = vec![
        ("Event".to_owned(), Cell::Id(format!("/events/{id}"), planned.event_id.clone())),
        ("Becomes revision".to_owned(), Cell::Number(u64::from(planned.revision))),
        ("Jobs that run again".to_owned(), Cell::Text(planned.jobs.join(", "))),
        ("Why".to_owned(), Cell::Text(request.reason.clone())),
    ];
    let text = "The event stays as it was accepted. Records that can be overwritten are written again; what was sent otherwise is not \
                sent a second time.";
    Ok(vec![
        Block::Facts(facts),
        Block::Table(change_table(&planned)),
        Block::Text(text.to_owned()),
        Block::Act(act),
        Block::Twin(twin(id, &request), String::new()),
    ])
}

fn change_table(planned: &EditView) -> Table {
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "absent".to_owned(), pretty);
    let row = |change: &ChangeView| Row {
        mark: String::new(),
        cells: vec![Cell::Code(change.path.clone()), Cell::Text(text(&change.before)), Cell::Text(text(&change.after))],
    };
    Table {
        caption: "Differences, masked".into(),
        columns: vec!["Field", "Before", "After"],
        rows: planned.changes.iter().map(row).collect(),
        ..Table::default()
    }
}

/// The command, without the values: they may be personal.
fn twin(id: &str, request: &EditRequest) -> String {
    let set: String = request.set.keys().map(|path| format!(" --set {}", shell(&format!("{path}=…")))).collect();
    let remove: String = request.remove.iter().map(|path| format!(" --remove {}", shell(path))).collect();
    format!("sluice events edit {}{set}{remove} --reason WHY", shell(id))
}

pub(super) async fn confirm(Path(id): Path<String>, sent: Sent) -> Response {
    let done = edit(&sent, &id).await;
    sent.visit.done(done).await
}

async fn edit(sent: &Sent, id: &str) -> Result<String, Failure> {
    let edited = sent.visit.operator.edit_event(id, request(&sent.form)?).await?;
    Ok(format!("/events/{}", edited.event_id))
}
