//! The history: counters are exact, and a crash loses at most the open minute of what a node observed.

use std::time::Duration;

use sluice_domain::history::recorder::{Point, Recorder};
use sluice_domain::history::series::{HistoryQuery, HistoryRow};
use sluice_domain::history::{Gauge, Labels, Measure, Step, Value};
use sluice_domain::job::{JobState, Term};
use sluice_domain::time::Time;
use sluice_ledger::{DropJobs, RecordHistory, Replay};

use crate::driver::{Driver, Fixture, at, open};
use crate::fixtures::{DAY, event};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Start of an hour and of a day.
const MIDNIGHT: Time = Time(1_772_323_200_000);

fn minute(n: i64) -> Time {
    Time(MIDNIGHT.0 + n * MINUTE_MS)
}

fn record(term: Term, minute: Time, points: Vec<Point>) -> RecordHistory {
    RecordHistory { term, minute, points, expire_at: None }
}

/// Live jobs, rejected requests and a call.
fn observed(level: u64) -> Vec<Point> {
    let mut recorder = Recorder::default();
    recorder.count(Measure::Refused, "website", "signature");
    recorder.level(Measure::JobsLive, "crm", "queued", level);
    recorder.observe(Measure::CallSeconds, "crm", Duration::from_millis(20));
    recorder.take()
}

async fn rows<D: Driver>(fixture: &Fixture<D>, measure: Measure, step: Step) -> Vec<HistoryRow> {
    let query = HistoryQuery { measure, step, since: Time(0), until: Time::NEVER };
    fixture.ledger.history(query).await.unwrap()
}

async fn write<D: Driver>(fixture: &Fixture<D>, minute: Time, points: Vec<Point>) -> bool {
    fixture.ledger.record_history(record(fixture.ledger.term(), minute, points)).await.unwrap()
}

async fn counters<D: Driver>(fixture: &Fixture<D>) -> Vec<(&'static str, String, String, u64)> {
    let totals = fixture.ledger.counter_totals().await.unwrap();
    let shown = |total: sluice_ledger::CounterTotal| {
        (total.measure.name(), total.labels.0.to_string(), total.labels.1.to_string(), total.total)
    };
    totals.into_iter().map(shown).collect()
}

fn count(first: &str, second: &str, count: u64) -> (Labels, Value) {
    (Labels::new(first, second), Value::Count(count))
}

pub(crate) async fn counters_follow_what_the_ledger_does<D: Driver>() {
    let fixture = open::<D>();
    let dead = fixture.job_that_is("a", JobState::Dead).await.id;
    fixture.job_that_is("b", JobState::Succeeded).await;
    let retried = fixture.job("c").await.id;
    fixture.attempt(retried, 1, JobState::Retrying).await;
    assert!(fixture.begin_and_settle(retried, 2, JobState::Succeeded).await);
    fixture.repeat(event("b")).await;
    let (actor, reason) = ("ann".to_owned(), "fixed".to_owned());
    let replay = Replay { jobs: vec![dead], actor: actor.clone(), reason: reason.clone(), revision: None, at: at(50) };
    fixture.ledger.replay(replay).await.unwrap();
    fixture.attempt(dead, 2, JobState::Dead).await;
    fixture.ledger.drop_jobs(DropJobs { jobs: vec![dead], actor, reason, at: at(60) }).await.unwrap();
    let fixture = fixture.reopen().await;
    let row = |name, first: &str, second: &str, n| (name, first.to_owned(), second.to_owned(), n);
    let source = fixture.event(&fixture.accept("d").await).await.source.to_string();
    assert_eq!(
        counters(&fixture).await,
        [
            row("accepted", &source, "", 4),
            row("duplicates", &source, "", 1),
            row("jobs", "crm", "dead", 1),
            row("jobs", "crm", "succeeded", 2),
            row("replayed_jobs", "crm", "dead", 1),
            row("replayed_jobs", "crm", "dropped", 1),
            row("attempts", "crm", "done", 2),
            row("attempts", "crm", "retry", 3),
            row("effects", "crm", "keyed", 2),
        ]
    );
}

