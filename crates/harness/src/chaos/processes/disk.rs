//! A small disk for the node, which can be filled and frozen.
//!
//! It is mounted in a mount namespace. The kernel removes the mount and its loop device with the last process of the
//! namespace, however that process ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::Error;

/// Allocation sizes in bytes for filling the disk, largest first.
const FILL_SIZES: [u64; 4] = [16 << 20, 1 << 20, 64 << 10, 4 << 10];

/// Freezes the file system for some time. It ignores signals, since a file system that stays frozen cannot be unmounted.
const FREEZE: &str = r#"trap '' HUP INT TERM; fsfreeze --freeze "$0" && { sleep "$1"; fsfreeze --unfreeze "$0"; }"#;

/// File system of the node's data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// A separate ext4 on a loop device.
    Ext4,
    /// A separate tmpfs.
    Tmpfs,
    /// A directory of the shared temporary file system.
    Shared,
}

#[derive(Debug)]
pub(super) struct Disk {
    pub kind: DiskKind,
    /// True if it can be frozen.
    pub freezes: bool,
    at: PathBuf,
    filler: Option<(File, u64)>,
}

impl Disk {
    /// Mounts the best file system that the machine allows at `at`, an empty directory. Its image is created beside it.
    pub(super) async fn make(at: &Path, bytes: u64, own_mounts: bool) -> Disk {
        let mut disk = Disk { kind: DiskKind::Shared, freezes: false, at: at.to_owned(), filler: None };
        if own_mounts && mount_ext4(at, bytes).await.is_ok() {
            disk.kind = DiskKind::Ext4;
            disk.freezes = disk.freeze(Duration::ZERO).await.is_ok();
        } else if own_mounts && mount_tmpfs(at, bytes).await.is_ok() {
            disk.kind = DiskKind::Tmpfs;
        }
        disk
    }

    /// Allocates all free space.
    pub(super) fn fill(&mut self) -> Result<(), Error> {
        let failed = || Error::io("filling the disk");
        let (file, mut end) = match self.filler.take() {
            Some(filler) => filler,
            None => (File::create(self.filler_path()).map_err(failed())?, 0),
        };
        for piece in FILL_SIZES {
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

    /// Releases the space.
    pub(super) fn free(&mut self) -> Result<(), Error> {
        self.filler = None;
        std::fs::remove_file(self.filler_path()).map_err(Error::io("freeing the disk"))
    }

    /// Blocks every write for `time`.
    pub(super) async fn freeze(&self, time: Duration) -> Result<(), Error> {
        let seconds = format!("{:.3}", time.as_secs_f64());
        run(Command::new("sh").args(["-c", FREEZE]).arg(&self.at).arg(seconds))
            .await
            .map_err(Error::io("freezing the disk"))
    }

    /// Unmounts the disk; a process that still uses it keeps it until it ends.
    pub(super) async fn unmount(&mut self) -> Result<(), Error> {
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
