//! The disk: what is cached, what is durable, and what lies between.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;
use sluice_domain::random::Random;

use crate::locks::{FileLocks, Shared};
use crate::vfs;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What SQLite asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoKind {
    /// A file that may have to be made.
    Open,
    /// Bytes of a file.
    Read,
    /// Bytes into a file.
    Write,
    /// That what was written stays.
    Sync,
    /// Another length.
    Truncate,
    /// No such file any more.
    Delete,
    /// More of the memory that connections share.
    Map,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// EIO, and nothing was done. A failed sync has kept any part, and the system does not try again.
    Error,
    /// ENOSPC, and nothing was done.
    Full,
    /// Only the first part was written, and then there was no room.
    Short,
    /// Only the first part was written, and then came EIO.
    Torn,
    /// The power goes.
    Crash,
}

impl DiskFault {
    /// Every one.
    pub const ALL: [DiskFault; 5] =
        [DiskFault::Error, DiskFault::Full, DiskFault::Short, DiskFault::Torn, DiskFault::Crash];

    /// Whether this can happen to that.
    pub fn happens_to(self, io: IoKind) -> bool {
        match self {
            DiskFault::Error => true,
            DiskFault::Full => matches!(io, IoKind::Write | IoKind::Open | IoKind::Map),
            DiskFault::Short | DiskFault::Torn => io == IoKind::Write,
            // Before a read it is the same as before the next change.
            DiskFault::Crash => matches!(io, IoKind::Write | IoKind::Sync | IoKind::Truncate | IoKind::Delete),
        }
    }
}

/// What a crash leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashSurvival {
    /// All of it: only the process has died.
    Everything,
    /// None of it.
    Nothing,
    /// Everything up to some moment.
    Prefix,
    /// Any part in any order, some of it torn.
    Some,
}

/// Files by name, as they are found after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    /// Bytes in all files.
    pub fn size(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// A disk. The copies are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// What became of names since they were durable last.
    renamings: Vec<(String, Option<u64>)>,
    next_file: u64,
    seen: u64,
    counts: BTreeMap<IoKind, u64>,
    order: Option<(u64, DiskFault)>,
    met: Option<IoKind>,
    dead: bool,
    random: Random,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    cached: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    pub locks: FileLocks,
    pub shared: Shared,
}

/// Something that is not synced yet.
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

    /// Leaves out any part.
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
            renamings: Vec::new(),
            next_file: 1,
            seen: 0,
            counts: BTreeMap::new(),
            order: None,
            met: None,
            dead: false,
            random: Random::seeded(0),
        }
    }
}

impl Disk {
    /// A disk that holds this.
    pub fn holding(image: &Image) -> Disk {
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

    /// From here on this directory lies on this disk, for whoever opens something in it.
    pub fn mount(&self, directory: &Path) {
        vfs::mount(directory, self.clone());
    }

    /// Lets the I/O with this number fail, counted from 0 and from now on.
    pub fn fail_at(&self, number: u64, fault: DiskFault, seed: u64) {
        let mut state = self.state();
        state.order = Some((state.seen + number, fault));
        state.met = None;
        state.random = Random::seeded(seed);
    }

    /// Nothing fails any more.
    pub fn clear_faults(&self) {
        self.state().order = None;
    }

    /// What has failed as ordered.
    pub fn met(&self) -> Option<IoKind> {
        self.state().met
    }

    /// How many I/Os there were.
    pub fn seen(&self) -> u64 {
        self.state().seen
    }

    /// How many of each kind.
    pub fn counts(&self) -> BTreeMap<IoKind, u64> {
        self.state().counts.clone()
    }

    /// The power goes now: whoever holds something open hears nothing but errors.
    pub fn power_off(&self) {
        self.state().dead = true;
    }

    /// The process that uses it dies, and the system lives on: the same disk for the next one, with what is cached and not
    /// durable. Whoever holds something open on this one hears nothing but errors.
    pub fn crash_process(&self) -> Disk {
        let mut state = self.state();
        state.dead = true;
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
            renamings: state.renamings.clone(),
            next_file: state.next_file,
            seen: state.seen,
            counts: state.counts.clone(),
            order: state.order,
            met: state.met,
            dead: false,
            random: state.random.clone(),
        };
        Disk(Arc::new(Mutex::new(next)))
    }

    /// Whether the power is gone.
    pub fn is_cut(&self) -> bool {
        self.state().dead
    }

