//! Connects a command to a node: by URL, by `node.json` in its data directory, or, without a running node, by opening
//! the ledger.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use sluice_connectors::node_client::{Download, NodeClient, NodeError};
use sluice_domain::config::Config;
use sluice_domain::printable;
use sluice_domain::schedule::Limits;
use sluice_domain::verify::SecretValue;
use sluice_ledger::{Ledger, LedgerOptions, private_files};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{CliError, data_directory, exit, flow, up, user};
use crate::admin_token::{self, AdminToken, AdminTokenError};
use crate::clock::Clock;
use crate::config::{EnvironmentThenFiles, SecretStore, TraceEnvironment};
use crate::operate::{AdminServer, AdminSettings, Operator};
use crate::revisions::LoadedRevision;
use crate::run::{NODE_FILE, Node, NodeSettings};
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
    /// File with the admin token; SLUICE_ADMIN_TOKEN by default, then admin.token in the data directory
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
    /// Addresses of the node that has the data directory open. `None` if none runs, or if it has not started yet.
    pub(super) fn of_running(data: &Path) -> Result<Option<NodeFile>, CliError> {
        let path = data.join(NODE_FILE);
        // A killed node leaves its file, and another process may use its addresses by now.
        if !Ledger::is_open_in(data).map_err(|error| user::unreadable(data, &error))? {
            return Ok(None);
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(user::unreadable(&path, &error)),
        }
    }
}

/// `node.json` of a running node, for other commands on this machine; deleted when dropped.
#[derive(Debug)]
pub struct NodeFileGuard(PathBuf);

impl NodeFileGuard {
    pub fn write(data: &Path, node: &Node) -> NodeFileGuard {
        let path = data.join(NODE_FILE);
        let note = serde_json::json!({ "admin": format!("http://{}", node.admin), "intake": format!("http://{}", node.intake), "pid": std::process::id() });
        if let Err(error) = private_files::replace_file(&path, note.to_string().as_bytes()) {
            tracing::warn!(path = %path.display(), %error, "node.json not written; other commands need --url");
        }
        NodeFileGuard(path)
    }
}

impl Drop for NodeFileGuard {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where the token of a client comes from.
#[derive(Clone, Debug)]
enum TokenOrigin {
    Missing,
    /// From the environment, a flag or this process.
    Given,
    /// File in the data directory.
    Found(PathBuf),
}

/// Client of the admin API. Without a running node this process serves the API itself.
#[derive(Debug)]
pub(super) struct AdminClient {
    client: NodeClient,
    token: TokenOrigin,
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
    pub(super) fn run(&self, command: impl AsyncFnOnce(&AdminClient) -> Result<(), CliError>) -> Result<(), CliError> {
        runtime()?.block_on(async {
            let client = self.client().await?;
            let done = command(&client).await;
            client.close().await;
            done
        })
    }

    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    fn data(&self) -> PathBuf {
        data_directory(&self.config, self.data.clone())
    }

    async fn client(&self) -> Result<AdminClient, CliError> {
        let given = up::configured_token(self.admin_token_file.as_deref())?;
        let data = self.data();
        if let Some(url) = &self.url {
            // The token of the data directory is sent only to its own node.
            let is_ours = |note: &NodeFile| note.admin == url.trim().trim_end_matches('/');
            let ours = given.is_none() && NodeFile::of_running(&data).ok().flatten().is_some_and(|note| is_ours(&note));
            let (token, origin) = if ours { token_in(&data)? } else { named(given) };
            return connect(url, token.as_ref(), origin);
        }
        let Some(note) = NodeFile::of_running(&data)? else { return self.open(&data).await };
        let (token, origin) = if given.is_some() { named(given) } else { token_in(&data)? };
        let admin = connect(&note.admin, token.as_ref(), origin)?;
        match admin.client.get("/healthz", &[]).await {
            Err(NodeError::Unreachable { .. } | NodeError::NotANode { .. }) => Err(unavailable(format!(
                "process {} has {} open, but its admin API at {} does not respond\n\
                 Try again in a moment; see its log if this stays so.",
                note.pid,
                data.display(),
                note.admin
            ))),
            _ => Ok(admin),
        }
    }

    /// Opens the ledger, unless there is none or another process has it open.
    async fn open(&self, data: &Path) -> Result<AdminClient, CliError> {
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
        let clock = Clock::start();
        let options = LedgerOptions::quiet(clock.for_ledger()).with_root_key(root_key);
        let ledger = Ledger::open(data, options).map_err(|error| match error {
            error @ sluice_ledger::Error::Locked { .. } => unavailable(format!(
                "{error}\nTry again in a moment. If a node runs without its node.json, use --url http://127.0.0.1:8081 and its token."
            )),
            error => unavailable(error.to_string()),
        })?;
        // Left by a killed node.
        let _ = std::fs::remove_file(data.join(NODE_FILE));
        let client = self.serve(ledger.clone(), clock, data).await;
        if client.is_err() {
            ledger.close().await;
        }
        client
    }

