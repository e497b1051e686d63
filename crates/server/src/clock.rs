//! The time, read in one place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sluice_domain::time::Time;

/// Names a file that says by how many milliseconds the wall clock is off. It is read whenever the time is, so that the clock can be
/// set while a node runs. For rehearsals; nobody else has a reason to.
pub const OFFSET_VARIABLE: &str = "SLUICE_REHEARSAL_CLOCK_OFFSET_FILE";

/// Tells the time in two ways.
///
/// The wall clock can be set and can jump; it is what senders sign and people read. The steady one started with the wall
/// clock's time and then only counts what has passed; schedules are kept by it, so that a jump releases nothing
/// early and holds nothing back.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Time,
    offset: Option<Arc<Path>>,
}

impl Clock {
    /// Starts the steady clock at the wall clock's time.
    pub fn start() -> Clock {
        let offset = std::env::var_os(OFFSET_VARIABLE).map(|file| Arc::from(PathBuf::from(file)));
        Clock { started: Instant::now(), started_at: wall(offset.as_deref()), offset }
    }

    /// The wall clock's time.
    pub fn wall(&self) -> Time {
        wall(self.offset.as_deref())
    }

    /// The steady clock's time.
    pub fn now(&self) -> Time {
        self.started_at + self.started.elapsed()
    }

    /// When the steady clock shows `at`.
    pub fn instant(&self, at: Time) -> Instant {
        self.started + at.since(self.started_at)
    }

    /// The wall clock, for the ledger.
    pub fn for_ledger(&self) -> sluice_ledger::ClockFn {
        let offset = self.offset.clone();
        Arc::new(move || wall(offset.as_deref()))
    }
}

fn wall(offset: Option<&Path>) -> Time {
    let now: Time = jiff::Timestamp::now().into();
    offset.map_or(now, |file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Time(now.0 + text.trim().parse().unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsed_wall_clock_jumps_while_it_runs_and_the_steady_one_does_not() {
        const HOUR_MS: i64 = 3_600_000;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "0").unwrap();
        let clock = Clock { offset: Some(file.path().into()), ..Clock::start() };
        let (wall, steady) = (clock.wall(), clock.now());
        std::fs::write(&file, HOUR_MS.to_string()).unwrap();
        assert!(clock.wall().0 - wall.0 >= HOUR_MS);
        assert!((clock.for_ledger())().0 - wall.0 >= HOUR_MS);
        assert!(clock.now().0 - steady.0 < HOUR_MS);
    }
}
