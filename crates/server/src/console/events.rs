//! Events: list, one, search, reveal.

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::Value;
use sluice_domain::event::EventStatus;

use super::event_edits;
use super::page::{Block, Cell, Field, Filter, More, Row, Table, query_value, shell};
use super::people::{entry_table, identify_form, lineage};
use super::timeline::{Lane, Point, Timeline, job_lane};
use super::visit::{Failure, Sent, Visit};
use crate::operate::views::{DuplicateView, EventDetail, EventView, EventWarningView, List};
use crate::operate::{EventsRequest, Reveal, moment};

/// Rows of a page.
pub(super) const PAGE_ROWS: u32 = 50;
/// Jobs of an event whose attempts are drawn.
const DRAWN_JOBS_MAX: usize = 20;

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("Events", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let status = match query.get("state") {
        "" => None,
        word => {
            Some(EventStatus::parse(word).ok_or_else(|| Failure::invalid(format!("`{word}` is no status of events")))?)
        }
    };
    let request = EventsRequest {
        source: query.option("source"),
        event_type: query.option("type"),
        since: query.option("since").map(|since| moment(&since)).transpose()?,
        status,
        after: query.option("after"),
        limit: PAGE_ROWS,
        ..EventsRequest::default()
    };
    let found = visit.operator.events(request).await?;
    let more = More::of(&found, "/events", query);
    let filter = Filter {
        action: "/events",
        fields: vec![
            Field::text("source", "Source", query.get("source"), "website"),
            Field::text("type", "Type", query.get("type"), "lead.created"),
            Field::choice("state", "Status", query.get("state"), EventStatus::ALL.map(EventStatus::as_str).to_vec()),
            Field::text("since", "Since", query.get("since"), "24h or a time"),
        ],
    };
    let flags = ["source", "type", "state", "since"]
        .into_iter()
        .filter_map(|name| query.option(name).map(|value| (name, value)));
    let flags: Vec<(&str, String)> = flags.collect();
    let command: String = flags.iter().map(|(name, value)| format!(" --{name} {}", shell(value))).collect();
    let address: Vec<String> = flags.iter().map(|(name, value)| format!("{name}={}", query_value(value))).collect();
    Ok(vec![
        Block::Filter(filter),
        visit.save_view(),
        Block::Table(Table { more, ..event_table(&found) }),
        Block::Twin(
            format!("sluice events{command}"),
            format!("curl -H \"Authorization: Bearer $TOKEN\" \"$NODE/api/v1/events?{}\"", address.join("&")),
        ),
    ])
}

fn event_table(found: &List<EventView>) -> Table {
    let row = |event: &EventView| Row {
        mark: event.id.clone(),
        cells: vec![
            Cell::Id(format!("/events/{}", event.id), event.id.clone()),
            Cell::State(event.status.clone()),
            Cell::Text(event.source.clone()),
            Cell::Text(event.event_type.clone()),
            Cell::Code(event.idempotency_key.clone()),
            Cell::Number(event.jobs.len() as u64),
            Cell::Time(event.received_at.clone()),
        ],
    };
    Table {
        caption: "Events, newest first".into(),
        columns: vec!["Event", "Status", "Source", "Type", "Key", "Jobs", "Received"],
        rows: found.items.iter().map(row).collect(),
        empty: "No event matches. Widen the time, or remove a filter.".into(),
        ..Table::default()
    }
}

pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let detail = visit.operator.event(&id, None).await.map_err(Failure::from);
    let blocks = match detail {
        Ok(detail) => event_blocks(&visit, &detail).await,
        Err(failure) => Err(failure),
    };
    visit.show(&format!("Event {id}"), blocks).await
}

/// Shown in the response and nowhere else: the address does not show personal data, and the page is not stored.
pub(super) async fn reveal(Path(id): Path<String>, sent: Sent) -> Response {
    let reveal = Reveal { actor: String::new(), reason: sent.form.get("reason").to_owned() };
    let detail = sent.visit.operator.event(&id, Some(&reveal)).await.map_err(Failure::from);
    let blocks = match detail {
        Ok(detail) => event_blocks(&sent.visit, &detail).await,
        Err(failure) => Err(failure),
    };
    sent.visit.show(&format!("Event {id}, revealed"), blocks).await
}

