//! Jobs, dead letters and unknown outcomes.

use axum::extract::Path;
use axum::response::Response;
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_ledger::{JobFilter, Resolution};

use super::events::{PAGE_ROWS, pretty};
use super::failure_groups;
use super::page::{Act, Block, Bulk, Cell, Field, Filter, More, Row, Table, query_value, shell};
use super::state_map::StateMap;
use super::timeline::{Timeline, job_lane, length, wait_after, waited};
use super::visit::{Failure, Fields, Sent, Visit};
use crate::operate::views::{JobDetail, JobView};
use crate::operate::{Selection, moment};

/// Reads a filter. Relative times become absolute, so that a plan and its run select the same jobs.
pub(super) fn job_filter(fields: &Fields, default: &[JobState]) -> Result<JobFilter, Failure> {
    let state =
        |word: &str| JobState::parse(word.trim()).ok_or_else(|| Failure::invalid(format!("`{word}` is no job state")));
    let states = match fields.get("state") {
        "" => default.to_vec(),
        words => words.split(',').map(state).collect::<Result<_, _>>()?,
    };
    Ok(JobFilter {
        states,
        worker: fields.option("worker"),
        queue: fields.option("queue"),
        dead_letter_queue: None,
        source: fields.option("source"),
        class: fields.option("class"),
        code: fields.option("code"),
        destination: fields.option("destination"),
        since: fields.option("since").map(|text| moment(&text)).transpose()?,
        until: fields.option("until").map(|text| moment(&text)).transpose()?,
    })
}

/// The fields of a filter, for a form or an address.
pub(super) fn filter_fields(filter: &JobFilter) -> Vec<(String, String)> {
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let time = |value: Option<Time>| value.map(|at| at.to_string()).unwrap_or_default();
    let pairs = [
        ("state", states.join(",")),
        ("worker", text(&filter.worker)),
        ("queue", text(&filter.queue)),
        ("source", text(&filter.source)),
        ("class", text(&filter.class)),
        ("code", text(&filter.code)),
        ("destination", text(&filter.destination)),
        ("since", time(filter.since)),
        ("until", time(filter.until)),
    ];
    pairs.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Jobs of a sheet: the marked ones, or all that match now.
pub(super) fn selection(sent: &Sent, states: &[JobState]) -> Result<(Selection, Vec<(String, String)>), Failure> {
    if sent.visit.query().get("scope") == "all" {
        let mut filter = job_filter(&sent.form, states)?;
        // By the clock that jobs are stamped with.
        filter.until = filter.until.or_else(|| Some(sent.visit.operator.now()));
        let fields = filter_fields(&filter);
        return Ok((Selection { ids: vec![], filter: Some(filter) }, fields));
    }
    let ids = sent.form.all("id");
    if ids.is_empty() {
        return Err(Failure::invalid("mark at least one row first"));
    }
    let fields = ids.iter().map(|id| ("id".to_owned(), id.clone())).collect();
    Ok((Selection { ids, filter: None }, fields))
}

/// Jobs that a confirmed sheet names.
pub(super) fn chosen(form: &Fields) -> Result<Selection, Failure> {
    let ids = form.all("id");
    if !ids.is_empty() {
        return Ok(Selection { ids, filter: None });
    }
    let filter = job_filter(form, &[])?;
    // A sheet names the states and the time of its plan; without them every job would match.
    if filter.states.is_empty() || filter.until.is_none() {
        return Err(Failure::invalid("the form names no jobs; plan it again"));
    }
    Ok(Selection { ids, filter: Some(filter) })
}

/// The selection on the command line.
pub(super) fn arguments(selection: &Selection) -> String {
    match &selection.filter {
        Some(filter) => {
            let pairs = filter_fields(filter);
            pairs.iter().map(|(name, value)| format!(" --filter {}", shell(&format!("{name}={value}")))).collect()
        }
        None => selection.ids.iter().map(|id| format!(" {}", shell(id))).collect(),
    }
}

/// The selection in words.
pub(super) fn in_words(selection: &Selection) -> String {
    match &selection.filter {
        Some(filter) => {
            let words: Vec<String> =
                filter_fields(filter).iter().map(|(name, value)| format!("{name} {value}")).collect();
            format!("all jobs with {}", words.join(", "))
        }
        None => selection.ids.join(", "),
    }
}

fn filter_form(action: &'static str, query: &Fields, with_state: bool) -> Filter {
    let states: Vec<&'static str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
    let mut fields = vec![
        Field::text("worker", "Worker", query.get("worker"), ""),
        Field::text("code", "Failure code", query.get("code"), ""),
        Field::text("source", "Source", query.get("source"), ""),
        Field::text("since", "Since", query.get("since"), "24h or a time"),
    ];
    if with_state {
        fields.insert(0, Field::choice("state", "State", query.get("state"), states));
    }
    Filter { action, fields }
}

fn row(job: &JobView) -> Row {
    let why = match (&job.waiting_for, &job.failure) {
        (Some(wait), _) => wait.message.clone(),
        (None, Some(failure)) => format!("{}: {}", failure.code, failure.message),
        (None, None) => String::new(),
    };
    Row {
        mark: job.id.clone(),
        cells: vec![
            Cell::Id(format!("/jobs/{}", job.id), job.id.clone()),
            Cell::State(job.state.clone()),
            Cell::Text(job.worker.clone()),
            Cell::Text(why),
            Cell::Number(u64::from(job.attempts_total)),
            Cell::Time(job.updated_at.clone()),
        ],
    }
}

async fn job_table(visit: &Visit, action: &str, default: &[JobState]) -> Result<(Table, JobFilter), Failure> {
    let query = visit.query();
    let filter = job_filter(query, default)?;
    let found = visit.operator.jobs(filter.clone(), query.option("after"), PAGE_ROWS).await?;
    let table = Table {
        caption: "Jobs, newest first".into(),
        columns: vec!["Job", "State", "Worker", "Why", "Attempts", "Changed"],
        rows: found.items.iter().map(row).collect(),
        empty: "No job matches.".into(),
        more: More::of(&found, action, query),
        bulk: None,
    };
    Ok((table, filter))
}

fn list_twin(command: &str, path: &str, filter: &JobFilter) -> Block {
    let fields = filter_fields(filter);
    let flags: String = fields.iter().map(|(name, value)| format!(" --{name} {}", shell(value))).collect();
    let query: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", query_value(value))).collect();
    let address = format!("curl -H \"Authorization: Bearer $TOKEN\" \"$NODE/api/v1/{path}?{}\"", query.join("&"));
    Block::Twin(format!("sluice {command}{flags}"), address)
}

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = job_table(&visit, "/jobs", &[]).await.map(|(table, filter)| {
        vec![
            Block::Filter(filter_form("/jobs", visit.query(), true)),
            visit.save_view(),
            Block::Table(table),
            list_twin("jobs", "jobs", &filter),
        ]
    });
    visit.show("Jobs", blocks).await
}

