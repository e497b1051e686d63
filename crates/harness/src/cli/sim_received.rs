//! `sluice sim received`: what a running simulator received.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use sluice_domain::printable;
use sluice_server::cli::print::{self, hint};
use sluice_server::cli::{CliError, exit, runtime};

use crate::api::Api;

/// List what a running simulator received
#[derive(Debug, clap::Args)]
#[command(after_help = "The same over HTTP: GET /sim/received, or /sim/mail/received for one of them.\n\n\
Examples:\n  sluice sim received\n  sluice sim received mail --limit 5\n  sluice sim received --json")]
pub(super) struct ReceivedArgs {
    /// Only of this simulator
    #[arg(value_name = "SIMULATOR", value_parser = ["salesforce", "hubspot", "sink", "mail", "slack", "connector", "s3", "ses", "webpush"])]
    of: Option<String>,
    /// Where the simulated Salesforce listens
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDRESS")]
    at: SocketAddr,
    /// The latest of each simulator
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReceivedArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let path = format!("/sim/received?limit={}", self.limit);
        let asked = runtime()?.block_on(Api::open(self.at).get::<BTreeMap<String, Vec<Value>>>(&path));
        let mut received = asked.map_err(|error| {
            let advice = "start it with `sluice sim`, or name its address with --at";
            CliError::new(exit::UNAVAILABLE, format!("no simulator answers at {}: {error}; {advice}", self.at))
        })?;
        if let Some(of) = &self.of {
            received.retain(|name, _| name == of);
            if received.is_empty() {
                let message = format!("the simulator at {} runs no {of}; see `sluice sim --help`", self.at);
                return Err(CliError::new(exit::NO, message));
            }
        }
        if self.json {
            return print::print(&serde_json::json!(received).to_string());
        }
        let lines: Vec<String> = received
            .iter()
            .flat_map(|(name, items)| items.iter().map(move |item| format!("{name:<11} {}", line(name, item))))
            .collect();
        match lines.is_empty() {
            true => print::print(&hint("Nothing was received yet.")),
            false => print::print(&lines.join("\n")),
        }
    }
}

/// One item on one line. A sender may write anything into it, so control characters are escaped.
fn line(name: &str, item: &Value) -> String {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let line = match name {
        "salesforce" | "hubspot" => {
            let id = item["external_id"]["value"].as_str().unwrap_or_default();
            format!("{} {} {id} ({})", text("action"), text("object"), text("record_id"))
        }
        "sink" | "connector" | "s3" | "ses" | "webpush" => {
            format!("{} {} {}", text("method"), text("target"), text("body"))
        }
        "mail" => {
            let to: Vec<&str> = item["to"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let header = |name: &str| {
                let headers = item["headers"].as_array().into_iter().flatten();
                let found =
                    headers.filter(|pair| pair[0].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name)));
                found.filter_map(|pair| pair[1].as_str()).next().unwrap_or_default().to_owned()
            };
            format!("to {}: {} {}", to.join(", "), header("subject"), header("message-id"))
        }
        _ => format!("{} {}", text("channel"), text("text")),
    };
    printable::line(line.trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn item_is_one_line_without_control_characters() {
        let mail = json!({
            "to": ["ada@example.com", "bob@example.com"],
            "headers": [["Message-ID", "<1@x>"], ["Subject", "Hello\u{1b}[2J\r\nthere"]],
        });
        assert_eq!(line("mail", &mail), "to ada@example.com, bob@example.com: Hello\\x1b[2J\\r\\nthere <1@x>");
        let slack = json!({"channel": "C1", "text": "a\nb"});
        assert_eq!(line("slack", &slack), "C1 a\\nb");
        let write =
            json!({"action": "created", "object": "Lead", "record_id": "00Q1", "external_id": {"value": "lead-1"}});
        assert_eq!(line("salesforce", &write), "created Lead lead-1 (00Q1)");
    }
}
