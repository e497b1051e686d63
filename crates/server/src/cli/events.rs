//! `sluice events`: accepted events.

use serde_json::{Value, json};

use super::event_edit::{Edit, Revisions};
use super::lists::{ListArgs, ListRequest, Query};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, heading, hint, moment, plural, pretty};
use super::selection::Actor;
use super::table::{Cell, Column, Table, listed_id, pairs, state};
use super::{CliError, clash};
use crate::operate::views::{DuplicatesView, EventDetail, EventView, IdentifiedView, IdentityLookupView};

/// List, show and edit accepted events
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice events --source website --limit 5\n  sluice events --contact ada@example.com --since 7d\n  sluice events --state dead\n  sluice events show evt_1a2b…\n  sluice events show evt_1a2b… --reveal --reason \"ticket 4711\"   (leaves an audit entry)\n  sluice events edit evt_1a2b… --set identity.email=ada@example.com --reason \"a typo\""
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
    /// Edit an event as a new revision of it, and run its jobs again
    Edit(Box<Edit>),
    /// List the revisions of an event with their differences
    Revisions(Revisions),
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
    args: ListArgs,
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
            Some(Command::Edit(edit)) => edit.run(),
            Some(Command::Revisions(revisions)) => revisions.run(),
        }
    }
}

impl ListEvents {
    fn run(self) -> Result<(), CliError> {
        let filters = self.filters();
        let empty = match filters.iter().all(|(_, value)| value.is_none()) {
            true => "No events yet. Post one with `sluice send FLOW FILE`.",
            false => "No events match. `sluice sources` lists the sources.",
        };
        let details = "sluice events show EVENT";
        let request = ListRequest { path: "/events", filters, empty, details };
        self.args.run(request, |events: &[EventView]| (table(events), String::new()))
    }

    fn filters(&self) -> Query {
        vec![
            ("source", self.source.clone()),
            ("type", self.r#type.clone()),
            ("key", self.key.clone()),
            ("contact", self.contact.clone()),
            ("since", self.since.clone()),
            ("state", self.state.clone()),
        ]
    }
}

fn table(events: &[EventView]) -> Table {
    let mut table = Table::new([
        Column::Whole("EVENT"),
        Column::Whole("RECEIVED"),
        Column::Wrap("SOURCE"),
        Column::Wrap("TYPE"),
        Column::Whole("STATUS"),
        Column::Wrap("KEY"),
    ]);
    for event in events {
        table.row([
            Cell::from(listed_id(&event.id)),
            ago(&event.received_at).into(),
            event.source.as_str().into(),
            event.event_type.as_str().into(),
            state(&event.status),
            event.idempotency_key.as_str().into(),
        ]);
    }
    table
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
        ("quarantined", detail.quarantined.clone().unwrap_or_default()),
        ("waits for id", waits_for_identity(detail)),
        ("lookups", detail.identity_lookup.as_ref().map(identity_lookup).unwrap_or_default()),
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
    if let Some(duplicates) = &detail.duplicates {
        text.push_str(&render_duplicates(duplicates));
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
    if detail.quarantined.is_some() {
        let id = &event.id;
        text.push_str(&hint(&format!("Say whose it is: sluice contacts identify {id} --email ADDRESS --reason WHY")));
    }
    if !detail.revealed && detail.raw.is_some() {
        text.push_str(&hint("Personal data is masked; --reveal --reason WHY shows it and leaves an audit entry."));
    }
    text
}

/// Who identified an event after it was accepted.
fn identified(view: &IdentifiedView) -> String {
    let fields = view.fields.join(", ");
    let reason = view.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let the_lookup = if view.how == "enrichment" { "the lookup " } else { "" };
    format!(
        "as {} by {the_lookup}{} ({fields}; mapping {}), {}{reason}",
        view.contact,
        view.by,
        view.mapping_version,
        ago(&view.at)
    )
}

fn waits_for_identity(detail: &EventDetail) -> String {
    detail
        .waits_for_identity_until
        .as_ref()
        .map_or_else(String::new, |until| format!("a later event may identify it until {}", moment(until)))
}

/// Lookups that have not found the identity of an event.
fn identity_lookup(view: &IdentityLookupView) -> String {
    let last = view.last.as_deref().unwrap_or_default();
    match (view.tries, &view.next_at) {
        (0, _) => "of its identity are due".to_owned(),
        (tries, Some(next)) => {
            format!("of its identity: {last} ({}), again {}", plural(u64::from(tries), "try"), moment(next))
        }
        (tries, None) => format!("found no identity: {last} ({})", plural(u64::from(tries), "try")),
    }
}

/// Requests that were answered as duplicates.
fn render_duplicates(duplicates: &DuplicatesView) -> String {
    let mut text = heading("Duplicates");
    let shown = duplicates.recent.len() as u64;
    if duplicates.count > shown {
        let first = moment(&duplicates.first_at);
        text.push_str(&format!("{} in all, the first {first}; the last {shown}:\n", duplicates.count));
    }
    let mut table = Table::new([Column::Whole("RECEIVED"), Column::Wrap("REPEAT"), Column::Whole("TRACE")]);
    for request in &duplicates.recent {
        table.row([ago(&request.at).into(), request.describe().into(), Cell::from(request.trace.as_str())]);
    }
    text.push_str(&table.render());
    text
}

/// Escapes an id as one path segment.
pub(super) fn escaped(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    id.trim()
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
