//! The gate of a destination, call by call.

use super::gate::*;
use crate::destination::GateSettings;
use crate::random::Random;
use crate::settle::DestinationHealth;
use crate::time::Time;
use crate::unit;
use std::time::Duration;

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
fn refusals_that_ask_for_no_wait_are_not_answered_by_calls_without_end() {
    let (mut gate, mut random) = gate(GateSettings::default());
    let mut calls = 0;
    for ms in 0..60_000 {
        if gate.admit(Time(ms)) == Admission::Go {
            gate.start(Time(ms));
            let refused = DestinationHealth::Throttled { after: Some(Duration::ZERO) };
            gate.finish(Time(ms), Time(ms), (refused, None), &mut random);
            calls += 1;
        }
    }
    assert!(calls < 12, "{calls} calls in a minute");
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
    assert_eq!(gate.finish(until, until, (DestinationHealth::Healthy, None), &mut random), Some(GateChange::Closed));
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
