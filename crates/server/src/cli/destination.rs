//! `sluice destinations show`.

use super::CliError;
use super::endpoints::held_back_by;
use super::node_access::NodeArgs;
use super::print::{self, Format, hint};
use super::table::{Cell, Column, Table, pairs};

use crate::operate::views::{DestinationDetail, FailureRuleView};

/// Show one destination: gate, use of its daily limit, failure rules
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice destinations show crm\n  sluice destinations show crm --rules")]
pub struct Show {
    /// The destination
    name: String,
    /// List what error responses mean, in order of precedence
    #[arg(long)]
    rules: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Show {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/destinations/{}", self.name), &[]).await?;
            let Some(detail) = self.format.read::<DestinationDetail>(&answer)? else { return Ok(()) };
            print::print(&match self.rules {
                true => rendered_rules(&detail),
                false => rendered(&detail),
            })
        })
    }
}

fn rendered(detail: &DestinationDetail) -> String {
    let gate = detail.destination.gate.as_ref();
    let member = |name: &str| gate.and_then(|gate| gate.get(name));
    let number = |name: &str| member(name).map_or(String::new(), ToString::to_string);
    let text = |name: &str| member(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let calls = detail.calls_today.map_or(String::new(), |calls| format!("{} of {}", calls.used, calls.limit));
    let of_them = |own: bool| detail.failure_rules.iter().filter(|rule| rule.own == own).count();
    let rules = match detail.failure_rules.is_empty() {
        true => String::new(),
        false => format!("{} of the connector, {} of the configuration", of_them(false), of_them(true)),
    };
    let shown = pairs([
        ("destination", detail.destination.name.clone()),
        ("type", detail.destination.kind.clone()),
        ("breaker", text("breaker")),
        ("in flight", number("in_flight")),
        ("allowed", number("concurrency")),
        ("maximum", number("concurrency_max")),
        ("held back by", held_back_by(&detail.destination)),
        ("calls today", calls),
        ("failure rules", rules),
    ]);
    match detail.failure_rules.is_empty() {
        true => shown,
        false => shown + &hint(&format!("\nThe rules: sluice destinations show {} --rules", detail.destination.name)),
    }
}

fn rendered_rules(detail: &DestinationDetail) -> String {
    if detail.failure_rules.is_empty() {
        return format!("The connector of type {} has no table of failure rules.", detail.destination.kind);
    }
    let mut table = Table::new([
        Column::Whole("OF"),
        Column::Whole("CALL"),
        Column::Whole("STATUS"),
        Column::Wrap("CODE"),
        Column::Wrap("CONTAINS"),
        Column::Whole("ACTION"),
        Column::Wrap("ADVICE"),
    ]);
    for rule in &detail.failure_rules {
        let FailureRuleView { own, call, status, code, contains, action, advice } = rule;
        let origin = if *own { "configuration" } else { "connector" };
        let row = [origin, call, status, code, contains, action, advice];
        table.row(row.map(Cell::from));
    }
    table.render() + &hint("The first rule that matches applies. Add rules with `failure_rules:` of the destination.")
}
