//! `sluice events edit` and `sluice events revisions`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use super::clash::changes;
use super::events::escaped;
use super::node_access::{AdminClient, NodeArgs};
use super::print::{self, Format, heading, moment, plural};
use super::selection::{Actor, confirm_many};
use super::{CliError, exit};
use crate::operate::views::{EditView, EventRevisionView};

/// Members of an event that can be edited.
const EDITABLE: [&str; 4] = ["identity", "attributes", "routing", "occurred_at"];

/// Columns of a difference between two revisions.
const EDIT: [&str; 2] = ["BEFORE", "AFTER"];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --set, --set-json, --remove, --file and --restore the event is opened in $VISUAL or $EDITOR; that reveals it and leaves an audit entry.\n\nExamples:\n  sluice events edit evt_1a2b… --set identity.email=ada@example.com --reason \"a typo\"\n  sluice events edit evt_1a2b… --set attributes.last_name=Lovelace --reason \"too long\" --dry-run\n  sluice events edit evt_1a2b… --restore 0 --reason \"back to what was sent\" --yes"
)]
pub(super) struct Edit {
    /// Event id (evt_…, or at least its first 13 characters after evt_)
    #[arg(value_name = "ID")]
    id: String,
    /// Sets a text, such as attributes.last_name=Lovelace
    #[arg(long, value_name = "PATH=TEXT")]
    set: Vec<String>,
    /// Sets a value of any type, such as attributes.tags=["a"]
    #[arg(long, value_name = "PATH=JSON")]
    set_json: Vec<String>,
    /// Removes a field
    #[arg(long, value_name = "PATH")]
    remove: Vec<String>,
    /// Replaces identity, attributes, routing or occurred_at by those of a JSON file; - is the standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "set_json", "remove"])]
    file: Option<PathBuf>,
    /// Makes an earlier revision the current one; 0 is the event as it was accepted
    #[arg(long, value_name = "N", conflicts_with_all = ["set", "set_json", "remove", "file"])]
    restore: Option<u32>,
    /// Classes of effects that are applied again although they are applied; natural and transactional by default
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    reapply: Option<Vec<String>>,
    /// Reason, recorded in the audit trail
    #[arg(long)]
    reason: String,
    /// Show the differences without changing anything
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
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Revisions {
    /// Event id (evt_…, or at least its first 13 characters after evt_)
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Edit {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let path = format!("/events/{}/revisions", escaped(&self.id));
            let mut order = self.order(client).await?;
            order["dry_run"] = json!(true);
            let planned: EditView = print::deserialize(&client.post(&path, &order).await?)?;
            if !self.dry_run && !self.yes {
                anstream::eprint!("{}", changes(&planned.changes, EDIT));
                let jobs = plural(planned.jobs.len() as u64, "job");
                let what = format!("{} (as revision {}, with {jobs} to run again)", planned.event_id, planned.revision);
                confirm_many("edit", "edited", &what)?;
            }
            if self.dry_run {
                return self.tell(&planned, client.is_offline());
            }
            // What was shown is what is done: another edit in between is a conflict.
            order["dry_run"] = json!(false);
            order["base"] = json!(planned.revision - 1);
            let done: EditView = print::deserialize(&client.post(&path, &order).await?)?;
            self.tell(&done, client.is_offline())
        })
    }

    fn tell(&self, edited: &EditView, offline: bool) -> Result<(), CliError> {
        if self.format.json {
            return print::json(edited);
        }
        let jobs = plural(edited.jobs.len() as u64, "job");
        let mut text = match edited.dry_run {
            true => format!("{} would become revision {}; {jobs} would run again.\n", edited.event_id, edited.revision),
            false => format!("{} is at revision {}; {jobs} requeued.\n", edited.event_id, edited.revision),
        };
        text.push_str(&changes(&edited.changes, EDIT));
        if offline && !edited.dry_run && !edited.jobs.is_empty() {
            text.push_str(&print::hint("No node is running: the jobs run when one starts (`sluice up`)."));
        }
        print::print(&text)
    }

    async fn order(&self, client: &AdminClient) -> Result<Value, CliError> {
        let mut set = Map::new();
        for word in &self.set {
            let (path, text) = pair(word)?;
            set.insert(path.to_owned(), json!(text));
        }
        for word in &self.set_json {
            let (path, text) = pair(word)?;
            let value = serde_json::from_str(text).map_err(|error| usage(format!("`{text}` is not JSON: {error}")))?;
            set.insert(path.to_owned(), value);
        }
        let mut order = json!({
            "set": set, "remove": self.remove, "reason": self.reason, "actor": self.actor.name(),
        });
        if let Some(classes) = &self.reapply {
            order["reapply"] = json!(classes);
        }
        if let Some(n) = self.restore {
            order["restore"] = json!(n);
        } else if let Some(file) = &self.file {
            order["event"] = members(&read(file)?)?;
        } else if self.set.is_empty() && self.set_json.is_empty() && self.remove.is_empty() {
            // Read before the event: an edit by another operator while the editor is open is a conflict.
            order["base"] = json!(self.current_revision(client).await?);
            order["event"] = self.edited_by_hand(client).await?;
        }
        Ok(order)
    }

    async fn current_revision(&self, client: &AdminClient) -> Result<u32, CliError> {
        let answer = client.get(&format!("/events/{}/revisions", escaped(&self.id)), &[]).await?;
        let revisions: Vec<EventRevisionView> = print::deserialize(&answer)?;
        Ok(revisions.iter().find(|revision| revision.current).map_or(0, |revision| revision.n))
    }

    /// Opens the event in the editor of the operator. The file is removed afterwards.
    async fn edited_by_hand(&self, client: &AdminClient) -> Result<Value, CliError> {
        let editor =
            ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
        let Some(editor) = editor else {
            return Err(usage(
                "set $EDITOR, or say what to change with --set PATH=TEXT, --remove or --file".to_owned(),
            ));
        };
        let reveal = json!({ "reason": self.reason, "actor": self.actor.name() });
        let shown = client.post(&format!("/events/{}/reveal", escaped(&self.id)), &reveal).await?;
        let kept: Map<String, Value> = EDITABLE
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), shown["normalized"].get(name)?.clone())))
            .collect();
        // Only this user can read it, and it goes with this function.
        let directory = tempfile::tempdir()
            .map_err(|error| CliError::new(exit::UNAVAILABLE, format!("no temporary directory: {error}")))?;
        let path = directory.path().join("event.json");
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default();
        members(&edit_file(&editor, &path, &text)?)
    }
}

