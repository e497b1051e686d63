//! `sluice dlq`: dead and unknown jobs.

use serde_json::json;
use sluice_domain::job::JobState;

use super::CliError;
use super::failure_groups::{Groups, Mark};
use super::jobs::Show;
use super::lists::{JobFilters, ListArgs, ListRequest, details};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, hint};
use super::selection::{Act, Verb};
use super::table::{Cell, Column, Table, state};
use crate::operate::views::{JobView, ReasonView};

/// List, inspect and drop dead letters
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice dlq top --since 1h\n  sluice dlq groups --state open\n  sluice dlq ack group_7 --reason \"the vendor knows\"\n  sluice dlq --class permanent --worker lead-to-crm\n  sluice replay --filter code=timeout --reason \"the CRM is back\"\n  sluice dlq drop job_17 job_18 --reason \"test data\"\n  sluice dlq drop --filter source=website --reason \"spam\" --dry-run"
)]
pub struct Dlq {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListDead,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List dead letters, newest first
    List(ListDead),
    /// Show one dead letter with its effects and attempts
    Show(Show),
    /// Show the causes of dead letters, most frequent first
    Top(Top),
    /// List dead letters by worker and failure, with their state
    Groups(Groups),
    /// Acknowledge a failure group: a person handles it
    Ack(Mark),
    /// Resolve a failure group; the next dead letter opens it again
    Resolve(Mark),
    /// Open a failure group again
    Reopen(Mark),
    /// Drop dead or unknown jobs
    Drop(Act),
}

#[derive(Debug, clap::Args)]
struct ListDead {
    #[command(flatten)]
    filters: JobFilters,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Top {
    /// Within this duration (1h) or since this time
    #[arg(long, default_value = "1h")]
    since: String,
    /// Maximum number of rows
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=500), value_name = "N")]
    limit: u32,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

const DROP: Verb = Verb {
    path: "/dead-letters/drop",
    infinitive: "drop",
    participle: "dropped",
    states: &[JobState::Dead, JobState::Unknown],
};

impl Dlq {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Top(top)) => top.run(),
            Some(Command::Groups(groups)) => groups.run(),
            Some(Command::Ack(mark)) => mark.run("acknowledge"),
            Some(Command::Resolve(mark)) => mark.run("resolve"),
            Some(Command::Reopen(mark)) => mark.run("reopen"),
            Some(Command::Drop(act)) => act.reach.run(async |client| act.perform(client, DROP, json!({})).await),
        }
    }
}

impl ListDead {
    fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/dead-letters",
            filters: self.filters.query(),
            empty: match self.filters.is_empty() {
                true => "No dead letters. Jobs that are retried: `sluice jobs --state retrying,waiting`.",
                false => "No dead letters match. `sluice dlq` lists them all.",
            },
            details: "sluice dlq show JOB",
        };
        self.args.run(request, |jobs: &[JobView]| (table(jobs), hints(jobs)))
    }
}

fn table(jobs: &[JobView]) -> Table {
    let mut table = Table::new([
        Column::Whole("JOB"),
        Column::Whole("STATE"),
        Column::Wrap("WORKER"),
        Column::Wrap("SOURCE"),
        Column::Whole("DIED"),
        Column::Number("ATTEMPTS"),
        Column::Wrap("CODE"),
        Column::Wrap("WHAT HAPPENED"),
    ]);
    for job in jobs {
        let failure = job.failure.as_ref();
        table.row([
            Cell::from(job.id.as_str()),
            state(&job.state),
            job.worker.as_str().into(),
            job.source.as_str().into(),
            ago(&job.updated_at).into(),
            job.attempts_total.into(),
            failure.map_or("", |failure| &failure.code).into(),
            failure.map_or("", |failure| &failure.message).into(),
        ]);
    }
    table
}

/// What can be done about them.
fn hints(jobs: &[JobView]) -> String {
    let mut hints = String::new();
    let any = |state: &str| jobs.iter().any(|job| job.state == state);
    if any("dead") {
        hints.push_str(&hint("Replay: sluice replay JOB --reason \"…\"   Drop: sluice dlq drop JOB --reason \"…\""));
    }
    if any("unknown") {
        hints.push_str(&hint(
            "An unknown job is not replayed before it is resolved: sluice jobs resolve JOB --happened (or --did-not-happen) --reason \"…\"",
        ));
    }
    hints
}

impl Top {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let query = [("since", Some(self.since.clone())), ("limit", Some(self.limit.to_string()))];
            let answer = client.get("/dead-letters/top", &query).await?;
            let Some(reasons) = self.format.read::<Vec<ReasonView>>(&answer)? else { return Ok(()) };
            if reasons.is_empty() {
                return print::print(&format!("No job died since {}. Look further back with --since 7d.", self.since));
            }
            let mut table = Table::new([
                Column::Number("COUNT"),
                Column::Whole("CLASS"),
                Column::Wrap("CODE"),
                Column::Whole("NEWEST"),
                Column::Wrap("SUCH AS"),
            ]);
            for reason in &reasons {
                table.row([
                    Cell::from(reason.count),
                    reason.class.as_str().into(),
                    reason.code.as_str().into(),
                    ago(&reason.last_at).into(),
                    reason.message.as_str().into(),
                ]);
            }
            print::print(&(table.render() + &details("sluice dlq --code CODE, then sluice dlq show JOB")))
        })
    }
}
