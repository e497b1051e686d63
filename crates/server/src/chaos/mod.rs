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
mod senders;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::senders::{Traffic, TrafficSettings};
use sluice_simulator::{Salesforce, SalesforceSettings};
use tokio::sync::watch;

use crate::stage::{Api, Error, Leads, LeadsTo, StatusLine};
pub use books::Books;
use director::{Address, Director};
use operator::Operator;
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
    let leads = Leads::write(directory.path(), LeadsTo::Salesforce(&crm.url()))?;
    let traffic = Arc::new(Traffic::plan(TrafficSettings {
        seed: settings.seed,
        leads: settings.leads,
        deliveries_per_second: DELIVERIES_PER_SECOND,
        ..TrafficSettings::default()
    }));
    let progress = Arc::new(Progress::default());
    let (address, addresses) = watch::channel(None::<Address>);

    let director = Director::new(&settings, leads.clone(), directory.path().join("node.log"), address);
    let directed = tokio::spawn(director.run(crm.clone(), traffic.clone(), progress.clone()));
    let senders = Senders::new(leads.sender()?, traffic.clone(), addresses.clone(), progress.clone());
    let sending = tokio::spawn(senders.run());
    let mut operator = Operator::new(addresses);

    let deadline = started + settings.time_max;
    let mut shown = Instant::now();
    while Instant::now() < deadline && !directed.is_finished() {
        let done = sending.is_finished() && progress.kills.load(Ordering::Relaxed) >= u64::from(settings.kills);
        if operator.look(done).await {
            break;
        }
        if shown.elapsed() >= Duration::from_secs(1) {
            shown = Instant::now();
            status.show(&line(&settings, &traffic, &progress, &crm, &operator, started.elapsed()));
        }
        tokio::time::sleep(LOOK).await;
    }
    status.clear();
    let up = operator.address();
    let sent = senders::end(sending).await;
    let mut books = Books::open(&settings, &traffic, &crm, sent, &operator, progress.kills.load(Ordering::Relaxed));
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
    books.close(started.elapsed());
    Ok(books)
}

fn line(
    settings: &Settings,
    traffic: &Traffic,
    progress: &Progress,
    crm: &Salesforce,
    operator: &Operator,
    elapsed: Duration,
) -> String {
    let jobs = |state: &str| operator.jobs.get(state).copied().unwrap_or(0);
    let waiting = ["queued", "running", "retrying", "waiting"].map(jobs).iter().sum::<u64>();
    format!(
        "{:>4} s  delivered {}/{}  in the ledger {}  in the CRM {}/{}  waiting {waiting}  dead {}  killed {}/{}{}",
        elapsed.as_secs(),
        progress.delivered.load(Ordering::Relaxed),
        traffic.deliveries().len(),
        operator.events,
        crm.truth().object("Lead").records,
        settings.leads,
        jobs("dead"),
        progress.kills.load(Ordering::Relaxed),
        settings.kills,
        if operator.address().is_some() { "" } else { "  (down)" }
    )
}
