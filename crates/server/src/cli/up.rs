//! `sluice up`: runs a node.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sluice_domain::flow::RateLimit;
use sluice_domain::schedule::Limits;
use sluice_domain::unit::Rate;
use sluice_domain::verify::SecretValue;
use tokio::signal::unix::{Signal, SignalKind};

use super::node_access::NodeFileGuard;
use super::stop::{self, Stop};
use super::{CliError, data_directory, exit};
use crate::admin_token::{self, AdminTokenError};
use crate::clock::Clock;
use crate::config::{self, Colours};
use crate::operate::{AdminSettings, Stranding};
use crate::run::{Node, NodeSettings, StartError};
use crate::{intake, maintain};

/// Shutdown timeout after a ledger failure, for open responses.
const FAILED_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Run a node: intake, workers and the admin API
#[derive(Debug, clap::Args)]
#[command(after_help = "Stop it with Ctrl-C or SIGTERM: attempts in flight finish, then the ledger is closed.\n\
SIGHUP or a change of the files (see --watch) reloads the configuration.")]
pub struct Up {
    /// Configuration directory or file
    #[arg(default_value = ".", env = "SLUICE_CONFIG")]
    config: PathBuf,
    /// Data directory; .sluice in the configuration directory by default
    #[arg(long, env = "SLUICE_DATA")]
    data: Option<PathBuf>,
    /// Address of the intake listener, the only public one
    #[arg(long, env = "SLUICE_INTAKE", default_value = "127.0.0.1:8080")]
    intake: SocketAddr,
    /// Address of the admin listener
    #[arg(long, env = "SLUICE_ADMIN", default_value = "127.0.0.1:8081")]
    admin: SocketAddr,
    /// File with the admin token; required for a non-loopback admin address. admin.token in the data directory by default
    #[arg(long, env = "SLUICE_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,
    /// Host names of the admin listener besides localhost, separated by commas
    #[arg(long, env = "SLUICE_ADMIN_ALLOWED_HOSTS", value_name = "NAME", value_delimiter = ',')]
    admin_allowed_hosts: Vec<String>,
    /// Reverse proxies in front of the listeners, as addresses or networks, separated by commas; their
    /// X-Forwarded-For is believed
    #[arg(long, env = "SLUICE_TRUSTED_PROXIES", value_delimiter = ',', value_name = "ADDRESSES")]
    trusted_proxies: Vec<intake::Network>,
    /// Maximum number of open connections of one address; trusted proxies may have more
    #[arg(long, env = "SLUICE_CONNECTIONS_PER_ADDRESS", default_value_t = 512, value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..))]
    connections_per_address: u16,
    /// Memory for request bodies in flight; one address may use a quarter of it
    #[arg(long, env = "SLUICE_BODY_MEMORY", default_value = "64MiB", value_parser = size)]
    body_memory: u64,
    /// Rate at which requests of one address may fail verification before the address is refused
    #[arg(long, env = "SLUICE_UNVERIFIED_RATE", default_value = "20/s", value_parser = rate)]
    unverified_rate: Rate,
    /// Maximum wait for attempts in flight at shutdown
    #[arg(long, env = "SLUICE_SHUTDOWN_TIMEOUT", default_value = "20s", value_parser = duration)]
    shutdown_timeout: Duration,
    /// Retention of bodies of finished events
    #[arg(long, env = "SLUICE_KEEP_BODIES", default_value = "30d", value_parser = duration)]
    keep_bodies: Duration,
    /// Retention of finished events, once their keys have expired
    #[arg(long, env = "SLUICE_KEEP_EVENTS", default_value = "90d", value_parser = duration)]
    keep_events: Duration,
    /// Reload the configuration when its files change
    #[arg(long, env = "SLUICE_WATCH", default_value_t = true, action = clap::ArgAction::Set)]
    watch: bool,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    sluice_domain::unit::duration(text).map_err(|problem| problem.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    sluice_domain::unit::size(text).map_err(|problem| problem.to_string())
}

fn rate(text: &str) -> Result<Rate, String> {
    sluice_domain::unit::rate(text).map_err(|problem| problem.to_string())
}

impl Up {
    fn intake_settings(&self) -> intake::IntakeSettings {
        let defaults = intake::IntakeSettings::default();
        let memory = usize::try_from(self.body_memory).unwrap_or(usize::MAX);
        let per_address = RateLimit { rate: self.unverified_rate, ..defaults.unverified.per_address };
        intake::IntakeSettings {
            connections_per_address_max: usize::from(self.connections_per_address),
            body_bytes_in_flight_max: memory,
            body_bytes_per_address_max: memory / 4,
            unverified: intake::UnverifiedLimits { per_address, ..defaults.unverified },
            trusted_proxies: intake::TrustedProxies(self.trusted_proxies.clone()),
            ..defaults
        }
    }

    pub fn run(self) -> Result<(), CliError> {
        self.run_with_clock(Clock::start())
    }

