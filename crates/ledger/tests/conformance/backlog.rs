//! The backlog of a worker and a destination, and jobs with everything that a run needs.

use std::sync::Arc;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::run::StepRoute;
use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;
use sluice_ledger::{EventBody, LiveLane, MakeDue, NewEvent, NewJob, Prune};

use crate::driver::{Driver, Fixture, at, backlog, open, settlement};
use crate::fixtures::{DAY, START, event};

/// A job of the worker `crm` that calls a destination next.
async fn routed<D: Driver>(fixture: &Fixture<D>, key: &str, entity: u64, route: StepRoute) -> JobId {
    routed_to(fixture, key, entity, "crm", route).await
}

async fn routed_to<D: Driver>(fixture: &Fixture<D>, key: &str, entity: u64, worker: &str, route: StepRoute) -> JobId {
    let jobs = vec![NewJob::new(worker, "default").routed(route)];
    let accepted = fixture.accept_event(NewEvent { entity, jobs, ..event(key) }).await;
    fixture.jobs_of(&accepted).await[0].id
}

fn to(destination: &str, order: LaneOrder) -> StepRoute {
    StepRoute { destination: destination.into(), order }
}

fn fifo(destination: &str) -> StepRoute {
    to(destination, LaneOrder::Fifo)
}

/// One attempt after which the job is due at this time.
async fn defer<D: Driver>(fixture: &Fixture<D>, job: JobId, due_at: Time) {
    defer_as(fixture, job, JobState::Retrying, due_at).await;
}

async fn defer_as<D: Driver>(fixture: &Fixture<D>, job: JobId, state: JobState, due_at: Time) {
    let route = fixture.read(job).await.route();
    let n = fixture.read(job).await.attempts_total + 1;
    fixture.begin(job, n).await;
    let mut retry = settlement(job, n, state);
    (retry.next.due_at, retry.next.destination, retry.next.order) = (due_at, route.destination, route.order);
    assert!(fixture.settle_with(retry).await);
}

async fn page<D: Driver>(fixture: &Fixture<D>, worker: &str, destination: &str, due_by: Time) -> BacklogPage {
    fixture.ledger.backlog(BacklogQuery { due_by, ..backlog(worker, destination, JobId(0), 100) }).await.unwrap()
}

fn ids(jobs: &[sluice_ledger::JobRecord]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

pub(crate) async fn only_waiting_jobs_are_made_due<D: Driver>() {
    let fixture = open::<D>();
    let [waiting, retrying, queued] = [
        routed(&fixture, "a", 1, fifo("crm")).await,
        routed(&fixture, "b", 2, fifo("crm")).await,
        routed(&fixture, "c", 3, fifo("crm")).await,
    ];
    defer_as(&fixture, waiting, JobState::Waiting, Time(START.0 + DAY)).await;
    defer(&fixture, retrying, Time(START.0 + DAY)).await;
    let jobs = vec![waiting, retrying, queued, JobId(99)];
    let due = fixture.ledger.make_due(MakeDue { jobs, at: START }).await.unwrap();
    assert_eq!(due, [(waiting, Arc::from("crm"))]);
    let found = page(&fixture, "crm", "crm", START).await;
    assert_eq!(
        (ids(&found.due), ids(&found.queued), found.next_due),
        (vec![waiting], vec![queued], Some(Time(START.0 + DAY)))
    );
}

pub(crate) async fn the_backlog_of_a_destination_holds_its_jobs_alone<D: Driver>() {
    let fixture = open::<D>();
    let one = routed(&fixture, "a", 1, fifo("crm")).await;
    let two = routed(&fixture, "b", 2, fifo("mail")).await;
    let three = routed(&fixture, "c", 3, StepRoute::internal()).await;
    let four = routed_to(&fixture, "d", 4, "other", fifo("crm")).await;
    let finished = routed(&fixture, "e", 5, fifo("crm")).await;
    fixture.attempt(finished, 1, JobState::Succeeded).await;
    for (worker, destination, job) in
        [("crm", "crm", one), ("crm", "mail", two), ("crm", "", three), ("other", "crm", four)]
    {
        let found = page(&fixture, worker, destination, START).await;
        assert_eq!((ids(&found.queued), found.due.len()), (vec![job], 0), "{worker} {destination}");
        assert_eq!(found.queued[0], fixture.read(job).await);
        assert_eq!((found.looked_until, found.more_queued, found.next_due), (job, false, None));
    }
    let lane = |worker: &str, destination: &str| LiveLane { worker: worker.into(), destination: destination.into() };
    let lanes = [lane("crm", ""), lane("crm", "crm"), lane("crm", "mail"), lane("other", "crm")];
    assert_eq!(fixture.ledger.live_lanes().await.unwrap(), lanes);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.live_lanes().await.unwrap(), lanes);
}