fn edit_file(editor: &str, path: &Path, text: &str) -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::new(exit::UNAVAILABLE, format!("{}: {error}", path.display()));
    std::fs::write(path, text).map_err(failed)?;
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    let status = status.map_err(|error| CliError::new(exit::UNAVAILABLE, format!("{editor}: {error}")))?;
    if !status.success() {
        return Err(CliError::new(exit::NO, format!("{editor} failed; nothing was edited")));
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn usage(message: String) -> CliError {
    CliError::new(exit::USAGE, message)
}

fn pair(word: &str) -> Result<(&str, &str), CliError> {
    word.split_once('=').ok_or_else(|| usage(format!("`{word}` is not PATH=VALUE, such as attributes.city=Bern")))
}

fn read(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let done = match file == Path::new("-") {
        true => std::io::stdin().lock().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|found| text = found),
    };
    done.map_err(|error| usage(format!("{} cannot be read: {error}", file.display())))?;
    Ok(text)
}

fn members(text: &str) -> Result<Value, CliError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(Value::Object(members)),
        Ok(_) => Err(usage(format!("an object with {} is needed", EDITABLE.join(", ")))),
        Err(error) => Err(usage(format!("the event is not JSON: {error}"))),
    }
}

impl Revisions {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/events/{}/revisions", escaped(&self.id)), &[]).await?;
            let Some(revisions) = self.format.read::<Vec<EventRevisionView>>(&answer)? else { return Ok(()) };
            let mut text = String::new();
            for revision in &revisions {
                let current = if revision.current { ", current" } else { "" };
                let who = match (&revision.actor, &revision.reason) {
                    (Some(actor), Some(reason)) => format!("by {actor}: {reason}"),
                    _ => "as it was accepted".to_owned(),
                };
                text.push_str(&heading(&format!("Revision {}{current}", revision.n)));
                text.push_str(&format!("{} {who}\n", moment(&revision.at)));
                if revision.n > 0 {
                    text.push_str(&changes(&revision.changes, EDIT));
                }
            }
            print::print(text.trim_start_matches('\n'))
        })
    }
}
