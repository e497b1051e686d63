//! Controller of a chaos run: starts the node, injects faults into it and its surroundings, and restarts it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use sluice_domain::random::Random;
use tokio::sync::watch;
use tokio::time::Instant;

use super::deliveries::{Deliveries, PROCESSES};
use super::faults::{ChaosFault, FaultCounts};
use super::host::Host;
use super::probe::{ProbeResult, Prober};
use super::processes::{DiskKind, HostCommand};
use super::proxies::{Crm, ProxyClient};
use super::{ChaosSettings, Progress};
use crate::{Api, Error};

/// Longest delay between the share of work and its fault.
const LATE_MAX: Duration = Duration::from_millis(300);
/// Longest time between a kill and the restart.
const DOWN_MAX: Duration = Duration::from_millis(500);
/// Longest duration of a suspended node, a frozen or full disk, or an unreachable CRM.
const FAULT_MAX: Duration = Duration::from_millis(1_500);
/// Time within which the node must notice a failed or full disk.
const NOTICED_MAX: Duration = Duration::from_secs(60);
/// Share of the work that the senders may be ahead of the next fault, so that every fault meets load. It must exceed the
/// share of leads that wait for an operator until the end.
const AHEAD: f64 = 0.05;
/// A fault is injected after this time without progress.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Total of all forward jumps of the clock: less than any retention.
const FORWARD_MS_MAX: u64 = 12 * 3_600_000;
/// Longest backward jump. Jobs that were due later wait that much longer.
const BACK_MS_MAX: u64 = 2_000;
/// Interval between two checks of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Handles of the processes of a run, and its progress.
#[derive(Clone, Debug)]
pub(super) struct RunHandles {
    pub to_node: Arc<ProxyClient>,
    pub to_crm: Arc<ProxyClient>,
    pub crm: Arc<Crm>,
    pub deliveries: Arc<Deliveries>,
    pub progress: Arc<Progress>,
    /// Admin address of the node; `None` while it is down.
    pub address: Arc<watch::Sender<Option<Api>>>,
}

#[derive(Debug)]
pub(super) struct Controller {
    host: Host,
    handles: RunHandles,
    prober: Prober,
    faults: Vec<(f64, ChaosFault)>,
    random: Random,
    leads: u32,
    clock_jumps: bool,
    /// Longest forward jump.
    forward_ms: u64,
    clock_offset_ms: i64,
}

impl Controller {
    /// `wanted` holds only faults that this machine supports.
    pub(super) fn new(
        settings: &ChaosSettings,
        wanted: FaultCounts,
        host: Host,
        handles: RunHandles,
        prober: Prober,
    ) -> Controller {
        let mut random = Random::seeded(settings.seed ^ 0xD1EC);
        let jumps = wanted.kills + wanted.disk_failures + wanted.disk_full + wanted.clock_sets;
        Controller {
            host,
            handles,
            prober,
            faults: wanted.plan(&mut random),
            random,
            leads: settings.leads,
            clock_jumps: settings.clock_jumps,
            forward_ms: FORWARD_MS_MAX / u64::from(jumps.max(1)),
            clock_offset_ms: 0,
        }
    }

