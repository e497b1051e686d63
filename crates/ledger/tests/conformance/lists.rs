//! What can be asked.

use sluice_domain::event::{Event, EventId, EventStatus};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{BalanceOutcome, EventFilter, JobFilter, JobSummary, NewEvent, NewJob, Page, SourceDayCounts};

use crate::driver::{Driver, Fixture, at, open, settlement};
use crate::fixtures::{DAY, event};

const ALL: Page = Page { after: None, limit: 1000 };

fn from(source: &str, key: &str, worker: &str) -> NewEvent {
    NewEvent {
        source: source.into(),
        event_type: format!("{source}.created"),
        jobs: vec![NewJob::new(worker, &format!("{worker}-queue"))],
        ..event(key)
    }
}

async fn ids<D: Driver>(fixture: &Fixture<D>, filter: JobFilter) -> Vec<i64> {
    let listed = fixture.ledger.list_jobs(filter.clone(), ALL).await.unwrap().rows;
    let mut ids: Vec<i64> = listed.iter().map(|(job, _)| job.id.0).collect();
    assert!(listed.iter().all(|(job, event)| job.seq == event.seq));
    assert!(ids.is_sorted_by(|newer, older| newer > older), "newest first: {ids:?}");
    ids.reverse();
    let matching = fixture.ledger.matching_jobs(filter, JobId(0), 1000).await.unwrap();
    assert_eq!(matching, ids.iter().map(|id| JobId(*id)).collect::<Vec<_>>(), "the same jobs, oldest first");
    ids
}

async fn die<D: Driver>(fixture: &Fixture<D>, job: JobId, class: FailureClass, code: &str) {
    fixture.begin(job, 1).await;
    let mut dead = settlement(job, 1, JobState::Dead);
    dead.next.failure = Some(Failure::new(class, code, format!("because of {code}")));
    assert!(fixture.settle_with(dead).await);
}

pub(crate) async fn jobs_are_listed_by_what_is_asked_for<D: Driver>() {
    let fixture = open::<D>();
    fixture.accept_event(from("website", "1", "crm")).await;
    fixture.accept_event(from("shop", "2", "crm")).await;
    fixture.accept_event(from("shop", "3", "mail")).await;
    fixture.accept_event(from("website", "4", "mail")).await;
    die(&fixture, JobId(2), FailureClass::Auth, "401").await;
    die(&fixture, JobId(3), FailureClass::Permanent, "422").await;
    fixture.attempt(JobId(4), 1, JobState::Unknown).await;

    let any = JobFilter::default;
    assert_eq!(ids(&fixture, any()).await, [1, 2, 3, 4]);
    assert_eq!(ids(&fixture, JobFilter { states: vec![JobState::Dead], ..any() }).await, [2, 3]);
    assert_eq!(ids(&fixture, JobFilter { states: vec![JobState::Unknown, JobState::Dead], ..any() }).await, [2, 3, 4]);
    assert_eq!(ids(&fixture, JobFilter { states: vec![JobState::Unknown, JobState::Queued], ..any() }).await, [1, 4]);
    assert_eq!(ids(&fixture, JobFilter { states: vec![JobState::Queued, JobState::Running], ..any() }).await, [1]);
    assert_eq!(ids(&fixture, JobFilter { worker: Some("mail".into()), ..any() }).await, [3, 4]);
    assert_eq!(ids(&fixture, JobFilter { queue: Some("crm-queue".into()), ..any() }).await, [1, 2]);
    assert_eq!(ids(&fixture, JobFilter { source: Some("shop".into()), ..any() }).await, [2, 3]);
    assert_eq!(ids(&fixture, JobFilter { dead_letter_queue: Some("leads-dead".into()), ..any() }).await, [2, 3]);
    assert_eq!(ids(&fixture, JobFilter { class: Some("auth".into()), ..any() }).await, [2]);
    assert_eq!(ids(&fixture, JobFilter { code: Some("422".into()), ..any() }).await, [3]);
    assert_eq!(ids(&fixture, JobFilter { since: Some(at(1)), ..any() }).await, [2, 3, 4]);
    assert_eq!(ids(&fixture, JobFilter { until: Some(at(1)), ..any() }).await, [1]);
    let both =
        JobFilter { states: vec![JobState::Dead], source: Some("shop".into()), worker: Some("crm".into()), ..any() };
    assert_eq!(ids(&fixture, both).await, [2]);
}

