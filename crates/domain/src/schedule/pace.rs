//! Rate that a destination was found to allow: learned from its 429, held, and probed again.
//!
//! Concurrency alone cannot hold a rate: calls that take 5 ms make 200 a second one by one. The first refusal tells how many calls a
//! second were accepted. From there the rate is as follows, by the time since the last refusal: it starts a little below the one
//! that was refused, comes back to it slowly, and grows beyond it faster and faster. So a limit is touched once in a while,
//! and one that was raised is followed.
//!
//! How the destination counts is not known. At a refusal the calls that it accepted in its own window are its limit: those of the last
//! second if it counts in seconds, those of the last ten seconds if it counts longer. The larger of both is therefore not
//! below the limit. Only a call that is refused again soon after a long wait proves that it counts longer.
//!
//! Refusals need not depend on the rate: a destination may refuse some calls whatever happens. Where the rate was lowered far below
//! what had been accepted for long, and single calls are still refused, lowering it is of no use. The rate is forgotten, and
//! waiting alone answers refusals until many of the calls are refused.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Time;

/// Fewer accepted calls a second than this say nothing about a limit.
const LEARNED_MIN: f64 = 10.0;
/// A learned rate below this is forgotten: waiting alone holds it.
const HELD_MIN: f64 = 2.0;
/// Share of the refused rate at which it starts again.
const START: f64 = 0.95;
/// One refusal lowers the rate to this share of it, at the lowest.
const LOWER_MAX: f64 = 0.7;
/// A call that is refused within this time after a wait is refused again: the limit is further down.
const AGAIN_WITHIN: Duration = Duration::from_secs(5);
/// Such a refusal lowers the rate to this share, at the highest, unless the last second had this share of it: then calls only came
/// unevenly.
const AGAIN: f64 = 0.95;
const EVENLY: f64 = 0.97;
/// Time in which the rate comes back to the one that was refused; up to twice as long after a wait of a second or more.
const RETURN: Duration = Duration::from_secs(20);
/// Growth after that: the exponent by the square of the seconds. The rate has doubled after 19 s, or after 10 s where the return
/// took twice as long.
const GROWTH: f64 = 0.002;
/// Growth ends here; the rate is forgotten then.
const GROWTH_MAX: f64 = 1_000.0;
/// Calls that were not made in time may be made up for, within this time.
const MADE_UP_FOR: Duration = Duration::from_millis(50);
/// A rate that held no call back for so long is not grown any more, and is forgotten after [`FORGOTTEN_AFTER`].
const IDLE: Duration = Duration::from_secs(1);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// A rate was lowered in vain, if refusals are few and it is below [`LEARNED_MIN`], or below this share of the one that was accepted
/// for [`LONG`] within [`SUSTAINED_FOR`].
const IN_VAIN: f64 = 0.25;
const SUSTAINED_FOR: Duration = Duration::from_secs(300);
/// Refused ones of the last 64 calls that are more than a few.
const MANY_REFUSED: u32 = 12;
/// Times over which accepted calls are counted.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);
const COUNTED_MAX: usize = 16_384;

/// The learned rate of a destination, if it has refused calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Times at which calls were accepted within [`LONG`], the latest [`COUNTED_MAX`] of them.
    accepted: VecDeque<Time>,
    /// The first call that was accepted.
    first_accepted: Option<Time>,
    /// The last 64 calls, a bit each; set for a refused one.
    outcomes: u64,
    /// The highest rate that was accepted for [`LONG`], and when.
    sustained: Option<(f64, Time)>,
    /// Single refusals teach no rate: they do not depend on it.
    ignores_few: bool,
    held: Option<HeldRate>,
}

#[derive(Clone, Debug)]
struct HeldRate {
    /// Calls a second that were refused last.
    refused: f64,
    /// When the rate began to grow; moved on while nothing is held back.
    since: Time,
    refused_at: Time,
    /// Time in which the rate comes back to the one that was refused. Longer where a refusal costs a long wait.
    returns_in: Duration,
    /// When calls may start again after the refusal.
    resumed_at: Time,
    /// When a call was held back last.
    held_back_at: Time,
    /// Time in fractional milliseconds at which the next call is due.
    next_at: f64,
}

impl Pace {
    /// Calls a second that are made now.
    pub(super) fn rate(&self, now: Time) -> Option<f64> {
        self.held.as_ref().map(|held| held.rate(now))
    }

    /// When the next call may start; `None` if now.
    pub(super) fn opens_at(&mut self, now: Time) -> Option<Time> {
        let held = self.held.as_mut()?;
        let idle = now.since(held.held_back_at);
        if idle > FORGOTTEN_AFTER || held.rate(now) > held.refused * GROWTH_MAX {
            self.held = None;
            return None;
        }
        let at = held.due();
        if at <= now {
            return None;
        }
        if idle > IDLE {
            held.since = held.since + (idle - IDLE);
        }
        held.held_back_at = now;
        Some(at)
    }

