//! Starts the node, kills it when nobody expects it, and starts it again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_domain::random::Random;
use sluice_simulator::Salesforce;
use sluice_simulator::senders::Traffic;
use tokio::sync::watch;

use super::{Progress, Settings};
use crate::stage::{Child, Error, Leads};

/// How soon after its share of the work is done a kill comes, at the latest.
const LATE_MAX: Duration = Duration::from_millis(300);
/// How long the node stays down, at the most.
const DOWN_MAX: Duration = Duration::from_millis(500);
/// Between two looks at how much is done.
const LOOK: Duration = Duration::from_millis(10);

/// Where the node is to be found right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub intake: SocketAddr,
    pub admin: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Director {
    program: PathBuf,
    leads: Leads,
    log: PathBuf,
    address: watch::Sender<Option<Address>>,
    /// The shares of the work after which the node is killed, in ascending order.
    moments: Vec<f64>,
    random: Random,
}

impl Director {
    pub fn new(settings: &Settings, leads: Leads, log: PathBuf, address: watch::Sender<Option<Address>>) -> Director {
        let mut random = Random::seeded(settings.seed ^ 0xD1EC);
        // By work done and not by the clock: a slow machine sees as many kills in the middle of things as a fast one.
        let mut moments: Vec<f64> = (0..settings.kills).map(|_| 0.01 + random.unit() * 0.94).collect();
        moments.sort_by(f64::total_cmp);
        Director { program: settings.program.clone(), leads, log, address, moments, random }
    }

    /// Keeps the node running between kills. Returns only when it cannot be started, or ends without having been killed.
    pub async fn run(mut self, crm: Arc<Salesforce>, traffic: Arc<Traffic>, progress: Arc<Progress>) -> Error {
        // Half of the work is to take the leads in, half is to bring them out.
        let done = || {
            let taken_in = progress.delivered.load(Ordering::Relaxed) as f64 / traffic.deliveries().len().max(1) as f64;
            let brought_out = crm.truth().object("Lead").records as f64 / f64::from(traffic.leads().max(1));
            (taken_in + brought_out) / 2.0
        };
        for moment in std::mem::take(&mut self.moments) {
            let mut node = match self.start().await {
                Ok(node) => node,
                Err(error) => return error,
            };
            while done() < moment {
                if let Some(error) = ended(&mut node) {
                    return error;
                }
                tokio::time::sleep(LOOK).await;
            }
            tokio::time::sleep(LATE_MAX.mul_f64(self.random.unit())).await;
            self.address.send_replace(None);
            if let Err(error) = node.kill().await {
                return error;
            }
            progress.kills.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(DOWN_MAX.mul_f64(self.random.unit())).await;
        }
        let mut node = match self.start().await {
            Ok(node) => node,
            Err(error) => return error,
        };
        loop {
            if let Some(error) = ended(&mut node) {
                return error;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn start(&self) -> Result<Child, Error> {
        let node = Child::start(&self.program, &self.leads.config, &self.leads.data, &self.log).await?;
        self.address.send_replace(Some(Address { intake: node.intake, admin: node.admin }));
        Ok(node)
    }
}

fn ended(node: &mut Child) -> Option<Error> {
    node.ended().map(|how| Error::Wrong(format!("the node ended without having been killed: {how}")))
}
