//! Approvals: one, marked, or all that match.

use axum::response::Response;
use sluice_domain::approval::{ApprovalState, Choice};
use sluice_ledger::ApprovalFilter;

use super::events::PAGE_ROWS;
use super::page::{Block, Bulk, Cell, Field, Filter, More, Row, Table, shell};
use super::visit::{Failure, Sent, Visit};
use crate::operate::DecisionsRequest;
use crate::operate::views::ApprovalView;

/// Approvals of one sheet.
const DECIDED_MAX: u32 = 1_000;

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = list_blocks(&visit).await;
    visit.show("Approvals", blocks).await
}

async fn list_blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let query = visit.query();
    let state = match query.get("state") {
        "" => Some(ApprovalState::Pending),
        word => ApprovalState::parse(word),
    };
    let filter = ApprovalFilter { state, worker: query.option("worker"), asked_before: None };
    let after = query.option("after").and_then(|after| after.parse().ok());
    let found = visit.operator.approvals(filter, after, PAGE_ROWS).await?;
    let form = Filter {
        action: "/approvals",
        fields: vec![
            Field::choice("state", "State", query.get("state"), vec!["pending", "approved", "rejected"]),
            Field::text("worker", "Worker", query.get("worker"), ""),
        ],
    };
    let is_pending = state == Some(ApprovalState::Pending);
    let button = |decision: &str, scope: &str, label: &str| {
        (format!("/sheets/approvals?decision={decision}&scope={scope}"), label.to_owned())
    };
    let bulk = is_pending.then(|| Bulk {
        form_token: visit.session.form_token.clone(),
        hidden: vec![("worker".into(), query.get("worker").to_owned())],
        buttons: vec![
            button("approve", "marked", "Approve marked…"),
            button("reject", "marked", "Reject marked…"),
            button("approve", "all", "Approve all that match…"),
            button("reject", "all", "Reject all that match…"),
        ],
    });
    let table = Table {
        caption: "Approvals, newest first".into(),
        columns: vec!["Question", "Summary", "State", "Job", "Asked", "Expires", "Then", "Approval"],
        rows: found.items.iter().map(row).collect(),
        empty: "No approval waits. A step `approval.request` asks for one.".into(),
        more: More::of(&found, "/approvals", query),
        bulk,
    };
    let twin = Block::Twin(
        "sluice approvals".into(),
        "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/approvals".into(),
    );
    Ok(vec![Block::Filter(form), Block::Table(table), twin])
}

fn row(approval: &ApprovalView) -> Row {
    Row {
        mark: approval.id.clone(),
        cells: vec![
            Cell::Text(approval.title.clone()),
            Cell::Text(approval.summary.clone()),
            Cell::Text(approval.state.clone()),
            Cell::Id(format!("/jobs/{}", approval.job), approval.job.clone()),
            Cell::Time(approval.asked_at.clone()),
            Cell::Time(approval.expires_at.clone()),
            Cell::Text(approval.default.clone()),
            Cell::Code(approval.id.clone()),
        ],
    }
}

fn choice(word: &str) -> Result<Choice, Failure> {
    match word {
        "approve" => Ok(Choice::Approve),
        "reject" => Ok(Choice::Reject),
        other => Err(Failure::invalid(format!("`{other}` is no decision"))),
    }
}

/// How many are decided, and the form that decides them.
pub(super) async fn sheet(sent: Sent) -> Response {
    let blocks = sheet_blocks(&sent).await;
    sent.visit.show("Decide approvals", blocks).await
}

async fn sheet_blocks(sent: &Sent) -> Result<Vec<Block>, Failure> {
    let query = sent.visit.query();
    let (decision, is_all) = (query.get("decision").to_owned(), query.get("scope") == "all");
    choice(&decision)?;
    let ids = match is_all {
        true => {
            // The ids are fixed here: what is asked for later is not decided by this form.
            let filter = ApprovalFilter {
                state: Some(ApprovalState::Pending),
                worker: sent.form.option("worker"),
                asked_before: None,
            };
            let found = sent.visit.operator.approvals(filter, None, DECIDED_MAX).await?;
            if found.next.is_some() {
                return Err(Failure::invalid(format!(
                    "{DECIDED_MAX} approvals or more match; filter by worker, or use `sluice approvals {decision} --all`"
                )));
            }
            found.items.into_iter().map(|approval| approval.id).collect()
        }
        false => sent.form.all("id"),
    };
    if ids.is_empty() {
        return Err(Failure::invalid("mark at least one row first"));
    }
    let facts = vec![
        ("Decision".to_owned(), Cell::Text(decision.clone())),
        ("Approvals".to_owned(), Cell::Number(ids.len() as u64)),
    ];
    let mut act = sent.visit.act("/approvals", format!("{decision} {} approvals", ids.len()));
    act.hidden = ids.iter().map(|id| ("id".to_owned(), id.clone())).collect();
    let act = act.with("decision", decision.clone()).asking(Field::reason());
    let arguments = match (is_all, sent.form.option("worker")) {
        (false, _) => ids.iter().map(|id| format!(" {}", shell(id))).collect(),
        (true, Some(worker)) => format!(" --filter {}", shell(&format!("worker={worker}"))),
        (true, None) => " --all".to_owned(),
    };
    Ok(vec![
        Block::Facts(facts),
        Block::Act(act),
        Block::Twin(format!("sluice approvals {decision}{arguments} --reason WHY"), String::new()),
    ])
}

pub(super) async fn decide(sent: Sent) -> Response {
    let done = decide_all(&sent).await;
    sent.visit.done(done).await
}

async fn decide_all(sent: &Sent) -> Result<String, Failure> {
    let request = DecisionsRequest {
        decision: choice(sent.form.get("decision"))?,
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
        ids: sent.form.all("id"),
        worker: None,
        all: false,
        asked_before: None,
        dry_run: false,
    };
    sent.visit.operator.decide_many(request).await?;
    Ok("/approvals".to_owned())
}
