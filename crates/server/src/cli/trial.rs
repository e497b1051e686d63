//! `sluice plan --history`: a trial of the new configuration on stored requests.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::event::EventId;
use sluice_domain::unit::format_duration;

use super::node_access::AdminClient;
use super::print::{self, grouped, heading, hint, moment, plural};
use super::stop::Stop;
use super::table::{Cell, Column, Table, pairs};
use super::{CliError, exit};
use crate::change::{ContactTrial, FieldDifferenceRow, OutcomeDifference, Sample, TrialReport};
use crate::operate::views::TrialView;

/// Between two looks at the progress.
const POLL: Duration = Duration::from_millis(250);
/// Columns of a sample on one line.
const LINE_MAX: usize = 80;
/// Rows of a table; `--json` has all.
const ROWS_SHOWN: usize = 20;

/// Starts a trial and waits for its report. An interrupt cancels it.
pub(super) async fn run(
    client: &AdminClient,
    files: &BTreeMap<String, String>,
    window: Duration,
) -> Result<Value, CliError> {
    let mut stop = Stop::listen()?;
    let order = json!({ "files": files, "window": format_duration(window) });
    let mut answer = client.post("/trials", &order).await?;
    let id = answer["id"].as_u64().unwrap_or_default();
    while answer["state"] == "running" {
        show_progress(&answer);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = stop.asked() => {
                clear_progress();
                client.post(&format!("/trials/{id}/cancel"), &json!({})).await?;
                return Err(CliError::new(exit::NO, "cancelled; nothing was changed"));
            }
        }
        answer = client.get(&format!("/trials/{id}"), &[]).await?;
    }
    clear_progress();
    match answer["state"].as_str() {
        Some("done") => Ok(answer),
        Some("failed") => {
            let problem = answer["problem"].as_str().unwrap_or_default();
            Err(CliError::new(exit::UNAVAILABLE, format!("the stored requests cannot be read: {problem}")))
        }
        _ => Err(CliError::new(exit::NO, "another operator has cancelled the trial; nothing was changed")),
    }
}

fn show_progress(answer: &Value) {
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return;
    }
    // Unknown until the window was looked up.
    if answer["events_total"] == 0 {
        return;
    }
    let count = |name: &str| grouped(answer[name].as_u64().unwrap_or_default());
    let (done, total, speed) = (count("events_done"), count("events_total"), count("events_per_second"));
    // A terminal that cannot be written to shows no progress.
    let _ = write!(err, "\r\x1b[2K{done} of {total} events, {speed} events/s");
    let _ = err.flush();
}

fn clear_progress() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[2K");
        let _ = err.flush();
    }
}

pub(super) fn render(view: &TrialView) -> String {
    let Some(report) = &view.report else { return String::new() };
    let mut text = heading("History");
    let speed = grouped(view.events_per_second);
    text.push_str(&pairs([
        ("since", moment(&view.since)),
        ("requests", format!("{} compared, {speed} events/s", grouped(report.events))),
        ("different", grouped(report.different)),
        ("other keys", some(report.other_keys)),
        ("without request", some(report.bodies_removed)),
        ("unreadable", some(report.unreadable)),
    ]));
    if view.is_cut {
        let total = grouped(view.events_total);
        text.push_str(&hint(&format!("The window has more events; only the newest {total} were compared.")));
    }
    if report.is_same() {
        text.push_str("Both configurations do the same with every request.\n");
        return text;
    }
    text.push_str(&differences(report));
    if let Some(contacts) = &report.contacts {
        text.push_str(&render_contacts(contacts));
    }
    if report.left_out > 0 {
        text.push_str(&hint(&format!(
            "{} in rows beyond the limit of a table.",
            plural(report.left_out, "difference")
        )));
    }
    if report.contacts_at_least {
        text.push_str(&hint("Numbers of contacts are lower bounds: there were too many to tell apart."));
    }
    text
}

/// The tables of what differs; nothing if nothing does.
pub(super) fn differences(report: &TrialReport) -> String {
    let tables = [
        summary(report),
        outcomes(report),
        jobs(report),
        fields("Normalized fields", &report.fields),
        writes(report),
        warnings(report),
    ];
    tables.concat()
}

fn some(count: u64) -> String {
    if count == 0 { String::new() } else { grouped(count) }
}

/// What matters most, in one line each.
fn summary(report: &TrialReport) -> String {
    let is = |label: &str, start: &str| label.starts_with(start);
    let count = |from: fn(&str) -> bool, to: &str| {
        some(report.changed(|row: &OutcomeDifference| from(&row.before) && is(&row.after, to)))
    };
    let stays_out = |before: &str| before != "accepted" && before != "duplicate";
    pairs([
        ("would collapse", count(|before| before != "duplicate", "duplicate")),
        ("would come apart", count(|before| before == "duplicate", "accepted")),
        ("newly accepted", count(stays_out, "accepted")),
        ("newly quarantined", count(|before| !before.starts_with("quarantined"), "quarantined")),
        ("newly refused", count(|before| !before.starts_with("refused"), "refused")),
        ("without a flow", count(|before| before != "no flow", "no flow")),
    ])
}

fn outcomes(report: &TrialReport) -> String {
    let mut table =
        Table::new([Column::Wrap("FLOW"), Column::Wrap("NOW"), Column::Wrap("NEW"), Column::Number("REQUESTS")]);
    for row in report.outcomes.iter().take(ROWS_SHOWN) {
        let cells = [&row.flow, &row.before, &row.after].map(|text| Cell::from(text.as_str()));
        let [flow, before, after] = cells;
        table.row([flow, before, after, row.events.into()]);
    }
    let samples = report.outcomes.iter().map(|row| (format!("{} → {}", row.before, row.after), &row.samples));
    section("Outcomes", report.outcomes.len(), &table, samples)
}

