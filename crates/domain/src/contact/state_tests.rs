//! Laws of the registers.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const SOURCES: [(&str, u8); 3] = [("ads", 20), ("forms", 50), ("shop", 80)];

/// What an event says: its source, the fields that it has, and its times.
#[derive(Clone, Debug)]
struct Said {
    source: usize,
    fields: Vec<(u8, u8)>,
    received_at: i64,
    /// Relative to the arrival.
    occurred: Option<i64>,
}

fn said() -> impl Strategy<Value = Said> {
    let fields = vec((0..4u8, 0..6u8), 0..4);
    let occurred = proptest::option::of(-900_000..900_000i64);
    (0..3usize, fields, 0..1_000_000i64, occurred).prop_map(|(source, fields, received_at, occurred)| Said {
        source,
        fields,
        received_at,
        occurred,
    })
}

fn observation(said: &Said) -> Observation {
    let (source, trust) = SOURCES[said.source];
    let value = |&(field, value): &(u8, u8)| ObservedValue {
        // The first field identifies the contact.
        field: if field == 0 { "identity.email".to_owned() } else { format!("attributes.f{field}") },
        value: json!(value),
        trust,
        guarded: field == 0,
    };
    // An event has one value for a field.
    let mut fields = said.fields.clone();
    fields.sort_unstable();
    fields.dedup_by_key(|(field, _)| *field);
    Observation {
        identifiers: vec![],
        values: fields.iter().map(value).collect(),
        source: Arc::from(source),
        occurred_at: said.occurred.map(|offset| Time(said.received_at + offset)),
        received_at: Time(said.received_at),
        ..Observation::default()
    }
}

fn folded<'a>(events: impl IntoIterator<Item = &'a (EventSeq, Observation)>) -> ContactState {
    let mut state = ContactState::default();
    events.into_iter().for_each(|(seq, observation)| state.observe(observation, *seq));
    state
}

fn history(said: &[Said]) -> Vec<(EventSeq, Observation)> {
    (1..).zip(said.iter().map(observation)).collect()
}

/// The winner of a field, found by comparing all events instead of merging them.
fn expected(events: &[(EventSeq, Observation)], field: &str) -> Option<Value> {
    let said = |(seq, observation): &(EventSeq, Observation)| {
        let value = observation.values.iter().find(|value| value.field == field)?.clone();
        let latest = observation.received_at + CLOCK_SKEW_MAX;
        let at = observation.occurred_at.unwrap_or(observation.received_at).min(latest);
        Some((value, at, *seq))
    };
    let values: Vec<_> = events.iter().filter_map(said).collect();
    let winner = match field.starts_with("identity.") {
        true => values.into_iter().min_by_key(|(_, _, seq)| *seq),
        false => values.into_iter().max_by_key(|(value, at, seq)| (value.trust, *at, *seq)),
    };
    winner.map(|(value, ..)| value.value)
}

type History = Vec<(EventSeq, Observation)>;

/// A history of so many events, the same with every event twice in any order, and a place to cut it at.
fn histories(events: Range<usize>) -> impl Strategy<Value = (History, History, usize)> {
    (vec(said(), events), 0..10usize).prop_flat_map(|(said, cut)| {
        let events = history(&said);
        let twice: Vec<_> = events.iter().chain(&events).cloned().collect();
        (Just(events), Just(twice).prop_shuffle(), Just(cut))
    })
}

fn joined(first: &ContactState, second: &ContactState) -> ContactState {
    let mut state = first.clone();
    state.join(second);
    state
}

fn check_history((events, shuffled, cut): (History, History, usize)) -> Result<(), TestCaseError> {
    let state = folded(&events);
    prop_assert_eq!(&folded(&shuffled), &state, "another order, every event twice");
    prop_assert_eq!(&folded(events.iter().rev()), &state, "backwards");
    let (a, b) = events.split_at(cut.min(events.len()));
    let (a, b) = (folded(a), folded(b));
    prop_assert_eq!(&joined(&a, &b), &state, "two parts");
    prop_assert_eq!(&joined(&b, &a), &state, "commutative");
    prop_assert_eq!(&joined(&state, &b), &state, "idempotent");
    for field in ["identity.email", "attributes.f1", "attributes.f2", "attributes.f3"] {
        let winner = expected(&events, field);
        prop_assert_eq!(state.value(field), winner.as_ref(), "{}", field);
    }
    for (_, registers) in state.fields() {
        prop_assert!(registers.len() <= VALUES_MAX);
    }
    Ok(())
}

proptest! {
    // Together 100,000 histories, on two threads.
    #![proptest_config(ProptestConfig { cases: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_order_repeat_and_split_of_a_few_events_gives_the_same_state(history in histories(0..5)) {
        check_history(history)?;
    }

    #[test]
    fn every_order_repeat_and_split_of_many_events_gives_the_same_state(history in histories(5..10)) {
        check_history(history)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn states_survive_their_text_form(said in vec(said(), 0..6)) {
        let state = folded(&history(&said));
        let text = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(serde_json::from_str::<ContactState>(&text).unwrap(), state);
    }
}

