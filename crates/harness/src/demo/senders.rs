//! Senders that repeat and reorder requests and send bursts, until they are stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sluice_simulator::load::Connection;
use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::DemoSettings;
use crate::Sender;

const SENDERS: usize = 16;
/// Leads per plan; a new plan follows each.
const PLAN_LEADS: u32 = 2_000;
/// Mean deliveries per lead, of one to five.
const DELIVERIES_MEAN: u32 = 3;
/// Delay before a repeated request.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The senders and their counts.
#[derive(Debug)]
pub(super) struct Senders {
    settings: DemoSettings,
    sender: Sender,
    target: SocketAddr,
    /// Distinct leads sent.
    pub leads: AtomicU64,
    pub requests: AtomicU64,
    /// Replayed jobs; kept here with the other counts.
    pub replayed: AtomicU64,
}

impl Senders {
    pub(super) fn new(settings: DemoSettings, sender: Sender, target: SocketAddr) -> Senders {
        let count = AtomicU64::default;
        Senders { settings, sender, target, leads: count(), requests: count(), replayed: count() }
    }

    /// Sends plan after plan until `stop`; requests in flight are completed.
    pub(super) async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        for plan in 0u64.. {
            if *stop.borrow() {
                return;
            }
            let traffic = Arc::new(Traffic::plan(TrafficSettings {
                // A new seed per plan: no plan repeats the leads of another.
                seed: self.settings.seed.wrapping_add(plan),
                leads: PLAN_LEADS,
                deliveries_per_second: self.settings.leads_per_second.saturating_mul(DELIVERIES_MEAN).max(1),
                ..TrafficSettings::default()
            }));
            let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
            let mut senders = JoinSet::new();
            for _ in 0..SENDERS {
                senders.spawn(self.clone().deliver(traffic.clone(), next.clone(), started, stop.clone()));
            }
            while senders.join_next().await.is_some() {}
        }
    }

    async fn deliver(
        self: Arc<Self>,
        traffic: Arc<Traffic>,
        next: Arc<AtomicUsize>,
        started: Instant,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut connection = None;
        let mut request = Vec::new();
        while let Some(delivery) = traffic.deliveries().get(next.fetch_add(1, Ordering::Relaxed)) {
            tokio::select! {
                () = tokio::time::sleep_until(started + delivery.offset) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if delivery.nth == 1 {
                self.leads.fetch_add(1, Ordering::Relaxed);
            }
            request.clear();
            self.sender.write(&traffic.body(delivery.lead), &mut request);
            while !self.post(&mut connection, &request).await {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Sends one request. Returns true if it was accepted.
    async fn post(&self, connection: &mut Option<Connection>, request: &[u8]) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => Connection::open(self.target).await,
        };
        let Ok(mut open) = open else { return false };
        match open.send(request).await {
            Ok(response) => {
                let (status, closes) = (response.status, response.closes);
                *connection = (!closes).then_some(open);
                (200..300).contains(&status)
            }
            Err(_) => false,
        }
    }
}