pub(crate) async fn a_settled_job_moves_to_the_backlog_of_its_next_destination<D: Driver>() {
    let fixture = open::<D>();
    let job = routed(&fixture, "a", 1, fifo("crm")).await;
    fixture.begin(job, 1).await;
    let mut next = settlement(job, 1, JobState::Queued);
    (next.next.destination, next.next.order) = ("mail".into(), LaneOrder::None);
    assert!(fixture.settle_with(next).await);
    assert!(page(&fixture, "crm", "crm", START).await.queued.is_empty());
    let moved = page(&fixture, "crm", "mail", START).await.queued.remove(0);
    assert_eq!((moved.id, moved.order), (job, LaneOrder::None));
}

pub(crate) async fn queued_jobs_are_read_page_by_page<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..25 {
        jobs.push(routed(&fixture, &format!("key {n}"), n, fifo("crm")).await);
    }
    let (mut after, mut found, mut pages) = (JobId(0), Vec::new(), 0);
    loop {
        let page = fixture.ledger.backlog(backlog("crm", "crm", after, 10)).await.unwrap();
        assert!(page.queued.len() <= 10);
        found.extend(ids(&page.queued));
        after = page.looked_until;
        pages += 1;
        if !page.more_queued {
            break;
        }
    }
    assert_eq!((found, pages), (jobs, 3));
    let beyond = fixture.ledger.backlog(backlog("crm", "crm", after, 10)).await.unwrap();
    assert_eq!((beyond.queued.len(), beyond.looked_until, beyond.more_queued), (0, after, false));
}

pub(crate) async fn deferred_jobs_are_read_once_they_are_due<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..4u32 {
        let job = routed(&fixture, &format!("key {n}"), u64::from(n), to("crm", LaneOrder::None)).await;
        // The first accepted is due last.
        defer(&fixture, job, at(100 - n)).await;
        jobs.push(job);
    }
    let early = page(&fixture, "crm", "crm", at(96)).await;
    assert_eq!((early.due.len(), early.next_due), (0, Some(at(97))));
    let some = page(&fixture, "crm", "crm", at(98)).await;
    assert_eq!((ids(&some.due), some.next_due), (vec![jobs[3], jobs[2]], Some(at(99))));
    assert!(some.queued.is_empty(), "a deferred job is not queued");
    let all = page(&fixture, "crm", "crm", at(100)).await;
    assert_eq!((all.due.len(), all.next_due, all.more_due), (4, None, false));
    let first =
        fixture.ledger.backlog(BacklogQuery { due_by: at(100), ..backlog("crm", "crm", JobId(0), 3) }).await.unwrap();
    assert_eq!((first.due.len(), first.more_due), (3, true));
}

