//! `sluice plan`: shows the changes of a new configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use super::flow::directory;
use super::node_access::NodeArgs;
use super::print::{self, BOLD, DIM, Format, hint, plural, styled};
use super::selection::Actor;
use super::table::{Cell, Column, Table};
use super::trial;
use super::up::{duration, explain};
use super::{CliError, exit};
use crate::change::{FieldView, LedgerUsage, Plan, PlanChange, Side, plan};
use crate::config::{self, Colours, EnvironmentThenFiles, Files};
use crate::run::StartError;

/// Show the changes of a new configuration and the affected jobs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compares the files with the active revision of the node; without a running node, with the last one in the ledger.\n\n\
Exit codes:\n  0  no changes\n  1  errors, or jobs need removed resources\n  4  there are changes, and they can be applied\n\n\
Examples:\n  sluice plan\n  sluice plan new-config --url http://10.0.0.5:8081\n  sluice plan new-config --history 7d\n  sluice plan . --against ../released"
)]
pub struct PlanCommand {
    /// New configuration directory or file; --config by default
    #[arg(value_name = "DIR")]
    new: Option<PathBuf>,
    /// Compare with the configuration in this directory instead of a node's; without affected jobs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "data"])]
    against: Option<PathBuf>,
    /// Also apply the new configuration to the requests of this time, such as 7d, and show what would differ
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "against")]
    history: Option<Duration>,
    /// Also run the new configuration beside the active one on accepted requests, without effects
    #[arg(long, conflicts_with = "against", requires = "reason")]
    shadow: bool,
    /// Reason of the shadow, recorded in the audit trail
    #[arg(long, requires = "shadow")]
    reason: Option<String>,
    #[command(flatten)]
    actor: Actor,
    /// Allow the removal of resources that jobs need
    #[arg(long)]
    allow_stranded: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl PlanCommand {
    pub fn run(self) -> Result<(), CliError> {
        let new = self.new.clone().unwrap_or_else(|| self.reach.config().to_owned());
        if let Some(against) = &self.against {
            let plan = local(against, &new)?;
            return self.tell(&json!(plan), None, &new);
        }
        let files = files(&new)?;
        self.reach.run(async |client| {
            let answer = client.post("/plan", &json!({ "files": files })).await?;
            let is_changed = answer["running"] != answer["new"];
            let trial = match self.history.filter(|_| is_changed) {
                Some(window) => Some(trial::run(client, &files, window).await?),
                None => None,
            };
            if self.shadow {
                let order = json!({ "files": files, "reason": self.reason, "actor": self.actor.name() });
                client.post("/shadow", &order).await?;
                hint_on_stderr("The shadow runs from the next request on: sluice shadow");
            }
            self.tell(&answer, trial.as_ref(), &new)
        })
    }

    fn tell(&self, answer: &Value, trial: Option<&Value>, new: &Path) -> Result<(), CliError> {
        let plan: Plan = print::deserialize(answer)?;
        if self.format.json {
            print::json(&trial::joined(answer, trial))?;
        } else {
            let mut text = render(&plan);
            if let Some(trial) = trial {
                text.push_str(&trial::render(&trial::view(trial)?));
            }
            let refused = !plan.stranded.is_empty() && !self.allow_stranded;
            if !plan.is_empty() && self.against.is_none() && !refused {
                let allow = if plan.stranded.is_empty() { "" } else { " --allow-stranded" };
                let order = format!("sluice apply {} --plan {}{allow} --reason \"…\"", new.display(), plan.plan);
                text.push_str(&hint(&format!("\nApply: {order}")));
            }
            print::print(&text)?;
        }
        outcome(&plan, self.allow_stranded)
    }
}

/// Standard output has the plan alone.
fn hint_on_stderr(text: &str) {
    anstream::eprintln!("{text}");
}

/// Exit code of a plan.
fn outcome(plan: &Plan, allow_stranded: bool) -> Result<(), CliError> {
    if plan.is_empty() {
        return Ok(());
    }
    let refused = !plan.stranded.is_empty() && !allow_stranded;
    Err(CliError::new(if refused { exit::NO } else { exit::CHANGES }, ""))
}

