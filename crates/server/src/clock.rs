//! The clocks of a node.

mod steady;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sluice_domain::ledger_clock::{ClockRecord, ClockState, LedgerClock, Observation, Reading, Steady};
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use sluice_ledger::{ClockConfirmation, ClockFn, KeepClock, Ledger};

pub use steady::SteadyFn;

/// Difference from which the wall clock is compared with a new reading of the machine's own clock.
const NOTICEABLE: Duration = Duration::from_secs(1);

/// What to do about a [warning](Clock::warning).
pub const CLOCK_ACTION: &str = "Correct the clock, or if it is right: sluice clock accept --reason TEXT";

/// Wall clock, steady clock, and the clock of the ledger.
///
/// The wall clock can be set and can jump; senders sign it and people read it. The [ledger's
/// clock](sluice_domain::ledger_clock) is derived from it and from the steady clock of the machine; everything that is stored or
/// expires uses it. The steady clock of the node continues from the last process and counts elapsed time; schedules use it, so that a
/// jump of the wall clock neither releases nor delays a job, and it continues over a restart.
#[derive(Clone)]
pub struct Clock {
    started: Instant,
    /// The steady clock's time at `started`: set when a ledger is followed, or when the clock is first read.
    started_at: Arc<OnceLock<Time>>,
    wall: ClockFn,
    steady: SteadyFn,
    /// `None` until a ledger is opened: then the wall clock's time is used.
    ledger: Arc<Mutex<Option<LedgerClock>>>,
}

impl Clock {
    /// Reads the clocks of the system.
    pub fn start() -> Clock {
        Clock::with_wall(Arc::new(|| jiff::Timestamp::now().into()))
    }

    /// Reads the wall clock from a function. For fault injection: no setting of a node leads here.
    pub fn with_wall(wall: ClockFn) -> Clock {
        Clock::with_sources(wall, steady::of_the_machine())
    }

    /// Reads both clocks from functions. For fault injection: no setting of a node leads here.
    pub fn with_sources(wall: ClockFn, steady: SteadyFn) -> Clock {
        Clock { started: Instant::now(), started_at: Arc::default(), wall, steady, ledger: Arc::default() }
    }

    /// Time of the wall clock.
    pub fn wall(&self) -> Time {
        (self.wall)()
    }

    /// Time of the steady clock.
    pub fn now(&self) -> Time {
        self.started_at() + self.started.elapsed()
    }

    /// Time that the wall clock shows when the steady clock shows `at`, unless it is set in between.
    pub fn to_wall(&self, at: Time) -> Time {
        let (wall, now) = (self.wall(), self.now());
        if at >= now { wall + at.since(now) } else { wall - now.since(at) }
    }

    /// The instant at which the steady clock shows `at`.
    pub fn instant(&self, at: Time) -> Instant {
        self.started + at.since(self.started_at())
    }

    fn started_at(&self) -> Time {
        *self.started_at.get_or_init(|| self.wall() - self.started.elapsed())
    }

    /// Time of the ledger: for everything that is stored or compared with stored times.
    pub fn ledger_time(&self) -> Time {
        self.read_ledger_clock().time
    }

    /// The ledger's time, and whether expired data may be deleted by it.
    pub fn read_ledger_clock(&self) -> Reading {
        let mut ledger = self.lock();
        let Some(clock) = ledger.as_mut() else {
            return LedgerClock::start(None, self.observation()).reading();
        };
        let mut observation = self.observation();
        if observation.wall.since(clock.reading().time) > NOTICEABLE {
            observation = self.observe_again();
        }
        clock.observe(observation)
    }

