//! `sluice pause`, `resume`, `reload` and `audit`.

use serde_json::{Value, json};

use super::lists::{ListArgs, ListRequest};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, hint};
use super::selection::Actor;
use super::table::{Cell, Column, Table};
use super::{CliError, exit};
use crate::operate::views::{AuditView, PauseView};

/// Pause a source, a queue, a worker, a destination or replays; survives restarts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Jobs of a paused worker or destination wait; waiting uses no attempt. Senders of a paused source receive 503 and retry later.\n\n\
Examples:\n  sluice pause destination:crm --reason \"maintenance until noon\"\n  sluice pause worker:lead-to-crm --reason \"mapping is wrong\"\n  sluice pause source:website --reason \"form is being spammed\""
)]
pub struct Pause {
    /// destination:NAME, worker:NAME, playbook:NAME, queue:NAME, source:NAME or replays
    target: String,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    /// Print the JSON of the admin API: all active pauses
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: NodeArgs,
}

/// Resume a paused target
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  sluice resume destination:crm --reason \"maintenance is over\"")]
pub struct Resume {
    /// destination:NAME, worker:NAME, playbook:NAME, queue:NAME, source:NAME or replays
    target: String,
    /// Reason, recorded in the audit trail
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    /// Print the JSON of the admin API: all active pauses
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: NodeArgs,
}

/// Reload the configuration of the node
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A configuration with errors never becomes active; the errors are printed. Neither does one without a worker, queue or destination that jobs need, unless --allow-stranded is set."
)]
pub struct Reload {
    /// Reason, recorded in the audit trail
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Reload even if jobs need removed resources
    #[arg(long)]
    allow_stranded: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

/// Show the audit trail: actor, action, time and reason
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  sluice audit --limit 5")]
pub struct Audit {
    /// Only of this actor
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// Only this action, such as replay or pause
    #[arg(long)]
    action: Option<String>,
    /// Only about objects that begin like this: job_17, destination:crm, user
    #[arg(long)]
    object: Option<String>,
    /// Only within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
    /// Only before this duration (1h) or time
    #[arg(long)]
    until: Option<String>,
    #[command(flatten)]
    args: ListArgs,
}

impl Pause {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let order = json!({ "target": self.target, "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post("/pause", &order).await?;
            if self.json {
                return print::json(&answer);
            }
            let text =
                format!("{} is paused.\n{}", self.target, hint(&format!("Resume: sluice resume {}", self.target)));
            print::print(&(text + &others(&answer, &self.target)?))
        })
    }
}

impl Resume {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let before: Vec<PauseView> = print::deserialize(&client.get("/pauses", &[]).await?)?;
            let order = json!({ "target": self.target, "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post("/resume", &order).await?;
            if self.json {
                return print::json(&answer);
            }
            let was = before.iter().any(|pause| pause.target == self.target);
            let text = format!("{} {}.\n", self.target, if was { "resumed" } else { "was not paused" });
            print::print(&(text + &others(&answer, &self.target)?))
        })
    }
}

/// Other active pauses.
fn others(answer: &Value, target: &str) -> Result<String, CliError> {
    let pauses: Vec<PauseView> = print::deserialize(answer)?;
    let others: Vec<&PauseView> = pauses.iter().filter(|pause| pause.target != target).collect();
    if others.is_empty() {
        return Ok(String::new());
    }
    let mut table =
        Table::new([Column::Wrap("ALSO PAUSED"), Column::Whole("SINCE"), Column::Wrap("BY"), Column::Wrap("WHY")]);
    for pause in others {
        table.row([
            Cell::from(pause.target.as_str()),
            ago(&pause.at).into(),
            pause.actor.as_str().into(),
            pause.reason.as_str().into(),
        ]);
    }
    Ok(table.render())
}

impl Reload {
    fn order(&self) -> Value {
        json!({ "reason": self.reason, "actor": self.actor.name(), "allow_stranded": self.allow_stranded })
    }

    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            if client.is_offline() {
                let message = "no node is running; `sluice up` reads the configuration at startup";
                return Err(CliError::new(exit::UNAVAILABLE, message));
            }
            let answer = client.post("/reload", &self.order()).await?;
            if self.format.json {
                return print::json(&answer);
            }
            let revision = answer.get("revision").and_then(Value::as_str).unwrap_or_default();
            print::print(&match answer.get("changed").and_then(Value::as_bool) {
                Some(true) => {
                    format!("Configuration {revision} is active. Existing jobs keep their steps.")
                }
                _ => format!("No changes; configuration {revision} stays active."),
            })
        })
    }
}

impl Audit {
    pub fn run(self) -> Result<(), CliError> {
        let filters = vec![
            ("actor", self.by),
            ("action", self.action),
            ("object", self.object),
            ("since", self.since),
            ("until", self.until),
        ];
        let empty = match filters.iter().any(|(_, value)| value.is_some()) {
            true => "No entry of the audit trail matches.",
            false => "The audit trail is empty.",
        };
        let details = "full entries with exact times: sluice audit --json";
        self.args.run(ListRequest { path: "/audit", filters, empty, details }, |items: &[AuditView]| {
            let mut table = Table::new([
                Column::Number("#"),
                Column::Whole("WHEN"),
                Column::Wrap("WHO"),
                Column::Wrap("WHAT"),
                Column::Wrap("TO"),
                Column::Wrap("WHY"),
            ]);
            for line in items {
                table.row([
                    Cell::from(line.id.to_string()),
                    ago(&line.at).into(),
                    line.actor.as_str().into(),
                    line.action.as_str().into(),
                    line.object.as_str().into(),
                    line.detail.as_str().into(),
                ]);
            }
            (table, String::new())
        })
    }
}