fn says(source: usize, value: &str, received_at: i64, occurred: Option<i64>) -> Observation {
    let mut observation =
        observation(&Said { source, fields: vec![(1, 0)], received_at, occurred: occurred.map(|at| at - received_at) });
    observation.values[0].value = json!(value);
    observation
}

fn one_field(events: &[Observation]) -> (Value, Vec<(Value, Lost)>) {
    let events: Vec<_> = (1..).zip(events.iter().cloned()).collect();
    let state = folded(&events);
    let (_, registers) = state.fields().next().unwrap();
    let losers = registers[1..].iter().map(|loser| (loser.value.clone(), loser.lost_to(&registers[0]))).collect();
    (registers[0].value.clone(), losers)
}

#[test]
fn trust_beats_freshness_and_the_loser_says_why() {
    let (winner, losers) = one_field(&[says(2, "shop", 10, Some(5)), says(0, "ads", 20, Some(19))]);
    assert_eq!((winner, losers), (json!("shop"), vec![(json!("ads"), Lost::LowerTrust)]));
}

#[test]
fn an_older_event_that_arrives_late_does_not_overwrite_a_newer_one() {
    let (winner, losers) = one_field(&[says(1, "new", 10_000, Some(9_000)), says(1, "old", 20_000, Some(4_000))]);
    assert_eq!((winner, losers), (json!("new"), vec![(json!("old"), Lost::Older)]));
    let (winner, losers) = one_field(&[says(1, "first", 10, Some(5)), says(1, "second", 20, Some(5))]);
    assert_eq!((winner, losers), (json!("second"), vec![(json!("first"), Lost::ArrivedEarlier)]));
}

#[test]
fn a_sender_whose_clock_is_ahead_wins_for_five_minutes_only() {
    let ahead = says(1, "ahead", 1_000, Some(86_400_000));
    assert_eq!(ahead.clamped_at(), Time(301_000));
    assert_eq!(one_field(&[ahead.clone(), says(1, "soon", 100_000, None)]).0, json!("ahead"));
    assert_eq!(one_field(&[ahead, says(1, "later", 301_001, None)]).0, json!("later"));
}

#[test]
fn an_identifier_keeps_its_first_value_until_a_rule_lifts_the_guard() {
    let email = |value: &str, guarded| {
        let mut observation = says(2, value, 10, None);
        observation.values[0].guarded = guarded;
        observation
    };
    let (winner, losers) = one_field(&[email("a", true), email("b", true)]);
    assert_eq!((winner, losers), (json!("a"), vec![(json!("b"), Lost::Guarded)]));
    assert_eq!(one_field(&[email("a", true), email("b", false)]).0, json!("b"));
    assert_eq!(one_field(&[email("a", false), email("b", true)]).0, json!("a"), "a new guard keeps what is there");
}

#[test]
fn only_so_many_fields_and_values_are_kept() {
    let mut state = ContactState::default();
    for n in 0..400u16 {
        let mut observation = says(1, &n.to_string(), i64::from(n), None);
        observation
            .values
            .push(ObservedValue { field: format!("attributes.x{n:03}"), ..observation.values[0].clone() });
        state.observe(&observation, i64::from(n) + 1);
    }
    assert_eq!(state.fields().count(), FIELDS_MAX);
    assert_eq!(state.fields().next().unwrap().1.len(), VALUES_MAX);
    assert_eq!(state.value("attributes.f1"), Some(&json!("399")));
}

#[test]
fn edited_event_takes_back_what_it_said_and_newer_events_still_win() {
    let value = |field: &str, value: &str| ObservedValue {
        field: field.to_owned(),
        value: json!(value),
        trust: 50,
        guarded: field == "identity.email",
    };
    let said = |at: i64, values: Vec<ObservedValue>| Observation {
        values,
        source: Arc::from("forms"),
        occurred_at: Some(Time(at)),
        received_at: Time(at),
        ..Observation::default()
    };
    let mut state = ContactState::default();
    let first = vec![
        value("identity.email", "ada@exmaple.com"),
        value("attributes.city", "Bern"),
        value("attributes.zip", "1"),
    ];
    state.observe(&said(10, first), 1);
    state.observe(&said(20, vec![value("attributes.city", "Basel")]), 2);
    state.retract(1);
    assert_eq!(state.value("identity.email"), None);
    let edited = vec![value("identity.email", "ada@example.com"), value("attributes.city", "Biel")];
    state.observe(&said(10, edited), 1);
    assert_eq!(state.value("identity.email"), Some(&json!("ada@example.com")), "the first value that is left stays");
    assert_eq!(state.value("attributes.city"), Some(&json!("Basel")), "the newer event wins");
    assert_eq!(state.value("attributes.zip"), None, "the edited event does not say it any more");
}
