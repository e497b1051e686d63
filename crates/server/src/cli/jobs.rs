//! `sluice jobs`: list, show and resolve jobs.

use serde_json::json;

use super::CliError;
use super::events::escaped;
use super::lists::{JobFilters, ListArgs, ListRequest};
use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, ago, heading, hint, indented, moment, pretty};
use super::selection::Actor;
use super::status::wait_text;
use super::table::{Cell, Column, Table, pairs, state};
use crate::operate::views::{FailureView, JobDetail, JobView};

/// List, show and resolve jobs
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice jobs --state retrying,waiting\n  sluice jobs show job_17\n  sluice jobs resolve job_17 --happened --reason \"found it in the CRM\""
)]
pub struct Jobs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListJobs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List jobs, newest first
    List(ListJobs),
    /// Show one job with its effects and attempts
    Show(Show),
    /// State whether an unknown effect was applied; its job continues
    Resolve(Resolve),
}

#[derive(Debug, clap::Args)]
struct ListJobs {
    #[command(flatten)]
    filters: JobFilters,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Job id: job_17
    id: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("resolution").required(true))]
struct Resolve {
    /// Job id: job_17
    id: String,
    /// The effect was applied: the job continues with its next step
    #[arg(long, group = "resolution")]
    happened: bool,
    /// The effect was not applied: the step is attempted again
    #[arg(long, group = "resolution")]
    did_not_happen: bool,
    /// Evidence, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Jobs {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
            Some(Command::Resolve(resolve)) => resolve.run(),
        }
    }
}

impl ListJobs {
    fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/jobs",
            filters: self.filters.query(),
            empty: match self.filters.is_empty() {
                true => "No jobs yet: every accepted event has one per worker of its queues.",
                false => "No jobs match. `sluice status` counts them by state.",
            },
            details: "sluice jobs show JOB",
        };
        self.args.run(request, |jobs: &[JobView]| (table(jobs), String::new()))
    }
}

fn table(jobs: &[JobView]) -> Table {
    let mut table = Table::new([
        Column::Whole("JOB"),
        Column::Whole("STATE"),
        Column::Wrap("WORKER"),
        Column::Wrap("SOURCE"),
        Column::Wrap("TYPE"),
        Column::Number("ATTEMPTS"),
        Column::Whole("CHANGED"),
        Column::Wrap("WHY"),
    ]);
    for job in jobs {
        table.row([
            Cell::from(job.id.as_str()),
            state(&job.state),
            job.worker.as_str().into(),
            job.source.as_str().into(),
            job.event_type.as_str().into(),
            job.attempts_total.into(),
            ago(&job.updated_at).into(),
            why(job).into(),
        ]);
    }
    table
}

/// The last failure, or why the job waits.
fn why(job: &JobView) -> String {
    let failure = job.failure.as_ref().map(short);
    let wait = job.waiting_for.as_ref().map(wait_text);
    failure.into_iter().chain(wait).collect::<Vec<_>>().join("; ")
}

fn short(failure: &FailureView) -> String {
    match failure.status {
        Some(status) => format!("{} {} ({status})", failure.class, failure.code),
        None => format!("{} {}", failure.class, failure.code),
    }
}

impl Show {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/jobs/{}", escaped(&self.id)), &[]).await?;
            if self.format.json {
                print::json(&answer)
            } else {
                print::print(&render(&print::deserialize(&answer)?, client))
            }
        })
    }
}

impl Resolve {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let resolution = if self.happened { "happened" } else { "did-not-happen" };
            let order = json!({ "resolution": resolution, "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post(&format!("/jobs/{}/resolve", escaped(&self.id)), &order).await?;
            if self.format.json {
                return print::json(&answer);
            }
            print::print(&render(&print::deserialize(&answer)?, client))
        })
    }
}

