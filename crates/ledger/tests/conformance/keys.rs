//! A key is recognised wherever it has come to lie, and never after its time.

use std::time::Duration;

use sluice_domain::event::EventId;
use sluice_domain::job::JobState;
use sluice_domain::time::Time;
use sluice_ledger::{NewEvent, Prune, Pruned};

use crate::driver::{Driver, Fixture, open, open_with_few_recent_keys};
use crate::fixtures::{DAY, START, event};

/// An event whose key lives for one day from the start.
fn short_lived(key: &str) -> NewEvent {
    NewEvent { expires_at: Time(START.0 + DAY), ..event(key) }
}

/// The same key, sent so long after the start, for ever from then on.
fn later(key: &str, millis: i64) -> NewEvent {
    NewEvent { received_at: Time(START.0 + millis), expires_at: Time::NEVER, ..event(key) }
}

async fn accept_many<D: Driver>(fixture: &Fixture<D>, count: usize) -> Vec<EventId> {
    let mut ids = Vec::with_capacity(count);
    for n in 0..count {
        ids.push(fixture.accept(&format!("key {n}")).await.id);
    }
    ids
}

async fn assert_all_known<D: Driver>(fixture: &Fixture<D>, ids: &[EventId]) {
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(fixture.repeat(event(&format!("key {n}"))).await.id, *id, "key {n}");
    }
    assert_eq!(fixture.ledger.event_count().await.unwrap(), ids.len() as u64);
}

pub(crate) async fn a_key_is_known_after_a_restart<D: Driver>() {
    let fixture = open::<D>();
    let ids = accept_many(&fixture, 20).await;
    let fixture = fixture.reopen().await;
    assert_all_known(&fixture, &ids).await;
}

pub(crate) async fn a_key_is_known_however_many_came_after_it<D: Driver>() {
    // Eight times eight times eight, so that every level of merging is reached, and then some.
    let fixture = open_with_few_recent_keys::<D>(8);
    let ids = accept_many(&fixture, 8 * 8 * 8 + 300).await;
    assert_all_known(&fixture, &ids).await;
    let fixture = fixture.reopen().await;
    assert_all_known(&fixture, &ids).await;
}

pub(crate) async fn a_key_is_known_while_it_is_moved_out_of_memory<D: Driver>() {
    // More keys than one slice of upkeep moves, so that a repeat meets them half-way.
    const KEYS: usize = 10_000;
    let fixture = open_with_few_recent_keys::<D>(KEYS);
    let mut senders = tokio::task::JoinSet::new();
    for n in 0..KEYS {
        let ledger = fixture.ledger.clone();
        senders.spawn(async move { ledger.accept(event(&format!("key {n}"))).await.map(drop) });
        if n % 1000 == 999 {
            while let Some(sender) = senders.join_next().await {
                sender.unwrap().unwrap();
            }
        }
    }
    for n in [0, 1, 2, 3, KEYS / 2, KEYS - 1] {
        fixture.repeat(event(&format!("key {n}"))).await;
    }
    let fixture = fixture.reopen().await;
    for n in (0..KEYS).step_by(97) {
        fixture.repeat(event(&format!("key {n}"))).await;
    }
}

pub(crate) async fn a_key_that_is_used_again_after_its_time_is_another_event<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(short_lived("a")).await;
    fixture.repeat(later("a", DAY - 1)).await;
    let second = fixture.accept_event(later("a", DAY)).await;
    assert_ne!(first.id, second.id);
    assert_eq!(fixture.event(&second).await.generation, 1);
    assert_eq!(fixture.repeat(later("a", DAY + 1)).await.id, second.id);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.repeat(later("a", DAY + 2)).await.id, second.id);
    for accepted in [first, second] {
        let found = fixture.ledger.find_event(accepted.id).await.unwrap().unwrap();
        assert_eq!(found.seq, accepted.seq);
    }
}

pub(crate) async fn an_expired_key_still_has_its_generation_after_it_left_memory<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(8);
    let mut firsts = Vec::new();
    for n in 0..40 {
        firsts.push(fixture.accept_event(short_lived(&format!("key {n}"))).await);
    }
    // Long after every one of them has expired, with upkeep going on.
    fixture.clock.advance(3 * DAY);
    for n in 0..200 {
        fixture.accept_event(later(&format!("filler {n}"), 3 * DAY)).await;
    }
    for (n, first) in firsts.iter().enumerate() {
        assert_eq!(fixture.ledger.find_event(first.id).await.unwrap().map(|event| event.seq), Some(first.seq));
        let second = fixture.accept_event(later(&format!("key {n}"), 3 * DAY)).await;
        assert_ne!(second.id, first.id, "two events must not share a name");
        assert_eq!(fixture.event(&second).await.generation, 1);
    }
}

pub(crate) async fn generations_go_on_counting<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(3);
    for generation in 0..10u32 {
        let received_at = START + Duration::from_secs(u64::from(generation));
        let new = NewEvent { received_at, expires_at: received_at + Duration::from_secs(1), ..event("a") };
        let accepted = fixture.accept_event(new).await;
        assert_eq!(fixture.event(&accepted).await.generation, generation);
    }
}

pub(crate) async fn a_key_is_known_while_its_time_lasts_even_when_the_body_is_gone<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(4);
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(fixture.job_that_is(&format!("key {n}"), JobState::Succeeded).await.seq);
    }
    let prune = Prune { bodies_before: Time::NEVER, events_before: Time::NEVER, rows_max: 1000, at: START };
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 30, more: false });
    for (_, body) in fixture.ledger.events(ids).await.unwrap() {
        assert_eq!(body, None);
    }
    let fixture = fixture.reopen().await;
    for n in 0..30 {
        fixture.repeat(event(&format!("key {n}"))).await;
    }
}

/// The newest event may be pruned while an older one, whose key lives longer, is kept. Were its number given out again,
/// the keys that come after a restart would be looked for in the wrong place.
pub(crate) async fn keys_are_known_after_the_newest_events_were_pruned<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(4);
    fixture.accept("kept").await;
    for n in 0..30 {
        let accepted = fixture.accept_event(short_lived(&format!("short {n}"))).await;
        let job = fixture.jobs_of(&accepted).await.remove(0);
        fixture.attempt(job.id, 1, JobState::Succeeded).await;
    }
    let at = fixture.clock.advance(2 * DAY);
    let prune = Prune { bodies_before: Time(0), events_before: at, rows_max: 1000, at };
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 30, more: false });
    let fixture = fixture.reopen().await;
    fixture.accept("new").await;
    let fixture = fixture.reopen().await;
    fixture.repeat(event("kept")).await;
    fixture.repeat(event("new")).await;
}