pub(crate) async fn a_minute_is_kept_as_minute_hour_and_day<D: Driver>() {
    let fixture = open::<D>();
    assert!(write(&fixture, minute(0), observed(9)).await);
    assert!(write(&fixture, minute(1), observed(4)).await);
    assert!(write(&fixture, minute(60), observed(5)).await);
    let starts = |rows: &[HistoryRow]| rows.iter().map(|row| row.at).collect::<Vec<_>>();
    let minutes = rows(&fixture, Measure::Refused, Step::Minute).await;
    assert_eq!(starts(&minutes), [minute(0), minute(1), minute(60)]);
    assert_eq!(minutes[1].values, [count("website", "signature", 1)]);
    let hours = rows(&fixture, Measure::Refused, Step::Hour).await;
    assert_eq!(starts(&hours), [minute(0), minute(60)]);
    assert_eq!(hours[0].values, [count("website", "signature", 2)]);
    let days = rows(&fixture, Measure::JobsLive, Step::Day).await;
    let level = Value::Gauge(Gauge { last: 5, max: 9 });
    assert_eq!(days, [HistoryRow { at: MIDNIGHT, values: vec![(Labels::new("crm", "queued"), level)] }]);
    let calls = rows(&fixture, Measure::CallSeconds, Step::Day).await;
    let Value::Histogram(histogram) = &calls[0].values[0].1 else { panic!("{calls:?}") };
    assert_eq!(histogram.count(), 3);
    let since = HistoryQuery { measure: Measure::Refused, step: Step::Minute, since: minute(1), until: minute(60) };
    assert_eq!(starts(&fixture.ledger.history(since).await.unwrap()), [minute(1)]);
    let none = HistoryQuery { since: minute(60), until: minute(1), ..since };
    assert!(fixture.ledger.history(none).await.unwrap().is_empty());
}

pub(crate) async fn a_repeated_minute_changes_nothing<D: Driver>() {
    let fixture = open::<D>();
    assert!(write(&fixture, minute(3), observed(1)).await);
    let before = rows(&fixture, Measure::Refused, Step::Minute).await;
    fixture.accept("a").await;
    assert!(!write(&fixture, minute(3), observed(1)).await);
    assert!(!write(&fixture, minute(2), observed(1)).await, "an earlier minute");
    assert_eq!(rows(&fixture, Measure::Refused, Step::Minute).await, before);
    assert!(rows(&fixture, Measure::Accepted, Step::Minute).await.is_empty(), "counted with the next minute");
    // The next process may still be in the same minute: its part is added.
    let fixture = fixture.reopen().await;
    assert!(write(&fixture, minute(3), observed(1)).await);
    let refused = rows(&fixture, Measure::Refused, Step::Minute).await;
    assert_eq!(refused[0].values, [count("website", "signature", 2)]);
}

pub(crate) async fn what_was_counted_before_a_crash_is_in_the_next_minute<D: Driver>() {
    let fixture = open::<D>();
    fixture.accept("a").await;
    assert!(write(&fixture, minute(0), vec![]).await);
    fixture.job_that_is("b", JobState::Succeeded).await;
    // The open minute is never written.
    let fixture = fixture.reopen().await;
    fixture.accept("c").await;
    assert!(write(&fixture, minute(7), vec![]).await);
    let accepted = rows(&fixture, Measure::Accepted, Step::Minute).await;
    let counts: Vec<&Value> = accepted.iter().map(|row| &row.values[0].1).collect();
    assert_eq!(counts, [&Value::Count(1), &Value::Count(2)]);
    let jobs = rows(&fixture, Measure::Jobs, Step::Minute).await;
    assert_eq!(jobs, [HistoryRow { at: minute(7), values: vec![count("crm", "succeeded", 1)] }]);
}

pub(crate) async fn expired_intervals_are_removed_unless_the_clock_is_in_doubt<D: Driver>() {
    let fixture = open::<D>();
    let day = |n: i64| Time(MIDNIGHT.0 + n * DAY);
    for n in [0, 1, 92, 93] {
        assert!(write(&fixture, day(n), observed(1)).await);
    }
    assert_eq!(rows(&fixture, Measure::Refused, Step::Minute).await.len(), 4);
    let expire_at = Some(Time(day(93).0 + HOUR_MS));
    let last = RecordHistory { expire_at, ..record(fixture.ledger.term(), Time(day(93).0 + MINUTE_MS), observed(1)) };
    assert!(fixture.ledger.record_history(last).await.unwrap());
    let starts = async |step| {
        let rows = rows(&fixture, Measure::Refused, step).await;
        rows.iter().map(|row| row.at).collect::<Vec<_>>()
    };
    assert_eq!(starts(Step::Minute).await, [day(93), Time(day(93).0 + MINUTE_MS)]);
    assert_eq!(starts(Step::Hour).await, [day(92), day(93)]);
    assert_eq!(starts(Step::Day).await, [day(0), day(1), day(92), day(93)]);
}
