//! The learned rate against modelled destinations, in virtual time.

use super::gate::{Admission, Gate};
use crate::destination::GateSettings;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// How a destination counts calls.
#[derive(Clone, Copy, Debug)]
enum Counting {
    /// Those of the last milliseconds.
    Sliding(i64),
    /// Those since the last multiple of these milliseconds.
    Fixed(i64),
    /// Tokens that come back at the limit, so many at the most.
    Bucket(f64),
    /// Not at all: this share of the calls is refused, whatever their rate is.
    Random(f64),
}

const COUNTINGS: [Counting; 7] = [
    Counting::Sliding(1_000),
    Counting::Sliding(10_000),
    Counting::Fixed(1_000),
    Counting::Fixed(10_000),
    Counting::Bucket(10.0),
    Counting::Bucket(50.0),
    Counting::Bucket(500.0),
];

/// A destination that answers 429 above its limit of calls a second.
struct Limited {
    limit: f64,
    counting: Counting,
    /// Whether it says when to come back, in whole seconds.
    retry_after: bool,
    /// Calls that count, by their time.
    accepted: VecDeque<i64>,
    tokens: f64,
    called_at: i64,
    random: Random,
    counts: Counts,
}

/// Accepted and refused calls.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: u32,
    refused: u32,
}

impl Limited {
    fn new(limit: f64, counting: Counting, retry_after: bool) -> Limited {
        let tokens = if let Counting::Bucket(tokens) = counting { tokens } else { 0.0 };
        let (accepted, counts) = (VecDeque::new(), Counts::default());
        let random = Random::seeded(11);
        Limited { limit, counting, retry_after, accepted, tokens, called_at: 0, random, counts }
    }

    fn call(&mut self, ms: i64) -> DestinationHealth {
        let Some(free_at) = self.full_until(ms) else {
            self.counts.accepted += 1;
            return DestinationHealth::Healthy;
        };
        self.counts.refused += 1;
        let after = Duration::from_secs((free_at - ms) as u64 / 1_000 + 1);
        DestinationHealth::Throttled { after: self.retry_after.then_some(after) }
    }

    /// Counts a call, or returns when the next one is accepted.
    fn full_until(&mut self, ms: i64) -> Option<i64> {
        let (since, window) = match self.counting {
            Counting::Sliding(window) => (ms - window + 1, window),
            Counting::Fixed(window) => (ms / window * window, window),
            Counting::Bucket(max) => {
                let back = (ms - self.called_at) as f64 / 1e3 * self.limit;
                (self.tokens, self.called_at) = ((self.tokens + back).min(max), ms);
                let wait = (1.0 - self.tokens) / self.limit * 1e3;
                self.tokens -= if wait > 0.0 { 0.0 } else { 1.0 };
                return (wait > 0.0).then_some(ms + wait.ceil() as i64);
            }
            Counting::Random(share) => return (self.random.unit() < share).then_some(ms),
        };
        while self.accepted.front().is_some_and(|at| *at < since) {
            self.accepted.pop_front();
        }
        let max = (self.limit * window as f64 / 1e3) as usize;
        if self.accepted.len() < max {
            self.accepted.push_back(ms);
            return None;
        }
        let oldest = match self.counting {
            Counting::Fixed(_) => Some(&since),
            _ => self.accepted.get(self.accepted.len() - max),
        };
        Some(oldest.unwrap_or(&ms) + window)
    }
}

/// What happens next, by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// The scheduler looks at the gate.
    Look,
    /// The call that started then arrives, and ends at this time.
    Arrive {
        started: i64,
        ends: i64,
    },
    End {
        started: i64,
        refusal: Option<Option<Duration>>,
    },
}

/// A machine on which calls take this long in milliseconds and the scheduler looks this late.
#[derive(Clone, Copy, Debug)]
struct Machine {
    call_ms: (i64, i64),
    late_ms: u64,
    concurrency_max: u32,
}

const QUICK: Machine = Machine { call_ms: (5, 5), late_ms: 0, concurrency_max: 16 };
const MACHINES: [Machine; 5] = [
    QUICK,
    Machine { call_ms: (5, 200), late_ms: 0, concurrency_max: 16 },
    Machine { call_ms: (5, 200), late_ms: 0, concurrency_max: 64 },
    Machine { call_ms: (5, 200), late_ms: 40, concurrency_max: 16 },
    Machine { call_ms: (5, 20), late_ms: 40, concurrency_max: 16 },
];

