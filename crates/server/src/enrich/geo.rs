//! Geo databases: files in the MaxMind format, read into memory and read again when they change.
//!
//! They are not mapped into memory: a file that is overwritten in place would end the process.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maxminddb::Reader;
use serde_json::Value;
use sluice_domain::enrich::{GeoLookup, LookupResult, geo_fields};
use sluice_domain::event::LossCode;
use sluice_domain::time::Time;
use tokio::sync::Mutex;

/// Between two looks at whether a file has changed.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The largest known databases have half of it.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// The metadata begins with the marker, in this many bytes at the end of the file.
const METADATA_BYTES_MAX: u64 = 128 * 1024;
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Files in memory. Beyond it all are dropped and read again on use.
const FILES_MAX: usize = 8;

/// A lookup without a node: the file is read for it alone. A relative path starts at the directory of the configuration.
pub(crate) fn look_up_in_file(directory: &Path, lookup: &GeoLookup) -> LookupResult {
    match open(&directory.join(&lookup.database)) {
        Ok((_, database)) => read(&database, lookup),
        Err(problem) => LookupResult::failed(LossCode::DatabaseUnreadable, problem.to_string()),
    }
}

/// Says why a file cannot be used, if it cannot. Only its end is read: the metadata is there.
pub(crate) fn probe(path: &Path) -> Result<(), String> {
    probe_end(path).map_err(|problem| problem.to_string())
}

fn probe_end(path: &Path) -> Result<(), OpenProblem> {
    let bytes = stamp(path)?.bytes;
    if bytes > FILE_BYTES_MAX {
        return Err(OpenProblem::TooLarge(path.to_owned()));
    }
    let mut end = Vec::new();
    let mut file = File::open(path).map_err(|error| problem(path, error))?;
    file.seek(SeekFrom::Start(bytes.saturating_sub(METADATA_BYTES_MAX))).map_err(|error| problem(path, error))?;
    file.take(METADATA_BYTES_MAX).read_to_end(&mut end).map_err(|error| problem(path, error))?;
    match end.windows(MARKER.len()).any(|window| window == MARKER) {
        true => Ok(()),
        false => Err(OpenProblem::NotADatabase(path.to_owned())),
    }
}

/// A change of a file changes one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

#[derive(Debug)]
enum OpenProblem {
    Missing(PathBuf),
    Unreadable(PathBuf, std::io::Error),
    TooLarge(PathBuf),
    NotADatabase(PathBuf),
}

impl fmt::Display for OpenProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenProblem::Missing(path) => write!(f, "there is no database {}", path.display()),
            OpenProblem::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            OpenProblem::TooLarge(path) => write!(f, "{} is larger than 2 GiB", path.display()),
            OpenProblem::NotADatabase(path) => {
                write!(f, "{} is not a database in the MaxMind format", path.display())
            }
        }
    }
}

type Database = Arc<Reader<Vec<u8>>>;

#[derive(Default)]
struct Entry {
    checked_at: Option<Time>,
    stamp: Option<Stamp>,
    database: Option<Database>,
    problem: String,
}

/// The databases in use.
#[derive(Default)]
pub(super) struct GeoDatabases(Mutex<HashMap<PathBuf, Arc<Mutex<Entry>>>>);

impl fmt::Debug for GeoDatabases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GeoDatabases")
    }
}

impl GeoDatabases {
    /// `now` is by the steady clock.
    pub(super) async fn look_up(&self, directory: &Path, lookup: &GeoLookup, now: Time) -> LookupResult {
        match self.database(directory.join(&lookup.database), now).await {
            Ok(database) => read(&database, lookup),
            Err(problem) => LookupResult::failed(LossCode::DatabaseUnreadable, problem),
        }
    }

    async fn database(&self, path: PathBuf, now: Time) -> Result<Database, String> {
        let entry = {
            let mut entries = self.0.lock().await;
            if entries.len() >= FILES_MAX && !entries.contains_key(&path) {
                entries.clear();
            }
            entries.entry(path.clone()).or_default().clone()
        };
        let mut entry = entry.lock().await;
        if entry.checked_at.is_none_or(|checked| now.since(checked) >= CHECK_EVERY) {
            entry.checked_at = Some(now);
            entry.refresh(path).await;
        }
        entry.database.clone().ok_or_else(|| entry.problem.clone())
    }
}

impl Entry {
    /// Reads the file if it has changed. A file that is being written is no database for a moment: the one in memory stays in use. A
    /// file that was removed is used no longer.
    async fn refresh(&mut self, path: PathBuf) {
        let known = self.stamp.filter(|_| self.database.is_some());
        let shown = path.display().to_string();
        let read = tokio::task::spawn_blocking(move || match stamp(&path) {
            Ok(stamp) if Some(stamp) == known => None,
            Ok(_) => Some(open(&path)),
            Err(problem) => Some(Err(problem)),
        });
        match read.await {
            Ok(None) => {}
            Ok(Some(Ok((stamp, database)))) => {
                tracing::info!(path = %shown, database = %database.metadata().database_type, "geo database read");
                (self.stamp, self.database) = (Some(stamp), Some(Arc::new(database)));
            }
            Ok(Some(Err(problem))) => {
                if matches!(problem, OpenProblem::Missing(_)) {
                    self.database = None;
                }
                self.report(problem.to_string());
            }
            Err(_) => self.report(format!("{shown} is not a database in the MaxMind format")),
        }
    }

    /// Logs a problem when it is new.
    fn report(&mut self, problem: String) {
        if self.problem != problem {
            tracing::warn!(in_use = self.database.is_some(), "{problem}");
        }
        self.problem = problem;
    }
}

fn stamp(path: &Path) -> Result<Stamp, OpenProblem> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).map_err(|error| problem(path, error))?;
    let modified = metadata.modified().map_err(|error| problem(path, error))?;
    Ok(Stamp { modified, bytes: metadata.len(), inode: metadata.ino() })
}

fn problem(path: &Path, error: std::io::Error) -> OpenProblem {
    match error.kind() {
        ErrorKind::NotFound => OpenProblem::Missing(path.to_owned()),
        _ => OpenProblem::Unreadable(path.to_owned(), error),
    }
}

/// The stamp is taken before the file is read: a change meanwhile is seen by the next look.
fn open(path: &Path) -> Result<(Stamp, Reader<Vec<u8>>), OpenProblem> {
    let stamp = stamp(path)?;
    if stamp.bytes > FILE_BYTES_MAX {
        return Err(OpenProblem::TooLarge(path.to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| problem(path, error))?;
    let database = Reader::from_source(bytes).map_err(|_| OpenProblem::NotADatabase(path.to_owned()))?;
    Ok((stamp, database))
}

fn read(database: &Reader<Vec<u8>>, lookup: &GeoLookup) -> LookupResult {
    let entry = database.lookup(lookup.address).and_then(|found| found.decode::<Value>());
    match entry {
        Ok(Some(entry)) => LookupResult::of_fields(geo_fields(&entry, &lookup.language)),
        Ok(None) => LookupResult::Absent,
        // A database of IPv4 addresses has no IPv6 address.
        Err(maxminddb::MaxMindDbError::InvalidInput { .. }) => LookupResult::Absent,
        Err(_) => LookupResult::failed(LossCode::DatabaseUnreadable, "the entry in the geo database cannot be read"),
    }
}
