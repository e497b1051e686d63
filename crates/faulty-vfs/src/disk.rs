//! In-memory disk with a cache: tracks cached content, durable content and unsynced changes.

mod io;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_domain::random::Random;

use crate::locks::{FileLocks, SharedMemory};
use crate::vfs;

/// Size of an atomic write.
const SECTOR: usize = 512;

/// Kind of an I/O request by SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoKind {
    /// Open or create a file.
    Open,
    Read,
    Write,
    Sync,
    Truncate,
    Delete,
    /// Extend shared memory.
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// EIO without effect, except that a failed sync persists an arbitrary part and marks the rest clean.
    Error,
    /// ENOSPC without effect.
    Full,
    /// A prefix is written, then ENOSPC.
    Short,
    /// A prefix is written, then EIO.
    Torn,
    Crash,
}

impl DiskFault {
    pub const ALL: [DiskFault; 5] =
        [DiskFault::Error, DiskFault::Full, DiskFault::Short, DiskFault::Torn, DiskFault::Crash];

    /// True if this fault can affect that kind of I/O.
    pub fn applies_to(self, io: IoKind) -> bool {
        match self {
            DiskFault::Error => true,
            DiskFault::Full => matches!(io, IoKind::Write | IoKind::Open | IoKind::Map),
            DiskFault::Short | DiskFault::Torn => io == IoKind::Write,
            // A crash before a read equals one before the next change.
            DiskFault::Crash => matches!(io, IoKind::Write | IoKind::Sync | IoKind::Truncate | IoKind::Delete),
        }
    }
}

/// Which unsynced changes survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashSurvival {
    /// All: only the process died.
    Everything,
    Nothing,
    /// All changes up to some point.
    Prefix,
    /// An arbitrary subset, partly torn.
    Some,
}

/// File contents by name, as found after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    /// Total bytes of all files.
    pub fn size(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// In-memory disk; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Creations and deletions since the names were last durable.
    name_changes: Vec<(String, Option<u64>)>,
    next_file: u64,
    io_count: u64,
    counts: BTreeMap<IoKind, u64>,
    pending_fault: Option<(u64, DiskFault)>,
    failed_io: Option<IoKind>,
    powered_off: bool,
    random: Random,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    cached: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    pub locks: FileLocks,
    pub shared: SharedMemory,
}

/// Unsynced change of a file.
#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes } => write(to, *at, bytes),
            Change::Length(length) => to.resize(*length, 0),
        }
    }

    /// Applies an arbitrary part of the change, at sector granularity.
    fn apply_some(&self, to: &mut Vec<u8>, random: &mut Random) {
        match (self, random.below(4)) {
            (_, 0) => {}
            (Change::Write { at, bytes }, 1 | 2) => {
                for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                    if random.chance(0.5) {
                        write(to, at + n * SECTOR, sector);
                    }
                }
            }
            _ => self.apply(to),
        }
    }
}