async fn event_blocks(visit: &Visit, detail: &EventDetail) -> Result<Vec<Block>, Failure> {
    let event = &detail.event;
    let mut facts = vec![
        ("Status".to_owned(), Cell::State(event.status.clone())),
        ("Key".to_owned(), Cell::Code(event.idempotency_key.clone())),
        ("Source".to_owned(), Cell::Link(format!("/sources/{}", query_value(&event.source)), event.source.clone())),
        ("Flow".to_owned(), Cell::Text(event.flow.clone())),
        ("Type".to_owned(), Cell::Text(event.event_type.clone())),
        ("Received".to_owned(), Cell::Time(event.received_at.clone())),
        ("Stored".to_owned(), Cell::Time(event.persisted_at.clone())),
        ("Key expires".to_owned(), Cell::Time(event.expires_at.clone())),
        ("Revision".to_owned(), Cell::Id(format!("/configuration/{}", event.revision), event.revision.clone())),
        ("Trace".to_owned(), Cell::Code(event.trace.clone())),
    ];
    if let Some(secret) = &event.verified_by {
        facts.push(("Verified by".to_owned(), Cell::Text(secret.clone())));
    }
    facts.extend(identity_facts(detail));
    let mut blocks = vec![
        Block::Facts(facts),
        Block::Heading("Timeline".into()),
        Block::Timeline(timeline(visit, detail).await?),
        Block::Heading("Jobs".into()),
        Block::Table(job_table(event)),
    ];
    let trace = visit.operator.trace(&event.id).await?;
    blocks.push(Block::Folded(
        "Everything that happened, in order".into(),
        Box::new(Block::Table(entry_table(&trace.entries))),
    ));
    blocks.extend(warning_blocks(detail));
    blocks.extend(duplicate_blocks(detail));
    blocks.extend(clash_blocks(detail));
    for (label, part) in
        [("Normalized event", &detail.normalized), ("Request body", &detail.raw), ("Headers", &detail.headers)]
    {
        blocks.push(match part {
            Some(value) => Block::Code(format!("{label}{}", masked(detail)), pretty(value)),
            None => Block::Text(format!("{label}: deleted by retention.")),
        });
    }
    if !detail.revealed && detail.raw.is_some() {
        let act = visit.act(format!("/events/{}/reveal", event.id), "Reveal personal data").asking(Field::reason());
        blocks.push(Block::Fold("Reveal personal data".into(), vec![act]));
    }
    if may_be_identified(detail) {
        blocks.push(Block::Fold("Say whose event it is".into(), vec![identify_form(visit, &event.id)]));
    }
    let replay = visit.act("/sheets/replay?scope=marked", "Plan a replay of all its jobs").with("id", event.id.clone());
    blocks.push(Block::Fold("Replay".into(), vec![replay]));
    if detail.normalized.is_some() {
        blocks.extend(event_edits::blocks(visit, &event.id).await?);
    }
    blocks.push(Block::Twin(
        format!("sluice events show {}", event.id),
        format!("curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/events/{}", event.id),
    ));
    Ok(blocks)
}

fn masked(detail: &EventDetail) -> &'static str {
    if detail.revealed { ", revealed" } else { ", masked" }
}

pub(super) fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// It has no identity, and a job of it died or waits because of that.
fn may_be_identified(detail: &EventDetail) -> bool {
    let is_parked = detail.event.jobs.iter().any(|job| matches!(job.state.as_str(), "dead" | "waiting"));
    detail.identified.is_none() && (detail.waits_for_identity_until.is_some() || is_parked)
}

async fn timeline(visit: &Visit, detail: &EventDetail) -> Result<Timeline, Failure> {
    let event = &detail.event;
    let point = |at: &str, state: &str, label: &str| Point { at: at.into(), state: state.into(), label: label.into() };
    let mut points =
        vec![point(&event.received_at, "running", "received"), point(&event.persisted_at, "running", "stored")];
    for variant in detail.clash.iter().flat_map(|clash| &clash.variants) {
        points.push(point(&variant.received_at, "unknown", "other content under the same key"));
    }
    let mut lanes = vec![Lane { label: "request".into(), points, spans: vec![] }];
    let now = visit.operator.now();
    for job in event.jobs.iter().take(DRAWN_JOBS_MAX) {
        lanes.push(job_lane(&visit.operator.job(&job.id).await?, now));
    }
    Ok(Timeline::new(lanes, visit.zone()))
}

fn job_table(event: &EventView) -> Table {
    let row = |job: &crate::operate::views::JobBrief| Row {
        mark: job.id.clone(),
        cells: vec![
            Cell::Id(format!("/jobs/{}", job.id), job.id.clone()),
            Cell::State(job.state.clone()),
            Cell::Text(job.worker.clone()),
            Cell::Number(u64::from(job.attempts)),
        ],
    };
    Table {
        caption: "Jobs of this event".into(),
        columns: vec!["Job", "State", "Worker", "Attempts"],
        rows: event.jobs.iter().map(row).collect(),
        empty: "No worker takes events of this type.".into(),
        ..Table::default()
    }
}

