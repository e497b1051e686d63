//! Chaos: the real binary, killed again and again, between senders that repeat themselves and a CRM that fails.
//!
//! In: how many leads, kills and faults; a seed.
//! Out: the books: what was sent, what the ledger says, what the CRM holds, and everything that does not add up.
//! Touches: a temporary directory; processes of its own; listeners on loopback; where the system allows it, a small disk of its own.
//! Never: looks away: a book that cannot be read does not balance.
//! If the process dies here: its parts end with their standard input, and node, mount and loop device with them.
//!
//! ```text
//! senders ×4 → proxy → node (on its host, with its disk and clock) → proxy → CRM
//!      ↑          ↑       ↑                                            ↑
//!      └──────────┴───────┴────────────── director ────────────────────┘      each a process, but for the operator and the books
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

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::watch;

use crate::{Api, Error, Leads, LeadsTo, StatusLine};
use controller::{Around, Director};
use deliveries::Deliveries;
pub use faults::FaultCounts;
use host::Host;
use operator::AutoOperator;
use probe::Prober;
pub use processes::{DiskKind, FileBook};
use proxies::{Crm, Way};
pub use reconcile::{AttemptCounts, ChaosReport, CrmCounts, LedgerCounts, SendersCounts, TroubleCounts};

/// Deliveries in a second, before bursts and repeats.
const DELIVERIES_PER_SECOND: u32 = 1_000;
/// How long the CRM holds what it lets time out: longer than the node waits.
const HOLD_MS: u64 = 800;
const HUGE_BYTES: u64 = 1 << 20;
/// Calls that the CRM remembers: more than a lead ever needs, a few apart that are very unlucky.
const CALLS_A_LEAD: usize = 50;
const CALLS_KEPT_MIN: usize = 100_000;
/// Between two looks at the node.
const LOOK: Duration = Duration::from_millis(200);
/// Between two looks at what the CRM holds.
const LOOK_AT_CRM: Duration = Duration::from_millis(25);

/// Between two lines about how it goes.
const SHOW: Duration = Duration::from_secs(1);

/// Hidden command that runs a node with a shifted clock: what `sluice up` does, which has no such option.
pub const NODE_COMMAND: &str = "chaos-node";
/// Its option that names the file with the offset of the wall clock.
pub(crate) const CLOCK_OFFSET_OPTION: &str = "--clock-offset-file";

/// Where the operators of the node come in.
type Address = SocketAddr;

/// What to do to the node.
#[derive(Clone, Debug)]
pub struct ChaosSettings {
    /// The program to run and kill.
    pub program: PathBuf,
    /// Different leads.
    pub leads: u32,
    /// What goes wrong, and how often.
    pub troubles: FaultCounts,
    /// The share of connections that are cut midway, to the node and to the CRM, in percent.
    pub cut_percent: f64,
    /// Whether the node wakes up at another time whenever it is started again.
    pub clock_jumps: bool,
    /// The share of calls that the CRM lets fail, in percent.
    pub fail_percent: f64,
    /// Decides every random choice of the senders, of the CRM and of the moments of the kills.
    pub seed: u64,
    /// The whole run takes no longer.
    pub time_max: Duration,
}

/// Where the run stands.
#[derive(Debug, Default)]
struct Progress {
    /// Leads in the CRM.
    records: AtomicU64,
    /// What was done so far.
    troubles: Mutex<FaultCounts>,
    /// Starts at another time so far.
    wakes: AtomicU64,
    /// Nothing more is done to the node.
    troubles_over: AtomicBool,
}

