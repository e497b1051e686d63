//! Starts the node, does things to it when nobody expects them, and starts it again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use sluice_domain::random::Random;
use sluice_simulator::Salesforce;
use sluice_simulator::senders::Traffic;
use tokio::sync::watch;
use tokio::time::Instant;

use super::proxy::Proxy;
use super::{Progress, Settings};
use crate::stage::{Api, Child, Error, Leads};

/// How soon after its share of the work is done trouble comes, at the latest.
const LATE_MAX: Duration = Duration::from_millis(300);
/// How long the node stays down, at the most.
const DOWN_MAX: Duration = Duration::from_millis(500);
/// How long the node is stopped, or the CRM is away, at the most.
const AWAY_MAX: Duration = Duration::from_millis(1_500);
/// How long a node with a broken disk may take until it writes something, and ends.
const DISK_FAILS_MAX: Duration = Duration::from_secs(20);
/// How far the clock jumps forward over the whole run: less than anything is kept.
const FORWARD_MS_MAX: u64 = 12 * 3_600_000;
/// How far it jumps back, at the most. What was due later by the old time waits that much longer.
const BACK_MS_MAX: u64 = 2_000;
/// Between two looks at how much is done.
const LOOK: Duration = Duration::from_millis(10);

/// Where the node is to be found right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Through the proxy.
    pub intake: SocketAddr,
    pub admin: SocketAddr,
}

/// What is done to the node.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// `kill -9`.
    Kill,
    /// SIGSTOP, and SIGCONT some time later.
    Stop,
    /// No file may grow: the next write fails, and the node must end by itself.
    DiskFails,
    /// Nobody reaches the CRM for some time.
    Outage,
}

/// The proxies in front of the node and of the CRM.
#[derive(Debug)]
pub(super) struct Ways {
    pub intake: Proxy,
    pub crm: Proxy,
}

#[derive(Debug)]
pub(super) struct Director {
    program: PathBuf,
    leads: Leads,
    log: PathBuf,
    ways: Arc<Ways>,
    address: watch::Sender<Option<Address>>,
    /// What happens after which share of the work, in ascending order.
    troubles: Vec<(f64, Trouble)>,
    random: Random,
    clock_jumps: bool,
    jumps: u64,
    clock_offset_ms: i64,
}

impl Director {
    pub fn new(
        settings: &Settings,
        leads: Leads,
        log: PathBuf,
        ways: Arc<Ways>,
        address: watch::Sender<Option<Address>>,
    ) -> Director {
        let mut random = Random::seeded(settings.seed ^ 0xD1EC);
        let all = [
            (Trouble::Kill, settings.kills),
            (Trouble::Stop, settings.stops),
            (Trouble::DiskFails, settings.disk_failures),
            (Trouble::Outage, settings.outages),
        ];
        // By work done and not by the clock: a slow machine sees as much trouble in the middle of things as a fast one.
        let mut troubles: Vec<(f64, Trouble)> = all
            .into_iter()
            .flat_map(|(trouble, count)| std::iter::repeat_n(trouble, count as usize))
            .map(|trouble| (0.01 + random.unit() * 0.94, trouble))
            .collect();
        troubles.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Director {
            program: settings.program.clone(),
            leads,
            log,
            ways,
            address,
            troubles,
            random,
            clock_jumps: settings.clock_jumps,
            jumps: u64::from(settings.kills + settings.disk_failures),
            clock_offset_ms: 0,
        }
    }

    /// Keeps the node running between troubles. Returns only when it cannot be started, or ends without a reason.
    pub async fn run(mut self, crm: Arc<Salesforce>, traffic: Arc<Traffic>, progress: Arc<Progress>) -> Error {
        match self.direct(&crm, &traffic, &progress).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn direct(
        &mut self,
        crm: &Salesforce,
        traffic: &Traffic,
        progress: &Progress,
    ) -> Result<std::convert::Infallible, Error> {
        // Half of the work is to take the leads in, half is to bring them out.
        let done = || {
            let taken_in = progress.delivered.load(Ordering::Relaxed) as f64 / traffic.deliveries().len().max(1) as f64;
            let brought_out = crm.truth().object("Lead").records as f64 / f64::from(traffic.leads().max(1));
            (taken_in + brought_out) / 2.0
        };
        let mut node = self.start().await?;
        for (moment, trouble) in std::mem::take(&mut self.troubles) {
            while done() < moment {
                still_up(&mut node)?;
                tokio::time::sleep(LOOK).await;
            }
            self.rest(LATE_MAX).await;
            still_up(&mut node)?;
            match trouble {
                Trouble::Kill => {
                    self.hide();
                    node.kill().await?;
                    progress.kills.fetch_add(1, Ordering::Relaxed);
                    self.rest(DOWN_MAX).await;
                    node = self.start_after(progress).await?;
                }
                Trouble::Stop => {
                    node.stop()?;
                    self.rest(AWAY_MAX).await;
                    node.go_on()?;
                    progress.stops.fetch_add(1, Ordering::Relaxed);
                }
                Trouble::DiskFails => {
                    node.limit_files(Some(1))?;
                    // All may be at rest by now: somebody writes something, so that the disk is noticed.
                    let order = json!({ "target": "replays", "reason": "the disk fails", "actor": "chaos" });
                    let _ = Api(node.admin).post("/api/v1/pause", &order).await;
                    if ends(&mut node).await {
                        self.hide();
                        progress.disk_failures.fetch_add(1, Ordering::Relaxed);
                        node = self.start_after(progress).await?;
                    } else {
                        node.limit_files(None)?;
                    }
                }
                Trouble::Outage => {
                    self.ways.crm.lead_to(None);
                    self.rest(AWAY_MAX).await;
                    self.ways.crm.lead_to(Some(crm.address()));
                    progress.outages.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        progress.troubles_over.store(true, Ordering::Relaxed);
        loop {
            still_up(&mut node)?;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn rest(&mut self, max: Duration) {
        tokio::time::sleep(max.mul_f64(self.random.unit())).await;
    }

    /// Starts the node again, perhaps at another time.
    async fn start_after(&mut self, progress: &Progress) -> Result<Child, Error> {
        if self.clock_jumps {
            progress.clock_jumps.fetch_add(1, Ordering::Relaxed);
            self.clock_offset_ms += match self.random.below(3) {
                0 => -(self.random.below(BACK_MS_MAX) as i64),
                _ => self.random.below(FORWARD_MS_MAX / self.jumps.max(1)) as i64,
            };
        }
        self.start().await
    }

    async fn start(&self) -> Result<Child, Error> {
        let (config, data) = (&self.leads.config, &self.leads.data);
        let node = Child::start_at(&self.program, config, data, &self.log, self.clock_offset_ms).await?;
        self.ways.intake.lead_to(Some(node.intake));
        self.address.send_replace(Some(Address { intake: self.ways.intake.address, admin: node.admin }));
        Ok(node)
    }

    /// Nobody finds the node until it is started again.
    fn hide(&self) {
        self.ways.intake.lead_to(None);
        self.address.send_replace(None);
    }
}

fn still_up(node: &mut Child) -> Result<(), Error> {
    let how = node.ended();
    how.map_or(Ok(()), |how| Err(Error::Wrong(format!("the node ended without having been killed: {how}"))))
}

/// Whether it ends by itself before long.
async fn ends(node: &mut Child) -> bool {
    let give_up = Instant::now() + DISK_FAILS_MAX;
    while Instant::now() < give_up {
        if node.ended().is_some() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}
