//! A node as a process of its own, so that it can be killed, and so that its memory is its own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::{ANY_PORT, Error, chaos};

/// How long a node may take until it accepts events; with millions of jobs it takes seconds.
const START_MAX: Duration = Duration::from_secs(120);
/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(2);
/// How much of its log is shown when it did not start.
const LOG_LINES_SHOWN: usize = 20;

/// A running node. It is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    /// Where senders come in.
    pub intake: SocketAddr,
    /// Where operators come in.
    pub admin: SocketAddr,
    /// From the start of the process until its listeners stood.
    pub took: Duration,
}

/// What the node writes down about itself for others on this machine.
#[derive(Debug, Deserialize)]
struct Note {
    admin: String,
    intake: String,
    pid: u32,
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Resident now.
    pub resident_kib: u64,
    /// Resident at the most so far.
    pub peak_kib: u64,
}

impl Memory {
    /// Of a process, by its id; `None` where the system does not tell.
    pub fn of(process: u32) -> Option<Memory> {
        Memory::parse(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Memory> {
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        Some(Memory { resident_kib: kib("VmRSS:")?, peak_kib: kib("VmHWM:")? })
    }

    /// The larger of the two peaks, and the later figure for now.
    pub fn then(self, later: Memory) -> Memory {
        Memory { resident_kib: later.resident_kib, peak_kib: self.peak_kib.max(later.peak_kib) }
    }
}

impl Child {
    /// Starts `program up` and waits until it listens. Its log goes to the end of `log`.
    pub async fn start(program: &Path, config: &Path, data: &Path, log: &Path) -> Result<Child, Error> {
        Child::start_at(program, config, data, log, None).await
    }

    /// The same with a wall clock that is off by as many milliseconds as a file says.
    pub async fn start_at(
        program: &Path,
        config: &Path,
        data: &Path,
        log: &Path,
        clock_offset: Option<&Path>,
    ) -> Result<Child, Error> {
        let note = data.join("node.json");
        // Left behind by a process that was killed.
        let _ = std::fs::remove_file(&note);
        let out = File::options().create(true).append(true).open(log).map_err(Error::io(log.display().to_string()))?;
        // A limit on the size of files would otherwise end it with a signal instead of an error.
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", r#"trap '' XFSZ && exec "$0" "$@""#]).arg(program);
        // What is set for another node here must not reach this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLUICE_")) {
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
            .args(["--log", "warn"])
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
            if let Some(note) = read_note(&note, process.id()) {
                let (intake, admin) = (address(&note.intake)?, address(&note.admin)?);
                return Ok(Child { process, intake, admin, took: started.elapsed() });
            }
            let ended = process.try_wait().map_err(Error::io("the node"))?;
            if ended.is_some() || started.elapsed() > START_MAX {
                let how = ended.map_or_else(
                    || format!("did not listen within {START_MAX:?}"),
                    |status| format!("ended: {status}"),
                );
                return Err(Error::Wrong(format!("the node {how}\n{}", last_lines(log))));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The id of the process; 0 once it has ended.
    pub fn id(&self) -> u32 {
        self.process.id().unwrap_or(0)
    }

    /// How it ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// `kill -9`, and waits until the process is gone.
    pub async fn kill(mut self) -> Result<(), Error> {
        self.process.kill().await.map_err(Error::io("kill -9"))
    }

    /// SIGSTOP: it stands still wherever it is.
    pub fn stop(&self) -> Result<(), Error> {
        kill_process(self.pid()?, Signal::STOP).map_err(|error| Error::io("SIGSTOP")(error.into()))
    }

    /// SIGCONT.
    pub fn go_on(&self) -> Result<(), Error> {
        kill_process(self.pid()?, Signal::CONT).map_err(|error| Error::io("SIGCONT")(error.into()))
    }

    /// From here on a write beyond this many bytes of any file fails; `None` lifts the limit.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<(), Error> {
        let limit = Rlimit { current: bytes, maximum: None };
        let set = prlimit(Some(self.pid()?), Resource::Fsize, limit);
        set.map(drop).map_err(|error| Error::io("a limit on the size of files")(error.into()))
    }

    fn pid(&self) -> Result<Pid, Error> {
        let id = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        id.ok_or_else(|| Error::Wrong("the node has ended".to_owned()))
    }

    /// Its memory now.
    pub fn memory(&self) -> Memory {
        Memory::of(self.id()).unwrap_or_default()
    }
}

fn read_note(path: &PathBuf, process: Option<u32>) -> Option<Note> {
    let note: Note = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (Some(note.pid) == process).then_some(note)
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
    fn memory_is_read_from_what_the_system_says() {
        let status = "Name:\tsluice\nVmHWM:\t   51234 kB\nVmRSS:\t   40000 kB\n";
        assert_eq!(Memory::parse(status), Some(Memory { resident_kib: 40_000, peak_kib: 51_234 }));
        assert_eq!(Memory::parse("Name:\tsluice\n"), None);
    }
}
