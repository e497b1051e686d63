//! `script`: runs the operator's program, one process per attempt.

mod request;
pub(crate) mod response;
mod runtime;
mod settings;

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use sluice_domain::destination::ScriptDestination;
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::script::Runtime;
use sluice_domain::unit::format_duration;
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::{Instant, error::Elapsed, timeout, timeout_at};

use request::{EffectContext, Process, build};
use response::{SHIPPED_RULES, ScriptExit, outcome, timed_out};
pub use runtime::find_runtime;
use runtime::{Version, version};
use settings::{Program, Settings};

use crate::text::{MASK, redact_outcome};
use crate::{Call, Preview, deadline};

/// Environment variables passed to the script. The others may hold secrets.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// Bytes retained of the end of stdout.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Bytes retained of the end of stderr.
const ERRORS_BYTES_MAX: usize = 16 * 1024;

/// How long to wait for pipes that descendants of an exited process keep open.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Script directory and the cached version of Node.js.
#[derive(Debug)]
pub(crate) struct Target {
    directory: PathBuf,
    node: OnceCell<Result<Version, String>>,
    /// What exits mean.
    rules: FailureTable,
}

impl Target {
    /// The same, with rules of the destination before the shipped ones.
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { rules: SHIPPED_RULES.behind(own), ..self }
    }

    pub(crate) fn new(destination: &ScriptDestination) -> Target {
        let configured = &destination.directory;
        let configured = if configured.as_os_str().is_empty() { std::path::Path::new(".") } else { configured };
        // Absolute: the working directory of the server may change.
        let directory = std::path::absolute(configured).unwrap_or_else(|_| configured.to_owned());
        Target { directory, node: OnceCell::new(), rules: SHIPPED_RULES.clone() }
    }

    /// Version of the installed Node.js, queried once.
    async fn node(&self) -> &Result<Version, String> {
        self.node
            .get_or_init(|| async {
                let queried = tokio::task::spawn_blocking(|| version(Runtime::Node(0))).await;
                queried.unwrap_or_else(|error| Err(error.to_string()))
            })
            .await
    }
}

pub(crate) async fn call(target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
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
    let process = match build(&settings, effect_context(&call), node) {
        Ok(process) => process,
        Err(failure) => return Outcome::Reject { failure },
    };
    let started = Instant::now();
    let deadline_at = deadline([call.timeout, timeout_max, settings.timeout]);
    let outcome = run(target, &process, &settings, deadline_at).await;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(program = process.program, outcome = outcome.as_str(), elapsed_ms, "script attempt ended");
    redact_outcome(outcome, settings.env.iter().map(|(_, value)| value.as_ref()))
}

/// Process group of a script; killed on drop.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Fails if no process is left, which is fine.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn run(target: &Target, process: &Process, settings: &Settings<'_>, deadline_at: Instant) -> Outcome {
    let body = match process.large_body.as_deref().map(write_body).transpose() {
        Ok(body) => body,
        Err(error) => return retry("body-file", &format!("Cannot write the body to a temporary file: {error}.")),
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
    let started = Instant::now();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return spawn_failed(target, process, &error),
    };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    match wait_for_exit(child, &mut output, &mut errors, deadline_at).await {
        Ok(Ok(status)) => {
            let exit = ScriptExit { code: status.code(), signal: status.signal(), output, errors };
            outcome(&exit, settings.class, &target.rules)
        }
        Ok(Err(error)) => Outcome::Unsure {
            failure: Failure::new(
                FailureClass::Retryable,
                "wait",
                format!("The exit status of the script is unknown: {error}. Its effect may have happened."),
            ),
        },
        Err(_) => {
            let limit = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
            timed_out(&format_duration(limit), &errors)
        }
    }
}

/// Waits until the process exits or the deadline passes, kills its process group, and reads its pipes.
async fn wait_for_exit(
    mut child: Child,
    output: &mut Vec<u8>,
    errors: &mut Vec<u8>,
    deadline_at: Instant,
) -> Result<io::Result<ExitStatus>, Elapsed> {
    let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async {
        tokio::join!(read_tail(stdout, output, OUTPUT_BYTES_MAX), read_tail(stderr, errors, ERRORS_BYTES_MAX))
    };
    tokio::pin!(reading);
    let mut pipes_closed = false;
    let exited = timeout_at(deadline_at, async {
        tokio::select! {
            status = child.wait() => status,
            _ = &mut reading => {
                pipes_closed = true;
                child.wait().await
            }
        }
    })
    .await;
    drop(group);
    if !pipes_closed {
        // Output written before the exit is still in the pipes.
        let _ = timeout(PIPE_DRAIN_TIMEOUT, &mut reading).await;
    }
    exited
}

fn write_body(body: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("sluice-body-")?;
    file.write_all(body.as_bytes())?;
    file.flush()?;
    Ok(file)
}

/// Reads to the end and retains the last bytes: the last line holds the result or the error.
async fn read_tail(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>, bytes_max: usize) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..count]);
        if tail.len() > bytes_max * 2 {
            tail.drain(..tail.len() - bytes_max);
        }
    }
    let excess = tail.len().saturating_sub(bytes_max);
    tail.drain(..excess);
}

fn spawn_failed(target: &Target, process: &Process, error: &io::Error) -> Outcome {
    let program = &process.program;
    match error.kind() {
        io::ErrorKind::NotFound if !target.directory.is_dir() => {
            not_started("no-directory", &format!("the directory {} does not exist", target.directory.display()))
        }
        io::ErrorKind::NotFound => {
            not_started("missing-program", &format!("`{program}` is not installed on this machine"))
        }
        io::ErrorKind::PermissionDenied => {
            not_started("not-executable", &format!("`{program}` is not executable; check its permissions"))
        }
        io::ErrorKind::ArgumentListTooLong => {
            not_started("too-large", "its environment is too large; pass less in `with.env` and `with.event`")
        }
        _ => retry("spawn", &format!("Cannot start the script: {error}.")),
    }
}

fn not_started(code: &'static str, reason: &str) -> Outcome {
    let message = format!("Cannot start the script: {reason}.");
    Outcome::Reject { failure: Failure::new(FailureClass::Permanent, code, message) }
}

fn retry(code: &'static str, message: &str) -> Outcome {
    Outcome::Retry { failure: Failure::new(FailureClass::Retryable, code, message), after: None }
}

/// A script has no read-back.
pub(crate) fn read_back() -> Readback {
    Readback::Unreadable(Failure::new(
        FailureClass::Unknown,
        "no-read-back",
        "A script has no read-back; check its effect by hand.",
    ))
}

/// Process that would be started; values from `env` are masked.
pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let settings = Settings::read(call.with)?;
    let process = build(&settings, effect_context(call), None)?;
    let shown = |name: &str, value: String| {
        let is_builtin = settings.env.iter().all(|(other, _)| *other != name);
        if is_builtin { value } else { MASK.to_owned() }
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

fn effect_context<'a>(call: &Call<'a>) -> EffectContext<'a> {
    EffectContext {
        effect_key: call.effect_key,
        message_key: call.message_key,
        attempt: call.attempt,
        traceparent: call.traceparent,
    }
}
