//! One source: what it sends over time, how late its duplicates are, how its payloads drift.

use axum::extract::Path;
use axum::response::Response;

use super::endpoints::pause_acts;
use super::measures::Charts;
use super::page::{Block, Cell, Field, Row, Table, query_value, shell};
use super::visit::{Failure, Sent, Visit};
use crate::operate::AcceptShapeRequest;
use crate::operate::views::{ShapeView, SourceDetail};

/// Fields of a learned shape that are shown.
const FIELDS_MAX: usize = 100;

pub(super) async fn show(visit: Visit, Path(name): Path<String>) -> Response {
    let blocks = blocks(&visit, &name).await;
    visit.show(&format!("Source {name}"), blocks).await
}

fn plain(cells: Vec<Cell>) -> Row {
    Row { mark: String::new(), cells }
}

fn table(caption: &str, columns: Vec<&'static str>, rows: impl Iterator<Item = Row>, empty: &str) -> Block {
    Block::Table(Table {
        caption: caption.into(),
        columns,
        rows: rows.collect(),
        empty: empty.into(),
        ..Table::default()
    })
}

async fn blocks(visit: &Visit, name: &str) -> Result<Vec<Block>, Failure> {
    let detail = visit.operator.source(name).await?;
    let is_paused = detail.source.paused;
    let back = format!("/sources/{}", query_value(name));
    let acts = pause_acts(visit, &format!("source:{name}"), is_paused, &back);
    let mut blocks = vec![
        Block::Facts(facts(&detail)),
        Block::Fold(if is_paused { "Resume".into() } else { "Pause".into() }, acts),
        Block::Heading("What happened".into()),
    ];
    let mut charts = Charts::begin(visit).await?;
    charts.requests(Some(name)).await?;
    charts.refusals(name).await?;
    charts.quiet(name).await?;
    blocks.extend(charts.end());
    blocks.extend(drift_blocks(visit, name).await?);
    blocks.extend(tables(&detail));
    blocks.push(Block::Twin(
        format!("sluice sources show {0}; sluice sources show {0} --shape", shell(name)),
        format!("curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/sources/{}", query_value(name)),
    ));
    Ok(blocks)
}

fn facts(detail: &SourceDetail) -> Vec<(String, Cell)> {
    let optional = |value: &Option<String>| Cell::Text(value.clone().unwrap_or_else(|| "not known".into()));
    let events = format!("/events?source={}", query_value(&detail.source.name));
    vec![
        ("Accepted, 7 days".to_owned(), Cell::Count(events, detail.source.accepted)),
        ("Duplicates, 7 days".to_owned(), Cell::Number(detail.source.duplicates)),
        ("Duplicates in all".to_owned(), Cell::Number(detail.keys.duplicates)),
        ("Duplicates after the key expired".to_owned(), Cell::Number(detail.keys.after_expiry)),
        ("Delay of duplicates, median".to_owned(), optional(&detail.keys.p50)),
        ("Delay, 99.9 %".to_owned(), optional(&detail.keys.p999)),
        ("Key lifetime that covers 99.9 %".to_owned(), optional(&detail.keys.lifetime_wanted)),
    ]
}

/// Departures from what its payloads usually look like, and the usual shape.
async fn drift_blocks(visit: &Visit, name: &str) -> Result<Vec<Block>, Failure> {
    let shapes = visit.operator.source_shapes(name).await?;
    let notices = shapes.iter().flat_map(|shape| {
        shape.notices.iter().map(|notice| {
            let act = visit
                .act(format!("/sources/{}/shape", query_value(name)), "Accept")
                .with("event_type", &*shape.event_type)
                .with("field", &*notice.path)
                .asking(Field::reason());
            plain(vec![
                Cell::Text(shape.event_type.clone()),
                Cell::Code(notice.path.clone()),
                Cell::Text(notice.text.clone()),
                Cell::Text(notice.example.clone().unwrap_or_default()),
                Cell::Time(notice.at.clone()),
                Cell::Acts(vec![act]),
            ])
        })
    });
    let mut blocks = vec![
        Block::Heading("Payload drift".into()),
        table(
            "Departures from the usual payload",
            vec!["Type", "Field", "What changed", "Example, masked", "Since", "Act"],
            notices,
            "Payloads look as they usually do.",
        ),
    ];
    blocks.extend(shapes.iter().map(shape_block));
    Ok(blocks)
}

