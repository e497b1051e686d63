//! The time, read in one place.

use std::sync::Arc;
use std::time::Instant;

use sluice_domain::time::Time;

/// Rehearsals let a node's wall clock be off, by so many milliseconds. Nobody else has a reason to.
pub const OFFSET_VARIABLE: &str = "SLUICE_REHEARSAL_CLOCK_OFFSET_MS";

/// Tells the time in two ways.
///
/// The wall clock can be set and can jump; it is what senders sign and people read. The steady one started with the wall
/// clock's time and then only counts what has passed; schedules are kept by it, so that a jump releases nothing
/// early and holds nothing back.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Time,
    offset_ms: i64,
}

impl Clock {
    /// Starts the steady clock at the wall clock's time.
    pub fn start() -> Clock {
        let offset_ms = std::env::var(OFFSET_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Clock { started: Instant::now(), started_at: wall(offset_ms), offset_ms }
    }

    /// The wall clock's time.
    pub fn wall(&self) -> Time {
        wall(self.offset_ms)
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
    pub fn for_ledger(&self) -> sluice_ledger::Clock {
        let offset_ms = self.offset_ms;
        Arc::new(move || wall(offset_ms))
    }
}

fn wall(offset_ms: i64) -> Time {
    let now: Time = jiff::Timestamp::now().into();
    Time(now.0 + offset_ms)
}
