//! Chaos runs: the real binary under repeated kills and other faults, between senders that repeat requests and a CRM that
//! fails.
//!
//! In: number of leads and faults; a seed.
//! Out: a report that reconciles senders, ledger and CRM, with every discrepancy.
//! Touches: a temporary directory; child processes; listeners on loopback; a small disk of its own where the system allows it.
//! Never: ignores a source that cannot be read: it counts as a discrepancy.
//! If the process dies here: child processes end with their standard input; node, mount and loop device end with them.
//!
//! ```text
//! senders ×4 → proxy → node (on its host, with its disk and clock) → proxy → CRM
//!      ↑          ↑       ↑                                            ↑
//!      └──────────┴───────┴───────────── controller ───────────────────┘      each a process, except operator and report
//! ```

mod controller;
mod deliveries;
mod faults;
mod host;
mod operator;
mod probe;
pub mod processes;
mod proxies;
mod reconcile;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::watch;

use crate::{Api, Error, Leads, LeadsTo, StatusLine};
use controller::{Controller, RunHandles};
use deliveries::Deliveries;
pub use faults::FaultCounts;
use host::Host;
use operator::AutoOperator;
use probe::Prober;
pub use processes::{DiskKind, FileCounts};
use proxies::{Crm, ProxyClient};
pub use reconcile::{AttemptCounts, ChaosReport, CrmCounts, InjectedCounts, LedgerCounts, SendersCounts};

/// Deliveries per second, without bursts and repeated requests.
const DELIVERIES_PER_SECOND: u32 = 1_000;
/// Delay of calls that the CRM lets time out, in ms: longer than the timeout of the node.
const HOLD_MS: u64 = 800;
const HUGE_BYTES: u64 = 1 << 20;
/// Calls that the CRM keeps per lead: more than almost any lead needs.
const CALLS_PER_LEAD: usize = 50;
const CALLS_KEPT_MIN: usize = 100_000;
/// Interval between two polls of the node.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two polls of the CRM.
const CRM_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Interval between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Hidden command that runs a node with a shifted clock: what `sluice up` does, which has no such option.
pub const NODE_COMMAND: &str = "chaos-node";
/// Its option that names the file with the offset of the wall clock.
pub(crate) const CLOCK_OFFSET_OPTION: &str = "--clock-offset-file";

#[derive(Clone, Debug)]
pub struct ChaosSettings {
    /// Program to run as node and as processes of the run.
    pub program: PathBuf,
    /// Number of distinct leads.
    pub leads: u32,
    pub faults: FaultCounts,
    /// Share of connections to the node and to the CRM that are cut, in percent.
    pub cut_percent: f64,
    /// Set the clock at every restart of the node.
    pub clock_jumps: bool,
    /// Share of calls that the CRM fails, in percent.
    pub fail_percent: f64,
    /// Seed of every random choice: traffic, faults of the CRM, schedule of the faults.
    pub seed: u64,
    /// Limit of the whole run.
    pub time_max: Duration,
}

/// Progress of the run.
#[derive(Debug, Default)]
struct Progress {
    /// Records in the CRM.
    records: AtomicU64,
    /// Faults injected so far.
    faults: Mutex<FaultCounts>,
    /// Restarts with a set clock so far.
    clock_jumps: AtomicU64,
    /// Every fault was injected.
    faults_over: AtomicBool,
}

