//! Clients of the proxies in front of the node and the CRM, and of the CRM itself, which is read without a proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_simulator::FaultPlan;
use sluice_simulator::crm::{SeenCall, Truth};
use sluice_simulator::salesforce::Record;
use tokio::sync::Mutex;

use super::processes::{ChildProcess, CrmTask, Listening, ProxyCommand, ProxyReport, ProxyTask, Role};
use crate::{Api, Error};

/// Rows of one page of records or calls.
const PAGE: usize = 10_000;

/// Client of a proxy process.
#[derive(Debug)]
pub(super) struct ProxyClient {
    /// Where the proxy listens.
    pub address: SocketAddr,
    process: Mutex<ChildProcess>,
    cuts: AtomicU64,
}

impl ProxyClient {
    pub(super) async fn open(program: &Path, cut_percent: f64, seed: u64) -> Result<ProxyClient, Error> {
        let mut process = ChildProcess::start(program, &[], Role::Proxy, &ProxyTask { cut_percent, seed }).await?;
        let Listening { address } = process.receive().await?;
        Ok(ProxyClient { address, process: Mutex::new(process), cuts: AtomicU64::new(0) })
    }

    /// Sets the upstream address; with `None`, connections are refused.
    pub(super) async fn set_upstream(&self, upstream: Option<SocketAddr>) -> Result<(), Error> {
        self.execute(ProxyCommand::SetUpstream(upstream)).await
    }

    /// Connections cut so far.
    pub(super) async fn cuts(&self) -> Result<u64, Error> {
        self.execute(ProxyCommand::Count).await?;
        Ok(self.cuts_known())
    }

    /// Connections cut, as of the last report.
    pub(super) fn cuts_known(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    async fn execute(&self, command: ProxyCommand) -> Result<(), Error> {
        let ProxyReport { cuts } = self.process.lock().await.request(&command).await?;
        self.cuts.store(cuts, Ordering::Relaxed);
        Ok(())
    }
}

/// Client of the CRM process.
#[derive(Debug)]
pub(super) struct Crm {
    pub address: SocketAddr,
    /// Ends on drop.
    _process: ChildProcess,
}

impl Crm {
    pub(super) async fn open(program: &Path, faults: FaultPlan, calls_kept_max: usize) -> Result<Crm, Error> {
        let mut process = ChildProcess::start(program, &[], Role::Crm, &CrmTask { faults, calls_kept_max }).await?;
        let Listening { address } = process.receive().await?;
        Ok(Crm { address, _process: process })
    }

    /// Counts of what the CRM received and applied.
    pub(super) async fn truth(&self) -> Result<Truth, Error> {
        let truth = Api::open(self.address).get("/sim/truth").await;
        truth.map_err(|error| Error::Failed(format!("the crm process does not respond: {error}")))
    }

    /// Every lead in the CRM.
    pub(super) async fn leads(&self) -> Result<Vec<Record>, Error> {
        let mut all: Vec<Record> = Vec::new();
        loop {
            let after = all.last().map(|record| record.id.clone()).unwrap_or_default();
            let page: Vec<Record> =
                Api::open(self.address).get(&format!("/sim/records?object=Lead&after={after}&limit={PAGE}")).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Every call that the CRM received and still keeps.
    pub(super) async fn calls(&self) -> Result<Vec<SeenCall>, Error> {
        let mut all: Vec<SeenCall> = Vec::new();
        loop {
            let after = all.last().map_or(0, |call| call.number);
            let page: Vec<SeenCall> =
                Api::open(self.address).get(&format!("/sim/calls?after={after}&limit={PAGE}")).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
}
