//! Demo: the whole of it in one process: senders, a node, and a CRM that misbehaves.
//!
//! In: how long, how fast, how bad; a seed.
//! Out: a line each second, and a verdict.
//! Touches: a temporary directory; listeners on loopback.
//! Never: anything that outlives it.
//! If the process dies here: the temporary directory stays behind; nothing else.

mod senders;
mod tally;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::{Salesforce, SalesforceSettings};
use tokio::sync::watch;

use crate::{Error, Leads, LeadsTo};
use senders::Senders;
use sluice_server::run::Node;
pub use tally::{DemoCounts, Verdict};

/// How long the CRM holds what it lets time out: longer than the node waits.
const HOLD_MS: u64 = 800;
const HUGE_BYTES: u64 = 1 << 20;
/// How long what waits may take once the senders have stopped.
const DRAIN_MAX: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks while it drains.
const LOOK: Duration = Duration::from_millis(100);
/// How long attempts may take to end when the node stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What to show.
#[derive(Clone, Copy, Debug)]
pub struct DemoSettings {
    /// New leads a second; each is sent one to five times.
    pub leads_per_second: u32,
    /// The share of calls that the CRM lets fail, in percent.
    pub fail_percent: f64,
    /// Decides every random choice.
    pub seed: u64,
}

/// Where things are, for whoever wants to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where senders come in.
    pub intake: String,
    /// Where operators come in.
    pub admin: String,
    /// The CRM.
    pub crm: String,
}

/// A demo under way.
#[derive(Debug)]
pub struct Demo {
    /// Where things are.
    pub places: Places,
    node: Node,
    crm: Salesforce,
    senders: Arc<Senders>,
    stop: watch::Sender<bool>,
    sending: tokio::task::JoinHandle<()>,
    started: Instant,
    _directory: tempfile::TempDir,
}

impl Demo {
    /// Starts all of it.
    pub async fn start(settings: DemoSettings) -> Result<Demo, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
        let faults = Everything {
            percent: settings.fail_percent,
            seed: settings.seed,
            hold_ms: HOLD_MS,
            huge_bytes: HUGE_BYTES,
            ..Everything::default()
        };
        let crm = Salesforce::start(SalesforceSettings { faults: faults.plan(), ..SalesforceSettings::default() });
        let crm = crm.map_err(Error::io("the simulated CRM"))?;
        let leads = Leads::write(directory.path(), LeadsTo::Salesforce(&crm.url()))?;
        let node = Node::start(leads.settings()).await?;
        let senders = Arc::new(Senders::new(settings, leads.sender()?, node.intake));
        let stop = watch::Sender::new(false);
        let sending = tokio::spawn(senders.clone().run(stop.subscribe()));
        let places = Places {
            intake: format!("http://{}", node.intake),
            admin: format!("http://{}", node.admin),
            crm: crm.url(),
        };
        Ok(Demo { places, node, crm, senders, stop, sending, started: Instant::now(), _directory: directory })
    }

    /// Shows a line each second until `end`, lets everything drain, and gives the verdict.
    pub async fn run(self, end: impl Future<Output = ()>, mut show: impl FnMut(&DemoCounts)) -> Result<Verdict, Error> {
        let mut end = std::pin::pin!(end);
        let mut seconds = tokio::time::interval_at(tokio::time::Instant::now() + SECOND, SECOND);
        loop {
            tokio::select! {
                _ = seconds.tick() => show(&self.look().await?),
                () = &mut end => break,
            }
        }
        self.stop.send_replace(true);
        let stopped = Instant::now();
        let mut shown = Instant::now();
        let last = loop {
            let tally = self.look().await?;
            let sent = self.sending.is_finished();
            if (sent && tally.waiting == 0 && !self.revive(&tally).await?) || stopped.elapsed() > DRAIN_MAX {
                break tally;
            }
            if shown.elapsed() >= SECOND {
                shown = Instant::now();
                show(&tally);
            }
            tokio::time::sleep(LOOK).await;
        };
        self.sending.abort();
        self.node.stop(STOP_MAX).await;
        Ok(Verdict::of(last))
    }

    /// Where it stands. A pause after two refused tokens is lifted, as a person on duty would.
    async fn look(&self) -> Result<DemoCounts, Error> {
        let operator = &self.node.operator;
        let wrong = |error: sluice_server::operate::OperateError| Error::Wrong(error.to_string());
        for pause in operator.pauses().await.map_err(wrong)? {
            operator.resume(&pause.target, "demo").await.map_err(wrong)?;
        }
        let status = operator.status().await.map_err(wrong)?;
        let sources = operator.sources().await.map_err(wrong)?;
        let truth = self.crm.truth();
        let lead = truth.object("Lead");
        let count = |state: &str| status.jobs.get(state).copied().unwrap_or(0);
        Ok(DemoCounts {
            elapsed: self.started.elapsed(),
            leads: self.senders.leads.load(Ordering::Relaxed),
            requests: self.senders.requests.load(Ordering::Relaxed),
            accepted: status.events,
            duplicates: sources.iter().map(|source| source.duplicates).sum(),
            calls: truth.calls.received,
            faults: truth.faults_total(),
            unseen: truth.calls.applied_unseen,
            waiting: ["queued", "running", "retrying", "waiting"].map(count).iter().sum(),
            dead: count("dead") + count("unknown"),
            replayed: self.senders.replayed.load(Ordering::Relaxed),
            records: lead.records,
            doubled: lead.created_again,
        })
    }

    /// Replays what died of a fault that no retry cures, as a person on duty would. Answers whether there was any.
    async fn revive(&self, tally: &DemoCounts) -> Result<bool, Error> {
        use sluice_domain::job::JobState;
        use sluice_server::operate::{ReplayRequest, Selection};
        if tally.dead == 0 {
            return Ok(false);
        }
        let filter = sluice_ledger::JobFilter { states: vec![JobState::Dead], ..Default::default() };
        let order = ReplayRequest {
            selection: Selection { filter: Some(filter), ..Selection::default() },
            reason: "the CRM was at fault, and is asked again".to_owned(),
            actor: "demo".to_owned(),
            ..ReplayRequest::default()
        };
        let acted = self.node.operator.replay(order).await.map_err(|error| Error::Wrong(error.to_string()))?;
        self.senders.replayed.fetch_add(acted.changed, Ordering::Relaxed);
        Ok(acted.changed > 0)
    }
}
