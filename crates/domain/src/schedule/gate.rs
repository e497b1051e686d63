//! Gate of a destination: rate ∧ adaptive concurrency ∧ learned rate ∧ Retry-After ∧ breaker ∧ budget ∧ pause.
//!
//! Waiting at a gate costs no attempt.

use std::time::Duration;

use serde::Serialize;

use crate::call_budget::{BudgetAdmission, CallBudget};
use crate::destination::GateSettings;
use crate::mutant::Mutant;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;

use super::latency::Latency;
use super::pace::Pace;
pub use super::view::GateView;

/// Whether a call may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Go,
    NotBefore(Time),
    /// When a call ends.
    Full,
    /// When an operator resumes the destination.
    Paused,
}

/// Why a destination is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// The destination rejected the credentials: one job died, and no second one shall.
    Auth,
    Operator,
}

/// A change of a gate that is logged and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateChange {
    /// The breaker is open until this time.
    Opened(Time),
    /// The breaker admits one probe.
    HalfOpen,
    /// The breaker is closed.
    Closed,
    /// The destination rejected the credentials and is paused.
    AuthPaused,
}

#[derive(Clone, Debug)]
pub(super) enum Breaker {
    Closed {
        window_start: Time,
        calls: u32,
        failures: u32,
        in_a_row: u32,
    },
    Open {
        until: Time,
    },
    /// One probe is admitted; its start, if it is under way.
    HalfOpen {
        probe: Option<Time>,
    },
}

#[derive(Clone, Debug)]
pub struct Gate {
    pub(super) settings: GateSettings,
    pub(super) in_flight: u32,
    /// Calls that may be in flight; grows by one per windowful of successes, shrinks on signs of overload.
    window: f64,
    last_shrink: Time,
    /// Time in fractional milliseconds at which the rate's bucket is empty (GCRA).
    bucket_at: f64,
    pub(super) not_before: Time,
    throttles_in_a_row: u32,
    last_throttle: Time,
    pub(super) breaker: Breaker,
    opened_in_a_row: u32,
    pub(super) paused: Option<PauseReason>,
    pub(super) failing_since: Option<Time>,
    latency: Latency,
    pub(super) budget: Option<CallBudget>,
    pub(super) pace: Pace,
}

const WINDOW_START: f64 = 4.0;
pub(super) const SHRINK: f64 = 0.7;
/// Rising latency alone does not reduce concurrency below this share of the limit: it has other causes than overload.
const LATENCY_FLOOR: f64 = 0.25;
/// The wait after a 429 without Retry-After, doubled each time up to a minute.
const THROTTLE_FIRST: Duration = Duration::from_secs(1);
/// The same where the rate is learned: the next call comes later anyway.
const THROTTLE_PACED: Duration = Duration::from_millis(250);
const THROTTLE_MAX: Duration = Duration::from_secs(60);
const THROTTLE_PACED_MAX: Duration = Duration::from_secs(2);

impl Gate {
    pub fn new(settings: GateSettings) -> Gate {
        Gate {
            window: WINDOW_START.min(f64::from(settings.concurrency_max)),
            budget: settings.budget.clone().map(CallBudget::new),
            settings,
            in_flight: 0,
            last_shrink: Time(i64::MIN),
            bucket_at: f64::MIN,
            not_before: Time(i64::MIN),
            throttles_in_a_row: 0,
            last_throttle: Time(i64::MIN),
            breaker: closed(Time(i64::MIN)),
            opened_in_a_row: 0,
            paused: None,
            failing_since: None,
            latency: Latency::default(),
            pace: Pace::default(),
        }
    }

    /// Sets new limits; calls in flight still count.
    pub fn configure(&mut self, settings: GateSettings) {
        self.window = self.window.min(f64::from(settings.concurrency_max)).max(1.0);
        match (&mut self.budget, settings.budget.clone()) {
            (Some(budget), Some(settings)) => budget.configure(settings),
            (budget, settings) => *budget = settings.map(CallBudget::new),
        }
        self.settings = settings;
    }

    /// Closes it until [`Gate::resume`]. A gate that rejected credentials have closed keeps that reason: its next call is a probe.
    pub fn pause(&mut self, reason: PauseReason) {
        if self.paused != Some(PauseReason::Auth) {
            self.paused = Some(reason);
        }
    }

    /// Ends a pause. After an auth failure the next call is a probe. A breaker that opened meanwhile stays open.
    pub fn resume(&mut self) {
        if self.paused.take() == Some(PauseReason::Auth) && !matches!(self.breaker, Breaker::Open { .. }) {
            self.breaker = Breaker::HalfOpen { probe: None };
        }
    }

    pub fn paused(&self) -> Option<&PauseReason> {
        self.paused.as_ref()
    }