/// Renders a job with its details.
fn render(detail: &JobDetail, client: &AdminClient) -> String {
    let job = &detail.job;
    let due = matches!(job.state.as_str(), "retrying" | "waiting");
    let mut text = pairs([
        ("job", job.id.clone()),
        ("state", job.state.clone()),
        ("waits for", job.waiting_for.as_ref().map(wait_text).unwrap_or_default()),
        (
            if job.finished_at.is_some() { "failure" } else { "last failure" },
            job.failure.as_ref().map(|failure| format!("{}: {}", short(failure), failure.message)).unwrap_or_default(),
        ),
        ("worker", format!("{} (queue {})", job.worker, job.queue)),
        ("dead-letter queue", job.dead_letter_queue.clone().unwrap_or_default()),
        ("event", format!("{} ({} from {})", job.event_id, job.event_type, job.source)),
        ("key", job.idempotency_key.clone()),
        ("received", moment(&job.first_received_at)),
        ("changed", moment(&job.updated_at)),
        ("due", if due { moment(&job.due_at) } else { String::new() }),
        ("finished", job.finished_at.as_deref().map(moment).unwrap_or_default()),
        ("attempts", format!("{} in total, {} at this step since the last replay", job.attempts_total, job.attempts)),
        ("replays", if job.replays > 0 { job.replays.to_string() } else { String::new() }),
        ("configuration", job.revision.clone()),
        ("trace", job.trace.clone()),
    ]);
    if let Some(result) = &job.result {
        text.push_str(&heading("Result"));
        text.push_str(&format!("{}\n", pretty(result)));
    }
    if !detail.effects.is_empty() {
        text.push_str(&heading("Effects"));
        let mut table = Table::new([
            Column::Wrap("STEP"),
            Column::Whole("STATE"),
            Column::Wrap("ACTION"),
            Column::Wrap("TO"),
            Column::Whole("CLASS"),
            Column::Number("ATTEMPTS"),
            Column::Whole("EFFECT KEY"),
        ]);
        for effect in &detail.effects {
            table.row([
                Cell::from(effect.step.as_str()),
                state(&effect.state),
                effect.action.as_str().into(),
                effect.destination.as_str().into(),
                effect.class.as_str().into(),
                effect.attempts.into(),
                effect.key.as_str().into(),
            ]);
        }
        text.push_str(&table.render());
    }
    if !detail.attempts_made.is_empty() {
        text.push_str(&heading("Attempts"));
        let mut table = Table::new([
            Column::Number("#"),
            Column::Wrap("STEP"),
            Column::Whole("KIND"),
            Column::Whole("STARTED"),
            Column::Number("TOOK"),
            Column::Whole("OUTCOME"),
            Column::Wrap("FAILURE"),
        ]);
        for attempt in &detail.attempts_made {
            table.row([
                Cell::from(attempt.n),
                attempt.step.as_str().into(),
                attempt.kind.as_str().into(),
                ago(&attempt.started_at).into(),
                format!("{} ms", attempt.took_ms).into(),
                state(&attempt.outcome),
                attempt
                    .failure
                    .as_ref()
                    .map(|failure| format!("{}: {}", short(failure), failure.message))
                    .unwrap_or_default()
                    .into(),
            ]);
        }
        text.push_str(&table.render());
    }
    if !detail.preview.is_empty() {
        text.push_str(&heading("Payload"));
        text.push_str(&indented(&detail.preview.join("\n"), 0));
    }
    text.push_str(&next(detail, client));
    text
}

/// Suggested commands.
fn next(detail: &JobDetail, client: &AdminClient) -> String {
    let id = &detail.job.id;
    let mut text = hint(&format!("\nIts event: sluice events show {}", detail.job.event_id));
    match detail.job.state.as_str() {
        "dead" => {
            text.push_str(&hint(&format!("Replay: sluice replay {id} --reason \"…\"")));
            text.push_str(&hint(&format!("Drop:   sluice dlq drop {id} --reason \"…\"")));
        }
        "unknown" => text.push_str(&hint(&format!(
            "Check the destination for the effect, then resolve the job:\n\
             sluice jobs resolve {id} --happened (or --did-not-happen) --reason \"…\""
        ))),
        "queued" | "retrying" | "waiting" if client.is_offline() => {
            text.push_str(&hint("No node is running: the job continues when one starts (`sluice up`)."));
        }
        _ => {}
    }
    text
}
