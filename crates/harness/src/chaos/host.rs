//! Client of the host process, which owns the node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::ChaosSettings;
use super::processes::{ChildProcess, DiskKind, HostCommand, HostReport, HostTask, Inspected, Role};
use crate::{ANY_PORT, Api, Error, Leads};

/// Size of the disk without the leads: reserve file and write-ahead log at its longest.
const DISK_BYTES: u64 = 192 << 20;
const DISK_BYTES_PER_LEAD: u64 = 8 << 10;

/// Commands that start a process in its own mount namespace: as root, and for other users where the system allows it.
const MOUNT_NAMESPACE: [&[&str]; 2] = [&["unshare", "--mount"], &["unshare", "--map-root-user", "--mount"]];

/// The host process and its node.
#[derive(Debug)]
pub(super) struct Host {
    process: ChildProcess,
    pub disk: DiskKind,
    /// True if the disk can be frozen.
    pub freezes: bool,
    pub intake: SocketAddr,
    pub admin: Api,
    /// Process id of the node.
    node: u32,
    directory: PathBuf,
}

impl Host {
    pub(super) async fn open(settings: &ChaosSettings, leads: &Leads, directory: &Path) -> Result<Host, Error> {
        let wrapper = mount_namespace().await;
        let disk = directory.join("disk");
        std::fs::create_dir_all(&disk).map_err(Error::io(disk.display().to_string()))?;
        let task = HostTask {
            program: settings.program.clone(),
            config: leads.config.clone(),
            disk,
            disk_bytes: DISK_BYTES + u64::from(settings.leads) * DISK_BYTES_PER_LEAD,
            own_mounts: wrapper.is_some(),
            log: directory.join("node.log"),
            clock: directory.join("clock"),
        };
        let mut process =
            ChildProcess::start(&settings.program, wrapper.unwrap_or_default(), Role::Host, &task).await?;
        match process.receive().await? {
            HostReport::Ready { disk, freezes } => {
                let directory = directory.to_owned();
                Ok(Host { process, disk, freezes, intake: ANY_PORT, admin: Api::open(ANY_PORT), node: 0, directory })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Starts the node and waits until it listens.
    pub(super) async fn start(&mut self) -> Result<(), Error> {
        match self.process.request(&HostCommand::Start).await? {
            HostReport::Up { intake, admin, token, process } => {
                let admin = Api::with_token(admin, token.into());
                (self.intake, self.admin, self.node) = (intake, admin, process);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn execute(&mut self, command: HostCommand) -> Result<(), Error> {
        match self.process.request(&command).await? {
            HostReport::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Exit status of the node, if it has ended.
    pub(super) async fn ended(&mut self) -> Result<Option<String>, Error> {
        match self.process.request(&HostCommand::Poll).await? {
            HostReport::Ended(how) => Ok(how),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn ensure_running(&mut self) -> Result<(), Error> {
        let how = self.ended().await?;
        how.map_or(Ok(()), |how| Err(Error::Failed(format!("the node ended without being killed: {how}"))))
    }

    /// Kills the node, if it runs. A node that ended before is reported by [`Host::ensure_running`].
    pub(super) async fn kill_node(&mut self) {
        let _ = self.execute(HostCommand::Kill).await;
    }

    /// Verifies the ledger file; the node must have ended.
    pub(super) async fn inspect(&mut self) -> Result<Inspected, Error> {
        match self.process.request(&HostCommand::Inspect).await? {
            HostReport::Inspected(found) => Ok(*found),
            other => Err(unexpected(&other)),
        }
    }

    /// Kills the node and unmounts its disk. The end of the host process does the same, with a delay.
    pub(super) async fn clean_up(mut self) -> Result<(), Error> {
        let result = self.execute(HostCommand::CleanUp).await;
        if result.is_err() {
            self.kill_orphan();
        }
        result
    }

    /// Kills the node of a host that was killed.
    fn kill_orphan(&self) {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", self.node)).unwrap_or_default();
        // The process id may have been reused; the directory is unique.
        let is_ours = String::from_utf8_lossy(&arguments).contains(&*self.directory.to_string_lossy());
        if let Some(node) = i32::try_from(self.node).ok().and_then(Pid::from_raw).filter(|_| is_ours) {
            let _ = kill_process(node, Signal::KILL);
        }
    }
}

fn unexpected(report: &HostReport) -> Error {
    match report {
        HostReport::Failed(why) => Error::Failed(why.clone()),
        other => Error::Failed(format!("unexpected report of the host process: {other:?}")),
    }
}

async fn mount_namespace() -> Option<&'static [&'static str]> {
    for words in MOUNT_NAMESPACE {
        let mut command = tokio::process::Command::new(words[0]);
        command.args(&words[1..]).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().await.is_ok_and(|status| status.success()) {
            return Some(words);
        }
    }
    None
}
