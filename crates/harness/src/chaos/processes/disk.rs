//! A small disk for the node alone, which can be filled up and can be made to stand still.
//!
//! It is mounted in the mount namespace of its process and nowhere else. With the last process in there the mount is gone, and the
//! loop device with it, however that process ended.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::Error;

/// Room is taken in pieces of this size, until not even the smallest is there.
const PIECES: [u64; 4] = [16 << 20, 1 << 20, 64 << 10, 4 << 10];

/// Stands still for a while and then goes on, whatever becomes of everybody else: a file system that nobody thaws could not be
/// unmounted any more.
const FREEZE: &str = r#"trap '' HUP INT TERM; fsfreeze --freeze "$0" && { sleep "$1"; fsfreeze --unfreeze "$0"; }"#;

/// What the node's data lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// An ext4 of its own on a loop device.
    Ext4,
    /// A tmpfs of its own.
    Tmpfs,
    /// A directory among others.
    Shared,
}

#[derive(Debug)]
pub(super) struct Disk {
    pub kind: DiskKind,
    /// Whether it can be made to stand still.
    pub freezes: bool,
    at: PathBuf,
    filler: Option<(File, u64)>,
}

impl Disk {
    /// The best disk that can be had. `at` is an empty directory; what else is needed is put beside it.
    pub async fn make(at: &Path, bytes: u64, own_mounts: bool) -> Disk {
        let mut disk = Disk { kind: DiskKind::Shared, freezes: false, at: at.to_owned(), filler: None };
        if own_mounts && mount_ext4(at, bytes).await.is_ok() {
            disk.kind = DiskKind::Ext4;
            disk.freezes = disk.stand_still(Duration::ZERO).await.is_ok();
        } else if own_mounts && mount_tmpfs(at, bytes).await.is_ok() {
            disk.kind = DiskKind::Tmpfs;
        }
        disk
    }

    /// Takes all the room that is left.
    pub fn fill(&mut self) -> Result<(), Error> {
        let failed = || Error::io("filling the disk up");
        let (file, mut end) = match self.filler.take() {
            Some(filler) => filler,
            None => (File::create(self.filler_path()).map_err(failed())?, 0),
        };
        for piece in PIECES {
            loop {
                match fallocate(&file, FallocateFlags::empty(), end, piece) {
                    Ok(()) => end += piece,
                    Err(rustix::io::Errno::NOSPC) => break,
                    Err(error) => return Err(failed()(error.into())),
                }
            }
        }
        self.filler = Some((file, end));
        Ok(())
    }

    /// Gives the room back.
    pub fn free(&mut self) -> Result<(), Error> {
        self.filler = None;
        std::fs::remove_file(self.filler_path()).map_err(Error::io("making room on the disk"))
    }

    /// Lets every write wait for that long.
    pub async fn stand_still(&self, time: Duration) -> Result<(), Error> {
        let seconds = format!("{:.3}", time.as_secs_f64());
        run(Command::new("sh").args(["-c", FREEZE]).arg(&self.at).arg(seconds))
            .await
            .map_err(Error::io("a disk that stands still"))
    }

    /// Takes the disk away, with all that is on it. Whoever still uses it keeps it until then.
    pub async fn unmount(&mut self) -> Result<(), Error> {
        self.filler = None;
        if self.kind == DiskKind::Shared {
            return Ok(());
        }
        run(Command::new("umount").arg("--lazy").arg(&self.at)).await.map_err(Error::io("unmounting the disk"))
    }

    fn filler_path(&self) -> PathBuf {
        self.at.join("filler")
    }
}

async fn mount_ext4(at: &Path, bytes: u64) -> io::Result<()> {
    let image = at.with_extension("image");
    File::create(&image)?.set_len(bytes)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-J", "size=4"]).arg(&image)).await?;
    run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(at)).await
}

async fn mount_tmpfs(at: &Path, bytes: u64) -> io::Result<()> {
    run(Command::new("mount").args(["-t", "tmpfs", "-o"]).arg(format!("size={bytes}")).arg("tmpfs").arg(at)).await
}

async fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
