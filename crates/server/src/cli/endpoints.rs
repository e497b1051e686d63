//! `sluice sources` and `sluice destinations`.

use serde_json::Value;

use super::lists::details;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, hint, style_of, styled};
use super::table::{Cell, Column, Table, state};
use super::{CliError, destination, shape, source};
use crate::operate::views::{DestinationView, SourceView};

/// Show sources: accepted, duplicate and rejected requests
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Counts cover the last 7 days; rejections are since the node started.\n\nExamples:\n  sluice sources\n  sluice sources show website   duplicates, and the key lifetime that covers them\n  sluice sources show website --shape   what its payloads look like, and what has changed\n  sluice pause source:website --reason \"too many retries\""
)]
pub struct Sources {
    #[command(subcommand)]
    command: Option<SourcesCommand>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum SourcesCommand {
    /// Show one source: duplicates, rejections, limits, the shape of its payloads
    Show(source::Show),
    /// Make a changed payload the new normal
    Accept(shape::Accept),
}

/// Show destinations and their gates
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sluice destinations\n  sluice destinations show crm --rules   what its error responses mean\n  sluice pause destination:crm --reason \"maintenance until noon\"\n  sluice resume destination:crm"
)]
pub struct Destinations {
    #[command(subcommand)]
    command: Option<DestinationsCommand>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum DestinationsCommand {
    /// Show one destination: gate, use of its daily limit, failure rules
    Show(destination::Show),
}

impl Sources {
    pub fn run(self) -> Result<(), CliError> {
        match self.command {
            Some(SourcesCommand::Show(show)) => return show.run(),
            Some(SourcesCommand::Accept(accept)) => return accept.run(),
            None => {}
        }
        self.reach.run(async |client| {
            let answer = client.get("/sources", &[]).await?;
            let Some(sources) = self.format.read::<Vec<SourceView>>(&answer)? else { return Ok(()) };
            if sources.is_empty() {
                return print::print("No sources: the configuration has no flows, or it has errors (`sluice check`).");
            }
            print::print(&told_sources(&sources))
        })
    }
}

fn told_sources(sources: &[SourceView]) -> String {
    let mut table = Table::new([
        Column::Wrap("SOURCE"),
        Column::Wrap("FLOW"),
        Column::Wrap("ROUTE"),
        Column::Wrap("VERIFIED BY"),
        Column::Number("ACCEPTED"),
        Column::Number("DUPLICATES"),
        Column::Number("CLASHES"),
        Column::Number("REFUSED"),
    ]);
    for source in sources {
        for (place, flow) in source.flows.iter().enumerate() {
            let name = if place == 0 { source.name.as_str() } else { "" };
            let mut row = [name, &flow.name, &flow.route, &flow.verify].map(Cell::from).to_vec();
            if place == 0 {
                let refused: u64 = source.refused.values().sum();
                row.extend([source.accepted, source.duplicates, source.clashes, refused].map(Cell::from));
            }
            table.row(row);
        }
    }
    let mut text = table.render();
    for source in sources {
        let refused: Vec<String> = source.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        if !refused.is_empty() {
            text.push_str(&format!("{} rejected: {}\n", source.name, refused.join(", ")));
        }
        for (code, _) in source.refused_lately.iter().filter(|(_, lately)| lately.jump) {
            let word = styled("spike", style_of("dead"));
            text.push_str(&format!("{}: {word} in {code}: sluice sources show {}\n", source.name, source.name));
        }
        if source.paused {
            text.push_str(&format!(
                "{} is paused; its senders receive 503: sluice resume source:{}\n",
                source.name, source.name
            ));
        }
        if source.clashes > 0 {
            text.push_str(&hint(&format!(
                "{}: key clash: same key, different content; the first one is kept.",
                source.name
            )));
        }
    }
    text + &details("sluice sources show SOURCE; its events: sluice events --source SOURCE")
}

impl Destinations {
    pub fn run(self) -> Result<(), CliError> {
        if let Some(DestinationsCommand::Show(show)) = self.command {
            return show.run();
        }
        self.reach.run(async |client| {
            let answer = client.get("/destinations", &[]).await?;
            let Some(destinations) = self.format.read::<Vec<DestinationView>>(&answer)? else { return Ok(()) };
            if destinations.is_empty() {
                return print::print("No destinations: the configuration has none, or it has errors (`sluice check`).");
            }
            let mut text = told_destinations(&destinations);
            if client.is_offline() {
                text.push_str(&hint("No node is running, so there are no gates."));
            }
            print::print(&text)
        })
    }
}

/// Why no call can start, in words.
pub(super) fn held_back_by(destination: &DestinationView) -> String {
    let gate = destination.gate.as_ref();
    let word = |name: &str| gate.and_then(|gate| gate.get(name)).and_then(Value::as_str).unwrap_or_default();
    match (word("paused"), word("open_until"), word("not_before")) {
        ("auth", ..) => "paused: it rejected the credentials".to_owned(),
        ("operator", ..) => "paused by an operator".to_owned(),
        (_, until, _) if !until.is_empty() => format!("circuit breaker, ends {}", ago(until)),
        (_, _, until) if !until.is_empty() => format!("Retry-After, ends {}", ago(until)),
        _ if is_used_up(gate) => "budget: no calls are left".to_owned(),
        _ => String::new(),
    }
}

fn is_used_up(gate: Option<&Value>) -> bool {
    gate.and_then(|gate| gate.get("budget")?.get("left")?.as_u64()) == Some(0)
}

fn told_destinations(destinations: &[DestinationView]) -> String {
    let mut table = Table::new([
        Column::Wrap("DESTINATION"),
        Column::Wrap("TYPE"),
        Column::Whole("BREAKER"),
        Column::Number("IN FLIGHT"),
        Column::Number("ALLOWED"),
        Column::Number("MAX"),
        Column::Wrap("HELD BACK BY"),
    ]);
    for destination in destinations {
        let gate = destination.gate.as_ref();
        let member = |name: &str| gate.and_then(|gate| gate.get(name));
        let word = |name: &str| member(name).and_then(Value::as_str).unwrap_or_default();
        let count = |name: &str| member(name).and_then(Value::as_u64).map_or(Cell::from("-"), Cell::from);
        table.row([
            Cell::from(destination.name.as_str()),
            destination.kind.as_str().into(),
            if gate.is_some() { state(word("breaker")) } else { "-".into() },
            count("in_flight"),
            count("concurrency"),
            count("concurrency_max"),
            held_back_by(destination).into(),
        ]);
    }
    table.render()
        + &details("sluice destinations show DESTINATION; its failures: sluice jobs --state retrying,waiting")
}