    /// What is found after a restart.
    pub fn image(&self, keep: CrashSurvival, seed: u64) -> Image {
        let state = self.state();
        let mut random = Random::seeded(seed);
        let mut names = state.durable_names.clone();
        // A journalling file system keeps the order of what happens to names.
        let kept = match keep {
            CrashSurvival::Everything => state.renamings.len(),
            CrashSurvival::Nothing => 0,
            CrashSurvival::Prefix | CrashSurvival::Some => random.below(state.renamings.len() as u64 + 1) as usize,
        };
        for (name, file) in &state.renamings[..kept] {
            rename(&mut names, name, *file);
        }
        let files = names.into_iter().filter_map(|(name, number)| {
            let file = state.files.get(&number)?;
            let mut bytes = file.durable.clone();
            match keep {
                CrashSurvival::Everything => bytes.clone_from(&file.cached),
                CrashSurvival::Nothing => {}
                CrashSurvival::Prefix => {
                    let kept = random.below(file.changes.len() as u64 + 1) as usize;
                    file.changes[..kept].iter().for_each(|change| change.apply(&mut bytes));
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

fn rename(names: &mut BTreeMap<String, u64>, name: &str, file: Option<u64>) {
    match file {
        Some(file) => drop(names.insert(name.to_owned(), file)),
        None => drop(names.remove(name)),
    }
}

/// An error code of SQLite.
pub(crate) type Code = i32;

impl State {
    /// Counts an I/O, and says what goes wrong with it.
    fn count(&mut self, io: IoKind) -> Option<DiskFault> {
        if self.dead {
            return Some(DiskFault::Crash);
        }
        let number = self.seen;
        self.seen += 1;
        *self.counts.entry(io).or_default() += 1;
        let (_, fault) = self.order.filter(|(at, fault)| *at == number && fault.happens_to(io))?;
        self.met = Some(io);
        self.dead = fault == DiskFault::Crash;
        Some(fault)
    }

    fn file(&mut self, number: u64) -> &mut File {
        self.files.entry(number).or_default()
    }

    fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.renamings.clear();
    }
}

/// What the VFS needs.
impl Disk {
    pub(crate) fn open(&self, name: &str, create: bool) -> Result<u64, Code> {
        let mut state = self.state();
        if state.count(IoKind::Open).is_some() {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        if let Some(number) = state.names.get(name) {
            return Ok(*number);
        }
        if !create {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        let number = state.next_file;
        state.next_file += 1;
        state.files.insert(number, File::default());
        state.names.insert(name.to_owned(), number);
        state.renamings.push((name.to_owned(), Some(number)));
        Ok(number)
    }

    pub(crate) fn delete(&self, name: &str, sync: bool) -> Result<(), Code> {
        let mut state = self.state();
        if state.count(IoKind::Delete).is_some() {
            return Err(ffi::SQLITE_IOERR_DELETE);
        }
        if state.names.remove(name).is_none() {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        state.renamings.push((name.to_owned(), None));
        if sync {
            state.sync_names();
        }
        Ok(())
    }

    /// Whether there is such a file with something in it, as Unix is asked by SQLite.
    pub(crate) fn exists(&self, name: &str) -> bool {
        let state = self.state();
        let file = state.names.get(name).and_then(|number| state.files.get(number));
        file.is_some_and(|file| !file.cached.is_empty())
    }

    pub(crate) fn read(&self, number: u64, at: usize, into: &mut [u8]) -> Result<(), Code> {
        let mut state = self.state();
        if state.count(IoKind::Read).is_some() {
            return Err(ffi::SQLITE_IOERR_READ);
        }
        let found = state.file(number).cached.get(at..).unwrap_or_default();
        let length = found.len().min(into.len());
        into[..length].copy_from_slice(&found[..length]);
        into[length..].fill(0);
        if length < into.len() { Err(ffi::SQLITE_IOERR_SHORT_READ) } else { Ok(()) }
    }

    pub(crate) fn write(&self, number: u64, at: usize, bytes: &[u8]) -> Result<(), Code> {
        let mut state = self.state();
        if state.dead {
            return Err(ffi::SQLITE_IOERR_WRITE);
        }
        let fault = state.count(IoKind::Write);
        let half = 1 + state.random.below(bytes.len().max(2) as u64 - 1) as usize;
        let (written, result) = match fault {
            None => (bytes, Ok(())),
            Some(DiskFault::Error) => (&bytes[..0], Err(ffi::SQLITE_IOERR_WRITE)),
            Some(DiskFault::Full) => (&bytes[..0], Err(ffi::SQLITE_FULL)),
            Some(DiskFault::Short) => (&bytes[..half], Err(ffi::SQLITE_FULL)),
            Some(DiskFault::Torn) => (&bytes[..half], Err(ffi::SQLITE_IOERR_WRITE)),
            // The last write is under way when the power goes.
            Some(DiskFault::Crash) => (bytes, Err(ffi::SQLITE_IOERR_WRITE)),
        };
        if !written.is_empty() {
            let change = Change::Write { at, bytes: written.to_vec() };
            let file = state.file(number);
            change.apply(&mut file.cached);
            file.changes.push(change);
        }
        result
    }

    pub(crate) fn truncate(&self, number: u64, length: usize) -> Result<(), Code> {
        let mut state = self.state();
        if state.count(IoKind::Truncate).is_some() {
            return Err(ffi::SQLITE_IOERR_TRUNCATE);
        }
        let file = state.file(number);
        file.cached.resize(length, 0);
        file.changes.push(Change::Length(length));
        Ok(())
    }

    pub(crate) fn sync(&self, number: u64, with_names: bool) -> Result<(), Code> {
        let mut state = self.state();
        let fault = state.count(IoKind::Sync);
        let state = &mut *state;
        let Some(file) = state.files.get_mut(&number) else { return Ok(()) };
        match fault {
            None => {
                // Change by change: what a failed sync took for clean is not written now either.
                for change in std::mem::take(&mut file.changes) {
                    change.apply(&mut file.durable);
                }
                if with_names {
                    state.sync_names();
                }
                Ok(())
            }
            Some(DiskFault::Crash) => Err(ffi::SQLITE_IOERR_FSYNC),
            Some(_) => {
                // Any part has reached the disk. The cache goes on to show all of it, and holds it for clean.
                for change in std::mem::take(&mut file.changes) {
                    change.apply_some(&mut file.durable, &mut state.random);
                }
                Err(ffi::SQLITE_IOERR_FSYNC)
            }
        }
    }

    pub(crate) fn length(&self, number: u64) -> usize {
        self.state().file(number).cached.len()
    }

    /// Counts that more shared memory is asked for.
    pub(crate) fn grow_shared(&self) -> Result<(), Code> {
        match self.state().count(IoKind::Map) {
            None => Ok(()),
            Some(DiskFault::Full) => Err(ffi::SQLITE_IOERR_SHMSIZE),
            Some(_) => Err(ffi::SQLITE_IOERR_SHMMAP),
        }
    }

    pub(crate) fn with_file<T>(&self, number: u64, act: impl FnOnce(&mut File) -> T) -> T {
        act(self.state().file(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> (Disk, u64) {
        let disk = Disk::default();
        let file = disk.open("file", true).expect("it can be made");
        disk.write(file, 0, bytes).expect("it can be written");
        (disk, file)
    }

    fn found(disk: &Disk, keep: CrashSurvival, seed: u64) -> Option<Vec<u8>> {
        disk.image(keep, seed).0.remove("file")
    }

    #[test]
    fn what_is_not_synced_may_be_lost_and_what_is_stays() {
        let (disk, file) = written(&[1; 2048]);
        assert_eq!(found(&disk, CrashSurvival::Nothing, 0), None, "not even its name is durable");
        assert_eq!(found(&disk, CrashSurvival::Everything, 0), Some(vec![1; 2048]));
        disk.sync(file, true).expect("it can be synced");
        disk.write(file, 0, &[2; 2048]).expect("it can be written");
        assert_eq!(found(&disk, CrashSurvival::Nothing, 0), Some(vec![1; 2048]));
        let images: Vec<_> = (0..40).filter_map(|seed| found(&disk, CrashSurvival::Some, seed)).collect();
        assert!(images.contains(&vec![1; 2048]) && images.contains(&vec![2; 2048]));
        assert!(images.iter().any(|image| image.contains(&1) && image.contains(&2)), "torn");
        assert!(images.iter().all(|image| image.chunks(SECTOR).all(|sector| sector.iter().all(|b| *b == sector[0]))));
    }

    #[test]
    fn what_a_failed_sync_has_lost_is_not_written_by_the_next() {
        let (disk, file) = written(&[1; 512]);
        disk.sync(file, true).expect("it can be synced");
        let mut lost = 0;
        for seed in 0..40 {
            disk.write(file, 0, &[2; 512]).expect("it can be written");
            disk.fail_at(0, DiskFault::Error, seed);
            assert_eq!(disk.sync(file, false), Err(ffi::SQLITE_IOERR_FSYNC));
            disk.sync(file, false).expect("nothing is left to sync");
            let mut cached = [0; 512];
            disk.read(file, 0, &mut cached).expect("it can be read");
            assert_eq!(cached, [2; 512], "and still it is shown");
            lost += u32::from(found(&disk, CrashSurvival::Nothing, 0) == Some(vec![1; 512]));
            disk.write(file, 0, &[1; 512]).expect("it can be written");
            disk.sync(file, false).expect("it can be synced");
        }
        assert!((1..40).contains(&lost), "{lost} of 40");
    }

    #[test]
    fn faults_come_when_they_are_ordered() {
        let (disk, file) = written(&[1; 100]);
        disk.fail_at(1, DiskFault::Short, 3);
        disk.write(file, 100, &[1; 100]).expect("not yet");
        assert_eq!(disk.write(file, 200, &[1; 100]), Err(ffi::SQLITE_FULL));
        assert!((201..300).contains(&disk.length(file)), "the first part of it was written");
        assert_eq!(disk.met(), Some(IoKind::Write));
        disk.fail_at(0, DiskFault::Crash, 3);
        assert_eq!(disk.write(file, 0, &[1]), Err(ffi::SQLITE_IOERR_WRITE));
        assert_eq!(disk.read(file, 0, &mut [0]), Err(ffi::SQLITE_IOERR_READ), "the power is gone");
    }
}