fn shape_block(shape: &ShapeView) -> Block {
    let fields = shape.fields.iter().take(FIELDS_MAX).map(|field| {
        plain(vec![
            Cell::Code(field.path.clone()),
            Cell::Text(field.types.clone()),
            Cell::Text(format!("{} %", field.percent)),
            Cell::Text(field.values.join(", ")),
            Cell::Text(if field.used { "yes".into() } else { "no".into() }),
            Cell::Text(field.state.clone().unwrap_or_else(|| "usual".into())),
        ])
    });
    let learned = match shape.samples < shape.learned_after {
        true => format!("{} of {} requests", shape.samples, shape.learned_after),
        false => format!("{} requests", shape.samples),
    };
    let caption = format!("Shape of {}, learned from {learned}", shape.event_type);
    let columns = vec!["Field", "Type", "Present in", "Typical values", "Used", "State"];
    let table = Table { caption: caption.clone(), columns, rows: fields.collect(), ..Table::default() };
    Block::Folded(caption, Box::new(Block::Table(table)))
}

fn tables(detail: &SourceDetail) -> Vec<Block> {
    let source = &detail.source;
    let flows = source.flows.iter().map(|flow| {
        plain(vec![Cell::Text(flow.name.clone()), Cell::Code(flow.route.clone()), Cell::Text(flow.verify.clone())])
    });
    let limits = detail.limits.iter().map(|limit| {
        plain(vec![
            Cell::Text(limit.flow.clone()),
            Cell::Text(limit.secret.clone().unwrap_or_else(|| "the whole source".into())),
            Cell::Text(limit.rate.clone()),
            Cell::Number(u64::from(limit.burst)),
        ])
    });
    let refusals = source.refusals.iter().map(|refusal| {
        plain(vec![
            Cell::Code(refusal.code.clone()),
            Cell::Text(refusal.address.clone()),
            Cell::Text(refusal.detail.clone()),
            Cell::Time(refusal.at.clone()),
        ])
    });
    let lateness = detail.keys.lateness.iter().map(|bucket| {
        plain(vec![Cell::Text(bucket.within.clone()), Cell::Meter(bucket.duplicates, detail.keys.duplicates.max(1))])
    });
    let lifetimes = detail.keys.lifetimes.iter().map(|lifetime| {
        plain(vec![
            Cell::Text(lifetime.flow.clone()),
            Cell::Text(lifetime.lifetime.clone()),
            Cell::Text(lifetime.advice.clone()),
        ])
    });
    let warnings = detail.mapping_warnings.iter().map(|warning| {
        plain(vec![
            Cell::Code(warning.field.clone()),
            Cell::Text(warning.code.clone()),
            Cell::Number(warning.count),
            Cell::Time(warning.last_at.clone()),
        ])
    });
    vec![
        Block::Heading("Flows".into()),
        table("Flows", vec!["Flow", "Route", "Verified by"], flows, ""),
        Block::Heading("How late duplicates are".into()),
        table("Delay after the first request", vec!["Within", "Duplicates"], lateness, "No duplicate was seen."),
        table("Key lifetimes", vec!["Flow", "Lifetime", "Advice"], lifetimes, "No flow has a key lifetime."),
        Block::Heading("Rate limits".into()),
        table("Rate limits", vec!["Flow", "Of", "Rate", "Burst"], limits, "It has no rate limit."),
        Block::Heading("Values that were lost".into()),
        table("Conversions and lookups", vec!["Field", "Warning", "Events", "Last"], warnings, "No value was lost."),
        Block::Heading("Rejected requests".into()),
        table(
            "Rejected requests",
            vec!["Code", "Address", "Detail", "At"],
            refusals,
            "No request was rejected lately.",
        ),
    ]
}

/// Makes a changed payload the new normal.
pub(super) async fn accept_shape(Path(name): Path<String>, sent: Sent) -> Response {
    let request = AcceptShapeRequest {
        event_type: sent.form.option("event_type"),
        field: sent.form.option("field"),
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let accepted = sent.visit.operator.accept_shape(&name, &request).await;
    let done = accepted.map(|_| format!("/sources/{}", query_value(&name))).map_err(Failure::from);
    sent.visit.done(done).await
}
