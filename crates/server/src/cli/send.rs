//! `sluice send`: signs and posts a payload like the flow's sender.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_connectors::node_client::{NodeClient, NodeResponse, RawRequest};
use sluice_domain::flow::Flow;
use sluice_domain::printable;

use super::node_access::{self, NodeFile};
use super::print::{self, hint, plural, style_of, styled};
use super::{CliError, data_directory, exit, flow};

/// Sign a payload like the flow's sender and post it to the node
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1: the node rejected the request.\n\n\
Examples:\n  sluice send website-leads lead.json\n  sluice send website-leads lead.json --times 3      the same event three times: one effect\n  sluice send /in/website - --to http://127.0.0.1:8080 < lead.json")]
pub struct Send {
    /// Flow name or path
    flow: String,
    /// Payload as JSON or form; - reads standard input
    file: PathBuf,
    /// Configuration directory or file
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
    /// Data directory of the node; .sluice in the configuration directory by default
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// URL of a node on another machine; without a path, the flow's path is added
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Event id, set in the header that the flow reads it from; random by default
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Additional header; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = flow::header)]
    header: Vec<(String, String)>,
    /// Number of times to post the same event
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    times: u32,
    /// Print a JSON list of responses
    #[arg(long)]
    json: bool,
}

impl Send {
    pub fn run(self) -> Result<(), CliError> {
        let live = flow::load(&self.config)?;
        let flow = flow::find(&live, &self.flow)?;
        let body = flow::payload(&self.file, flow)?;
        let url = self.url(flow)?;
        let id = self.id.clone().unwrap_or_else(fresh_id);
        flow::note_unused_id(flow, self.id.as_ref(), &flow::signed(flow, &id, &body, &self.header)?);
        let answers = node_access::runtime()?.block_on(async {
            let mut answers = Vec::new();
            for _ in 0..self.times {
                answers.push(self.post(flow, &url, &id, &body).await?);
            }
            Ok::<_, CliError>(answers)
        })?;
        let refused = answers.iter().filter(|answer| !(200..300).contains(&answer.status)).count();
        if self.json {
            print::json(&answers.iter().map(Posted::to_json).collect::<Vec<_>>())?;
        } else {
            print::print(&self.render(&answers, refused))?;
        }
        if refused == 0 { Ok(()) } else { Err(CliError::new(exit::NO, "")) }
    }

    /// Signs each request again, like a sender that retries.
    async fn post(&self, flow: &Flow, url: &str, id: &str, body: &[u8]) -> Result<Posted, CliError> {
        let signed = flow::signed(flow, id, body, &self.header)?;
        let url = match &signed.query {
            Some(query) => format!("{url}?{}", query.expose()),
            None => url.to_owned(),
        };
        let posting = RawRequest { method: &flow.method, url: &url, headers: signed.headers, body: signed.body };
        let answer = NodeClient::send(posting).await.map_err(node_access::failed)?;
        Ok(Posted::from(answer))
    }

    fn url(&self, flow: &Flow) -> Result<String, CliError> {
        if let Some(to) = &self.to {
            let (scheme, rest) = to.trim().split_once("://").unwrap_or(("http", to.trim()));
            let has_path = rest.split_once('/').is_some_and(|(_, path)| !path.is_empty());
            let base = format!("{scheme}://{}", rest.trim_end_matches('/'));
            return Ok(if has_path { base } else { format!("{base}{}", flow.path) });
        }
        let data = data_directory(&self.config, self.data.clone());
        match NodeFile::of_running(&data)? {
            Some(note) => Ok(format!("{}{}", note.intake, flow.path)),
            None => Err(nowhere(&data)),
        }
    }

    fn render(&self, answers: &[Posted], refused: usize) -> String {
        const SHOWN_MAX: usize = 10;
        let mut text = String::new();
        for answer in answers.iter().take(SHOWN_MAX) {
            text.push_str(&answer.render());
        }
        if answers.len() > SHOWN_MAX {
            let duplicates = answers.iter().filter(|answer| answer.duplicate).count() as u64;
            let more = plural((answers.len() - SHOWN_MAX) as u64, "more response");
            text.push_str(&format!("… and {more}; in total {}, {refused} rejected\n", plural(duplicates, "duplicate")));
        }
        if let Some(event) = answers.iter().find_map(Posted::event_id) {
            text.push_str(&hint(&format!("\nDetails: sluice events show {event}")));
        }
        text
    }
}

/// Response of the node.
#[derive(Debug)]
struct Posted {
    status: u16,
    duplicate: bool,
    body: Value,
}

impl From<NodeResponse> for Posted {
    fn from(answer: NodeResponse) -> Posted {
        let body = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&answer.body).into_owned()));
        Posted { status: answer.status, duplicate: answer.header("idempotent-replayed") == Some("true"), body }
    }
}

impl Posted {
    fn event_id(&self) -> Option<&str> {
        self.body.get("event_id")?.as_str()
    }

    fn to_json(&self) -> Value {
        json!({ "status": self.status, "duplicate": self.duplicate, "body": self.body })
    }

    fn render(&self) -> String {
        let word = match (self.status, self.duplicate) {
            (200..300, true) => "duplicate: first response again",
            (200..300, false) => "accepted",
            _ => "refused",
        };
        let style = style_of(if self.status < 300 { "accepted" } else { "dead" });
        format!("{} {word}\n  {}\n", styled(&self.status.to_string(), style), printable::json(&self.body.to_string()))
    }
}

fn nowhere(data: &Path) -> CliError {
    CliError::new(
        exit::UNAVAILABLE,
        format!(
            "no node runs with the data directory {}\nStart one with `sluice up`, or set the target: --data DIR, or --to http://HOST:PORT.",
            data.display()
        ),
    )
}

/// Random id, so that every run sends a new event.
fn fresh_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let now = jiff::Timestamp::now();
    format!("msg_{:x}{:08x}", now.as_millisecond(), RandomState::new().hash_one(now.as_nanosecond()) as u32)
}
