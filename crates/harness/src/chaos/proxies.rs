//! The ways to the node and to the CRM, each through a proxy, and the look at the CRM's truth, which goes past it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_simulator::FaultPlan;
use sluice_simulator::salesforce::{Record, SeenCall, Truth};
use tokio::sync::Mutex;

use super::processes::{ChildProcess, CrmTask, Listening, ProxyOrder, ProxyReport, ProxyTask, Role};
use crate::{Api, Error};

/// Rows of one page of the CRM's records and calls.
const PAGE: usize = 10_000;

/// A proxy in a process of its own.
#[derive(Debug)]
pub(super) struct Way {
    /// Where it begins.
    pub address: SocketAddr,
    part: Mutex<ChildProcess>,
    cuts: AtomicU64,
}

impl Way {
    pub async fn open(program: &Path, cut_percent: f64, seed: u64) -> Result<Way, Error> {
        let mut part = ChildProcess::start(program, &[], Role::Proxy, &ProxyTask { cut_percent, seed }).await?;
        let Listening { address } = part.hear().await?;
        Ok(Way { address, part: Mutex::new(part), cuts: AtomicU64::new(0) })
    }

    /// Where it leads from here on; nowhere, and nobody gets through.
    pub async fn lead_to(&self, upstream: Option<SocketAddr>) -> Result<(), Error> {
        self.order(ProxyOrder::LeadTo(upstream)).await
    }

    /// Connections that were cut midway.
    pub async fn cuts(&self) -> Result<u64, Error> {
        self.order(ProxyOrder::Count).await?;
        Ok(self.cuts_known())
    }

    /// The same, as of the last time that it was asked.
    pub fn cuts_known(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    async fn order(&self, order: ProxyOrder) -> Result<(), Error> {
        let ProxyReport { cuts } = self.part.lock().await.ask(&order).await?;
        self.cuts.store(cuts, Ordering::Relaxed);
        Ok(())
    }
}

/// The simulated CRM in a process of its own.
#[derive(Debug)]
pub(super) struct Crm {
    pub address: SocketAddr,
    /// It lives as long as this.
    _part: ChildProcess,
}

impl Crm {
    pub async fn open(program: &Path, faults: FaultPlan, calls_kept_max: usize) -> Result<Crm, Error> {
        let mut part = ChildProcess::start(program, &[], Role::Crm, &CrmTask { faults, calls_kept_max }).await?;
        let Listening { address } = part.hear().await?;
        Ok(Crm { address, _part: part })
    }

    /// What really happened.
    pub async fn truth(&self) -> Result<Truth, Error> {
        let told = Api(self.address).get("/sim/truth").await;
        told.map_err(|error| Error::Wrong(format!("the crm of the run does not answer: {error}")))
    }

    /// Every lead that it holds.
    pub async fn leads(&self) -> Result<Vec<Record>, Error> {
        let mut all: Vec<Record> = Vec::new();
        loop {
            let after = all.last().map(|record| record.id.clone()).unwrap_or_default();
            let page: Vec<Record> =
                Api(self.address).get(&format!("/sim/records?object=Lead&after={after}&limit={PAGE}")).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Every call that reached it, as far as it remembers them.
    pub async fn calls(&self) -> Result<Vec<SeenCall>, Error> {
        let mut all: Vec<SeenCall> = Vec::new();
        loop {
            let after = all.last().map_or(0, |call| call.number);
            let page: Vec<SeenCall> = Api(self.address).get(&format!("/sim/calls?after={after}&limit={PAGE}")).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
}