pub(crate) async fn lists_are_read_page_by_page<D: Driver>() {
    let fixture = open::<D>();
    for n in 1..=7 {
        fixture.accept_event(from(if n % 2 == 0 { "shop" } else { "website" }, &format!("key {n}"), "crm")).await;
    }
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = fixture.ledger.list_jobs(JobFilter::default(), Page { after, limit: 3 }).await.unwrap().rows;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.id.0);
        seen.push(page.len());
    }
    assert_eq!(seen, [3, 3, 1]);

    let matching = fixture.ledger.matching_jobs(JobFilter::default(), JobId(3), 2).await.unwrap();
    assert_eq!(matching, [JobId(4), JobId(5)]);

    let list = async |source: Option<&str>, event_type: Option<&str>, page| {
        let (source, event_type) = (source.map(String::from), event_type.map(String::from));
        let filter = EventFilter { source, event_type, ..EventFilter::default() };
        let events = fixture.ledger.find_events(filter, page).await;
        events.unwrap().rows.iter().map(|listed| listed.event.seq).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, Page { after: None, limit: 2 }).await, [7, 6]);
    assert_eq!(list(None, None, Page { after: Some(3), limit: 10 }).await, [2, 1]);
    assert_eq!(list(Some("shop"), None, ALL).await, [6, 4, 2]);
    assert_eq!(list(None, Some("website.created"), Page { after: Some(7), limit: 2 }).await, [5, 3]);
    assert!(list(Some("shop"), Some("website.created"), ALL).await.is_empty());
}

pub(crate) async fn rare_sources_are_found_on_their_days<D: Driver>() {
    let fixture = open::<D>();
    for day in 0..6 {
        let source = if [1, 2, 4].contains(&day) { "rare" } else { "usual" };
        for n in 0..2 {
            let new = from(source, &format!("day {day}, {n}"), "crm");
            fixture.accept_event(NewEvent { received_at: fixture.clock.now(), ..new }).await;
        }
        fixture.clock.advance(DAY);
    }
    let source = Some("rare".to_owned());
    let jobs = |until: Option<Time>| JobFilter { source: source.clone(), until, ..JobFilter::default() };
    assert_eq!(ids(&fixture, jobs(None)).await, [3, 4, 5, 6, 9, 10]);
    assert_eq!(ids(&fixture, jobs(Some(Time(at(0).0 + 2 * DAY)))).await, [3, 4]);
    let events = async |since: Option<Time>, status, page| {
        let filter = EventFilter { source: source.clone(), since, status, ..EventFilter::default() };
        let found = fixture.ledger.find_events(filter, page).await.unwrap().rows;
        found.iter().map(|listed| listed.event.seq).collect::<Vec<_>>()
    };
    assert_eq!(events(None, None, ALL).await, [10, 9, 6, 5, 4, 3]);
    assert_eq!(events(None, Some(EventStatus::Working), ALL).await, [10, 9, 6, 5, 4, 3]);
    assert_eq!(events(None, None, Page { after: Some(9), limit: 2 }).await, [6, 5]);
    assert_eq!(events(Some(Time(at(0).0 + 2 * DAY)), None, ALL).await, [10, 9, 6, 5]);
}

pub(crate) async fn reasons_of_death_are_counted_most_frequent_first<D: Driver>() {
    let fixture = open::<D>();
    for (n, (class, code)) in
        [(FailureClass::Auth, "401"), (FailureClass::Permanent, "422"), (FailureClass::Permanent, "422")]
            .iter()
            .enumerate()
    {
        let job = fixture.job(&format!("key {n}")).await;
        die(&fixture, job.id, *class, code).await;
    }
    fixture.job_that_is("finished", JobState::Succeeded).await;
    let reasons = fixture.ledger.dead_reasons(Time(0), 10).await.unwrap();
    let seen: Vec<_> =
        reasons.iter().map(|reason| (reason.class.as_str(), reason.code.as_str(), reason.count)).collect();
    assert_eq!(seen, [("permanent", "422", 2), ("auth", "401", 1)]);
    assert_eq!((reasons[0].message.as_str(), reasons[0].last_at), ("because of 422", Time(at(1).0 + 100)));
    assert_eq!(fixture.ledger.dead_reasons(Time(0), 1).await.unwrap().len(), 1);
    assert!(fixture.ledger.dead_reasons(Time(at(1).0 + 101), 10).await.unwrap().is_empty());
}

pub(crate) async fn an_event_is_found_by_its_name<D: Driver>() {
    let fixture = open::<D>();
    let accepted = fixture.accept("a").await;
    let found = fixture.ledger.find_event(accepted.id).await.unwrap();
    assert_eq!(found, Some(fixture.event(&accepted).await));
    assert_eq!(fixture.ledger.find_event(EventId([3; 16])).await.unwrap(), None);
    let mut beginning = accepted.id;
    beginning.0[15] ^= 1;
    assert_eq!(fixture.ledger.find_event(beginning).await.unwrap(), None);
    let name = accepted.id.to_string();
    for start in [&*name, EventId::shortened(&name), &name[..25], &name.to_uppercase().replacen("EVT_", "evt_", 1)] {
        let found = fixture.ledger.find_by_short_id(start).await.unwrap();
        assert_eq!(found.iter().map(|event| event.seq).collect::<Vec<_>>(), [accepted.seq], "{start}");
    }
    for start in [&name[..12], "evt_", "job_1", &*beginning.to_string()] {
        assert_eq!(fixture.ledger.find_by_short_id(start).await.unwrap(), [], "{start}");
    }
}

