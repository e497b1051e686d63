//! Files and directories that only their owner can read, whatever the umask.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permissions of the group and of all other users.
const FOREIGN_MODE: u32 = 0o077;

/// Files that Sluice keeps in a data directory.
const OWN_FILES: [&str; 15] = [
    "admin.token",
    "admin.token.next",
    "ballast",
    "ledger.db",
    "ledger.db-journal",
    "ledger.db-shm",
    "ledger.db-wal",
    "lock",
    "node.json",
    "node.json.next",
    "root.key",
    "root.key.next",
    "root.key.next.next",
    "running",
    "running.next",
];

/// Creates a missing directory, readable only by its owner. Leaves an existing one as it is.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    std::fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
}

/// Creates a file that must not exist yet, readable only by its owner.
pub fn create_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Replaces a file atomically and durably by one that only its owner can read.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    let next = path.with_file_name(name);
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create_file(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Creates the data directory, or restricts an existing one and the files of Sluice in it to their owner. A directory with
/// other files may be shared on purpose: it keeps its mode, and a warning is logged.
pub(crate) fn protect(directory: &Path) -> io::Result<()> {
    create_directory(directory)?;
    for name in OWN_FILES {
        let path = directory.join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && is_open(&found)) {
            restrict(&path, FILE_MODE);
        }
    }
    if !is_open(&std::fs::metadata(directory)?) {
        return Ok(());
    }
    let is_own = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| OWN_FILES.contains(&name)))
    };
    if std::fs::read_dir(directory)?.all(is_own) {
        restrict(directory, DIRECTORY_MODE);
    } else {
        tracing::warn!(path = %directory.display(), "other users can read the data directory; it holds other files too, so its mode stays; use a directory of its own or run chmod 700");
    }
    Ok(())
}

fn is_open(found: &std::fs::Metadata) -> bool {
    found.permissions().mode() & FOREIGN_MODE != 0
}

/// A file of another user keeps its mode: the operator is told.
fn restrict(path: &Path, mode: u32) {
    if let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(mode)) {
        tracing::warn!(path = %path.display(), %error, "other users can read it and its mode cannot be changed; run chmod {mode:o}");
    }
}

/// Whether users other than the owner and the group can read the file: its own mode and that of every directory above allow it.
pub fn is_readable_by_all(path: &Path) -> bool {
    const READ: u32 = 0o004;
    const SEARCH: u32 = 0o001;
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    let has = |path: &Path, bit: u32| std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bit != 0);
    has(&path, READ) && path.ancestors().skip(1).all(|directory| has(directory, SEARCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn open_to_all(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn data_directory_with_own_files_only_is_restricted() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        open_to_all(&data, 0o755);
        for name in ["ledger.db", "root.key", "node.json"] {
            std::fs::write(data.join(name), "x").unwrap();
            open_to_all(&data.join(name), 0o644);
        }
        protect(&data).unwrap();
        assert_eq!(mode(&data), 0o700);
        for name in ["ledger.db", "root.key", "node.json"] {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn shared_directory_keeps_its_mode_and_only_own_files_are_restricted() {
        let directory = tempfile::tempdir().unwrap();
        open_to_all(directory.path(), 0o755);
        for name in ["ledger.db", "letter.txt"] {
            std::fs::write(directory.path().join(name), "x").unwrap();
            open_to_all(&directory.path().join(name), 0o644);
        }
        protect(directory.path()).unwrap();
        assert_eq!(mode(directory.path()), 0o755);
        assert_eq!(mode(&directory.path().join("ledger.db")), 0o600);
        assert_eq!(mode(&directory.path().join("letter.txt")), 0o644);
    }

    #[test]
    fn replaced_file_is_private_and_an_interrupted_replacement_does_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.json");
        std::fs::write(&path, "old").unwrap();
        open_to_all(&path, 0o644);
        std::fs::write(directory.path().join("node.json.next"), "half").unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
        assert!(!directory.path().join("node.json.next").exists());
    }

    #[test]
    fn closed_directory_above_protects_a_readable_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "x").unwrap();
        open_to_all(&path, 0o644);
        open_to_all(directory.path(), 0o700);
        assert!(!is_readable_by_all(&path));
        open_to_all(directory.path(), 0o755);
        assert!(is_readable_by_all(&path));
        open_to_all(&path, 0o640);
        assert!(!is_readable_by_all(&path));
    }
}
