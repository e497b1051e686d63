//! C callbacks of the SQLite VFS, implemented by [`Disk`].
//!
//! The only unsafe code of the repository. Each function relies on SQLite's contract for a VFS: a file was initialized by
//! `x_open` and not yet closed by `x_close`, no two threads use one file at the same time, buffers are valid for the
//! given length, and names are NUL-terminated.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use rusqlite::ffi;

use crate::disk::{Code, Disk};
use crate::locks::SharedMemoryHandle;

static MOUNTS: Mutex<BTreeMap<PathBuf, Disk>> = Mutex::new(BTreeMap::new());
static REGISTERED: Once = Once::new();
const NAME: &CStr = c"faulty";
const PATH_MAX: c_int = 1024;
const SECTOR_SIZE: c_int = 4096;

/// Serves files in the directory from this disk.
pub(crate) fn mount(directory: &Path, disk: Disk) {
    REGISTERED.call_once(register);
    MOUNTS.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned(), disk);
}

/// Open file. The first field is the part SQLite knows; SQLite allocates the memory.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

struct Handle {
    disk: Disk,
    file: u64,
    lock: c_int,
    hold: SharedMemoryHandle,
    /// The first sync of a created log also makes its name durable, as on Unix.
    sync_names: bool,
    delete_on_close: Option<String>,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(x_close),
    xRead: Some(x_read),
    xWrite: Some(x_write),
    xTruncate: Some(x_truncate),
    xSync: Some(x_sync),
    xFileSize: Some(x_file_size),
    xLock: Some(x_lock),
    xUnlock: Some(x_unlock),
    xCheckReservedLock: Some(x_check_reserved_lock),
    xFileControl: Some(x_file_control),
    xSectorSize: Some(x_sector_size),
    xDeviceCharacteristics: Some(x_device_characteristics),
    xShmMap: Some(x_shm_map),
    xShmLock: Some(x_shm_lock),
    xShmBarrier: Some(x_shm_barrier),
    xShmUnmap: Some(x_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn register() {
    // SAFETY: SQLite keeps the pointer, so the structure is leaked and lives as long as the process. The default VFS,
    // used for randomness and time, is a static of SQLite.
    unsafe {
        let system = ffi::sqlite3_vfs_find(std::ptr::null());
        assert!(!system.is_null(), "SQLite has a default VFS");
        let vfs = Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<OpenFile>() as c_int,
            mxPathname: PATH_MAX,
            pNext: std::ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: std::ptr::null_mut(),
            xOpen: Some(x_open),
            xDelete: Some(x_delete),
            xAccess: Some(x_access),
            xFullPathname: Some(x_full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: (*system).xRandomness,
            xSleep: (*system).xSleep,
            xCurrentTime: (*system).xCurrentTime,
            xGetLastError: None,
            xCurrentTimeInt64: (*system).xCurrentTimeInt64,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        });
        let code = ffi::sqlite3_vfs_register(Box::into_raw(vfs), 1);
        assert_eq!(code, ffi::SQLITE_OK, "the VFS is registered");
    }
}

fn code(result: Result<(), Code>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// Disk and file name of a path.
unsafe fn locate(path: *const c_char) -> Option<(Disk, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a non-null name is NUL-terminated.
    let path = Path::new(unsafe { CStr::from_ptr(path) }.to_str().ok()?);
    let mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let disk = mounts.get(path.parent()?)?;
    Some((disk.clone(), path.file_name()?.to_str()?.to_owned()))
}

unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Handle {
    // SAFETY: see the module header: it was opened here, and no other thread uses it.
    unsafe { &mut *(*file.cast::<OpenFile>()).handle }
}

unsafe extern "C" fn x_open(
    _: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite allocates the file; null methods mark it as not open.
    unsafe {
        (*file).pMethods = std::ptr::null();
        let Some((disk, name)) = locate(path) else { return ffi::SQLITE_CANTOPEN };
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let number = match disk.open(&name, create) {
            Ok(number) => number,
            Err(code) => return code,
        };
        let is_log = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
        let delete_on_close = (flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0).then_some(name);
        let (lock, hold) = (ffi::SQLITE_LOCK_NONE, SharedMemoryHandle::default());
        let handle = Handle { disk, file: number, lock, hold, sync_names: create && is_log, delete_on_close };
        (*file.cast::<OpenFile>()).handle = Box::into_raw(Box::new(handle));
        (*file).pMethods = &raw const METHODS;
        if !flags_out.is_null() {
            *flags_out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the handle was boxed by `x_open`, and SQLite closes a file once.
    let mut handle = unsafe { Box::from_raw((*file.cast::<OpenFile>()).handle) };
    let Handle { disk, file: number, lock, hold, .. } = &mut *handle;
    disk.with_file(*number, |file| {
        file.shared.unmap(hold);
        file.locks.unlock(lock, ffi::SQLITE_LOCK_NONE);
    });
    if let Some(name) = &handle.delete_on_close {
        return code(handle.disk.delete(name, false));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_delete(_: *mut ffi::sqlite3_vfs, path: *const c_char, sync: c_int) -> c_int {
    // SAFETY: the name comes from SQLite.
    match unsafe { locate(path) } {
        Some((disk, name)) => code(disk.delete(&name, sync != 0)),
        None => ffi::SQLITE_IOERR_DELETE_NOENT,
    }
}

unsafe extern "C" fn x_access(_: *mut ffi::sqlite3_vfs, path: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    // SAFETY: the name comes from SQLite, and `out` is valid.
    unsafe { *out = c_int::from(locate(path).is_some_and(|(disk, name)| disk.exists(&name))) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_full_pathname(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    capacity: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the name is NUL-terminated, and `out` holds `capacity` bytes.
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes_with_nul();
        if bytes.len() > capacity as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_read(file: *mut ffi::sqlite3_file, into: *mut c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: the buffer has that length.
    let (handle, into) = unsafe { (handle(file), std::slice::from_raw_parts_mut(into.cast(), length as usize)) };
    code(handle.disk.read(handle.file, at as usize, into))
}

unsafe extern "C" fn x_write(file: *mut ffi::sqlite3_file, from: *const c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: the buffer has that length.
    let (handle, bytes) = unsafe { (handle(file), std::slice::from_raw_parts(from.cast(), length as usize)) };
    code(handle.disk.write(handle.file, at as usize, bytes))
}

unsafe extern "C" fn x_truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    code(handle.disk.truncate(handle.file, length as usize))
}

unsafe extern "C" fn x_sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    let result = handle.disk.sync(handle.file, handle.sync_names);
    handle.sync_names &= result.is_err();
    code(result)
}

unsafe extern "C" fn x_file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: an open file, and `out` is valid.
    unsafe {
        let handle = handle(file);
        *out = handle.disk.length(handle.file) as i64;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_lock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: an open file.
    let Handle { disk, file, lock, .. } = unsafe { handle(file) };
    code(disk.with_file(*file, |file| file.locks.lock(lock, wanted)))
}

unsafe extern "C" fn x_unlock(file: *mut ffi::sqlite3_file, wanted: c_int) -> c_int {
    // SAFETY: an open file.
    let Handle { disk, file, lock, .. } = unsafe { handle(file) };
    disk.with_file(*file, |file| file.locks.unlock(lock, wanted));
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: an open file, and `out` is valid.
    unsafe {
        let handle = handle(file);
        *out = c_int::from(handle.disk.with_file(handle.file, |file| file.locks.is_reserved()));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn x_sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR_SIZE
}

unsafe extern "C" fn x_device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    // As SQLite assumes of a disk on Unix: a torn write damages no adjacent bytes.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn x_shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: an open file, and `out` is valid. The pointer stays valid until the last connection unmaps it.
    unsafe {
        *out = std::ptr::null_mut();
        let Handle { disk, file, hold, .. } = handle(file);
        let region = region as usize;
        if !disk.with_file(*file, |file| file.shared.has(region)) {
            if extend == 0 {
                disk.with_file(*file, |file| file.shared.attach(hold));
                return ffi::SQLITE_OK;
            }
            if let Err(code) = disk.grow_shared() {
                return code;
            }
        }
        *out = disk.with_file(*file, |file| file.shared.map(hold, region, bytes as usize));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn x_shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: an open file.
    let Handle { disk, file, hold, .. } = unsafe { handle(file) };
    let (first, count) = (first as usize, count as usize);
    disk.with_file(*file, |file| {
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            file.shared.unlock(hold, first, count);
            return ffi::SQLITE_OK;
        }
        code(file.shared.lock(hold, first, count, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0))
    })
}

unsafe extern "C" fn x_shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn x_shm_unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let Handle { disk, file, hold, .. } = unsafe { handle(file) };
    disk.with_file(*file, |file| file.shared.unmap(hold));
    ffi::SQLITE_OK
}