    /// Injects the faults and keeps the node running until `stop`. Returns the host, and the error that ended the run
    /// early: the node cannot be started, ended unexpectedly, or a process of the run is gone.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) -> (Host, Option<Error>) {
        let ended = tokio::select! {
            result = self.inject_all() => match result {
                Ok(never) => match never {},
                Err(error) => Some(error),
            },
            _ = stop.wait_for(|stop| *stop) => None,
        };
        self.handles.address.send_replace(None);
        (self.host, ended)
    }

    async fn inject_all(&mut self) -> Result<std::convert::Infallible, Error> {
        self.start().await?;
        for (moment, fault) in std::mem::take(&mut self.faults) {
            self.handles.deliveries.allow_up_to(moment + AHEAD);
            self.wait_for_share(moment).await?;
            self.pause_up_to(LATE_MAX).await;
            self.host.ensure_running().await?;
            if self.inject(fault).await? {
                self.handles.progress.faults().count(fault);
            }
        }
        self.handles.deliveries.allow_up_to(1.0);
        self.handles.progress.faults_over.store(true, Ordering::Relaxed);
        loop {
            self.host.ensure_running().await?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until this share of the work is done: half of the work is accepting leads, half is delivering them.
    async fn wait_for_share(&mut self, moment: f64) -> Result<(), Error> {
        let (mut before, mut moved) = (0.0, Instant::now());
        loop {
            let records = self.handles.progress.records.load(Ordering::Relaxed) as f64;
            let done = (self.handles.deliveries.share() + records / f64::from(self.leads.max(1))) / 2.0;
            if done != before {
                (before, moved) = (done, Instant::now());
            }
            if done >= moment || moved.elapsed() > IDLE_MAX {
                return Ok(());
            }
            self.host.ensure_running().await?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns false if the fault had no visible effect.
    async fn inject(&mut self, fault: ChaosFault) -> Result<bool, Error> {
        match fault {
            ChaosFault::Kill => {
                self.disconnect().await?;
                self.host.execute(HostCommand::Kill).await?;
                self.pause_up_to(DOWN_MAX).await;
                self.restart().await?;
            }
            ChaosFault::Stop => {
                self.host.execute(HostCommand::Suspend).await?;
                self.pause_up_to(FAULT_MAX).await;
                self.host.execute(HostCommand::Resume).await?;
            }
            ChaosFault::DiskFails => return self.fail_disk().await,
            ChaosFault::DiskFull if self.host.disk == DiskKind::Shared => return self.fail_disk().await,
            ChaosFault::DiskFull => return self.fill_disk().await,
            ChaosFault::SlowDisk => {
                let time = self.random_part_of(FAULT_MAX);
                // The node may be idle: the probe causes a write.
                let probe = self.prober.clone().probe(self.host.intake);
                let (frozen, _) = tokio::join!(self.host.execute(HostCommand::Freeze(time)), probe);
                frozen?;
            }
            ChaosFault::ClockSet => self.set_clock().await?,
            ChaosFault::Outage => {
                self.handles.to_crm.set_upstream(None).await?;
                self.pause_up_to(FAULT_MAX).await;
                self.handles.to_crm.set_upstream(Some(self.handles.crm.address)).await?;
            }
            ChaosFault::SenderKilled => {
                let number = self.random.below(PROCESSES as u64) as usize;
                self.handles.deliveries.kill(number).await?;
            }
        }
        Ok(true)
    }

    /// Fails every write until the node has ended.
    async fn fail_disk(&mut self) -> Result<bool, Error> {
        self.host.execute(HostCommand::LimitFiles(Some(1))).await?;
        let give_up = Instant::now() + NOTICED_MAX;
        while self.host.ended().await?.is_none() {
            if Instant::now() > give_up {
                self.host.execute(HostCommand::LimitFiles(None)).await?;
                return Ok(false);
            }
            // The node may be idle: a pause causes a write. A request of a sender would not, since a node that was just short
            // of space rejects senders without a write.
            let request = json!({ "target": "replays", "reason": "the disk fails", "actor": "chaos" });
            let _ = self.host.admin.post("/api/v1/pause", &request).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.disconnect().await?;
        self.restart().await?;
        Ok(true)
    }

    /// Keeps the disk full until the node has rejected a request for it, and some time more.
    async fn fill_disk(&mut self) -> Result<bool, Error> {
        let give_up = Instant::now() + NOTICED_MAX;
        let noticed = loop {
            // Repeated, since space may have become free.
            self.host.execute(HostCommand::Fill).await?;
            if self.prober.clone().probe(self.host.intake).await == ProbeResult::DiskFull {
                break true;
            }
            if Instant::now() > give_up || self.host.ended().await?.is_some() {
                break false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        self.pause_up_to(FAULT_MAX).await;
        self.host.execute(HostCommand::Free).await?;
        Ok(noticed)
    }

    fn random_part_of(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.random.unit())
    }

    async fn pause_up_to(&mut self, max: Duration) {
        tokio::time::sleep(self.random_part_of(max)).await;
    }

    async fn set_clock(&mut self) -> Result<(), Error> {
        self.clock_offset_ms += match self.random.below(3) {
            0 => -(self.random.below(BACK_MS_MAX) as i64),
            _ => self.random.below(self.forward_ms) as i64,
        };
        self.host.execute(HostCommand::SetClock { offset_ms: self.clock_offset_ms }).await
    }

    /// Restarts the node, after a clock jump if these are enabled.
    async fn restart(&mut self) -> Result<(), Error> {
        if self.clock_jumps {
            self.set_clock().await?;
            self.handles.progress.clock_jumps.fetch_add(1, Ordering::Relaxed);
        }
        self.start().await
    }

    async fn start(&mut self) -> Result<(), Error> {
        self.host.start().await?;
        self.handles.to_node.set_upstream(Some(self.host.intake)).await?;
        self.handles.address.send_replace(Some(self.host.admin.clone()));
        Ok(())
    }

    /// Makes the node unreachable until the next start.
    async fn disconnect(&self) -> Result<(), Error> {
        self.handles.address.send_replace(None);
        self.handles.to_node.set_upstream(None).await
    }
}
