//! `sluice events`: accepted events.

use serde_json::{Value, json};

use super::lists::{Paging, footer};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, heading, hint, moment, pretty};
use super::selection::Actor;
use super::table::{Cell, Column, Table, listed_id, pairs, state};
use super::{CliError, clash};
use crate::operate::views::{EventDetail, EventView, IdentifiedView, List};

/// List and show accepted events
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice events --source website --limit 5\n  sluice events --contact ada@example.com --since 7d\n  sluice events --state dead\n  sluice events show evt_1a2b…\n  sluice events show evt_1a2b… --reveal --reason \"ticket 4711\"   (leaves an audit entry)"
)]
pub struct Events {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListEvents,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List events, newest first
    List(ListEvents),
    /// Show one event with its jobs, its body and its variants
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct ListEvents {
    /// Only from this source
    #[arg(long)]
    source: Option<String>,
    /// Only of this type, such as lead.created
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// Only with this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Only about this person: email address, phone number or external id
    #[arg(long, value_name = "PERSON")]
    contact: Option<String>,
    /// Only received within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
    /// Only with this status: working, done, dead, unknown, dropped or unrouted
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Event id (evt_…, or at least its first 13 characters after evt_) or idempotency key
    #[arg(value_name = "ID or KEY")]
    id: String,
    /// Show personal data; leaves an audit entry
    #[arg(long, requires = "reason")]
    reveal: bool,
    /// Reason for showing personal data, recorded in the audit trail
    #[arg(long, requires = "reveal", value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Events {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Show(show)) => show.run(),
        }
    }
}

impl ListEvents {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let mut query = self.filters();
            query.extend(self.paging.query());
            let answer = client.get("/events", &query).await?;
            let Some(list) = self.format.read::<List<EventView>>(&answer)? else { return Ok(()) };
            print::print(&self.render(&list))
        })
    }

    fn filters(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("source", self.source.clone()),
            ("type", self.r#type.clone()),
            ("key", self.key.clone()),
            ("contact", self.contact.clone()),
            ("since", self.since.clone()),
            ("state", self.state.clone()),
        ]
    }

    fn render(&self, list: &List<EventView>) -> String {
        if list.items.is_empty() {
            return match self.filters().iter().all(|(_, value)| value.is_none()) {
                true => "No events yet. Post one with `sluice send FLOW FILE`.\n".to_owned(),
                false => "No events match. `sluice sources` lists the sources.\n".to_owned(),
            };
        }
        let mut table = Table::new([
            Column::Whole("EVENT"),
            Column::Whole("RECEIVED"),
            Column::Wrap("SOURCE"),
            Column::Wrap("TYPE"),
            Column::Whole("STATUS"),
            Column::Wrap("KEY"),
        ]);
        for event in &list.items {
            table.row([
                Cell::from(listed_id(&event.id)),
                ago(&event.received_at).into(),
                event.source.as_str().into(),
                event.event_type.as_str().into(),
                state(&event.status),
                event.idempotency_key.as_str().into(),
            ]);
        }
        table.render() + &footer(list.next.as_deref(), "sluice events show EVENT")
    }
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let path = format!("/events/{}", escaped(&self.id));
            let answer = match self.reveal {
                true => {
                    let order = json!({ "reason": self.reason, "actor": self.actor.name() });
                    client.post(&format!("{path}/reveal"), &order).await?
                }
                false => client.get(&path, &[]).await?,
            };
            if self.format.json {
                return print::json(&answer);
            }
            print::print(&render(&print::deserialize(&answer)?))
        })
    }
}

fn render(detail: &EventDetail) -> String {
    let event = &detail.event;
    let mut text = pairs([
        ("event", event.id.clone()),
        ("status", event.status.clone()),
        ("type", event.event_type.clone()),
        ("source", format!("{} (flow {})", event.source, event.flow)),
        ("key", event.idempotency_key.clone()),
        ("received", moment(&event.received_at)),
        ("occurred", event.occurred_at.as_deref().map(moment).unwrap_or_default()),
        ("key expires", moment(&event.expires_at)),
        ("verified by", event.verified_by.clone().unwrap_or_else(|| "not verified".to_owned())),
        ("configuration", event.revision.clone()),
        ("trace", event.trace.clone()),
        ("identified", detail.identified.as_ref().map(identified).unwrap_or_default()),
        ("waits for id", waits_for_identity(detail)),
    ]);
    if event.jobs.is_empty() {
        text.push_str("\nNo worker handles it: it has no jobs.\n");
    } else {
        text.push_str(&heading("Jobs"));
        let mut table = Table::new([
            Column::Whole("JOB"),
            Column::Whole("STATE"),
            Column::Wrap("WORKER"),
            Column::Number("ATTEMPTS"),
        ]);
        for job in &event.jobs {
            table.row([
                Cell::from(job.id.as_str()),
                state(&job.state),
                job.worker.as_str().into(),
                job.attempts.into(),
            ]);
        }
        text.push_str(&table.render());
    }
    if !detail.warnings.is_empty() {
        text.push_str(&heading("Warnings"));
        let mut table = Table::new([Column::Wrap("FIELD"), Column::Whole("WARNING"), Column::Whole("JOB")]);
        for warning in &detail.warnings {
            let job = warning.job.as_deref().unwrap_or_default();
            table.row([warning.field.as_str().into(), warning.code.as_str().into(), Cell::from(job)]);
        }
        text.push_str(&table.render());
    }
    if let Some(clash) = &detail.clash {
        text.push_str(&clash::render(clash));
    }
    let mut body = |title: &str, value: &Option<Value>| {
        if let Some(value) = value {
            text.push_str(&heading(title));
            text.push_str(&pretty(value));
            text.push('\n');
        }
    };
    body("Normalized", &detail.normalized);
    body("Request body", &detail.raw);
    body("Request headers", &detail.headers);
    if detail.normalized.is_none() && detail.raw.is_none() {
        text.push_str("\nIts body has been deleted by retention.\n");
    }
    text.push_str(&hint("\nSee a job: sluice jobs show JOB"));
    if !detail.revealed && detail.raw.is_some() {
        text.push_str(&hint("Personal data is masked; --reveal --reason WHY shows it and leaves an audit entry."));
    }
    text
}

/// Who identified an event after it was accepted.
fn identified(view: &IdentifiedView) -> String {
    let fields = view.fields.join(", ");
    let reason = view.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!(
        "as {} by {} ({fields}; mapping {}), {}{reason}",
        view.contact,
        view.by,
        view.mapping_version,
        ago(&view.at)
    )
}

fn waits_for_identity(detail: &EventDetail) -> String {
    detail.waits_for_identity_until.as_ref().map_or_else(String::new, |until| {
        format!("until {}; or say whose it is: sluice contacts identify", moment(until))
    })
}

/// Escapes an id as one path segment.
pub(super) fn escaped(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    id.trim()
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
