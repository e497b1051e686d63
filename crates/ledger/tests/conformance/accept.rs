//! An event is accepted once, and a repeat is told what the first was told.

use std::collections::HashSet;
use std::time::Duration;

use sluice_domain::event::EventId;
use sluice_domain::job::JobState;
use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, NewEvent, NewJob};

use crate::driver::{Driver, open};
use crate::fixtures::{START, event};

pub(crate) async fn a_new_event_is_kept_whole<D: Driver>() {
    let fixture = open::<D>();
    fixture.clock.advance(40);
    let mut new = event("a");
    new.occurred_at = Some(Time(START.0 - 5));
    new.jobs.push(NewJob::new("mail", "slow"));
    let accepted = fixture.accept_event(new.clone()).await;

    let (record, body) = fixture.ledger.events(vec![accepted.seq]).await.unwrap().remove(0);
    assert_eq!(body.as_ref(), Some(&*new.body));
    assert_eq!((record.id, record.generation, record.seq), (accepted.id, 0, accepted.seq));
    assert_eq!((record.received_at, record.persisted_at), (START, START + Duration::from_millis(40)));
    assert_eq!((record.occurred_at, record.expires_at), (new.occurred_at, new.expires_at));
    assert_eq!((record.key_text.as_str(), &*record.flow, &*record.source), ("a", "leads", "website"));
    assert_eq!((record.event_type.as_str(), &*record.revision), ("lead.created", "r1"));
    assert_eq!((record.verified_by.as_deref(), record.trace.as_str()), (Some("primary"), "trace of a"));

    let jobs = fixture.ledger.jobs_of_event(record.clone()).await.unwrap();
    assert_eq!(
        jobs.iter().map(|job| (&*job.worker, &*job.queue)).collect::<Vec<_>>(),
        [("crm", "default"), ("mail", "slow")]
    );
    assert_eq!((jobs[0].id, jobs.len() as u32), (record.first_job, record.jobs));
    for job in jobs {
        assert_eq!(
            (job.state, job.step, job.attempts, job.attempts_total, job.replays),
            (JobState::Queued, 0, 0, 0, 0)
        );
        assert_eq!((job.seq, &*job.revision, job.finished_at), (accepted.seq, "r1", None));
        assert_eq!(job.due_at, START + Duration::from_millis(40));
    }
}

/// The number itself says nothing: it may be another than the one that was given.
pub(crate) async fn jobs_about_one_entity_are_known_by_it<D: Driver>() {
    let fixture = open::<D>();
    let mut entities = Vec::new();
    for (key, entity) in [("a", 7), ("b", 7), ("c", 8)] {
        let accepted = fixture.accept_event(NewEvent { entity, ..event(key) }).await;
        entities.push(fixture.jobs_of(&accepted).await[0].entity);
    }
    assert!(entities[0] == entities[1] && entities[1] != entities[2], "{entities:?}");
}

pub(crate) async fn an_event_may_come_without_jobs<D: Driver>() {
    let fixture = open::<D>();
    let mut none = event("nothing to do");
    none.jobs.clear();
    let first = fixture.accept_event(none.clone()).await;
    let second = fixture.job("b").await;
    assert!(fixture.jobs_of(&first).await.is_empty());
    assert!(fixture.repeat(none).await.jobs.is_empty());
    assert_eq!(second.seq, first.seq + 1);
}

pub(crate) async fn a_repeat_is_answered_with_the_first<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept("a").await;
    let mut again = event("a");
    again.received_at = START + Duration::from_secs(60);
    let repeat = fixture.repeat(again).await;
    assert_eq!((repeat.id, repeat.key_text.as_str(), repeat.received_at, repeat.clash), (first.id, "a", START, false));
    assert_eq!(repeat.jobs, fixture.jobs_of(&first).await);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 1);
}

pub(crate) async fn a_repeat_with_other_content_is_a_clash<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept("a").await;
    let mut other = event("a");
    other.fingerprint = [2; 16];
    let repeat = fixture.repeat(other).await;
    assert!(repeat.clash);
    assert_eq!(repeat.id, first.id);
}

pub(crate) async fn a_repeat_shows_what_came_of_the_first<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await;
    let repeat = fixture.repeat(event("a")).await;
    assert_eq!(repeat.jobs, [job]);
    assert_eq!(repeat.jobs[0].result.as_deref(), Some(&serde_json::json!({ "id": "003" })));
}

pub(crate) async fn repeats_within_one_commit_have_one_owner<D: Driver>() {
    let mut fixture = open::<D>();
    let blocker = fixture.block_writer().await;
    // The writer stands still: both of these wait for the same commit.
    let both = [0, 1].map(|_| {
        let ledger = fixture.ledger.clone();
        tokio::spawn(async move { ledger.accept(event("twin")).await.unwrap() })
    });
    while fixture.ledger.stats().queued.load(std::sync::atomic::Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    fixture.gate.open();
    blocker.await.unwrap();
    let mut accepted = 0;
    for answer in both {
        accepted += usize::from(matches!(answer.await.unwrap(), Acceptance::Accepted(_)));
    }
    assert_eq!(accepted, 1);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 2);
}

