//! Senders that do not give up: whatever is not answered with a yes is sent again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use sluice_simulator::load::Connection;
use sluice_simulator::senders::Traffic;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Progress;
use super::director::Address;
use crate::stage::Sender;

/// Senders at once.
const SENDERS: usize = 32;
/// How long an answer may take before the request counts as lost.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a sender waits before it sends again.
const AGAIN: Duration = Duration::from_millis(50);

/// What the senders saw.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Requests, repeats included.
    pub requests: u64,
    /// Requests that nobody answered.
    pub unanswered: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The event ids in all answers that said yes.
    pub acknowledged: HashSet<String>,
    /// Leads whose answers named different events; there must be none.
    pub renamed: u64,
    /// Whether every delivery was answered with a yes.
    pub complete: bool,
}

impl Sent {
    fn add(&mut self, other: Sent) {
        self.requests += other.requests;
        self.unanswered += other.unanswered;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.acknowledged.extend(other.acknowledged);
    }
}

#[derive(Debug, Deserialize)]
struct Yes {
    event_id: String,
}

#[derive(Clone, Debug)]
pub(super) struct Senders {
    sender: Sender,
    traffic: Arc<Traffic>,
    addresses: watch::Receiver<Option<Address>>,
    progress: Arc<Progress>,
}

impl Senders {
    pub fn new(
        sender: Sender,
        traffic: Arc<Traffic>,
        addresses: watch::Receiver<Option<Address>>,
        progress: Arc<Progress>,
    ) -> Senders {
        Senders { sender, traffic, addresses, progress }
    }

    /// Delivers everything, in the order and at the pace of the plan.
    pub async fn run(self) -> Sent {
        let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            senders.spawn(self.clone().deliver(next.clone(), started));
        }
        let mut sent = Sent::default();
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        while let Some(part) = senders.join_next().await {
            let Ok((part, answered)) = part else { continue };
            sent.add(part);
            for (lead, id) in answered {
                if names.get(&lead).is_some_and(|first| *first != id) {
                    sent.renamed += 1;
                }
                names.insert(lead, id);
            }
        }
        sent.complete = self.progress.delivered.load(Ordering::Relaxed) == self.traffic.deliveries().len() as u64;
        sent
    }

    async fn deliver(self, next: Arc<AtomicUsize>, started: Instant) -> (Sent, Vec<(u32, String)>) {
        let (mut sent, mut answered) = (Sent::default(), Vec::new());
        let mut connection: Option<(Address, Connection)> = None;
        let mut request = Vec::new();
        while let Some(delivery) = self.traffic.deliveries().get(next.fetch_add(1, Ordering::Relaxed)) {
            tokio::time::sleep_until(started + delivery.offset).await;
            request.clear();
            self.sender.write(&self.traffic.body(delivery.lead), &mut request);
            loop {
                match self.post(&mut connection, &request, &mut sent).await {
                    Some(id) => {
                        sent.acknowledged.insert(id.clone());
                        answered.push((delivery.lead, id));
                        self.progress.delivered.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    None => tokio::time::sleep(AGAIN).await,
                }
            }
        }
        (sent, answered)
    }

    /// One request. Answers the event's id if the answer was a yes.
    async fn post(
        &self,
        connection: &mut Option<(Address, Connection)>,
        request: &[u8],
        sent: &mut Sent,
    ) -> Option<String> {
        let address = (*self.addresses.borrow())?;
        sent.requests += 1;
        let kept = connection.take().filter(|(to, _)| *to == address);
        let exchange = async {
            let mut open = match kept {
                Some((_, open)) => open,
                None => Connection::open(address.intake).await?,
            };
            let answer = open.send(request).await?;
            let (status, closes) = (answer.status, answer.closes);
            let id = serde_json::from_slice::<Yes>(answer.body).ok().map(|yes| yes.event_id);
            Ok::<_, std::io::Error>((status, id, (!closes).then_some(open)))
        };
        match tokio::time::timeout(ANSWER_MAX, exchange).await {
            Ok(Ok((status, id, open))) => {
                *sent.statuses.entry(status).or_default() += 1;
                *connection = open.map(|open| (address, open));
                id.filter(|_| (200..300).contains(&status))
            }
            Ok(Err(_)) | Err(_) => {
                sent.unanswered += 1;
                None
            }
        }
    }
}

/// What the senders saw, if they came to an end.
pub(super) async fn end(sending: JoinHandle<Sent>) -> Option<Sent> {
    if sending.is_finished() {
        return sending.await.ok();
    }
    sending.abort();
    None
}
