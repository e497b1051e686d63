//! The wiring: every room, started and stopped in the right order. Only this file knows them all.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_ledger::{Ledger, LedgerOptions, NewRevision};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::change::install;
use crate::clock::Clock;
use crate::config::{self, EnvironmentThenFiles, Files, Noted, SecretSource};
use crate::observe::Metrics;
use crate::revisions::{LoadedRevision, Revisions};
use crate::root_key;
use crate::safe_mode::SafeModes;
use crate::unclean_shutdown::{self, RunMarker};
use crate::{intake, maintain, operate, schedule, work};

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The configuration: a directory or a file.
    pub config: PathBuf,
    /// Where the ledger lies.
    pub data: PathBuf,
    /// Where senders come in.
    pub intake: SocketAddr,
    /// Where operators come in.
    pub admin: SocketAddr,
    /// What operators must show; needed to listen anywhere but on loopback.
    pub admin_token: Option<sluice_domain::verify::SecretValue>,
    /// Bounds of the door.
    pub door: intake::IntakeSettings,
    /// How long things are kept.
    pub keep: maintain::RetentionSettings,
}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has mistakes; they have been collected.
    #[error("the configuration has mistakes")]
    Config(Box<config::Compiled>, Files),
    /// The configuration could not be read.
    #[error(transparent)]
    Read(#[from] config::ReadError),
    /// A destination's settings cannot work.
    #[error(transparent)]
    Connectors(#[from] sluice_connectors::BuildProblem),
    /// The ledger could not be opened.
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
    /// The key that opens the ledger could not be found.
    #[error(transparent)]
    RootKey(#[from] root_key::RootKeyError),
    /// A change of the configuration that was cut off could not be finished.
    #[error("a change of the configuration was cut off and cannot be finished: {0}")]
    Place(#[from] install::InstallError),
    /// An address could not be taken.
    #[error("{what} cannot listen on {address}: {source}")]
    Listen {
        /// intake or admin.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The admin listener would be open to anyone.
    #[error(
        "the admin listener would be open to everybody on {0}; set SLUICE_ADMIN_TOKEN (or --admin-token-file), or listen on 127.0.0.1"
    )]
    AdminOpen(SocketAddr),
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    /// Where senders come in.
    pub intake: SocketAddr,
    /// Where operators come in.
    pub admin: SocketAddr,
    /// What operators can do, without HTTP.
    pub operator: operate::Operator,
    ledger: Ledger,
    mark: RunMarker,
    scheduler: schedule::SchedulerHandle,
    stop: watch::Sender<bool>,
    stop_admin: watch::Sender<bool>,
    door: JoinHandle<()>,
    schedule: JoinHandle<()>,
    rest: Vec<JoinHandle<()>>,
    failed: watch::Receiver<bool>,
}

/// What a directory came to.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Ready to be put in force.
    pub live: LoadedRevision,
    /// As they were read.
    pub files: Files,
    /// Where its secrets come from.
    pub secrets: Arc<dyn SecretSource + Send + Sync>,
    /// What is only worth a warning.
    pub warnings: Vec<config::ConfigProblem>,
}

/// Reads and compiles a configuration.
pub fn load(settings: &NodeSettings) -> Result<LoadedConfig, StartError> {
    let files = config::read(&settings.config)?;
    let directory = if settings.config.is_dir() {
        settings.config.clone()
    } else {
        settings.config.parent().unwrap_or(std::path::Path::new(".")).to_owned()
    };
    let secrets: Arc<dyn SecretSource + Send + Sync> = Arc::new(EnvironmentThenFiles::new(directory));
    let (live, warnings) = ready(&files, &*secrets)?;
    Ok(LoadedConfig { live, files, secrets, warnings })
}

/// Says what is only worth a warning, when a configuration is put in force.
pub fn warn_of(warnings: &[config::ConfigProblem]) {
    for problem in warnings {
        tracing::warn!(place = %problem.place(), code = problem.code, "{}", problem.message);
    }
}

/// Compiles files to a revision that can be put in force, with what is only worth a warning.
pub fn ready(
    files: &Files,
    secrets: &dyn SecretSource,
) -> Result<(LoadedRevision, Vec<config::ConfigProblem>), StartError> {
    let noted = Noted::new(secrets);
    let mut compiled = config::compile(files, &noted);
    compiled.require_runtimes(sluice_connectors::find_runtime);
    match compiled.config.take() {
        Some(config) => Ok((LoadedRevision::new(config, compiled.secrets)?.read_with(noted.seen()), compiled.problems)),
        None => Err(StartError::Config(Box::new(compiled), files.clone())),
    }
}

impl Node {
    /// Starts every component. When it returns, the node accepts events.
    pub async fn start(settings: NodeSettings) -> Result<Node, StartError> {
        Node::start_with_clock(settings, Clock::start()).await
    }

    /// Like [`Node::start`], with a clock other than the system's. For fault injection.
    pub async fn start_with_clock(settings: NodeSettings, clock: Clock) -> Result<Node, StartError> {
        if !settings.admin.ip().is_loopback() && settings.admin_token.is_none() {
            return Err(StartError::AdminOpen(settings.admin));
        }
        let begun = install::finish(&settings.config)?;
        let LoadedConfig { live, files, secrets, warnings } = load(&settings)?;
        warn_of(&warnings);
        let metrics = Metrics::new();
        let (scheduler, inbox) = schedule::SchedulerHandle::new();
        let (fail, failed) = watch::channel(false);
        let announce = scheduler.clone();
        let ledger = Ledger::open(
            &settings.data,
            LedgerOptions {
                clock: clock.for_ledger(),
                wants_new_jobs: Box::new(|_| true),
                on_new_jobs: Box::new(move |jobs| announce.announce(jobs)),
                on_fatal: Box::new(move |_| {
                    let _ = fail.send(true);
                }),
                recent_keys_max: None,
                wal_pages_max: None,
                root_key: Some(root_key::find(&settings.data)?),
            },
        )?;
        let (mark, unclean) = RunMarker::set(&settings.data)
            .map_err(|source| sluice_ledger::Error::Directory { path: settings.data.clone(), source })?;
        if unclean {
            tracing::warn!(
                "the last process did not end in its own time; for a minute every attempt is written down before it is made"
            );
        }
        // Whoever began to apply these files is who brought them, though the process died meanwhile.
        let by = begun.filter(|begun| *begun.revision == *live.revision);
        let (actor, reason) = by.map_or_else(|| ("start".into(), String::new()), |by| (by.actor, by.reason));
        let hash = live.revision.clone();
        ledger.activate_revision(NewRevision { hash, files: files.to_json(), actor, reason, at: clock.wall() }).await?;
        install::clear(&settings.config)?;
        let revisions = Revisions::new(live, secrets);

        let safe_modes = SafeModes::load(ledger.clone()).await?;
        let context = work::WorkContext {
            ledger: ledger.clone(),
            revisions: revisions.clone(),
            metrics: metrics.clone(),
            clock: clock.clone(),
            on_requeued: work::OnRequeued(Arc::new({
                let scheduler = scheduler.clone();
                move |jobs| scheduler.requeued(jobs)
            })),
            safe_modes: safe_modes.clone(),
            careful_until: if unclean { clock.now() + unclean_shutdown::CAUTION } else { clock.now() },
        };
        let paused = ledger.pauses().await?;
        let targets = crate::pauses::targets(&revisions.current().config, &paused);

        let door_context =
            intake::IntakeContext::new(ledger.clone(), revisions.clone(), metrics.clone(), clock.clone());
        let sources: HashSet<String> =
            paused.iter().filter_map(|pause| pause.target.strip_prefix("source:").map(str::to_owned)).collect();
        door_context.set_paused(sources);
        door_context.set_scheduler(scheduler.clone());
        let door = intake::IntakeServer::bind(settings.intake, door_context.clone(), settings.door.clone())
            .await
            .map_err(|source| StartError::Listen { what: "intake", address: settings.intake, source })?;
        let intake = door.address().unwrap_or(settings.intake);

        let operator = operate::Operator::new(
            ledger.clone(),
            revisions.clone(),
            metrics,
            clock.clone(),
            operate::NodeHandles { scheduler: scheduler.clone(), door: door_context, safe_modes },
            NodeSettings { intake, ..settings.clone() },
        );
        let window = operate::AdminServer::bind(settings.admin, operator.clone(), settings.admin_token.clone())
            .await
            .map_err(|source| StartError::Listen { what: "admin", address: settings.admin, source })?;
        let admin = window.address().unwrap_or(settings.admin);

        let stop = watch::Sender::new(false);
        let stop_admin = watch::Sender::new(false);
        let schedule_loop = schedule::Loop::new(context, scheduler.clone(), inbox, targets);
        Ok(Node {
            intake,
            admin,
            operator,
            schedule: tokio::spawn(schedule_loop.run()),
            door: tokio::spawn(door.run(stop.subscribe())),
            rest: vec![
                tokio::spawn(schedule::cron::run(ledger.clone(), revisions.clone(), clock.clone(), stop.subscribe())),
                tokio::spawn(maintain::run(ledger.clone(), revisions, clock, settings.keep, stop.subscribe())),
                tokio::spawn(window.run(stop_admin.subscribe())),
            ],
            ledger,
            mark,
            scheduler,
            stop,
            stop_admin,
            failed,
        })
    }

    /// Returns when the ledger can no longer be trusted. The process should end then, and be started again.
    pub async fn failed(&self) {
        let mut failed = self.failed.clone();
        if failed.wait_for(|failed| *failed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops: first no more requests and no more attempts, then what is under way may end within `shutdown_timeout`, then the
    /// ledger is closed. What did not end in time is settled by the next start.
    pub async fn stop(self, shutdown_timeout: Duration) {
        let _ = self.stop.send(true);
        self.scheduler.stop();
        let (door, schedule) = (self.door, self.schedule);
        let drained = async {
            let _ = door.await;
            let _ = schedule.await;
        };
        if tokio::time::timeout(shutdown_timeout, drained).await.is_err() {
            tracing::warn!("some attempts did not end in time; the next start settles them");
        }
        let _ = self.stop_admin.send(true);
        for task in self.rest {
            let _ = tokio::time::timeout(Duration::from_secs(2), task).await;
        }
        self.ledger.close().await;
        self.mark.take_away();
    }
}