    /// When calls can start again if none can start within `horizon`, [`Time::NEVER`] if an operator decides; `None` if some can.
    pub fn closed_until(&self, now: Time, horizon: Duration) -> Option<Time> {
        if self.paused.is_some() && !Mutant::DestinationPauseIgnored.is_on() {
            return Some(Time::NEVER);
        }
        match self.breaker {
            Breaker::Open { until } if until > now && !Mutant::BreakerIgnored.is_on() => Some(until),
            _ => {
                let budget = match self.budget_admits(now) {
                    BudgetAdmission::Until(at) => at,
                    BudgetAdmission::Go | BudgetAdmission::Charging => self.not_before,
                };
                Some(self.not_before.max(budget) - horizon).filter(|open| *open > now)
            }
        }
    }

    pub(super) fn concurrency(&self) -> u32 {
        self.window.floor().max(1.0) as u32
    }

    /// When the rate limit admits the next call.
    pub(super) fn rate_opens_at(&self) -> Option<Time> {
        let rate = self.settings.rate.filter(|_| !Mutant::RateIgnored.is_on())?;
        let interval = rate.interval().as_secs_f64() * 1e3;
        let earliest = self.bucket_at - interval * f64::from(self.settings.burst.saturating_sub(1));
        Some(Time(earliest.ceil() as i64))
    }

    /// Whether a call may start now.
    pub fn admit(&mut self, now: Time) -> Admission {
        if self.paused.is_some() && !Mutant::DestinationPauseIgnored.is_on() {
            return Admission::Paused;
        }
        match self.breaker {
            Breaker::Open { .. } if Mutant::BreakerIgnored.is_on() => {}
            Breaker::Open { until } if now < until => return Admission::NotBefore(until),
            Breaker::Open { .. } => self.breaker = Breaker::HalfOpen { probe: None },
            Breaker::HalfOpen { probe: Some(_) } => return Admission::Full,
            Breaker::HalfOpen { probe: None } | Breaker::Closed { .. } => {}
        }
        if now < self.not_before {
            return Admission::NotBefore(self.not_before);
        }
        match self.budget_admits(now) {
            BudgetAdmission::Until(at) => return Admission::NotBefore(at),
            BudgetAdmission::Charging => return Admission::Full,
            BudgetAdmission::Go => {}
        }
        if self.in_flight >= self.concurrency() && !Mutant::DestinationConcurrencyIgnored.is_on() {
            return Admission::Full;
        }
        match self.rate_opens_at() {
            Some(at) if now < at => Admission::NotBefore(at),
            _ => self.pace.opens_at(now).map_or(Admission::Go, Admission::NotBefore),
        }
    }

