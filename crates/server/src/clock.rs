//! The time, read in one place.

use std::sync::Arc;
use std::time::Instant;

use sluice_domain::time::Time;

/// Tells the time in two ways.
///
/// The wall clock can be set and can jump; it is what senders sign and people read. The steady one started with the wall
/// clock's time and then only counts what has passed; schedules are kept by it, so that a jump releases nothing
/// early and holds nothing back.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Time,
}

impl Clock {
    /// Starts the steady clock at the wall clock's time.
    pub fn start() -> Clock {
        Clock { started: Instant::now(), started_at: wall() }
    }

    /// The wall clock's time.
    pub fn wall(&self) -> Time {
        wall()
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
        Arc::new(wall)
    }
}

fn wall() -> Time {
    jiff::Timestamp::now().into()
}