fn warning_blocks(detail: &EventDetail) -> Vec<Block> {
    if detail.warnings.is_empty() {
        return vec![];
    }
    let row = |warning: &EventWarningView| {
        let job = warning.job.clone().map_or(Cell::Text(String::new()), |job| Cell::Id(format!("/jobs/{job}"), job));
        let cells = vec![Cell::Code(warning.field.clone()), Cell::Text(warning.code.clone()), job];
        Row { mark: String::new(), cells }
    };
    let table = Table {
        caption: "Values that were lost or not found".into(),
        columns: vec!["Field", "Warning", "Job"],
        rows: detail.warnings.iter().map(row).collect(),
        ..Table::default()
    };
    vec![Block::Heading("Warnings".into()), Block::Table(table)]
}

/// Who identified the event after it was accepted, or what it waits for.
fn identity_facts(detail: &EventDetail) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    if let Some(view) = &detail.identified {
        let by = if view.how == "enrichment" { format!("the lookup {}", view.by) } else { view.by.clone() };
        let text = format!("{} by {by}", view.fields.join(", "));
        facts.push(("Identity supplied later".to_owned(), Cell::Text(text)));
        facts.push(("Supplied at".to_owned(), Cell::Time(view.at.clone())));
        let contact = view.contact.clone();
        facts.push(("Person".to_owned(), Cell::Id(format!("/people/{}", query_value(&contact)), contact)));
        facts.extend(view.reason.clone().map(|reason| ("Why".to_owned(), Cell::Text(reason))));
    }
    if let Some(why) = &detail.quarantined {
        facts.push(("Quarantined".to_owned(), Cell::Text(why.clone())));
    }
    if let Some(until) = &detail.waits_for_identity_until {
        facts.push(("Waits for an identity until".to_owned(), Cell::Time(until.clone())));
    }
    if let Some(lookup) = &detail.identity_lookup {
        let last = lookup.last.as_deref().unwrap_or("due");
        let text = format!("{last}, {} made", lookup.tries);
        facts.push(("Lookups of its identity".to_owned(), Cell::Text(text)));
        if let Some(next) = &lookup.next_at {
            facts.push(("Next lookup".to_owned(), Cell::Time(next.clone())));
        }
    }
    facts
}

fn duplicate_blocks(detail: &EventDetail) -> Vec<Block> {
    let Some(duplicates) = &detail.duplicates else { return vec![] };
    let row = |request: &DuplicateView| {
        let cells = vec![
            Cell::Time(request.at.clone()),
            Cell::Text(request.describe().to_owned()),
            Cell::Code(request.trace.clone()),
        ];
        Row { mark: String::new(), cells }
    };
    let table = Table {
        caption: format!("Requests that were answered as duplicates: {} in all, the last ones", duplicates.count),
        columns: vec!["Received", "Repeat", "Trace"],
        rows: duplicates.recent.iter().map(row).collect(),
        ..Table::default()
    };
    vec![Block::Heading("Duplicates".into()), Block::Table(table)]
}

fn clash_blocks(detail: &EventDetail) -> Vec<Block> {
    let Some(clash) = &detail.clash else { return vec![] };
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "absent".to_owned(), pretty);
    let changes =
        clash.changes.iter().chain(clash.variants.iter().flat_map(|variant| variant.changes.iter().flatten()));
    let rows = changes.map(|change| Row {
        mark: String::new(),
        cells: vec![Cell::Code(change.path.clone()), Cell::Text(text(&change.before)), Cell::Text(text(&change.after))],
    });
    let table = Table {
        caption: "Differences".into(),
        columns: vec!["Field", "First", "Other"],
        rows: rows.collect(),
        empty: "The difference is not stored.".into(),
        ..Table::default()
    };
    vec![Block::Heading("Other content under the same key".into()), Block::Table(table)]
}

/// Looks for what the text names. It may name a person, so it is sent in a form and never in an address.
pub(super) async fn search(sent: Sent) -> Response {
    let (visit, text) = (&sent.visit, sent.form.get("q").to_owned());
    if text.starts_with("job_") {
        return Redirect::to(&format!("/jobs/{}", query_value(&text))).into_response();
    }
    if text.starts_with("replay_") {
        return Redirect::to(&format!("/replays/{}", query_value(&text))).into_response();
    }
    if text.is_empty() {
        return Redirect::to("/events").into_response();
    }
    if let Ok(detail) = visit.operator.event(&text, None).await {
        return Redirect::to(&format!("/events/{}", detail.event.id)).into_response();
    }
    if text.starts_with("con_") {
        return Redirect::to(&format!("/people/{}", query_value(&text))).into_response();
    }
    lineage(visit, &text).await
}
