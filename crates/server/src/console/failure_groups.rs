//! Failure groups: why jobs died, and what operators said about that.

use axum::extract::Path;
use axum::response::Response;
use sluice_domain::failure_group::GroupState;
use sluice_ledger::GroupQuery;

use super::page::{Act, Block, Cell, Field, Row, Table, query_value};
use super::visit::{Failure, Sent, Visit};
use crate::operate::GroupRequest;
use crate::operate::views::FailureGroupView;

/// Groups that are shown.
const GROUPS_MAX: u32 = 50;

/// Groups with dead letters, the one with the newest first.
pub(super) async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = GroupQuery { with_dead_letters: true, limit: GROUPS_MAX, ..GroupQuery::default() };
    let groups = visit.operator.failure_groups(query).await?;
    let table = Table {
        caption: "Why jobs died".into(),
        columns: vec!["Jobs", "State", "Worker", "Failure", "Example", "First", "Last", "Ever", "Acts"],
        rows: groups.items.iter().map(|group| row(visit, group)).collect(),
        empty: "No dead letters.".into(),
        ..Table::default()
    };
    let twin = "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/dead-letters/groups".to_owned();
    let mut blocks = vec![Block::Heading("By reason".into()), Block::Table(table)];
    if groups.next.is_some() {
        let text =
            format!("These are the {GROUPS_MAX} groups with the newest dead letters; the command below lists all.");
        blocks.push(Block::Text(text));
    }
    blocks.push(Block::Twin("sluice dlq groups".into(), twin));
    Ok(blocks)
}

fn row(visit: &Visit, group: &FailureGroupView) -> Row {
    let [worker, class, code] = [&group.worker, &group.class, &group.code].map(|value| query_value(value));
    let list = format!("/dead-letters?worker={worker}&class={class}&code={code}");
    let said = match (&group.actor, &group.reason) {
        (Some(actor), Some(reason)) => format!("{} by {actor}: {reason}", group.state),
        _ => group.state.clone(),
    };
    Row {
        mark: String::new(),
        cells: vec![
            Cell::Count(list, group.count),
            Cell::Text(said),
            Cell::Text(group.worker.clone()),
            Cell::Code(group.code.clone()),
            Cell::Text(format!("{}: {}", group.class, group.message)),
            Cell::Time(group.first_at.clone()),
            Cell::Time(group.last_at.clone()),
            Cell::Number(group.total),
            Cell::Acts(acts(visit, group)),
        ],
    }
}

fn acts(visit: &Visit, group: &FailureGroupView) -> Vec<Act> {
    let act = |state: GroupState, button: &str| {
        let action = format!("/dead-letters/groups/{}/{}", group.id, state.verb());
        visit.act(action, button).asking(Field::reason())
    };
    match GroupState::parse(&group.state) {
        Some(GroupState::Open) => {
            vec![act(GroupState::Acknowledged, "Acknowledge"), act(GroupState::Resolved, "Resolve")]
        }
        Some(GroupState::Acknowledged) => vec![act(GroupState::Resolved, "Resolve")],
        Some(GroupState::Resolved) | None => vec![act(GroupState::Open, "Reopen")],
    }
}

pub(super) async fn mark(Path((id, act)): Path<(String, String)>, sent: Sent) -> Response {
    let done = set(&sent, &id, &act).await;
    sent.visit.done(done).await
}

async fn set(sent: &Sent, id: &str, act: &str) -> Result<String, Failure> {
    let state = GroupState::ALL.into_iter().find(|state| state.verb() == act);
    let state = state.ok_or_else(|| Failure::invalid(format!("`{act}` is no act on a failure group")))?;
    let request = GroupRequest { reason: sent.form.get("reason").to_owned(), actor: String::new() };
    sent.visit.operator.mark_group(id, state, &request).await?;
    Ok("/dead-letters".to_owned())
}
