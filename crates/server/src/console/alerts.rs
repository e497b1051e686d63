//! Alerts: what fires, with its runbook; acknowledge, snooze, test.

use axum::extract::Path;
use axum::response::Response;

use super::page::{Act, Block, Cell, Field, Row, Table, shell};
use super::visit::{Failure, Sent, Visit};
use crate::operate::views::{AlertRuleView, AlertView};
use crate::operate::{AlertRequest, TestAlertRequest};

pub(super) async fn list(visit: Visit) -> Response {
    let blocks = blocks(&visit).await;
    visit.show("Alerts", blocks).await
}

async fn blocks(visit: &Visit) -> Result<Vec<Block>, Failure> {
    let alerts = visit.operator.alerts().await?;
    let table = Table {
        caption: "Alerts: pending, firing, and recovered within a week".into(),
        columns: vec!["Alert", "About", "State", "What", "Since", "Runbook", "Act"],
        rows: alerts.iter().map(|alert| row(visit, alert)).collect(),
        empty: "Nothing is wrong, and nothing was within a week.".into(),
        ..Table::default()
    };
    let channel = Field::text("channel", "Channel", "", "of alerts.notify, or a playbook; empty: all of them");
    let severity = Field::choice("severity", "Severity", "critical", vec!["critical", "warning"]);
    let test = visit.act("/alerts/test", "Send a test notice").asking(channel).asking(severity);
    Ok(vec![
        Block::Table(table),
        Block::Fold("Test the channels".into(), vec![test]),
        Block::Heading("What fires when".into()),
        Block::Table(rules(&visit.operator.alert_rules())),
        Block::Twin(
            "sluice alerts; sluice alerts test".into(),
            "curl -H \"Authorization: Bearer $TOKEN\" $NODE/api/v1/alerts".into(),
        ),
    ])
}

fn row(visit: &Visit, alert: &AlertView) -> Row {
    let handled = match (&alert.acknowledged_by, &alert.snoozed_until) {
        (_, Some(until)) => format!(", no notices until {until}"),
        (Some(name), None) => format!(", acknowledged by {name}"),
        (None, None) => String::new(),
    };
    Row {
        mark: format!("{} {}", alert.alert, alert.subject),
        cells: vec![
            Cell::Code(alert.alert.clone()),
            Cell::Text(if alert.subject.is_empty() { "the node".into() } else { alert.subject.clone() }),
            Cell::Text(format!("{}, {}{handled}", alert.state, alert.severity)),
            Cell::Text(alert.detail.clone()),
            Cell::Time(alert.since.clone()),
            runbook(&alert.runbook),
            Cell::Acts(acts(visit, alert)),
        ],
    }
}

/// A link if it is an address of the web; else a path in the documentation.
fn runbook(place: &str) -> Cell {
    match place.starts_with("https://") || place.starts_with("http://") {
        true => Cell::Link(place.to_owned(), "runbook".to_owned()),
        false => Cell::Code(place.to_owned()),
    }
}

fn acts(visit: &Visit, alert: &AlertView) -> Vec<Act> {
    if alert.state == "recovered" {
        return vec![];
    }
    let act = |word: &str, label: &str| {
        visit.act(format!("/alerts/{word}"), label).with("alert", &*alert.alert).with("subject", &*alert.subject)
    };
    let lasts = Field { required: true, ..Field::text("for", "Without notices for", "2h", "such as 30m or 2h") };
    let mut acts = vec![];
    if alert.acknowledged_by.is_none() {
        acts.push(act("acknowledge", "Acknowledge").asking(Field { required: false, ..Field::reason() }));
    }
    acts.push(act("snooze", "Snooze").asking(lasts).asking(Field { required: false, ..Field::reason() }));
    acts
}

fn rules(rules: &[AlertRuleView]) -> Table {
    let row = |rule: &AlertRuleView| {
        let count = rule.count.map(|count| format!("{count} or more"));
        let percent = rule.percent.map(|percent| format!("{percent} %"));
        let thresholds: Vec<String> = rule.age.iter().cloned().chain(count).chain(percent).collect();
        Row {
            mark: String::new(),
            cells: vec![
                Cell::Code(rule.alert.clone()),
                Cell::Text(if rule.subject.is_empty() { format!("any {}", rule.about) } else { rule.subject.clone() }),
                Cell::Text(if rule.enabled { rule.severity.clone() } else { "off".into() }),
                Cell::Text(rule.fires_when.clone()),
                Cell::Text(thresholds.join(", ")),
                Cell::Text(rule.hold.clone()),
                runbook(&rule.runbook),
            ],
        }
    };
    Table {
        caption: "Rules of alerts".into(),
        columns: vec!["Alert", "About", "Severity", "Fires when", "Threshold", "Holds for", "Runbook"],
        rows: rules.iter().map(row).collect(),
        ..Table::default()
    }
}

pub(super) async fn act(Path(word): Path<String>, sent: Sent) -> Response {
    if word == "test" {
        return test(&sent).await;
    }
    let request = AlertRequest {
        alert: sent.form.get("alert").to_owned(),
        subject: sent.form.get("subject").to_owned(),
        duration: sent.form.option("for"),
        reason: sent.form.get("reason").to_owned(),
        actor: String::new(),
    };
    let done = match word.as_str() {
        "acknowledge" => sent.visit.operator.acknowledge_alert(&request).await.map_err(Failure::from),
        "snooze" => sent.visit.operator.snooze_alert(&request).await.map_err(Failure::from),
        other => Err(Failure::invalid(format!("an alert cannot `{other}`"))),
    };
    sent.visit.done(done.map(|()| "/alerts".to_owned())).await
}

/// Says which playbooks send the notice; each is a job that can be watched.
async fn test(sent: &Sent) -> Response {
    let request = TestAlertRequest {
        channel: sent.form.option("channel"),
        severity: sent.form.option("severity"),
        actor: String::new(),
    };
    let flag = request.channel.as_ref().map_or_else(String::new, |channel| format!(" --channel {}", shell(channel)));
    let blocks = sent.visit.operator.test_alerts(&request).await.map_err(Failure::from).map(|playbooks| {
        let facts = vec![
            ("Sent by".to_owned(), Cell::Text(playbooks.join(", "))),
            ("Follow it".to_owned(), Cell::Link("/jobs".into(), "newest jobs".into())),
        ];
        vec![
            Block::Text("A test notice is on its way. It is a job like any other: its attempts are recorded.".into()),
            Block::Facts(facts),
            Block::Twin(format!("sluice alerts test{flag}"), String::new()),
        ]
    });
    sent.visit.show("Test notice", blocks).await
}