pub(super) async fn dead_letters(visit: Visit) -> Response {
    let blocks = dead_letter_blocks(&visit).await;
    visit.show("Dead letters", blocks).await
}

async fn dead_letter_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let (table, filter) = job_table(visit, "/dead-letters", &[JobState::Dead]).await?;
    let bulk = Bulk {
        form_token: visit.session.form_token.clone(),
        hidden: filter_fields(&filter),
        buttons: vec![
            ("/sheets/replay?scope=marked".into(), "Replay marked…".into()),
            ("/sheets/replay?scope=all".into(), "Replay all that match…".into()),
            ("/sheets/drop?scope=marked".into(), "Drop marked…".into()),
            ("/sheets/drop?scope=all".into(), "Drop all that match…".into()),
        ],
    };
    let empty = "Nothing waits for you: no dead letter matches.".to_owned();
    let mut blocks = failure_groups::blocks(visit).await?;
    blocks.extend([
        Block::Heading("Dead letters".into()),
        Block::Filter(filter_form("/dead-letters", visit.query(), false)),
        visit.save_view(),
        Block::Table(Table { bulk: Some(bulk), empty, ..table }),
        list_twin("dlq", "dead-letters", &JobFilter { states: vec![], ..filter }),
    ]);
    Ok(blocks)
}

pub(super) async fn unknown(visit: Visit) -> Response {
    let blocks = job_table(&visit, "/unknown", &[JobState::Unknown]).await.map(|(table, filter)| {
        let text = "A call was sent and its answer was not seen, and the destination cannot tell. Look there, then open the job and say \
                    whether the effect happened."
            .to_owned();
        let empty = "No effect is in doubt: every call was answered, or read back.".to_owned();
        vec![Block::Text(text), Block::Table(Table { empty, ..table }), list_twin("jobs", "jobs", &filter)]
    });
    visit.show("Unknown outcomes", blocks).await
}

pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let detail = visit.operator.job(&id).await.map_err(Failure::from);
    let blocks = detail.map(|detail| job_blocks(&visit, &detail));
    visit.show(&format!("Job {id}"), blocks).await
}

fn job_blocks(visit: &Visit, detail: &JobDetail) -> Vec<Block> {
    let job = &detail.job;
    let mut facts = vec![
        ("State".to_owned(), Cell::State(job.state.clone())),
        ("Event".to_owned(), Cell::Id(format!("/events/{}", job.event_id), job.event_id.clone())),
        ("Worker".to_owned(), Cell::Text(job.worker.clone())),
        ("Queue".to_owned(), Cell::Text(job.queue.clone())),
        ("Source".to_owned(), Cell::Text(job.source.clone())),
        ("Attempts".to_owned(), Cell::Number(u64::from(job.attempts_total))),
        ("Replays".to_owned(), Cell::Number(u64::from(job.replays))),
        ("Changed".to_owned(), Cell::Time(job.updated_at.clone())),
        ("Revision".to_owned(), Cell::Id(format!("/configuration/{}", job.revision), job.revision.clone())),
    ];
    if let Some(wait) = &job.waiting_for {
        facts.push(("Waits for".to_owned(), Cell::Text(wait.message.clone())));
        facts.extend(wait.until.clone().map(|until| ("Until".to_owned(), Cell::Time(until))));
    }
    if let Some(failure) = &job.failure {
        facts.push((
            "Last failure".to_owned(),
            Cell::Text(format!("{} ({}): {}", failure.code, failure.class, failure.message)),
        ));
    }
    let mut blocks = vec![Block::Facts(facts)];
    blocks.extend(job_acts(visit, job));
    blocks.extend([
        Block::Heading("Way through the states".into()),
        Block::States(StateMap::path(detail)),
        Block::Heading("Timeline".into()),
        Block::Timeline(Timeline::new(vec![job_lane(detail, visit.operator.now())], visit.zone())),
        Block::Heading("Attempts".into()),
        Block::Table(attempts(detail)),
        Block::Heading("Effects".into()),
        Block::Table(effects(detail)),
        Block::Code("Payload, masked".into(), detail.preview.join("\n")),
        Block::Twin(
            format!("sluice jobs show {}", job.id),
            format!("curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/jobs/{}", job.id),
        ),
    ]);
    blocks
}

fn job_acts(visit: &Visit, job: &JobView) -> Vec<Block> {
    let mut acts: Vec<(&str, Act)> = vec![];
    let one = |action: &str, button: &str| visit.act(action, button).with("id", job.id.clone());
    if job.state == "unknown" {
        let resolve = |resolution: &str, button: &str| {
            visit
                .act(format!("/jobs/{}/resolve", job.id), button)
                .with("resolution", resolution)
                .asking(Field::reason())
        };
        acts.push(("It happened", resolve("happened", "The effect happened")));
        acts.push(("It did not happen", resolve("did-not-happen", "The effect did not happen")));
    }
    if ["dead", "succeeded", "noop", "dropped"].contains(&job.state.as_str()) {
        acts.push(("Replay", one("/sheets/replay?scope=marked", "Plan a replay…")));
    }
    if ["dead", "unknown"].contains(&job.state.as_str()) {
        acts.push(("Drop", one("/sheets/drop?scope=marked", "Drop…")));
    }
    acts.into_iter().map(|(label, act)| Block::Fold(label.to_owned(), vec![act])).collect()
}

fn attempts(detail: &JobDetail) -> Table {
    let next = |n: u32| detail.attempts_made.iter().find(|attempt| attempt.n > n);
    let row = |attempt: &crate::operate::views::AttemptView| {
        let times = next(attempt.n).and_then(|next| waited(attempt, next));
        let then = times.map(|(from, to)| format!("{}, {}", wait_after(attempt), length(from, to)));
        let failure = attempt.failure.as_ref().map(|failure| format!("{}: {}", failure.code, failure.message));
        Row {
            mark: String::new(),
            cells: vec![
                Cell::Number(u64::from(attempt.n)),
                Cell::Text(attempt.step.clone()),
                Cell::Text(attempt.kind.clone()),
                Cell::Text(attempt.outcome.clone()),
                Cell::Text(format!("{} ms", attempt.took_ms)),
                Cell::Text(failure.unwrap_or_default()),
                Cell::Text(then.unwrap_or_default()),
                Cell::Time(attempt.started_at.clone()),
            ],
        }
    };
    Table {
        caption: "Attempts".into(),
        columns: vec!["No.", "Step", "Kind", "Outcome", "Took", "Failure", "Then waited", "Started"],
        rows: detail.attempts_made.iter().map(row).collect(),
        empty: "No attempt was made yet.".into(),
        ..Table::default()
    }
}

