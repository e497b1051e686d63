//! The ledger's own clock: the time that everything is stored with, and that decides what has expired.
//!
//! A wall clock can be set to any time, and what has expired by it is deleted. The ledger's time is therefore derived from
//! two clocks: it follows the wall clock only as far as a steady clock, which nobody can set, shows that time has passed, plus a
//! bounded correction. A larger difference is not followed: the ledger's time continues by the steady clock, and nothing is
//! pruned until the wall clock returns or an operator confirms it.
//!
//! Over any period the ledger's time advances by at most twice the observed time plus [`CORRECTION_MAX`] and what operators
//! confirmed. It never goes back.

use std::time::Duration;

use crate::mutant::Mutant;
use crate::time::Time;

/// The largest step of the wall clock that is followed while the machine runs: time synchronization, leap seconds.
pub const STEP_MAX: Duration = Duration::from_secs(600);
/// The largest correction without confirmation: time that passed unobserved while the machine was off. Also the capacity of
/// the allowance that every correction is taken from. It is refilled as fast as time is observed, so that restarts in a row do
/// not add up.
pub const CORRECTION_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Time after the start of a machine during which its wall clock may still be set by time synchronization.
pub const SYNCHRONIZATION: Duration = Duration::from_secs(600);

/// A reading of the steady clock: time since the start of the machine. Readings of different starts cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steady {
    /// Identifies the start of the machine.
    pub boot: u64,
    pub elapsed: Duration,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    pub wall: Time,
    pub steady: Steady,
}

/// The durable state of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRecord {
    /// The ledger's time when the steady clock showed `steady`.
    pub time: Time,
    pub steady: Steady,
    /// Correction that can still be made without confirmation.
    pub allowance: Duration,
    /// Observed time that was not counted because the wall clock was behind. Counted later, if the wall clock comes forward.
    pub uncounted: Duration,
    /// How far an operator has confirmed that the ledger's time is ahead of the wall clock.
    pub ahead: Duration,
    /// The time of schedules: counts observed time alone, over restarts of the process too, so that no correction of the ledger's time
    /// makes a due time early. Time during which the machine was off is taken from the ledger's time.
    pub scheduled: Time,
    /// The time of schedules at the last start of the machine. Due times that were written before may be early by a false
    /// correction.
    pub scheduled_at_boot: Time,
}

impl ClockRecord {
    /// The state of a process that ended after it had stored something at `newest`, later than this state. The time between may have
    /// been a correction, so it is taken from the allowance: the observed part of it refills the allowance at the next observation.
    pub fn continued_from(self, newest: Time) -> ClockRecord {
        let allowance = self.allowance.saturating_sub(newest.since(self.time));
        ClockRecord { time: self.time.max(newest), allowance, ..self }
    }
}

/// How the wall clock compares with the ledger's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// The ledger's time follows the wall clock.
    InStep,
    /// The wall clock is further ahead than time can have passed.
    WallAhead(Duration),
    /// The wall clock is further behind than any correction.
    WallBehind(Duration),
}

/// The ledger's time, and whether it may delete anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub time: Time,
    pub state: ClockState,
}

impl Reading {
    /// Whether expired data may be deleted.
    pub fn may_prune(self) -> bool {
        self.state == ClockState::InStep
    }
}

/// The clock of a ledger while a process has it open.
#[derive(Clone, Copy, Debug)]
pub struct LedgerClock {
    record: ClockRecord,
    state: ClockState,
}

impl LedgerClock {
    /// Continues from the durable state. A new ledger starts at the wall clock's time.
    pub fn start(record: Option<ClockRecord>, observation: Observation) -> LedgerClock {
        let Observation { wall, steady } = observation;
        let (uncounted, ahead) = (Duration::ZERO, Duration::ZERO);
        let new = ClockRecord {
            time: wall,
            steady,
            allowance: CORRECTION_MAX,
            uncounted,
            ahead,
            scheduled: wall,
            scheduled_at_boot: wall,
        };
        let mut clock = LedgerClock { record: record.unwrap_or(new), state: ClockState::InStep };
        clock.observe(observation);
        clock
    }

    /// Takes a reading of both clocks. Readings may arrive out of order by a moment.
    pub fn observe(&mut self, observation: Observation) -> Reading {
        let known = self.record.steady;
        let same_boot = known.boot == observation.steady.boot;
        // Whole milliseconds; the rest counts at the next observation.
        let observed_ms = match same_boot {
            true => observation.steady.elapsed.saturating_sub(known.elapsed).as_millis() as i64,
            false => 0,
        };
        let observed = Duration::from_millis(observed_ms.unsigned_abs());
        let record = &mut self.record;
        let time_before = record.time;
        record.allowance = (record.allowance + observed).min(CORRECTION_MAX);
        let starting = !same_boot || observation.steady.elapsed < SYNCHRONIZATION;
        let limit = if starting { CORRECTION_MAX } else { STEP_MAX }.min(record.allowance) + record.uncounted;
        let (expected, wall) = (record.time + observed, observation.wall + record.ahead);
        let (before, after) = (expected.since(wall), wall.since(expected));
        let mut consumed_ms = observed_ms;
        if after <= limit && before.is_zero() || Mutant::EveryJumpFollowed.is_on() {
            record.time = record.time.max(wall);
            record.allowance = record.allowance.saturating_sub(after.saturating_sub(record.uncounted));
            record.uncounted = record.uncounted.saturating_sub(after);
            self.state = ClockState::InStep;
        } else if !after.is_zero() {
            record.time = expected;
            self.state = ClockState::WallAhead(after);
        } else if before <= CORRECTION_MAX {
            // The ledger's time is ahead: it runs at half speed until the wall clock has caught up.
            consumed_ms = observed_ms & !1;
            let slowed = Time(record.time.0 + consumed_ms / 2).max(wall);
            let uncounted = Time(record.time.0 + consumed_ms).since(slowed);
            record.uncounted = (record.uncounted + uncounted).min(CORRECTION_MAX);
            record.time = slowed;
            self.state = ClockState::InStep;
        } else {
            record.time = expected;
            self.state = ClockState::WallBehind(before);
        }
        if same_boot {
            let consumed = Duration::from_millis(consumed_ms.unsigned_abs());
            record.steady.elapsed = known.elapsed + consumed;
            record.scheduled = record.scheduled + consumed;
        } else {
            record.steady = observation.steady;
            record.scheduled = record.scheduled + record.time.since(time_before);
            record.scheduled_at_boot = record.scheduled;
        }
        self.reading()
    }

    /// An operator confirms the wall clock. If it is ahead, the ledger's time moves to it; if it is behind, the ledger's time
    /// stays ahead by the difference, since it never goes back.
    pub fn confirm(&mut self, observation: Observation) -> Reading {
        self.observe(observation);
        let record = &mut self.record;
        (record.ahead, record.uncounted) = (record.time.since(observation.wall), Duration::ZERO);
        record.time = record.time.max(observation.wall);
        self.state = ClockState::InStep;
        self.reading()
    }

    pub fn reading(&self) -> Reading {
        Reading { time: self.record.time, state: self.state }
    }

    /// The state to store.
    pub fn record(&self) -> ClockRecord {
        self.record
    }
}

#[cfg(test)]
#[path = "ledger_clock_tests.rs"]
mod tests;
