//! A real PostgreSQL cluster, and a relay that can drop its connections.
//!
//! Real, because no imitation has the same transaction semantics. The programs are those of the machine (Debian package
//! `postgresql`, see `scripts/install-postgres`); the cluster is in a temporary directory and stops with the process
//! that started it, also if that is killed.

mod relay;

use std::fs;
use std::io::{self, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub use relay::{CommitLoss, Relay};

use crate::lock;

/// Superuser of the cluster.
pub const USER: &str = "sluice";
/// Password of [`USER`].
pub const PASSWORD: &str = "sluice-simulator";

/// Time limit for the start of a cluster on a loaded machine.
const START_MAX: Duration = Duration::from_secs(60);

/// Script that runs the cluster until its standard input is closed.
const SUPERVISOR: &str = r#"
set -eu
"$1/initdb" -D "$2/data" -U "$4" --pwfile "$2/password" -A scram-sha-256 -E UTF8 --locale=C --no-sync >"$2/initdb.log" 2>&1
"$1/postgres" -D "$2/data" -p "$3" -k "$2" -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=60 \
    -c shared_buffers=16MB >"$2/server.log" 2>&1 &
server=$!
trap 'kill -QUIT $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$2/data"' EXIT
read -r _ || true
# After a regular stop the logs are not needed.
trap - EXIT
kill -QUIT $server 2>/dev/null || true
wait $server 2>/dev/null || true
cd / && rm -rf "$2"
"#;

/// Running cluster. Stops when dropped, and when this process ends.
#[derive(Debug)]
pub struct Postgres {
    directory: PathBuf,
    port: u16,
    supervisor: Mutex<Option<(Child, ChildStdin)>>,
}

impl Postgres {
    /// Creates a cluster and waits until it accepts connections. Tries to install missing programs.
    pub fn start() -> io::Result<Postgres> {
        let programs = match find_programs() {
            Some(programs) => programs,
            None => {
                install().and_then(|()| find_programs().ok_or_else(|| missing("not found after the installation")))?
            }
        };
        let directory = make_directory()?;
        fs::write(directory.join("password"), PASSWORD)?;
        let account = account();
        if let Some(account) = account {
            change_owner(&directory, account)?;
        }
        let port = free_port()?;
        let mut command = match account {
            // PostgreSQL refuses to run as root.
            Some(account) => {
                let mut command = Command::new("runuser");
                command.args(["-u", account, "--", "sh"]);
                command
            }
            None => Command::new("sh"),
        };
        let mut supervisor = command
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(&programs)
            .arg(&directory)
            .arg(port.to_string())
            .arg(USER)
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = supervisor.stdin.take().ok_or_else(|| io::Error::other("the supervisor has no standard input"))?;
        let postgres = Postgres { directory, port, supervisor: Mutex::new(Some((supervisor, input))) };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }

    /// URL of a database; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a relay to the cluster.
    pub fn relay(&self) -> io::Result<Relay> {
        Relay::start(self.port)
    }

    /// Stops the cluster immediately, as a crash does.
    pub fn stop(&self) {
        if let Some((mut supervisor, input)) = lock(&self.supervisor).take() {
            drop(input);
            let _ = supervisor.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let log = fs::read_to_string(self.directory.join("server.log")).unwrap_or_default();
            if log.contains("ready to accept connections") {
                return Ok(());
            }
            if let Some((supervisor, _)) = lock(&self.supervisor).as_mut()
                && let Some(status) = supervisor.try_wait()?
            {
                let mut stderr = String::new();
                if let Some(mut errors) = supervisor.stderr.take() {
                    let _ = errors.read_to_string(&mut stderr);
                }
                let initdb = fs::read_to_string(self.directory.join("initdb.log")).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "PostgreSQL did not start ({status}): {stderr}\n{initdb}\n{log}"
                )));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!(
                    "PostgreSQL did not accept connections within {START_MAX:?}: {log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Directory with `postgres` and `initdb`: the latest Debian version, else the first on PATH.
fn find_programs() -> Option<PathBuf> {
    let complete = |directory: &PathBuf| ["postgres", "initdb"].iter().all(|name| directory.join(name).is_file());
    let mut debian: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(complete)
        .collect();
    debian.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian.pop().or_else(|| std::env::split_paths(&path).chain([PathBuf::from("/usr/local/bin")]).find(complete))
}

fn install() -> io::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-postgres");
    let installed = Command::new(&script).stdin(Stdio::null()).output().map_err(|error| missing(&error.to_string()))?;
    match installed.status.success() {
        true => Ok(()),
        false => Err(missing(&String::from_utf8_lossy(&installed.stderr))),
    }
}

fn missing(reason: &str) -> io::Error {
    io::Error::other(format!("PostgreSQL is not installed: {reason}. Run scripts/install-postgres."))
}

/// Account to run the cluster as if this process runs as root.
fn account() -> Option<&'static str> {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let has = |name: &str| users.lines().any(|line| line.split(':').next() == Some(name));
    root.then(|| if has("postgres") { "postgres" } else { "nobody" })
}

fn change_owner(directory: &Path, account: &str) -> io::Result<()> {
    let status = Command::new("chown").arg("-R").arg(account).arg(directory).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("chown to {account} failed"))) }
}

fn make_directory() -> io::Result<PathBuf> {
    for attempt in 0..100 {
        let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("sluice-postgres-{}-{moment}-{attempt}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        match fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("cannot create a directory for the cluster"))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