    /// Continues the clock of a ledger that was opened, and stores it.
    pub async fn follow(&self, ledger: &Ledger) -> Result<(), sluice_ledger::Error> {
        let record = ledger.clock().await?;
        let (reading, record) = {
            let clock = LedgerClock::start(record, self.observe_again());
            (self.lock().insert(clock).reading(), clock.record())
        };
        let _ = self.started_at.set(record.scheduled - self.started.elapsed());
        self.keep(ledger).await?;
        if let Some(warning) = self.warning(reading) {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// The steady clock's time at the last start of the machine: due times that were written before may be early.
    pub fn at_boot(&self) -> Time {
        self.lock().map_or_else(|| self.started_at(), |clock| clock.record().scheduled_at_boot)
    }

    /// Stores the ledger's clock.
    pub async fn keep(&self, ledger: &Ledger) -> Result<(), sluice_ledger::Error> {
        match self.record() {
            Some(record) => ledger.keep_clock(KeepClock { record, confirmed: None }).await,
            None => Ok(()),
        }
    }

    /// An operator states that the wall clock is right: the ledger's time follows it.
    pub async fn confirm(
        &self,
        ledger: &Ledger,
        actor: String,
        reason: String,
    ) -> Result<Reading, sluice_ledger::Error> {
        let before = self.ledger_time();
        let (reading, record) = {
            let observation = self.observe_again();
            let mut guard = self.lock();
            let clock = guard.get_or_insert_with(|| LedgerClock::start(None, observation));
            (clock.confirm(observation), clock.record())
        };
        let confirmed = Some(ClockConfirmation { actor, reason, before, at: reading.time });
        ledger.keep_clock(KeepClock { record, confirmed }).await?;
        Ok(reading)
    }

    /// What is wrong with the wall clock; `None` if the ledger's time follows it.
    pub fn warning(&self, reading: Reading) -> Option<String> {
        let (difference, relation) = match reading.state {
            ClockState::InStep => return None,
            ClockState::WallAhead(difference) => (difference, "ahead of"),
            ClockState::WallBehind(difference) => (difference, "behind"),
        };
        let (wall, time, difference) = (self.wall(), reading.time, format_duration(rounded(difference)));
        Some(format!(
            "the clock of this machine ({wall}) is {difference} {relation} the ledger's time ({time}); nothing is pruned or \
             expires by it"
        ))
    }

    pub fn for_ledger(&self) -> ClockFn {
        let clock = self.clone();
        Arc::new(move || clock.ledger_time())
    }

    fn record(&self) -> Option<ClockRecord> {
        self.read_ledger_clock();
        self.lock().map(|clock| clock.record())
    }

    fn observation(&self) -> Observation {
        Observation { wall: self.wall(), steady: (self.steady)(steady::Precision::Counted) }
    }

    /// The steady clock of a process stands still while the machine sleeps; that of the machine does not.
    fn observe_again(&self) -> Observation {
        let steady: Steady = (self.steady)(steady::Precision::Machine);
        Observation { wall: self.wall(), steady }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LedgerClock>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To the nearest minute, for people.
fn rounded(difference: Duration) -> Duration {
    Duration::from_secs((difference.as_secs() + 30) / 60 * 60)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("started_at", &self.started_at()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn jump_of_the_wall_clock_moves_neither_the_steady_nor_the_ledger_clock() {
        let wall_ms = Arc::new(AtomicI64::new(HOUR_MS));
        let read = wall_ms.clone();
        let wall: ClockFn = Arc::new(move || Time(read.load(Ordering::Relaxed)));
        let elapsed = Duration::from_secs(86_400);
        let clock = Clock::with_sources(wall, Arc::new(move |_| Steady { boot: 1, elapsed }));
        *clock.lock() = Some(LedgerClock::start(None, clock.observation()));
        let (wall, steady, ledger) = (clock.wall(), clock.now(), clock.ledger_time());
        wall_ms.fetch_add(HOUR_MS, Ordering::Relaxed);
        assert_eq!(clock.wall().0 - wall.0, HOUR_MS);
        assert!(clock.now().0 - steady.0 < HOUR_MS);
        assert_eq!(((clock.for_ledger())(), clock.read_ledger_clock().may_prune()), (ledger, false));
    }
}
