//! `sluice keys`: encryption keys of the ledger.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped, hint};
use super::selection::Actor;
use super::table::pairs;
use super::{CliError, exit};
use crate::operate::views::KeysView;

/// Show and rotate the encryption keys of the ledger
#[derive(Debug, clap::Args)]
pub struct Keys {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Show key names and versions, never the keys
    Show(Show),
    /// Rotate the root key or the tenant key, without a restart
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  sluice keys show")]
struct Show {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Payloads are not rewritten: only the keys below the new one are re-wrapped. After a rotation of the root key the old one is invalid.\n\n\
Examples:\n  sluice keys rotate\n  sluice keys rotate --tenant\n  sluice keys rotate --to /etc/sluice/new-root.key"
)]
struct Rotate {
    /// Rotate the tenant key instead of the root key
    #[arg(long, conflicts_with = "to")]
    tenant: bool,
    /// New file on the node's machine for the new root key, if the key is not in the data directory; a relative path is one below the
    /// working directory of this command
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    actor: Actor,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Keys {
    pub fn run(self) -> Result<(), CliError> {
        match self.act {
            Act::Show(show) => show.reach.run(async |client| {
                let answer = client.get("/keys", &[]).await?;
                tell(&answer, show.format.json, "")
            }),
            Act::Rotate(rotate) => rotate.run(),
        }
    }
}

impl Rotate {
    fn run(self) -> Result<(), CliError> {
        let to = self.to.as_deref().map(absolute).transpose()?;
        self.reach.run(async |client| {
            let key = if self.tenant { "tenant" } else { "root" };
            let order = json!({ "key": key, "to": to, "actor": self.actor.name() });
            let answer = client.post("/keys/rotate", &order).await?;
            let then = match (self.tenant, &to) {
                (true, _) => "New data is encrypted with the new key.".to_owned(),
                (false, None) => {
                    "Keep a copy of the new root key elsewhere: without it the ledger cannot be read.".to_owned()
                }
                (false, Some(to)) => {
                    format!("The new key is in {to}. If the root key is not in the data directory, install it where the node finds it before its next start.")
                }
            };
            tell(&answer, self.format.json, &then)
        })
    }
}

/// The node accepts absolute paths only: its own working directory is another one.
fn absolute(path: &Path) -> Result<String, CliError> {
    let wrong = |problem: &str| CliError::new(exit::USAGE, format!("--to {}: {problem}", path.display()));
    let path = std::path::absolute(path).map_err(|error| wrong(&error.to_string()))?;
    path.to_str().map(str::to_owned).ok_or_else(|| wrong("the path is not UTF-8"))
}

fn tell(answer: &Value, as_json: bool, then: &str) -> Result<(), CliError> {
    if as_json {
        return print::json(answer);
    }
    let keys: KeysView = print::deserialize(answer)?;
    let waiting = match keys.contact_keys_to_rewrap {
        0 => String::new(),
        count => format!(", {} still wrapped by an older key", grouped(count)),
    };
    let mut text = pairs([
        ("root key", format!("{}, from {}", keys.root_key, keys.root_key_from)),
        ("tenant key", format!("version {}, since {}", keys.tenant_key_version, ago(&keys.tenant_key_since))),
        ("contact keys", format!("{}{waiting}", grouped(keys.contact_keys))),
    ]);
    if !then.is_empty() {
        text.push_str(&hint(then));
        text.push('\n');
    }
    print::print(text.trim_end())
}
