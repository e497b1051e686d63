//! What the senders have brought through, as they say it; and the senders kept alive.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::processes::{ChildProcess, Role, SendersOrder, SendersReport, SendersTask, Share};
use crate::Error;

/// Processes that send.
pub(super) const PROCESSES: usize = 4;

/// What the senders saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Requests, repeats included.
    pub requests: u64,
    /// Requests that nobody answered.
    pub unanswered: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Deliveries that were answered with a yes.
    pub through: HashSet<usize>,
    /// The event that each lead became.
    pub names: BTreeMap<u32, String>,
    /// Answers that named another event than an earlier one; there must be none.
    pub renamed: u64,
}

impl Sent {
    /// The events in all answers that said yes.
    pub fn acknowledged(&self) -> HashSet<&str> {
        self.names.values().map(String::as_str).collect()
    }

    fn enter(&mut self, report: SendersReport, lead: u32) {
        self.requests += 1;
        match report.status {
            Some(status) => *self.statuses.entry(status).or_default() += 1,
            None => self.unanswered += 1,
        }
        let Some(event) = report.event else { return };
        self.through.insert(report.delivery);
        let first = self.names.entry(lead).or_insert_with(|| event.clone());
        self.renamed += u64::from(*first != event);
    }
}

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    config: PathBuf,
    intake: SocketAddr,
    settings: TrafficSettings,
    traffic: Arc<Traffic>,
    sent: Mutex<Sent>,
    started: Instant,
    upto: watch::Sender<usize>,
}

/// The processes that send. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Deliveries {
    shared: Arc<Shared>,
    kills: Vec<mpsc::Sender<oneshot::Sender<()>>>,
    kept: Mutex<JoinSet<Result<(), Error>>>,
}

impl Deliveries {
    pub fn start(
        program: PathBuf,
        config: PathBuf,
        intake: SocketAddr,
        settings: TrafficSettings,
        traffic: Arc<Traffic>,
    ) -> Deliveries {
        let shared = Arc::new(Shared {
            program,
            config,
            intake,
            settings,
            traffic,
            sent: Mutex::default(),
            started: Instant::now(),
            upto: watch::Sender::new(0),
        });
        let mut kept = JoinSet::new();
        let keep = |number| {
            let (kill, orders) = mpsc::channel(1);
            kept.spawn(shared.clone().keep(Share { number, of: PROCESSES }, orders));
            kill
        };
        let kills = (0..PROCESSES).map(keep).collect();
        Deliveries { shared, kills, kept: Mutex::new(kept) }
    }

    /// What they saw so far.
    pub fn sent(&self) -> MutexGuard<'_, Sent> {
        self.shared.sent()
    }

    /// Whether everything was answered with a yes.
    pub fn complete(&self) -> bool {
        self.sent().through.len() == self.shared.traffic.deliveries().len()
    }

    /// The share that was answered with a yes.
    pub fn share(&self) -> f64 {
        self.sent().through.len() as f64 / self.shared.traffic.deliveries().len().max(1) as f64
    }

    /// Lets them send so much of the plan.
    pub fn go_on_to(&self, share: f64) {
        let all = self.shared.traffic.deliveries().len();
        let upto = (share.min(1.0) * all as f64).ceil() as usize;
        self.shared.upto.send_if_modified(|before| std::mem::replace(before, upto.max(*before)) < upto);
    }

    /// `kill -9` for one of them; another takes its place.
    pub async fn kill(&self, number: usize) -> Result<(), Error> {
        let (done, killed) = oneshot::channel();
        let _ = self.kills[number % PROCESSES].send(done).await;
        killed.await.map_err(|_| Error::Wrong("a sender that was to be killed is gone".to_owned()))
    }

    /// Why one of them is gone without having been killed.
    pub fn failed(&self) -> Option<Error> {
        let ended = self.kept.lock().unwrap_or_else(PoisonError::into_inner).try_join_next()?;
        Some(match ended {
            Ok(Err(error)) => error,
            Ok(Ok(())) => Error::Wrong("the senders of the run ended by themselves".to_owned()),
            Err(error) => Error::Wrong(error.to_string()),
        })
    }
}

impl Shared {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one process running, and enters what it says.
    async fn keep(
        self: Arc<Shared>,
        share: Share,
        mut kills: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Result<(), Error> {
        let enter = |report: SendersReport| {
            let lead = self.traffic.deliveries().get(report.delivery).map_or(0, |delivery| delivery.lead);
            self.sent().enter(report, lead);
        };
        loop {
            let task = SendersTask {
                config: self.config.clone(),
                intake: self.intake,
                traffic: self.settings.clone(),
                share,
                acknowledged: self.sent().through.iter().copied().filter(|delivery| share.has(*delivery)).collect(),
                since: self.started.elapsed(),
            };
            let mut part = ChildProcess::start(&self.program, &[], Role::Senders, &task).await?;
            let mut upto = self.upto.subscribe();
            upto.mark_changed();
            let killed = loop {
                tokio::select! {
                    report = part.hear() => enter(report?),
                    changed = upto.changed() => match changed {
                        Ok(()) => {
                            let go_on_to = *upto.borrow_and_update();
                            part.tell(&SendersOrder::GoOnTo(go_on_to)).await?;
                        }
                        Err(_) => return Ok(()),
                    },
                    killed = kills.recv() => match killed {
                        Some(killed) => break killed,
                        None => return Ok(()),
                    },
                }
            };
            part.kill().await?.into_iter().for_each(enter);
            // Whoever ordered it may be gone.
            let _ = killed.send(());
        }
    }
}
