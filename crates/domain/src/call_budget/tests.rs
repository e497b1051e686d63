use std::collections::BTreeMap;

use super::*;
use crate::policy::{TimeOfDay, zone};

const RETRY: Duration = Duration::from_millis(500);
const HOUR: i64 = 3_600_000;

fn settings(calls: u64, reserve_percent: u32) -> CallBudgetSettings {
    let window = BudgetWindow::Daily { reset: TimeOfDay(0), zone: zone("UTC").unwrap() };
    CallBudgetSettings { calls: Some(calls), window, reserve_percent }
}

/// A ledger for one budget, whose clock is ahead of the steady one.
#[derive(Default)]
struct Rows(BTreeMap<Time, BudgetRow>);

impl Rows {
    fn write(&mut self, charge: &BudgetCharge) -> Vec<BudgetRow> {
        if let Some(row) = charge.row {
            let known = self.0.get(&row.from).map_or(0, |row| row.charged);
            let charged = if charge.gives_back { row.charged } else { row.charged.max(known) };
            self.0.insert(row.from, BudgetRow { charged, ..row });
        }
        self.0.retain(|from, _| *from >= charge.keep_from);
        self.0.values().copied().collect()
    }
}

const AHEAD: i64 = 1_000 * HOUR;

fn charge(budget: &mut CallBudget, rows: &mut Rows, now: i64) {
    while let Ok(charge) = budget.charge(Time(now)) {
        let answer = rows.write(&charge);
        budget.charged(Time(now), Some((answer, Time(now + AHEAD))), RETRY);
    }
}

/// Makes calls, one in each slot, until none may start. Returns how many.
fn call_all(budget: &mut CallBudget, rows: &mut Rows, now: i64, traffic: Traffic) -> u64 {
    let mut calls = 0;
    loop {
        charge(budget, rows, now);
        match budget.admit(Time(now), traffic) {
            BudgetAdmission::Go => {}
            _ => return calls,
        }
        let reserved = budget.start(Time(now), traffic).unwrap();
        budget.finish(Time(now), reserved, Some(1));
        calls += 1;
    }
}

#[test]
fn replays_and_imports_leave_the_reserve_to_live_traffic() {
    let (mut budget, mut rows) = (CallBudget::new(settings(1_000, 20)), Rows::default());
    assert_eq!(budget.admit(Time(0), Traffic::Live), BudgetAdmission::Charging, "nothing is known yet");
    assert_eq!(call_all(&mut budget, &mut rows, 0, Traffic::Background), 800);
    let BudgetAdmission::Until(until) = budget.admit(Time(0), Traffic::Background) else { panic!() };
    assert_eq!((until.0 + AHEAD).rem_euclid(24 * HOUR), 0, "until midnight");
    assert_eq!(call_all(&mut budget, &mut rows, 0, Traffic::Live), 200);
    let view = budget.view(Time(0));
    assert_eq!((view.used, view.left, view.left_for_replays, view.reserve), (1_000, Some(0), Some(0), 200));
    assert_eq!(view.runs_out_at, Some(Time(AHEAD)), "it has run out");
    assert_eq!(call_all(&mut budget, &mut rows, until.0, Traffic::Live), 1_000, "a new day");
}

#[test]
fn restarts_never_count_too_little_and_lose_a_block_at_most() {
    let mut rows = Rows::default();
    let mut made = 0;
    for _ in 0..50 {
        let mut budget = CallBudget::new(settings(1_000, 0));
        for _ in 0..7 {
            charge(&mut budget, &mut rows, 0);
            if budget.admit(Time(0), Traffic::Live) != BudgetAdmission::Go {
                break;
            }
            // The process dies during the call.
            budget.start(Time(0), Traffic::Live).unwrap();
            made += 1;
        }
        let counted: u64 = rows.0.values().map(|row| row.charged).sum();
        assert!(counted >= made && counted <= 1_000, "{counted} counted, {made} made");
    }
}

#[test]
fn calls_that_were_charged_and_not_used_are_given_back_at_the_end() {
    let (mut budget, mut rows) = (CallBudget::new(settings(1_000, 0)), Rows::default());
    charge(&mut budget, &mut rows, 0);
    let reserved = budget.start(Time(0), Traffic::Live).unwrap();
    assert_eq!(reserved.calls, CALLS_PER_SLOT);
    budget.finish(Time(0), reserved, Some(2));
    rows.write(&budget.settle(Time(0)).unwrap());
    assert_eq!(rows.0.values().map(|row| row.charged).collect::<Vec<_>>(), [2]);
    let mut next = CallBudget::new(settings(1_000, 0));
    charge(&mut next, &mut rows, 0);
    assert_eq!(next.view(Time(0)).used, 2);
}

#[test]
fn a_slot_has_fewer_calls_than_it_may_need_only_at_the_end_of_the_budget() {
    let (mut budget, mut rows) = (CallBudget::new(settings(20, 0)), Rows::default());
    let mut slots = Vec::new();
    loop {
        charge(&mut budget, &mut rows, 0);
        let BudgetAdmission::Go = budget.admit(Time(0), Traffic::Live) else { break };
        let reserved = budget.start(Time(0), Traffic::Live).unwrap();
        slots.push(reserved.calls);
        budget.finish(Time(0), reserved, Some(3));
        // What is left of a block is not enough for an effect with several requests.
        let left = budget.view(Time(0)).left.unwrap();
        assert!(left < 4 || budget.admit(Time(0), Traffic::Live) == BudgetAdmission::Charging);
    }
    assert_eq!(slots, [4, 4, 4, 4, 4, 4, 2]);
    assert_eq!(budget.view(Time(0)).left, Some(0));
}

