//! The clock of a node.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use sluice_domain::time::Time;
use sluice_ledger::ClockFn;

/// Wall clock and steady clock.
///
/// The wall clock can be set and can jump; senders sign it and people read it. The steady clock starts at the wall clock's
/// time and counts elapsed time; schedules use it, so that a jump of the wall clock neither releases nor delays a job.
#[derive(Clone)]
pub struct Clock {
    started: Instant,
    started_at: Time,
    wall: ClockFn,
}

impl Clock {
    /// Reads the wall clock from the system.
    pub fn start() -> Clock {
        Clock::with_wall(Arc::new(|| jiff::Timestamp::now().into()))
    }

    /// Reads the wall clock from a function. For fault injection: no setting of a node leads here.
    pub fn with_wall(wall: ClockFn) -> Clock {
        Clock { started: Instant::now(), started_at: wall(), wall }
    }

    /// Time of the wall clock.
    pub fn wall(&self) -> Time {
        (self.wall)()
    }

    /// Time of the steady clock.
    pub fn now(&self) -> Time {
        self.started_at + self.started.elapsed()
    }

    /// Time that the wall clock shows when the steady clock shows `at`, unless it is set in between.
    pub fn to_wall(&self, at: Time) -> Time {
        let (wall, now) = (self.wall(), self.now());
        if at >= now { wall + at.since(now) } else { wall - now.since(at) }
    }

    /// The instant at which the steady clock shows `at`.
    pub fn instant(&self, at: Time) -> Instant {
        self.started + at.since(self.started_at)
    }

    pub fn for_ledger(&self) -> ClockFn {
        self.wall.clone()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("started_at", &self.started_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[test]
    fn jump_of_the_wall_clock_does_not_move_the_steady_clock() {
        const HOUR_MS: i64 = 3_600_000;
        let wall_ms = Arc::new(AtomicI64::new(HOUR_MS));
        let read = wall_ms.clone();
        let clock = Clock::with_wall(Arc::new(move || Time(read.load(Ordering::Relaxed))));
        let (wall, steady) = (clock.wall(), clock.now());
        wall_ms.fetch_add(HOUR_MS, Ordering::Relaxed);
        assert_eq!(clock.wall().0 - wall.0, HOUR_MS);
        assert_eq!((clock.for_ledger())().0 - wall.0, HOUR_MS);
        assert!(clock.now().0 - steady.0 < HOUR_MS);
    }
}