fn jobs(report: &TrialReport) -> String {
    let mut table =
        Table::new([Column::Wrap("FLOW"), Column::Wrap("WORKER"), Column::Number("MORE"), Column::Number("FEWER")]);
    for row in report.jobs.iter().take(ROWS_SHOWN) {
        table.row([row.flow.as_str().into(), row.worker.as_str().into(), row.more.into(), row.fewer.into()]);
    }
    section("Jobs", report.jobs.len(), &table, std::iter::empty())
}

fn fields(title: &str, rows: &[FieldDifferenceRow]) -> String {
    // A shadow counts no contacts.
    let contacts = rows.iter().any(|row| row.contacts > 0);
    let mut columns = vec![Column::Wrap("FLOW"), Column::Wrap("FIELD"), Column::Number("EVENTS")];
    columns.extend(contacts.then_some(Column::Number("CONTACTS")));
    let mut table = Table::new(columns);
    for row in rows.iter().take(ROWS_SHOWN) {
        let cells = [row.flow.as_str().into(), row.field.as_str().into(), row.events.into()];
        table.row(cells.into_iter().chain(contacts.then(|| row.contacts.into())));
    }
    section(title, rows.len(), &table, rows.iter().map(|row| (row.field.clone(), &row.samples)))
}

fn writes(report: &TrialReport) -> String {
    let contacts = report.writes.iter().any(|row| row.contacts > 0);
    let mut columns =
        vec![Column::Wrap("WORKER"), Column::Wrap("STEP"), Column::Wrap("FIELD"), Column::Number("EVENTS")];
    columns.extend(contacts.then_some(Column::Number("CONTACTS")));
    let mut table = Table::new(columns);
    for row in report.writes.iter().take(ROWS_SHOWN) {
        let [worker, step, field] = [&row.worker, &row.step, &row.field].map(|text| Cell::from(text.as_str()));
        let cells = [worker, step, field, row.events.into()];
        table.row(cells.into_iter().chain(contacts.then(|| row.contacts.into())));
    }
    let samples = report.writes.iter().map(|row| (format!("{}.{}", row.step, row.field), &row.samples));
    section("Requests to destinations", report.writes.len(), &table, samples)
}

fn warnings(report: &TrialReport) -> String {
    let mut table = Table::new([
        Column::Wrap("FLOW"),
        Column::Wrap("FIELD"),
        Column::Whole("WARNING"),
        Column::Number("MORE"),
        Column::Number("FEWER"),
    ]);
    for row in report.warnings.iter().take(ROWS_SHOWN) {
        let [flow, field, code] = [&row.flow, &row.field, &row.code].map(|text| Cell::from(text.as_str()));
        table.row([flow, field, code, row.more.into(), row.fewer.into()]);
    }
    section("Conversion warnings", report.warnings.len(), &table, std::iter::empty())
}

fn render_contacts(contacts: &ContactTrial) -> String {
    let mut text = heading("Contacts of these requests");
    text.push_str(&pairs([
        ("active configuration", grouped(contacts.before)),
        ("new configuration", grouped(contacts.after)),
        ("joined", some(contacts.joined)),
        ("split", some(contacts.split)),
        ("not compared", some(contacts.not_compared)),
    ]));
    let mut table = Table::new([Column::Wrap("MERGED FIELD"), Column::Number("CONTACTS")]);
    for row in contacts.fields.iter().take(ROWS_SHOWN) {
        table.row([row.field.as_str().into(), row.contacts.into()]);
    }
    if !contacts.fields.is_empty() {
        text.push_str(&table.render());
        text.push_str(&samples(contacts.fields.iter().map(|row| (row.field.clone(), &row.samples))));
    }
    text
}

/// A table with its title and the first sample of each row; nothing without rows.
fn section<'a>(
    title: &str,
    rows: usize,
    table: &Table,
    of_rows: impl Iterator<Item = (String, &'a Vec<Sample>)>,
) -> String {
    if rows == 0 {
        return String::new();
    }
    let mut text = heading(title);
    text.push_str(&table.render());
    if rows > ROWS_SHOWN {
        text.push_str(&hint(&format!("{} more with --json.", grouped((rows - ROWS_SHOWN) as u64))));
    }
    text.push_str(&samples(of_rows));
    text
}

fn samples<'a>(of_rows: impl Iterator<Item = (String, &'a Vec<Sample>)>) -> String {
    let lines = of_rows.take(ROWS_SHOWN).filter_map(|(name, samples)| {
        let sample = samples.first()?;
        let event = EventId::shortened(&sample.event);
        let (before, after) = (&sample.before, &sample.after);
        let line = format!("  {event} {name}: {before} → {after}\n");
        Some(match line.chars().count() <= LINE_MAX {
            true => line,
            false => format!("  {event} {name}:\n    {before}\n    → {after}\n"),
        })
    });
    lines.collect()
}

/// The plan and the trial as one JSON value.
pub(super) fn joined(plan: &Value, trial: Option<&Value>) -> Value {
    let mut answer = plan.clone();
    if let (Some(members), Some(trial)) = (answer.as_object_mut(), trial) {
        members.insert("history".to_owned(), trial.clone());
    }
    answer
}

/// Reads the view of a trial.
pub(super) fn view(answer: &Value) -> Result<TrialView, CliError> {
    print::deserialize(answer)
}