impl Progress {
    fn faults(&self) -> MutexGuard<'_, FaultCounts> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until every lead is done, the time is over or `stop` completes; then builds the report.
pub async fn run(
    settings: ChaosSettings,
    status: StatusLine,
    stop: impl Future<Output = ()>,
) -> Result<ChaosReport, Error> {
    let started = Instant::now();
    let Run { handles, host, prober, traffic, addresses, _directory } = Run::start(&settings).await?;
    let mut report = ChaosReport::open(&settings, &host);
    let (stop_controller, stopped) = watch::channel(false);
    let controller = Controller::new(&settings, report.possible, host, handles.clone(), prober).run(stopped);
    let controller = tokio::spawn(controller);
    let mut operator = AutoOperator::new(addresses);

    let deadline = started + settings.time_max;
    let watched = watch_until_done(&handles, &mut operator, &status, started, (report.possible, settings.leads));
    tokio::select! {
        watched = watched => watched.unwrap_or_else(|error| report.note(error.to_string())),
        () = async { while !controller.is_finished() { tokio::time::sleep(POLL_INTERVAL).await } } => {}
        () = tokio::time::sleep_until(deadline.into()) => report.note(format!("not finished after {:?}", settings.time_max)),
        () = stop => report.note("stopped before the end"),
    }
    status.clear();

    report.read_senders(&handles.deliveries, &traffic);
    report.read_operator(&operator);
    match operator.api() {
        Some(admin) => report.read_ledger(&admin).await,
        None => report.note("the node does not respond"),
    }
    stop_controller.send_replace(true);
    match controller.await {
        Ok((host, ended)) => {
            if let Some(error) = ended {
                report.note_first(error.to_string());
            }
            read_after_end(&mut report, host, &handles, &traffic).await;
        }
        Err(error) => report.note(error.to_string()),
    }
    report.close(started.elapsed());
    Ok(report)
}

/// The started processes of a run; the node is not started yet.
struct Run {
    handles: RunHandles,
    host: Host,
    prober: Prober,
    traffic: Arc<Traffic>,
    addresses: watch::Receiver<Option<Api>>,
    _directory: tempfile::TempDir,
}

impl Run {
    async fn start(settings: &ChaosSettings) -> Result<Run, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
        let faults = Everything {
            percent: settings.fail_percent,
            seed: settings.seed,
            hold_ms: HOLD_MS,
            huge_bytes: HUGE_BYTES,
            ..Everything::default()
        };
        let calls_kept_max = (settings.leads as usize * CALLS_PER_LEAD).max(CALLS_KEPT_MIN);
        let crm = Arc::new(Crm::open(&settings.program, faults.plan(), calls_kept_max).await?);
        let to_node = Arc::new(ProxyClient::open(&settings.program, settings.cut_percent, settings.seed ^ 0x1A).await?);
        let to_crm = Arc::new(ProxyClient::open(&settings.program, settings.cut_percent, settings.seed ^ 0x0C).await?);
        to_crm.set_upstream(Some(crm.address)).await?;
        let leads = Leads::write(directory.path(), LeadsTo::Salesforce(&format!("http://{}", to_crm.address)))?;
        let plan = TrafficSettings {
            seed: settings.seed,
            leads: settings.leads,
            deliveries_per_second: DELIVERIES_PER_SECOND,
            ..TrafficSettings::default()
        };
        let traffic = Arc::new(Traffic::plan(plan.clone()));
        let prober = Prober::new(&leads.sender()?, &traffic);
        let host = Host::open(settings, &leads, directory.path()).await?;
        let (program, config) = (settings.program.clone(), leads.config.clone());
        let deliveries = Arc::new(Deliveries::start(program, config, to_node.address, plan, traffic.clone()));
        let (address, addresses) = watch::channel(None::<Api>);
        let handles =
            RunHandles { to_node, to_crm, crm, deliveries, progress: Arc::default(), address: Arc::new(address) };
        Ok(Run { handles, host, prober, traffic, addresses, _directory: directory })
    }
}

/// Reads what must not change any more: the node is killed first.
async fn read_after_end(report: &mut ChaosReport, mut host: Host, handles: &RunHandles, traffic: &Traffic) {
    host.kill_node().await;
    let calls = report.read_crm(&handles.crm, traffic).await;
    report.read_faults(handles).await;
    report.inspect(&mut host, &calls).await;
    host.clean_up().await.unwrap_or_else(|error| report.note(error.to_string()));
}

/// Runs the operator and shows progress until every job is done. Fails if a process of the run is gone.
async fn watch_until_done(
    handles: &RunHandles,
    operator: &mut AutoOperator,
    status: &StatusLine,
    started: Instant,
    (wanted, leads): (FaultCounts, u32),
) -> Result<(), Error> {
    let RunHandles { crm, deliveries, progress, .. } = handles;
    let count = async {
        loop {
            progress.records.store(crm.truth().await?.object("Lead").records, Ordering::Relaxed);
            tokio::time::sleep(CRM_POLL_INTERVAL).await;
        }
    };
    let watch = async {
        let mut shown = started;
        loop {
            let done = deliveries.complete() && progress.faults_over.load(Ordering::Relaxed);
            if operator.poll(done).await {
                return Ok(());
            }
            if let Some(error) = deliveries.failed() {
                return Err(error);
            }
            if shown.elapsed() >= PROGRESS_INTERVAL {
                shown = Instant::now();
                // Asks the proxies for the counts that the line shows.
                handles.to_node.cuts().await?;
                handles.to_crm.cuts().await?;
                status.show(&progress_line(handles, operator, started.elapsed(), (wanted, leads)));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        result = watch => result,
        result = count => result,
    }
}

/// The progress line; fits a terminal.
fn progress_line(
    handles: &RunHandles,
    operator: &AutoOperator,
    elapsed: Duration,
    (wanted, leads): (FaultCounts, u32),
) -> String {
    let cuts = handles.to_node.cuts_known() + handles.to_crm.cuts_known();
    let RunHandles { deliveries, progress, .. } = handles;
    let jobs = |state: &str| operator.jobs.get(state).copied().unwrap_or(0);
    let waiting = ["queued", "running", "retrying", "waiting"].map(jobs).iter().sum::<u64>();
    let done = *progress.faults();
    format!(
        "{:>4} s  sent {:.0} %  in the CRM {}/{leads}  waiting {waiting}  dead {}  killed {}/{}  troubles {}/{}  cut {cuts}{}",
        elapsed.as_secs(),
        deliveries.share() * 100.0,
        progress.records.load(Ordering::Relaxed),
        jobs("dead"),
        done.kills,
        wanted.kills,
        done.total(),
        wanted.total(),
        if operator.api().is_some() { "" } else { "  (down)" }
    )
}
