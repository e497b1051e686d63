//! Selection of jobs for a replay or a drop, with confirmation.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_domain::unit;
use sluice_ledger::JobFilter;

use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, grouped, hint, plural};
use super::replay::{render_preview, render_started};
use super::table::{Cell, Column, Table};
use super::{CliError, exit, user};
use crate::config::did_you_mean;
use crate::operate::Selection;
use crate::operate::views::{BulkResult, ClockView, ReplayResult};

/// Keys of `--filter`.
const KEYS: [&str; 10] =
    ["state", "worker", "queue", "dead_letter_queue", "source", "class", "code", "destination", "since", "until"];

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Act {
    /// Job ids (job_17), or event ids (evt_…) for all their jobs
    #[arg(value_name = "ID", required_unless_present = "filter", conflicts_with = "filter")]
    ids: Vec<String>,
    /// All jobs that match KEY=VALUE: state, worker, queue, dead_letter_queue, source, class, code, destination, since or until
    #[arg(long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Reason, recorded in the audit trail
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Show the result without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    pub reach: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Actor {
    /// Actor for the audit trail; the operating-system user by default
    #[arg(long, env = "SLUICE_ACTOR", value_name = "NAME")]
    actor: Option<String>,
}

impl Actor {
    pub(super) fn name(&self) -> String {
        let is_named = |name: &String| !name.trim().is_empty();
        // sudo says which user ran it; the process has the id of another one.
        let caller = || std::env::var("SUDO_USER").ok().filter(is_named);
        self.actor.clone().filter(is_named).or_else(caller).unwrap_or_else(user::current)
    }
}

/// Forms of a command verb: `replay`, `replayed`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verb {
    pub path: &'static str,
    pub infinitive: &'static str,
    pub participle: &'static str,
    /// Default states of a filter.
    pub states: &'static [JobState],
}

impl Act {
    /// Sends the request. `more` is merged into it.
    pub(super) async fn perform(&self, client: &AdminClient, verb: Verb, more: Value) -> Result<(), CliError> {
        let asks = !self.filter.is_empty() && !self.dry_run && !self.yes;
        let selection = if self.filter.is_empty() {
            Selection { ids: self.ids.clone(), filter: None }
        } else {
            let mut filter = filter(&self.filter, verb.states)?;
            // What was counted is what is done: a job that matches only after the question is not among them.
            if asks && filter.until.is_none() {
                filter.until = Some(ledger_time(client).await?);
            }
            Selection { ids: vec![], filter: Some(filter) }
        };
        // A dry run needs no reason, but the API requires one.
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
        if asks {
            let counted = dry_run(client, verb, order(true)).await?;
            if counted.jobs.changed > 0 {
                if let Some(preview) = counted.preview.as_ref().filter(|_| std::io::stdin().is_terminal()) {
                    anstream::eprintln!("{}", render_preview(preview));
                }
                confirm(verb, &counted.jobs)?;
            }
        }
        let result = match self.dry_run {
            true => dry_run(client, verb, order(true)).await?,
            false => print::deserialize(&client.post(verb.path, &order(false)).await?)?,
        };
        let is_running = result.replay.as_ref().is_some_and(|replay| replay.state == "running");
        if self.format.json {
            print::json(&result)?;
        } else if is_running {
            print::print(&render_started(&result, client.is_offline()))?;
        } else {
            let mut text = render(verb, &result.jobs, client.is_offline());
            if let Some(preview) = result.preview.as_ref().filter(|_| result.jobs.changed > 0) {
                text.push_str(&render_preview(preview));
            }
            print::print(&text)?;
        }
        if result.jobs.changed == 0 && !is_running { Err(CliError::new(exit::NO, "")) } else { Ok(()) }
    }
}

/// The time by which the node stamps jobs.
pub(super) async fn ledger_time(client: &AdminClient) -> Result<Time, CliError> {
    let clock: ClockView = print::deserialize(&client.get("/clock", &[]).await?)?;
    Time::parse(&clock.ledger)
        .ok_or_else(|| CliError::new(exit::UNAVAILABLE, format!("`{}` of the node is not a time", clock.ledger)))
}

/// Asks what would happen, part by part, and adds the parts up. Says how far it is on a terminal.
async fn dry_run(client: &AdminClient, verb: Verb, mut order: Value) -> Result<ReplayResult, CliError> {
    let mut result: ReplayResult = print::deserialize(&client.post(verb.path, &order).await?)?;
    let shows_progress = std::io::stderr().is_terminal();
    let next = |result: &ReplayResult| result.preview.as_ref().and_then(|preview| preview.next.clone());
    while let Some(after) = next(&result) {
        if shows_progress {
            anstream::eprint!("\r{} examined, up to {after} …", plural(result.jobs.matched, "job"));
        }
        order["after"] = Value::String(after);
        result.add(print::deserialize(&client.post(verb.path, &order).await?)?);
        if shows_progress && next(&result).is_none() {
            anstream::eprintln!();
        }
    }
    Ok(result)
}