    /// Whether the next call is the breaker's probe.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.breaker, Breaker::HalfOpen { .. })
    }

    /// A call starts. Returns a change if it is the breaker's probe.
    pub fn start(&mut self, now: Time) -> Option<GateChange> {
        self.in_flight += 1;
        self.pace.start(now);
        if let Some(rate) = self.settings.rate {
            let interval = rate.interval().as_secs_f64() * 1e3;
            self.bucket_at = self.bucket_at.max(now.0 as f64) + interval;
        }
        match &mut self.breaker {
            Breaker::HalfOpen { probe } => {
                *probe = (!Mutant::HalfOpenStampede.is_on()).then_some(now);
                Some(GateChange::HalfOpen)
            }
            _ => None,
        }
    }

    /// A call that started at `started` has ended. `call` is what it says about the destination, and its duration.
    pub fn finish(
        &mut self,
        now: Time,
        started: Time,
        call: (DestinationHealth, Option<Duration>),
        random: &mut Random,
    ) -> Option<GateChange> {
        let (health, took) = call;
        self.in_flight = self.in_flight.saturating_sub(1);
        // The end of an older call says nothing about the probe.
        let is_probe = matches!(self.breaker, Breaker::HalfOpen { probe: Some(since) } if started >= since);
        if is_probe
            && matches!(
                health,
                DestinationHealth::Silent | DestinationHealth::Throttled { .. } | DestinationHealth::Unauthorized
            )
        {
            // This probe says nothing about the destination: the next call is one.
            self.breaker = Breaker::HalfOpen { probe: None };
        }
        match health {
            DestinationHealth::Healthy => {
                self.throttles_in_a_row = 0;
                self.pace.accepted(now);
                self.adapt(now, started, took);
                self.count(now, false, is_probe, random)
            }
            DestinationHealth::Silent => None,
            DestinationHealth::Throttled { after } => {
                let learned = self.pace.rate(now).is_some();
                self.pace.refused(now, started);
                // A rate that is known is held by the pace; fewer calls at once would only make it uneven.
                if !learned {
                    self.shrink(now, started, 1.0);
                }
                // Calls that were under way together count once: their refusals have the same cause.
                if started >= self.last_throttle {
                    self.throttles_in_a_row = self.throttles_in_a_row.saturating_add(1);
                    self.last_throttle = now;
                }
                self.wait(now, after, random);
                None
            }
            DestinationHealth::Overloaded => {
                self.shrink(now, started, 1.0);
                self.count(now, true, is_probe, random)
            }
            DestinationHealth::Failing => self.count(now, true, is_probe, random),
            DestinationHealth::Unauthorized => self.credentials_rejected().then_some(GateChange::AuthPaused),
        }
    }

    /// Closes it until [`Gate::resume`]: one job died, and no second one shall. Returns whether it is closed.
    pub(super) fn credentials_rejected(&mut self) -> bool {
        let closes = !Mutant::AuthFailureDoesNotPause.is_on();
        if closes {
            self.paused = Some(PauseReason::Auth);
        }
        closes
    }

    /// The destination asked for a pause. A pause of no length, such as a date that has passed by this machine's clock, says
    /// nothing: calls would be refused one after the other, and none of them costs an attempt.
    fn wait(&mut self, now: Time, after: Option<Duration>, random: &mut Random) {
        let wait = after.filter(|after| !after.is_zero()).unwrap_or_else(|| {
            let is_paced = self.pace.rate(now).is_some();
            let (first, max) =
                if is_paced { (THROTTLE_PACED, THROTTLE_PACED_MAX) } else { (THROTTLE_FIRST, THROTTLE_MAX) };
            let doubled = first.saturating_mul(1 << self.throttles_in_a_row.saturating_sub(1).min(6));
            doubled.min(max).mul_f64(0.5 + random.unit() / 2.0)
        });
        // Up to a tenth more, so that gates that were given the same time do not open at once.
        self.not_before = self.not_before.max(now + wait.mul_f64(1.0 + random.unit() / 10.0));
        self.pace.wait(self.not_before);
    }

    /// A call succeeded: more calls may be in flight, unless they take longer and longer. Where the rate is learned slow calls
    /// alone do not reduce them: the destination refuses what is too much, and too few calls at once would not reach its rate.
    fn adapt(&mut self, now: Time, started: Time, took: Option<Duration>) {
        let max = f64::from(self.settings.concurrency_max);
        let is_rising = took.is_some_and(|took| self.latency.is_rising_with(took));
        if is_rising && self.pace.rate(now).is_none() {
            self.shrink(now, started, max * LATENCY_FLOOR);
        } else {
            self.window = (self.window + 1.0 / self.window.max(1.0)).min(max);
        }
    }

    /// At most once for all calls that were in flight together: they have the same cause. Not below `floor`.
    fn shrink(&mut self, now: Time, started: Time, floor: f64) {
        if started >= self.last_shrink && self.window > floor {
            self.window = (self.window * SHRINK).max(floor).max(1.0);
            self.last_shrink = now;
        }
    }

    fn count(&mut self, now: Time, failed: bool, is_probe: bool, random: &mut Random) -> Option<GateChange> {
        let settings = &self.settings.breaker;
        match &mut self.breaker {
            Breaker::Closed { window_start, calls, failures, in_a_row } => {
                if now.since(*window_start) > settings.window || *window_start > now {
                    (*window_start, *calls, *failures) = (now, 0, 0);
                    self.failing_since = self.failing_since.filter(|_| *in_a_row > 0);
                }
                if failed {
                    self.failing_since.get_or_insert(now);
                }
                *calls += 1;
                *failures += u32::from(failed);
                *in_a_row = if failed { *in_a_row + 1 } else { 0 };
                let share = *calls >= settings.calls_min && *failures * 100 >= *calls * settings.failure_percent;
                if failed && (share || *in_a_row >= settings.failures_in_a_row) {
                    return Some(self.open(now, random));
                }
                None
            }
            // The end of a call that started before the breaker opened says nothing new.
            Breaker::HalfOpen { .. } | Breaker::Open { .. } if !is_probe => None,
            Breaker::HalfOpen { .. } if failed => Some(self.open(now, random)),
            Breaker::HalfOpen { .. } | Breaker::Open { .. } => {
                self.breaker = closed(now);
                self.failing_since = None;
                self.opened_in_a_row = 0;
                // Slow start: a destination that has just recovered does not get the whole backlog at once.
                self.window = 1.0;
                Some(GateChange::Closed)
            }
        }
    }

    fn open(&mut self, now: Time, random: &mut Random) -> GateChange {
        let settings = &self.settings.breaker;
        let doubled = settings.open_first.saturating_mul(1u32 << self.opened_in_a_row.min(16));
        let wait = doubled.min(settings.open_max).mul_f64(1.0 + random.unit() / 10.0);
        self.opened_in_a_row = self.opened_in_a_row.saturating_add(1);
        let until = now + wait;
        self.breaker = Breaker::Open { until };
        GateChange::Opened(until)
    }
}

fn closed(now: Time) -> Breaker {
    Breaker::Closed { window_start: now, calls: 0, failures: 0, in_a_row: 0 }
}
