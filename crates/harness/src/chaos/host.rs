//! The machine of the node, as the director sees it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::processes::{ChildProcess, DiskKind, HostOrder, HostReport, HostTask, Inspected, Role};
use super::{Address, ChaosSettings};
use crate::{ANY_PORT, Error, Leads};

/// Room on the disk of the node, apart from its leads: what it keeps aside, and its log at its longest.
const DISK_BYTES: u64 = 192 << 20;
const DISK_BYTES_A_LEAD: u64 = 8 << 10;

/// What gives a process mounts that nobody else sees: for root, and for everybody else where the system lets them.
const OWN_MOUNTS: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--map-root-user", "--mount"]];

/// A machine in a process of its own, with a node on it.
#[derive(Debug)]
pub(super) struct Host {
    part: ChildProcess,
    /// What the node's data lies on.
    pub disk: DiskKind,
    /// Whether that can be made to stand still.
    pub freezes: bool,
    /// Where senders reach the node.
    pub intake: SocketAddr,
    /// Where operators do.
    pub admin: Address,
    node: u32,
    directory: PathBuf,
}

impl Host {
    pub async fn open(settings: &ChaosSettings, leads: &Leads, directory: &Path) -> Result<Host, Error> {
        let within = own_mounts().await;
        let disk = directory.join("disk");
        std::fs::create_dir_all(&disk).map_err(Error::io(disk.display().to_string()))?;
        let task = HostTask {
            program: settings.program.clone(),
            config: leads.config.clone(),
            disk,
            disk_bytes: DISK_BYTES + u64::from(settings.leads) * DISK_BYTES_A_LEAD,
            own_mounts: within.is_some(),
            log: directory.join("node.log"),
            clock: directory.join("clock"),
        };
        let mut part = ChildProcess::start(&settings.program, within.unwrap_or_default(), Role::Host, &task).await?;
        match part.hear().await? {
            HostReport::Ready { disk, freezes } => {
                let directory = directory.to_owned();
                Ok(Host { part, disk, freezes, intake: ANY_PORT, admin: ANY_PORT, node: 0, directory })
            }
            other => Err(strange(&other)),
        }
    }

    /// Starts the node.
    pub async fn start(&mut self) -> Result<(), Error> {
        match self.part.ask(&HostOrder::Start).await? {
            HostReport::Up { intake, admin, process } => {
                (self.intake, self.admin, self.node) = (intake, admin, process);
                Ok(())
            }
            other => Err(strange(&other)),
        }
    }

    pub async fn order(&mut self, order: HostOrder) -> Result<(), Error> {
        match self.part.ask(&order).await? {
            HostReport::Done => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// How the node ended, if it did.
    pub async fn ended(&mut self) -> Result<Option<String>, Error> {
        match self.part.ask(&HostOrder::Look).await? {
            HostReport::Ended(how) => Ok(how),
            other => Err(strange(&other)),
        }
    }

    pub async fn still_up(&mut self) -> Result<(), Error> {
        let how = self.ended().await?;
        how.map_or(Ok(()), |how| Err(Error::Wrong(format!("the node ended without having been killed: {how}"))))
    }

    /// Ends the node, if there still is one; otherwise that is told elsewhere.
    pub async fn end_node(&mut self) {
        let _ = self.order(HostOrder::Kill).await;
    }

    /// Looks at what the node has left on its disk.
    pub async fn inspect(&mut self) -> Result<Inspected, Error> {
        match self.part.ask(&HostOrder::Inspect).await? {
            HostReport::Inspected(found) => Ok(*found),
            other => Err(strange(&other)),
        }
    }

    /// Leaves nothing behind. Without it all would end with its process as well, only a moment later.
    pub async fn clean_up(mut self) -> Result<(), Error> {
        let cleaned = self.order(HostOrder::CleanUp).await;
        if cleaned.is_err() {
            self.end_orphan();
        }
        cleaned
    }

    /// A node whose host was killed lives on, and so does its disk.
    fn end_orphan(&self) {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", self.node)).unwrap_or_default();
        // Its number may be somebody else's by now, its directory may not.
        let is_ours = String::from_utf8_lossy(&arguments).contains(&*self.directory.to_string_lossy());
        if let Some(node) = i32::try_from(self.node).ok().and_then(Pid::from_raw).filter(|_| is_ours) {
            let _ = kill_process(node, Signal::KILL);
        }
    }
}

fn strange(report: &HostReport) -> Error {
    match report {
        HostReport::Failed(why) => Error::Wrong(why.clone()),
        other => Error::Wrong(format!("the host of the run said something else: {other:?}")),
    }
}

async fn own_mounts() -> Option<&'static [&'static str]> {
    for words in OWN_MOUNTS {
        let mut command = tokio::process::Command::new(words[0]);
        command.args(&words[1..]).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().await.is_ok_and(|status| status.success()) {
            return Some(words);
        }
    }
    None
}
