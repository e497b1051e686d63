//! What may become active: files that wait in the node's directory, and the configuration that runs as a shadow.

use axum::response::Response;

use super::configuration::change_table;
use super::page::{Block, Cell, Field, Row, Table};
use super::visit::{Failure, Sent, Visit};
use crate::change::TrialReport;
use crate::operate::views::{PendingPlanView, ShadowView};
use crate::operate::{OperateError, StopShadowRequest};

/// Rows of a table of differences.
const DIFFERENCES_MAX: usize = 50;

/// Files of the directory that are not active, with what they would change.
pub(super) async fn pending_blocks(visit: &Visit) -> Vec<Block> {
    let heading = Block::Heading("Pending change".into());
    let pending = match visit.operator.pending_plan().await {
        Ok(PendingPlanView { problem: Some(problem), .. }) => Err(("config-invalid".to_owned(), problem)),
        Ok(view) => Ok(view.plan.filter(|plan| plan.running != plan.new)),
        Err(error) => Err((error.code().to_owned(), error.to_string())),
    };
    match pending {
        Ok(None) => vec![heading, Block::Text("The files of the node's directory are the active ones.".into())],
        Ok(Some(plan)) => {
            let affected: u64 = plan.affected.iter().map(|affected| affected.live).sum();
            let facts = vec![
                ("Active".to_owned(), Cell::Code(plan.running.clone())),
                ("In the directory".to_owned(), Cell::Code(plan.new.clone())),
                ("Live jobs affected".to_owned(), Cell::Number(affected)),
                ("Removed resources that jobs need".to_owned(), Cell::Number(plan.stranded.len() as u64)),
            ];
            let act = visit.act("/configuration/reload", "Activate the files").with("new", plan.new.clone());
            let act = act.asking(Field::reason());
            vec![
                heading,
                Block::Facts(facts),
                Block::Table(change_table(&plan)),
                Block::Fold("Activate".into(), vec![act]),
                Block::Twin("sluice plan DIR; sluice reload --reason WHY".into(), String::new()),
            ]
        }
        Err((code, problem)) => {
            let what = "The files of the node's directory cannot be activated".to_owned();
            vec![heading, Block::Problem(what, code, problem)]
        }
    }
}

pub(super) async fn reload(sent: Sent) -> Response {
    let (reason, new) = (sent.form.get("reason"), sent.form.get("new"));
    let done = match reason.is_empty() {
        true => Err(Failure::invalid("a change of the configuration needs a reason")),
        false => sent.visit.operator.reload_reviewed("", reason, new).await.map_err(Failure::from),
    };
    sent.visit.done(done.map(|_| "/configuration".to_owned())).await
}

/// The shadow and what it has shown so far.
pub(super) async fn shadow_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let heading = Block::Heading("Shadow".into());
    let shadow = match visit.operator.shadow().await {
        Ok(shadow) => shadow,
        Err(OperateError::NotFound(_)) => {
            let text = "No configuration runs beside the active one. `sluice plan DIR --shadow` starts one: it sees every request and sends nothing.";
            return Ok(vec![heading, Block::Text(text.into())]);
        }
        Err(error) => return Err(error.into()),
    };
    let act = visit.act("/configuration/shadow/stop", "Stop the shadow").asking(Field::reason());
    Ok(vec![
        heading,
        Block::Facts(shadow_facts(&shadow)),
        Block::Table(differences(&shadow.report)),
        Block::Fold("Stop the shadow".into(), vec![act]),
        Block::Twin(
            "sluice shadow; sluice shadow stop --reason WHY".into(),
            "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/shadow".into(),
        ),
    ])
}

fn shadow_facts(shadow: &ShadowView) -> Vec<(String, Cell)> {
    let verdict = match shadow.verdict.as_str() {
        "same" => Cell::Verdict("succeeded", "nothing differs"),
        "different" => Cell::Verdict("retrying", "something differs"),
        "failed" => Cell::Verdict("dead", "nothing is compared"),
        "promoted" => Cell::Verdict("noop", "it is the active one by now"),
        _ => Cell::Verdict("queued", "no request yet"),
    };
    let mut facts = vec![
        ("Revision".to_owned(), Cell::Code(shadow.revision.clone())),
        ("Verdict".to_owned(), verdict),
        ("Requests compared".to_owned(), Cell::Number(shadow.report.events)),
        ("Requests that differ".to_owned(), Cell::Number(shadow.report.different)),
        ("Left out, for speed".to_owned(), Cell::Number(shadow.left_out)),
        ("Started".to_owned(), Cell::Time(shadow.started_at.clone())),
        ("Who".to_owned(), Cell::Text(shadow.actor.clone())),
        ("Why".to_owned(), Cell::Text(shadow.reason.clone())),
    ];
    facts.extend(shadow.problem.clone().map(|problem| ("Problem".to_owned(), Cell::Text(problem))));
    facts
}

/// What the shadow would have done otherwise.
fn differences(report: &TrialReport) -> Table {
    let row = |what: String, before: String, after: String, events: u64| Row {
        mark: String::new(),
        cells: vec![Cell::Text(what), Cell::Text(before), Cell::Text(after), Cell::Number(events)],
    };
    let outcomes = report.outcomes.iter().map(|difference| {
        row(
            format!("outcome of {}", difference.flow),
            difference.before.clone(),
            difference.after.clone(),
            difference.events,
        )
    });
    let sample = |samples: &[crate::change::Sample]| {
        samples.first().map_or_else(Default::default, |sample| (sample.before.clone(), sample.after.clone()))
    };
    let fields = report.fields.iter().map(|difference| {
        let (before, after) = sample(&difference.samples);
        row(format!("{} of {}", difference.field, difference.flow), before, after, difference.events)
    });
    let writes = report.writes.iter().map(|difference| {
        let (before, after) = sample(&difference.samples);
        row(
            format!("{} of {}.{}", difference.field, difference.worker, difference.step),
            before,
            after,
            difference.events,
        )
    });
    Table {
        caption: "Differences, with an example of each, masked".into(),
        columns: vec!["What", "Active", "Shadow", "Events"],
        rows: outcomes.chain(fields).chain(writes).take(DIFFERENCES_MAX).collect(),
        empty: "Nothing differs so far.".into(),
        ..Table::default()
    }
}

pub(super) async fn stop_shadow(sent: Sent) -> Response {
    let request = StopShadowRequest { reason: sent.form.get("reason").to_owned(), actor: String::new() };
    let stopped = sent.visit.operator.stop_shadow(&request).await.map_err(Failure::from);
    sent.visit.done(stopped.map(|()| "/configuration".to_owned())).await
}
