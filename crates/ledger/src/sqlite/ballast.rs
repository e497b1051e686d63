//! Room that is kept aside, so that completions can go on when the disk is full.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BALLAST_BYTES: u64 = 16 * 1024 * 1024;
/// Taking the room back means writing all of it, so it is not tried with every batch.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// A file of real bytes that is given up for the sake of completions. While it is gone no new event is accepted: it
/// would take the room that was made for them.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    kept: bool,
    tried_at: Instant,
}

impl Ballast {
    pub fn new(directory: &Path) -> Ballast {
        let mut ballast = Ballast { path: directory.join("ballast"), kept: false, tried_at: Instant::now() };
        ballast.kept = ballast.write();
        if !ballast.kept {
            tracing::warn!("no room for the ballast that keeps completions going on a full disk; no event is accepted");
        }
        ballast
    }

    /// Makes room.
    pub fn spend(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.kept = false;
        self.tried_at = Instant::now();
    }

    /// Whether the room is there; takes it back if that is possible by now.
    pub fn is_kept(&mut self) -> bool {
        if !self.kept && self.tried_at.elapsed() >= RESTORE_INTERVAL {
            self.tried_at = Instant::now();
            self.kept = self.write();
        }
        self.kept
    }

    fn write(&self) -> bool {
        if self.path.metadata().is_ok_and(|found| found.len() == BALLAST_BYTES) {
            return true;
        }
        // Real bytes: a sparse file would keep no room.
        let written = std::fs::write(&self.path, vec![0x5au8; BALLAST_BYTES as usize]);
        if written.is_err() {
            let _ = std::fs::remove_file(&self.path);
        }
        written.is_ok()
    }
}
