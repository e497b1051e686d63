//! The parts of a run: processes of their own, made from this very program, that the director talks to in lines of JSON.
//!
//! The first line that a part hears is its task; each further line is an order. It answers on standard output. A part ends when
//! its standard input does, so that none outlives the director.

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
pub use host::FileBook;
pub(super) use host::{Inspected, Order as HostOrder, Report as HostReport, Task as HostTask};
pub(super) use proxy::{Order as ProxyOrder, Report as ProxyReport, Task as ProxyTask};
pub(super) use senders::{Order as SendersOrder, Report as SendersReport, Share, Task as SendersTask};

/// The hidden command that runs a part.
pub const COMMAND: &str = "chaos-part";
/// How long a part may take to do as it is told: as long as a node may take to start, and some more.
const ANSWER_MAX: Duration = Duration::from_secs(150);
/// Orders that wait to be heard; the director waits for most answers anyway.
const ORDERS_MAX: usize = 64;

/// What a part can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sends leads, again and again until each delivery is answered with a yes.
    Senders,
    /// Hands connections on and cuts some of them.
    Proxy,
    /// The simulated Salesforce.
    Crm,
    /// The machine of the node: its disk, its clock and its process.
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

/// Where a part listens.
#[derive(Clone, Copy, Debug, Serialize, serde::Deserialize)]
pub(super) struct Listening {
    pub address: std::net::SocketAddr,
}

/// A part, as the director holds it. When this is dropped, the part hears the end of its orders, and ends in order: a host that
/// was killed could not end its node any more.
#[derive(Debug)]
pub(super) struct ChildProcess {
    role: Role,
    process: tokio::process::Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    /// Answers that nobody has waited for.
    owed: u32,
}

impl ChildProcess {
    /// Starts a part and gives it its task. `within` is a command that it is run by, such as one that makes a namespace.
    pub async fn start(
        program: &Path,
        within: &[&str],
        role: Role,
        task: &impl Serialize,
    ) -> Result<ChildProcess, Error> {
        let mut words = within.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command
            .args(words)
            .args([COMMAND, role.name()])
            // A Ctrl-C at the terminal is for the director, who ends them in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().map_err(Error::io(format!("the {} of the run", role.name())))?;
        let (Some(orders), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::Wrong(format!("the {} of the run cannot be talked to", role.name())));
        };
        let mut part = ChildProcess { role, process, orders, reports: BufReader::new(reports).lines(), owed: 0 };
        part.tell(task).await?;
        Ok(part)
    }

    /// Orders something and waits for the answer.
    pub async fn ask<R: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<R, Error> {
        let silent = Error::Wrong(format!("the {} of the run does not answer", self.role.name()));
        let asked = async {
            // Whoever asked before may have been told to stop.
            while self.owed > 0 {
                self.line().await?;
                self.owed -= 1;
            }
            self.owed += 1;
            self.tell(order).await?;
            let heard = self.hear().await;
            self.owed -= 1;
            heard
        };
        tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or(Err(silent))
    }

    /// Orders something that is not answered.
    pub async fn tell(&mut self, order: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(order).map_err(|error| Error::Wrong(error.to_string()))?;
        line.push(b'\n');
        match self.orders.write_all(&line).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    /// The next thing that it says.
    pub async fn hear<R: DeserializeOwned>(&mut self) -> Result<R, Error> {
        let line = self.line().await?;
        serde_json::from_str(&line)
            .map_err(|error| Error::Wrong(format!("the {} of the run said something else: {error}", self.role.name())))
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
            Err(_) => "it does not listen any more".to_owned(),
        };
        Error::Wrong(format!("the {} of the run ended by itself: {how}", self.role.name()))
    }

    /// `kill -9`. Answers what it had said by then and nobody has heard.
    pub async fn kill<R: DeserializeOwned>(mut self) -> Result<Vec<R>, Error> {
        self.process.kill().await.map_err(Error::io("kill -9"))?;
        let mut unheard = Vec::new();
        while let Ok(Some(line)) = self.reports.next_line().await {
            // The last line may be half a line.
            unheard.extend(serde_json::from_str(&line).ok());
        }
        Ok(unheard)
    }
}

/// What a part hears: its task, then orders.
#[derive(Debug)]
pub(super) struct Orders {
    lines: mpsc::Receiver<String>,
}

impl Orders {
    /// The next line; none once the director is gone.
    async fn next<O: DeserializeOwned>(&mut self) -> Result<Option<O>, Error> {
        let Some(line) = self.lines.recv().await else { return Ok(None) };
        serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| Error::Wrong(format!("an order is not understood: {error}")))
    }

    async fn task<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.next().await?.ok_or_else(|| Error::Wrong("a part of a chaos run needs a director".to_owned()))
    }
}

/// Says something to the director.
fn report(report: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(report).map_err(|error| Error::Wrong(error.to_string()))?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Error::io("a report to the director"))
}

/// Runs a part until the director is gone.
pub async fn play(role: Role) -> Result<(), Error> {
    let (heard, lines) = mpsc::channel(ORDERS_MAX);
    let (director, mut gone) = watch::channel(());
    // A thread, since reading standard input cannot be given up.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_err() || line.is_ok_and(|line| heard.blocking_send(line).is_err()) {
                break;
            }
        }
        drop(director);
    });
    // When the director dies while the node is stopped, the system hangs up on the group of both. That must not end the host
    // before it has ended the node.
    let _hangups = signal(SignalKind::hangup()).map_err(Error::io("a signal"))?;
    let orders = Orders { lines };
    let playing = async {
        match role {
            Role::Senders => senders::play(orders).await,
            Role::Proxy => proxy::play(orders).await,
            Role::Crm => crm::play(orders).await,
            Role::Host => host::play(orders).await,
        }
    };
    tokio::select! {
        played = playing => played,
        _ = gone.changed() => Ok(()),
    }
}