pub(crate) async fn two_hundred_senders_of_one_key_make_one_event<D: Driver>() {
    let mut fixture = open::<D>();
    let senders: Vec<_> = (0..200)
        .map(|_| {
            let ledger = fixture.ledger.clone();
            tokio::spawn(async move { ledger.accept(event("a")).await.unwrap() })
        })
        .collect();
    let (mut accepted, mut ids) = (0, HashSet::new());
    for sender in senders {
        match sender.await.unwrap() {
            Acceptance::Accepted(first) => {
                accepted += 1;
                ids.insert(first.id);
            }
            Acceptance::Duplicate(repeat) => {
                assert!(!repeat.clash);
                ids.insert(repeat.id);
            }
            Acceptance::ProofUsed => panic!("there is no proof"),
        }
    }
    assert_eq!((accepted, ids.len()), (1, 1));
    assert_eq!(fixture.announced.recv().await.unwrap().len(), 1);
    assert!(fixture.announced.try_recv().is_err());
}

pub(crate) async fn the_same_key_of_another_tenant_or_flow_is_another_key<D: Driver>() {
    let fixture = open::<D>();
    let mut ids = HashSet::new();
    for (tenant, flow) in [("t1", "leads"), ("t2", "leads"), ("t1", "orders")] {
        let mut new = event("a");
        new.key = KeyDigest::new(tenant, flow, "a");
        ids.insert(fixture.accept_event(new).await.id);
    }
    assert_eq!(ids.len(), 3);
}

pub(crate) async fn keys_that_begin_alike_are_told_apart<D: Driver>() {
    let fixture = open::<D>();
    let alike = |last: u8| {
        let mut new = event("alike");
        new.key = KeyDigest([9; 16]);
        new.key.0[15] = last;
        new
    };
    let ids: Vec<EventId> = vec![fixture.accept_event(alike(1)).await.id, fixture.accept_event(alike(2)).await.id];
    assert_ne!(ids[0], ids[1]);
    let fixture = fixture.reopen().await;
    assert_eq!([fixture.repeat(alike(1)).await.id, fixture.repeat(alike(2)).await.id], ids[..]);
    assert_eq!(fixture.ledger.find_event(ids[1]).await.unwrap().unwrap().id, ids[1]);
}

pub(crate) async fn a_sender_that_hangs_up_has_sent_all_the_same<D: Driver>() {
    let mut fixture = open::<D>();
    let blocker = fixture.block_writer().await;
    let hasty = fixture.ledger.accept(event("a"));
    tokio::select! {
        biased;
        _ = hasty => panic!("answered while the writer stands still"),
        () = async {
            while fixture.ledger.stats().queued.load(std::sync::atomic::Ordering::Relaxed) < 1 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    fixture.gate.open();
    blocker.await.unwrap();
    fixture.repeat(event("a")).await;
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 2);
}

pub(crate) async fn jobs_that_nobody_wants_to_hear_of_are_not_announced_and_can_be_read<D: Driver>() {
    let mut fixture = open::<D>();
    fixture.unwanted.lock().unwrap().insert("slow-worker".to_owned());
    let several = |name: &str| {
        let mut new = event(name);
        new.jobs.push(NewJob::new("slow-worker", "slow"));
        new
    };
    fixture.ledger.accept(several("a")).await.unwrap();
    fixture.ledger.accept_all(vec![several("b"), several("a"), several("c")]).await.unwrap();
    let mut alone = event("d");
    alone.jobs = vec![NewJob::new("slow-worker", "slow")];
    fixture.ledger.accept(alone).await.unwrap();
    fixture.unwanted.lock().unwrap().clear();
    fixture.ledger.accept(several("e")).await.unwrap();
    let mut announced = Vec::new();
    while let Ok(fresh) = fixture.announced.try_recv() {
        announced.extend(fresh);
    }
    for fresh in &announced {
        assert_eq!(fixture.read(fresh.job.id).await, fresh.job);
        let (event, _) = fixture.ledger.events(vec![fresh.job.seq]).await.unwrap().remove(0);
        assert_eq!(event, *fresh.event);
    }
    let of = |worker: &str| announced.iter().filter(|fresh| &*fresh.job.worker == worker).count();
    assert_eq!((of("slow-worker"), announced.len()), (1, 5), "a, b, c and both jobs of e");
    let live = fixture.live("slow-worker", "").await;
    assert_eq!(live.len(), 5);
}

pub(crate) async fn jobs_are_announced_once_they_can_be_read_and_before_the_sender_is_answered<D: Driver>() {
    let mut fixture = open::<D>();
    fixture.gate.shut();
    let mut new = event("a");
    new.jobs.push(NewJob::new("mail", "slow"));
    let sender = tokio::spawn({
        let (ledger, new) = (fixture.ledger.clone(), new.clone());
        async move { ledger.accept(new).await }
    });
    let fresh = fixture.announced.recv().await.unwrap();
    assert!(!sender.is_finished());
    assert_eq!(fresh.len(), 2);
    for fresh in &fresh {
        assert_eq!(fixture.read(fresh.job.id).await, fresh.job);
        let (event, body) = fixture.ledger.events(vec![fresh.job.seq]).await.unwrap().remove(0);
        assert_eq!((&event, body.as_ref()), (&*fresh.event, Some(&*fresh.body)));
    }
    fixture.gate.open();
    sender.await.unwrap().unwrap();
    fixture.repeat(new).await;
    assert!(fixture.announced.try_recv().is_err(), "a repeat has no jobs to announce");
}
