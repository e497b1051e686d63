//! Balance: every accepted event is accounted for, by day and source.

use axum::response::Response;

use super::page::{Block, Cell, Row, Table, query_value};
use super::visit::{Failure, Visit};
use crate::operate::views::BalanceRow;
use crate::operate::{Account, Effort};

/// Days of a page that names none.
const DAYS: u32 = 7;
const DAYS_MAX: u32 = 92;

pub(super) async fn show(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Balance", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let days =
        match query.get("days") {
            "" => DAYS,
            word => word.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days)).ok_or_else(|| {
                Failure::invalid(format!("`{word}` is not a number of days between 1 and {DAYS_MAX}"))
            })?,
        };
    let effort = if query.get("account") == "all" { Effort::Whole } else { Effort::Little };
    let account = visit.operator.account(days, effort).await?;
    let mut blocks = vec![Block::Text(
        "Accepted = done + noop + dead + waiting + unknown + dropped + pruned. An event with several jobs counts once, by the worst of them.".into(),
    )];
    let links = [(1, "today"), (7, "7 days"), (30, "30 days"), (92, "92 days")];
    let links = links.map(|(count, label)| {
        (format!("/balance?{}", query.query_with("days", &count.to_string())), label, count == days)
    });
    blocks.push(Block::Windows(links.to_vec()));
    blocks.extend(account_blocks(&account, days));
    blocks.push(Block::Twin(format!("sluice balance --since {days}d"), String::new()));
    Ok(blocks)
}

const COLUMNS: [&str; 12] = [
    "Day",
    "Source",
    "Accepted",
    "Duplicates",
    "Done",
    "No-op",
    "Dead",
    "Waiting",
    "Unknown",
    "Dropped",
    "Pruned",
    "Missing",
];

fn account_blocks(account: &Account, days: u32) -> Vec<Block> {
    let Some((lines, took)) = &account.outcomes else {
        let href = format!("/balance?days={days}&account=all");
        let facts = vec![
            ("Events in the ledger".to_owned(), Cell::Number(account.events)),
            ("What became of them".to_owned(), Cell::Link(href, "read every event now; this takes seconds".into())),
        ];
        return vec![Block::Facts(facts), Block::Table(count_table(account))];
    };
    let lost: u64 = lines.iter().filter_map(|line| line.remainder).map(i64::unsigned_abs).sum();
    let verdict = match lost {
        0 => Cell::Verdict("succeeded", "all events are accounted for"),
        _ => Cell::Verdict("dead", "events are missing"),
    };
    let facts = vec![
        ("Verdict".to_owned(), verdict),
        ("Not accounted for".to_owned(), Cell::Number(lost)),
        ("Read in".to_owned(), Cell::Text(format!("{} ms", took.as_millis()))),
    ];
    let row = |line: &BalanceRow| {
        let events = |state: &str| day_link(&line.day, &line.source, state);
        Row {
            mark: String::new(),
            cells: vec![
                Cell::Text(line.day.clone()),
                Cell::Link(format!("/sources/{}", query_value(&line.source)), line.source.clone()),
                Cell::Count(events(""), line.accepted),
                Cell::Number(line.duplicates),
                Cell::Count(events("done"), line.done),
                Cell::Number(line.noop),
                Cell::Count(events("dead"), line.dead),
                Cell::Count(events("working"), line.waiting),
                Cell::Count(events("unknown"), line.unknown),
                Cell::Count(events("dropped"), line.dropped),
                Cell::Number(line.pruned),
                Cell::Text(line.remainder.map(|count| count.to_string()).unwrap_or_default()),
            ],
        }
    };
    let table = Table {
        caption: "Balance by day and source".into(),
        columns: COLUMNS.to_vec(),
        rows: lines.iter().rev().map(row).collect(),
        empty: "Nothing was accepted in this time.".into(),
        ..Table::default()
    };
    vec![Block::Facts(facts), Block::Table(table)]
}

/// Events of a source since the start of a day, in a state.
fn day_link(day: &str, source: &str, state: &str) -> String {
    let since = query_value(&format!("{day}T00:00:00Z"));
    format!("/events?source={}&state={state}&since={since}", query_value(source))
}

fn count_table(account: &Account) -> Table {
    let row = |count: &sluice_ledger::SourceDayCounts| Row {
        mark: String::new(),
        cells: vec![
            Cell::Text(count.day.clone()),
            Cell::Link(format!("/sources/{}", query_value(&count.source)), count.source.clone()),
            Cell::Count(day_link(&count.day, &count.source, ""), count.accepted),
            Cell::Number(count.duplicates),
            Cell::Number(count.clashes),
            Cell::Number(count.pruned),
        ],
    };
    Table {
        caption: "What came in, by day and source".into(),
        columns: vec!["Day", "Source", "Accepted", "Duplicates", "Key clashes", "Pruned"],
        rows: account.counts.iter().rev().map(row).collect(),
        empty: "Nothing was accepted in this time.".into(),
        ..Table::default()
    }
}
