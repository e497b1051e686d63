//! Supervises the sender processes and collects their reports.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::processes::{ChildProcess, Role, SendersCommand, SendersReport, SendersTask, Share};
use crate::Error;

/// Number of sender processes.
pub(super) const PROCESSES: usize = 4;

/// Totals of the senders.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Requests without a response.
    pub unanswered: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    pub accepted: HashSet<usize>,
    /// Event id of each lead.
    pub event_of_lead: BTreeMap<u32, String>,
    /// Responses with another event id than an earlier one of the same lead; must be 0.
    pub mismatched: u64,
}

impl Sent {
    /// Event ids of all accepted deliveries.
    pub(super) fn acknowledged(&self) -> HashSet<&str> {
        self.event_of_lead.values().map(String::as_str).collect()
    }

    fn record(&mut self, report: SendersReport, lead: u32) {
        self.requests += 1;
        match report.status {
            Some(status) => *self.statuses.entry(status).or_default() += 1,
            None => self.unanswered += 1,
        }
        let Some(event) = report.event else { return };
        self.accepted.insert(report.delivery);
        let first = self.event_of_lead.entry(lead).or_insert_with(|| event.clone());
        self.mismatched += u64::from(*first != event);
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
    limit: watch::Sender<usize>,
}

/// The sender processes. They end on drop.
#[derive(Debug)]
pub(super) struct Deliveries {
    shared: Arc<Shared>,
    kills: Vec<mpsc::Sender<oneshot::Sender<()>>>,
    supervisors: Mutex<JoinSet<Result<(), Error>>>,
}

impl Deliveries {
    pub(super) fn start(
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
            limit: watch::Sender::new(0),
        });
        let mut supervisors = JoinSet::new();
        let supervise = |number| {
            let (kill, kills) = mpsc::channel(1);
            supervisors.spawn(shared.clone().supervise(Share { number, of: PROCESSES }, kills));
            kill
        };
        let kills = (0..PROCESSES).map(supervise).collect();
        Deliveries { shared, kills, supervisors: Mutex::new(supervisors) }
    }

    /// Totals so far.
    pub(super) fn sent(&self) -> MutexGuard<'_, Sent> {
        self.shared.sent()
    }

    /// True once every delivery is accepted.
    pub(super) fn complete(&self) -> bool {
        self.sent().accepted.len() == self.shared.traffic.deliveries().len()
    }

    /// Share of accepted deliveries, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.sent().accepted.len() as f64 / self.shared.traffic.deliveries().len().max(1) as f64
    }

    /// Allows the senders to send this share of the plan.
    pub(super) fn allow_up_to(&self, share: f64) {
        let all = self.shared.traffic.deliveries().len();
        let limit = (share.min(1.0) * all as f64).ceil() as usize;
        self.shared.limit.send_if_modified(|before| std::mem::replace(before, limit.max(*before)) < limit);
    }

    /// Sends SIGKILL to one process; a new one replaces it.
    pub(super) async fn kill(&self, number: usize) -> Result<(), Error> {
        let (done, killed) = oneshot::channel();
        let _ = self.kills[number % PROCESSES].send(done).await;
        killed.await.map_err(|_| Error::Failed("a sender process ended before it was killed".to_owned()))
    }

    /// Error of a process that ended without being killed.
    pub(super) fn failed(&self) -> Option<Error> {
        let ended = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner).try_join_next()?;
        Some(match ended {
            Ok(Err(error)) => error,
            Ok(Ok(())) => Error::Failed("the senders process ended unexpectedly".to_owned()),
            Err(error) => Error::Failed(error.to_string()),
        })
    }
}

impl Shared {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one process running and records its reports.
    async fn supervise(
        self: Arc<Shared>,
        share: Share,
        mut kills: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Result<(), Error> {
        let record = |report: SendersReport| {
            let lead = self.traffic.deliveries().get(report.delivery).map_or(0, |delivery| delivery.lead);
            self.sent().record(report, lead);
        };
        loop {
            let task = SendersTask {
                config: self.config.clone(),
                intake: self.intake,
                traffic: self.settings.clone(),
                share,
                acknowledged: self.sent().accepted.iter().copied().filter(|delivery| share.has(*delivery)).collect(),
                since: self.started.elapsed(),
            };
            let mut process = ChildProcess::start(&self.program, &[], Role::Senders, &task).await?;
            let mut limit = self.limit.subscribe();
            limit.mark_changed();
            let killed = loop {
                tokio::select! {
                    report = process.receive() => record(report?),
                    changed = limit.changed() => match changed {
                        Ok(()) => {
                            let allowed = *limit.borrow_and_update();
                            process.send(&SendersCommand::SendUpTo(allowed)).await?;
                        }
                        Err(_) => return Ok(()),
                    },
                    killed = kills.recv() => match killed {
                        Some(killed) => break killed,
                        None => return Ok(()),
                    },
                }
            };
            process.kill().await?.into_iter().for_each(record);
            // The caller of `kill` may be gone.
            let _ = killed.send(());
        }
    }
}