pub(crate) async fn live_jobs_are_counted_by_worker_and_state<D: Driver>() {
    let fixture = open::<D>();
    for n in 1..=9 {
        fixture.accept_event(from("website", &format!("key {n}"), if n % 3 == 0 { "mail" } else { "crm" })).await;
    }
    fixture.attempt(JobId(2), 1, JobState::Succeeded).await;
    fixture.attempt(JobId(4), 1, JobState::Dead).await;
    fixture.attempt(JobId(5), 1, JobState::Retrying).await;
    let counts = fixture.ledger.live_counts().await.unwrap();
    let crm = [("crm".to_owned(), JobState::Queued, 3), ("crm".to_owned(), JobState::Retrying, 1)];
    assert!(crm.iter().all(|count| counts.contains(count)), "{counts:?}");
    assert!(counts.contains(&("mail".to_owned(), JobState::Queued, 3)));
    assert_eq!(counts.len(), 3);
}

pub(crate) async fn a_ledger_without_work_has_no_workers<D: Driver>() {
    let fixture = open::<D>();
    assert!(fixture.ledger.live_lanes().await.unwrap().is_empty());
    fixture.job_that_is("a", JobState::Succeeded).await;
    assert!(fixture.ledger.live_lanes().await.unwrap().is_empty());
    assert!(fixture.ledger.live_counts().await.unwrap().is_empty());
}

pub(crate) async fn jobs_are_counted_by_state<D: Driver>() {
    let fixture = open::<D>();
    for (n, state) in
        [JobState::Succeeded, JobState::Succeeded, JobState::Dead, JobState::Waiting].into_iter().enumerate()
    {
        fixture.job_that_is(&format!("key {n}"), state).await;
    }
    let expected = [(JobState::Waiting, 1), (JobState::Succeeded, 2), (JobState::Dead, 1)];
    assert_eq!(fixture.ledger.job_counts().await.unwrap(), expected);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 4);
}

pub(crate) async fn what_each_source_sent_is_tallied_by_day<D: Driver>() {
    let fixture = open::<D>();
    fixture.accept_event(from("website", "1", "crm")).await;
    fixture.accept_event(from("shop", "2", "crm")).await;
    fixture.repeat(from("shop", "2", "crm")).await;
    fixture.repeat(NewEvent { fingerprint: [9; 16], ..from("shop", "2", "crm") }).await;
    fixture.clock.advance(DAY);
    fixture.accept_event(from("website", "3", "crm")).await;
    let fixture = fixture.reopen().await;
    fixture.accept_event(from("website", "4", "crm")).await;

    let tally = |day: &str, source: &str, accepted, duplicates, clashes| SourceDayCounts {
        day: day.into(),
        source: source.into(),
        accepted,
        duplicates,
        clashes,
        by_content: 0,
        pruned: 0,
    };
    let second = tally("2026-03-02", "website", 2, 0, 0);
    let all = [tally("2026-03-01", "shop", 1, 2, 1), tally("2026-03-01", "website", 1, 0, 0), second.clone()];
    assert_eq!(fixture.ledger.source_day_counts("2026-03-01".into()).await.unwrap(), all);
    assert_eq!(fixture.ledger.source_day_counts("2026-03-02".into()).await.unwrap(), [second]);
}

async fn found<D: Driver>(fixture: &Fixture<D>, filter: EventFilter) -> Vec<i64> {
    let events = fixture.ledger.find_events(filter, ALL).await.unwrap().rows;
    events.iter().map(|listed| listed.event.seq).collect()
}

