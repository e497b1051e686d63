//! Room that is kept aside, so that completions can go on when the disk is full.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BALLAST_BYTES: u64 = 16 * 1024 * 1024;
/// Taking the room back means writing all of it, so it is not tried with every batch.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// A file of real bytes that is given up for the sake of completions. While it is gone no new event is accepted: it
/// would take the room that was made for them.
#[derive(Debug)]
pub(super) struct ReserveFile {
    path: PathBuf,
    kept: bool,
    tried_at: Instant,
}

impl ReserveFile {
    /// Fails when something else than a want of room is in the way.
    pub fn new(directory: &Path) -> io::Result<ReserveFile> {
        let mut ballast = ReserveFile { path: directory.join("ballast"), kept: false, tried_at: Instant::now() };
        ballast.kept = ballast.write()?;
        if !ballast.kept {
            tracing::warn!("no room for the ballast that keeps completions going on a full disk; no event is accepted");
        }
        Ok(ballast)
    }

    /// Makes room.
    pub fn spend(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.kept = false;
        self.tried_at = Instant::now();
    }

    /// Whether the room is there; takes it back if that is possible by now. Fails when the disk does.
    pub fn is_kept(&mut self) -> io::Result<bool> {
        if !self.kept && self.tried_at.elapsed() >= RESTORE_INTERVAL {
            self.tried_at = Instant::now();
            self.kept = self.write()?;
        }
        Ok(self.kept)
    }

    fn write(&self) -> io::Result<bool> {
        if self.path.metadata().is_ok_and(|found| found.len() == BALLAST_BYTES) {
            return Ok(true);
        }
        // Real bytes: a sparse file would keep no room.
        let Err(error) = std::fs::write(&self.path, vec![0x5au8; BALLAST_BYTES as usize]) else { return Ok(true) };
        let _ = std::fs::remove_file(&self.path);
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(false),
            _ => Err(error),
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
    fn room_is_taken_back_when_there_is_some_and_a_full_disk_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("ballast")).unwrap();
        assert!(!spent(directory.path()).is_kept().unwrap(), "there is no room");
        assert!(spent(directory.path()).is_kept().unwrap(), "there is room again");
    }

    #[test]
    fn a_disk_that_fails_is_not_taken_for_a_full_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ballast")).unwrap();
        assert!(spent(directory.path()).is_kept().is_err());
        assert!(ReserveFile::new(directory.path()).is_err());
    }
}