/// A gate and the calls that wait before it.
struct Bench {
    gate: Gate,
    machine: Machine,
    random: Random,
    ms: i64,
    agenda: BinaryHeap<Reverse<(i64, Next)>>,
    looks_at: i64,
    /// New calls a second; a backlog that does not end if `None`.
    demand: Option<f64>,
    /// Calls that were not refused so far.
    calls: u32,
}

impl Bench {
    fn new(machine: Machine, seed: u64) -> Bench {
        let gate = Gate::new(GateSettings { concurrency_max: machine.concurrency_max, ..GateSettings::default() });
        let agenda = BinaryHeap::from([Reverse((0, Next::Look))]);
        Bench { gate, machine, random: Random::seeded(seed), ms: 0, agenda, looks_at: 0, demand: None, calls: 0 }
    }

    fn run(&mut self, destination: &mut Limited, seconds: i64) -> Counts {
        let (before, end) = (destination.counts, self.ms + seconds * 1_000);
        while let Some(Reverse((at, next))) = self.agenda.peek().copied()
            && at <= end
        {
            self.agenda.pop();
            self.ms = at;
            match next {
                Next::Look => {}
                Next::Arrive { started, ends } => {
                    let refusal = match destination.call(at) {
                        DestinationHealth::Throttled { after } => Some(after),
                        _ => None,
                    };
                    self.agenda.push(Reverse((ends, Next::End { started, refusal })));
                    continue;
                }
                Next::End { started, refusal } => self.end(started, refusal),
            }
            self.look();
        }
        self.ms = end;
        let after = destination.counts;
        Counts { accepted: after.accepted - before.accepted, refused: after.refused - before.refused }
    }

    fn end(&mut self, started: i64, refusal: Option<Option<Duration>>) {
        let health = refusal.map_or(DestinationHealth::Healthy, |after| DestinationHealth::Throttled { after });
        let took = Time(self.ms).since(Time(started));
        self.calls -= u32::from(refusal.is_some());
        self.gate.finish(Time(self.ms), Time(started), (health, Some(took)), &mut self.random);
    }

    fn waiting(&self) -> f64 {
        self.demand.map_or(f64::INFINITY, |demand| demand * self.ms as f64 / 1e3 - f64::from(self.calls))
    }