fn write(to: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if to.len() < at + bytes.len() {
        to.resize(at + bytes.len(), 0);
    }
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Default for State {
    fn default() -> State {
        State {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            next_file: 1,
            io_count: 0,
            counts: BTreeMap::new(),
            pending_fault: None,
            failed_io: None,
            powered_off: false,
            random: Random::seeded(0),
        }
    }
}

impl Disk {
    /// Disk with these files, all durable.
    pub fn from_image(image: &Image) -> Disk {
        let disk = Disk::default();
        let mut state = disk.state();
        for (name, bytes) in &image.0 {
            let number = state.next_file;
            state.next_file += 1;
            state.names.insert(name.clone(), number);
            let file = File { cached: bytes.clone(), durable: bytes.clone(), ..File::default() };
            state.files.insert(number, file);
        }
        state.durable_names = state.names.clone();
        drop(state);
        disk
    }

    /// Serves every file that SQLite opens directly in this directory.
    pub fn mount(&self, directory: &Path) {
        vfs::mount(directory, self.clone());
    }

    /// Makes the I/O with this number fail; 0 is the next one.
    pub fn fail_at(&self, number: u64, fault: DiskFault, seed: u64) {
        let mut state = self.state();
        state.pending_fault = Some((state.io_count + number, fault));
        state.failed_io = None;
        state.random = Random::seeded(seed);
    }

    /// Clears the pending fault.
    pub fn clear_faults(&self) {
        self.state().pending_fault = None;
    }

    /// Kind of the I/O that failed as requested, if any.
    pub fn failed_io(&self) -> Option<IoKind> {
        self.state().failed_io
    }

    /// Number of I/O requests so far.
    pub fn io_count(&self) -> u64 {
        self.state().io_count
    }

    /// Number of I/O requests by kind.
    pub fn counts(&self) -> BTreeMap<IoKind, u64> {
        self.state().counts.clone()
    }

    /// Simulates a power failure: every further I/O through this disk fails.
    pub fn power_off(&self) {
        self.state().powered_off = true;
    }

    /// Simulates a process crash: returns the disk for the next process, with cached and durable content. Every further
    /// I/O through the old handle fails.
    pub fn crash_process(&self) -> Disk {
        let mut state = self.state();
        state.powered_off = true;
        let files = state.files.iter().map(|(number, file)| {
            let File { cached, durable, changes, .. } = file;
            let file =
                File { cached: cached.clone(), durable: durable.clone(), changes: changes.clone(), ..File::default() };
            (*number, file)
        });
        let next = State {
            files: files.collect(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            name_changes: state.name_changes.clone(),
            next_file: state.next_file,
            io_count: state.io_count,
            counts: state.counts.clone(),
            pending_fault: state.pending_fault,
            failed_io: state.failed_io,
            powered_off: false,
            random: state.random.clone(),
        };
        Disk(Arc::new(Mutex::new(next)))
    }

    pub fn is_powered_off(&self) -> bool {
        self.state().powered_off
    }

    /// Files found after a restart.
    pub fn image(&self, survival: CrashSurvival, seed: u64) -> Image {
        let state = self.state();
        let mut random = Random::seeded(seed);
        let mut names = state.durable_names.clone();
        // A journalling file system keeps the order of name changes.
        let applied = match survival {
            CrashSurvival::Everything => state.name_changes.len(),
            CrashSurvival::Nothing => 0,
            CrashSurvival::Prefix | CrashSurvival::Some => random.below(state.name_changes.len() as u64 + 1) as usize,
        };
        for (name, file) in &state.name_changes[..applied] {
            apply_name_change(&mut names, name, *file);
        }
        let files = names.into_iter().filter_map(|(name, number)| {
            let file = state.files.get(&number)?;
            let mut bytes = file.durable.clone();
            match survival {
                CrashSurvival::Everything => bytes.clone_from(&file.cached),
                CrashSurvival::Nothing => {}
                CrashSurvival::Prefix => {
                    let applied = random.below(file.changes.len() as u64 + 1) as usize;
                    file.changes[..applied].iter().for_each(|change| change.apply(&mut bytes));
                }
                CrashSurvival::Some => {
                    file.changes.iter().for_each(|change| change.apply_some(&mut bytes, &mut random))
                }
            }
            Some((name, bytes))
        });
        Image(files.collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn apply_name_change(names: &mut BTreeMap<String, u64>, name: &str, file: Option<u64>) {
    match file {
        Some(file) => drop(names.insert(name.to_owned(), file)),
        None => drop(names.remove(name)),
    }
}

/// SQLite error code.
pub(crate) type Code = i32;

impl State {
    /// Counts an I/O request and returns the fault to inject.
    fn count(&mut self, io: IoKind) -> Option<DiskFault> {
        if self.powered_off {
            return Some(DiskFault::Crash);
        }
        let number = self.io_count;
        self.io_count += 1;
        *self.counts.entry(io).or_default() += 1;
        let (_, fault) = self.pending_fault.filter(|(at, fault)| *at == number && fault.applies_to(io))?;
        self.failed_io = Some(io);
        self.powered_off = fault == DiskFault::Crash;
        Some(fault)
    }

    fn file(&mut self, number: u64) -> &mut File {
        self.files.entry(number).or_default()
    }

    fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.name_changes.clear();
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn disk_with_file(bytes: &[u8]) -> (Disk, u64) {
        let disk = Disk::default();
        let file = disk.open("file", true).expect("the file is created");
        disk.write(file, 0, bytes).expect("the write succeeds");
        (disk, file)
    }

    fn after_crash(disk: &Disk, survival: CrashSurvival, seed: u64) -> Option<Vec<u8>> {
        disk.image(survival, seed).0.remove("file")
    }

    #[test]
    fn only_synced_data_survives_every_crash() {
        let (disk, file) = disk_with_file(&[1; 2048]);
        assert_eq!(after_crash(&disk, CrashSurvival::Nothing, 0), None, "its name is not durable");
        assert_eq!(after_crash(&disk, CrashSurvival::Everything, 0), Some(vec![1; 2048]));
        disk.sync(file, true).expect("the sync succeeds");
        disk.write(file, 0, &[2; 2048]).expect("the write succeeds");
        assert_eq!(after_crash(&disk, CrashSurvival::Nothing, 0), Some(vec![1; 2048]));
        let images: Vec<_> = (0..40).filter_map(|seed| after_crash(&disk, CrashSurvival::Some, seed)).collect();
        assert!(images.contains(&vec![1; 2048]) && images.contains(&vec![2; 2048]));
        assert!(images.iter().any(|image| image.contains(&1) && image.contains(&2)), "torn");
        assert!(images.iter().all(|image| image.chunks(SECTOR).all(|sector| sector.iter().all(|b| *b == sector[0]))));
    }

    #[test]
    fn data_lost_by_a_failed_sync_is_not_written_by_the_next() {
        let (disk, file) = disk_with_file(&[1; 512]);
        disk.sync(file, true).expect("the sync succeeds");
        let mut lost = 0;
        for seed in 0..40 {
            disk.write(file, 0, &[2; 512]).expect("the write succeeds");
            disk.fail_at(0, DiskFault::Error, seed);
            assert_eq!(disk.sync(file, false), Err(ffi::SQLITE_IOERR_FSYNC));
            disk.sync(file, false).expect("nothing is left to sync");
            let mut cached = [0; 512];
            disk.read(file, 0, &mut cached).expect("the read succeeds");
            assert_eq!(cached, [2; 512], "the cache still shows it");
            lost += u32::from(after_crash(&disk, CrashSurvival::Nothing, 0) == Some(vec![1; 512]));
            disk.write(file, 0, &[1; 512]).expect("the write succeeds");
            disk.sync(file, false).expect("the sync succeeds");
        }
        assert!((1..40).contains(&lost), "{lost} of 40");
    }

    #[test]
    fn fault_occurs_at_the_requested_io() {
        let (disk, file) = disk_with_file(&[1; 100]);
        disk.fail_at(1, DiskFault::Short, 3);
        disk.write(file, 100, &[1; 100]).expect("before the fault");
        assert_eq!(disk.write(file, 200, &[1; 100]), Err(ffi::SQLITE_FULL));
        assert!((201..300).contains(&disk.length(file)), "a prefix is written");
        assert_eq!(disk.failed_io(), Some(IoKind::Write));
        disk.fail_at(0, DiskFault::Crash, 3);
        assert_eq!(disk.write(file, 0, &[1]), Err(ffi::SQLITE_IOERR_WRITE));
        assert_eq!(disk.read(file, 0, &mut [0]), Err(ffi::SQLITE_IOERR_READ), "powered off");
    }
}
