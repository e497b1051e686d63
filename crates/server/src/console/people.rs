//! People: contacts with every value that is kept, why one of them counts, and everything that happened; merge, split, identify.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use super::Console;
use super::events::{PAGE_ROWS, pretty};
use super::page::{Act, Block, Cell, Field, Filter, More, Row, Table, query_value, shell};
use super::timeline::{Lane, Point, Timeline};
use super::visit::{Failure, Sent, Visit};
use crate::operate::views::{ContactView, IdentifiedView, TraceEntry, TraceView};
use crate::operate::{IdentifyRequest, MergeContactRequest, SplitContactRequest};

/// Entries of a lineage that are shown, the newest ones.
const ENTRIES_MAX: usize = 500;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/people", get(list))
        .route("/people/find", post(find))
        .route("/people/{id}", get(show))
        .route("/people/{id}/merge", post(merge))
        .route("/people/{id}/split", post(split))
        .route("/sheets/merge", post(merge_sheet))
        .route("/sheets/split", post(split_sheet))
        .route("/events/{id}/identify", post(identify))
}

fn contact_link(id: &str) -> Cell {
    Cell::Id(format!("/people/{}", query_value(id)), id.to_owned())
}

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("People", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let with_conflicts = query.get("only") == "conflicts";
    let found = visit.operator.contacts(with_conflicts, query.option("after").as_deref(), PAGE_ROWS).await?;
    let row = |contact: &ContactView| Row {
        mark: contact.id.clone(),
        cells: vec![
            contact_link(&contact.id),
            Cell::Text(identity(contact)),
            Cell::Number(contact.members.len() as u64),
            Cell::Number(contact.conflicts.len() as u64),
            Cell::Time(contact.created_at.clone()),
        ],
    };
    let table = Table {
        caption: "Contacts, newest first, masked".into(),
        columns: vec!["Contact", "Identity", "Merged into it", "Conflicts", "First seen"],
        rows: found.items.iter().map(row).collect(),
        empty: "No contact is kept. `contacts:` in the configuration keeps one for each person; without it, search finds the events of a person."
            .into(),
        more: More::of(&found, "/people", query),
        bulk: None,
    };
    let who = Field {
        required: true,
        ..Field::text("who", "Who", "", "email address, phone number, or an id of the CRM or a source")
    };
    let filter =
        Filter { action: "/people", fields: vec![Field::choice("only", "Only", query.get("only"), vec!["conflicts"])] };
    let flag = if with_conflicts { " --conflicts" } else { "" };
    Ok(vec![
        Block::Text("Find a person. What you type is sent in a form: no address and no log holds it.".into()),
        Block::Act(visit.act("/people/find", "Find").asking(who)),
        Block::Heading("Contacts".into()),
        Block::Filter(filter),
        Block::Table(table),
        Block::Twin(
            format!("sluice contacts list{flag}"),
            "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/contacts".into(),
        ),
    ])
}

/// The identity fields that count.
fn identity(contact: &ContactView) -> String {
    let fields = contact.fields.iter().filter(|field| field.name.starts_with("identity."));
    let texts = fields.filter_map(|field| field.values.first()).map(|value| pretty(&value.value));
    texts.collect::<Vec<_>>().join(", ")
}

pub(super) async fn find(sent: Sent) -> Response {
    lineage(&sent.visit, sent.form.get("who")).await
}

/// Opens the contact of whom the text names; without one, shows what is known.
pub(super) async fn lineage(visit: &Visit, who: &str) -> Response {
    let blocks = match visit.operator.trace(who).await {
        Ok(TraceView { contact: Some(contact), .. }) => {
            return Redirect::to(&format!("/people/{}", query_value(&contact.id))).into_response();
        }
        Ok(trace) => {
            let text = "No contact is kept of this person. These are the newest events under the digest of what you typed, and what came of them.";
            let mut blocks = vec![Block::Text(text.to_owned())];
            blocks.extend(entry_blocks(visit, &trace));
            Ok(blocks)
        }
        Err(error) => Err(error.into()),
    };
    visit.show("Search", blocks).await
}

pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    // Only the id of a contact is an address; the name of a person is not.
    let blocks = match id.starts_with("con_") {
        true => person_blocks(&visit, &id).await,
        false => Err(Failure::invalid("the address of a person is a contact id, such as con_17; search for the rest")),
    };
    let title = if id.starts_with("con_") { format!("Person {id}") } else { "Person".to_owned() };
    visit.show(&title, blocks).await
}

