//! Connects a command to a node: by URL, by `node.json` in its data directory, or, without a running node, by opening
//! the ledger.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use sluice_connectors::node_client::{NodeClient, NodeError};
use sluice_domain::config::Config;
use sluice_domain::schedule::Limits;
use sluice_domain::verify::SecretValue;
use sluice_ledger::{Ledger, LedgerOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{CliError, data_directory, exit, flow, up};
use crate::clock::Clock;
use crate::config::{EnvironmentThenFiles, SecretStore};
use crate::operate::{AdminServer, Operator};
use crate::revisions::LoadedRevision;
use crate::run::NodeSettings;
use crate::{intake, maintain, root_key};

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Which node")]
pub(super) struct NodeArgs {
    /// Admin URL of the node, such as http://127.0.0.1:8081
    #[arg(long, env = "SLUICE_URL", value_name = "URL")]
    url: Option<String>,
    /// Data directory of a node on this machine; .sluice in --config by default
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Configuration of a node on this machine
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
    /// File with the admin token; SLUICE_ADMIN_TOKEN by default
    #[arg(long, env = "SLUICE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

/// Content of `node.json`.
#[derive(Debug, Deserialize)]
pub(super) struct NodeFile {
    pub admin: String,
    pub intake: String,
    #[serde(default)]
    pub pid: u32,
}

impl NodeFile {
    /// The process may no longer run.
    pub fn read(data: &Path) -> Option<NodeFile> {
        serde_json::from_str(&std::fs::read_to_string(data.join("node.json")).ok()?).ok()
    }
}

/// Client of the admin API. Without a running node this process serves the API itself.
#[derive(Debug)]
pub(super) struct AdminClient {
    client: NodeClient,
    has_token: bool,
    own: Option<EmbeddedAdmin>,
}

/// Admin server on a ledger opened by this process.
#[derive(Debug)]
struct EmbeddedAdmin {
    ledger: Ledger,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl NodeArgs {
    pub fn run(&self, command: impl AsyncFnOnce(&AdminClient) -> Result<(), CliError>) -> Result<(), CliError> {
        runtime()?.block_on(async {
            let client = self.client().await?;
            let done = command(&client).await;
            client.close().await;
            done
        })
    }

    pub fn config(&self) -> &Path {
        &self.config
    }

    fn data(&self) -> PathBuf {
        data_directory(&self.config, self.data.clone())
    }

    async fn client(&self) -> Result<AdminClient, CliError> {
        let token = up::admin_token(self.admin_token_file.as_deref())?;
        let connect = |url: &str| NodeClient::new(url, token.as_ref());
        let admin = |client| AdminClient { client, has_token: token.is_some(), own: None };
        if let Some(url) = &self.url {
            return Ok(admin(connect(url).map_err(|error| failed(error, token.is_some()))?));
        }
        let data = self.data();
        let note = NodeFile::read(&data);
        if let Some(note) = &note {
            let client = connect(&note.admin).map_err(|error| failed(error, token.is_some()))?;
            // A killed node leaves its `node.json`.
            match client.get("/healthz", &[]).await {
                Err(NodeError::Unreachable { .. } | NodeError::NotANode { .. }) => {}
                _ => return Ok(admin(client)),
            }
        }
        self.open(&data, note).await
    }

    /// Opens the ledger, unless there is none or another process has it open.
    async fn open(&self, data: &Path, note: Option<NodeFile>) -> Result<AdminClient, CliError> {
        if !Ledger::exists_in(data) {
            return Err(CliError::new(
                exit::UNAVAILABLE,
                format!(
                    "no node responds, and there is no ledger in {}\n\
                     Start one with `sluice up`, or say where it is: --config DIR, --data DIR, or --url URL for another machine.",
                    data.display()
                ),
            ));
        }
        let root_key = root_key::find(data).map_err(|error| unavailable(error.to_string()))?;
        let options = LedgerOptions::quiet(Clock::start().for_ledger()).with_root_key(root_key);
        let ledger = Ledger::open(data, options).map_err(|error| match (error, note) {
            (sluice_ledger::Error::Locked { .. }, Some(note)) => unavailable(format!(
                "process {} has {} open, but its admin API at {} does not respond\n\
                 Try again in a moment; see its log if this stays so.",
                note.pid,
                data.display(),
                note.admin
            )),
            (error @ sluice_ledger::Error::Locked { .. }, None) => {
                unavailable(format!("{error}\nIf a node runs without its node.json, use --url http://127.0.0.1:8081."))
            }
            (error, _) => unavailable(error.to_string()),
        })?;
        let client = self.serve(ledger.clone(), data).await;
        if client.is_err() {
            ledger.close().await;
        }
        client
    }

    async fn serve(&self, ledger: Ledger, data: &Path) -> Result<AdminClient, CliError> {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = NodeSettings {
            config: self.config.clone(),
            data: data.to_owned(),
            intake: nowhere,
            admin: nowhere,
            admin_token: None,
            intake_settings: intake::IntakeSettings::default(),
            keep: maintain::RetentionSettings::default(),
            scheduler: Limits::default(),
        };
        // Without a valid configuration, events and jobs can still be shown and changed.
        let live = match flow::load(&self.config) {
            Ok(live) => live,
            Err(_) => LoadedRevision::new(Config::default(), SecretStore::default())
                .map_err(|error| unavailable(error.to_string()))?,
        };
        let secrets = Arc::new(EnvironmentThenFiles::new(flow::directory(&self.config)));
        let operator = Operator::offline(ledger.clone(), live, secrets, settings).await;
        let operator = operator.map_err(|error| unavailable(error.to_string()))?;
        let token = SecretValue::from(fresh_token());
        let window = AdminServer::bind(nowhere, operator, Some(token.clone())).await;
        let no_port = |error: std::io::Error| unavailable(format!("no port on 127.0.0.1 can be used: {error}"));
        let window = window.map_err(no_port)?;
        let url = format!("http://{}", window.address().map_err(no_port)?);
        let client = NodeClient::new(&url, Some(&token)).map_err(|error| failed(error, true))?;
        let stop = watch::Sender::new(false);
        let serving = tokio::spawn(window.run(stop.subscribe()));
        Ok(AdminClient { client, has_token: true, own: Some(EmbeddedAdmin { ledger, stop, serving }) })
    }
}

impl AdminClient {
    /// GET below `/api/v1`; absent query values are omitted.
    pub async fn get(&self, path: &str, query: &[(&str, Option<String>)]) -> Result<Value, CliError> {
        let query: Vec<(&str, String)> =
            query.iter().filter_map(|(name, value)| value.clone().map(|value| (*name, value))).collect();
        self.client.get(&format!("/api/v1{path}"), &query).await.map_err(|error| failed(error, self.has_token))
    }

    /// POST below `/api/v1`.
    pub async fn post(&self, path: &str, order: &Value) -> Result<Value, CliError> {
        self.client.post(&format!("/api/v1{path}"), order).await.map_err(|error| failed(error, self.has_token))
    }

    /// Whether no node is running, so that jobs do not run.
    pub fn is_offline(&self) -> bool {
        self.own.is_some()
    }

    async fn close(self) {
        if let Some(own) = self.own {
            let _ = own.stop.send(true);
            // Does not wait for the client's idle connection.
            own.serving.abort();
            own.ledger.close().await;
        }
    }
}

/// Single-threaded runtime for short commands.
pub fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unavailable(format!("no runtime: {error}")))
}

fn unavailable(message: String) -> CliError {
    CliError::new(exit::UNAVAILABLE, message)
}

/// Error message of a failed API call.
pub(super) fn failed(error: NodeError, has_token: bool) -> CliError {
    let message = error.to_string();
    match error {
        NodeError::Address { .. } | NodeError::Request(_) => CliError::new(exit::USAGE, message),
        NodeError::Unreachable { .. } => {
            unavailable(format!("{message}\nIs the node running? `sluice up` logs its addresses."))
        }
        NodeError::Client(_) | NodeError::NotANode { .. } => unavailable(message),
        NodeError::Refused { status: 401, .. } if has_token => {
            unavailable("the node rejects this admin token; use the one it was started with".into())
        }
        NodeError::Refused { status: 401, .. } => {
            unavailable("the node requires an admin token; set SLUICE_ADMIN_TOKEN or --admin-token-file".into())
        }
        NodeError::Refused { status: 400, .. } => CliError::new(exit::USAGE, message),
        NodeError::Refused { status: 500.., .. } => unavailable(message),
        NodeError::Refused { .. } => CliError::new(exit::NO, message),
    }
}

/// Random token of this process.
fn fresh_token() -> String {
    use std::hash::{BuildHasher, RandomState};
    let draw = || RandomState::new().hash_one(jiff::Timestamp::now().as_nanosecond());
    format!("{:016x}{:016x}", draw(), draw())
}
