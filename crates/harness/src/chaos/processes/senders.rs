//! Senders that repeat each delivery until it is accepted.

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

use super::{Commands, report};
use crate::{Error, Leads, Sender};

/// Concurrent senders of one process.
const SENDERS: usize = 8;
/// Timeout of a request; after it the request counts as unanswered.
const RESPONSE_MAX: Duration = Duration::from_secs(10);
/// Delay before a repeated request.
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    /// Configuration with the credentials of the senders.
    pub config: PathBuf,
    pub intake: SocketAddr,
    pub traffic: TrafficSettings,
    pub share: Share,
    /// Deliveries of this share that an earlier process has completed.
    pub acknowledged: Vec<usize>,
    /// Time since the start of the plan.
    pub since: Duration,
}

/// Part of the plan that one process sends: every delivery with `delivery % of == number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::chaos) struct Share {
    pub number: usize,
    pub of: usize,
}

impl Share {
    pub(crate) fn has(self, delivery: usize) -> bool {
        delivery % self.of == self.number
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Command {
    /// Allows deliveries up to this one, exclusive.
    SendUpTo(usize),
}

/// Result of one request.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Report {
    pub delivery: usize,
    /// `None` if there was no response.
    pub status: Option<u16>,
    /// Event id, if the request was accepted.
    pub event: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    event_id: String,
}

#[derive(Clone, Debug)]
struct Senders {
    sender: Sender,
    traffic: Arc<Traffic>,
    intake: SocketAddr,
    /// Deliveries of this process; `next` is an index into it.
    mine: Arc<Vec<usize>>,
    next: Arc<AtomicUsize>,
    started: Instant,
    limit: watch::Receiver<usize>,
}

pub(super) async fn run(mut commands: Commands) -> Result<(), Error> {
    let Task { config, intake, traffic, share, acknowledged, since } = commands.task().await?;
    let leads = Leads { data: config.join("no-ledger"), config };
    let (traffic, done) = (Traffic::plan(traffic), acknowledged.into_iter().collect::<HashSet<usize>>());
    let is_mine = |delivery: &usize| share.has(*delivery) && !done.contains(delivery);
    let (allow, limit) = watch::channel(0);
    let senders = Senders {
        sender: leads.sender()?,
        mine: Arc::new((0..traffic.deliveries().len()).filter(is_mine).collect()),
        traffic: Arc::new(traffic),
        intake,
        next: Arc::default(),
        started: Instant::now() - since,
        limit,
    };
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        sending.spawn(senders.clone().deliver());
    }
    // The process stays after the last delivery: the controller treats its end as a failure.
    while let Some(Command::SendUpTo(delivery)) = commands.next().await? {
        allow.send_replace(delivery);
        while let Some(sent) = sending.try_join_next() {
            sent.map_err(|error| Error::Failed(error.to_string()))??;
        }
    }
    Ok(())
}

impl Senders {
    /// Sends deliveries one after the other, in the order and at the pace of the plan.
    async fn deliver(mut self) -> Result<(), Error> {
        let mut connection: Option<Connection> = None;
        let mut request = Vec::new();
        let mine = self.mine.clone();
        while let Some(number) = mine.get(self.next.fetch_add(1, Ordering::Relaxed)).copied() {
            if self.limit.wait_for(|limit| number < *limit).await.is_err() {
                return Ok(());
            }
            let delivery = self.traffic.deliveries()[number];
            tokio::time::sleep_until(self.started + delivery.offset).await;
            request.clear();
            self.sender.write(&self.traffic.body(delivery.lead), &mut request);
            loop {
                let (status, event) = self.post(&mut connection, &request).await;
                let accepted = event.is_some();
                report(&Report { delivery: number, status, event })?;
                if accepted {
                    break;
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
        Ok(())
    }

    /// Sends one request. Returns the status, and the event id if it was accepted.
    async fn post(&self, connection: &mut Option<Connection>, request: &[u8]) -> (Option<u16>, Option<String>) {
        let kept = connection.take();
        let exchange = async {
            let mut open = match kept {
                Some(open) => open,
                None => Connection::open(self.intake).await?,
            };
            let response = open.send(request).await?;
            let (status, closes) = (response.status, response.closes);
            let id = serde_json::from_slice::<Accepted>(response.body).ok().map(|accepted| accepted.event_id);
            Ok::<_, std::io::Error>((status, id, (!closes).then_some(open)))
        };
        match tokio::time::timeout(RESPONSE_MAX, exchange).await {
            Ok(Ok((status, id, open))) => {
                *connection = open;
                (Some(status), id.filter(|_| (200..300).contains(&status)))
            }
            Ok(Err(_)) | Err(_) => (None, None),
        }
    }
}
