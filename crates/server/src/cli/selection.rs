//! Which jobs a replay or a drop is for, how many that are, and whether that is meant.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_domain::unit;
use sluice_ledger::JobFilter;

use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, grouped, hint, plural};
use super::table::{Cell, Column, Table};
use super::{CliError, exit};
use crate::config::did_you_mean;
use crate::operate::Selection;
use crate::operate::views::BulkResult;

/// What `--filter` knows.
const KEYS: [&str; 9] = ["state", "worker", "queue", "dead_letter_queue", "source", "class", "code", "since", "until"];

/// Which jobs, and why.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Act {
    /// Jobs (job_17) or events (evt_…, meaning all their jobs)
    #[arg(value_name = "ID", required_unless_present = "filter", conflicts_with = "filter")]
    ids: Vec<String>,
    /// All jobs that match: state, worker, queue, dead_letter_queue, source, class, code, since or until
    #[arg(long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Why; stands in the audit trail
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before acting on a filter
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    pub reach: NodeArgs,
}

/// Who acts.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Actor {
    /// Who acts, for the audit trail; the user of this machine when left out
    #[arg(long, env = "SLUICE_ACTOR", value_name = "NAME")]
    actor: Option<String>,
}

impl Actor {
    pub fn name(&self) -> String {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        self.actor
            .clone()
            .or_else(|| variable("USER"))
            .or_else(|| variable("LOGNAME"))
            .unwrap_or_else(|| "unknown".to_owned())
    }
}

/// An act in words: `replay`, `replayed`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verb {
    pub path: &'static str,
    pub infinitive: &'static str,
    pub participle: &'static str,
    /// The states that a filter means unless it names others.
    pub states: &'static [JobState],
}

impl Act {
    /// Carries it out. `more` is added to the order.
    pub async fn perform(&self, desk: &AdminClient, verb: Verb, more: Value) -> Result<(), CliError> {
        let selection = if self.filter.is_empty() {
            Selection { ids: self.ids.clone(), filter: None }
        } else {
            Selection { ids: vec![], filter: Some(filter(&self.filter, verb.states)?) }
        };
        // A dry run leaves no trace, so it needs no reason; the node asks for one all the same.
        let reason = self.reason.clone().unwrap_or_else(|| "dry run".to_owned());
        let order = |dry_run: bool| {
            let mut order = json!({ "reason": reason, "actor": self.actor.name(), "dry_run": dry_run });
            for part in [json!(selection), more.clone()] {
                if let (Value::Object(order), Value::Object(part)) = (&mut order, part) {
                    order.extend(part);
                }
            }
            order
        };
        if !self.filter.is_empty() && !self.dry_run && !self.yes {
            let counted: BulkResult = print::understood(&desk.post(verb.path, &order(true)).await?)?;
            if counted.changed > 0 {
                confirm(verb, &counted)?;
            }
        }
        let answer = desk.post(verb.path, &order(self.dry_run)).await?;
        let acted: BulkResult = print::understood(&answer)?;
        if self.format.json {
            print::json(&answer)?;
        } else {
            print::print(&told(verb, &acted, desk.is_offline()))?;
        }
        if acted.changed == 0 { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }
}

fn confirm(verb: Verb, counted: &BulkResult) -> Result<(), CliError> {
    let jobs = plural(counted.changed, "job");
    let apart = match counted.matched - counted.changed {
        0 => String::new(),
        left => format!(" ({} more match and are left alone)", grouped(left)),
    };
    confirm_many(verb.infinitive, verb.participle, &format!("{jobs}{apart}"))
}

/// Asks whether that is meant.
pub(super) fn confirm_many(infinitive: &str, participle: &str, what: &str) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{what} would be {participle}; without a terminal to ask at, say --yes if that is meant");
        return Err(CliError::new(exit::USAGE, message));
    }
    let mut words = infinitive.to_owned();
    words[..1].make_ascii_uppercase();
    anstream::eprint!("{words} {what}? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(CliError::new(exit::NO, format!("nothing was {participle}")))
}

