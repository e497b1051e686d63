use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
const START: i64 = 1_772_323_200_000;

/// A machine whose wall clock is off by `error_ms`, and a ledger on it.
struct World {
    now: i64,
    error_ms: i64,
    boot: u64,
    booted_at: i64,
    clock: LedgerClock,
}

impl World {
    fn new() -> World {
        let (now, booted_at) = (START, START - HOUR);
        let steady = Steady { boot: 1, elapsed: Duration::from_millis((now - booted_at) as u64) };
        let clock = LedgerClock::start(None, Observation { wall: Time(now), steady });
        World { now, error_ms: 0, boot: 1, booted_at, clock }
    }

    fn observation(&self) -> Observation {
        let elapsed = Duration::from_millis((self.now - self.booted_at) as u64);
        Observation { wall: Time(self.now + self.error_ms), steady: Steady { boot: self.boot, elapsed } }
    }

    fn run(&mut self, ms: i64) -> Reading {
        self.now += ms;
        self.clock.observe(self.observation())
    }

    /// The process ends and starts again after this time.
    fn restart(&mut self, ms: i64) -> Reading {
        self.now += ms;
        self.clock = LedgerClock::start(Some(self.clock.record()), self.observation());
        self.clock.reading()
    }

    /// The machine is off for this time.
    fn reboot(&mut self, ms: i64) -> Reading {
        (self.boot, self.booted_at) = (self.boot + 1, self.now + ms);
        self.restart(ms)
    }

    /// How far the ledger's time is ahead of the true time.
    fn error(&self) -> i64 {
        self.clock.reading().time.0 - self.now
    }
}

#[test]
fn time_follows_a_correct_wall_clock_and_small_steps_of_it() {
    let mut world = World::new();
    for _ in 0..100 {
        assert!(world.run(777).may_prune());
        assert_eq!(world.error(), 0);
    }
    world.error_ms = 90 * SECOND;
    assert!(world.run(SECOND).may_prune());
    assert_eq!(world.error(), 90 * SECOND);
}

#[test]
fn jump_of_120_days_is_not_followed_and_ends_when_the_clock_returns() {
    let mut world = World::new();
    world.error_ms = 120 * DAY;
    for _ in 0..40 {
        let reading = world.run(SECOND);
        assert_eq!(reading.state, ClockState::WallAhead(Duration::from_millis((120 * DAY) as u64)));
        assert_eq!(world.error(), 0, "time continues by the steady clock");
    }
    assert!(!world.restart(5 * SECOND).may_prune(), "a restart of the process does not help");
    assert!(!world.reboot(HOUR).may_prune(), "nor does one of the machine");
    assert!(world.clock.reading().time <= Time(world.now));
    world.error_ms = 0;
    assert!(world.run(SECOND).may_prune());
    assert_eq!(world.error(), 0, "the hour off is believed while the machine starts");
}

#[test]
fn jump_back_never_turns_time_back() {
    for back in [HOUR, 120 * DAY] {
        let mut world = World::new();
        world.error_ms = -back;
        let mut last = world.clock.reading().time;
        for _ in 0..1_000 {
            let reading = world.run(10 * SECOND);
            assert!(reading.time > last, "it runs on, at half speed at least");
            assert!(reading.time <= Time(world.now));
            last = reading.time;
        }
        assert_eq!(world.clock.reading().may_prune(), back == HOUR);
        world.error_ms = 0;
        for _ in 0..1_000 {
            world.run(10 * SECOND);
        }
        assert!(world.clock.reading().may_prune() && world.error() == 0, "{}", world.error());
    }
}

#[test]
fn process_may_be_down_for_any_time_while_its_machine_runs() {
    let mut world = World::new();
    assert!(world.restart(30 * DAY).may_prune());
    assert_eq!(world.error(), 0);
}

#[test]
fn machine_that_was_off_for_a_night_needs_no_operator_and_one_that_was_off_for_a_month_does() {
    let mut world = World::new();
    assert!(world.reboot(14 * HOUR).may_prune());
    assert_eq!(world.error(), 0);
    let reading = world.reboot(30 * DAY);
    assert_eq!(reading.state, ClockState::WallAhead(Duration::from_millis((30 * DAY) as u64)));
    world.run(HOUR);
    assert_eq!(world.error(), -30 * DAY, "time passes, and the month is not believed");
    assert!(world.clock.confirm(world.observation()).may_prune());
    assert_eq!(world.error(), 0);
    assert!(world.run(HOUR).may_prune());
}

