//! Demo: senders, a node and a failing CRM in one process.
//!
//! In: duration, rate, share of failing calls; a seed.
//! Out: a progress line each second, and a result.
//! Touches: a temporary directory; listeners on loopback.
//! Never: leaves a process behind.
//! If the process dies here: only the temporary directory is left.

mod counts;
mod senders;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_simulator::faults::Everything;
use sluice_simulator::{Salesforce, SalesforceSettings};
use tokio::sync::watch;

use crate::{Error, Leads, LeadsTo};
pub(crate) use counts::{DemoCounts, DemoResult};
use senders::Senders;
use sluice_server::OWN_ACTOR;
use sluice_server::cli::NodeFileGuard;
use sluice_server::run::Node;

/// Delay of calls that the CRM lets time out, in ms: longer than the timeout of the node.
const HOLD_MS: u64 = 800;
const HUGE_BYTES: u64 = 1 << 20;
/// Time for waiting jobs after the senders have stopped.
const DRAIN_MAX: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);
/// Interval between two polls while jobs drain.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Shutdown timeout of the node.
const STOP_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoSettings {
    /// New leads per second; each is sent one to five times.
    pub leads_per_second: u32,
    /// Share of calls that the CRM fails, in percent.
    pub fail_percent: f64,
    /// Seed of every random choice.
    pub seed: u64,
}

/// URLs of the parts of the demo.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub intake: String,
    pub admin: String,
    /// Data directory of the node, with its admin token.
    pub data: PathBuf,
    pub crm: String,
    /// Sign-in link of the console.
    pub console: String,
}

/// A running demo.
#[derive(Debug)]
pub(crate) struct Demo {
    pub addresses: Addresses,
    node: Node,
    crm: Salesforce,
    senders: Arc<Senders>,
    stop: watch::Sender<bool>,
    sending: tokio::task::JoinHandle<()>,
    started: Instant,
    _node_file: NodeFileGuard,
    _directory: tempfile::TempDir,
}

impl Demo {
    pub(crate) async fn start(settings: DemoSettings) -> Result<Demo, Error> {
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
        let link = node.operator.add_link(None, "demo").await.map_err(|error| Error::Failed(error.to_string()))?;
        let senders = Arc::new(Senders::new(settings, leads.sender()?, node.intake));
        let stop = watch::Sender::new(false);
        let sending = tokio::spawn(senders.clone().run(stop.subscribe()));
        let addresses = Addresses {
            intake: format!("http://{}", node.intake),
            admin: format!("http://{}", node.admin),
            data: leads.data.clone(),
            crm: crm.url(),
            console: format!("http://{}{}", node.admin, link.path),
        };
        let node_file = NodeFileGuard::write(&leads.data, &node);
        Ok(Demo {
            addresses,
            node,
            crm,
            senders,
            stop,
            sending,
            started: Instant::now(),
            _node_file: node_file,
            _directory: directory,
        })
    }

    /// Shows progress each second until `end`, waits for the jobs to drain, and returns the result.
    pub(crate) async fn run(
        self,
        end: impl Future<Output = ()>,
        mut show: impl FnMut(&DemoCounts),
    ) -> Result<DemoResult, Error> {
        let mut end = std::pin::pin!(end);
        let mut seconds = tokio::time::interval_at(tokio::time::Instant::now() + SECOND, SECOND);
        loop {
            tokio::select! {
                _ = seconds.tick() => show(&self.poll().await?),
                () = &mut end => break,
            }
        }
        self.stop.send_replace(true);
        let stopped = Instant::now();
        let mut shown = Instant::now();
        let last = loop {
            let counts = self.poll().await?;
            let sent = self.sending.is_finished();
            if (sent && counts.waiting == 0 && !self.replay_dead(&counts).await?) || stopped.elapsed() > DRAIN_MAX {
                break counts;
            }
            if shown.elapsed() >= SECOND {
                shown = Instant::now();
                show(&counts);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        self.sending.abort();
        self.node.stop(STOP_MAX).await;
        Ok(DemoResult::of(last))
    }

    /// Reads the counts. Resumes the destination if the node paused it after two rejected tokens, as an operator would. A pause by
    /// the person who watches stays.
    async fn poll(&self) -> Result<DemoCounts, Error> {
        let operator = &self.node.operator;
        let failed = |error: sluice_server::operate::OperateError| Error::Failed(error.to_string());
        let pauses = operator.pauses().await.map_err(failed)?;
        for pause in pauses.into_iter().filter(|pause| pause.actor == OWN_ACTOR) {
            operator.resume(&pause.target, "demo", "as an operator would").await.map_err(failed)?;
        }
        let status = operator.status().await.map_err(failed)?;
        let sources = operator.sources().await.map_err(failed)?;
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

    /// Replays dead letters, as an operator would. Returns true if there were any.
    async fn replay_dead(&self, counts: &DemoCounts) -> Result<bool, Error> {
        use sluice_domain::job::JobState;
        use sluice_server::operate::{ReplayRequest, Selection};
        if counts.dead == 0 {
            return Ok(false);
        }
        let filter = sluice_ledger::JobFilter { states: vec![JobState::Dead], ..Default::default() };
        let request = ReplayRequest {
            selection: Selection { filter: Some(filter), ..Selection::default() },
            reason: "fault injected by the demo".to_owned(),
            actor: "demo".to_owned(),
            ..ReplayRequest::default()
        };
        let result = self.node.operator.replay(request).await.map_err(|error| Error::Failed(error.to_string()))?;
        self.senders.replayed.fetch_add(result.jobs.changed, Ordering::Relaxed);
        Ok(result.jobs.changed > 0)
    }
}
