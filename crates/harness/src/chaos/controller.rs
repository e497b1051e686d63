//! Starts the node, does things to it and to those around it when nobody expects them, and starts it again.

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
use super::probe::{Knock, Prober};
use super::processes::{DiskKind, HostOrder};
use super::proxies::{Crm, Way};
use super::{Address, ChaosSettings, Progress};
use crate::{Api, Error};

/// How soon after its share of the work is done trouble comes, at the latest.
const LATE_MAX: Duration = Duration::from_millis(300);
/// How long the node stays down, at the most.
const DOWN_MAX: Duration = Duration::from_millis(500);
/// How long the node or its disk stands still, its disk is full, or the CRM is away, at the most.
const AWAY_MAX: Duration = Duration::from_millis(1_500);
/// How long a node may take until it notices what is wrong with its disk.
const NOTICED_MAX: Duration = Duration::from_secs(60);
/// The senders are let so much of the work ahead of the next trouble, so that it always finds something to spoil. Some leads wait
/// for a person until the end, and this must be more than those.
const AHEAD: f64 = 0.05;
/// Trouble does not wait longer than this for work that does not get on.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// How far the clock jumps forward over the whole run: less than anything is kept.
const FORWARD_MS_MAX: u64 = 12 * 3_600_000;
/// How far it jumps back, at the most. What was due later by the old time waits that much longer.
const BACK_MS_MAX: u64 = 2_000;
/// Between two looks at how much is done.
const LOOK: Duration = Duration::from_millis(20);

/// Everybody whom the director has something to say to.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub to_node: Arc<Way>,
    pub to_crm: Arc<Way>,
    pub crm: Arc<Crm>,
    pub deliveries: Arc<Deliveries>,
    pub progress: Arc<Progress>,
    /// Where the node is to be found right now.
    pub address: Arc<watch::Sender<Option<Address>>>,
}

#[derive(Debug)]
pub(super) struct Director {
    host: Host,
    around: Around,
    knocker: Prober,
    troubles: Vec<(f64, ChaosFault)>,
    random: Random,
    leads: u32,
    clock_jumps: bool,
    /// How far one jump may go forward.
    forward_ms: u64,
    clock_offset_ms: i64,
}

impl Director {
    /// `wanted` is what can be done on this machine.
    pub fn new(settings: &ChaosSettings, wanted: FaultCounts, host: Host, around: Around, knocker: Prober) -> Director {
        let mut random = Random::seeded(settings.seed ^ 0xD1EC);
        let jumps = wanted.kills + wanted.disk_failures + wanted.disk_full + wanted.clock_sets;
        Director {
            host,
            around,
            knocker,
            troubles: wanted.plan(&mut random),
            random,
            leads: settings.leads,
            clock_jumps: settings.clock_jumps,
            forward_ms: FORWARD_MS_MAX / u64::from(jumps.max(1)),
            clock_offset_ms: 0,
        }
    }