async fn person_blocks(visit: &Visit, id: &str) -> Result<Vec<Block>, Failure> {
    let trace = visit.operator.trace(id).await?;
    let Some(contact) = &trace.contact else {
        return Err(Failure::invalid(format!("{id} is not a contact")));
    };
    let mut facts = vec![
        ("Identity, masked".to_owned(), Cell::Text(identity(contact))),
        ("First seen".to_owned(), Cell::Time(contact.created_at.clone())),
    ];
    facts.extend(contact.merged_into.iter().map(|parent| ("Part of".to_owned(), contact_link(parent))));
    facts.extend(contact.members.iter().map(|member| ("Includes".to_owned(), contact_link(member))));
    for (kind, label) in [("event", "Events"), ("effect", "Effects")] {
        let count = trace.entries.iter().filter(|entry| entry.kind == kind).count();
        facts.push((label.to_owned(), Cell::Number(count as u64)));
    }
    let mut blocks = vec![Block::Facts(facts)];
    blocks.extend(conflict_blocks(visit, contact));
    blocks.push(Block::Heading("What is known, and why".into()));
    blocks.push(Block::Table(field_table(contact, "Every value that is kept; the first one of a field counts")));
    blocks.extend(identified_blocks(contact));
    blocks.extend(entry_blocks(visit, &trace));
    blocks.push(Block::Heading("Acts".into()));
    blocks.extend(acts(visit, contact));
    blocks.push(Block::Twin(
        format!("sluice contacts show {id}; sluice trace {id}", id = shell(id)),
        format!("curl -H \"Authorization: Bearer $TOKEN\" \"$NODE/api/v1/trace?about={}\"", query_value(id)),
    ));
    Ok(blocks)
}

fn conflict_blocks(visit: &Visit, contact: &ContactView) -> Vec<Block> {
    if contact.conflicts.is_empty() {
        return vec![];
    }
    let row = |conflict: &crate::operate::views::ConflictView| {
        let (other, acts) = match &conflict.other {
            Some(other) => {
                let act = visit.act("/sheets/merge", "Merge…").with("contact", &*contact.id).with("into", &**other);
                (contact_link(other), vec![act])
            }
            None => (Cell::Text("the contact has another one of this kind".into()), vec![]),
        };
        Row { mark: String::new(), cells: vec![Cell::Text(conflict.kind.clone()), other, Cell::Acts(acts)] }
    };
    let table = Table {
        caption: "Identifiers that were kept apart".into(),
        columns: vec!["Identifier", "Belongs to", "Act"],
        rows: contact.conflicts.iter().map(row).collect(),
        ..Table::default()
    };
    vec![Block::Heading("Conflicts".into()), Block::Table(table)]
}

/// Every value of every field, with the reason why it counts or does not.
fn field_table(contact: &ContactView, caption: &str) -> Table {
    let rows = contact.fields.iter().flat_map(|field| {
        field.values.iter().map(|value| Row {
            mark: String::new(),
            cells: vec![
                Cell::Code(field.name.clone()),
                Cell::Text(pretty(&value.value)),
                match &value.lost {
                    None => Cell::Verdict("succeeded", "counts"),
                    Some(_) => Cell::Verdict("dropped", "does not"),
                },
                Cell::Text(value.lost.clone().unwrap_or_default()),
                Cell::Text(value.source.clone()),
                Cell::Number(u64::from(value.trust)),
                Cell::Time(value.occurred_at.clone()),
            ],
        })
    });
    Table {
        caption: caption.to_owned(),
        columns: vec!["Field", "Value, masked", "Counts", "Why not", "Source", "Trust", "Said at"],
        rows: rows.collect(),
        empty: "No field is known.".into(),
        ..Table::default()
    }
}

fn identified_blocks(contact: &ContactView) -> Vec<Block> {
    if contact.identified_later.is_empty() {
        return vec![];
    }
    let row = |identified: &IdentifiedView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Id(format!("/events/{}", identified.event), identified.event.clone()),
            Cell::Text(identified.by.clone()),
            Cell::Text(identified.fields.join(", ")),
            Cell::Text(identified.reason.clone().unwrap_or_default()),
            Cell::Time(identified.at.clone()),
        ],
    };
    let table = Table {
        caption: "Events whose identity was supplied later".into(),
        columns: vec!["Event", "By", "Fields", "Why", "At"],
        rows: contact.identified_later.iter().map(row).collect(),
        ..Table::default()
    };
    vec![Block::Heading("Identity supplied later".into()), Block::Table(table)]
}

/// Everything that happened, as a picture and as a list.
fn entry_blocks(visit: &Visit, trace: &TraceView) -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading("What happened, in order".into()),
        Block::Timeline(Timeline::new(lanes(&trace.entries), visit.zone())),
        Block::Table(entry_table(&trace.entries)),
    ];
    if trace.more {
        blocks.push(Block::Text("There are older events; the list of events has them all.".into()));
    }
    blocks
}