fn confirm(verb: Verb, counted: &BulkResult) -> Result<(), CliError> {
    let jobs = plural(counted.changed, "job");
    let apart = match counted.matched - counted.changed {
        0 => String::new(),
        left => format!(" ({} more match and are skipped)", grouped(left)),
    };
    confirm_many(verb.infinitive, verb.participle, &format!("{jobs}{apart}"))
}

/// Asks for confirmation.
pub(super) fn confirm_many(infinitive: &str, participle: &str, what: &str) -> Result<(), CliError> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{what} would be {participle}; no terminal for the confirmation, use --yes");
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

fn render(verb: Verb, acted: &BulkResult, offline: bool) -> String {
    let mut text = match (acted.matched, acted.changed, acted.dry_run) {
        (0, ..) => "No job matches; nothing was changed.\n".to_owned(),
        (_, changed, true) => format!("{} would be {}.\n", plural(changed, "job"), verb.participle),
        (_, changed, false) => format!("{} {}.\n", plural(changed, "job"), verb.participle),
    };
    if !acted.skipped.is_empty() {
        const SHOWN_MAX: usize = 20;
        text.push_str(&format!("{} skipped:\n", plural(acted.skipped.len() as u64, "job")));
        let mut table = Table::new([Column::Whole("JOB"), Column::Wrap("WHY")]);
        for left in acted.skipped.iter().take(SHOWN_MAX) {
            table.row([Cell::from(left.job.as_str()), left.reason.as_str().into()]);
        }
        text.push_str(&table.render());
        if acted.skipped.len() > SHOWN_MAX {
            text.push_str(&format!("… and {} more; --json has them all\n", acted.skipped.len() - SHOWN_MAX));
        }
    }
    if offline && acted.changed > 0 && !acted.dry_run && verb.infinitive == "replay" {
        text.push_str(&hint("No node is running: the jobs run when one starts (`sluice up`)."));
    }
    text
}

/// Parses `key=value` words; default states are those of the verb.
fn filter(words: &[String], states: &[JobState]) -> Result<JobFilter, CliError> {
    let usage = |message: String| CliError::new(exit::USAGE, message);
    let mut filter = JobFilter { states: states.to_vec(), ..JobFilter::default() };
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| usage(format!("`{word}` is not a filter; use KEY=VALUE with one of {}", KEYS.join(", "))))?;
        let text = || Some(value.trim().to_owned());
        match key.trim() {
            "state" => filter.states = value.split(',').map(state).collect::<Result<_, _>>().map_err(usage)?,
            "worker" => filter.worker = text(),
            "queue" => filter.queue = text(),
            "dead_letter_queue" | "dlq" => filter.dead_letter_queue = text(),
            "source" => filter.source = text(),
            "class" => filter.class = text(),
            "code" => filter.code = text(),
            "destination" => filter.destination = text(),
            "since" => filter.since = Some(time(value).map_err(usage)?),
            "until" => filter.until = Some(time(value).map_err(usage)?),
            other => {
                let hint = match did_you_mean(other, KEYS) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("use one of {}", KEYS.join(", ")),
                };
                return Err(usage(format!("unknown filter key `{other}`; {hint}")));
            }
        }
    }
    Ok(filter)
}

fn state(word: &str) -> Result<JobState, String> {
    let words = || JobState::ALL.iter().map(|state| state.as_str());
    JobState::parse(word.trim()).ok_or_else(|| {
        let hint = did_you_mean(word, words()).map(|near| format!("did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| format!("use one of {}", words().collect::<Vec<_>>().join(", ")));
        format!("`{word}` is not a job state; {hint}")
    })
}

/// A duration before now (`1h`), or a time.
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
    fn filter_defaults_to_the_states_of_the_verb() {
        assert_eq!(read(&["worker=w"]).unwrap().states, [JobState::Dead]);
        let named = read(&["state=dead,noop", "code=a=b", "dlq=q"]).unwrap();
        assert_eq!(named.states, [JobState::Dead, JobState::Noop]);
        assert_eq!((named.code.as_deref(), named.dead_letter_queue.as_deref()), (Some("a=b"), Some("q")));
        assert_eq!(read(&["since=2026-11-15T10:00:00Z"]).unwrap().since, Time::parse("2026-11-15T10:00:00Z"));
    }

    #[test]
    fn invalid_filters_are_reported_with_a_hint() {
        for (word, complaint) in [
            ("dead", "`dead` is not a filter; use KEY=VALUE with one of state, worker"),
            ("wroker=x", "unknown filter key `wroker`; did you mean `worker`?"),
            ("state=ded", "`ded` is not a job state; did you mean `dead`?"),
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
