//! `sluice contacts` and `sluice trace`.

use serde_json::{Map, Value, json};

use super::lists::{ListArgs, ListRequest, details};
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, heading, hint};
use super::selection::Actor;
use super::table::{self, Cell, Column, Table, listed_id, pairs};
use super::{CliError, exit};
use crate::operate::views::{ContactView, EventDetail, TraceEntry, TraceView};

/// List, show, merge and split contacts; identify events
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Values are masked.\n\nExamples:\n  sluice contacts list --conflicts\n  sluice contacts show ada@example.com\n  sluice contacts merge con_18 --into con_17 --reason \"the same person\"\n  sluice contacts split con_18 --reason \"two persons after all\"\n  sluice contacts identify evt_3k9… --email ada@example.com --reason \"she called\""
)]
pub struct ContactsCommand {
    #[command(subcommand)]
    command: ContactsAct,
}

#[derive(Debug, clap::Subcommand)]
enum ContactsAct {
    /// List contacts, newest first
    List(ListContacts),
    /// Show one contact: its fields, the values that lost and why, and its conflicts
    Show(ShowContact),
    /// Make a contact part of another one; `split` takes it back
    Merge(MergeContact),
    /// Take a contact out of the one that it is merged into
    Split(SplitContact),
    /// Release a quarantined event by saying whose it is
    Identify(IdentifyEvent),
}

#[derive(Debug, clap::Args)]
struct ListContacts {
    /// Only contacts with conflicts
    #[arg(long)]
    conflicts: bool,
    #[command(flatten)]
    args: ListArgs,
}

#[derive(Debug, clap::Args)]
struct ShowContact {
    /// Contact id, email address, phone number or external id
    contact: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct MergeContact {
    /// Id of the contact that becomes part of the other one
    contact: String,
    /// Id of the contact that stays
    #[arg(long, value_name = "ID")]
    into: String,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct SplitContact {
    /// Id of the contact
    contact: String,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("identity").required(true).multiple(true).args(["email", "phone", "external_id", "field"]))]
struct IdentifyEvent {
    /// Id of an event that is quarantined as identity-missing or identity-conflict
    event: String,
    /// Email address of the person
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Phone number of the person, with + and the country code
    #[arg(long, value_name = "NUMBER")]
    phone: Option<String>,
    /// Id of the person at the source of the event
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Another identity field that identifies a contact
    #[arg(long, value_name = "NAME=VALUE")]
    field: Vec<String>,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl IdentifyEvent {
    fn identity(&self) -> Result<Map<String, Value>, CliError> {
        let named = [("email", &self.email), ("phone", &self.phone), ("external_id", &self.external_id)];
        let mut identity = Map::new();
        for (name, value) in named {
            identity.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
        }
        for field in &self.field {
            let Some((name, value)) = field.split_once('=') else {
                return Err(CliError::new(exit::USAGE, format!("--field {field}: write it as NAME=VALUE")));
            };
            identity.insert(name.trim().to_owned(), json!(value));
        }
        Ok(identity)
    }

    fn run(self) -> Result<(), CliError> {
        let identity = self.identity()?;
        self.reach.run(async |client| {
            let order = json!({ "identity": identity, "reason": self.reason, "actor": self.actor.name() });
            let answer = client.post(&format!("/events/{}/identify", segment(&self.event)), &order).await?;
            let Some(detail) = self.format.read::<EventDetail>(&answer)? else { return Ok(()) };
            let contact = detail.identified.map(|identified| identified.contact).unwrap_or_default();
            print::print(&format!("{} belongs to {contact}; its jobs are queued.", detail.event.id))
        })
    }
}

/// Show everything that happened to an event or a person
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice trace ada@example.com\n  sluice trace con_17\n  sluice trace evt_3k9…")]
pub struct TraceCommand {
    /// Id, key or trace id of an event; id, email address or phone number of a contact; id of a record at a destination
    about: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl ContactsCommand {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            ContactsAct::List(list) => list.run(),
            ContactsAct::Show(show) => show.reach.run(async |client| {
                let answer = client.get(&format!("/contacts/{}", segment(&show.contact)), &[]).await?;
                render(&answer, show.format)
            }),
            ContactsAct::Merge(merge) => merge.reach.run(async |client| {
                let order = json!({ "into": merge.into, "reason": merge.reason, "actor": merge.actor.name() });
                let answer = client.post(&format!("/contacts/{}/merge", segment(&merge.contact)), &order).await?;
                render(&answer, merge.format)
            }),
            ContactsAct::Identify(identify) => identify.run(),
            ContactsAct::Split(split) => split.reach.run(async |client| {
                let order = json!({ "reason": split.reason, "actor": split.actor.name() });
                let answer = client.post(&format!("/contacts/{}/split", segment(&split.contact)), &order).await?;
                render(&answer, split.format)
            }),
        }
    }
}

/// A segment of a path: everything but letters, digits, `-`, `_` and `.` is percent-encoded.
fn segment(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    text.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn render(answer: &Value, format: Format) -> Result<(), CliError> {
    let Some(contact) = format.read::<ContactView>(answer)? else { return Ok(()) };
    print::print(&render_contact(&contact))
}

fn render_contact(contact: &ContactView) -> String {
    let mut text = render_head(contact);
    for (section, title) in [("identity.", "Identity"), ("attributes.", "Attributes")] {
        text.push_str(&render_fields(contact, section, title));
    }
    text.push_str(&render_decisions(contact));
    text + &details(&format!("sluice trace {}", contact.id))
}

fn render_head(contact: &ContactView) -> String {
    pairs([
        ("contact", contact.id.clone()),
        ("since", ago(&contact.created_at)),
        ("merged into", contact.merged_into.clone().unwrap_or_default()),
        ("members", contact.members.join(", ")),
    ])
}

/// The fields of one section of the event; nothing without any.
fn render_fields(contact: &ContactView, section: &str, title: &str) -> String {
    let mut table = Table::new([
        Column::Wrap("FIELD"),
        Column::Wrap("VALUE"),
        Column::Wrap("SOURCE"),
        Column::Number("TRUST"),
        Column::Whole("FROM"),
        Column::Wrap("NOT USED"),
    ]);
    let mut rows = 0;
    for (name, field) in contact.fields.iter().filter_map(|field| Some((field.name.strip_prefix(section)?, field))) {
        for (place, value) in field.values.iter().enumerate() {
            rows += 1;
            table.row([
                Cell::from(if place == 0 { name } else { "" }),
                value.value.as_str().map_or_else(|| value.value.to_string(), str::to_owned).into(),
                value.source.as_str().into(),
                u64::from(value.trust).into(),
                ago(&value.occurred_at).into(),
                value.lost.as_deref().unwrap_or_default().into(),
            ]);
        }
    }
    if rows == 0 { String::new() } else { heading(title) + &table.render() }
}

/// Conflicts, and events that were identified later.
fn render_decisions(contact: &ContactView) -> String {
    let mut text = String::new();
    for conflict in &contact.conflicts {
        let line = match &conflict.other {
            Some(other) => format!(
                "conflict: the {} of an event belongs to {other}; if they are one person: sluice contacts merge {other} --into {} --reason …\n",
                conflict.kind, contact.id
            ),
            None => format!("conflict: an event has another {}; it was not linked\n", conflict.kind),
        };
        text.push_str(&line);
    }
    for identified in &contact.identified_later {
        let by = match identified.how.as_str() {
            "enrichment" => format!("the lookup {}", identified.by),
            _ => identified.by.clone(),
        };
        text.push_str(&format!("{} was identified {} by {by}\n", identified.event, ago(&identified.at)));
    }
    text
}

impl ListContacts {
    fn run(self) -> Result<(), CliError> {
        let request = ListRequest {
            path: "/contacts",
            filters: vec![("conflicts", self.conflicts.then(|| "true".to_owned()))],
            empty: match self.conflicts {
                true => "No contact has a conflict.",
                false => "No contacts: the configuration has no `contacts:`, or no event has an identifier.",
            },
            details: "sluice contacts show CONTACT",
        };
        self.args.run(request, |items: &[ContactView]| {
            let mut table = Table::new([
                Column::Whole("CONTACT"),
                Column::Wrap("EMAIL"),
                Column::Whole("SINCE"),
                Column::Number("FIELDS"),
                Column::Number("MEMBERS"),
                Column::Number("CONFLICTS"),
            ]);
            for contact in items {
                let email = contact.fields.iter().find(|field| field.name == "identity.email");
                let email = email.and_then(|field| field.values.first()?.value.as_str()).unwrap_or_default();
                table.row([
                    Cell::from(contact.id.as_str()),
                    email.into(),
                    ago(&contact.created_at).into(),
                    (contact.fields.len() as u64).into(),
                    (contact.members.len() as u64).into(),
                    (contact.conflicts.len() as u64).into(),
                ]);
            }
            (table, String::new())
        })
    }
}

impl TraceCommand {
    pub fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get("/trace", &[("about", Some(self.about.clone()))]).await?;
            let Some(trace) = self.format.read::<TraceView>(&answer)? else { return Ok(()) };
            let mut text = trace.contact.as_ref().map_or_else(String::new, render_head);
            text.push_str(&render_entries(&trace.entries));
            if trace.more {
                text.push_str("Older events are not shown: sluice events --contact …\n");
            }
            print::print(&text)
        })
    }
}

