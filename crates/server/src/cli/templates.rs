//! `sluice templates`: list and preview message templates.

use std::path::{Path, PathBuf};

use hyper::HeaderMap;
use serde_json::{Map, Value, json};
use sluice_domain::printable;
use sluice_domain::template::{Message, Part, Scope};
use sluice_domain::time::Time;

use super::print::{self, heading, hint};
use super::table::{Cell, Column, Table, pairs};
use super::{CliError, exit, flow};
use crate::config::did_you_mean;
use crate::intake::{self, RequestMeta};
use crate::revisions::LoadedRevision;

/// List and preview message templates
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice templates\n  sluice templates preview cart_recovery_v3 scope.json\n  sluice templates preview cart_recovery_v3 cart.json --flow carts --set vars.offer='10 % off'\n  sluice templates preview cart_recovery_v3 scope.json --part html > preview.html"
)]
pub struct Templates {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListTemplates,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List messages, their parts and the variables they read
    List(ListTemplates),
    /// Render one message; nothing is sent
    Preview(Preview),
}

#[derive(Debug, clap::Args)]
struct ListTemplates {
    /// Configuration directory or file
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Preview {
    /// Message name
    name: String,
    /// Variables as JSON such as {"event": {…}, "vars": {…}}, or with --flow a payload; - reads standard input
    file: PathBuf,
    /// Treat the file as a payload of this flow (name or path)
    #[arg(long)]
    flow: Option<String>,
    /// Additional variable, such as vars.offer=10 or steps.code.output.code=SAVE10; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print only this part
    #[arg(long, value_parser = ["subject", "txt", "html"])]
    part: Option<String>,
    /// Configuration directory or file
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Templates {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(),
            Some(Command::List(list)) => list.run(),
            Some(Command::Preview(preview)) => preview.run(),
        }
    }
}

impl ListTemplates {
    fn run(self) -> Result<(), CliError> {
        let live = flow::load(&self.config)?;
        let messages = &live.config.messages;
        let rows: Vec<(&str, Vec<&str>, Vec<String>)> = messages
            .names()
            .filter_map(|name| {
                let message = messages.get(name)?;
                let parts = Part::ALL.into_iter().filter(|part| message.has(*part)).map(Part::extension).collect();
                let mut reads: Vec<String> = message.reads().into_iter().map(|(_, read, _)| read).collect();
                reads.sort();
                reads.dedup();
                Some((name, parts, reads))
            })
            .collect();
        if self.json {
            let list: Vec<Value> = rows
                .iter()
                .map(|(name, parts, reads)| json!({ "name": name, "parts": parts, "reads": reads }))
                .collect();
            return print::print(&print::pretty(&list));
        }
        if rows.is_empty() {
            return print::print("No templates. Create templates/NAME.subject and templates/NAME.txt or .html.");
        }
        let mut table = Table::new([Column::Whole("TEMPLATE"), Column::Whole("PARTS"), Column::Wrap("READS")]);
        for (name, parts, reads) in &rows {
            table.row([Cell::from(*name), parts.join(", ").into(), reads.join(", ").into()]);
        }
        print::print(&(table.render() + &hint("\nPreview: sluice templates preview NAME FILE")))
    }
}

impl Preview {
    fn run(self) -> Result<(), CliError> {
        let live = flow::load(&self.config)?;
        let messages = &live.config.messages;
        if messages.get(&self.name).is_none() {
            let hint = match did_you_mean(&self.name, messages.names()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            return Err(CliError::new(exit::NO, format!("unknown template `{}`{hint}", self.name)));
        }
        let mut roots = match &self.flow {
            Some(name) => self.accepted(&live, name)?,
            None => self.as_given()?,
        };
        for word in &self.set {
            set(&mut roots, word)?;
        }
        let vars = roots.remove("vars");
        let mut scope = Scope::new();
        for (root, value) in roots {
            scope.set(root, value);
        }
        let message = messages
            .render(&self.name, &scope, vars.as_ref())
            .map_err(|problem| CliError::new(exit::NO, problem.to_string()))?;
        print::print(&self.render(&message))
    }

    fn render(&self, message: &Message) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        match self.part.as_deref() {
            Some("subject") => return message.subject.clone(),
            Some("txt") => return part(&message.text),
            Some("html") => return part(&message.html),
            _ => {}
        }
        if self.json {
            let whole = json!({ "subject": message.subject, "text": message.text, "html": message.html });
            return print::pretty(&whole);
        }
        let mut text =
            pairs([("template", self.name.clone()), ("subject", printable::line(&message.subject).into_owned())]);
        for (title, part) in [("Text", &message.text), ("HTML", &message.html)] {
            if let Some(part) = part {
                text.push_str(&heading(title));
                text.push_str(&format!("{}\n", printable::lines(part.trim_end())));
            }
        }
        text
    }

    /// Variables from the file.
    fn as_given(&self) -> Result<Map<String, Value>, CliError> {
        match serde_json::from_slice(&read(&self.file)?) {
            Ok(Value::Object(roots)) => Ok(roots),
            Ok(_) => Err(CliError::new(exit::USAGE, "the file must contain an object such as {\"event\": {…}}")),
            Err(error) => Err(CliError::new(exit::USAGE, format!("{} is not JSON: {error}", self.file.display()))),
        }
    }

    /// Variables of a worker for the first event of a payload.
    fn accepted(&self, live: &LoadedRevision, name: &str) -> Result<Map<String, Value>, CliError> {
        let flow = flow::find(live, name)?.clone();
        let body = flow::payload(&self.file, &flow)?;
        let now = Time::from(jiff::Timestamp::now());
        let arrival = RequestMeta { received_at: now, ..RequestMeta::default() };
        let prepared = intake::prepare_all(live, &flow, &HeaderMap::new(), &body, arrival);
        let prepared = prepared.map_err(|problem| CliError::new(exit::NO, format!("rejected: {}", problem.detail)))?;
        let Some(first) = prepared.first() else {
            return Err(CliError::new(exit::NO, "the payload contains no event"));
        };
        let body = serde_json::from_slice(&first.new.body.raw).unwrap_or_default();
        Ok(Map::from_iter([("event".to_owned(), first.event.to_scope()), ("body".to_owned(), body)]))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let found = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    found.map_err(|error| CliError::new(exit::USAGE, format!("{} cannot be read: {error}", file.display())))
}

/// Applies `a.b.c=value`; a JSON value keeps its type.
fn set(roots: &mut Map<String, Value>, word: &str) -> Result<(), CliError> {
    let Some((path, value)) = word.split_once('=') else {
        return Err(CliError::new(exit::USAGE, format!("`{word}` is not PATH=VALUE, such as vars.offer=10")));
    };
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    put(roots, path.trim(), value);
    Ok(())
}

fn put(place: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        place.insert(path.to_owned(), value);
        return;
    };
    let next = place.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if !next.is_object() {
        *next = Value::Object(Map::new());
    }
    if let Value::Object(inner) = next {
        put(inner, rest, value);
    }
}