fn effects(detail: &JobDetail) -> Table {
    let row = |effect: &crate::operate::views::EffectView| Row {
        mark: String::new(),
        cells: vec![
            Cell::Text(effect.step.clone()),
            Cell::Text(effect.action.clone()),
            Cell::Text(effect.destination.clone()),
            Cell::Text(effect.state.clone()),
            Cell::Text(effect.class.clone()),
            Cell::Code(effect.key.clone()),
            Cell::Text(effect.result.as_ref().map(pretty).unwrap_or_default()),
            Cell::Time(effect.last_at.clone()),
        ],
    };
    Table {
        caption: "Effects".into(),
        columns: vec!["Step", "Action", "Destination", "State", "Class", "Effect key", "Response", "Last"],
        rows: detail.effects.iter().map(row).collect(),
        empty: "Nothing was sent.".into(),
        ..Table::default()
    }
}

pub(super) async fn resolve(Path(id): Path<String>, sent: Sent) -> Response {
    let done = resolve_job(&sent, &id).await;
    sent.visit.done(done).await
}

async fn resolve_job(sent: &Sent, id: &str) -> Result<String, Failure> {
    let resolution = match sent.form.get("resolution") {
        "happened" => Resolution::Happened,
        "did-not-happen" => Resolution::NotHappened,
        other => return Err(Failure::invalid(format!("`{other}` does not say whether the effect happened"))),
    };
    let detail = sent.visit.operator.resolve(id, resolution, "", sent.form.get("reason")).await?;
    Ok(format!("/jobs/{}", detail.job.id))
}

/// What a drop would do, and the form that does it.
pub(super) async fn drop_sheet(sent: Sent) -> Response {
    let blocks = drop_blocks(&sent).await;
    sent.visit.show("Drop dead letters", blocks).await
}

async fn drop_blocks(sent: &Sent) -> Result<Vec<Block>, Failure> {
    let (selection, fields) = selection(sent, &[JobState::Dead])?;
    let planned = sent.visit.operator.drop_jobs(&selection, "", "preview", true).await?;
    let facts = vec![
        ("Jobs".to_owned(), Cell::Text(in_words(&selection))),
        ("Will be dropped".to_owned(), Cell::Number(planned.changed)),
        ("Will be left as they are".to_owned(), Cell::Number(planned.skipped.len() as u64)),
    ];
    let mut act = sent.visit.act("/dead-letters/drop", format!("Drop {} jobs", planned.changed)).that_is_final();
    act.hidden = fields;
    let typed = Field {
        required: true,
        ..Field::text("count", "Type the number of jobs to confirm", "", "it cannot be undone")
    };
    let act = act.with("planned", planned.changed.to_string()).asking(Field::reason()).asking(typed);
    Ok(vec![
        Block::Facts(facts),
        Block::Act(act),
        Block::Twin(format!("sluice dlq drop{} --reason WHY", arguments(&selection)), String::new()),
    ])
}

pub(super) async fn drop_jobs(sent: Sent) -> Response {
    let done = confirm_drop(&sent).await;
    sent.visit.done(done).await
}

async fn confirm_drop(sent: &Sent) -> Result<String, Failure> {
    let (typed, planned) = (sent.form.get("count"), sent.form.get("planned"));
    if typed != planned {
        return Err(Failure::invalid(format!(
            "you typed `{typed}`, but {planned} jobs would be dropped; nothing was dropped"
        )));
    }
    let selection = chosen(&sent.form)?;
    sent.visit.operator.drop_jobs(&selection, "", sent.form.get("reason"), false).await?;
    Ok("/dead-letters".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_survives_the_way_through_a_form() {
        let fields = Fields::parse("state=dead&worker=crm&code=TOO%20LONG&since=2026-11-17T10%3A00%3A00Z");
        let Ok(filter) = job_filter(&fields, &[]) else { panic!("the filter is valid") };
        let sent: Vec<String> =
            filter_fields(&filter).iter().map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        let Ok(read) = job_filter(&Fields::parse(&sent.join("&")), &[]) else { panic!("the filter is valid") };
        assert_eq!(read, filter);
        assert!(job_filter(&Fields::parse("state=nonsense"), &[]).is_err());
    }
}
