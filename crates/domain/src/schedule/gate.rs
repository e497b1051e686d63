//! Gate of a destination: rate ∧ adaptive concurrency ∧ Retry-After ∧ breaker ∧ pause.
//!
//! Waiting at a gate costs no attempt.

use std::time::Duration;

use serde::Serialize;

use crate::destination::GateSettings;
use crate::mutant::Mutant;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;

use super::WaitsFor;
use super::latency::Latency;

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

/// State of a gate for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateView {
    /// State of the breaker: `closed`, `open` or `half-open`.
    pub breaker: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Time>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls that may be in flight at once now.
    pub concurrency: u32,
    /// Configured limit of `concurrency`.
    pub concurrency_max: u32,
    /// Retry-After of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseReason>,
    /// The first failed call of those that opened the breaker or may open it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Time>,
}

#[derive(Clone, Debug)]
enum Breaker {
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
    settings: GateSettings,
    in_flight: u32,
    /// Calls that may be in flight; grows by one per windowful of successes, shrinks on signs of overload.
    window: f64,
    last_shrink: Time,
    /// Time in fractional milliseconds at which the rate's bucket is empty (GCRA).
    bucket_at: f64,
    not_before: Time,
    throttles_in_a_row: u32,
    breaker: Breaker,
    opened_in_a_row: u32,
    paused: Option<PauseReason>,
    failing_since: Option<Time>,
    latency: Latency,
}

const WINDOW_START: f64 = 4.0;
const SHRINK: f64 = 0.7;
/// Rising latency alone does not reduce concurrency below this share of the limit: it has other causes than overload.
const LATENCY_FLOOR: f64 = 0.25;
/// The wait after a 429 without Retry-After, doubled each time up to a minute.
const THROTTLE_FIRST: Duration = Duration::from_secs(1);
const THROTTLE_MAX: Duration = Duration::from_secs(60);

impl Gate {
    pub fn new(settings: GateSettings) -> Gate {
        Gate {
            window: WINDOW_START.min(f64::from(settings.concurrency_max)),
            settings,
            in_flight: 0,
            last_shrink: Time(i64::MIN),
            bucket_at: f64::MIN,
            not_before: Time(i64::MIN),
            throttles_in_a_row: 0,
            breaker: closed(Time(i64::MIN)),
            opened_in_a_row: 0,
            paused: None,
            failing_since: None,
            latency: Latency::default(),
        }
    }