/// Files of a configuration for the API.
pub(super) fn files(path: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let files = config::read(path).map_err(|error| explain(error.into()))?;
    if !files.problems().is_empty() {
        return Err(CliError::new(exit::NO, config::render_all(files.problems(), &files, Colours::Ansi)));
    }
    Ok(files.iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
}

fn local(before: &Path, after: &Path) -> Result<Plan, CliError> {
    let read = |path: &Path| -> Result<(Files, config::Compiled), CliError> {
        let files = config::read(path).map_err(|error| explain(error.into()))?;
        let compiled = config::compile(&files, &EnvironmentThenFiles::new(directory(path)));
        Ok((files, compiled))
    };
    let (old_files, old) = read(before)?;
    let (new_files, mut new) = read(after)?;
    let Some(new_config) = new.config.take() else {
        return Err(explain(StartError::Config(Box::new(new), new_files)));
    };
    let side = Side { files: &old_files, config: old.config.as_ref() };
    Ok(plan(side, (&new_files, &new_config), &LedgerUsage::default()))
}

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const CHANGED: Style = AnsiColor::Yellow.on_default();

pub(super) fn render(plan: &Plan) -> String {
    if plan.is_empty() {
        return format!("No changes: revision {} is active.\n", plan.running);
    }
    let mut text = format!("Plan {}\n", styled(&plan.plan, BOLD));
    text.push_str(&hint(&format!("active revision: {}, new revision: {}", plan.running, plan.new)));
    if plan.changes.is_empty() {
        text.push_str("\nOnly comments, layout or file paths differ.\n");
    }
    for change in &plan.changes {
        text.push('\n');
        text.push_str(&told_change(change));
    }
    if !plan.affected.is_empty() {
        text.push_str("\nAffected jobs:\n");
        let mut table = Table::new([
            Column::Wrap("WORKER"),
            Column::Whole("ACCEPTED UNDER"),
            Column::Number("LIVE"),
            Column::Number("DEAD LETTERS"),
        ]);
        for jobs in &plan.affected {
            table.row([
                Cell::from(jobs.worker.as_str()),
                jobs.revision.as_str().into(),
                jobs.live.into(),
                jobs.dead_letters.into(),
            ]);
        }
        text.push_str(&table.render());
    }
    if !plan.stranded.is_empty() {
        text.push_str(&format!("\n{}\n", styled("Jobs need removed resources:", REMOVED)));
        for thing in &plan.stranded {
            text.push_str(&format!(
                "  {} {}: {}, {}\n    {}\n",
                thing.kind,
                thing.name,
                plural(thing.live, "live job"),
                plural(thing.dead_letters, "dead letter"),
                thing.why
            ));
        }
        text.push_str(&hint(
            "Keep these until the jobs are done (`sluice jobs`, `sluice replay`, `sluice dlq drop`), or use --allow-stranded.",
        ));
    }
    if !plan.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &plan.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

fn told_change(change: &PlanChange) -> String {
    let (sign, style) = match change.change.as_str() {
        "added" => ("+", ADDED),
        "removed" => ("-", REMOVED),
        _ => ("~", CHANGED),
    };
    let head = format!("{sign} {} {}", change.kind, change.name);
    let mut text = format!("{}  {}\n", styled(&head, style), styled(&change.file, DIM));
    for field in &change.fields {
        text.push_str(&told_field(field));
    }
    for note in &change.notes {
        text.push_str(&format!("    {} {note}\n", styled("!", CHANGED)));
    }
    text
}

/// Longest value shown on one line.
const SHORT: usize = 60;
/// Shown length of a long value; `--json` has all of it.
const LONG: usize = 300;

fn told_field(field: &FieldView) -> String {
    let absent = || match &field.default {
        Some(default) => styled(&format!("({default})"), DIM),
        None => styled("nothing", DIM),
    };
    match (&field.from, &field.to) {
        (Some(from), Some(to)) if from.contains('\n') || to.contains('\n') => {
            format!("    {}:\n{}", field.path, render_lines(from, to))
        }
        (Some(from), Some(to)) if from.chars().count().max(to.chars().count()) > SHORT => {
            let (from, to) = (styled(&format!("- {}", cut(from)), REMOVED), styled(&format!("+ {}", cut(to)), ADDED));
            format!("    {}:\n      {from}\n      {to}\n", field.path)
        }
        (from, to) => {
            let from = from.as_deref().map_or_else(absent, cut);
            let to = to.as_deref().map_or_else(absent, cut);
            format!("    {}: {from} → {to}\n", field.path)
        }
    }
}

fn cut(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONG + 1).collect();
    if flat.chars().count() <= LONG { flat } else { flat.chars().take(LONG).chain(['…']).collect() }
}

/// Multi-line texts without their common first and last lines.
fn render_lines(from: &str, to: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (from.lines().collect(), to.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(old, new)| old == new).count();
    let start = same(&mut old.iter().zip(&new));
    let end = same(&mut old[start..].iter().rev().zip(new[start..].iter().rev()));
    let mut text = String::new();
    for (sign, style, lines) in
        [("-", REMOVED, &old[start..old.len() - end]), ("+", ADDED, &new[start..new.len() - end])]
    {
        for line in lines {
            text.push_str(&format!("      {}\n", styled(&format!("{sign} {}", cut(line)), style)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_shows_only_differing_lines() {
        let shown = render_lines("a\nb\nc\nd", "a\nB\nB2\nc\nd");
        assert_eq!(anstream::adapter::strip_str(&shown).to_string(), "      - b\n      + B\n      + B2\n");
    }

    #[test]
    fn absent_key_is_shown_with_its_default() {
        let field = FieldView { path: "a.b".into(), from: None, to: Some("2".into()), default: Some("16".into()) };
        assert_eq!(anstream::adapter::strip_str(&told_field(&field)).to_string(), "    a.b: (16) → 2\n");
    }
}
