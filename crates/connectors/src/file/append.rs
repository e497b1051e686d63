//! Appending to a file, and looking for a line in it. Blocking.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::de::IgnoredAny;

/// A read-back searches this much of the end of a file.
const SEARCHED_BYTES_MAX: u64 = 4 << 30;

#[derive(Debug)]
pub(super) enum AppendError {
    /// The file is as it was.
    NotWritten(io::Error),
    /// The lines may be in the file, and may be lost by a power cut.
    Unknown(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Present,
    Absent,
    /// It is not in the part that was searched.
    NotSearched,
}

/// Appends complete lines and syncs them. A failed write is undone.
pub(super) fn append(path: &Path, lines: &[u8]) -> Result<(), AppendError> {
    let not_written = AppendError::NotWritten;
    let is_new = !path.exists();
    let mut file =
        OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path).map_err(not_written)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| not_written(error.into()))?;
    let before = file.metadata().map_err(not_written)?.len();
    let is_cut = ends_within_a_line(&mut file, before).map_err(not_written)?;
    let written = match is_cut {
        true => file.write_all(&[b"\n", lines].concat()),
        false => file.write_all(lines),
    };
    if let Err(error) = written {
        return Err(match file.set_len(before).and_then(|()| file.sync_data()) {
            Ok(()) => AppendError::NotWritten(error),
            Err(_) => AppendError::Unknown(error),
        });
    }
    file.sync_data().map_err(AppendError::Unknown)?;
    if is_new {
        sync_directory(path).map_err(AppendError::Unknown)?;
    }
    Ok(())
}

fn ends_within_a_line(file: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Makes the entry of a new file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Looks for a complete line with this beginning, and syncs the file if there is one. A line that was cut off ends within its JSON,
/// also after a later write has ended it with a line break.
pub(super) fn find(path: &Path, start: &[u8]) -> io::Result<Found> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let from = length.saturating_sub(SEARCHED_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(1 << 20, &mut file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.starts_with(start) && line.ends_with(b"\n") && serde_json::from_slice::<IgnoredAny>(&line).is_ok() {
            drop(reader);
            file.sync_data()?;
            sync_directory(path)?;
            return Ok(Found::Present);
        }
    }
    Ok(if from == 0 { Found::Absent } else { Found::NotSearched })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_was_cut_off_stays_alone_and_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leads.ndjson");
        assert_eq!(find(&path, b"{\"effect_key\":\"a\",").unwrap(), Found::Absent, "the file does not exist");
        append(&path, b"{\"effect_key\":\"a\",\"record\":1}\n").unwrap();
        // A crash in the middle of a write.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"effect_key\":\"b\",\"rec").unwrap();
        assert_eq!(find(&path, b"{\"effect_key\":\"b\",").unwrap(), Found::Absent);
        append(&path, b"{\"effect_key\":\"b\",\"record\":2}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let whole: Vec<&str> =
            text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).collect();
        assert_eq!(whole, ["{\"effect_key\":\"a\",\"record\":1}", "{\"effect_key\":\"b\",\"record\":2}"]);
        for key in ["a", "b"] {
            assert_eq!(find(&path, format!("{{\"effect_key\":\"{key}\",").as_bytes()).unwrap(), Found::Present);
        }
        assert_eq!(find(&path, b"{\"effect_key\":\"c\",").unwrap(), Found::Absent);
    }

    #[test]
    fn line_that_was_cut_off_behind_a_brace_is_not_taken_for_a_whole_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leads.ndjson");
        std::fs::write(&path, b"{\"effect_key\":\"a\",\"record\":{\"utm\":{\"source\":\"x\"}").unwrap();
        // The line of another effect ends the one before it.
        append(&path, b"{\"effect_key\":\"b\",\"record\":1}\n").unwrap();
        assert_eq!(find(&path, b"{\"effect_key\":\"a\",").unwrap(), Found::Absent);
        assert_eq!(find(&path, b"{\"effect_key\":\"b\",").unwrap(), Found::Present);
    }

    #[test]
    fn full_disk_leaves_the_file_as_it_was() {
        // Every write to this device fails with "no space left"; it cannot be truncated either.
        let path = Path::new("/dev/full");
        if path.exists() {
            assert!(matches!(append(path, b"x\n"), Err(AppendError::Unknown(_) | AppendError::NotWritten(_))));
        }
        let missing = Path::new("/nowhere/at/all.ndjson");
        assert!(matches!(append(missing, b"x\n"), Err(AppendError::NotWritten(_))));
    }
}
