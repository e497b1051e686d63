//! Wiring: starts and stops every component in order. Only this file knows all of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::schedule::Limits;
use sluice_ledger::{Ledger, LedgerOptions, NewRevision};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin_token::{self, AdminToken};
use crate::change::install;
use crate::change_follower::{ChangeFollower, Followers};
use crate::clock::Clock;
use crate::config::{self, EnvironmentThenFiles, Files, Noted, SecretSource, TraceEnvironment};
use crate::enrich::{self, Lookups};
use crate::observe::Metrics;
use crate::pauses::AppliedPauses;
use crate::payloads::Payloads;
use crate::revisions::{LoadedRevision, Revisions};
use crate::root_key;
use crate::safe_mode::SafeModes;
use crate::trials::ShadowRun;
use crate::unclean_shutdown::{self, RunMarker};
use crate::watch::Watch;
use crate::{console, identify, intake, maintain, operate, schedule, work};

/// File in the data directory with the addresses of the running node.
pub(crate) const NODE_FILE: &str = "node.json";

#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Directory or file.
    pub config: PathBuf,
    pub data: PathBuf,
    pub intake: SocketAddr,
    pub admin: SocketAddr,
    pub admin_settings: operate::AdminSettings,
    pub intake_settings: intake::IntakeSettings,
    /// How long things are kept.
    pub keep: maintain::RetentionSettings,
    /// Limits of the scheduler's memory. Small values are for tests.
    pub scheduler: Limits,
    /// What the environment says about traces.
    pub trace_environment: TraceEnvironment,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the configuration has errors")]
    Config(Box<config::Compiled>, Files),
    #[error(transparent)]
    Read(#[from] config::ReadError),
    #[error(transparent)]
    Connectors(#[from] sluice_connectors::BuildProblem),
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
    #[error(transparent)]
    RootKey(#[from] root_key::RootKeyError),
    #[error(transparent)]
    AdminToken(#[from] admin_token::AdminTokenError),
    #[error("an interrupted configuration change cannot be finished: {0}")]
    Place(#[from] install::InstallError),
    #[error("{what} cannot listen on {address}: {source}")]
    Listen {
        /// intake or admin.
        what: &'static str,
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(
        "the admin listener on {0} would be reachable from other machines without a configured token; set SLUICE_ADMIN_TOKEN (or --admin-token-file), or listen on 127.0.0.1"
    )]
    AdminOpen(SocketAddr),
}

#[derive(Debug)]
pub struct Node {
    pub intake: SocketAddr,
    pub admin: SocketAddr,
    /// Operator commands and queries, without HTTP.
    pub operator: operate::Operator,
    ledger: Ledger,
    clock: Clock,
    mark: RunMarker,
    scheduler: schedule::SchedulerHandle,
    stop: watch::Sender<bool>,
    stop_admin: watch::Sender<bool>,
    intake_server: JoinHandle<()>,
    schedule: JoinHandle<()>,
    rest: Vec<JoinHandle<()>>,
    failed: watch::Receiver<bool>,
}

/// Result of reading and compiling a configuration.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Ready to be activated.
    pub live: LoadedRevision,
    pub files: Files,
    pub secrets: Arc<dyn SecretSource + Send + Sync>,
    pub warnings: Vec<config::ConfigProblem>,
}

pub fn load(settings: &NodeSettings) -> Result<LoadedConfig, StartError> {
    let files = config::read(&settings.config)?;
    let secrets: Arc<dyn SecretSource + Send + Sync> =
        Arc::new(EnvironmentThenFiles::new(config_directory(&settings.config)));
    let (live, warnings) = ready(&files, &*secrets)?;
    Ok(LoadedConfig { live, files, secrets, warnings })
}

/// Logs the warnings of an activated configuration.
pub fn warn_of(warnings: &[config::ConfigProblem]) {
    for problem in warnings {
        tracing::warn!(place = %problem.place(), code = problem.code, "{}", problem.message);
    }
}

/// Logs which secrets every user of the machine can read.
fn warn_of_readable_secrets(settings: &NodeSettings) {
    let paths = config::secret_files(&config_directory(&settings.config));
    for path in paths.into_iter().filter(|path| sluice_ledger::private_files::is_readable_by_all(path)) {
        tracing::warn!(path = %path.display(), "every user of this machine can read the secret; run chmod 600");
    }
}

/// Directory of a configuration, which may be given as a single file.
fn config_directory(config: &Path) -> PathBuf {
    if config.is_dir() { config.to_owned() } else { config.parent().unwrap_or(Path::new(".")).to_owned() }
}

/// Compiles files to a revision, with its warnings.
pub fn ready(
    files: &Files,
    secrets: &dyn SecretSource,
) -> Result<(LoadedRevision, Vec<config::ConfigProblem>), StartError> {
    let noted = Noted::new(secrets);
    let mut compiled = config::compile(files, &noted);
    compiled.require_runtimes(sluice_connectors::find_runtime);
    compiled.warn_of_databases(enrich::probe);
    match compiled.config.take() {
        Some(config) => Ok((LoadedRevision::new(config, compiled.secrets)?.read_with(noted.seen()), compiled.problems)),
        None => Err(StartError::Config(Box::new(compiled), files.clone())),
    }
}

/// Opens the ledger. It announces new jobs to the scheduler and reports its failure.
fn open_ledger(
    settings: &NodeSettings,
    clock: &Clock,
    scheduler: schedule::SchedulerHandle,
    fail: watch::Sender<bool>,
) -> Result<Ledger, StartError> {
    let announcer = scheduler.clone();
    let options = LedgerOptions {
        clock: clock.for_ledger(),
        wants_new_jobs: Box::new(|_| true),
        on_new_jobs: Box::new(move |jobs| announcer.announce(jobs)),
        on_requeued: Box::new(move |jobs| scheduler.requeued(jobs)),
        on_fatal: Box::new(move |_| {
            let _ = fail.send(true);
        }),
        recent_keys_max: None,
        wal_pages_max: None,
        search_max: None,
        root_key: Some(root_key::find(&settings.data)?),
    };
    Ok(Ledger::open(&settings.data, options)?)
}

/// Marks the data directory as in use. Returns whether the process before did not shut down cleanly.
fn mark_run(settings: &NodeSettings) -> Result<(RunMarker, bool), StartError> {
    let (mark, unclean) = RunMarker::set(&settings.data)
        .map_err(|source| sluice_ledger::Error::Directory { path: settings.data.clone(), source })?;
    if unclean {
        tracing::warn!("unclean shutdown; for 60 s every attempt is recorded first");
    }
    Ok((mark, unclean))
}

fn requeue_with(scheduler: schedule::SchedulerHandle) -> work::OnRequeued {
    work::OnRequeued(Arc::new(move |jobs| scheduler.requeued(jobs)))
}

/// The activation of a revision at a start. If the start finishes an interrupted change, its actor and reason are recorded.
fn activation(live: &LoadedRevision, files: &Files, begun: Option<install::Manifest>, clock: &Clock) -> NewRevision {
    let by = begun.filter(|begun| *begun.revision == *live.revision);
    let (actor, reason) = by.map_or_else(|| ("start".into(), String::new()), |by| (by.actor, by.reason));
    NewRevision { hash: live.revision.clone(), files: files.to_json(), actor, reason, at: clock.ledger_time() }
}

/// Bound listeners, which do not accept connections yet.
struct Listeners {
    intake: intake::IntakeServer,
    intake_address: SocketAddr,
    admin: operate::AdminServer,
    admin_address: SocketAddr,
    operator: operate::Operator,
    intake_context: intake::IntakeContext,
    changes: ChangeFollower,
}

impl Listeners {
    async fn bind(
        settings: &NodeSettings,
        context: &work::WorkContext,
        scheduler: &schedule::SchedulerHandle,
        token: AdminToken,
    ) -> Result<Listeners, StartError> {
        let work::WorkContext { ledger, revisions, metrics, clock, safe_modes, paused, .. } = context.clone();
        let intake_context =
            intake::IntakeContext::new(ledger.clone(), revisions.clone(), metrics.clone(), clock.clone());
        intake_context.set_scheduler(scheduler.clone());
        let intake =
            intake::IntakeServer::bind(settings.intake, intake_context.clone(), settings.intake_settings.clone())
                .await
                .map_err(|source| StartError::Listen { what: "intake", address: settings.intake, source })?;
        let intake_address = intake.address().unwrap_or(settings.intake);

        let followers = Followers {
            revisions: revisions.clone(),
            safe_modes: safe_modes.clone(),
            scheduler: scheduler.clone(),
            intake: intake_context.clone(),
            paused,
            clock: clock.clone(),
            metrics: metrics.clone(),
            trace_environment: settings.trace_environment.clone(),
        };
        let changes = ChangeFollower::new(ledger.clone(), followers);
        let handles = operate::NodeHandles {
            scheduler: scheduler.clone(),
            intake: intake_context.clone(),
            safe_modes,
            metrics,
            changes: Some(changes.clone()),
        };
        let own_settings = NodeSettings { intake: intake_address, ..settings.clone() };
        let operator = operate::Operator::new(ledger, revisions, clock, handles, own_settings);
        let admin =
            operate::AdminServer::bind(settings.admin, operator.clone(), token, settings.admin_settings.clone())
                .await
                .map_err(|source| StartError::Listen { what: "admin", address: settings.admin, source })?;
        let admin = admin.with_pages(console::router);
        let admin_address = admin.address().unwrap_or(settings.admin);
        // Before a request is accepted or a job starts.
        changes.apply().await?;
        Ok(Listeners { intake, intake_address, admin, admin_address, operator, intake_context, changes })
    }
}

/// The token of the admin API. A killed node leaves its addresses, which another process may use by now: a command would send it
/// the token, so they are removed first.
fn admin_token(settings: &NodeSettings) -> Result<AdminToken, StartError> {
    let _ = std::fs::remove_file(settings.data.join(NODE_FILE));
    Ok(AdminToken::of_node(settings.admin_settings.token.as_ref(), &settings.data)?)
}

/// Looks at accepted requests after their commit, until `stop`.
fn observe_requests(context: &work::WorkContext, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + use<> {
    let payloads = Payloads::new(context.ledger.clone(), context.revisions.clone(), context.metrics.clone());
    let shadow = ShadowRun::new(context.ledger.clone(), context.revisions.clone());
    async move {
        tokio::join!(payloads.run(stop.clone()), shadow.run(stop));
    }
}

/// An admin listener that other machines reach needs a token of its own.
fn refuse_open_admin(settings: &NodeSettings) -> Result<(), StartError> {
    match settings.admin.ip().is_loopback() || settings.admin_settings.token.is_some() {
        true => Ok(()),
        false => Err(StartError::AdminOpen(settings.admin)),
    }
}

impl Node {
    /// Starts every component. When it returns, the node accepts events.
    pub async fn start(settings: NodeSettings) -> Result<Node, StartError> {
        Node::start_with_clock(settings, Clock::start()).await
    }

    /// Like [`Node::start`], with a clock other than the system's. For fault injection.
    pub async fn start_with_clock(settings: NodeSettings, clock: Clock) -> Result<Node, StartError> {
        refuse_open_admin(&settings)?;
        let begun = install::finish(&settings.config)?;
        let LoadedConfig { live, files, secrets, warnings } = load(&settings)?;
        warn_of(&warnings);
        let (scheduler, inbox) = schedule::SchedulerHandle::new();
        let (fail, failed) = watch::channel(false);
        let ledger = open_ledger(&settings, &clock, scheduler.clone(), fail)?;
        let token = admin_token(&settings)?;
        warn_of_readable_secrets(&settings);
        clock.follow(&ledger).await?;
        let (mark, unclean) = mark_run(&settings)?;
        ledger.activate_revision(activation(&live, &files, begun, &clock)).await?;
        install::clear(&settings.config)?;
        let revisions = Revisions::new(live, secrets, ledger.pseudonym_key());
        let (requeued, paused) = (requeue_with(scheduler.clone()), AppliedPauses::default());
        let context = work::WorkContext {
            lookups: Lookups::new(revisions.clone(), clock.clone(), paused.clone()),
            ledger: ledger.clone(),
            revisions: revisions.clone(),
            metrics: Metrics::new(),
            clock: clock.clone(),
            on_requeued: requeued.clone(),
            safe_modes: SafeModes::load(ledger.clone()).await?,
            paused,
            careful_until: if unclean { clock.now() + unclean_shutdown::CAUTION } else { clock.now() },
        };
        let listeners = Listeners::bind(&settings, &context, &scheduler, token).await?;
        let (intake, admin, operator) = (listeners.intake_address, listeners.admin_address, listeners.operator);
        let traces = context.metrics.traces.clone();
        let (stop, stop_admin) = (watch::Sender::new(false), watch::Sender::new(false));
        let (replays, observers) = (operator.replay_batches(), observe_requests(&context, stop.subscribe()));
        let watch = Watch::new(&context, scheduler.clone(), listeners.intake_context);
        Ok(Node {
            intake,
            admin,
            operator,
            intake_server: tokio::spawn(listeners.intake.run(stop.subscribe())),
            rest: vec![
                tokio::spawn(listeners.changes.run(stop.subscribe())),
                tokio::spawn(schedule::cron::run(ledger.clone(), revisions.clone(), clock.clone(), stop.subscribe())),
                tokio::spawn(replays.run(stop.subscribe())),
                tokio::spawn(observers),
                tokio::spawn(identify::run(context.clone(), stop.subscribe())),
                tokio::spawn(traces.run(stop_admin.subscribe())),
                tokio::spawn(watch.run(stop_admin.subscribe())),
                tokio::spawn(maintain::stragglers::run(ledger.clone(), clock.clone(), requeued, stop.subscribe())),
                tokio::spawn(maintain::run(ledger.clone(), revisions, clock.clone(), settings.keep, stop.subscribe())),
                tokio::spawn(listeners.admin.run(stop_admin.subscribe())),
            ],
            schedule: tokio::spawn(schedule::Loop::new(context, scheduler.clone(), inbox, settings.scheduler).run()),
            clock,
            ledger,
            mark,
            scheduler,
            stop,
            stop_admin,
            failed,
        })
    }

    /// Returns when the ledger has failed. The process must then be restarted.
    pub async fn failed(&self) {
        let mut failed = self.failed.clone();
        if failed.wait_for(|failed| *failed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops accepting requests and starting attempts, waits up to `shutdown_timeout` for attempts in flight, then
    /// closes the ledger. The next start settles attempts that did not finish.
    pub async fn stop(self, shutdown_timeout: Duration) {
        let _ = self.stop.send(true);
        self.scheduler.stop();
        let (intake_server, schedule) = (self.intake_server, self.schedule);
        let drained = async {
            let _ = intake_server.await;
            let _ = schedule.await;
        };
        if tokio::time::timeout(shutdown_timeout, drained).await.is_err() {
            tracing::warn!("shutdown timeout: attempts still in flight; the next start settles them");
        }
        let _ = self.stop_admin.send(true);
        for task in self.rest {
            let _ = tokio::time::timeout(Duration::from_secs(2), task).await;
        }
        if let Err(error) = self.clock.keep(&self.ledger).await {
            tracing::warn!(%error, "the ledger's clock was not stored; the next start continues from the last time it was");
        }
        self.ledger.close().await;
        self.mark.remove();
    }
}
