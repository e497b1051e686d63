//! File locks and shared-memory locks of SQLite's Unix VFS, between the connections of one process.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

use crate::disk::Code;

const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// Lock state of one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    shared: u32,
    reserved: bool,
    pending: bool,
    exclusive: bool,
}

impl FileLocks {
    /// Raises the caller's lock from `own` to `wanted`.
    pub fn lock(&mut self, own: &mut i32, wanted: i32) -> Result<(), Code> {
        if *own >= wanted {
            return Ok(());
        }
        match wanted {
            ffi::SQLITE_LOCK_SHARED if self.pending || self.exclusive => return Err(ffi::SQLITE_BUSY),
            ffi::SQLITE_LOCK_SHARED => self.shared += 1,
            ffi::SQLITE_LOCK_RESERVED if self.reserved => return Err(ffi::SQLITE_BUSY),
            ffi::SQLITE_LOCK_RESERVED => self.reserved = true,
            _ => {
                let others_reserved = self.reserved && *own < ffi::SQLITE_LOCK_RESERVED;
                let others_pending = self.pending && *own < ffi::SQLITE_LOCK_PENDING;
                if others_reserved || others_pending {
                    return Err(ffi::SQLITE_BUSY);
                }
                (self.reserved, self.pending) = (true, true);
                *own = ffi::SQLITE_LOCK_PENDING;
                if self.shared > 1 {
                    return Err(ffi::SQLITE_BUSY);
                }
                self.exclusive = true;
            }
        }
        *own = wanted;
        Ok(())
    }

    /// Lowers the caller's lock to `wanted`.
    pub fn unlock(&mut self, own: &mut i32, wanted: i32) {
        if *own <= wanted {
            return;
        }
        if *own >= ffi::SQLITE_LOCK_RESERVED {
            (self.reserved, self.pending, self.exclusive) = (false, false, false);
        }
        if wanted == ffi::SQLITE_LOCK_NONE {
            self.shared -= 1;
        }
        *own = wanted;
    }

    pub fn is_reserved(&self) -> bool {
        self.reserved
    }
}

/// Shared memory of one file's connections and its locks.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// Neither moved nor freed while any connection has it mapped: SQLite holds pointers into it.
    regions: Vec<Box<[AtomicU64]>>,
    mapped: u32,
    sharing: [u32; SLOTS],
    exclusive: [bool; SLOTS],
}

/// One connection's part of it.
#[derive(Debug, Default)]
pub(crate) struct SharedMemoryHandle {
    mapped: bool,
    sharing: [bool; SLOTS],
    exclusive: [bool; SLOTS],
}

impl SharedMemory {
    pub fn has(&self, region: usize) -> bool {
        region < self.regions.len()
    }

    /// Pointer to a region; allocates it if needed.
    pub fn map(&mut self, hold: &mut SharedMemoryHandle, region: usize, bytes: usize) -> *mut c_void {
        self.attach(hold);
        while self.regions.len() <= region {
            self.regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        self.regions[region].as_ptr().cast_mut().cast()
    }

    pub fn attach(&mut self, hold: &mut SharedMemoryHandle) {
        if !std::mem::replace(&mut hold.mapped, true) {
            self.mapped += 1;
        }
    }

    pub fn unmap(&mut self, hold: &mut SharedMemoryHandle) {
        self.unlock(hold, 0, SLOTS);
        if std::mem::take(&mut hold.mapped) {
            self.mapped -= 1;
            if self.mapped == 0 {
                self.regions.clear();
            }
        }
    }

    pub fn lock(
        &mut self,
        hold: &mut SharedMemoryHandle,
        first: usize,
        count: usize,
        exclusive: bool,
    ) -> Result<(), Code> {
        let slots = first..first + count;
        let is_busy = |slot: usize| {
            let others_exclusive = self.exclusive[slot] && !hold.exclusive[slot];
            others_exclusive || (exclusive && self.sharing[slot] > u32::from(hold.sharing[slot]))
        };
        if slots.clone().any(is_busy) {
            return Err(ffi::SQLITE_BUSY);
        }
        for slot in slots {
            if exclusive {
                (self.exclusive[slot], hold.exclusive[slot]) = (true, true);
            } else if !std::mem::replace(&mut hold.sharing[slot], true) {
                self.sharing[slot] += 1;
            }
        }
        Ok(())
    }

    pub fn unlock(&mut self, hold: &mut SharedMemoryHandle, first: usize, count: usize) {
        for slot in first..first + count {
            if std::mem::take(&mut hold.exclusive[slot]) {
                self.exclusive[slot] = false;
            }
            if std::mem::take(&mut hold.sharing[slot]) {
                self.sharing[slot] -= 1;
            }
        }
    }
}
