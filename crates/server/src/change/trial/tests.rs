use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_domain::contact::{ContactId, ContactState, Observation, ObservedValue};
use sluice_domain::event::{Audit, Event, EventId, LossCode, MappingWarning};
use sluice_domain::key::KeyDigest;

use super::report::{JobDifference, WarningDifference};
use super::*;

fn event(attributes: Value) -> Event {
    Event {
        schema_version: "1.0".into(),
        event_id: "x".into(),
        event_type: "lead.created".into(),
        source: "website".into(),
        occurred_at: None,
        idempotency_key: "k".into(),
        identity: json!({"email": "ada@example.com"}).as_object().cloned().unwrap(),
        attributes: attributes.as_object().cloned().unwrap(),
        routing: Default::default(),
        audit: Audit::default(),
    }
}

fn accepted(event: Event, fields: Value) -> RequestResult {
    let fields: BTreeMap<String, Value> = fields.as_object().cloned().unwrap().into_iter().collect();
    RequestResult {
        outcome: Outcome::Accepted,
        key: "k".into(),
        event: Some(event),
        workers: vec!["to-crm".into()],
        calls: vec![PlannedCall { worker: "to-crm".into(), step: "upsert".into(), fields }],
    }
}

fn id(n: u8) -> EventId {
    EventId::new(KeyDigest([n; 16]), 0)
}

fn compare(pairs: &[(RequestResult, RequestResult)]) -> TrialReport {
    let mut comparison = Comparison::default();
    for (n, (before, after)) in pairs.iter().enumerate() {
        comparison.add(Compared { flow: "leads", id: id(n as u8), contact: n as u64 / 2, before, after });
    }
    comparison.into_report(None)
}

#[test]
fn equal_results_are_no_difference() {
    let one = accepted(event(json!({"a": 1})), json!({"LastName": "Lovelace"}));
    let report = compare(&[(one.clone(), one)]);
    assert_eq!((report.events, report.different, report.is_same()), (1, 0, true));
}

#[test]
fn fields_and_writes_are_counted_with_masked_samples_and_by_contact() {
    let before = accepted(event(json!({"last_name": "Lovelace", "plan": "a"})), json!({"LastName": "Lovelace"}));
    let after =
        accepted(event(json!({"last_name": "LOVELACE"})), json!({"LastName": "LOVELACE", "Phone": "+14155550123"}));
    let report = compare(&vec![(before, after); 4]);
    let fields: Vec<_> = report.fields.iter().map(|row| (row.field.as_str(), row.events, row.contacts)).collect();
    assert_eq!(fields, [("attributes.last_name", 4, 2), ("attributes.plan", 4, 2)]);
    let sample = &report.fields[0].samples[0];
    assert_eq!((sample.before.as_str(), sample.after.as_str()), ("Aaaaaaaa", "AAAAAAAA"));
    assert_eq!(report.fields[1].samples[0].after, "nothing");
    assert_eq!(report.fields[0].samples.len(), 3);
    let writes: Vec<_> = report.writes.iter().map(|row| (row.field.as_str(), row.events, row.contacts)).collect();
    assert_eq!(writes, [("LastName", 4, 2), ("Phone", 4, 2)]);
    assert!(!format!("{report:?}").contains("415555"), "{report:?}");
    assert_eq!((report.different, report.is_same()), (4, false));
}

#[test]
fn collapsing_refused_and_passing_requests_are_outcomes_and_their_jobs_are_counted() {
    let one = || accepted(event(json!({"a": 1})), json!({}));
    let nothing = |outcome: Outcome| RequestResult { outcome, event: None, workers: vec![], calls: vec![], ..one() };
    let report = compare(&[
        (one(), nothing(Outcome::Duplicate(id(7)))),
        (one(), nothing(Outcome::Refused("field-missing".into()))),
        (nothing(Outcome::Quarantined("identity-missing".into())), one()),
        (nothing(Outcome::Duplicate(id(7))), one()),
    ]);
    let outcomes: Vec<_> =
        report.outcomes.iter().map(|row| (row.before.as_str(), row.after.as_str(), row.events)).collect();
    assert_eq!(
        outcomes,
        [
            ("accepted", "duplicate", 1),
            ("accepted", "refused: field-missing", 1),
            ("duplicate", "accepted", 1),
            ("quarantined: identity-missing", "accepted", 1)
        ]
    );
    let jobs = JobDifference { flow: "leads".into(), worker: "to-crm".into(), more: 2, fewer: 2 };
    assert_eq!((report.jobs, report.writes), (vec![jobs], vec![]));
    assert_eq!(report.outcomes[0].samples[0].after, format!("a duplicate of {}", id(7)));
}