#[test]
fn clock_that_is_set_late_after_the_start_of_the_machine_is_followed() {
    let mut world = World::new();
    world.error_ms = -8 * HOUR;
    world.reboot(8 * HOUR);
    assert_eq!(world.error(), -8 * HOUR, "as a machine without a battery");
    world.run(30 * SECOND);
    world.error_ms = 0;
    assert!(world.run(SECOND).may_prune());
    assert_eq!(world.error(), 0);
}

#[test]
fn confirmed_difference_stays_when_the_wall_clock_is_behind() {
    let mut world = World::new();
    world.error_ms = 120 * DAY;
    world.run(SECOND);
    world.clock.confirm(world.observation());
    assert_eq!(world.error(), 120 * DAY, "the operator was wrong");
    world.error_ms = 0;
    assert!(!world.run(SECOND).may_prune());
    world.clock.confirm(world.observation());
    assert!(world.run(HOUR).may_prune());
    assert_eq!(world.error(), 120 * DAY, "time does not go back, and durations are right");
}

#[test]
fn restarts_in_a_row_do_not_add_up() {
    let mut world = World::new();
    for _ in 0..100 {
        world.error_ms += 20 * HOUR;
        world.reboot(10 * SECOND);
        world.run(10 * SECOND);
    }
    assert!(world.error() <= DAY + HOUR, "{} h", world.error() / HOUR);
}

#[test]
fn corrections_of_processes_that_were_killed_do_not_add_up() {
    let mut world = World::new();
    world.reboot(0);
    let stored = world.clock.record();
    world.error_ms += 17 * HOUR;
    let newest = world.run(SECOND).time;
    // The process dies before it stores its clock; what it accepted has its time.
    world.clock = LedgerClock::start(Some(stored.continued_from(newest)), world.observation());
    world.error_ms += 23 * HOUR;
    let reading = world.run(SECOND);
    assert!(reading.time.0 - START < 18 * HOUR && !reading.may_prune(), "{reading:?}");
}

#[test]
fn restart_after_the_clock_was_set_forward_makes_no_due_time_early() {
    let mut world = World::new();
    let before = world.clock.record().scheduled;
    world.error_ms = 9 * 60 * SECOND;
    world.run(SECOND);
    assert_eq!(world.error(), 9 * 60 * SECOND, "the step is followed");
    world.restart(SECOND);
    let record = world.clock.record();
    assert_eq!(record.scheduled.0 - before.0, 2 * SECOND);
    assert_eq!(record.scheduled_at_boot, before, "no due time is early");
}

#[test]
fn time_that_a_machine_was_off_counts_for_schedules_and_is_marked_as_unobserved() {
    let mut world = World::new();
    let before = world.clock.record().scheduled;
    world.run(HOUR);
    world.reboot(8 * HOUR);
    let record = world.clock.record();
    assert_eq!(record.scheduled.0 - before.0, 9 * HOUR);
    assert_eq!(record.scheduled_at_boot, record.scheduled);
    world.restart(SECOND);
    assert_eq!(world.clock.record().scheduled_at_boot, record.scheduled, "also for the next process");
}

proptest! {
    #[test]
    fn time_is_monotone_and_bounded_by_observed_time(
        acts in prop::collection::vec((0u8..6, 0i64..3 * DAY), 1..200)
    ) {
        let mut world = World::new();
        let (mut observed, mut last) = (0, world.clock.reading().time);
        for (act, ms) in acts {
            let reading = match act {
                0 => { world.error_ms += ms * 40; world.run(0) }
                1 => { world.error_ms -= ms * 40; world.run(0) }
                2 => { world.error_ms = 0; world.run(0) }
                3 => world.reboot(ms),
                4 => { observed += ms; world.restart(ms) }
                _ => { observed += ms / 1_000; world.run(ms / 1_000) }
            };
            prop_assert!(reading.time >= last);
            last = reading.time;
            prop_assert!(reading.time.0 - START <= 2 * observed + CORRECTION_MAX.as_millis() as i64);
            prop_assert!(!reading.may_prune() || (reading.time.0 - world.now - world.error_ms).abs() <= DAY);
        }
    }
}
