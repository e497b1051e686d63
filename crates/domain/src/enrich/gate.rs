//! Gate of the lookups at one destination. Lookups have a gate of their own: they wait for no job, and no job waits for them.

use std::time::Duration;

use super::{HttpLookup, LookupResult};
use crate::destination::GateSettings;
use crate::event::LossCode;
use crate::outcome::{Failure, FailureClass, Outcome};
use crate::random::Random;
use crate::schedule::gate::{Admission, Gate, GateChange};
use crate::settle::{DestinationHealth, is_timeout};
use crate::time::Time;

/// Longest pause that a destination can ask lookups for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Whether a lookup may be made.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupAdmission {
    /// It has begun, and must be finished.
    Go,
    /// Not before this time of the steady clock.
    Wait(Time),
    /// When another lookup ends.
    Full,
    /// Not within its deadline.
    Skip(LookupResult),
}

/// Rate, concurrency, Retry-After and breaker of the lookups at one destination. A budget is for jobs: lookups do not use it.
#[derive(Clone, Debug)]
pub struct LookupGate(Gate);

impl LookupGate {
    pub fn new(settings: GateSettings) -> LookupGate {
        LookupGate(Gate::new(GateSettings { budget: None, ..settings }))
    }

    /// Sets new limits.
    pub fn configure(&mut self, settings: GateSettings) {
        self.0.configure(GateSettings { budget: None, ..settings });
    }

    /// Begins a lookup if it may be made now. `deadline` is by the steady clock, as `now` is.
    pub fn admit(&mut self, now: Time, deadline: Time) -> LookupAdmission {
        let skip = || {
            let message = "the destination is failing or at its limit";
            LookupAdmission::Skip(LookupResult::failed(LossCode::LookupSkipped, message))
        };
        // Nothing is gained by waiting for a destination that fails.
        if self.0.closed_until(now, deadline.since(now)).is_some() {
            return skip();
        }
        match self.0.admit(now) {
            Admission::Go => {
                self.0.start(now);
                LookupAdmission::Go
            }
            Admission::Full => LookupAdmission::Full,
            Admission::NotBefore(at) if at < deadline => LookupAdmission::Wait(at),
            Admission::NotBefore(_) | Admission::Paused => skip(),
        }
    }

    /// A lookup that began at `started` has ended. Rejected credentials count as a failure: the breaker admits a lookup from time to
    /// time, and no operator has to resume anything.
    pub fn finish(&mut self, now: Time, started: Time, outcome: &Outcome, random: &mut Random) -> Option<GateChange> {
        self.0.finish(now, started, (health(outcome), Some(now.since(started))), random)
    }
}

fn health(outcome: &Outcome) -> DestinationHealth {
    match outcome {
        Outcome::Done { .. } | Outcome::Noop { .. } => DestinationHealth::Healthy,
        Outcome::Wait { after, .. } => {
            DestinationHealth::Throttled { after: after.map(|after| after.min(RETRY_AFTER_MAX)) }
        }
        Outcome::Retry { failure, .. } | Outcome::Unsure { failure } => DestinationHealth::of_failure(failure),
        Outcome::Reject { failure } => match failure.class {
            FailureClass::Auth => DestinationHealth::Failing,
            FailureClass::Mapping | FailureClass::Identity => DestinationHealth::Silent,
            _ => DestinationHealth::Healthy,
        },
    }
}