#[test]
fn warnings_and_keys_are_counted() {
    let before = accepted(event(json!({"a": 1})), json!({}));
    let mut after = before.clone();
    after.key = "other".into();
    let warning = MappingWarning { field: "attributes.a".into(), code: LossCode::parse("not-a-number").unwrap() };
    after.event.as_mut().unwrap().audit.warnings = vec![warning];
    let report = compare(&[(before, after)]);
    assert_eq!((report.other_keys, report.warnings[0].more, report.warnings[0].fewer), (1, 1, 0));
    assert_eq!(report.warnings[0].code, "not-a-number");
}

#[test]
fn a_sender_that_invents_fields_cannot_grow_the_report() {
    let before = accepted(event(json!({})), json!({}));
    let mut comparison = Comparison::default();
    for n in 0..2_000 {
        let after = accepted(event(json!({ format!("field_{n}"): n })), json!({}));
        comparison.add(Compared { flow: "leads", id: id(1), contact: n, before: &before, after: &after });
    }
    let report = comparison.into_report(None);
    assert_eq!((report.fields.len(), report.left_out), (500, 1_500));
}

#[test]
fn joined_and_split_contacts_are_counted_and_single_ones_compared() {
    let contact = ContactId;
    let mut pairs = ContactPairs::default();
    for (n, before, after) in [(1, Some(1), Some(1)), (2, Some(2), Some(1)), (3, Some(3), Some(3)), (4, Some(4), None)]
    {
        pairs.add(id(n), before.map(contact), after.map(contact));
    }
    let state = |phone: &str| {
        let mut state = ContactState::default();
        let value = |field: &str, value: &str| ObservedValue {
            field: field.to_owned(),
            value: Value::from(value),
            trust: 50,
            guarded: false,
        };
        let values = vec![value("attributes.plan", phone), value("attributes.company", "x")];
        state.observe(&Observation { values, ..Observation::default() }, 1);
        Some(state)
    };
    let trial = pairs.finish(|_| state("a"), |_| state("b"));
    assert_eq!((trial.before, trial.after, trial.joined, trial.split), (4, 2, 1, 0));
    let fields: Vec<_> = trial.fields.iter().map(|row| (row.field.as_str(), row.contacts)).collect();
    assert_eq!(fields, [("attributes.plan", 1)]);
}

#[test]
fn rows_of_two_reports_are_joined_by_their_key_and_contacts_are_not_counted() {
    let sample = |event: &str| Sample { event: event.into(), before: "a".into(), after: "b".into() };
    let field = |field: &str, events: u64, samples: usize| report::FieldDifferenceRow {
        flow: "leads".into(),
        field: field.into(),
        events,
        contacts: events,
        samples: (0..samples).map(|n| sample(&format!("evt_{n}"))).collect(),
    };
    let jobs = |more| JobDifference { flow: "leads".into(), worker: "to-crm".into(), more, fewer: 1 };
    let report = |fields: Vec<report::FieldDifferenceRow>, more| TrialReport {
        events: 10,
        fields,
        jobs: vec![jobs(more)],
        left_out: 1,
        ..TrialReport::default()
    };
    let mut all = TrialReport::default();
    all.merge(report(vec![field("attributes.a", 2, 2)], 3));
    all.merge(report(vec![field("attributes.a", 1, 2), field("attributes.b", 9, 1)], 4));
    assert_eq!((all.events, all.left_out, all.jobs), (20, 2, vec![JobDifference { fewer: 2, ..jobs(7) }]));
    let shown: Vec<_> =
        all.fields.iter().map(|row| (row.field.as_str(), row.events, row.contacts, row.samples.len())).collect();
    assert_eq!(shown, [("attributes.b", 9, 0, 1), ("attributes.a", 3, 0, 3)], "the largest first, samples bounded");
}

#[test]
fn rows_without_room_are_counted() {
    let row =
        |n: usize| WarningDifference { flow: "f".into(), field: n.to_string(), code: "c".into(), more: 1, fewer: 1 };
    let report =
        |range: std::ops::Range<usize>| TrialReport { warnings: range.map(row).collect(), ..TrialReport::default() };
    let mut all = report(0..rows::ROWS_MAX);
    all.merge(report(0..rows::ROWS_MAX + 3));
    assert_eq!((all.warnings.len(), all.left_out, all.warnings[0].more), (rows::ROWS_MAX, 6, 2));
}
