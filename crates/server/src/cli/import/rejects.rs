//! Rows that were not imported, with the reason, in a file beside the imported one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::{CliError, exit};

/// Bytes of a row that are kept.
const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// A row that was not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reject {
    pub line: u64,
    /// Name of the column, or place in the line from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<String>,
    pub code: String,
    pub reason: String,
    /// The row as it is in the file, or its beginning.
    pub row: String,
}

impl Reject {
    pub(super) fn new(line: u64, column: Option<String>, (code, reason): (&str, String), row: &[u8]) -> Reject {
        let row = String::from_utf8_lossy(&row[..row.len().min(SHOWN_BYTES_MAX)]).into_owned();
        Reject { line, column, code: code.to_owned(), reason, row }
    }
}

/// Rejects by line. Written as a whole.
#[derive(Debug)]
pub(super) struct Rejects {
    path: PathBuf,
    by_line: BTreeMap<u64, Reject>,
}

impl Rejects {
    /// Those of an earlier run of the same import are kept.
    pub(super) fn open(imported: &Path, is_continued: bool) -> Result<Rejects, CliError> {
        let mut name = imported.as_os_str().to_owned();
        name.push(".rejects.ndjson");
        let path = PathBuf::from(name);
        let mut by_line = BTreeMap::new();
        if is_continued && let Ok(file) = std::fs::File::open(&path) {
            for line in BufReader::new(file).lines() {
                let line = line.map_err(|error| unwritable(&path, &error))?;
                // A file that someone else wrote there is not ours to read.
                let Ok(reject) = serde_json::from_str::<Reject>(&line) else { continue };
                by_line.insert(reject.line, reject);
            }
        }
        Ok(Rejects { path, by_line })
    }

    pub(super) fn add(&mut self, reject: Reject) {
        self.by_line.insert(reject.line, reject);
    }

    pub(super) fn len(&self) -> u64 {
        self.by_line.len() as u64
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file, if there is anything to write.
    pub(super) fn write(&self) -> Result<(), CliError> {
        if self.by_line.is_empty() {
            return Ok(());
        }
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let written = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new("."))).and_then(|mut file| {
            for reject in self.by_line.values() {
                serde_json::to_writer(&mut file, reject)?;
                file.write_all(b"\n")?;
            }
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)
        });
        written.map(drop).map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(exit::UNAVAILABLE, format!("{} cannot be written: {error}", path.display()))
}
