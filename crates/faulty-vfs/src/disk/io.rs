//! File operations that the VFS performs on the disk.

use rusqlite::ffi;

use super::{Change, Code, Disk, DiskFault, File, IoKind};

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
        state.name_changes.push((name.to_owned(), Some(number)));
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
        state.name_changes.push((name.to_owned(), None));
        if sync {
            state.sync_names();
        }
        Ok(())
    }

    /// True if the file exists and is not empty, as SQLite's Unix VFS defines it.
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
        let content = state.file(number).cached.get(at..).unwrap_or_default();
        let length = content.len().min(into.len());
        into[..length].copy_from_slice(&content[..length]);
        into[length..].fill(0);
        if length < into.len() { Err(ffi::SQLITE_IOERR_SHORT_READ) } else { Ok(()) }
    }

    pub(crate) fn write(&self, number: u64, at: usize, bytes: &[u8]) -> Result<(), Code> {
        let mut state = self.state();
        if state.powered_off {
            return Err(ffi::SQLITE_IOERR_WRITE);
        }
        let fault = state.count(IoKind::Write);
        let torn_length = 1 + state.random.below(bytes.len().max(2) as u64 - 1) as usize;
        let (written, result) = match fault {
            None => (bytes, Ok(())),
            Some(DiskFault::Error) => (&bytes[..0], Err(ffi::SQLITE_IOERR_WRITE)),
            Some(DiskFault::Full) => (&bytes[..0], Err(ffi::SQLITE_FULL)),
            Some(DiskFault::Short) => (&bytes[..torn_length], Err(ffi::SQLITE_FULL)),
            Some(DiskFault::Torn) => (&bytes[..torn_length], Err(ffi::SQLITE_IOERR_WRITE)),
            // The last write is in flight when the power fails.
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
                // Applies the changes and not the cache: data lost by a failed sync stays lost.
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
                // An arbitrary part is durable. The cache still shows all of it, and it counts as clean.
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

    /// Counts a request for more shared memory.
    pub(crate) fn grow_shared(&self) -> Result<(), Code> {
        match self.state().count(IoKind::Map) {
            None => Ok(()),
            Some(DiskFault::Full) => Err(ffi::SQLITE_IOERR_SHMSIZE),
            Some(_) => Err(ffi::SQLITE_IOERR_SHMMAP),
        }
    }

    pub(crate) fn with_file<T>(&self, number: u64, action: impl FnOnce(&mut File) -> T) -> T {
        action(self.state().file(number))
    }
}
