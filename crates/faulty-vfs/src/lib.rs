//! SQLite VFS on an in-memory disk with fault injection: lost, torn and failing writes, power failures. For tests only.
//!
//! Every SQLite connection of the process that opens a file in a mounted directory uses it; the code under test needs
//! no change.
//!
//! The model is a disk behind the operating system's cache. Written data is readable at once and durable after a sync
//! of its file. A name is durable after a sync of its directory, which SQLite requests where needed. After a power
//! failure synced data is present; each unsynced write is complete, lost, or torn at sector boundaries.

mod disk;
mod locks;
mod vfs;

pub use disk::{CrashSurvival, Disk, DiskFault, Image, IoKind};
