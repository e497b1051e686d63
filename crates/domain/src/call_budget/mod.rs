//! Budget of calls: how many calls a destination may get in a day, and which jobs get them.
//!
//! Live traffic may use every call. Replays and imports use what is above the reserve. Calls are counted in intervals; the count
//! of an interval is durable before a call starts: the ledger has *charged* a block of calls, and calls are taken from it. After a
//! crash every charged call counts as used, so that the count is never too low.
//!
//! A rolling window is counted by the scheduler's steady clock, which no correction moves. A day begins by the ledger's time: the
//! steady clock is translated by the difference that the last answer of the ledger had.

mod intervals;
mod meter;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::mutant::Mutant;
use crate::time::Time;
use intervals::{Interval, Intervals};
pub use meter::CallMeter;
pub use window::BudgetWindow;

/// Calls that one slot may make at the most: the effect, a token, and both again. Fewer if fewer are left.
pub const CALLS_PER_SLOT: u32 = 4;
/// Calls that are charged at once, at the most: so many are lost by a crash.
const BLOCK_MAX: u64 = 256;
/// Code of a job of a replay or an import that waits for calls above the reserve.
pub const BUDGET_CODE: &str = "budget-reserve";
/// Code of a call that was not made because its slot had used the calls that the budget allowed it.
pub const BUDGET_EXHAUSTED: &str = "budget-exhausted";
/// Longest wait of such a job before it is looked at again: the budget may have been raised.
pub const POSTPONED_MAX: Duration = Duration::from_secs(3600);
/// Interval over which the rate of calls is measured, and the parts that it is measured in.
const PACE_WINDOW: Duration = Duration::from_secs(3600);
const PACE_PART: Duration = Duration::from_secs(60);
/// The rate of a shorter time says little.
const PACE_MIN: Duration = Duration::from_secs(300);

/// Why a job calls a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// An event that has just happened.
    #[default]
    Live,
    /// A replay or an import.
    Background,
}

/// Budget of a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct CallBudgetSettings {
    /// Calls in one window; `None`: as many as the destination reports.
    pub calls: Option<u64>,
    pub window: BudgetWindow,
    /// Share of the calls that only live traffic may use, in percent.
    pub reserve_percent: u32,
}

/// Use of a limit, as the destination reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageReport {
    pub used: u64,
    pub limit: u64,
}

/// Calls of one interval, as the ledger has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRow {
    /// Start of the interval.
    pub from: Time,
    /// Calls that are charged, used or not.
    pub charged: u64,
    /// The last report in the interval.
    pub reported: Option<UsageReport>,
}

/// A write of the ledger that a budget wants. Without a charge, its rows are only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetCharge {
    pub row: Option<BudgetRow>,
    /// Older rows are deleted.
    pub keep_from: Time,
    /// Calls that were charged are given back: the row is set as it is. Otherwise a row never shrinks.
    pub gives_back: bool,
}

/// Whether a call may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAdmission {
    Go,
    /// No calls are left until this time of the steady clock.
    Until(Time),
    /// Calls are left, and the ledger has to charge them first.
    Charging,
}

/// State of a budget for operators. Times are the ledger's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallBudgetView {
    /// Calls in one window; absent if the destination has not reported it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Calls that count now, those of calls in flight included.
    pub used: u64,
    /// Calls that only live traffic may use.
    pub reserve: u64,
    /// Calls that are left for live traffic, and for replays and imports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_for_replays: Option<u64>,
    /// Whether the destination reports its use, and the report counts.
    pub is_reported: bool,
    /// Calls in an hour, by those of the last hour.
    pub calls_per_hour: u64,
    /// When the budget is used up at this rate, if that is before calls come back. In the past or now: it is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_out_at: Option<Time>,
    /// When used calls come back next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Time>,
    /// `daily` or `rolling`.
    pub window: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    report: UsageReport,
    /// The interval in which it counts.
    interval: Time,
    /// Our own count at the time of the report.
    own: u64,
}

/// Calls that a slot may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    interval: Time,
    pub calls: u32,
}