/// One lane for each kind of entry.
fn lanes(entries: &[TraceEntry]) -> Vec<Lane> {
    const KINDS: [(&str, &str, &str); 7] = [
        ("event", "requests", "running"),
        ("variant", "other content", "unknown"),
        ("attempt", "attempts", "retrying"),
        ("effect", "effects", "succeeded"),
        ("approval", "approvals", "waiting"),
        ("identity", "identity", "noop"),
        ("audit", "operators", "dead"),
    ];
    let lane = |(kind, label, state): (&str, &str, &str)| {
        let points: Vec<Point> = entries
            .iter()
            .filter(|entry| entry.kind == kind)
            .map(|entry| Point { at: entry.at.clone(), state: colour(entry, state), label: entry.what.clone() })
            .collect();
        (!points.is_empty()).then(|| Lane { label: label.to_owned(), points, spans: vec![] })
    };
    KINDS.into_iter().filter_map(lane).collect()
}

/// State that gives an entry its colour: what came of it, else that of its lane.
fn colour(entry: &TraceEntry, usual: &str) -> String {
    let word = entry.what.split([' ', ':']).find_map(|word| match word {
        "done" | "applied" => Some("succeeded"),
        "noop" => Some("noop"),
        "retry" => Some("retrying"),
        "wait" => Some("waiting"),
        "reject" | "not_applied" => Some("dead"),
        "unsure" | "unknown" => Some("unknown"),
        _ => None,
    });
    match entry.kind.as_str() {
        "attempt" | "effect" => word.unwrap_or(usual).to_owned(),
        _ => usual.to_owned(),
    }
}

pub(super) fn entry_table(entries: &[TraceEntry]) -> Table {
    let row = |entry: &TraceEntry| {
        let id = match entry.id.split('_').next() {
            Some("evt") => Cell::Id(format!("/events/{}", query_value(&entry.id)), entry.id.clone()),
            Some("job") => Cell::Id(format!("/jobs/{}", query_value(&entry.id)), entry.id.clone()),
            Some("con") => contact_link(&entry.id),
            _ => Cell::Code(entry.id.clone()),
        };
        Row {
            mark: String::new(),
            cells: vec![
                Cell::Time(entry.at.clone()),
                Cell::Text(entry.kind.clone()),
                Cell::Text(entry.what.clone()),
                id,
            ],
        }
    };
    Table {
        caption: "Everything that happened, oldest first".into(),
        columns: vec!["When", "Kind", "What", "Of"],
        rows: entries.iter().skip(entries.len().saturating_sub(ENTRIES_MAX)).map(row).collect(),
        empty: "Nothing happened yet.".into(),
        ..Table::default()
    }
}

fn acts(visit: &Visit, contact: &ContactView) -> Vec<Block> {
    let mut blocks = vec![];
    if contact.merged_into.is_some() {
        let act = visit.act("/sheets/split", "Preview the split…").with("contact", &*contact.id);
        blocks.push(Block::Fold("Split off".into(), vec![act]));
    } else {
        let into = Field { required: true, ..Field::text("into", "Contact that stays", "", "its id, such as con_17") };
        let act = visit.act("/sheets/merge", "Preview the merge…").with("contact", &*contact.id).asking(into);
        blocks.push(Block::Fold("Merge into another contact".into(), vec![act]));
    }
    for member in &contact.members {
        let act = visit.act("/sheets/split", format!("Preview the split of {member}…")).with("contact", &**member);
        blocks.push(Block::Fold(format!("Split {member} off"), vec![act]));
    }
    blocks.push(Block::Facts(vec![(
        "No more messages".to_owned(),
        Cell::Link("/suppressions".into(), "suppress an address or a number of this person".into()),
    )]));
    blocks
}

/// What a merge would make of two contacts, and the form that merges them.
pub(super) async fn merge_sheet(sent: Sent) -> Response {
    let blocks = merge_blocks(&sent).await;
    sent.visit.show("Merge contacts: preview", blocks).await
}

async fn merge_blocks(sent: &Sent) -> Result<Vec<Block>, Failure> {
    let (contact, into) = (sent.form.get("contact"), sent.form.get("into"));
    for id in [contact, into] {
        if !id.starts_with("con_") {
            return Err(Failure::invalid(format!("`{id}` is not the id of a contact, such as con_17")));
        }
    }
    let preview = sent.visit.operator.merge_preview(contact, into).await?;
    let facts = vec![
        ("Becomes part".to_owned(), contact_link(&preview.contact.id)),
        ("Stays".to_owned(), contact_link(&preview.into.id)),
        ("Fields of the first".to_owned(), Cell::Number(preview.contact.fields.len() as u64)),
        ("Fields of the second".to_owned(), Cell::Number(preview.into.fields.len() as u64)),
        ("Values that count afterwards".to_owned(), Cell::Number(preview.merged.fields.len() as u64)),
    ];
    let act = sent
        .visit
        .act(format!("/people/{contact}/merge"), format!("Merge {contact} into {into}"))
        .with("into", into)
        .asking(Field::reason());
    Ok(vec![
        Block::Text(
            "Both become one person: their later events share an order, and writes to destinations use the values below. A split takes it back."
                .into(),
        ),
        Block::Facts(facts),
        Block::Heading("Afterwards".into()),
        Block::Table(field_table(&preview.merged, "Values after the merge")),
        Block::Act(act),
        Block::Twin(
            format!("sluice contacts merge {} --into {} --reason WHY", shell(contact), shell(into)),
            format!("curl -X POST -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/contacts/{contact}/merge -d '{{\"into\":\"{into}\",\"reason\":\"WHY\"}}'"),
        ),
    ])
}

