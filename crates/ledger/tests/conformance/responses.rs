//! Response clocks start with their event, survive a restart and end once.

use std::sync::Arc;

use sluice_domain::history::Measure;
use sluice_domain::job::JobState;
use sluice_domain::respond::{NewResponse, Progress, ResponseChange, ResponseClock, ResponseState};
use sluice_ledger::{Acceptance, NewEvent, NewJob, Page, ResponseCount};

use crate::driver::{Driver, Fixture, at, open};
use crate::fixtures::event;

const PAGE: Page = Page { after: None, limit: 10 };

fn timed(key: &str, step: Option<&str>) -> NewEvent {
    let response = NewResponse { worker: "crm".into(), step: step.map(Arc::from), risk_at: at(40), deadline: at(60) };
    NewEvent {
        jobs: vec![NewJob::new("other", "default"), NewJob::new("crm", "default")],
        response: Some(Box::new(response)),
        ..event(key)
    }
}

async fn accept<D: Driver>(fixture: &Fixture<D>, event: NewEvent) {
    let Acceptance::Accepted(_) = fixture.ledger.accept(event).await.unwrap() else { panic!("it is new") };
}

fn change(clock: &ResponseClock, state: ResponseState, look_at: u32) -> ResponseChange {
    ResponseChange { clock: ResponseClock { state, look_at: at(look_at), ..clock.clone() }, took: None }
}

pub(crate) async fn a_clock_starts_with_its_event_and_survives_a_restart<D: Driver>() {
    let fixture = open::<D>();
    accept(&fixture, timed("a", None)).await;
    let again = fixture.ledger.accept(timed("a", None)).await.unwrap();
    assert!(matches!(again, Acceptance::Duplicate(_)), "{again:?}");
    let fixture = fixture.reopen().await;
    let clocks = fixture.ledger.responses(PAGE).await.unwrap();
    assert_eq!(clocks.len(), 1, "a duplicate starts none");
    let clock = &clocks[0];
    assert_eq!((clock.state, clock.risk_at, clock.deadline), (ResponseState::Waiting, at(40), at(60)));
    assert_eq!((&*clock.flow, &*clock.worker, &clock.step), ("leads", "crm", &None));
    let job = fixture.ledger.job(clock.job).await.unwrap().unwrap();
    assert_eq!(&*job.worker, "crm");
    assert!(fixture.ledger.due_responses(at(39), 10).await.unwrap().is_empty());
    let due = fixture.ledger.due_responses(at(40), 10).await.unwrap();
    assert_eq!((due.len(), due[0].progress), (1, Progress::Open));
    let next = Page { after: Some(clock.event), limit: 10 };
    assert!(fixture.ledger.responses(next).await.unwrap().is_empty());
}

pub(crate) async fn a_clock_changes_and_ends_once_and_is_counted<D: Driver>() {
    let fixture = open::<D>();
    accept(&fixture, timed("a", None)).await;
    accept(&fixture, timed("b", None)).await;
    let clocks = fixture.ledger.responses(PAGE).await.unwrap();
    let (b, a) = (&clocks[0], &clocks[1]);
    assert!(fixture.ledger.keep_response(change(a, ResponseState::AtRisk, 60)).await.unwrap());
    assert!(fixture.ledger.keep_response(change(a, ResponseState::AtRisk, 60)).await.unwrap(), "a repeat does no harm");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.due_responses(at(59), 10).await.unwrap().len(), 1, "the other one");
    let count = |state, count| ResponseCount { flow: "leads".into(), state, count };
    let counts = fixture.ledger.response_counts().await.unwrap();
    assert_eq!(counts, [count(ResponseState::Waiting, 1), count(ResponseState::AtRisk, 1)]);
    assert!(fixture.ledger.keep_response(change(a, ResponseState::Late, 70)).await.unwrap());
    assert!(fixture.ledger.keep_response(change(a, ResponseState::Missed, 70)).await.unwrap());
    assert!(!fixture.ledger.keep_response(change(a, ResponseState::Late, 70)).await.unwrap(), "it has ended");
    assert!(fixture.ledger.keep_response(change(b, ResponseState::Met, 70)).await.unwrap());
    assert!(fixture.ledger.responses(PAGE).await.unwrap().is_empty());
    let totals = fixture.ledger.counter_totals().await.unwrap();
    let mut found: Vec<(String, u64)> = (totals.iter().filter(|total| total.measure == Measure::Responses))
        .map(|total| (total.labels.1.to_string(), total.total))
        .collect();
    found.sort();
    assert_eq!(found, [("escalated".to_owned(), 1), ("met".to_owned(), 1), ("missed".to_owned(), 1)]);
}

pub(crate) async fn a_clock_sees_the_job_and_the_effect_that_answer<D: Driver>() {
    let fixture = open::<D>();
    accept(&fixture, timed("a", None)).await;
    accept(&fixture, timed("b", Some("create"))).await;
    let due = fixture.ledger.due_responses(at(40), 10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.progress).collect::<Vec<_>>(), [Progress::Open, Progress::Open]);
    fixture.attempt(due[0].clock.job, 1, JobState::Succeeded).await;
    fixture.attempt(due[1].clock.job, 1, JobState::Succeeded).await;
    let due = fixture.ledger.due_responses(at(40), 10).await.unwrap();
    assert!(due.iter().all(|due| matches!(due.progress, Progress::Done(_))), "{due:?}");
}
