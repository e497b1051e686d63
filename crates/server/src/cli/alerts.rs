//! `sluice alerts`.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::unit::format_duration;

use super::CliError;
use super::exit;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago};
use super::selection::Actor;
use super::table::{Cell, Column, Table, pairs, state};
use super::up::duration;
use crate::operate::views::{AlertRuleView, AlertView};

/// List, acknowledge, snooze and test alerts
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice alerts\n  sluice alerts rules\n  sluice alerts show breaker-open crm\n  sluice alerts ack breaker-open crm --reason \"the vendor knows\"\n  sluice alerts snooze breaker-open crm --for 2h\n  sluice alerts test --channel on-call"
)]
pub struct Alerts {
    #[command(subcommand)]
    command: Option<AlertsCommand>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum AlertsCommand {
    /// List alerts: pending, firing, and recovered within a week
    List(Listing),
    /// List the kinds of alerts with the thresholds that apply
    Rules(Listing),
    /// Show one alert with its runbook
    Show(Show),
    /// Acknowledge an alert: a person handles it
    Ack(Mark),
    /// Send no notice of an alert for a while
    Snooze(Snooze),
    /// Send a test notice through the playbooks that handle alerts
    Test(TestNotice),
}

#[derive(Debug, clap::Args)]
struct Listing {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Kind of the alert, such as breaker-open
    alert: String,
    /// Queue, worker, destination or source; none for the node
    #[arg(default_value = "", hide_default_value = true)]
    subject: String,
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Mark {
    #[command(flatten)]
    which: Which,
    /// Reason, recorded in the audit trail
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Snooze {
    #[command(flatten)]
    mark: Mark,
    /// Duration without notices
    #[arg(long = "for", value_parser = duration)]
    duration: Duration,
}

#[derive(Debug, clap::Args)]
struct TestNotice {
    /// Channel of alerts.notify, or a playbook; all of them if absent
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Severity of the notice: critical or warning
    #[arg(long, default_value = "critical", value_parser = ["critical", "warning"])]
    severity: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Alerts {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => Listing { format: self.format, reach: self.reach }.alerts(),
            Some(AlertsCommand::List(listing)) => listing.alerts(),
            Some(AlertsCommand::Rules(listing)) => listing.rules(),
            Some(AlertsCommand::Show(show)) => show.run(),
            Some(AlertsCommand::Ack(mark)) => mark.run("/alerts/acknowledge", json!({})),
            Some(AlertsCommand::Snooze(snooze)) => {
                let duration = format_duration(snooze.duration);
                snooze.mark.run("/alerts/snooze", json!({ "for": duration }))
            }
            Some(AlertsCommand::Test(test)) => test.run(),
        }
    }
}

impl Listing {
    fn alerts(self) -> Result<(), CliError> {
        self.reach.run(async |client| list(&client.get("/alerts", &[]).await?, self.format))
    }

    fn rules(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get("/alerts/rules", &[]).await?;
            let Some(rules) = self.format.read::<Vec<AlertRuleView>>(&answer)? else { return Ok(()) };
            let mut table = Table::new([
                Column::Wrap("ALERT"),
                Column::Wrap("SUBJECT"),
                Column::Whole("SEVERITY"),
                Column::Wrap("THRESHOLD"),
                Column::Whole("HOLD"),
                Column::Whole("GROUP"),
            ]);
            for rule in &rules {
                let subject =
                    if rule.subject.is_empty() { format!("every {}", rule.about) } else { rule.subject.clone() };
                let subject = if rule.about == "node" { "the node".to_owned() } else { subject };
                table.row([
                    Cell::from(rule.alert.as_str()),
                    subject.into(),
                    (if rule.enabled { rule.severity.as_str() } else { "off" }).into(),
                    thresholds(rule).into(),
                    rule.hold.as_str().into(),
                    rule.group.as_str().into(),
                ]);
            }
            print::print(&table.render())
        })
    }
}

/// Thresholds of a rule in words.
fn thresholds(rule: &AlertRuleView) -> String {
    let age = rule.age.as_ref().map(|age| format!("age {age}"));
    let count = rule.count.map(|count| format!("count {count}"));
    let percent = rule.percent.map(|percent| format!("{percent} %"));
    [age, count, percent].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let alerts: Vec<AlertView> = print::deserialize(&client.get("/alerts", &[]).await?)?;
            let is_it = |alert: &&AlertView| alert.alert == self.which.alert && alert.subject == self.which.subject;
            let Some(alert) = alerts.iter().find(is_it) else {
                let message = "there is no such alert; `sluice alerts` lists them";
                return Err(CliError::new(exit::NO, message));
            };
            if self.format.json {
                return print::json(alert);
            }
            print::print(&pairs([
                ("alert", alert.alert.clone()),
                ("subject", alert.subject.clone()),
                ("state", format!("{}, {}", alert.state, ago(&alert.since))),
                ("severity", alert.severity.clone()),
                ("detail", alert.detail.clone()),
                ("acknowledged by", alert.acknowledged_by.clone().unwrap_or_default()),
                ("snoozed until", alert.snoozed_until.clone().unwrap_or_default()),
                ("runbook", alert.runbook.clone()),
            ]))
        })
    }
}

impl Mark {
    /// Sends the mark with further members of the request.
    fn run(self, path: &str, more: Value) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let mut order = json!({
                "alert": self.which.alert, "subject": self.which.subject, "reason": self.reason, "actor": self.actor.name()
            });
            if let (Some(order), Some(more)) = (order.as_object_mut(), more.as_object()) {
                order.extend(more.clone());
            }
            let answer = client.post(path, &order).await?;
            list(&answer, self.format)
        })
    }
}

impl TestNotice {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "actor": self.actor.name(), "channel": self.channel, "severity": self.severity });
            let answer = client.post("/alerts/test", &order).await?;
            if self.format.json {
                return print::json(&answer);
            }
            let names: Vec<&str> =
                answer["playbooks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            print::print(&format!("Sent to {}; see sluice events --source alerts", names.join(", ")))
        })
    }
}

fn list(answer: &Value, format: Format) -> Result<(), CliError> {
    let Some(alerts) = format.read::<Vec<AlertView>>(answer)? else { return Ok(()) };
    if alerts.is_empty() {
        return print::print("No alerts.");
    }
    let mut table = Table::new([
        Column::Whole("STATE"),
        Column::Whole("SINCE"),
        Column::Wrap("ALERT"),
        Column::Wrap("SUBJECT"),
        Column::Wrap("DETAIL"),
        Column::Wrap("HANDLED"),
    ]);
    for alert in &alerts {
        let snoozed = alert.snoozed_until.as_ref().map(|until| format!("snoozed until {until}"));
        let handled = alert.acknowledged_by.as_ref().map(|name| format!("by {name}")).or(snoozed);
        table.row([
            state(&alert.state),
            Cell::from(ago(&alert.since)),
            alert.alert.as_str().into(),
            alert.subject.as_str().into(),
            alert.detail.as_str().into(),
            handled.unwrap_or_default().into(),
        ]);
    }
    print::print(&table.render())
}