    /// As [`Pace::opens_at`], without a call that is held back.
    pub(super) fn would_open_at(&self, now: Time) -> Option<Time> {
        self.held.as_ref().map(HeldRate::due).filter(|at| *at > now)
    }

    /// A call starts.
    pub(super) fn start(&mut self, now: Time) {
        if let Some(held) = &mut self.held {
            let earliest = (now - MADE_UP_FOR).0 as f64;
            held.next_at = held.next_at.max(earliest) + 1e3 / held.rate(now);
        }
    }

    /// A call was accepted.
    pub(super) fn accepted(&mut self, now: Time) {
        self.first_accepted.get_or_insert(now);
        while self.accepted.len() >= COUNTED_MAX || self.accepted.front().is_some_and(|at| *at < now - LONG) {
            self.accepted.pop_front();
        }
        self.accepted.push_back(now);
        self.outcomes <<= 1;
    }

    /// No call starts until then: the wait after a refusal. It is not made up for.
    pub(super) fn wait(&mut self, until: Time) {
        if let Some(held) = &mut self.held {
            held.next_at = held.next_at.max(until.0 as f64);
            held.resumed_at = held.resumed_at.max(until);
            let wait = held.resumed_at.since(held.refused_at).as_secs_f64();
            held.returns_in = RETURN.mul_f64(1.0 + wait.min(1.0));
        }
    }

    /// A call that started at `started` was refused. One refusal counts for all calls that were under way together.
    pub(super) fn refused(&mut self, now: Time, started: Time) {
        let (short, long) = (self.accepted_rate(now, SHORT), self.accepted_rate(now, LONG));
        self.outcomes = self.outcomes << 1 | 1;
        self.note_sustained(now, long);
        let are_many = self.outcomes.count_ones() >= MANY_REFUSED;
        let refused = match &self.held {
            Some(held) if started < held.refused_at => return,
            Some(held) => held.lowered((now, started), short, long),
            None if short >= LEARNED_MIN && (are_many || !self.ignores_few) => short,
            None => return,
        };
        let in_vain = self.sustained.map_or(0.0, |(rate, _)| rate * IN_VAIN).max(LEARNED_MIN);
        self.ignores_few = !are_many && refused < in_vain;
        if self.ignores_few {
            self.held = None;
            return;
        }
        self.held = (refused >= HELD_MIN).then_some(HeldRate {
            refused,
            since: now,
            refused_at: now,
            returns_in: RETURN,
            resumed_at: now,
            held_back_at: now,
            next_at: now.0 as f64,
        });
    }

    fn note_sustained(&mut self, now: Time, long: f64) {
        let is_complete = self.first_accepted.is_some_and(|first| now.since(first) >= LONG);
        let is_higher = |(rate, at): (f64, Time)| long >= rate || now.since(at) > SUSTAINED_FOR;
        if is_complete && self.sustained.is_none_or(is_higher) {
            self.sustained = Some((long, now));
        }
    }

    /// Accepted calls a second over this time, or since the first one. Waits count.
    fn accepted_rate(&self, now: Time, within: Duration) -> f64 {
        let from = self.accepted.partition_point(|at| *at <= now - within);
        let first =
            if self.accepted.len() >= COUNTED_MAX { self.accepted.front().copied() } else { self.first_accepted };
        let seen = first.map_or(SHORT, |first| now.since(first)).clamp(SHORT, within);
        (self.accepted.len() - from) as f64 / seen.as_secs_f64()
    }
}

impl HeldRate {
    fn due(&self) -> Time {
        Time(self.next_at.ceil() as i64)
    }

    fn rate(&self, now: Time) -> f64 {
        let passed = now.since(self.since);
        if passed < self.returns_in {
            let left = 1.0 - passed.as_secs_f64() / self.returns_in.as_secs_f64();
            return self.refused * (1.0 - (1.0 - START) * left.powi(3));
        }
        let beyond = (passed - self.returns_in).as_secs_f64() * self.returns_in.div_duration_f64(RETURN);
        let exponent = GROWTH * beyond.powi(2);
        self.refused * exponent.min(GROWTH_MAX.ln() + 1.0).exp()
    }

    /// The rate that was refused now, by the calls a second that were accepted over [`SHORT`] and [`LONG`].
    fn lowered(&self, (now, started): (Time, Time), short: f64, long: f64) -> f64 {
        let rate = self.rate(started).min(self.rate(now));
        let is_again = now.since(self.resumed_at) < AGAIN_WITHIN;
        if is_again && now.since(self.refused_at) >= LONG {
            return long.min(rate * AGAIN);
        }
        let most = if is_again && short < rate * EVENLY { rate * AGAIN } else { rate };
        short.max(long).clamp(rate * LOWER_MAX, most)
    }
}