impl Progress {
    fn troubles(&self) -> MutexGuard<'_, FaultCounts> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs it to the end, to the end of its time, or until it is told to stop; then reads the books.
pub async fn run(
    settings: ChaosSettings,
    status: StatusLine,
    stop: impl Future<Output = ()>,
) -> Result<ChaosReport, Error> {
    let started = Instant::now();
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let faults = Everything {
        percent: settings.fail_percent,
        seed: settings.seed,
        hold_ms: HOLD_MS,
        huge_bytes: HUGE_BYTES,
        ..Everything::default()
    };
    let calls_kept_max = (settings.leads as usize * CALLS_A_LEAD).max(CALLS_KEPT_MIN);
    let crm = Arc::new(Crm::open(&settings.program, faults.plan(), calls_kept_max).await?);
    let to_node = Arc::new(Way::open(&settings.program, settings.cut_percent, settings.seed ^ 0x1A).await?);
    let to_crm = Arc::new(Way::open(&settings.program, settings.cut_percent, settings.seed ^ 0x0C).await?);
    to_crm.lead_to(Some(crm.address)).await?;
    let leads = Leads::write(directory.path(), LeadsTo::Salesforce(&format!("http://{}", to_crm.address)))?;
    let plan = TrafficSettings {
        seed: settings.seed,
        leads: settings.leads,
        deliveries_per_second: DELIVERIES_PER_SECOND,
        ..TrafficSettings::default()
    };
    let traffic = Arc::new(Traffic::plan(plan.clone()));
    let knocker = Prober::new(&leads.sender()?, &traffic);
    let host = Host::open(&settings, &leads, directory.path()).await?;
    let mut books = ChaosReport::open(&settings, &host);

    let program = settings.program.clone();
    let deliveries = Deliveries::start(program, leads.config.clone(), to_node.address, plan, traffic.clone());
    let (address, addresses) = watch::channel(None::<Address>);
    let around = Around {
        to_node,
        to_crm,
        crm,
        deliveries: Arc::new(deliveries),
        progress: Arc::default(),
        address: Arc::new(address),
    };
    let (stop_directing, stopped) = watch::channel(false);
    let directed = tokio::spawn(Director::new(&settings, books.possible, host, around.clone(), knocker).run(stopped));
    let mut operator = AutoOperator::new(addresses);

    let deadline = started + settings.time_max;
    let watched = watch_over(&around, &mut operator, &status, started, (books.possible, settings.leads));
    tokio::select! {
        watched = watched => watched.unwrap_or_else(|error| books.note(error.to_string())),
        () = async { while !directed.is_finished() { tokio::time::sleep(LOOK).await } } => {}
        () = tokio::time::sleep_until(deadline.into()) => books.note(format!("it was not over after {:?}", settings.time_max)),
        () = stop => books.note("it was stopped before its end"),
    }
    status.clear();

    books.read_senders(&around.deliveries, &traffic);
    books.read_operator(&operator);
    match operator.address() {
        Some(admin) => books.read_ledger(Api(admin)).await,
        None => books.note("the node does not answer any more"),
    }
    stop_directing.send_replace(true);
    match directed.await {
        Ok((host, ended)) => {
            if let Some(error) = ended {
                books.note_first(error.to_string());
            }
            read_what_is_left(&mut books, host, &around, &traffic).await;
        }
        Err(error) => books.note(error.to_string()),
    }
    books.close(started.elapsed());
    Ok(books)
}

/// With the node gone: nobody has its file open any more, and nobody calls the CRM.
async fn read_what_is_left(books: &mut ChaosReport, mut host: Host, around: &Around, traffic: &Traffic) {
    host.end_node().await;
    let calls = books.read_crm(&around.crm, traffic).await;
    books.read_troubles(around).await;
    books.inspect(&mut host, &calls).await;
    host.clean_up().await.unwrap_or_else(|error| books.note(error.to_string()));
}

/// Looks on, as a person on duty would, until everything has come to an end. An error is a part that is gone.
async fn watch_over(
    around: &Around,
    operator: &mut AutoOperator,
    status: &StatusLine,
    started: Instant,
    (wanted, leads): (FaultCounts, u32),
) -> Result<(), Error> {
    let Around { crm, deliveries, progress, .. } = around;
    let counted = async {
        loop {
            progress.records.store(crm.truth().await?.object("Lead").records, Ordering::Relaxed);
            tokio::time::sleep(LOOK_AT_CRM).await;
        }
    };
    let looked = async {
        let mut shown = started;
        loop {
            let done = deliveries.complete() && progress.troubles_over.load(Ordering::Relaxed);
            if operator.look(done).await {
                return Ok(());
            }
            if let Some(error) = deliveries.failed() {
                return Err(error);
            }
            if shown.elapsed() >= SHOW {
                shown = Instant::now();
                let cuts = around.to_node.cuts().await? + around.to_crm.cuts().await?;
                status.show(&line(wanted, leads, around, operator, cuts, started.elapsed()));
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        over = looked => over,
        failed = counted => failed,
    }
}

/// Short enough for one line of a terminal.
fn line(
    wanted: FaultCounts,
    leads: u32,
    around: &Around,
    operator: &AutoOperator,
    cuts: u64,
    elapsed: Duration,
) -> String {
    let Around { deliveries, progress, .. } = around;
    let jobs = |state: &str| operator.jobs.get(state).copied().unwrap_or(0);
    let waiting = ["queued", "running", "retrying", "waiting"].map(jobs).iter().sum::<u64>();
    let done = *progress.troubles();
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
        if operator.address().is_some() { "" } else { "  (down)" }
    )
}