pub(super) async fn merge(Path(id): Path<String>, sent: Sent) -> Response {
    let request = MergeContactRequest {
        into: sent.form.get("into").to_owned(),
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let merged = sent.visit.operator.merge_contact(&id, request).await;
    let done = merged.map(|contact| format!("/people/{}", query_value(&contact.id))).map_err(Failure::from);
    sent.visit.done(done).await
}

/// What a split takes out, and the form that does it.
pub(super) async fn split_sheet(sent: Sent) -> Response {
    let blocks = split_blocks(&sent).await;
    sent.visit.show("Split a contact: preview", blocks).await
}

async fn split_blocks(sent: &Sent) -> Result<Vec<Block>, Failure> {
    let id = sent.form.get("contact");
    let contact = sent.visit.operator.contact(id).await?;
    let parent = contact.merged_into.clone().unwrap_or_else(|| "no other contact".into());
    let facts = vec![
        ("Becomes a contact of its own".to_owned(), contact_link(&contact.id)),
        ("Is part of".to_owned(), Cell::Text(parent)),
    ];
    let act: Act =
        sent.visit.act(format!("/people/{}/split", query_value(id)), format!("Split {id} off")).asking(Field::reason());
    Ok(vec![
        Block::Facts(facts),
        Block::Heading("Its values".into()),
        Block::Table(field_table(&contact, "Values of the contact")),
        Block::Act(act),
        Block::Twin(
            format!("sluice contacts split {} --reason WHY", shell(id)),
            format!(
                "curl -X POST -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/contacts/{}/split -d '{{\"reason\":\"WHY\"}}'",
                query_value(id)
            ),
        ),
    ])
}

pub(super) async fn split(Path(id): Path<String>, sent: Sent) -> Response {
    let request = SplitContactRequest { reason: sent.form.get("reason").to_owned(), actor: String::new() };
    let split = sent.visit.operator.split_contact(&id, request).await;
    let done = split.map(|contact| format!("/people/{}", query_value(&contact.id))).map_err(Failure::from);
    sent.visit.done(done).await
}

/// Form that says whose event it is.
pub(super) fn identify_form(visit: &Visit, event: &str) -> Act {
    visit
        .act(format!("/events/{event}/identify"), "Identify the event")
        .asking(Field::text("email", "Email address", "", ""))
        .asking(Field::text("phone", "Phone number", "", "with + and the country code"))
        .asking(Field::text("external_id", "Id at the source", "", ""))
        .asking(Field::reason())
}

pub(super) async fn identify(Path(id): Path<String>, sent: Sent) -> Response {
    let fields = ["email", "phone", "external_id"].into_iter();
    let identity = fields.filter_map(|name| Some((name.to_owned(), sent.form.option(name)?)));
    let request = IdentifyRequest {
        identity: identity.collect(),
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let identified = sent.visit.operator.identify_event(&id, request).await;
    let done = identified.map(|detail| format!("/events/{}", detail.event.id)).map_err(Failure::from);
    sent.visit.done(done).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_entry_has_its_lane_and_link() {
        let entry = |kind: &str, id: &str| TraceEntry {
            at: "2026-11-17T10:00:00Z".into(),
            kind: kind.into(),
            id: id.into(),
            what: "x".into(),
            command: String::new(),
        };
        let entries =
            [entry("event", "evt_1"), entry("effect", "job_1"), entry("job", "job_1"), entry("audit", "con_1")];
        let labels: Vec<String> = lanes(&entries).into_iter().map(|lane| lane.label).collect();
        assert_eq!(labels, ["requests", "effects", "operators"]);
        let attempt = TraceEntry { what: "upsert retry: http-503".into(), ..entry("attempt", "job_1") };
        assert_eq!(colour(&attempt, "queued"), "retrying");
        let links: Vec<String> = entry_table(&entries)
            .rows
            .into_iter()
            .filter_map(|row| match row.cells.last() {
                Some(Cell::Id(href, _)) => Some(href.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(links, ["/events/evt_1", "/jobs/job_1", "/jobs/job_1", "/people/con_1"]);
    }
}
