//! Senders that do not give up: whatever is not answered with a yes is sent again.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_simulator::load::Connection;
use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Orders, report};
use crate::{Error, Leads, Sender};

/// Senders at once, in one process.
const SENDERS: usize = 8;
/// How long an answer may take before the request counts as lost.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a sender waits before it sends again.
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    /// The configuration that believes these senders.
    pub config: PathBuf,
    /// Where they send to.
    pub intake: SocketAddr,
    pub traffic: TrafficSettings,
    pub share: Share,
    /// Deliveries of this share that an earlier process has brought through.
    pub acknowledged: Vec<usize>,
    /// How long ago the plan began.
    pub since: Duration,
}

/// One of several processes that send the same plan together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::chaos) struct Share {
    pub number: usize,
    pub of: usize,
}

impl Share {
    pub fn has(self, delivery: usize) -> bool {
        delivery % self.of == self.number
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Order {
    /// Deliveries before this one may be sent.
    GoOnTo(usize),
}

/// One request, and what came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Report {
    pub delivery: usize,
    /// None when nobody answered.
    pub status: Option<u16>,
    /// The event that the answer names, if it was a yes.
    pub event: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Yes {
    event_id: String,
}

#[derive(Clone, Debug)]
struct Senders {
    sender: Sender,
    traffic: Arc<Traffic>,
    intake: SocketAddr,
    /// The deliveries of this process, and the next of them.
    mine: Arc<Vec<usize>>,
    next: Arc<AtomicUsize>,
    started: Instant,
    upto: watch::Receiver<usize>,
}

pub(super) async fn play(mut orders: Orders) -> Result<(), Error> {
    let Task { config, intake, traffic, share, acknowledged, since } = orders.task().await?;
    let leads = Leads { data: config.join("no-ledger"), config };
    let (traffic, done) = (Traffic::plan(traffic), acknowledged.into_iter().collect::<HashSet<usize>>());
    let is_mine = |delivery: &usize| share.has(*delivery) && !done.contains(delivery);
    let (allow, upto) = watch::channel(0);
    let senders = Senders {
        sender: leads.sender()?,
        mine: Arc::new((0..traffic.deliveries().len()).filter(is_mine).collect()),
        traffic: Arc::new(traffic),
        intake,
        next: Arc::default(),
        started: Instant::now() - since,
        upto,
    };
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        sending.spawn(senders.clone().deliver());
    }
    // When all is sent, they stay: an end would be a failure.
    while let Some(Order::GoOnTo(delivery)) = orders.next().await? {
        allow.send_replace(delivery);
        while let Some(sent) = sending.try_join_next() {
            sent.map_err(|error| Error::Wrong(error.to_string()))??;
        }
    }
    Ok(())
}

impl Senders {
    /// Delivers one after the other, in the order and at the pace of the plan.
    async fn deliver(mut self) -> Result<(), Error> {
        let mut connection: Option<Connection> = None;
        let mut request = Vec::new();
        let mine = self.mine.clone();
        while let Some(number) = mine.get(self.next.fetch_add(1, Ordering::Relaxed)).copied() {
            if self.upto.wait_for(|upto| number < *upto).await.is_err() {
                return Ok(());
            }
            let delivery = self.traffic.deliveries()[number];
            tokio::time::sleep_until(self.started + delivery.offset).await;
            request.clear();
            self.sender.write(&self.traffic.body(delivery.lead), &mut request);
            loop {
                let (status, event) = self.post(&mut connection, &request).await;
                let through = event.is_some();
                report(&Report { delivery: number, status, event })?;
                if through {
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
        Ok(())
    }

    /// One request. Answers the status, and the event's id if it was a yes.
    async fn post(&self, connection: &mut Option<Connection>, request: &[u8]) -> (Option<u16>, Option<String>) {
        let kept = connection.take();
        let exchange = async {
            let mut open = match kept {
                Some(open) => open,
                None => Connection::open(self.intake).await?,
            };
            let answer = open.send(request).await?;
            let (status, closes) = (answer.status, answer.closes);
            let id = serde_json::from_slice::<Yes>(answer.body).ok().map(|yes| yes.event_id);
            Ok::<_, std::io::Error>((status, id, (!closes).then_some(open)))
        };
        match tokio::time::timeout(ANSWER_MAX, exchange).await {
            Ok(Ok((status, id, open))) => {
                *connection = open;
                (Some(status), id.filter(|_| (200..300).contains(&status)))
            }
            Ok(Err(_)) | Err(_) => (None, None),
        }
    }
}
