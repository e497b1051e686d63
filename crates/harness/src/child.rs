//! A node as a child process: it can be killed, and its memory is measured on its own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use sluice_domain::verify::SecretValue;

use crate::api::token_of;
use crate::{ANY_PORT, Error, chaos};

/// Time until the node must accept events; a ledger with millions of jobs takes seconds to open.
const START_MAX: Duration = Duration::from_secs(120);
/// Interval between two checks for it.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Lines of its log in the error when it does not start.
const LOG_LINES_SHOWN: usize = 20;

/// A running node. It is killed on drop.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    process: tokio::process::Child,
    pub intake: SocketAddr,
    pub admin: SocketAddr,
    /// Token of its admin API.
    pub token: SecretValue,
}

/// The file `node.json`, which a node writes into its data directory.
#[derive(Debug, Deserialize)]
struct NodeFile {
    admin: String,
    intake: String,
    pid: u32,
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    pub resident_kib: u64,
    /// Largest resident size so far.
    pub peak_kib: u64,
}

impl Memory {
    /// Reads `/proc`; `None` where it is missing.
    pub(crate) fn of(process: u32) -> Option<Memory> {
        Memory::parse(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Memory> {
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        Some(Memory { resident_kib: kib("VmRSS:")?, peak_kib: kib("VmHWM:")? })
    }

    /// Combines two measurements: the larger peak, the later resident size.
    pub(crate) fn then(self, later: Memory) -> Memory {
        Memory { resident_kib: later.resident_kib, peak_kib: self.peak_kib.max(later.peak_kib) }
    }
}

/// How a node is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartOptions<'a> {
    /// Its wall clock is shifted by the milliseconds in this file.
    pub clock_offset: Option<&'a Path>,
    pub log_level: &'static str,
}

impl Default for StartOptions<'_> {
    fn default() -> Self {
        StartOptions { clock_offset: None, log_level: "warn" }
    }
}

impl NodeProcess {
    /// Starts `program up` and waits until it listens. Appends its log to `log`.
    pub(crate) async fn start(
        program: &Path,
        config: &Path,
        data: &Path,
        log: &Path,
        options: StartOptions<'_>,
    ) -> Result<NodeProcess, Error> {
        let StartOptions { clock_offset, log_level } = options;
        let node_file = data.join("node.json");
        // A killed process leaves it behind.
        let _ = std::fs::remove_file(&node_file);
        let out = File::options().create(true).append(true).open(log).map_err(Error::io(log.display().to_string()))?;
        // With SIGXFSZ ignored, a write beyond the file size limit fails with an error instead of killing the process.
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", r#"trap '' XFSZ && exec "$0" "$@""#]).arg(program);
        // The environment may hold the settings of another node.
        let is_setting =
            |name: &OsStr| ["SLUICE_", "OTEL_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            command.env_remove(name);
        }
        let start = match clock_offset {
            None => vec![OsStr::new("up")],
            Some(file) => {
                vec![OsStr::new(chaos::NODE_COMMAND), OsStr::new(chaos::CLOCK_OFFSET_OPTION), file.as_os_str()]
            }
        };
        let any_port = ANY_PORT.to_string();
        command
            .args(["--log", log_level])
            .args(start)
            .args(["--watch", "false", "--intake", &any_port, "--admin", &any_port, "--data"])
            .arg(data)
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(out))
            .kill_on_drop(true);
        let started = Instant::now();
        let mut process = command.spawn().map_err(Error::io(program.display().to_string()))?;
        loop {
            if let Some(node) = read_node_file(&node_file, process.id()) {
                let (intake, admin) = (address(&node.intake)?, address(&node.admin)?);
                return Ok(NodeProcess { process, intake, admin, token: token_of(data)? });
            }
            let ended = process.try_wait().map_err(Error::io("the node"))?;
            if ended.is_some() || started.elapsed() > START_MAX {
                let how = ended.map_or_else(
                    || format!("did not listen within {START_MAX:?}"),
                    |status| format!("ended: {status}"),
                );
                return Err(Error::Failed(format!("the node {how}\n{}", last_lines(log))));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Process id; 0 once it has ended.
    pub(crate) fn id(&self) -> u32 {
        self.process.id().unwrap_or(0)
    }

    /// Exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub(crate) async fn kill(mut self) -> Result<(), Error> {
        self.process.kill().await.map_err(Error::io("kill -9"))
    }

    /// Sends SIGSTOP.
    pub(crate) fn suspend(&self) -> Result<(), Error> {
        kill_process(self.pid()?, Signal::STOP).map_err(|error| Error::io("SIGSTOP")(error.into()))
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        kill_process(self.pid()?, Signal::CONT).map_err(|error| Error::io("SIGCONT")(error.into()))
    }

    /// Limits the size of every file that it writes, in bytes; `None` removes the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> Result<(), Error> {
        let limit = Rlimit { current: bytes, maximum: None };
        let set = prlimit(Some(self.pid()?), Resource::Fsize, limit);
        set.map(drop).map_err(|error| Error::io("the file size limit")(error.into()))
    }

    fn pid(&self) -> Result<Pid, Error> {
        let id = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        id.ok_or_else(|| Error::Failed("the node has ended".to_owned()))
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::of(self.id()).unwrap_or_default()
    }
}

fn read_node_file(path: &PathBuf, process: Option<u32>) -> Option<NodeFile> {
    let node: NodeFile = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (Some(node.pid) == process).then_some(node)
}

fn address(url: &str) -> Result<SocketAddr, Error> {
    let address = url.strip_prefix("http://").and_then(|address| address.parse().ok());
    address.ok_or_else(|| Error::Io { what: url.to_owned(), source: io::Error::from(io::ErrorKind::InvalidData) })
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_parsed_from_proc_status() {
        let status = "Name:\tsluice\nVmHWM:\t   51234 kB\nVmRSS:\t   40000 kB\n";
        assert_eq!(Memory::parse(status), Some(Memory { resident_kib: 40_000, peak_kib: 51_234 }));
        assert_eq!(Memory::parse("Name:\tsluice\n"), None);
    }
}
