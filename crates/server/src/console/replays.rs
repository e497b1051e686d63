//! Replays: plan, start, follow, control.

use axum::extract::Path;
use axum::response::Response;
use sluice_domain::job::JobState;
use sluice_domain::replay::ReplayState;

use super::events::PAGE_ROWS;
use super::jobs::{arguments, chosen, in_words, selection};
use super::page::{Block, Cell, Field, FieldKind, More, Row, Table};
use super::visit::{Failure, Sent, Visit};
use crate::operate::ReplayRequest;
use crate::operate::views::{ReplayPreview, ReplayResult, ReplayView};

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("Replays", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let found = visit.operator.replays(query.option("after"), PAGE_ROWS).await?;
    let row = |replay: &ReplayView| Row {
        mark: replay.id.clone(),
        cells: vec![
            Cell::Id(format!("/replays/{}", replay.id), replay.id.clone()),
            Cell::Text(replay.state.clone()),
            Cell::Number(replay.replayed),
            Cell::Number(replay.skipped),
            Cell::Text(replay.actor.clone()),
            Cell::Text(replay.reason.clone()),
            Cell::Time(replay.created_at.clone()),
        ],
    };
    let table = Table {
        caption: "Replays, newest first".into(),
        columns: vec!["Replay", "State", "Requeued", "Skipped", "Who", "Why", "Started"],
        rows: found.items.iter().map(row).collect(),
        empty: "No replay yet. Mark dead letters and choose Replay; nothing is requeued before you have seen the plan."
            .into(),
        more: More::of(&found, "/replays", query),
        bulk: None,
    };
    let twin =
        Block::Twin("sluice replays".into(), "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/replays".into());
    Ok(vec![Block::Table(table), twin])
}

/// What a replay would do, and the form that starts it.
pub(super) async fn sheet(sent: Sent) -> Response {
    let blocks = sheet_blocks(&sent).await;
    sent.visit.show("Replay: plan", blocks).await
}

async fn sheet_blocks(sent: &Sent) -> Result<Vec<Block>, Failure> {
    let (selection, fields) = selection(sent, &[JobState::Dead])?;
    let request = ReplayRequest {
        selection: selection.clone(),
        reason: "preview".into(),
        dry_run: true,
        ..ReplayRequest::default()
    };
    let planned = sent.visit.operator.replay(request).await?;
    let (counts, button) = totals(&planned);
    let mut facts = vec![("Jobs".to_owned(), Cell::Text(in_words(&selection)))];
    facts.extend(counts);
    facts.extend(planned.preview.iter().flat_map(forecast));
    let mut act = sent.visit.act("/replays", button);
    act.hidden = fields;
    let latest = Field {
        kind: FieldKind::Check,
        ..Field::text(
            "latest_config",
            "Run with the active configuration",
            "",
            "otherwise each job runs with its own revision",
        )
    };
    let rate = Field::text("rate", "Jobs per time", "", "for example 10/s; empty: as fast as the destinations allow");
    let batch = Field::text("batch", "Jobs at a time", "", "100 if empty, 500 at most; a rate begins with one batch");
    let act = act.asking(Field::reason()).asking(rate).asking(batch).asking(latest);
    Ok(vec![
        Block::Text("Effects that were applied are not sent again: a job continues where it stopped.".into()),
        Block::Facts(facts),
        Block::Act(act),
        Block::Twin(format!("sluice replay{} --reason WHY", arguments(&selection)), String::new()),
    ])
}

/// How many jobs a replay takes, and the label of its button. A plan looks at the oldest jobs only; the replay takes all.
fn totals(planned: &ReplayResult) -> (Vec<(String, Cell)>, String) {
    let jobs = &planned.jobs;
    let is_part = planned.preview.as_ref().is_some_and(|preview| preview.next.is_some());
    let count = |number: u64| match is_part {
        true => Cell::Text(format!("{number} or more")),
        false => Cell::Number(number),
    };
    let mut facts = vec![
        ("Will be requeued".to_owned(), count(jobs.changed)),
        ("Will be left as they are".to_owned(), count(jobs.matched.saturating_sub(jobs.changed))),
    ];
    if !is_part {
        return (facts, format!("Replay {} jobs", jobs.changed));
    }
    let text = format!("the oldest {} jobs; more match, and all of them are replayed", jobs.matched);
    facts.insert(0, ("The numbers are those of".to_owned(), Cell::Text(text)));
    (facts, "Replay all jobs that match".to_owned())
}

fn forecast(preview: &ReplayPreview) -> Vec<(String, Cell)> {
    let number = |label: &str, count: u64| (label.to_owned(), Cell::Number(count));
    let mut facts = vec![
        number("Examined", preview.examined),
        number("Would find everything done", preview.noops),
        number("Calls that create or update", preview.writes),
        number("Calls that send something", preview.sends),
        number("Would fail again", preview.fails),
        number("May fail again", preview.at_risk),
    ];
    let calls =
        preview.destinations.iter().map(|call| (format!("Calls of {}", call.destination), Cell::Number(call.calls)));
    facts.extend(calls);
    facts.extend(preview.seconds.map(|seconds| ("Takes at least".to_owned(), Cell::Text(format!("{seconds} s")))));
    facts
}