pub(crate) async fn a_lane_behind_a_deferred_job_is_not_read<D: Driver>() {
    let fixture = open::<D>();
    let before = routed(&fixture, "before", 7, fifo("crm")).await;
    let deferred = routed(&fixture, "deferred", 7, fifo("crm")).await;
    let blocked = routed(&fixture, "blocked", 7, fifo("crm")).await;
    let unordered = routed(&fixture, "unordered", 7, to("crm", LaneOrder::None)).await;
    let other_worker = routed_to(&fixture, "other worker", 7, "other", fifo("crm")).await;
    let other_entity = routed(&fixture, "other entity", 8, fifo("crm")).await;
    let other_destination = routed(&fixture, "other destination", 7, fifo("mail")).await;
    defer(&fixture, deferred, at(100)).await;
    let due_behind = routed(&fixture, "due behind", 7, fifo("crm")).await;
    defer(&fixture, due_behind, at(10)).await;

    let waiting = page(&fixture, "crm", "crm", at(50)).await;
    assert_eq!(ids(&waiting.queued), [before, unordered, other_entity]);
    assert_eq!((waiting.due.len(), waiting.next_due), (0, Some(at(100))));
    assert_eq!(waiting.looked_until, other_entity, "blocked jobs are passed over");
    let other = page(&fixture, "other", "crm", at(50)).await;
    assert_eq!(ids(&other.queued), [other_worker], "a deferred job blocks no other worker");
    assert_eq!(ids(&page(&fixture, "crm", "mail", at(50)).await.queued), [other_destination]);

    let free = page(&fixture, "crm", "crm", at(100)).await;
    assert_eq!(ids(&free.queued), [before, blocked, unordered, other_entity]);
    assert_eq!(ids(&free.due), [due_behind, deferred]);
    assert_eq!(ids(&page(&fixture, "other", "crm", at(100)).await.queued), [other_worker]);
}

/// One worker's approval must not delay the internal steps of another.
pub(crate) async fn a_lane_of_internal_steps_belongs_to_one_worker<D: Driver>() {
    let fixture = open::<D>();
    let deferred = routed(&fixture, "deferred", 7, StepRoute::internal()).await;
    routed(&fixture, "blocked", 7, StepRoute::internal()).await;
    let other = routed_to(&fixture, "other", 7, "other", StepRoute::internal()).await;
    defer(&fixture, deferred, at(100)).await;
    assert!(page(&fixture, "crm", "", at(50)).await.queued.is_empty());
    assert_eq!(ids(&page(&fixture, "other", "", at(50)).await.queued), [other]);
}

pub(crate) async fn a_page_of_blocked_jobs_ends_and_says_where<D: Driver>() {
    let fixture = open::<D>();
    let deferred = routed(&fixture, "deferred", 7, fifo("crm")).await;
    let (count, mut batch) = (1100, Vec::new());
    for n in 0..count {
        let jobs = vec![NewJob::new("crm", "default").routed(fifo("crm"))];
        batch.push(NewEvent { jobs, ..event(&format!("blocked {n}")) });
    }
    fixture.ledger.accept_all(batch).await.unwrap();
    let last = routed(&fixture, "free", 8, fifo("crm")).await;
    defer(&fixture, deferred, at(100)).await;
    let query = BacklogQuery { due_by: at(50), ..backlog("crm", "crm", JobId(0), 4) };
    let first = fixture.ledger.backlog(query.clone()).await.unwrap();
    assert!(first.queued.is_empty() && first.more_queued && first.looked_until < last);
    let second = fixture.ledger.backlog(BacklogQuery { after: first.looked_until, ..query }).await.unwrap();
    assert_eq!((ids(&second.queued), second.more_queued), (vec![last], false));
}

/// Recovery is "this job, on load": a job whose owner has gone is found like a queued one.
pub(crate) async fn running_jobs_of_an_older_term_are_read_as_running<D: Driver>() {
    let fixture = open::<D>();
    let running = routed(&fixture, "running", 1, fifo("crm")).await;
    let queued = routed(&fixture, "queued", 2, fifo("crm")).await;
    fixture.begin(running, 1).await;
    let term = fixture.ledger.term();
    let fixture = fixture.reopen().await;
    assert!(fixture.ledger.term() > term, "every opening takes a new term");
    let found = page(&fixture, "crm", "crm", START).await.queued;
    assert_eq!(ids(&found), [running, queued]);
    assert_eq!((found[0].state, found[0].term, found[0].attempts_total), (JobState::Running, term, 1));
}

