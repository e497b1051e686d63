//! `script`: runs a program of the author's own, one process for one attempt.

mod request;
mod response;
mod runtime;
mod settings;

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use sluice_domain::destination::ScriptDestination;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::script::Runtime;
use sluice_domain::unit::format_duration;
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

use request::{EffectContext, Process, build};
use response::{Ended, outcome, too_slow};
pub use runtime::find_runtime;
use runtime::{Version, version};
use settings::{Program, Settings};

use crate::text::{MASK, redact_outcome};
use crate::{Call, Preview, deadline};

/// What is handed on of our own environment. Everything else stays here: there are secrets in it.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// How much is kept of the end of what a script writes.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
const ERRORS_BYTES_MAX: usize = 16 * 1024;

/// How long the pipes of a process that has ended may stay open in the hands of what it left behind.
const PIPES_MAX: Duration = Duration::from_millis(500);

/// Where scripts run, prepared once.
#[derive(Debug)]
pub(crate) struct Target {
    directory: PathBuf,
    node: OnceCell<Result<Version, String>>,
}

impl Target {
    pub(crate) fn new(destination: &ScriptDestination) -> Target {
        let given = &destination.directory;
        let given = if given.as_os_str().is_empty() { std::path::Path::new(".") } else { given };
        // The working directory of the service may change; that of its scripts must not.
        let directory = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
        Target { directory, node: OnceCell::new() }
    }

    /// The version of the node on this machine, asked once.
    async fn node(&self) -> &Result<Version, String> {
        self.node
            .get_or_init(|| async {
                let asked = tokio::task::spawn_blocking(|| version(Runtime::Node(0))).await;
                asked.unwrap_or_else(|error| Err(error.to_string()))
            })
            .await
    }
}

/// Runs the script.
pub(crate) async fn call(target: &Target, longest: Duration, call: Call<'_>) -> Outcome {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return Outcome::Reject { failure },
    };
    let node = match &settings.program {
        Program::Inline(Runtime::Node(_), _) => match target.node().await {
            Ok(version) => Some(*version),
            Err(problem) => return not_started("missing-runtime", problem),
        },
        _ => None,
    };
    let process = match build(&settings, marks(&call), node) {
        Ok(process) => process,
        Err(failure) => return Outcome::Reject { failure },
    };
    let started = Instant::now();
    let until = deadline([call.timeout, longest, settings.timeout]);
    let outcome = run(target, &process, &settings, until).await;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(program = process.program, outcome = outcome.as_str(), elapsed_ms, "ended");
    redact_outcome(outcome, settings.env.iter().map(|(_, value)| value.as_ref()))
}

/// The processes that a script started, itself included. They end with this.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Nobody left to kill is what was wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn run(target: &Target, process: &Process, settings: &Settings<'_>, until: Instant) -> Outcome {
    let body = match process.large_body.as_deref().map(write_body).transpose() {
        Ok(body) => body,
        Err(error) => return retry("body-file", &format!("The body could not be written to a file: {error}.")),
    };
    let mut command = Command::new(&process.program);
    command
        .args(&process.arguments)
        .current_dir(&target.directory)
        .env_clear()
        .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .envs(process.env.iter().map(|(name, value)| (name, value)))
        .envs(body.as_ref().map(|file| ("BODY_FILE", file.path())))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let begun = Instant::now();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return spawn_failed(target, process, &error),
    };
    let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let waited = {
        let reading = async {
            tokio::join!(
                keep_end(stdout, &mut output, OUTPUT_BYTES_MAX),
                keep_end(stderr, &mut errors, ERRORS_BYTES_MAX)
            )
        };
        tokio::pin!(reading);
        let mut read = false;
        let ended = timeout_at(until, async {
            tokio::select! {
                status = child.wait() => status,
                _ = &mut reading => {
                    read = true;
                    child.wait().await
                }
            }
        })
        .await;
        drop(group);
        if !read {
            // What was written before the end is still in the pipes.
            let _ = timeout(PIPES_MAX, &mut reading).await;
        }
        ended
    };
    match waited {
        Ok(Ok(status)) => {
            let ended = Ended { code: status.code(), signal: status.signal(), output, errors };
            outcome(&ended, settings.class)
        }
        Ok(Err(error)) => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                "wait",
                format!("Nobody saw how the script ended: {error}. Its effect may have happened."),
            ),
        },
        Err(_) => {
            let limit = Duration::from_millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
            too_slow(&format_duration(limit), &errors)
        }
    }
}

fn write_body(body: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("sluice-body-")?;
    file.write_all(body.as_bytes())?;
    file.flush()?;
    Ok(file)
}

/// Reads to the end and keeps the last bytes: the result is the last line, and so is the error.
async fn keep_end(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, bytes_max: usize) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..count]);
        if kept.len() > bytes_max * 2 {
            kept.drain(..kept.len() - bytes_max);
        }
    }
    let over = kept.len().saturating_sub(bytes_max);
    kept.drain(..over);
}

fn spawn_failed(target: &Target, process: &Process, error: &io::Error) -> Outcome {
    let program = &process.program;
    match error.kind() {
        io::ErrorKind::NotFound if !target.directory.is_dir() => {
            not_started("no-directory", &format!("the directory {} is not there", target.directory.display()))
        }
        io::ErrorKind::NotFound => not_started("missing-program", &format!("there is no `{program}` on this machine")),
        io::ErrorKind::PermissionDenied => not_started("not-executable", &format!("`{program}` may not be executed")),
        io::ErrorKind::ArgumentListTooLong => {
            not_started("too-large", &format!("`{program}` cannot be given so much in its environment"))
        }
        _ => retry("spawn", &format!("The script was not started: {error}.")),
    }
}

fn not_started(code: &'static str, why: &str) -> Outcome {
    let message = format!("The script was not started: {why}.");
    Outcome::Reject { failure: Failure::new(FailureClass::Permanent, code, message) }
}

fn retry(code: &'static str, message: &str) -> Outcome {
    Outcome::Retry { failure: Failure::new(FailureClass::Retryable, code, message), after: None }
}

/// Only the script itself knows what it has done.
pub(crate) fn read_back() -> Readback {
    Readback::Unreadable(Failure::new(
        FailureClass::Unknown,
        "no-read-back",
        "A script cannot be asked whether its effect is there.",
    ))
}

/// What would be run; the values of its `env` are not shown.
pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let settings = Settings::read(call.with)?;
    let process = build(&settings, marks(call), None)?;
    let shown = |name: &str, value: String| {
        let ours = settings.env.iter().all(|(other, _)| *other != name);
        if ours { value } else { MASK.to_owned() }
    };
    let mut headers: Vec<(String, String)> =
        process.env.into_iter().map(|(name, value)| (name.clone(), shown(&name, value))).collect();
    headers.sort();
    let body = match &settings.program {
        Program::Inline(runtime, script) => json!({"runtime": runtime.to_string(), "script": script}),
        Program::Command(words) => {
            Value::from_iter([("command", Value::from_iter(words.iter().map(|word| word.as_ref())))])
        }
    };
    Ok(Preview { method: "RUN".to_owned(), url: format!("file://{}", target.directory.display()), headers, body })
}

fn marks<'a>(call: &Call<'a>) -> EffectContext<'a> {
    EffectContext { effect_key: call.effect_key, message_key: call.message_key, traceparent: call.traceparent }
}