impl HttpLookup {
    /// What a call came to, and how long that may be used again.
    pub fn judge(&self, outcome: Outcome) -> (LookupResult, Duration) {
        let failed = |code, failure: Failure| LookupResult::failed(code, failure.message);
        match outcome {
            Outcome::Done { result } => match self.read(&result) {
                LookupResult::Absent => (LookupResult::Absent, self.negative_cache),
                found => (found, self.cache),
            },
            Outcome::Noop { .. } => (LookupResult::Absent, self.negative_cache),
            Outcome::Wait { failure, .. } => (failed(LossCode::LookupSkipped, failure), Duration::ZERO),
            Outcome::Retry { failure, .. } | Outcome::Unsure { failure } if is_timeout(&failure) => {
                (failed(LossCode::LookupTimedOut, failure), Duration::ZERO)
            }
            Outcome::Reject { failure } if failure.class == FailureClass::Permanent => {
                (failed(LossCode::LookupFailed, failure), self.negative_cache)
            }
            Outcome::Retry { failure, .. } | Outcome::Unsure { failure } | Outcome::Reject { failure } => {
                (failed(LossCode::LookupFailed, failure), Duration::ZERO)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failure(class: FailureClass, code: &str) -> Failure {
        Failure::new(class, code, "said no")
    }

    #[test]
    fn failures_open_the_breaker_and_lookups_are_skipped_until_it_closes() {
        let (mut gate, mut random) = (LookupGate::new(GateSettings::default()), Random::seeded(1));
        let auth = Outcome::Reject { failure: failure(FailureClass::Auth, "http-401") };
        let mut now = Time(0);
        let mut made = 0;
        while gate.admit(now, now + Duration::from_secs(2)) == LookupAdmission::Go {
            gate.finish(now, now, &auth, &mut random);
            (now, made) = (now + Duration::from_millis(10), made + 1);
            assert!(made < 1000, "the breaker must open");
        }
        let LookupAdmission::Skip(result) = gate.admit(now, now + Duration::from_secs(3600)) else {
            panic!("skipped at once")
        };
        assert_eq!(result.as_str(), "lookup-skipped");
        let later = now + Duration::from_secs(3600);
        assert_eq!(gate.admit(later, later), LookupAdmission::Go, "a probe, without an operator");
        gate.finish(later, later, &Outcome::Done { result: json!({}) }, &mut random);
        assert_eq!(gate.admit(later, later), LookupAdmission::Go);
    }

    #[test]
    fn destination_that_asks_for_a_pause_gets_it() {
        let (mut gate, mut random) = (LookupGate::new(GateSettings::default()), Random::seeded(1));
        let (now, deadline) = (Time(1_000), Time(3_000));
        assert_eq!(gate.admit(now, deadline), LookupAdmission::Go);
        let wait = |seconds| Outcome::Wait {
            failure: failure(FailureClass::Retryable, "http-429"),
            after: Some(Duration::from_secs(seconds)),
        };
        gate.finish(now, now, &wait(1), &mut random);
        assert!(matches!(gate.admit(now, deadline), LookupAdmission::Wait(at) if at < deadline));
        assert!(matches!(gate.admit(now, Time(1_500)), LookupAdmission::Skip(_)));
    }

    #[test]
    fn every_outcome_has_a_result_and_only_answers_are_used_again() {
        let lookup = HttpLookup::new(&"p".into(), &json!({ "url": "/", "fields": { "a": "a" } })).unwrap();
        let (cache, negative) = (lookup.cache, lookup.negative_cache);
        let failed = |class, code: &str| failure(class, code);
        for (outcome, result, used_again) in [
            (Outcome::Done { result: json!({"status": 200, "body": {"a": 1}}) }, "found", cache),
            (Outcome::Done { result: json!({"status": 404}) }, "absent", negative),
            (Outcome::Reject { failure: failed(FailureClass::Permanent, "http-400") }, "lookup-failed", negative),
            (Outcome::Reject { failure: failed(FailureClass::Auth, "http-401") }, "lookup-failed", Duration::ZERO),
            (
                Outcome::Unsure { failure: failed(FailureClass::Retryable, "timeout") },
                "lookup-timed-out",
                Duration::ZERO,
            ),
            (
                Outcome::Retry { failure: failed(FailureClass::Retryable, "http-500"), after: None },
                "lookup-failed",
                Duration::ZERO,
            ),
            (
                Outcome::Wait { failure: failed(FailureClass::Retryable, "http-429"), after: None },
                "lookup-skipped",
                Duration::ZERO,
            ),
        ] {
            let (judged, kept) = lookup.judge(outcome);
            assert_eq!((judged.as_str(), kept), (result, used_again));
        }
    }
}