fn told(verb: Verb, acted: &BulkResult, offline: bool) -> String {
    let mut text = match (acted.matched, acted.changed, acted.dry_run) {
        (0, ..) => "No job matches; nothing was changed.\n".to_owned(),
        (_, changed, true) => format!("{} would be {}.\n", plural(changed, "job"), verb.participle),
        (_, changed, false) => format!("{} {}.\n", plural(changed, "job"), verb.participle),
    };
    if !acted.skipped.is_empty() {
        const SHOWN_MAX: usize = 20;
        text.push_str(&format!("{} left alone:\n", plural(acted.skipped.len() as u64, "job")));
        let mut table = Table::new([Column::Whole("JOB"), Column::Cut("WHY")]);
        for left in acted.skipped.iter().take(SHOWN_MAX) {
            table.row([Cell::from(left.job.as_str()), left.reason.as_str().into()]);
        }
        text.push_str(&table.render());
        if acted.skipped.len() > SHOWN_MAX {
            text.push_str(&format!("… and {} more; --json has them all\n", acted.skipped.len() - SHOWN_MAX));
        }
    }
    if offline && acted.changed > 0 && !acted.dry_run && verb.infinitive == "replay" {
        text.push_str(&hint("No node runs: they start when one does (`sluice up`)."));
    }
    text
}

/// Reads `key=value` words. States that are not named are the verb's own.
fn filter(words: &[String], states: &[JobState]) -> Result<JobFilter, CliError> {
    let usage = |message: String| CliError::new(exit::USAGE, message);
    let mut filter = JobFilter { states: states.to_vec(), ..JobFilter::default() };
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| usage(format!("`{word}` is no filter; write KEY=VALUE with one of {}", KEYS.join(", "))))?;
        let text = || Some(value.trim().to_owned());
        match key.trim() {
            "state" => filter.states = value.split(',').map(state).collect::<Result<_, _>>().map_err(usage)?,
            "worker" => filter.worker = text(),
            "queue" => filter.queue = text(),
            "dead_letter_queue" | "dlq" => filter.dead_letter_queue = text(),
            "source" => filter.source = text(),
            "class" => filter.class = text(),
            "code" => filter.code = text(),
            "since" => filter.since = Some(time(value).map_err(usage)?),
            "until" => filter.until = Some(time(value).map_err(usage)?),
            other => {
                let hint = match did_you_mean(other, KEYS) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("those are {}", KEYS.join(", ")),
                };
                return Err(usage(format!("`{other}` is nothing to filter by; {hint}")));
            }
        }
    }
    Ok(filter)
}

fn state(word: &str) -> Result<JobState, String> {
    let words = || JobState::ALL.iter().map(|state| state.as_str());
    JobState::parse(word.trim()).ok_or_else(|| {
        let hint = did_you_mean(word, words()).map(|near| format!("did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| format!("those are {}", words().collect::<Vec<_>>().join(", ")));
        format!("`{word}` is no state of a job; {hint}")
    })
}

/// `1h` ago, or a time.
fn time(text: &str) -> Result<Time, String> {
    if let Some(time) = Time::parse(text.trim()) {
        return Ok(time);
    }
    let ago = unit::duration(text).map_err(|problem| format!("{problem}; or a time such as 2026-11-15T10:00:00Z"))?;
    Ok(Time::from(jiff::Timestamp::now()) - ago)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<JobFilter, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        filter(&words, &[JobState::Dead]).map_err(|failed| failed.message)
    }

    #[test]
    fn a_filter_means_the_verbs_states_unless_it_names_others() {
        assert_eq!(read(&["worker=w"]).unwrap().states, [JobState::Dead]);
        let named = read(&["state=dead,noop", "code=a=b", "dlq=q"]).unwrap();
        assert_eq!(named.states, [JobState::Dead, JobState::Noop]);
        assert_eq!((named.code.as_deref(), named.dead_letter_queue.as_deref()), (Some("a=b"), Some("q")));
        assert_eq!(read(&["since=2026-11-15T10:00:00Z"]).unwrap().since, Time::parse("2026-11-15T10:00:00Z"));
    }

    #[test]
    fn what_is_wrong_with_a_filter_is_said_with_what_would_be_right() {
        for (word, complaint) in [
            ("dead", "`dead` is no filter; write KEY=VALUE with one of state, worker"),
            ("wroker=x", "`wroker` is nothing to filter by; did you mean `worker`?"),
            ("state=ded", "`ded` is no state of a job; did you mean `dead`?"),
            (
                "since=soon",
                "`soon` is not a duration; write a number and a unit: 250ms, 90s, 15m, 48h or 7d; or a time such as",
            ),
        ] {
            let message = read(&[word]).unwrap_err();
            assert!(message.starts_with(complaint), "{message}");
        }
    }
}