#[derive(Clone, Debug)]
pub struct CallBudget {
    settings: CallBudgetSettings,
    /// The ledger's time minus that of the steady clock; `None` until the ledger has answered.
    offset: Option<i64>,
    intervals: Intervals,
    reported: Option<Reported>,
    /// The report that the ledger has, with its interval.
    stored_report: Option<(Time, UsageReport)>,
    /// The charge that is being written.
    charging: Option<BudgetCharge>,
    retry_at: Option<Time>,
    /// Calls by minute, oldest first.
    pace: VecDeque<(Time, u64)>,
    /// Since when calls are measured.
    paced_since: Option<Time>,
}

impl CallBudget {
    pub fn new(settings: CallBudgetSettings) -> CallBudget {
        CallBudget {
            settings,
            offset: None,
            intervals: Intervals::default(),
            reported: None,
            stored_report: None,
            charging: None,
            retry_at: None,
            pace: VecDeque::new(),
            paced_since: None,
        }
    }

    /// Sets another limit. What is used stays used.
    pub fn configure(&mut self, settings: CallBudgetSettings) {
        self.settings = settings;
    }

    /// Whether the ledger has said what is used.
    pub fn is_read(&self) -> bool {
        self.offset.is_some()
    }

    /// Whether a call of this traffic may start now.
    pub fn admit(&self, now: Time, traffic: Traffic) -> BudgetAdmission {
        let Some(at) = self.counted_at(now) else { return BudgetAdmission::Charging };
        let left = self.left(at, traffic).unwrap_or(u64::MAX);
        match left {
            0 => BudgetAdmission::Until(self.steady(self.opens_at(at, traffic))),
            // A slot with fewer calls than it may need would end in the middle of its effect, although there are more.
            _ if self.lease(at) < left.min(u64::from(CALLS_PER_SLOT)) => BudgetAdmission::Charging,
            _ => BudgetAdmission::Go,
        }
    }

    /// A slot starts. [`CallBudget::admit`] has said that it may.
    pub fn start(&mut self, now: Time, traffic: Traffic) -> Option<Reservation> {
        let at = self.counted_at(now)?;
        let left = self.left(at, traffic).unwrap_or(u64::MAX);
        let calls = left.min(self.lease(at)).min(u64::from(CALLS_PER_SLOT));
        let interval = self.settings.window.interval(at).0;
        self.intervals.entry(interval).used += calls;
        Some(Reservation { interval, calls: u32::try_from(calls).unwrap_or(CALLS_PER_SLOT) })
    }

    /// A slot has ended and made this many calls, at most those that were reserved; `None` if that is not known.
    pub fn finish(&mut self, now: Time, reserved: Reservation, calls: Option<u32>) {
        let calls = calls.map_or(reserved.calls, |calls| calls.min(reserved.calls));
        if let Some(interval) = self.intervals.get_mut(reserved.interval) {
            interval.used = interval.used.saturating_sub(u64::from(reserved.calls - calls));
        }
        if let Some(at) = self.counted_at(now) {
            self.measure(at, u64::from(calls));
        }
    }

    /// The destination has reported its use.
    pub fn observe(&mut self, now: Time, report: UsageReport) {
        let Some(at) = self.counted_at(now) else { return };
        let interval = self.settings.window.interval(at).0;
        if self.reported.is_some_and(|known| known.report == report && known.interval == interval) {
            // Not every response has a report: this is the one before.
            return;
        }
        self.reported = Some(Reported { report, interval, own: self.own(at) });
    }

