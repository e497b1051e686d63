//! The machine of the node: its disk, its clock and its process. Whatever is done to the node is done here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_domain::time::Time;
use sluice_ledger::Inspector;

use super::disk::{Disk, DiskKind};
use super::{Orders, report};
use crate::shifted_clock::set_offset;
use crate::{Child, Error, Leads};
use sluice_server::work;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    /// The program to run.
    pub program: PathBuf,
    pub config: PathBuf,
    /// An empty directory: what the disk is mounted at.
    pub disk: PathBuf,
    pub disk_bytes: u64,
    /// Whether mounts made here are seen by nobody else.
    pub own_mounts: bool,
    pub log: PathBuf,
    /// The file that says how far off the clock is.
    pub clock: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Order {
    /// Starts the node.
    Start,
    /// Sets its clock, whether it runs or not.
    SetClock { offset_ms: i64 },
    /// Whether it still runs.
    Look,
    /// `kill -9`.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    GoOn,
    /// No file may grow beyond this any more: every write fails.
    LimitFiles(Option<u64>),
    /// Takes the room that is left on the disk.
    Fill,
    /// Gives it back.
    Free,
    /// Lets every write wait.
    StandStill(Duration),
    /// Looks at the file of the ledger, with no node running.
    Inspect,
    /// Ends the node, and takes the disk away.
    CleanUp,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Report {
    /// The first answer.
    Ready {
        disk: DiskKind,
        freezes: bool,
    },
    /// The node listens.
    Up {
        intake: SocketAddr,
        admin: SocketAddr,
        process: u32,
    },
    Done,
    /// How the node ended, if it did.
    Ended(Option<String>),
    Inspected(Box<Inspected>),
    Failed(String),
}

/// What the ledger's file says by itself, once the node is gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileBook {
    /// Checks of `sluice verify`.
    pub checks: u32,
    /// Requests that were accepted, repeats included, by `sluice balance`.
    pub accepted: u64,
    /// Of these, done.
    pub done: u64,
    /// What neither is there nor was pruned.
    pub remainder: u64,
}

/// A look at the ledger's file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::chaos) struct Inspected {
    pub book: FileBook,
    /// Rows that are not as they must be.
    pub broken: Vec<String>,
    /// Attempts that were written down: the span that each is known by at the destination, and what came of it.
    pub attempts: BTreeMap<u64, String>,
}

#[derive(Debug)]
struct Host {
    task: Task,
    leads: Leads,
    disk: Disk,
    node: Option<Child>,
}

pub(super) async fn play(mut orders: Orders) -> Result<(), Error> {
    let task: Task = orders.task().await?;
    let disk = Disk::make(&task.disk, task.disk_bytes, task.own_mounts).await;
    let leads = Leads { config: task.config.clone(), data: task.disk.join("data") };
    set_offset(&task.clock, 0)?;
    report(&Report::Ready { disk: disk.kind, freezes: disk.freezes })?;
    let mut host = Host { task, leads, disk, node: None };
    while let Some(order) = orders.next().await? {
        let answer = host.act(order).await.unwrap_or_else(|error| Report::Failed(error.to_string()));
        report(&answer)?;
    }
    Ok(())
}

impl Host {
    async fn act(&mut self, order: Order) -> Result<Report, Error> {
        match order {
            Order::Start => {
                let Task { program, log, clock, .. } = &self.task;
                let node = Child::start_at(program, &self.leads.config, &self.leads.data, log, Some(clock)).await?;
                let up = Report::Up { intake: node.intake, admin: node.admin, process: node.id() };
                self.node = Some(node);
                return Ok(up);
            }
            Order::SetClock { offset_ms } => set_offset(&self.task.clock, offset_ms)?,
            Order::Look => return Ok(Report::Ended(self.node()?.ended())),
            Order::Kill => match self.node.take() {
                Some(node) => node.kill().await?,
                None => return Err(no_node()),
            },
            Order::Stop => self.node()?.stop()?,
            Order::GoOn => self.node()?.go_on()?,
            Order::LimitFiles(bytes) => self.node()?.limit_files(bytes)?,
            Order::Fill => self.disk.fill()?,
            Order::Free => self.disk.free()?,
            Order::StandStill(time) => self.disk.stand_still(time).await?,
            Order::CleanUp => {
                if let Some(node) = self.node.take() {
                    node.kill().await?;
                }
                self.disk.unmount().await?;
            }
            Order::Inspect => return self.inspect().map(|found| Report::Inspected(Box::new(found))),
        }
        Ok(Report::Done)
    }

    fn node(&mut self) -> Result<&mut Child, Error> {
        self.node.as_mut().ok_or_else(no_node)
    }

    /// As `sluice verify` and `sluice balance` do.
    fn inspect(&self) -> Result<Inspected, Error> {
        let file = Inspector::open(&self.leads.data)?;
        let (found, lines) = (file.verify(|_, _| {})?, file.balance(Time(0))?);
        let broken =
            found.broken.into_iter().map(|broken| format!("{}. {}: {}", broken.number, broken.invariant, broken.row));
        let attempts =
            file.tries()?.into_iter().map(|tried| (sluice_domain::run::span(tried.job, tried.n), tried.outcome));
        let book = FileBook {
            checks: found.checks,
            accepted: lines.iter().map(|line| line.accepted).sum(),
            done: lines.iter().map(|line| line.done).sum(),
            remainder: lines.iter().map(|line| line.remainder.unsigned_abs()).sum(),
        };
        Ok(Inspected { book, broken: broken.collect(), attempts: attempts.collect() })
    }
}

fn no_node() -> Error {
    Error::Wrong("there is no node".to_owned())
}