    fn look(&mut self) {
        loop {
            if let Some(demand) = self.demand
                && self.waiting() < 1.0
            {
                self.agenda.push(Reverse((self.ms + (1e3 / demand).ceil() as i64, Next::Look)));
                return;
            }
            match self.gate.admit(Time(self.ms)) {
                Admission::Go => {
                    self.gate.start(Time(self.ms));
                    self.calls += 1;
                    let (least, most) = self.machine.call_ms;
                    let took = least + self.random.below((most - least + 1) as u64) as i64;
                    let next = Next::Arrive { started: self.ms, ends: self.ms + took };
                    self.agenda.push(Reverse((self.ms + took / 2, next)));
                }
                Admission::NotBefore(open) => {
                    let at = open.0.max(self.ms + 1) + self.random.below(self.machine.late_ms + 1) as i64;
                    if self.looks_at <= self.ms || at < self.looks_at {
                        self.looks_at = at;
                        self.agenda.push(Reverse((at, Next::Look)));
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    fn learned_rate(&self) -> Option<f64> {
        self.gate.view(Time(self.ms)).learned_rate
    }
}

/// Lets the gate settle for a minute at each limit and returns the share of the limit and of refused calls in the minutes after it.
fn shares(destination: &mut Limited, bench: &mut Bench) -> Vec<(f64, f64)> {
    let phase = |limit: f64| {
        destination.limit = limit;
        bench.run(destination, 60);
        let Counts { accepted, refused } = bench.run(destination, 120);
        (f64::from(accepted) / 120.0 / limit, f64::from(refused) / f64::from(accepted + refused))
    };
    [50.0, 100.0, 50.0].map(phase).into()
}

fn assert_held(least: f64, retry_after: bool, machines: &[Machine]) {
    for counting in COUNTINGS {
        for machine in machines {
            for seed in 0..3 {
                let mut destination = Limited::new(50.0, counting, retry_after);
                let shares = shares(&mut destination, &mut Bench::new(*machine, seed));
                let is_held = shares.iter().all(|(rate, refused)| (least..=1.1).contains(rate) && *refused < 0.02);
                assert!(is_held, "{counting:?}, {machine:?}, seed {seed}: {shares:.3?}");
            }
        }
    }
}

#[test]
fn a_limit_is_held_with_few_refusals_and_followed_when_it_doubles_and_halves() {
    assert_held(0.9, false, &MACHINES);
}

/// A wait of a whole second for each refusal costs rate, since it is kept: 90 % are not reached where calls arrive unevenly.
#[test]
fn a_limit_with_retry_after_is_held() {
    assert_held(0.84, true, &MACHINES);
}

#[test]
fn a_machine_that_becomes_slow_still_reaches_the_limit() {
    for counting in COUNTINGS {
        let mut destination = Limited::new(50.0, counting, false);
        let mut bench = Bench::new(QUICK, 7);
        bench.run(&mut destination, 60);
        bench.machine = Machine { call_ms: (150, 250), late_ms: 20, ..QUICK };
        bench.run(&mut destination, 60);
        let counts = bench.run(&mut destination, 120);
        assert!(counts.accepted >= 45 * 120, "{counting:?}: {counts:?}");
    }
}

/// What waits alone allow is hardly lowered: a destination that refuses one call of a hundred, or of twenty, for no reason that the
/// rate could change.
#[test]
fn refusals_that_do_not_depend_on_the_rate_do_not_lower_it_for_long() {
    for share in [0.01, 0.05] {
        for machine in MACHINES {
            let mut destination = Limited::new(0.0, Counting::Random(share), true);
            let mut bench = Bench::new(machine, 7);
            bench.run(&mut destination, 300);
            let counts = bench.run(&mut destination, 1_200);
            // Each refusal costs a little more than a second, and the calls that were under way with it share that wait.
            let per_second = f64::from(counts.accepted) / 1_200.0;
            assert!(per_second * share > 0.6, "{share}, {machine:?}: {per_second:.1}/s, {counts:?}");
        }
    }
}

/// A destination that refuses some calls whatever happens keeps up with what comes in, slow or fast.
#[test]
fn backlog_does_not_grow_before_a_destination_that_refuses_calls_at_random() {
    for demand in [3.0, 8.0, 15.0] {
        for machine in MACHINES {
            let mut destination = Limited::new(0.0, Counting::Random(0.04), true);
            let mut bench = Bench { demand: Some(demand), ..Bench::new(machine, 7) };
            bench.run(&mut destination, 1_800);
            assert!(bench.waiting() < demand * 20.0, "{demand}/s, {machine:?}: {:.0} calls wait", bench.waiting());
        }
    }
}

#[test]
fn a_destination_without_a_limit_is_not_held_back() {
    let mut destination = Limited::new(1e9, Counting::Sliding(1_000), false);
    let mut bench = Bench::new(QUICK, 7);
    let counts = bench.run(&mut destination, 10);
    assert!(counts.accepted > 20_000, "{counts:?}");
    assert_eq!(bench.learned_rate(), None);
}

#[test]
fn single_refusals_of_a_quiet_destination_teach_no_rate() {
    let mut gate = Gate::new(GateSettings::default());
    let mut random = Random::seeded(1);
    for second in 0..5 {
        gate.start(Time(second * 1_000));
        let health = DestinationHealth::Throttled { after: Some(Duration::ZERO) };
        gate.finish(Time(second * 1_000), Time(second * 1_000), (health, None), &mut random);
    }
    assert_eq!(gate.view(Time(5_000)).learned_rate, None);
}

#[test]
fn a_limit_that_is_gone_is_forgotten() {
    let mut destination = Limited::new(50.0, Counting::Sliding(1_000), false);
    let mut bench = Bench::new(QUICK, 7);
    bench.run(&mut destination, 30);
    assert!(bench.learned_rate().is_some());
    destination.limit = 1e9;
    bench.run(&mut destination, 120);
    let counts = bench.run(&mut destination, 10);
    assert!(counts.accepted > 20_000, "{counts:?}");
}

/// A quota that is used up refuses every call for hours: it is asked less and less often.
#[test]
fn a_destination_that_refuses_everything_is_asked_once_a_minute() {
    let mut destination = Limited::new(50.0, Counting::Sliding(1_000), false);
    let mut bench = Bench::new(QUICK, 7);
    bench.run(&mut destination, 60);
    destination.limit = 0.0;
    bench.run(&mut destination, 300);
    let counts = bench.run(&mut destination, 600);
    assert!(counts.refused <= 25, "{counts:?}");
    assert_eq!(counts.accepted, 0);
}
