//! `file.append`: appends one line of JSON to a file. It succeeds only when the line is on the disk.
//!
//! A line begins with its effect key, so that after an unknown outcome the file itself tells whether the line is in it. A line that
//! was cut off by a crash stays alone: the next one begins on a line of its own.

mod append;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::destination::FileDestination;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use append::{AppendError, Found, append, find};

use crate::batch::{BatchOutcome, Checked};
use crate::echo::mask_outcome;
use crate::parameter::problem;
use crate::{Call, Preview, deadline};

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    /// One writer of this process at a time, also of another revision of the configuration; other processes are kept out by a lock on
    /// the file. A write that was given up holds it until it has ended.
    writing: Arc<Mutex<()>>,
}

/// The lock of each path, as long as a destination uses it.
static WRITING: LazyLock<std::sync::Mutex<HashMap<PathBuf, Weak<Mutex<()>>>>> = LazyLock::new(Default::default);

fn lock_of(path: &Path) -> Arc<Mutex<()>> {
    let mut locks = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lock) = locks.get(path).and_then(Weak::upgrade) {
        return lock;
    }
    locks.retain(|_, lock| lock.strong_count() > 0);
    let lock = Arc::default();
    locks.insert(path.to_owned(), Arc::downgrade(&lock));
    lock
}

impl Target {
    /// The error names the invalid key.
    pub(crate) fn new(destination: &FileDestination) -> Result<Target, String> {
        if !destination.path.is_absolute() || destination.path.file_name().is_none() {
            return Err("path: must be the absolute path of a file".to_owned());
        }
        Ok(Target { path: destination.path.clone(), writing: lock_of(&destination.path) })
    }

    fn result(&self) -> Value {
        json!({ "path": self.path.to_string_lossy() })
    }
}

pub(crate) async fn call(target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    match line(&call) {
        Ok(line) => write(target, line, deadline([call.timeout, timeout_max])).await,
        Err(failure) => Outcome::Reject { failure },
    }
}

/// Appends the lines of several calls with one write and one sync.
pub(crate) async fn call_batch(target: &Target, timeout_max: Duration, calls: &[Call<'_>]) -> Vec<Outcome> {
    let checked = Checked::new(calls, line);
    let Some(first) = checked.calls.first() else { return checked.outcomes(vec![]) };
    let outcome = write(target, checked.settings.concat(), deadline([first.timeout, timeout_max])).await;
    let sent = match outcome {
        Outcome::Done { result } => {
            let done = |call: &Call<'_>| mask_outcome(Outcome::Done { result: result.clone() }, call);
            checked.calls.iter().map(done).collect()
        }
        whole => BatchOutcome::Whole(whole).into_outcomes(&checked.calls),
    };
    checked.outcomes(sent)
}

/// Looks for the line of this effect. One that is there is synced first: it may have been written just before a crash. A write that
/// was given up may still follow: it is waited for.
pub(crate) async fn read_back(target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let (path, start) = (target.path.clone(), line_start(call.effect_key));
    let limit = deadline([call.timeout, timeout_max]);
    let unreadable = |code, message: String| Readback::Unreadable(Failure::new(FailureClass::Retryable, code, message));
    if timeout_at(limit, target.writing.lock()).await.is_err() {
        return unreadable("timeout", format!("A write to {} has not ended.", target.path.display()));
    }
    let looking = tokio::task::spawn_blocking(move || find(&path, start.as_bytes()));
    match timeout_at(limit, looking).await {
        Ok(Ok(Ok(Found::Present))) => Readback::Present(target.result()),
        Ok(Ok(Ok(Found::Absent))) => Readback::Absent,
        Ok(Ok(Ok(Found::NotSearched))) => {
            let path = target.path.display();
            unreadable("too-large", format!("{path} is too large to be searched; rotate it, then resolve the effect."))
        }
        Ok(Ok(Err(error))) => unreadable("io", format!("{} cannot be read: {error}.", target.path.display())),
        Ok(Err(_)) | Err(_) => {
            unreadable("timeout", format!("{} could not be searched in time.", target.path.display()))
        }
    }
}

pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let line = line(call)?;
    let body = serde_json::from_slice(&line).unwrap_or_default();
    let url = format!("file://{}", target.path.display());
    Ok(Preview { method: "APPEND".to_owned(), url, headers: vec![], body })
}

async fn write(target: &Target, lines: Vec<u8>, limit: Instant) -> Outcome {
    let path = target.path.clone();
    let shown = path.display().to_string();
    let Ok(permit) = timeout_at(limit, target.writing.clone().lock_owned()).await else {
        let message = format!("{shown} is being written by others for too long. Nothing was written.");
        return Outcome::Retry { failure: Failure::new(FailureClass::Retryable, "timeout", message), after: None };
    };
    let writing = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        append(&path, &lines)
    });
    let unsure = |code, message| Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, code, message) };
    match timeout_at(limit, writing).await {
        Ok(Ok(Ok(()))) => Outcome::Done { result: target.result() },
        Ok(Ok(Err(AppendError::NotWritten(error)))) => {
            let code = if error.kind() == std::io::ErrorKind::StorageFull { "disk-full" } else { "io" };
            let message = format!("{shown} cannot be written: {error}. Nothing was written.");
            Outcome::Retry { failure: Failure::new(FailureClass::Retryable, code, message), after: None }
        }
        Ok(Ok(Err(AppendError::Unknown(error)))) => unsure("io", format!("{shown} may lack the line: {error}.")),
        Ok(Err(_)) | Err(_) => unsure("timeout", format!("{shown} was not written in time; the line may follow.")),
    }
}

/// The beginning of the line of an effect.
fn line_start(effect_key: &str) -> String {
    format!("{{\"effect_key\":{},", Value::String(effect_key.to_owned()))
}

fn line(call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    let Some(record) = call.with.get("record") else { return Err(problem("record", "is missing")) };
    let mut line = line_start(call.effect_key).into_bytes();
    line.extend_from_slice(b"\"record\":");
    line.extend_from_slice(record.to_string().as_bytes());
    line.extend_from_slice(b"}\n");
    match line.len() <= LINE_BYTES_MAX {
        true => Ok(line),
        false => Err(problem("record", "makes a line of more than 4 MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::call as call_of;
    use rustix::fs::{FlockOperation, flock};

    #[tokio::test]
    async fn write_that_was_given_up_and_follows_later_is_not_taken_for_absent() {
        let directory = tempfile::tempdir().unwrap();
        let destination = FileDestination { path: directory.path().join("leads.ndjson") };
        let (target, reloaded) = (Target::new(&destination).unwrap(), Target::new(&destination).unwrap());
        // Another program holds the file.
        let other = std::fs::File::create(&destination.path).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let with = json!({"record": {"email": "ada@example.com"}});
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let brief = Call { timeout: short, ..call_of(&with) };
        assert!(matches!(call(&target, long, brief).await, Outcome::Unsure { .. }));
        assert!(matches!(read_back(&reloaded, long, brief).await, Readback::Unreadable(_)), "it may still follow");
        drop(other);
        let patient = Call { timeout: long, ..brief };
        assert!(matches!(read_back(&reloaded, long, patient).await, Readback::Present(_)));
    }
}