    /// Keeps the node running between troubles until told to stop, and gives its machine back. An error says why that came to
    /// an end before: the node cannot be started, ended without a reason, or a part is gone.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> (Host, Option<Error>) {
        let ended = tokio::select! {
            directed = self.direct() => match directed {
                Ok(never) => match never {},
                Err(error) => Some(error),
            },
            _ = stop.wait_for(|stop| *stop) => None,
        };
        self.around.address.send_replace(None);
        (self.host, ended)
    }

    async fn direct(&mut self) -> Result<std::convert::Infallible, Error> {
        self.start().await?;
        for (moment, trouble) in std::mem::take(&mut self.troubles) {
            self.around.deliveries.go_on_to(moment + AHEAD);
            self.wait_for(moment).await?;
            self.rest(LATE_MAX).await;
            self.host.still_up().await?;
            if self.make(trouble).await? {
                self.around.progress.troubles().count(trouble);
            }
        }
        self.around.deliveries.go_on_to(1.0);
        self.around.progress.troubles_over.store(true, Ordering::Relaxed);
        loop {
            self.host.still_up().await?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until that share of the work is done. Half of the work is to take the leads in, half is to bring them out.
    async fn wait_for(&mut self, moment: f64) -> Result<(), Error> {
        let (mut before, mut moved) = (0.0, Instant::now());
        loop {
            let records = self.around.progress.records.load(Ordering::Relaxed) as f64;
            let done = (self.around.deliveries.share() + records / f64::from(self.leads.max(1))) / 2.0;
            if done != before {
                (before, moved) = (done, Instant::now());
            }
            if done >= moment || moved.elapsed() > IDLE_MAX {
                return Ok(());
            }
            self.host.still_up().await?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Answers whether it came to pass.
    async fn make(&mut self, trouble: ChaosFault) -> Result<bool, Error> {
        match trouble {
            ChaosFault::Kill => {
                self.hide().await?;
                self.host.order(HostOrder::Kill).await?;
                self.rest(DOWN_MAX).await;
                self.start_after().await?;
            }
            ChaosFault::Stop => {
                self.host.order(HostOrder::Stop).await?;
                self.rest(AWAY_MAX).await;
                self.host.order(HostOrder::GoOn).await?;
            }
            ChaosFault::DiskFails => return self.let_disk_fail().await,
            ChaosFault::DiskFull if self.host.disk == DiskKind::Shared => return self.let_disk_fail().await,
            ChaosFault::DiskFull => return self.let_disk_fill().await,
            ChaosFault::SlowDisk => {
                let time = self.some_of(AWAY_MAX);
                // All may be at rest: somebody brings something to write.
                let knock = self.knocker.clone().knock(self.host.intake);
                let (stood_still, _) = tokio::join!(self.host.order(HostOrder::StandStill(time)), knock);
                stood_still?;
            }
            ChaosFault::ClockSet => self.set_clock().await?,
            ChaosFault::Outage => {
                self.around.to_crm.lead_to(None).await?;
                self.rest(AWAY_MAX).await;
                self.around.to_crm.lead_to(Some(self.around.crm.address)).await?;
            }
            ChaosFault::SenderKilled => {
                let number = self.random.below(PROCESSES as u64) as usize;
                self.around.deliveries.kill(number).await?;
            }
        }
        Ok(true)
    }

    /// No write goes through until the node has ended.
    async fn let_disk_fail(&mut self) -> Result<bool, Error> {
        self.host.order(HostOrder::LimitFiles(Some(1))).await?;
        let give_up = Instant::now() + NOTICED_MAX;
        while self.host.ended().await?.is_none() {
            if Instant::now() > give_up {
                self.host.order(HostOrder::LimitFiles(None)).await?;
                return Ok(false);
            }
            // All may be at rest: somebody orders something that is written down. Not a sender, since a node that has just been
            // short of room turns senders away without trying.
            let order = json!({ "target": "replays", "reason": "the disk fails", "actor": "chaos" });
            let _ = Api(self.host.admin).post("/api/v1/pause", &order).await;
            tokio::time::sleep(LOOK).await;
        }
        self.hide().await?;
        self.start_after().await?;
        Ok(true)
    }

    /// No room until the node has turned a sender away, and some time more.
    async fn let_disk_fill(&mut self) -> Result<bool, Error> {
        let give_up = Instant::now() + NOTICED_MAX;
        let noticed = loop {
            // Again, since room that was meant for something else may have become free.
            self.host.order(HostOrder::Fill).await?;
            if self.knocker.clone().knock(self.host.intake).await == Knock::NoRoom {
                break true;
            }
            if Instant::now() > give_up || self.host.ended().await?.is_some() {
                break false;
            }
            tokio::time::sleep(LOOK).await;
        };
        self.rest(AWAY_MAX).await;
        self.host.order(HostOrder::Free).await?;
        Ok(noticed)
    }

    fn some_of(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.random.unit())
    }

    async fn rest(&mut self, max: Duration) {
        tokio::time::sleep(self.some_of(max)).await;
    }

    async fn set_clock(&mut self) -> Result<(), Error> {
        self.clock_offset_ms += match self.random.below(3) {
            0 => -(self.random.below(BACK_MS_MAX) as i64),
            _ => self.random.below(self.forward_ms) as i64,
        };
        self.host.order(HostOrder::SetClock { offset_ms: self.clock_offset_ms }).await
    }

    /// Starts the node again, perhaps at another time.
    async fn start_after(&mut self) -> Result<(), Error> {
        if self.clock_jumps {
            self.set_clock().await?;
            self.around.progress.wakes.fetch_add(1, Ordering::Relaxed);
        }
        self.start().await
    }

    async fn start(&mut self) -> Result<(), Error> {
        self.host.start().await?;
        self.around.to_node.lead_to(Some(self.host.intake)).await?;
        self.around.address.send_replace(Some(self.host.admin));
        Ok(())
    }

    /// Nobody finds the node until it is started again.
    async fn hide(&self) -> Result<(), Error> {
        self.around.address.send_replace(None);
        self.around.to_node.lead_to(None).await
    }
}
