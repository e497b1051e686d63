//! Senders that repeat, reorder and burst, for as long as they are let.

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

/// Senders at once.
const SENDERS: usize = 16;
/// Leads of one plan; plans follow each other without end.
const PLAN_LEADS: u32 = 2_000;
/// How often a lead is sent, on average, between once and five times.
const DELIVERIES_MEAN: u32 = 3;
/// How long a sender waits before it sends again.
const AGAIN: Duration = Duration::from_millis(100);

/// The senders, and what they did.
#[derive(Debug)]
pub(super) struct Senders {
    settings: DemoSettings,
    sender: Sender,
    target: SocketAddr,
    /// Different leads that were sent at least once.
    pub leads: AtomicU64,
    /// Requests.
    pub requests: AtomicU64,
    /// Jobs that were replayed; counted here since it is shown with the rest.
    pub replayed: AtomicU64,
}

impl Senders {
    pub fn new(settings: DemoSettings, sender: Sender, target: SocketAddr) -> Senders {
        let count = AtomicU64::default;
        Senders { settings, sender, target, leads: count(), requests: count(), replayed: count() }
    }

    /// Sends plan after plan. What was begun when told to stop is still answered.
    pub async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        for plan in 0u64.. {
            if *stop.borrow() {
                return;
            }
            let traffic = Arc::new(Traffic::plan(TrafficSettings {
                // Another seed makes other leads: no plan repeats those of an earlier one.
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
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// One request. Answers whether it was answered with a yes.
    async fn post(&self, connection: &mut Option<Connection>, request: &[u8]) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => Connection::open(self.target).await,
        };
        let Ok(mut open) = open else { return false };
        match open.send(request).await {
            Ok(answer) => {
                let (status, closes) = (answer.status, answer.closes);
                *connection = (!closes).then_some(open);
                (200..300).contains(&status)
            }
            Err(_) => false,
        }
    }
}
