//! Whether the last process on this data directory ended in its own time.
//!
//! A process that was ended by the very thing it did does it again after its start. So for a while after an end that nobody
//! asked for, every attempt is written down before it is made: it counts, and a job that ends the process every time becomes a
//! dead letter.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a start is careful after such an end.
pub const CAUTION: Duration = Duration::from_secs(60);

/// Lies in the data directory while a process works there.
#[derive(Debug)]
pub struct RunMarker(PathBuf);

impl RunMarker {
    /// Sets the mark. Answers whether one was there: then the last process did not take it away.
    pub fn set(data: &Path) -> std::io::Result<(RunMarker, bool)> {
        let path = data.join("running");
        let was_there = path.exists();
        std::fs::write(&path, std::process::id().to_string())?;
        Ok((RunMarker(path), was_there))
    }

    /// The process ends in its own time.
    pub fn take_away(self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "the mark of a running process could not be taken away");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_nobody_took_away_is_noticed_once() {
        let data = tempfile::tempdir().unwrap();
        let (first, unclean) = RunMarker::set(data.path()).unwrap();
        assert!(!unclean, "nobody was here before");
        drop(first);
        let (second, unclean) = RunMarker::set(data.path()).unwrap();
        assert!(unclean, "the first ended without a word");
        second.take_away();
        assert!(!RunMarker::set(data.path()).unwrap().1);
    }
}
