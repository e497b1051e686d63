//! Reserve file: disk space for settlements when the disk is full.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::private_files;

const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
/// Restoring the file writes all of it, so it is not attempted with every batch.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// A file of real bytes that is deleted to make room for settlements. While it is missing no event is accepted: accepts would
/// take that room.
#[derive(Debug)]
pub(super) struct ReserveFile {
    path: PathBuf,
    kept: bool,
    tried_at: Instant,
}

impl ReserveFile {
    /// Fails for any reason but a full disk.
    pub(super) fn new(directory: &Path) -> io::Result<ReserveFile> {
        let mut reserve = ReserveFile { path: directory.join("ballast"), kept: false, tried_at: Instant::now() };
        reserve.kept = reserve.write()?;
        if !reserve.kept {
            tracing::warn!("no room for the reserve file; accepts are rejected until there is");
        }
        Ok(reserve)
    }

    /// Deletes the file.
    pub(super) fn spend(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.kept = false;
        self.tried_at = Instant::now();
    }

    /// Whether the file was deleted and is not restored yet.
    pub(super) fn is_spent(&self) -> bool {
        !self.kept
    }

    /// Whether the file exists; restores it if there is room again.
    pub(super) fn is_kept(&mut self) -> io::Result<bool> {
        if !self.kept && self.tried_at.elapsed() >= RESTORE_INTERVAL {
            self.tried_at = Instant::now();
            self.kept = self.write()?;
        }
        Ok(self.kept)
    }

    fn write(&self) -> io::Result<bool> {
        if self.path.metadata().is_ok_and(|found| found.len() == RESERVE_BYTES) {
            return Ok(true);
        }
        // Real bytes: a sparse file reserves nothing.
        let Err(error) = self.fill() else { return Ok(true) };
        let _ = std::fs::remove_file(&self.path);
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(false),
            _ => Err(error),
        }
    }

    fn fill(&self) -> io::Result<()> {
        let bytes = vec![0x5au8; RESERVE_BYTES as usize];
        match private_files::create_file(&self.path) {
            // Of another length, or a device in a test.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => std::fs::write(&self.path, bytes),
            created => created?.write_all(&bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(directory: &Path) -> ReserveFile {
        let long_ago = Instant::now().checked_sub(2 * RESTORE_INTERVAL).unwrap();
        ReserveFile { path: directory.join("ballast"), kept: false, tried_at: long_ago }
    }

    #[test]
    fn the_file_is_restored_when_there_is_room_and_a_full_disk_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("ballast")).unwrap();
        assert!(!spent(directory.path()).is_kept().unwrap(), "there is no room");
        assert!(spent(directory.path()).is_kept().unwrap(), "there is room again");
    }

    #[test]
    fn a_failing_disk_is_not_treated_as_a_full_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ballast")).unwrap();
        assert!(spent(directory.path()).is_kept().is_err());
        assert!(ReserveFile::new(directory.path()).is_err());
    }
}