#[test]
fn a_slot_whose_calls_are_not_reported_has_made_all_that_it_might() {
    let (mut budget, mut rows) = (CallBudget::new(settings(100, 0)), Rows::default());
    charge(&mut budget, &mut rows, 0);
    let reserved = budget.start(Time(0), Traffic::Live).unwrap();
    budget.finish(Time(0), reserved, None);
    assert_eq!(budget.view(Time(0)).used, u64::from(CALLS_PER_SLOT));
}

#[test]
fn no_window_of_a_rolling_budget_exceeds_it() {
    let window = BudgetWindow::Rolling(Duration::from_secs(24 * 3600));
    let settings = CallBudgetSettings { calls: Some(240), window, reserve_percent: 0 };
    let (mut budget, mut rows) = (CallBudget::new(settings), Rows::default());
    let mut made: Vec<(i64, u64)> = Vec::new();
    for minute in 0..72 * 6 {
        let now = minute * HOUR / 6 + 17;
        // A few calls, then as many as there are.
        charge(&mut budget, &mut rows, now);
        let most = if minute % 40 < 30 { 3 } else { u64::MAX };
        let mut calls = 0;
        while calls < most && budget.admit(Time(now), Traffic::Live) == BudgetAdmission::Go {
            let reserved = budget.start(Time(now), Traffic::Live).unwrap();
            budget.finish(Time(now), reserved, Some(1));
            calls += 1;
            charge(&mut budget, &mut rows, now);
        }
        made.push((now, calls));
        let within: u64 = made.iter().filter(|(at, _)| now - at < 24 * HOUR).map(|(_, calls)| calls).sum();
        assert!(within <= 240, "{within} calls in the 24 hours before {now}");
        if let BudgetAdmission::Until(until) = budget.admit(Time(now), Traffic::Live) {
            assert!(until > Time(now) && until.0 <= now + 25 * HOUR);
        }
    }
    assert!(made.iter().map(|(_, calls)| calls).sum::<u64>() > 480, "calls come back");
}

#[test]
fn what_the_destination_reports_counts_with_the_calls_of_others() {
    let window = BudgetWindow::Daily { reset: TimeOfDay(0), zone: zone("UTC").unwrap() };
    let settings = CallBudgetSettings { calls: None, window, reserve_percent: 10 };
    let (mut budget, mut rows) = (CallBudget::new(settings.clone()), Rows::default());
    charge(&mut budget, &mut rows, 0);
    assert_eq!(budget.admit(Time(0), Traffic::Background), BudgetAdmission::Go, "no limit is known");
    budget.observe(Time(0), UsageReport { used: 880, limit: 1_000 });
    assert_eq!(budget.view(Time(0)).left, Some(120));
    assert_eq!(call_all(&mut budget, &mut rows, 0, Traffic::Background), 20);
    assert_eq!(call_all(&mut budget, &mut rows, 0, Traffic::Live), 100);
    // The report survives a restart, with the calls that were charged since.
    charge(&mut budget, &mut rows, 0);
    let mut next = CallBudget::new(settings);
    charge(&mut next, &mut rows, 0);
    assert!(next.view(Time(0)).is_reported && next.view(Time(0)).used >= 880);
    // It does not count any more after the reset.
    let BudgetAdmission::Until(until) = budget.admit(Time(0), Traffic::Live) else { panic!() };
    assert_eq!(budget.view(until).limit, None);
}

#[test]
fn the_forecast_follows_the_rate_and_ends_at_the_reset() {
    let (mut budget, mut rows) = (CallBudget::new(settings(2_400, 0)), Rows::default());
    charge(&mut budget, &mut rows, 0);
    for minute in 0..60 {
        let now = minute * 60_000;
        for _ in 0..10 {
            charge(&mut budget, &mut rows, now);
            let reserved = budget.start(Time(now), Traffic::Live).unwrap();
            budget.finish(Time(now), reserved, Some(1));
        }
    }
    let now = Time(HOUR - 60_000);
    let view = budget.view(now);
    assert!((590..=620).contains(&view.calls_per_hour), "{view:?}");
    let lasts = view.runs_out_at.unwrap().since(Time(now.0 + AHEAD));
    assert!((2 * 3600..=4 * 3600).contains(&lasts.as_secs()), "{view:?}");
    let calm = Time(now.0 + 3 * HOUR);
    assert_eq!((budget.view(calm).calls_per_hour, budget.view(calm).runs_out_at), (0, None));
}

#[test]
fn a_day_starts_at_its_reset_in_its_zone() {
    let window = BudgetWindow::Daily { reset: TimeOfDay(9 * 60 + 30), zone: zone("Europe/Berlin").unwrap() };
    let at = |text: &str| Time::parse(text).unwrap();
    let day = |text: &str| window.interval(at(text));
    assert_eq!(day("2026-06-10T07:29:00Z"), (at("2026-06-09T07:30:00Z"), at("2026-06-10T07:30:00Z")));
    assert_eq!(day("2026-06-10T07:30:00Z"), (at("2026-06-10T07:30:00Z"), at("2026-06-11T07:30:00Z")));
    let midnight = BudgetWindow::Daily { reset: TimeOfDay(150), zone: zone("Europe/Berlin").unwrap() };
    // 02:30 does not exist on this day.
    let (from, to) = midnight.interval(at("2026-03-29T12:00:00Z"));
    assert!(from <= at("2026-03-29T01:30:00Z") && to == at("2026-03-30T00:30:00Z"), "{from} {to}");
}