    /// Runs the node with a clock other than the system's. For fault injection.
    pub fn run_with_clock(self, clock: Clock) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::new(exit::UNAVAILABLE, format!("no runtime: {error}")))?;
        runtime.block_on(self.serve(clock))
    }

    async fn serve(self, clock: Clock) -> Result<(), CliError> {
        let settings = NodeSettings {
            data: data_directory(&self.config, self.data.clone()),
            intake: self.intake,
            admin: self.admin,
            admin_settings: AdminSettings {
                token: configured_token(self.admin_token_file.as_deref())?,
                allowed_hosts: self.admin_allowed_hosts.clone(),
                ..AdminSettings::default()
            },
            intake_settings: self.intake_settings(),
            keep: maintain::RetentionSettings {
                bodies: self.keep_bodies,
                events: self.keep_events,
                ..Default::default()
            },
            scheduler: Limits::default(),
            trace_environment: config::TraceEnvironment::of_process(),
            config: self.config.clone(),
        };
        let data = settings.data.clone();
        // Before the start: a signal that comes earlier would end the process without a clean shutdown.
        let signals = (Stop::listen()?, stop::heard(SignalKind::hangup())?);
        let node = Node::start_with_clock(settings, clock).await.map_err(explain)?;
        let note = NodeFileGuard::write(&data, &node);
        tracing::info!(intake = %format!("http://{}", node.intake), admin = %format!("http://{}", node.admin), data = %data.display(), "node started");
        offer_sign_in(&node).await;
        let ended = self.wait(&node, signals).await;
        tracing::info!("stopping");
        // After a ledger failure attempts cannot be settled, so there is no need to wait for them.
        let shutdown_timeout =
            if ended.is_ok() { self.shutdown_timeout } else { self.shutdown_timeout.min(FAILED_SHUTDOWN_TIMEOUT) };
        node.stop(shutdown_timeout).await;
        drop(note);
        ended
    }

    async fn wait(&self, node: &Node, (mut stop, mut hangup): (Stop, Signal)) -> Result<(), CliError> {
        let mut look = tokio::time::interval(Duration::from_secs(2));
        let mut last_error = String::new();
        loop {
            tokio::select! {
                () = stop.asked() => return Ok(()),
                () = node.failed() => {
                    return Err(CliError::new(exit::UNAVAILABLE, "the ledger has failed; see the log, then restart the node"));
                }
                _ = hangup.recv() => reload(node, "SIGHUP", &mut String::new()).await,
                _ = look.tick(), if self.watch => reload(node, "file watcher", &mut last_error).await,
            }
        }
    }
}

/// Prints a sign-in link for the console where a person sees it. It is a secret, so a log does not get one.
async fn offer_sign_in(node: &Node) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    match node.operator.add_link(None, "start").await {
        Ok(link) => anstream::eprintln!(
            "Sign in to the console, once, within 30 minutes:  http://{}{}\nAnother link: sluice console\n",
            node.admin,
            link.path
        ),
        Err(error) => tracing::warn!(%error, "no sign-in link for the console; run `sluice console`"),
    }
}

/// Logs why a new configuration is not activated once, not at every check.
async fn reload(node: &Node, actor: &str, last_error: &mut String) {
    match node.operator.reload(actor, "", Stranding::Refused).await {
        Ok(_) => last_error.clear(),
        Err(error) => {
            let message = error.to_string();
            // The numbers of jobs change while they run.
            let known: String = message.chars().filter(|c| !c.is_ascii_digit()).collect();
            if *last_error != known {
                tracing::error!("the new configuration is not activated; the active one stays");
                // A log line never holds a line break.
                message.lines().filter(|line| !line.trim().is_empty()).for_each(|line| tracing::error!("{line}"));
                *last_error = known;
            }
        }
    }
}

/// Token that the operator configured.
pub(super) fn configured_token(file: Option<&std::path::Path>) -> Result<Option<SecretValue>, CliError> {
    let usage = |error: AdminTokenError| CliError::new(exit::USAGE, error.to_string());
    match file {
        Some(path) => match admin_token::read(path).map_err(usage)? {
            Some(token) => Ok(Some(token)),
            None => Err(CliError::new(exit::USAGE, format!("{}: no such file", path.display()))),
        },
        None => match std::env::var("SLUICE_ADMIN_TOKEN") {
            Ok(text) => admin_token::parse("SLUICE_ADMIN_TOKEN", &text).map(Some).map_err(usage),
            Err(_) => Ok(None),
        },
    }
}

/// Error message of a failed start.
pub(super) fn explain(error: StartError) -> CliError {
    match error {
        StartError::Config(compiled, files) => CliError::new(
            exit::NO,
            format!(
                "{}\n\n{}; nothing was started",
                config::render_all(&compiled.problems, &files, Colours::Ansi),
                config::summary(&compiled.problems)
            ),
        ),
        StartError::Read(error) => CliError::new(exit::NO, error.to_string()),
        StartError::AdminOpen(_) => CliError::new(exit::USAGE, error.to_string()),
        other => CliError::new(exit::UNAVAILABLE, other.to_string()),
    }
}