pub(super) async fn start(sent: Sent) -> Response {
    let done = start_replay(&sent).await;
    sent.visit.done(done).await
}

async fn start_replay(sent: &Sent) -> Result<String, Failure> {
    let request = ReplayRequest {
        selection: chosen(&sent.form)?,
        reason: sent.form.get("reason").to_owned(),
        rate: sent.form.option("rate"),
        batch: batch(sent)?,
        latest_config: sent.form.get("latest_config") == "yes",
        ..ReplayRequest::default()
    };
    let started = sent.visit.operator.replay(request).await?;
    Ok(started.replay.map_or_else(|| "/replays".to_owned(), |replay| format!("/replays/{}", replay.id)))
}

fn batch(sent: &Sent) -> Result<Option<u32>, Failure> {
    let read = |text: String| text.parse().map_err(|_| Failure::invalid(format!("`{text}` is not a number of jobs")));
    sent.form.option("batch").map(read).transpose()
}

pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let found = visit.operator.replay_view(&id).await.map_err(Failure::from);
    let blocks = found.map(|replay| replay_blocks(&visit, &replay));
    visit.show(&format!("Replay {id}"), blocks).await
}

fn replay_blocks(visit: &Visit, replay: &ReplayView) -> Vec<Block> {
    let mut facts = vec![
        ("State".to_owned(), Cell::Text(replay.state.clone())),
        ("Requeued".to_owned(), Cell::Number(replay.replayed)),
        ("Skipped".to_owned(), Cell::Number(replay.skipped)),
        ("Who".to_owned(), Cell::Text(replay.actor.clone())),
        ("Why".to_owned(), Cell::Text(replay.reason.clone())),
        ("Started".to_owned(), Cell::Time(replay.created_at.clone())),
        ("Changed".to_owned(), Cell::Time(replay.updated_at.clone())),
    ];
    facts.extend(replay.remaining.map(|left| ("Left".to_owned(), Cell::Number(left))));
    facts.extend(replay.rate.clone().map(|rate| ("Rate".to_owned(), Cell::Text(rate))));
    facts.extend(replay.filter.as_ref().map(|filter| ("Jobs with".to_owned(), Cell::Code(filter.to_string()))));
    facts.extend(replay.jobs.map(|jobs| ("Jobs named".to_owned(), Cell::Number(jobs))));
    let act = |word: &str, label: &str| {
        let act = visit.act(format!("/replays/{}/{word}", replay.id), label).asking(Field::reason());
        Block::Fold(label.to_owned(), vec![act])
    };
    let mut blocks = vec![Block::Facts(facts)];
    match replay.state.as_str() {
        "running" => blocks.extend([act("pause", "Pause"), act("cancel", "Cancel")]),
        "paused" => blocks.extend([act("resume", "Resume"), act("cancel", "Cancel")]),
        _ => {}
    }
    blocks.push(Block::Twin(
        format!("sluice replays show {}", replay.id),
        format!("curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/replays/{}", replay.id),
    ));
    blocks
}

pub(super) async fn control(Path((id, act)): Path<(String, String)>, sent: Sent) -> Response {
    let state = match act.as_str() {
        "pause" => Ok(ReplayState::Paused),
        "resume" => Ok(ReplayState::Running),
        "cancel" => Ok(ReplayState::Cancelled),
        other => Err(Failure::invalid(format!("a replay cannot `{other}`"))),
    };
    let done = match state {
        Ok(state) => {
            let controlled = sent.visit.operator.control_replay(&id, state, "", sent.form.get("reason")).await;
            controlled.map(|replay| format!("/replays/{}", replay.id)).map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    sent.visit.done(done).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::views::BulkResult;

    #[test]
    fn plan_of_a_part_does_not_state_its_count_as_the_whole() {
        let planned = |next: Option<&str>| ReplayResult {
            jobs: BulkResult { matched: 2_000, changed: 1_990, ..BulkResult::default() },
            replay: None,
            preview: Some(ReplayPreview { next: next.map(str::to_owned), ..ReplayPreview::default() }),
        };
        assert_eq!(totals(&planned(None)).1, "Replay 1990 jobs");
        let (facts, button) = totals(&planned(Some("job_2000")));
        assert_eq!(button, "Replay all jobs that match");
        let shown: Vec<String> = facts.iter().map(|(name, cell)| format!("{name}: {cell}")).collect();
        assert!(shown[0].contains("oldest 2000 jobs") && shown[1].contains("1990 or more"), "{shown:?}");
    }
}
