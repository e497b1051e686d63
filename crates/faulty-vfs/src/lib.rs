//! Fails on order: a disk in memory that SQLite runs on, and that forgets, tears and refuses what it is told to.
//!
//! Every connection of the process that opens a file below a mounted directory lands here; nothing else in the process has to
//! know. Only tests use this crate.
//!
//! The model is that of a disk behind an operating system's cache. What is written can be read at once, and is durable after a
//! sync of its file. A name is durable after a sync of its directory, which SQLite asks for where it needs it. When the power goes,
//! what was synced is there, and of what was not any part: each write whole, gone, or torn into sectors.

mod disk;
mod locks;
mod vfs;

pub use disk::{CrashSurvival, Disk, DiskFault, Image, IoKind};