pub(crate) async fn jobs_are_loaded_with_event_body_and_effects_in_the_order_of_the_request<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(fixture.job(&format!("key {n}")).await.id);
    }
    fixture.attempt(jobs[1], 1, JobState::Retrying).await;
    let pruned = fixture.job_that_is("pruned", JobState::Succeeded).await.id;
    let prune = Prune {
        bodies_before: Time::NEVER,
        events_before: Time(0),
        rows_max: 10,
        at: fixture.clock.advance(365 * DAY),
    };
    fixture.ledger.prune(prune).await.unwrap();
    let wanted = vec![jobs[2], JobId(999), pruned, jobs[1], jobs[0]];
    let loaded = fixture.ledger.load_jobs(wanted, usize::MAX).await.unwrap();
    assert_eq!(loaded.iter().map(|loaded| loaded.job.id).collect::<Vec<_>>(), [jobs[2], pruned, jobs[1], jobs[0]]);
    assert_eq!(loaded.iter().map(|loaded| loaded.body.is_removed()).collect::<Vec<_>>(), [false, true, false, false]);
    for one in &loaded {
        assert_eq!(one.job, fixture.read(one.job.id).await);
        let (event, body) = fixture.ledger.events(vec![one.job.seq]).await.unwrap().remove(0);
        assert_eq!((&*one.event, Some(&*one.body).filter(|body| !body.is_removed())), (&event, body.as_ref()));
        assert_eq!(one.effects, fixture.ledger.effects(one.job.id).await.unwrap());
    }
    assert_eq!((loaded[0].effects.len(), loaded[2].effects.len()), (0, 1));
}

pub(crate) async fn a_load_ends_before_its_bodies_are_too_large<D: Driver>() {
    let fixture = open::<D>();
    let mut jobs = Vec::new();
    for n in 0..4 {
        let body = EventBody { raw: vec![b'x'; 100], ..EventBody::default() };
        let accepted = fixture.accept_event(NewEvent { body: Arc::new(body), ..event(&format!("key {n}")) }).await;
        jobs.push(fixture.jobs_of(&accepted).await[0].id);
    }
    for (bytes, count) in [(0, 1), (99, 1), (199, 1), (200, 2), (399, 3), (400, 4)] {
        let loaded = fixture.ledger.load_jobs(jobs.clone(), bytes).await.unwrap();
        assert_eq!(loaded.len(), count, "{bytes} bytes");
    }
}

pub(crate) async fn blocked_lanes_name_their_head_and_the_jobs_behind_it<D: Driver>() {
    let fixture = open::<D>();
    let head = routed(&fixture, "head", 7, fifo("crm")).await;
    let since = fixture.clock.advance(1_000);
    let first = routed(&fixture, "first", 7, fifo("crm")).await;
    fixture.clock.advance(1_000);
    let second = routed(&fixture, "second", 7, fifo("crm")).await;
    let unordered = routed(&fixture, "unordered", 7, to("crm", LaneOrder::None)).await;
    let other = routed(&fixture, "other", 8, fifo("crm")).await;
    assert!(fixture.ledger.blocked_lanes(at(0), 10).await.unwrap().is_empty());
    defer_as(&fixture, head, JobState::Waiting, at(100)).await;
    let lanes = fixture.ledger.blocked_lanes(at(50), 10).await.unwrap();
    let seen: Vec<_> =
        lanes.iter().map(|lane| (lane.head.id, lane.first_behind, lane.waits_since, lane.jobs_behind)).collect();
    assert_eq!(seen, [(head, first, since, 2)]);
    assert_eq!(lanes[0].head.state, JobState::Waiting);
    let jobs = vec![head, first, second, unordered, other];
    assert_eq!(
        fixture.ledger.blocking_jobs(jobs.clone(), at(50)).await.unwrap(),
        [(first, head), (second, head)],
        "a job without a lane and a job of another lane are free"
    );
    assert!(fixture.ledger.blocked_lanes(at(100), 10).await.unwrap().is_empty(), "the head is due");
    assert!(fixture.ledger.blocking_jobs(jobs, at(100)).await.unwrap().is_empty());
}