    /// What the ledger is to write now, if anything. The caller answers with [`CallBudget::charged`].
    pub fn charge(&mut self, now: Time) -> Result<BudgetCharge, Option<Time>> {
        if self.charging.is_some() {
            return Err(None);
        }
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return Err(Some(at));
        }
        let charge = match self.counted_at(now) {
            None => BudgetCharge { row: None, keep_from: Time(i64::MIN), gives_back: false },
            Some(at) => self.next_charge(at).ok_or(None)?,
        };
        self.charging = Some(charge.clone());
        Ok(charge)
    }

    fn next_charge(&self, at: Time) -> Option<BudgetCharge> {
        let (block, from) = (self.block(at), self.settings.window.interval(at).0);
        let stores_report = self.has_new_report(from, block);
        if self.lease(at) >= (block / 2).max(u64::from(CALLS_PER_SLOT)) && !stores_report {
            return None;
        }
        let Interval { used, charged } = self.intervals.get(from).unwrap_or_default();
        let wanted = used.saturating_add(self.left(at, Traffic::Live).unwrap_or(u64::MAX).min(block));
        let reported = self.reported.filter(|reported| reported.interval == from).map(|reported| reported.report);
        let row = BudgetRow { from, charged: wanted.max(charged), reported };
        let row = (wanted > charged || stores_report).then_some(row)?;
        Some(BudgetCharge { row: Some(row), keep_from: self.settings.window.counts_from(at), gives_back: false })
    }

    /// Whether the ledger does not have the report, or one that is much older.
    fn has_new_report(&self, from: Time, block: u64) -> bool {
        let stored = self.stored_report.filter(|(interval, _)| *interval == from).map(|(_, report)| report);
        let Some(reported) = self.reported.filter(|reported| reported.interval == from) else { return false };
        stored.is_none_or(|stored| {
            stored.limit != reported.report.limit || reported.report.used >= stored.used.saturating_add(block)
        })
    }

    /// The rows that the ledger has now, with the ledger's time; `None`: it could not write.
    pub fn charged(&mut self, now: Time, answer: Option<(Vec<BudgetRow>, Time)>, retry: Duration) {
        let written = self.charging.take();
        let Some((rows, at)) = answer else {
            self.retry_at = Some(now + retry);
            return;
        };
        self.retry_at = None;
        let first = self.offset.is_none();
        self.offset = Some(at.0.saturating_sub(now.0));
        let Some(at) = self.counted_at(now) else { return };
        self.paced_since.get_or_insert(at);
        let current = self.settings.window.interval(at).0;
        if first && !Mutant::CallBudgetForgottenByRestart.is_on() {
            for row in &rows {
                *self.intervals.entry(row.from) = Interval { used: row.charged, charged: row.charged };
            }
            let report = rows.iter().find(|row| row.from == current).and_then(|row| row.reported);
            self.reported = report.map(|report| Reported { report, interval: current, own: self.own(at) });
        }
        if let Some(row) = written.and_then(|charge| charge.row) {
            self.intervals.entry(row.from).charged = row.charged;
            self.stored_report = row.reported.map(|report| (row.from, report)).or(self.stored_report);
        }
        self.intervals.forget_before(self.settings.window.counts_from(at));
    }

    /// The use of the current interval, to be written when nothing is in flight any more: calls that are charged and not used are
    /// given back.
    pub fn settle(&self, now: Time) -> Option<BudgetCharge> {
        let at = self.counted_at(now)?;
        let from = self.settings.window.interval(at).0;
        let Interval { used, charged } = self.intervals.get(from)?;
        let reported = self.reported.filter(|reported| reported.interval == from).map(|reported| reported.report);
        let row = (used < charged).then_some(BudgetRow { from, charged: used, reported })?;
        Some(BudgetCharge { row: Some(row), keep_from: self.settings.window.counts_from(at), gives_back: true })
    }

    pub fn view(&self, now: Time) -> CallBudgetView {
        let at = self.counted_at(now);
        let limit = at.and_then(|at| self.limit(at));
        let left = at.and_then(|at| self.left(at, Traffic::Live));
        let pace = at.map_or(0, |at| self.calls_per_hour(at));
        let opens_at = at.map(|at| self.opens_at(at, Traffic::Live));
        let runs_out = at.zip(left).and_then(|(at, left)| runs_out_at(at, left, pace));
        CallBudgetView {
            limit,
            used: at.map_or(0, |at| self.used(at)),
            reserve: limit.map_or(0, |limit| self.reserve(limit)),
            left,
            left_for_replays: at.and_then(|at| self.left(at, Traffic::Background)),
            is_reported: at.is_some_and(|at| self.report(at).is_some()),
            calls_per_hour: pace,
            runs_out_at: runs_out
                .filter(|runs_out| opens_at.is_none_or(|opens| *runs_out < opens))
                .map(|at| self.shown(at)),
            resets_at: opens_at.map(|at| self.shown(at)),
            window: self.settings.window.as_str(),
        }
    }

    /// Calls that may still be made; `None` if no limit is known.
    fn left(&self, at: Time, traffic: Traffic) -> Option<u64> {
        let limit = self.limit(at)?;
        let share = match traffic {
            Traffic::Background if !Mutant::CallReserveIgnored.is_on() => limit - self.reserve(limit),
            _ => limit,
        };
        Some(share.saturating_sub(self.used(at)))
    }

    fn reserve(&self, limit: u64) -> u64 {
        (u128::from(limit) * u128::from(self.settings.reserve_percent.min(100))).div_ceil(100) as u64
    }

    fn limit(&self, at: Time) -> Option<u64> {
        let reported = self.report(at).map(|reported| reported.report.limit);
        self.settings.calls.into_iter().chain(reported).min()
    }

    /// The report, while it counts: in the interval in which it was made.
    fn report(&self, at: Time) -> Option<Reported> {
        self.reported.filter(|reported| reported.interval == self.settings.window.interval(at).0)
    }

    fn own(&self, at: Time) -> u64 {
        self.intervals.since(self.settings.window.counts_from(at)).iter().map(|(_, interval)| interval.used).sum()
    }

    /// Calls that count now. A destination also counts calls of others.
    fn used(&self, at: Time) -> u64 {
        let own = self.own(at);
        self.report(at)
            .map_or(own, |reported| own.max(reported.report.used.saturating_add(own.saturating_sub(reported.own))))
    }

    /// Calls that are charged in the current interval and not used.
    fn lease(&self, at: Time) -> u64 {
        let interval = self.settings.window.interval(at).0;
        self.intervals.get(interval).map_or(0, |interval| interval.charged.saturating_sub(interval.used))
    }

    fn block(&self, at: Time) -> u64 {
        let block = self.limit(at).map_or(BLOCK_MAX, |limit| limit / 100);
        block.clamp(u64::from(CALLS_PER_SLOT), BLOCK_MAX)
    }

    /// When calls come back for this traffic, or when the report does not count any more.
    fn opens_at(&self, at: Time, traffic: Traffic) -> Time {
        let window = &self.settings.window;
        let (_, ends) = window.interval(at);
        let Some(limit) = self.settings.calls.filter(|_| self.report(at).is_none()) else { return ends };
        let share = match traffic {
            Traffic::Live => limit,
            Traffic::Background => limit - self.reserve(limit),
        };
        let mut used = self.own(at);
        for (from, interval) in self.intervals.since(window.counts_from(at)) {
            used -= interval.used;
            if interval.used > 0 && used < share {
                return window.forgets_at(*from);
            }
        }
        ends
    }

    fn measure(&mut self, at: Time, calls: u64) {
        let part = Time(at.0 - at.0.rem_euclid(PACE_PART.as_millis() as i64));
        match self.pace.back_mut() {
            Some((last, count)) if *last == part => *count += calls,
            _ => self.pace.push_back((part, calls)),
        }
        while self.pace.front().is_some_and(|(part, _)| at.since(*part) > PACE_WINDOW) {
            self.pace.pop_front();
        }
    }

    fn calls_per_hour(&self, at: Time) -> u64 {
        let measured = self.paced_since.map_or(Duration::ZERO, |since| at.since(since)).clamp(PACE_MIN, PACE_WINDOW);
        let calls: u64 =
            self.pace.iter().filter(|(part, _)| at.since(*part) <= PACE_WINDOW).map(|(_, calls)| calls).sum();
        calls.saturating_mul(3600) / measured.as_secs()
    }

    /// The time of the clock that the window is counted by; `None` until the ledger has answered.
    fn counted_at(&self, now: Time) -> Option<Time> {
        Some(Time(now.0.saturating_add(self.to_window()?)))
    }

    /// What the clock of the window is ahead of the steady clock.
    fn to_window(&self) -> Option<i64> {
        let offset = self.offset?;
        Some(match self.settings.window {
            BudgetWindow::Daily { .. } => offset,
            BudgetWindow::Rolling(_) => 0,
        })
    }

    /// The steady clock's time of a time of the window.
    fn steady(&self, at: Time) -> Time {
        Time(at.0.saturating_sub(self.to_window().unwrap_or(0)))
    }

    /// The ledger's time of a time of the window.
    fn shown(&self, at: Time) -> Time {
        Time(self.steady(at).0.saturating_add(self.offset.unwrap_or(0)))
    }
}

/// When this many calls are used up at this rate.
fn runs_out_at(at: Time, left: u64, calls_per_hour: u64) -> Option<Time> {
    if left == 0 {
        return Some(at);
    }
    let seconds = left.saturating_mul(3600).checked_div(calls_per_hour)?;
    Some(at + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