    async fn serve(&self, ledger: Ledger, clock: Clock, data: &Path) -> Result<AdminClient, CliError> {
        clock.follow(&ledger).await.map_err(|error| unavailable(error.to_string()))?;
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = NodeSettings {
            config: self.config.clone(),
            data: data.to_owned(),
            intake: nowhere,
            admin: nowhere,
            admin_settings: AdminSettings::default(),
            intake_settings: intake::IntakeSettings::default(),
            keep: maintain::RetentionSettings::default(),
            scheduler: Limits::default(),
            trace_environment: TraceEnvironment::default(),
        };
        // Without a valid configuration, events and jobs can still be shown and changed.
        let live = match flow::load(&self.config) {
            Ok(live) => live,
            Err(_) => LoadedRevision::new(Config::default(), SecretStore::default())
                .map_err(|error| unavailable(error.to_string()))?,
        };
        let secrets = Arc::new(EnvironmentThenFiles::new(flow::directory(&self.config)));
        let operator = Operator::offline(ledger.clone(), live, secrets, clock, settings).await;
        let operator = operator.map_err(|error| unavailable(error.to_string()))?;
        let token = AdminToken::generate();
        let window = AdminServer::bind(nowhere, operator, token.clone(), AdminSettings::default()).await;
        let no_port = |error: std::io::Error| unavailable(format!("no port on 127.0.0.1 can be used: {error}"));
        let window = window.map_err(no_port)?;
        let url = format!("http://{}", window.address().map_err(no_port)?);
        let client = NodeClient::new(&url, Some(token.value())).map_err(failed)?;
        let stop = watch::Sender::new(false);
        let serving = tokio::spawn(window.run(stop.subscribe()));
        Ok(AdminClient { client, token: TokenOrigin::Given, own: Some(EmbeddedAdmin { ledger, stop, serving }) })
    }
}

impl AdminClient {
    /// GET below `/api/v1`; absent query values are omitted.
    pub(super) async fn get(&self, path: &str, query: &[(&str, Option<String>)]) -> Result<Value, CliError> {
        let query: Vec<(&str, String)> =
            query.iter().filter_map(|(name, value)| value.clone().map(|value| (*name, value))).collect();
        self.client.get(&format!("/api/v1{path}"), &query).await.map_err(|error| self.failed(error))
    }

    /// GET below `/api/v1`; `None` if there is no such thing.
    pub(super) async fn find(&self, path: &str) -> Result<Option<Value>, CliError> {
        match self.client.get(&format!("/api/v1{path}"), &[]).await {
            Ok(found) => Ok(Some(found)),
            Err(NodeError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// POST below `/api/v1`.
    pub(super) async fn post(&self, path: &str, order: &Value) -> Result<Value, CliError> {
        self.client.post(&format!("/api/v1{path}"), order).await.map_err(|error| self.failed(error))
    }

    /// Downloads from below `/api/v1`, part by part: a POST if there is a body, and the accepted media type.
    pub(super) async fn download(
        &self,
        path: &str,
        query: &[(&str, Option<String>)],
        (body, accept): (Option<&Value>, &'static str),
        part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CliError> {
        let query: Vec<(&str, String)> =
            query.iter().filter_map(|(name, value)| value.clone().map(|value| (*name, value))).collect();
        let order = Download { body, accept };
        let downloaded = self.client.download(&format!("/api/v1{path}"), &query, order, part).await;
        downloaded.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: NodeError) -> CliError {
        let NodeError::Refused { status: 401, .. } = error else { return failed(error) };
        unavailable(match &self.token {
            TokenOrigin::Given => "the node rejects this admin token; use the one it was started with".to_owned(),
            TokenOrigin::Found(path) => format!(
                "the node rejects the admin token in {}; it was started with another one: set SLUICE_ADMIN_TOKEN or --admin-token-file",
                path.display()
            ),
            TokenOrigin::Missing => {
                "the node requires an admin token; set SLUICE_ADMIN_TOKEN or --admin-token-file (a node without a configured \
                 token keeps one in admin.token of its data directory)"
                    .to_owned()
            }
        })
    }

    /// Address of the admin server, without a trailing slash.
    pub(super) fn address(&self) -> &str {
        self.client.url()
    }

    /// Whether no node is running, so that jobs do not run.
    pub(super) fn is_offline(&self) -> bool {
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
pub(super) fn failed(error: NodeError) -> CliError {
    // The node quotes what others wrote.
    let message = printable::lines(&error.to_string()).into_owned();
    match error {
        NodeError::Address { .. } | NodeError::Request(_) => CliError::new(exit::USAGE, message),
        NodeError::Unreachable { .. } => {
            unavailable(format!("{message}\nIs the node running? `sluice up` logs its addresses."))
        }
        NodeError::Client(_) | NodeError::NotANode { .. } => unavailable(message),
        NodeError::Refused { status: 400, .. } => CliError::new(exit::USAGE, message),
        NodeError::Refused { status: 401 | 421 | 429 | 500.., .. } => unavailable(message),
        NodeError::Refused { .. } => CliError::new(exit::NO, message),
    }
}

fn named(token: Option<SecretValue>) -> (Option<SecretValue>, TokenOrigin) {
    let origin = if token.is_some() { TokenOrigin::Given } else { TokenOrigin::Missing };
    (token, origin)
}

/// Token in the data directory of a node of this machine.
fn token_in(data: &Path) -> Result<(Option<SecretValue>, TokenOrigin), CliError> {
    let path = data.join(admin_token::FILE);
    match admin_token::read(&path) {
        Ok(Some(token)) => Ok((Some(token), TokenOrigin::Found(path))),
        Ok(None) => Ok((None, TokenOrigin::Missing)),
        Err(AdminTokenError::File { path, source }) => Err(user::unreadable(&path, &source)),
        Err(error) => Err(unavailable(error.to_string())),
    }
}

fn connect(url: &str, token: Option<&SecretValue>, origin: TokenOrigin) -> Result<AdminClient, CliError> {
    let client = NodeClient::new(url, token).map_err(failed)?;
    Ok(AdminClient { client, token: origin, own: None })
}
