//! A wall clock whose offset is read from a file, so that a chaos run can set the clock of a running node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_domain::time::Time;
use sluice_server::clock::Clock;

use crate::Error;

/// A clock that is off by as many milliseconds as the file says. The file is read at every reading of the wall clock; a
/// missing or unreadable file means no offset.
pub(crate) fn shifted_clock(file: PathBuf) -> Clock {
    Clock::with_wall(Arc::new(move || {
        let now: Time = jiff::Timestamp::now().into();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Time(now.0 + text.trim().parse().unwrap_or(0))
    }))
}

/// Sets the offset. The file is replaced atomically: the node never reads a partial number.
pub(crate) fn set_offset(file: &Path, offset_ms: i64) -> Result<(), Error> {
    let next = file.with_extension("next");
    let set = std::fs::write(&next, offset_ms.to_string()).and_then(|()| std::fs::rename(&next, file));
    set.map_err(Error::io(file.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_in_the_file_shifts_a_running_wall_clock() {
        const HOUR_MS: i64 = 3_600_000;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("clock");
        let clock = shifted_clock(file.clone());
        let (wall, steady) = (clock.wall(), clock.now());
        set_offset(&file, HOUR_MS).unwrap();
        assert!(clock.wall().0 - wall.0 >= HOUR_MS);
        assert!((clock.for_ledger())().0 - wall.0 >= HOUR_MS);
        assert!(clock.now().0 - steady.0 < HOUR_MS);
    }
}
