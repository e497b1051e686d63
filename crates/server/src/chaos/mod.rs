//! Chaos: the real binary, killed again and again, between senders that repeat themselves and a CRM that fails.
//!
//! In: how many leads, kills and faults; a seed.
//! Out: the books: what was sent, what the ledger says, what the CRM holds, and everything that does not add up.
//! Touches: a temporary directory; a child process; listeners on loopback.
//! Never: looks away: a book that cannot be read does not balance.
//! If the process dies here: its child is killed with it where the system allows, and nothing of value is lost.

mod books;
mod director;
mod operator;
mod proxy;
mod senders;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::senders::{Traffic, TrafficSettings};
use sluice_simulator::{Salesforce, SalesforceSettings};
use tokio::sync::watch;

use crate::stage::{Api, Error, Leads, LeadsTo, StatusLine};
pub use books::{Books, TroubleBook};
use director::{Address, Director, Ways};
use operator::Operator;
use proxy::Proxy;
use senders::Senders;

/// Deliveries in a second, before bursts and repeats.
const DELIVERIES_PER_SECOND: u32 = 1_000;
/// How long the CRM holds what it lets time out: longer than the node waits.
const HOLD_MS: u64 = 800;
const HUGE_BYTES: u64 = 1 << 20;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// What to do to the node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program to run and kill.
    pub program: PathBuf,
    /// Different leads.
    pub leads: u32,
    /// Times that the node is killed.
    pub kills: u32,
    /// Times that it is stopped for a moment, and goes on.
    pub stops: u32,
    /// Times that its disk fails, so that it has to end by itself.
    pub disk_failures: u32,
    /// Times that nobody reaches the CRM for a moment.
    pub outages: u32,
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
pub(crate) struct Progress {
    /// Deliveries that were answered with a yes.
    pub delivered: AtomicU64,
    /// Kills so far.
    pub kills: AtomicU64,
    /// Stops so far.
    pub stops: AtomicU64,
    /// Failures of the disk so far.
    pub disk_failures: AtomicU64,
    /// Outages of the CRM so far.
    pub outages: AtomicU64,
    /// Starts at another time so far.
    pub clock_jumps: AtomicU64,
    /// Nothing more is done to the node.
    pub troubles_over: AtomicBool,
}

/// Runs it to the end, or to the end of its time, and reads the books.
pub async fn run(settings: Settings, status: StatusLine) -> Result<Books, Error> {
    let started = Instant::now();
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let faults = Everything {
        percent: settings.fail_percent,
        seed: settings.seed,
        hold_ms: HOLD_MS,
        huge_bytes: HUGE_BYTES,
        ..Everything::default()
    };
    let crm = Salesforce::start(SalesforceSettings { faults: faults.plan(), ..SalesforceSettings::default() });
    let crm = Arc::new(crm.map_err(Error::io("the simulated CRM"))?);
    let ways = Arc::new(Ways {
        intake: Proxy::start(settings.cut_percent, settings.seed ^ 0x1A).await?,
        crm: Proxy::start(settings.cut_percent, settings.seed ^ 0x0C).await?,
    });
    ways.crm.lead_to(Some(crm.address()));
    let leads = Leads::write(directory.path(), LeadsTo::Salesforce(&format!("http://{}", ways.crm.address)))?;
    let traffic = Arc::new(Traffic::plan(TrafficSettings {
        seed: settings.seed,
        leads: settings.leads,
        deliveries_per_second: DELIVERIES_PER_SECOND,
        ..TrafficSettings::default()
    }));
    let progress = Arc::new(Progress::default());
    let (address, addresses) = watch::channel(None::<Address>);

    let director = Director::new(&settings, leads.clone(), directory.path().join("node.log"), ways.clone(), address);
    let directed = tokio::spawn(director.run(crm.clone(), traffic.clone(), progress.clone()));
    let senders = Senders::new(leads.sender()?, traffic.clone(), addresses.clone(), progress.clone());
    let sending = tokio::spawn(senders.run());
    let mut operator = Operator::new(addresses);

    let deadline = started + settings.time_max;
    let mut shown = Instant::now();
    while Instant::now() < deadline && !directed.is_finished() {
        let done = sending.is_finished() && progress.troubles_over.load(Ordering::Relaxed);
        if operator.look(done).await {
            break;
        }
        if shown.elapsed() >= Duration::from_secs(1) {
            shown = Instant::now();
            status.show(&line(&settings, &traffic, &progress, &crm, &operator, &ways, started.elapsed()));
        }
        tokio::time::sleep(LOOK).await;
    }
    status.clear();
    let up = operator.address();
    let sent = senders::end(sending).await;
    let mut books = Books::open(&settings, &traffic, &crm, sent, &operator, TroubleBook::of(&progress, &ways));
    match (up, directed.is_finished()) {
        (Some(address), false) => books.read_ledger(Api(address.admin)).await,
        _ => books.note("the node does not answer any more"),
    }
    if directed.is_finished() {
        books.note(directed.await.map_or_else(|error| error.to_string(), |error| error.to_string()));
    } else {
        directed.abort();
        // Waited for, so that the child has been told to end before its directory goes.
        let _ = directed.await;
    }
    // Nobody has it open any more: what lies on the disk is looked at by itself.
    books.inspect(&leads.data);
    books.close(started.elapsed());
    Ok(books)
}

fn line(
    settings: &Settings,
    traffic: &Traffic,
    progress: &Progress,
    crm: &Salesforce,
    operator: &Operator,
    ways: &Ways,
    elapsed: Duration,
) -> String {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let jobs = |state: &str| operator.jobs.get(state).copied().unwrap_or(0);
    let waiting = ["queued", "running", "retrying", "waiting"].map(jobs).iter().sum::<u64>();
    format!(
        "{:>4} s  delivered {}/{}  in the ledger {}  in the CRM {}/{}  waiting {waiting}  dead {}  killed {}/{}  stopped {}  \
         disk failed {}  CRM away {}  cut {}{}",
        elapsed.as_secs(),
        progress.delivered.load(Ordering::Relaxed),
        traffic.deliveries().len(),
        operator.events,
        crm.truth().object("Lead").records,
        settings.leads,
        jobs("dead"),
        count(&progress.kills),
        settings.kills,
        count(&progress.stops),
        count(&progress.disk_failures),
        count(&progress.outages),
        ways.intake.cuts() + ways.crm.cuts(),
        if operator.address().is_some() { "" } else { "  (down)" }
    )
}
