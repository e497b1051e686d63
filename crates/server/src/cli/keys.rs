//! `sluice keys`: the keys that seal the ledger.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format, ago, grouped, hint};
use super::selection::Actor;
use super::table::pairs;
use crate::operate::views::KeysView;

/// See and replace the keys that seal the ledger
#[derive(Debug, clap::Args)]
pub struct Keys {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// See which keys there are; never the keys themselves
    Show(Show),
    /// Replace the root key, or the tenant's key, without stopping the node
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
    after_help = "No payload is written again: only the keys below the new one are wrapped anew. After a rotation of the root key the old one opens nothing.\n\n\
Examples:\n  sluice keys rotate\n  sluice keys rotate --tenant\n  sluice keys rotate --to /etc/sluice/new-root.key"
)]
struct Rotate {
    /// Replace the tenant's key instead of the root key
    #[arg(long, conflicts_with = "to")]
    tenant: bool,
    /// A file on the node's machine for the new root key, when that does not lie in the data directory; what is in it is taken
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
            Act::Show(show) => show.reach.run(async |desk| {
                let answer = desk.get("/keys", &[]).await?;
                tell(&answer, show.format.json, "")
            }),
            Act::Rotate(rotate) => rotate.run(),
        }
    }
}

impl Rotate {
    fn run(self) -> Result<(), CliError> {
        self.reach.run(async |desk| {
            let key = if self.tenant { "tenant" } else { "root" };
            let order = json!({ "key": key, "to": self.to, "actor": self.actor.name() });
            let answer = desk.post("/keys/rotate", &order).await?;
            let then = match (self.tenant, &self.to) {
                (true, _) => "New data is sealed with the new key.".to_owned(),
                (false, None) => {
                    "Keep a copy of the new root key elsewhere: without it nothing in the ledger can be read."
                        .to_owned()
                }
                (false, Some(to)) => format!(
                    "Put what is in {} where the node finds its root key before it is started again.",
                    to.display()
                ),
            };
            tell(&answer, self.format.json, &then)
        })
    }
}

fn tell(answer: &Value, as_json: bool, then: &str) -> Result<(), CliError> {
    if as_json {
        return print::json(answer);
    }
    let keys: KeysView = print::understood(answer)?;
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