/// Columns from which every entry has room for its command.
const COMMAND_COLUMNS: u16 = 140;

/// What happened, in order. A narrow terminal shows the id of each entry and one command for each kind of id, so that none is broken
/// in two.
fn render_entries(entries: &[TraceEntry]) -> String {
    let has_room = table::terminal_width().is_none_or(|columns| columns >= COMMAND_COLUMNS);
    let last = if has_room { Column::Wrap("MORE") } else { Column::Whole("ID") };
    let mut table = Table::new([Column::Whole("TIME"), Column::Whole("KIND"), Column::Wrap("WHAT"), last]);
    for entry in entries {
        let time = if has_room { entry.at.clone() } else { second(&entry.at) };
        let more = if has_room { entry.command.as_str() } else { listed_id(&entry.id) };
        table.row([time.into(), entry.kind.as_str().into(), entry.what.as_str().into(), more.into()]);
    }
    let mut text = table.render();
    if !has_room {
        let mut commands: Vec<(&str, &str)> = Vec::new();
        for entry in entries {
            let verb = entry.command.strip_suffix(&entry.id).unwrap_or(&entry.command);
            if !commands.iter().any(|(known, _)| *known == verb) {
                commands.push((verb, &entry.command));
            }
        }
        let commands: Vec<&str> = commands.into_iter().map(|(_, command)| command).collect();
        text.push_str(&hint(&format!("\nDetails, with any of the ids:\n  {}", commands.join("\n  "))));
    }
    text
}

/// A time without fractions of a second and zone: `2026-03-17 10:00:00`.
fn second(at: &str) -> String {
    at.split('.').next().unwrap_or(at).trim_end_matches('Z').replace('T', " ")
}