    /// Sets new limits; calls in flight still count.
    pub fn configure(&mut self, settings: GateSettings) {
        self.window = self.window.min(f64::from(settings.concurrency_max)).max(1.0);
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
            _ => Some(self.not_before - horizon).filter(|open| *open > now),
        }
    }

    /// Why no call can start now, if none can, and until when, if that is known.
    pub(super) fn waits_for(&self, now: Time) -> Option<(WaitsFor, Option<Time>)> {
        if self.paused.is_some() {
            return Some((WaitsFor::Destination, None));
        }
        match self.breaker {
            Breaker::Open { until } if until > now => return Some((WaitsFor::Breaker, Some(until))),
            Breaker::HalfOpen { probe: Some(_) } => return Some((WaitsFor::Breaker, None)),
            _ => {}
        }
        if now < self.not_before {
            return Some((WaitsFor::RetryAfter, Some(self.not_before)));
        }
        if self.in_flight >= self.concurrency() {
            return Some((WaitsFor::DestinationSlot, None));
        }
        self.rate_opens_at().filter(|at| *at > now).map(|at| (WaitsFor::Rate, Some(at)))
    }

    fn concurrency(&self) -> u32 {
        self.window.floor().max(1.0) as u32
    }

    /// When the rate limit admits the next call.
    fn rate_opens_at(&self) -> Option<Time> {
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
        if self.in_flight >= self.concurrency() && !Mutant::DestinationConcurrencyIgnored.is_on() {
            return Admission::Full;
        }
        match self.rate_opens_at() {
            Some(at) if now < at => Admission::NotBefore(at),
            _ => Admission::Go,
        }
    }

    /// Whether the next call is the breaker's probe.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.breaker, Breaker::HalfOpen { .. })
    }

    /// A call starts. Returns a change if it is the breaker's probe.
    pub fn start(&mut self, now: Time) -> Option<GateChange> {
        self.in_flight += 1;
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
                self.adapt(now, started, took);
                self.count(now, false, is_probe, random)
            }
            DestinationHealth::Silent => None,
            DestinationHealth::Throttled { after } => {
                self.shrink(now, started, 1.0);
                self.throttles_in_a_row = self.throttles_in_a_row.saturating_add(1);
                self.wait(now, after, random);
                None
            }
            DestinationHealth::Overloaded => {
                self.shrink(now, started, 1.0);
                self.count(now, true, is_probe, random)
            }
            DestinationHealth::Failing => self.count(now, true, is_probe, random),
            DestinationHealth::Unauthorized => {
                if Mutant::AuthFailureDoesNotPause.is_on() {
                    return None;
                }
                self.paused = Some(PauseReason::Auth);
                Some(GateChange::AuthPaused)
            }
        }
    }

    /// The destination asked for a pause.
    fn wait(&mut self, now: Time, after: Option<Duration>, random: &mut Random) {
        let wait = after.unwrap_or_else(|| {
            let doubled = THROTTLE_FIRST.saturating_mul(1 << (self.throttles_in_a_row - 1).min(6));
            doubled.min(THROTTLE_MAX).mul_f64(0.5 + random.unit() / 2.0)
        });
        // Up to a tenth more, so that gates that were given the same time do not open at once.
        self.not_before = self.not_before.max(now + wait.mul_f64(1.0 + random.unit() / 10.0));
    }

    /// A call succeeded: more calls may be in flight, unless they take longer and longer.
    fn adapt(&mut self, now: Time, started: Time, took: Option<Duration>) {
        let max = f64::from(self.settings.concurrency_max);
        if took.is_some_and(|took| self.latency.is_rising_with(took)) {
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

    pub fn view(&self, now: Time) -> GateView {
        let (breaker, open_until) = match self.breaker {
            Breaker::Closed { .. } => ("closed", None),
            Breaker::Open { until } if until > now => ("open", Some(until)),
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => ("half-open", None),
        };
        GateView {
            breaker,
            open_until,
            in_flight: self.in_flight,
            concurrency: self.concurrency(),
            concurrency_max: self.settings.concurrency_max,
            not_before: (self.not_before > now).then_some(self.not_before),
            paused: self.paused.clone(),
            failing_since: self.failing_since,
        }
    }
}

fn closed(now: Time) -> Breaker {
    Breaker::Closed { window_start: now, calls: 0, failures: 0, in_a_row: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit;

    fn gate(settings: GateSettings) -> (Gate, Random) {
        (Gate::new(settings), Random::seeded(3))
    }

    #[test]
    fn a_rate_is_kept_over_any_interval() {
        let (mut gate, mut random) =
            gate(GateSettings { rate: Some(unit::rate("10/s").unwrap()), burst: 3, ..Default::default() });
        let mut sent = Vec::new();
        for ms in 0..5_000 {
            while gate.admit(Time(ms)) == Admission::Go {
                gate.start(Time(ms));
                gate.finish(Time(ms), Time(ms), (DestinationHealth::Healthy, None), &mut random);
                sent.push(ms);
            }
        }
        assert!(sent.len() >= 50);
        for (i, from) in sent.iter().enumerate() {
            let within_a_second = sent[i..].iter().take_while(|at| **at < from + 1_000).count();
            assert!(within_a_second <= 13, "{within_a_second} in the second from {from}");
        }
    }

    #[test]
    fn a_pause_of_a_gate_that_rejected_credentials_have_closed_keeps_the_probe() {
        let (mut gate, mut random) = gate(GateSettings::default());
        gate.start(Time(0));
        let change = gate.finish(Time(0), Time(0), (DestinationHealth::Unauthorized, None), &mut random);
        assert_eq!(change, Some(GateChange::AuthPaused));
        gate.pause(PauseReason::Operator);
        assert_eq!(gate.paused(), Some(&PauseReason::Auth));
        gate.resume();
        assert_eq!(gate.start(Time(1)), Some(GateChange::HalfOpen));
        assert_eq!(gate.admit(Time(1)), Admission::Full, "one probe");
    }

    #[test]
    fn an_open_breaker_lets_one_probe_through_and_starts_slowly() {
        let (mut gate, mut random) = gate(GateSettings::default());
        let mut change = None;
        for _ in 0..10 {
            assert_eq!(gate.admit(Time(0)), Admission::Go);
            gate.start(Time(0));
            change = gate.finish(Time(0), Time(0), (DestinationHealth::Failing, None), &mut random);
        }
        let Some(GateChange::Opened(until)) = change else { panic!("{change:?}") };
        assert_eq!(gate.view(Time(1)).failing_since, Some(Time(0)));
        assert_eq!(gate.admit(Time(1)), Admission::NotBefore(until));
        assert_eq!(gate.admit(until), Admission::Go);
        assert_eq!(gate.start(until), Some(GateChange::HalfOpen));
        assert_eq!(gate.admit(until), Admission::Full, "one probe, not a stampede");
        assert_eq!(
            gate.finish(until, until, (DestinationHealth::Healthy, None), &mut random),
            Some(GateChange::Closed)
        );
        assert_eq!(gate.view(until).failing_since, None);
        gate.start(until);
        assert_eq!(gate.admit(until), Admission::Full, "slow start");
    }

    #[test]
    fn the_end_of_a_call_from_before_is_not_the_end_of_the_probe() {
        for health in [
            DestinationHealth::Silent,
            DestinationHealth::Healthy,
            DestinationHealth::Throttled { after: Some(Duration::ZERO) },
        ] {
            let (mut gate, mut random) = gate(GateSettings::default());
            let failures = gate.settings.breaker.failures_in_a_row;
            for _ in 0..=failures {
                gate.start(Time(0));
            }
            let change = (0..failures)
                .filter_map(|_| gate.finish(Time(1), Time(0), (DestinationHealth::Failing, None), &mut random))
                .last();
            let Some(GateChange::Opened(until)) = change else { panic!("{change:?}") };
            assert_eq!(gate.admit(until), Admission::Go);
            gate.start(until);
            let later = until + Duration::from_secs(1);
            assert_eq!(
                gate.finish(later, Time(0), (health, None), &mut random),
                None,
                "it started before the breaker opened"
            );
            assert_eq!(gate.admit(later + Duration::from_secs(1)), Admission::Full, "the probe is still under way");
        }
    }

    #[test]
    fn a_failed_probe_opens_it_for_longer() {
        let (mut gate, mut random) = gate(GateSettings::default());
        let mut now = Time(0);
        let mut waits = Vec::new();
        for _ in 0..4 {
            loop {
                match gate.admit(now) {
                    Admission::Go => {
                        gate.start(now);
                        if let Some(GateChange::Opened(until)) =
                            gate.finish(now, now, (DestinationHealth::Failing, None), &mut random)
                        {
                            waits.push(until.since(now).as_secs());
                            break;
                        }
                    }
                    Admission::NotBefore(at) => now = at,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
    }

    #[test]
    fn throttling_shrinks_once_per_flight_and_is_waited_for() {
        let (mut gate, mut random) = gate(GateSettings { concurrency_max: 64, ..Default::default() });
        for _ in 0..2_000 {
            gate.start(Time(0));
            gate.finish(Time(0), Time(0), (DestinationHealth::Healthy, None), &mut random);
        }
        let before = gate.view(Time(0)).concurrency;
        for _ in 0..8 {
            gate.start(Time(10));
        }
        for _ in 0..8 {
            gate.finish(
                Time(20),
                Time(10),
                (DestinationHealth::Throttled { after: Some(Duration::from_secs(2)) }, None),
                &mut random,
            );
        }
        assert_eq!(gate.view(Time(20)).concurrency, (f64::from(before) * SHRINK) as u32);
        let Admission::NotBefore(at) = gate.admit(Time(20)) else { panic!("it must wait") };
        assert!(at >= Time(2_020) && at <= Time(2_220), "{at:?}");
    }

    #[test]
    fn an_auth_failure_pauses_until_somebody_resumes() {
        let (mut gate, mut random) = gate(GateSettings::default());
        gate.start(Time(0));
        assert_eq!(
            gate.finish(Time(0), Time(0), (DestinationHealth::Unauthorized, None), &mut random),
            Some(GateChange::AuthPaused)
        );
        assert_eq!(gate.admit(Time(i64::MAX / 2)), Admission::Paused);
        gate.resume();
        assert_eq!(gate.admit(Time(1)), Admission::Go);
        gate.start(Time(1));
        assert_eq!(gate.admit(Time(1)), Admission::Full, "one call goes first");
    }

    #[test]
    fn a_breaker_that_opened_behind_an_auth_pause_stays_open_when_somebody_resumes() {
        let (mut gate, mut random) = gate(GateSettings::default());
        let failures = gate.settings.breaker.failures_in_a_row;
        for _ in 0..=failures {
            gate.start(Time(0));
        }
        gate.finish(Time(0), Time(0), (DestinationHealth::Unauthorized, None), &mut random);
        let change = (0..failures)
            .filter_map(|_| gate.finish(Time(1), Time(0), (DestinationHealth::Failing, None), &mut random))
            .last();
        let Some(GateChange::Opened(until)) = change else { panic!("{change:?}") };
        gate.resume();
        assert_eq!(gate.admit(Time(2)), Admission::NotBefore(until));
        assert_eq!(gate.admit(until), Admission::Go);
        gate.start(until);
        assert_eq!(gate.admit(until), Admission::Full, "one call goes first");
    }
}