pub(crate) async fn events_are_found_by_key_contact_status_and_time<D: Driver>() {
    let fixture = open::<D>();
    let contact = |text: &str| Event::contacts_named(text)[0];
    let of = |key: &str, person: Option<&str>| NewEvent { contact: person.map(contact), ..from("website", key, "crm") };
    let first = of("a", Some("Ada@example.com "));
    let key = first.key;
    fixture.accept_event(first).await;
    fixture.accept_event(of("b", Some("bob@example.com"))).await;
    let later = fixture.clock.advance(DAY);
    fixture.accept_event(NewEvent { received_at: later, ..of("c", Some("ada@example.com")) }).await;
    fixture.accept_event(NewEvent { received_at: later, jobs: vec![], ..of("d", None) }).await;
    fixture.attempt(JobId(1), 1, JobState::Dead).await;
    fixture.attempt(JobId(2), 1, JobState::Succeeded).await;

    let any = EventFilter::default;
    let ada = || Some(Event::contacts_named("ada@example.com"));
    assert_eq!(found(&fixture, any()).await, [4, 3, 2, 1]);
    assert_eq!(found(&fixture, EventFilter { contacts: ada(), ..any() }).await, [3, 1]);
    assert_eq!(found(&fixture, EventFilter { contacts: ada(), since: Some(later), ..any() }).await, [3]);
    let nobody = Some(Event::contacts_named("nobody@example.com"));
    assert!(found(&fixture, EventFilter { contacts: nobody, ..any() }).await.is_empty());
    assert_eq!(found(&fixture, EventFilter { keys: Some(vec![key]), ..any() }).await, [1]);
    assert!(found(&fixture, EventFilter { keys: Some(vec![]), ..any() }).await.is_empty(), "no key is no event");
    assert_eq!(found(&fixture, EventFilter { keys: Some(vec![key]), contacts: ada(), ..any() }).await, [1]);
    for (status, seqs) in [
        (EventStatus::Dead, &[1][..]),
        (EventStatus::Done, &[2]),
        (EventStatus::Working, &[3]),
        (EventStatus::Unrouted, &[4]),
        (EventStatus::Unknown, &[]),
        (EventStatus::Dropped, &[]),
    ] {
        let filter = EventFilter { status: Some(status), ..any() };
        assert_eq!(found(&fixture, filter.clone()).await, seqs, "{status}");
        let expected: Vec<i64> = seqs.iter().copied().filter(|seq| [1, 3].contains(seq)).collect();
        assert_eq!(found(&fixture, EventFilter { contacts: ada(), ..filter }).await, expected, "{status} of ada");
    }
    let fixture = fixture.reopen().await;
    let listed = fixture.ledger.find_events(EventFilter { contacts: ada(), ..any() }, ALL).await.unwrap().rows;
    let dead = JobSummary { id: JobId(1), worker: "crm".into(), state: JobState::Dead, attempts_total: 1 };
    assert_eq!(listed[1].jobs, [dead]);
    assert_eq!(found(&fixture, EventFilter { keys: Some(vec![key]), ..any() }).await, [1]);
}

pub(crate) async fn events_of_a_status_are_read_page_by_page<D: Driver>() {
    let fixture = open::<D>();
    for n in 1..=9 {
        let workers = ["crm", "mail"].map(|worker| NewJob::new(worker, "default"));
        fixture.accept_event(NewEvent { jobs: workers.to_vec(), ..from("shop", &format!("key {n}"), "crm") }).await;
        let state = if n % 3 == 0 { JobState::Succeeded } else { JobState::Dead };
        for job in [2 * n - 1, 2 * n] {
            fixture.attempt(JobId(job), 1, state).await;
        }
    }
    for (status, expected) in [(EventStatus::Dead, &[8, 7, 5, 4, 2, 1][..]), (EventStatus::Done, &[9, 6, 3])] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = EventFilter { status: Some(status), ..EventFilter::default() };
            let page = fixture.ledger.find_events(filter, Page { after, limit: 2 }).await.unwrap().rows;
            assert!(page.len() <= 2 && page.iter().all(|listed| listed.jobs.len() == 2));
            let Some(last) = page.last() else { break };
            after = Some(last.event.seq);
            seen.extend(page.iter().map(|listed| listed.event.seq));
        }
        assert_eq!(seen, expected, "{status}: each event once");
    }
}

pub(crate) async fn the_balance_is_read_in_parts<D: Driver>() {
    let fixture = open::<D>();
    let empty = fixture.ledger.balance_part(0, 10).await.unwrap();
    assert_eq!((empty.counts.len(), empty.looked_until), (0, 0));
    for (key, state) in [("a", JobState::Succeeded), ("b", JobState::Dead), ("c", JobState::Noop)] {
        fixture.job_that_is(key, state).await;
    }
    fixture.job("d").await;
    fixture.accept_event(NewEvent { jobs: vec![], ..event("e") }).await;
    let row = |outcome, count| (("2026-03-01".to_owned(), "website".to_owned(), outcome), count);
    let first = fixture.ledger.balance_part(0, 2).await.unwrap();
    assert_eq!(first.looked_until, 2);
    assert_eq!(
        first.counts.into_iter().collect::<Vec<_>>(),
        [row(BalanceOutcome::Done, 1), row(BalanceOutcome::Dead, 1)]
    );
    let rest = fixture.ledger.balance_part(2, 10).await.unwrap();
    assert_eq!(rest.looked_until, 5);
    let expected = [row(BalanceOutcome::Noop, 2), row(BalanceOutcome::Waiting, 1)];
    assert_eq!(rest.counts.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(fixture.ledger.balance_part(5, 10).await.unwrap().looked_until, 5);
}
