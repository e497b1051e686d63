//! Opening, closing, and too much at once.

use sluice_domain::job::{JobId, JobState};
use sluice_ledger::{Acceptance, BeginResult, CappedBeginResult, Error, JobFilter, LedgerOptions};

use crate::driver::{Driver, StillClock, begin, open};
use crate::fixtures::event;

/// How many operations may wait before new events are turned away.
const QUEUE_ACCEPTS_MAX: u64 = 8 * 1024;

pub(crate) async fn a_ledger_that_is_open_cannot_be_opened_again<D: Driver>() {
    let fixture = open::<D>();
    let second = D::open(&fixture.place, LedgerOptions::quiet(StillClock::new().for_ledger()));
    assert!(matches!(second, Err(Error::Locked { .. })));
    let fixture = fixture.reopen().await;
    fixture.accept("a").await;
}

pub(crate) async fn closing_does_not_wait_for_other_holders_and_ends_their_writing<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let other = fixture.ledger.clone();
    fixture.ledger.close().await;
    assert!(matches!(other.accept(event("b")).await, Err(Error::Failed)));
    assert!(matches!(other.begin(begin(JobId(1), 1), vec![]).await, Err(Error::Failed)));
    assert!(matches!(other.begin_without_waiting(begin(JobId(1), 1)).await, Err(Error::Failed)));
    assert_eq!(other.events(vec![accepted.seq]).await.unwrap().len(), 1, "what is there can still be read");
    // The writer has ended, so nothing is in the way of the next one, and it is not the old holder's.
    let next = D::open(&fixture.place, LedgerOptions::quiet(StillClock::new().for_ledger())).unwrap();
    assert!(matches!(next.accept(event("a")).await.unwrap(), Acceptance::Duplicate(_)));
    assert!(matches!(other.accept(event("b")).await, Err(Error::Failed)));
    other.close().await;
    assert!(matches!(next.accept(event("b")).await.unwrap(), Acceptance::Accepted(_)));
}

pub(crate) async fn everything_sent_before_the_close_is_written<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..30 {
        jobs.push(fixture.job(&format!("key {n}")).await.id);
    }
    for job in &jobs {
        fixture.ledger.begin_without_waiting(begin(*job, 1)).await.unwrap();
    }
    let fixture = fixture.reopen().await;
    let filter = JobFilter { states: vec![JobState::Running], ..JobFilter::default() };
    assert_eq!(fixture.ledger.matching_jobs(filter, JobId(0), 100).await.unwrap(), jobs);
}

/// The writer may have operations left when the last holder goes away; nobody else may write meanwhile.
pub(crate) async fn a_ledger_is_held_until_its_writer_has_ended<D: Driver>() {
    let mut fixture = open::<D>();
    fixture.gate.shut();
    let sender = tokio::spawn({
        let ledger = fixture.ledger.clone();
        async move { ledger.accept(event("a")).await.map(drop) }
    });
    fixture.announced.recv().await.unwrap();
    sender.abort();
    assert!(sender.await.unwrap_err().is_cancelled());
    drop(fixture.ledger);
    let open = || D::open(&fixture.place, LedgerOptions::quiet(StillClock::new().for_ledger()));
    assert!(matches!(open(), Err(Error::Locked { .. })));
    fixture.gate.open();
    let ledger = loop {
        match open() {
            Err(Error::Locked { .. }) => tokio::task::yield_now().await,
            other => break other.unwrap(),
        }
    };
    assert!(matches!(ledger.accept(event("a")).await.unwrap(), Acceptance::Duplicate(_)));
}

pub(crate) async fn too_many_senders_are_turned_away_and_completions_are_not<D: Driver>() {
    let mut fixture = open::<D>();
    let job = fixture.job("job").await.id;
    fixture.announced.recv().await.unwrap();
    fixture.gate.shut();
    let mut senders = tokio::task::JoinSet::new();
    let send = |senders: &mut tokio::task::JoinSet<_>, n: u64| {
        let ledger = fixture.ledger.clone();
        senders.spawn(async move { ledger.accept(event(&format!("key {n}"))).await });
    };
    send(&mut senders, 0);
    fixture.announced.recv().await.unwrap();
    for n in 1..=QUEUE_ACCEPTS_MAX {
        send(&mut senders, n);
    }
    while !fixture.ledger.is_overloaded() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(fixture.ledger.accept(event("one too many")).await, Err(Error::Overloaded)));
    let completion = tokio::spawn({
        let ledger = fixture.ledger.clone();
        async move { ledger.begin(begin(job, 1), vec![]).await }
    });
    fixture.gate.open();
    assert_eq!(completion.await.unwrap().unwrap(), CappedBeginResult::Begun(BeginResult::Go));
    while let Some(sender) = senders.join_next().await {
        assert!(matches!(sender.unwrap().unwrap(), Acceptance::Accepted(_)));
    }
    assert!(!fixture.ledger.is_overloaded());
    assert_eq!(fixture.ledger.event_count().await.unwrap(), QUEUE_ACCEPTS_MAX + 2);
}

/// Callers that give up while they wait for room must not be counted for ever.
pub(crate) async fn the_queue_is_empty_again_after_callers_gave_up_on_it<D: Driver>() {
    let mut fixture = open::<D>();
    let job = fixture.job("job").await.id;
    fixture.announced.recv().await.unwrap();
    let blocker = fixture.block_writer().await;
    // One after the other until there is no room; the next ones give up.
    let mut given_up = 0;
    while given_up < 10 {
        let waiting = fixture.ledger.begin_without_waiting(begin(job, 7));
        tokio::select! {
            biased;
            sent = waiting => sent.unwrap(),
            () = tokio::task::yield_now() => given_up += 1,
        }
    }
    fixture.gate.open();
    blocker.await.unwrap();
    // Answered after everything before it.
    assert_eq!(fixture.begin(job, 1).await, BeginResult::Go);
    assert_eq!(fixture.ledger.stats().queued.load(std::sync::atomic::Ordering::Relaxed), 0);
}

pub(crate) async fn numbers_keep_growing_over_restarts<D: Driver>() {
    let mut fixture = open::<D>();
    let (mut ord, mut job) = (0, JobId(0));
    for n in 0..6 {
        let next = fixture.job(&format!("key {n}")).await;
        assert!(next.seq > ord && next.id > job, "{next:?}");
        (ord, job) = (next.seq, next.id);
        fixture.attempt(job, 1, JobState::Succeeded).await;
        fixture = fixture.reopen().await;
    }
}
