//! Child processes of a chaos run, started from this program and controlled through lines of JSON.
//!
//! The first line on standard input is the task; each further line is a command. Reports go to standard output. A process
//! ends at the end of its standard input, so that none outlives the controller.

mod crm;
mod disk;
mod host;
mod proxy;
mod senders;

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::Error;
pub(super) use crm::Task as CrmTask;
pub use disk::DiskKind;
pub use host::FileCounts;
pub(super) use host::{Command as HostCommand, Inspected, Report as HostReport, Task as HostTask};
pub(super) use proxy::{Command as ProxyCommand, Report as ProxyReport, Task as ProxyTask};
pub(super) use senders::{Command as SendersCommand, Report as SendersReport, Share, Task as SendersTask};

/// Hidden command that runs one of the processes.
pub const COMMAND: &str = "chaos-part";
/// Timeout of one command: longer than the start of a node may take.
const REPORT_MAX: Duration = Duration::from_secs(150);
/// Commands buffered by a process; the controller waits for most reports anyway.
const COMMANDS_MAX: usize = 64;

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sends leads; repeats each delivery until it is accepted.
    Senders,
    /// Forwards connections and cuts some of them.
    Proxy,
    /// The simulated Salesforce.
    Crm,
    /// Owns the disk, the clock and the process of the node.
    Host,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Senders => "senders",
            Role::Proxy => "proxy",
            Role::Crm => "crm",
            Role::Host => "host",
        }
    }
}

/// First report of a process that listens.
#[derive(Clone, Copy, Debug, Serialize, serde::Deserialize)]
pub(super) struct Listening {
    pub address: std::net::SocketAddr,
}

/// Handle of a child process. On drop its standard input ends and it shuts down: a killed host could not kill its node.
#[derive(Debug)]
pub(super) struct ChildProcess {
    role: Role,
    process: tokio::process::Child,
    commands: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    /// Reports of earlier commands that no caller waits for any more.
    unread: u32,
}

impl ChildProcess {
    /// Starts a process and sends its task. `wrapper` is a command that starts it, such as `unshare --mount`.
    pub(super) async fn start(
        program: &Path,
        wrapper: &[&str],
        role: Role,
        task: &impl Serialize,
    ) -> Result<ChildProcess, Error> {
        let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command
            .args(words)
            .args([COMMAND, role.name()])
            // Ctrl-C at the terminal reaches only the controller, which stops the processes in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().map_err(Error::io(format!("the {} process", role.name())))?;
        let (Some(commands), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::Failed(format!("the {} process has no pipes", role.name())));
        };
        let mut child = ChildProcess { role, process, commands, reports: BufReader::new(reports).lines(), unread: 0 };
        child.send(task).await?;
        Ok(child)
    }

    /// Sends a command and waits for its report.
    pub(super) async fn request<R: DeserializeOwned>(&mut self, command: &impl Serialize) -> Result<R, Error> {
        let timed_out = Error::Failed(format!("the {} process does not respond", self.role.name()));
        let exchange = async {
            // An earlier request may have been cancelled before its report arrived.
            while self.unread > 0 {
                self.line().await?;
                self.unread -= 1;
            }
            self.unread += 1;
            self.send(command).await?;
            let report = self.receive().await;
            self.unread -= 1;
            report
        };
        tokio::time::timeout(REPORT_MAX, exchange).await.unwrap_or(Err(timed_out))
    }

    /// Sends a command that has no report.
    pub(super) async fn send(&mut self, command: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(command).map_err(|error| Error::Failed(error.to_string()))?;
        line.push(b'\n');
        match self.commands.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Waits for the next report.
    pub(super) async fn receive<R: DeserializeOwned>(&mut self) -> Result<R, Error> {
        let line = self.line().await?;
        serde_json::from_str(&line)
            .map_err(|error| Error::Failed(format!("unexpected report of the {} process: {error}", self.role.name())))
    }

    async fn line(&mut self) -> Result<String, Error> {
        match self.reports.next_line().await {
            Ok(Some(line)) => Ok(line),
            Ok(None) | Err(_) => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> Error {
        let how = match tokio::time::timeout(Duration::from_secs(1), self.process.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its standard input".to_owned(),
        };
        Error::Failed(format!("the {} process ended unexpectedly: {how}", self.role.name()))
    }

    /// Sends SIGKILL. Returns the reports that were still unread.
    pub(super) async fn kill<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Error> {
        self.process.kill().await.map_err(Error::io("kill -9"))?;
        let mut unread = Vec::new();
        while let Ok(Some(line)) = self.reports.next_line().await {
            // The last line may be incomplete.
            unread.extend(serde_json::from_str(&line).ok());
        }
        Ok(unread)
    }
}

/// Standard input of a process: its task, then commands.
#[derive(Debug)]
pub(super) struct Commands {
    lines: mpsc::Receiver<String>,
}

impl Commands {
    /// The next command; `None` once the controller is gone.
    async fn next<C: DeserializeOwned>(&mut self) -> Result<Option<C>, Error> {
        let Some(line) = self.lines.recv().await else { return Ok(None) };
        serde_json::from_str(&line).map(Some).map_err(|error| Error::Failed(format!("unknown command: {error}")))
    }

    async fn task<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.next().await?.ok_or_else(|| {
            Error::Failed("no task on standard input; this command is started by `sluice chaos`".to_owned())
        })
    }
}

/// Sends a report to the controller.
fn report(report: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(report).map_err(|error| Error::Failed(error.to_string()))?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Error::io("a report to the controller"))
}

/// Runs a process until the controller is gone.
pub async fn run(role: Role) -> Result<(), Error> {
    let (sender, lines) = mpsc::channel(COMMANDS_MAX);
    let (controller, mut gone) = watch::channel(());
    // A thread, since a read of standard input cannot be cancelled.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_err() || line.is_ok_and(|line| sender.blocking_send(line).is_err()) {
                break;
            }
        }
        drop(controller);
    });
    // If the controller dies while the node is suspended, the kernel sends SIGHUP to their process group. The host must
    // survive it to kill the node.
    let _hangups = signal(SignalKind::hangup()).map_err(Error::io("a signal"))?;
    let commands = Commands { lines };
    let running = async {
        match role {
            Role::Senders => senders::run(commands).await,
            Role::Proxy => proxy::run(commands).await,
            Role::Crm => crm::run(commands).await,
            Role::Host => host::run(commands).await,
        }
    };
    tokio::select! {
        result = running => result,
        _ = gone.changed() => Ok(()),
    }
}
