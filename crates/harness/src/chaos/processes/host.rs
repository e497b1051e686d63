//! Host of the node: owns its disk, clock and process, and applies the faults to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_domain::time::Time;
use sluice_domain::trace::SpanId;
use sluice_ledger::Inspector;
use sluice_server::root_key;

use super::disk::{Disk, DiskKind};
use super::{Commands, report};
use crate::shifted_clock::set_offset;
use crate::{Error, Leads, NodeProcess, StartOptions};

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    pub program: PathBuf,
    pub config: PathBuf,
    /// Mount point of the disk: an empty directory.
    pub disk: PathBuf,
    pub disk_bytes: u64,
    /// True if the process has its own mount namespace.
    pub own_mounts: bool,
    pub log: PathBuf,
    /// File with the offset of the wall clock, in milliseconds.
    pub clock: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Command {
    /// Starts the node.
    Start,
    /// Sets the wall clock of the node, running or not.
    SetClock {
        offset_ms: i64,
    },
    /// Reports whether the node has ended.
    Poll,
    /// Sends SIGKILL to the node.
    Kill,
    /// Sends SIGSTOP to the node.
    Suspend,
    /// Sends SIGCONT to the node.
    Resume,
    /// Limits the size of files of the node, in bytes: writes beyond it fail.
    LimitFiles(Option<u64>),
    /// Allocates the free space of the disk.
    Fill,
    Free,
    /// Blocks every write for this long.
    Freeze(Duration),
    /// Verifies the ledger file; the node must have ended.
    Inspect,
    /// Kills the node and unmounts the disk.
    CleanUp,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Report {
    /// The first report.
    Ready {
        disk: DiskKind,
        freezes: bool,
    },
    Up {
        intake: SocketAddr,
        admin: SocketAddr,
        /// Of the admin API. The pipe of the report is private to the run.
        token: String,
        process: u32,
    },
    Done,
    /// Exit status of the node, if it has ended.
    Ended(Option<String>),
    Inspected(Box<Inspected>),
    Failed(String),
}

/// Totals of the ledger file, read after the end of the node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileCounts {
    /// Checks made by `sluice verify`.
    pub checks: u32,
    /// Accepted requests, duplicates included, as `sluice balance` counts them.
    pub accepted: u64,
    /// Accepted requests that are done.
    pub done: u64,
    /// Accepted requests that are neither in the ledger nor pruned.
    pub remainder: u64,
}

/// Result of [`Command::Inspect`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::chaos) struct Inspected {
    pub counts: FileCounts,
    /// Violated invariants.
    pub broken: Vec<String>,
    /// Outcome of each attempt, by the span id that the destination received.
    pub attempts: BTreeMap<u64, String>,
}

#[derive(Debug)]
struct Host {
    task: Task,
    leads: Leads,
    disk: Disk,
    node: Option<NodeProcess>,
}

pub(super) async fn run(mut commands: Commands) -> Result<(), Error> {
    let task: Task = commands.task().await?;
    let disk = Disk::make(&task.disk, task.disk_bytes, task.own_mounts).await;
    let leads = Leads { config: task.config.clone(), data: task.disk.join("data") };
    set_offset(&task.clock, 0)?;
    report(&Report::Ready { disk: disk.kind, freezes: disk.freezes })?;
    let mut host = Host { task, leads, disk, node: None };
    while let Some(command) = commands.next().await? {
        let result = host.execute(command).await.unwrap_or_else(|error| Report::Failed(error.to_string()));
        report(&result)?;
    }
    Ok(())
}

impl Host {
    async fn execute(&mut self, command: Command) -> Result<Report, Error> {
        match command {
            Command::Start => {
                let Task { program, log, clock, .. } = &self.task;
                let options = StartOptions { clock_offset: Some(clock), ..StartOptions::default() };
                let node = NodeProcess::start(program, &self.leads.config, &self.leads.data, log, options).await?;
                let token = node.token.expose().to_owned();
                let up = Report::Up { intake: node.intake, admin: node.admin, token, process: node.id() };
                self.node = Some(node);
                return Ok(up);
            }
            Command::SetClock { offset_ms } => set_offset(&self.task.clock, offset_ms)?,
            Command::Poll => return Ok(Report::Ended(self.node()?.ended())),
            Command::Kill => match self.node.take() {
                Some(node) => node.kill().await?,
                None => return Err(no_node()),
            },
            Command::Suspend => self.node()?.suspend()?,
            Command::Resume => self.node()?.resume()?,
            Command::LimitFiles(bytes) => self.node()?.limit_files(bytes)?,
            Command::Fill => self.disk.fill()?,
            Command::Free => self.disk.free()?,
            Command::Freeze(time) => self.disk.freeze(time).await?,
            Command::CleanUp => {
                if let Some(node) = self.node.take() {
                    node.kill().await?;
                }
                self.disk.unmount().await?;
            }
            Command::Inspect => return self.inspect().map(|found| Report::Inspected(Box::new(found))),
        }
        Ok(Report::Done)
    }

    fn node(&mut self) -> Result<&mut NodeProcess, Error> {
        self.node.as_mut().ok_or_else(no_node)
    }

    /// Does what `sluice verify` and `sluice balance` do.
    fn inspect(&self) -> Result<Inspected, Error> {
        let root_key = root_key::find_existing(&self.leads.data).map_err(|error| Error::Failed(error.to_string()))?;
        let file = Inspector::open(&self.leads.data)?.with_root_key(root_key)?;
        let (found, lines) = (file.verify(|_, _| {})?, file.balance(Time(0))?);
        let broken =
            found.broken.into_iter().map(|broken| format!("{}. {}: {}", broken.number, broken.invariant, broken.row));
        let attempts = file.calls()?.into_iter().map(|tried| (SpanId::of_attempt(tried.job, tried.n).0, tried.outcome));
        let counts = FileCounts {
            checks: found.checks,
            accepted: lines.iter().map(|line| line.accepted + line.duplicate).sum(),
            done: lines.iter().map(|line| line.done).sum(),
            remainder: lines.iter().map(|line| line.remainder.unsigned_abs()).sum(),
        };
        Ok(Inspected { counts, broken: broken.collect(), attempts: attempts.collect() })
    }
}

fn no_node() -> Error {
    Error::Failed("no node is running".to_owned())
}
