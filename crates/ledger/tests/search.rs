//! A list that is searched for longer than a page may take answers with what it has found, says how far it has looked, and continues
//! there.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sluice_domain::event::EventStatus;
use sluice_domain::job::JobId;
use sluice_domain::time::Time;
use sluice_ledger::{EventFilter, JobFilter, Ledger, LedgerOptions, NewEvent, NewJob, Page};

use fixtures::{START, event, root_key};

/// More than a page looks at before it looks at the clock.
const EVENTS: i64 = 700;
/// Ids of those that are searched for: one in each third.
const RARE: [i64; 3] = [60, 300, 650];

/// A ledger whose searches end at the first look at the clock, with one event per second.
async fn ledger(directory: &std::path::Path) -> Ledger {
    let now = Arc::new(AtomicI64::new(START.0));
    let clock = now.clone();
    let options = LedgerOptions::quiet(Arc::new(move || Time(clock.load(Ordering::SeqCst))));
    let options = LedgerOptions { search_max: Some(Duration::ZERO), ..options };
    let ledger = Ledger::open(directory, options.with_root_key(root_key())).unwrap();
    for n in 1..=EVENTS {
        let (event_type, queue) = if RARE.contains(&n) { ("rare", "rare") } else { ("usual", "usual") };
        let event = NewEvent {
            event_type: event_type.into(),
            received_at: Time(START.0 + n * 1_000),
            jobs: vec![NewJob::new("crm", queue)],
            ..event(&format!("key {n}"))
        };
        now.store(START.0 + n * 1_000, Ordering::SeqCst);
        ledger.accept(event).await.unwrap();
    }
    ledger
}

#[tokio::test]
async fn search_for_jobs_says_how_far_it_looked_and_continues_there() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = ledger(directory.path()).await;
    let filter = JobFilter { queue: Some("rare".into()), ..JobFilter::default() };
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = ledger.list_jobs(filter.clone(), Page { after, limit: 50 }).await.unwrap();
        found.extend(page.rows.iter().map(|(job, _)| job.id.0));
        pages += 1;
        assert_eq!(page.next.is_some(), page.scanned_to.is_some(), "a page that is not full says why");
        let Some(next) = page.next else { break };
        assert_eq!(page.scanned_to, Some(Time(START.0 + next * 1_000)), "the time of the last job that was looked at");
        assert!(after.is_none_or(|after| next < after), "the search advances");
        after = Some(next);
    }
    assert_eq!(found, [650, 300, 60], "no job is left out, none comes twice");
    assert!(pages > 2, "{pages}");
    // Bulk commands search to the end.
    let all = ledger.matching_jobs(filter.clone(), JobId(0), 10).await.unwrap();
    assert_eq!(all, RARE.map(JobId));
    assert_eq!(ledger.matching_jobs(filter.clone(), JobId(60), 1).await.unwrap(), [JobId(300)]);
    // A page that is full has no need to say anything.
    let full = ledger.list_jobs(JobFilter::default(), Page { after: None, limit: 50 }).await.unwrap();
    assert_eq!((full.rows.len(), full.next, full.scanned_to), (50, Some(EVENTS - 49), None));
}

#[tokio::test]
async fn search_for_events_says_how_far_it_looked_and_continues_there() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = ledger(directory.path()).await;
    for status in [None, Some(EventStatus::Working)] {
        let filter = EventFilter { event_type: Some("rare".into()), status, ..EventFilter::default() };
        let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = ledger.find_events(filter.clone(), Page { after, limit: 50 }).await.unwrap();
            found.extend(page.rows.iter().map(|listed| listed.event.seq));
            pages += 1;
            let Some(next) = page.next else { break };
            assert_eq!(page.scanned_to, Some(Time(START.0 + next * 1_000)));
            after = Some(next);
        }
        assert_eq!(found, [650, 300, 60], "{status:?}");
        assert!(pages > 2, "{pages}");
    }
}

#[tokio::test]
async fn what_the_totals_know_needs_no_search() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = ledger(directory.path()).await;
    let page = Page { after: None, limit: 50 };
    let text = |text: &str| Some(text.to_owned());
    for filter in [
        JobFilter { worker: text("none"), ..JobFilter::default() },
        JobFilter { destination: text("none"), ..JobFilter::default() },
        JobFilter { dead_letter_queue: text("none"), ..JobFilter::default() },
        JobFilter { source: text("none"), ..JobFilter::default() },
        JobFilter { states: vec![sluice_domain::job::JobState::Noop], ..JobFilter::default() },
        JobFilter { until: Some(START), ..JobFilter::default() },
    ] {
        let found = ledger.list_jobs(filter.clone(), page).await.unwrap();
        assert_eq!((found.rows.len(), found.next), (0, None), "{filter:?}");
    }
    let since = Some(Time(START.0 + EVENTS * 1_000));
    for (filter, count) in [
        (EventFilter { source: text("none"), ..EventFilter::default() }, 0),
        (EventFilter { status: Some(EventStatus::Done), ..EventFilter::default() }, 0),
        (EventFilter { status: Some(EventStatus::Dropped), ..EventFilter::default() }, 0),
        (EventFilter { since, ..EventFilter::default() }, 1),
    ] {
        let found = ledger.find_events(filter.clone(), page).await.unwrap();
        assert_eq!((found.rows.len(), found.next), (count, None), "{filter:?}");
    }
}
