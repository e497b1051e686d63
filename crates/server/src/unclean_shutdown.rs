//! Detects an unclean shutdown.
//!
//! A job that crashes the process would crash it again after the restart. So after an unclean shutdown every attempt
//! is recorded before it starts for a while: it counts, and such a job becomes a dead letter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_ledger::private_files;

/// Duration of recording attempts first after an unclean shutdown.
pub(crate) const CAUTION: Duration = Duration::from_secs(60);

/// Marker file in the data directory of a running process.
#[derive(Debug)]
pub(crate) struct RunMarker(PathBuf);

impl RunMarker {
    /// Creates the marker. Returns whether one existed, which means an unclean shutdown.
    pub(crate) fn set(data: &Path) -> std::io::Result<(RunMarker, bool)> {
        let path = data.join("running");
        let was_there = path.exists();
        private_files::replace_file(&path, std::process::id().to_string().as_bytes())?;
        Ok((RunMarker(path), was_there))
    }

    /// Removes the marker at a clean shutdown.
    pub(crate) fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "run marker not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_marker_is_reported_once() {
        let data = tempfile::tempdir().unwrap();
        let (first, unclean) = RunMarker::set(data.path()).unwrap();
        assert!(!unclean, "no earlier process");
        drop(first);
        let (second, unclean) = RunMarker::set(data.path()).unwrap();
        assert!(unclean, "the first ended without a word");
        second.remove();
        assert!(!RunMarker::set(data.path()).unwrap().1);
    }
}
