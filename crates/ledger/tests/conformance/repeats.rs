//! What a repeat is recognised by beside its key, and what becomes of another content under the same key.

use std::sync::Arc;
use std::time::Duration;

use sluice_domain::duplicate_stats::{DuplicateDifference, EventDuplicates, RECENT_DUPLICATES_MAX};
use sluice_domain::event::{LossCode, MappingWarning};
use sluice_domain::job::JobState;
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, ClashPolicy, EventBody, JobFilter, MatchedBy, NewEvent, NewJob, Page, Prune, Pruned, Quarantine,
    Replay, StoredQuery, VariantRecord,
};

use crate::driver::{Driver, open, open_with_few_recent_keys};
use crate::fixtures::{DAY, START, event};

const MINUTE: Duration = Duration::from_secs(60);

/// The same key with this content.
fn saying(key: &str, content: u8) -> NewEvent {
    let body = EventBody { raw: vec![content; 3], ..(*event(key).body).clone() };
    NewEvent { fingerprint: [content; 16], body: Arc::new(body), ..event(key) }
}

fn clashing(key: &str, content: u8, clash: ClashPolicy) -> NewEvent {
    NewEvent { clash, ..saying(key, content) }
}

/// An event of a flow that compares contents for a quarter of an hour, so long after the start.
fn netted(key: &str, content: u8, after: Duration) -> NewEvent {
    NewEvent { content_window: Some(15 * MINUTE), received_at: START + after, ..saying(key, content) }
}

fn digest(key: &str) -> KeyDigest {
    event(key).key
}

pub(crate) async fn events_of_one_request_are_accepted_together_in_their_order<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept("b").await;
    fixture.announced.recv().await.unwrap();
    let request = vec![event("a"), event("b"), event("c"), event("a")];
    let answers = fixture.ledger.accept_all(request).await.unwrap();
    let [Acceptance::Accepted(a), Acceptance::Duplicate(b), Acceptance::Accepted(c), Acceptance::Duplicate(again)] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!((a.seq, c.seq), (first.seq + 1, first.seq + 2));
    assert_eq!((b.id, again.id), (first.id, a.id));
    assert_eq!(fixture.announced.recv().await.unwrap().len(), 2, "one announcement for one commit");
    assert!(fixture.ledger.accept_all(vec![]).await.unwrap().is_empty());
}

pub(crate) async fn an_owner_on_the_other_side_of_a_bucket_edge_is_the_owner<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept("ann|bucket 1").await;
    let beside =
        NewEvent { adjacent_keys: vec![digest("ann|bucket 1"), digest("ann|bucket 3")], ..event("ann|bucket 2") };
    let repeat = fixture.repeat(beside.clone()).await;
    assert_eq!((repeat.id, repeat.by, repeat.clash), (first.id, MatchedBy::AdjacentKey, false));
    // Nobody owns the key in between: what is near to it alone is new.
    let next =
        NewEvent { adjacent_keys: vec![digest("ann|bucket 2"), digest("ann|bucket 4")], ..event("ann|bucket 3") };
    let third = fixture.accept_event(next).await;
    assert_eq!(fixture.repeat(beside.clone()).await.id, first.id, "the first that is named");
    let late =
        NewEvent { received_at: Time(START.0 + 31 * DAY), adjacent_keys: vec![digest("ann|bucket 1")], ..beside };
    assert_ne!(fixture.accept_event(late).await.id, third.id, "an expired neighbour owns nothing");
}

pub(crate) async fn the_same_content_under_another_key_is_a_repeat_for_a_while<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(netted("a", 1, Duration::ZERO)).await;
    let repeat = fixture.repeat(netted("b", 1, 15 * MINUTE)).await;
    assert_eq!((repeat.id, repeat.by, repeat.clash), (first.id, MatchedBy::Content, false));
    fixture.accept_event(netted("c", 2, MINUTE)).await;
    let late = fixture.accept_event(netted("d", 1, 15 * MINUTE + Duration::from_millis(1))).await;
    assert_eq!(fixture.repeat(netted("e", 1, 20 * MINUTE)).await.id, late.id, "the newest with this content");
    // Who does not ask for it is not compared, and other flows say what they like.
    fixture.accept_event(NewEvent { content_window: None, ..netted("f", 1, 20 * MINUTE) }).await;
    fixture.accept_event(NewEvent { flow: "orders".into(), ..netted("g", 1, 20 * MINUTE) }).await;
    let tally = fixture.ledger.source_day_counts("2026-03-01".into()).await.unwrap().remove(0);
    assert_eq!((tally.accepted, tally.duplicates, tally.by_content, tally.clashes), (5, 2, 2, 0));
}

pub(crate) async fn an_id_answered_as_a_repeat_of_content_stays_bound_beyond_the_window<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(8);
    let first = fixture.accept_event(netted("h-1", 1, Duration::ZERO)).await;
    for n in 0..20 {
        fixture.repeat(netted(&format!("h-2-{n}"), 1, MINUTE)).await;
    }
    let fixture = fixture.reopen().await;
    let hour = 60 * MINUTE;
    for n in 0..20 {
        let again = fixture.repeat(netted(&format!("h-2-{n}"), 1, hour)).await;
        assert_eq!((again.id, again.by, again.clash), (first.id, MatchedBy::Key, false), "{n}");
    }
    let other = fixture.repeat(netted("h-2-0", 2, hour)).await;
    assert_eq!((other.id, other.clash), (first.id, true), "other content under a bound id is a key clash");
    let unbound = fixture.accept_event(netted("h-3", 1, hour)).await;
    assert_ne!(unbound.id, first.id, "beyond the window an id that was never answered is new");
    let expired = Duration::from_secs(31 * 86_400);
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 100, at: START + expired };
    assert_eq!(fixture.ledger.prune(prune.clone()).await.unwrap(), Pruned { rows: 20, more: false });
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 0, more: false });
    let late = NewEvent { expires_at: START + 2 * expired, ..netted("h-2-1", 1, expired) };
    assert_ne!(fixture.accept_event(late.clone()).await.id, first.id, "the lifetime of the key is over");
    let fixture = fixture.reopen().await;
    fixture.repeat(late).await;
}

pub(crate) async fn an_id_whose_own_event_expired_can_be_bound_to_another<D: Driver>() {
    let fixture = open::<D>();
    let brief = NewEvent { expires_at: START + MINUTE, ..netted("h-1", 1, Duration::ZERO) };
    let own = fixture.accept_event(brief).await;
    let first = fixture.accept_event(netted("h-2", 2, 2 * MINUTE)).await;
    assert_eq!(fixture.repeat(netted("h-1", 2, 3 * MINUTE)).await.id, first.id);
    let again = fixture.repeat(netted("h-1", 2, 60 * MINUTE)).await;
    assert_eq!((again.id, again.by), (first.id, MatchedBy::Key));
    assert_ne!(own.id, first.id);
}

/// An event of a sender that signs the content and not the id.
fn signed(key: &str, content: u8, after: Duration) -> NewEvent {
    let signed_content = Some(KeyDigest::signed_content("leads", "lead.created", None, [content; 16]));
    NewEvent { signed_content, received_at: START + after, ..saying(key, content) }
}

pub(crate) async fn signed_content_under_another_id_is_a_repeat_for_the_lifetime_of_the_key<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(8);
    let first = fixture.accept_event(signed("h-1", 1, Duration::ZERO)).await;
    for n in 2..30 {
        fixture.accept_event(signed(&format!("other-{n}"), n, Duration::ZERO)).await;
    }
    let fixture = fixture.reopen().await;
    let day = Duration::from_secs(86_400);
    for n in 0..3 {
        let repeat = fixture.repeat(signed(&format!("h-2-{n}"), 1, 29 * day)).await;
        assert_eq!((repeat.id, repeat.by, repeat.clash), (first.id, MatchedBy::Content, false));
    }
    // An id that an attacker attached to captured content stays free for the sender's own event.
    let genuine = fixture.accept_event(signed("h-2-0", 77, 29 * day)).await;
    assert_ne!(genuine.id, first.id);
    // Captured content under the id of another event is no update of that event.
    let update = NewEvent { clash: ClashPolicy::Update, ..signed("h-2-0", 1, 29 * day) };
    assert_eq!(fixture.repeat(update).await.id, first.id);
    let late = NewEvent { expires_at: START + 60 * day, ..signed("h-2-1", 1, 30 * day) };
    assert_ne!(fixture.accept_event(late).await.id, first.id, "the lifetime of the key is over");
    let plain = NewEvent { signed_content: None, ..signed("h-4", 1, day) };
    fixture.accept_event(plain).await;
}

pub(crate) async fn contents_of_two_types_are_two_contents<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(netted("a", 1, Duration::ZERO)).await;
    let other = NewEvent { event_type: "lead.updated".into(), ..netted("b", 1, MINUTE) };
    assert_ne!(fixture.accept_event(other).await.id, first.id);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.repeat(netted("c", 1, 2 * MINUTE)).await.id, first.id);
}

pub(crate) async fn contents_are_compared_over_a_restart<D: Driver>() {
    let fixture = open::<D>();
    let old = fixture.accept_event(netted("old", 9, Duration::ZERO)).await;
    let first = fixture.accept_event(netted("a", 1, 20 * MINUTE)).await;
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.repeat(netted("b", 1, 25 * MINUTE)).await.id, first.id);
    assert_ne!(fixture.accept_event(netted("new", 9, 25 * MINUTE)).await.id, old.id);
}

pub(crate) async fn a_dropped_variant_is_kept_to_be_looked_at<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(saying("a", 1)).await;
    assert_eq!(fixture.ledger.variants(first.seq).await.unwrap(), Default::default());
    for content in [2, 3, 2] {
        let repeat = fixture.repeat(saying("a", content)).await;
        assert_eq!((repeat.id, repeat.by, repeat.clash), (first.id, MatchedBy::Key, true));
    }
    let fixture = fixture.reopen().await;
    let variants = fixture.ledger.variants(first.seq).await.unwrap();
    let kept = |content: u8, times| VariantRecord {
        received_at: START,
        fingerprint: [content; 16],
        times,
        event: None,
        body: Some((*saying("a", content).body).clone()),
    };
    let seen: Vec<(u64, Option<i64>, Option<EventBody>)> =
        variants.kept.iter().map(|variant| (variant.times, variant.event, variant.body.clone())).collect();
    assert_eq!(seen, [kept(2, 2), kept(3, 1)].map(|variant| (variant.times, variant.event, variant.body)));
    assert!(!fixture.repeat(saying("a", 1)).await.clash);
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 1);
}

pub(crate) async fn stored_requests_are_read_oldest_first_with_what_their_keys_dropped<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.event_span(Time(0)).await.unwrap(), None);
    let first = fixture.accept_event(saying("a", 1)).await;
    fixture.repeat(saying("a", 2)).await;
    let later = NewEvent { received_at: Time(START.0 + 60_000), ..saying("b", 3) };
    let second = fixture.accept_event(later).await;
    let third = fixture.accept_event(NewEvent { received_at: Time(START.0 + 120_000), ..saying("c", 4) }).await;
    let fixture = fixture.reopen().await;
    let read = async |after, limit, body_bytes_max| {
        let query = StoredQuery { after, limit, body_bytes_max };
        fixture.ledger.events_after(query).await.unwrap()
    };
    let all = read(0, 10, usize::MAX).await;
    let seen: Vec<_> = all.iter().map(|stored| (stored.event.seq, stored.dropped.len())).collect();
    assert_eq!(seen, [(first.seq, 1), (second.seq, 0), (third.seq, 0)]);
    assert_eq!(all[0].body.as_ref(), Some(&*saying("a", 1).body));
    assert_eq!(all[0].dropped[0].body.as_ref(), Some(&*saying("a", 2).body));
    assert_eq!(read(first.seq, 1, usize::MAX).await.len(), 1);
    assert_eq!(read(0, 10, 1).await.len(), 1, "one event at least, and then the bound counts");
    let span = async |ms: i64| fixture.ledger.event_span(Time(START.0 + ms)).await.unwrap();
    assert_eq!(span(-1).await, Some((first.seq, third.seq)));
    assert_eq!(span(60_000).await, Some((second.seq, third.seq)));
    assert_eq!(span(60_001).await, Some((third.seq, third.seq)));
    assert_eq!(span(120_001).await, None);
}

pub(crate) async fn variants_beyond_the_bound_are_counted<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(saying("a", 1)).await;
    for content in 2..=12 {
        fixture.repeat(saying("a", content)).await;
    }
    fixture.repeat(saying("a", 2)).await;
    let variants = fixture.ledger.variants(first.seq).await.unwrap();
    assert_eq!((variants.kept.len(), variants.further, variants.kept[0].times), (8, 3, 2));
    let tally = fixture.ledger.source_day_counts("2026-03-01".into()).await.unwrap().remove(0);
    assert_eq!((tally.duplicates, tally.clashes), (12, 12));
}

pub(crate) async fn variants_go_with_the_body_of_their_event<D: Driver>() {
    let fixture = open::<D>();
    let job = fixture.job_that_is("a", JobState::Succeeded).await;
    fixture.repeat(saying("a", 2)).await;
    let prune = Prune { bodies_before: Time::NEVER, events_before: Time(0), rows_max: 100, at: START };
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 1, more: false });
    assert!(fixture.ledger.variants(job.seq).await.unwrap().kept.is_empty());
}

pub(crate) async fn an_update_is_an_event_of_its_own_once<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(saying("a", 1)).await;
    fixture.announced.recv().await.unwrap();
    let update = fixture.accept_event(clashing("a", 2, ClashPolicy::Update)).await;
    assert_eq!((update.variant_of, update.quarantined), (Some(first.id), false));
    assert_ne!(update.id, first.id);
    assert_eq!(fixture.announced.recv().await.unwrap()[0].job.seq, update.seq);
    let record = fixture.event(&update).await;
    assert_eq!((record.variant_of, record.key_text.as_str()), (Some(first.seq), "a"));
    assert_eq!(fixture.ledger.find_event(update.id).await.unwrap().unwrap().seq, update.seq);

    let fixture = fixture.reopen().await;
    let again = fixture.repeat(clashing("a", 2, ClashPolicy::Update)).await;
    assert_eq!((again.id, again.clash), (update.id, false), "a repeat of the variant is a repeat of that one");
    assert_eq!(fixture.repeat(clashing("a", 1, ClashPolicy::Update)).await.id, first.id);
    let third = fixture.accept_event(clashing("a", 3, ClashPolicy::Update)).await;
    let variants = fixture.ledger.variants(first.seq).await.unwrap();
    let events: Vec<_> = variants.kept.iter().map(|variant| (variant.event, variant.times)).collect();
    assert_eq!(events, [(Some(update.seq), 2), (Some(third.seq), 1)]);
    assert_eq!(variants.kept[0].body.as_ref(), Some(&*saying("a", 2).body));
    let tally = fixture.ledger.source_day_counts("2026-03-01".into()).await.unwrap().remove(0);
    assert_eq!((tally.accepted, tally.duplicates, tally.clashes), (3, 2, 2));
}

pub(crate) async fn an_update_at_a_bucket_edge_is_the_same_on_both_sides<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.accept_event(saying("ann|1", 1)).await;
    let beside =
        |content| NewEvent { adjacent_keys: vec![digest("ann|1")], ..clashing("ann|2", content, ClashPolicy::Update) };
    let update = fixture.accept_event(beside(2)).await;
    assert_eq!(update.variant_of, Some(first.id));
    assert_eq!(fixture.repeat(beside(2)).await.id, update.id);
    assert_eq!(fixture.repeat(clashing("ann|1", 2, ClashPolicy::Update)).await.id, update.id);
}

pub(crate) async fn a_quarantined_clash_waits_for_a_person<D: Driver>() {
    let mut fixture = open::<D>();
    let first = fixture.accept_event(saying("a", 1)).await;
    fixture.announced.recv().await.unwrap();
    let jobs = vec![NewJob::new("crm", "default").or_dead_in("leads-dead")];
    let clash = fixture.accept_event(NewEvent { jobs, ..clashing("a", 2, ClashPolicy::Quarantine) }).await;
    assert_eq!((clash.variant_of, clash.quarantined), (Some(first.id), true));
    let job = fixture.jobs_of(&clash).await.remove(0);
    let failure = job.failure.clone().unwrap();
    assert_eq!((job.state, failure.code.as_str()), (JobState::Dead, "key-clash"));
    assert_eq!(job.dead_letter_queue.as_deref(), Some("leads-dead"));
    assert!(failure.message.contains(&first.id.to_string()), "{}", failure.message);
    assert_eq!(fixture.repeat(clashing("a", 2, ClashPolicy::Quarantine)).await.id, clash.id);
    assert!(fixture.announced.try_recv().is_err(), "nothing is to be done yet");
}

pub(crate) async fn a_quarantined_event_is_dead_from_the_start_and_a_replay_revives_it<D: Driver>() {
    let mut fixture = open::<D>();
    let failure = Failure::new(FailureClass::Mapping, "schema", "email: is missing");
    let quarantine = Some(Quarantine::new(failure.clone()));
    let jobs = vec![NewJob::new("crm", "default").or_dead_in("leads-dead")];
    let accepted = fixture.accept_event(NewEvent { quarantine, jobs, ..event("a") }).await;
    assert!(accepted.quarantined && accepted.variant_of.is_none());
    assert!(fixture.announced.try_recv().is_err(), "nothing is to be done yet");
    let filter = JobFilter {
        states: vec![JobState::Dead],
        dead_letter_queue: Some("leads-dead".into()),
        code: Some("schema".into()),
        ..JobFilter::default()
    };
    let (job, _) = fixture.ledger.list_jobs(filter, Page { after: None, limit: 10 }).await.unwrap().rows.remove(0);
    assert_eq!((job.seq, job.failure, job.finished_at), (accepted.seq, Some(failure), Some(START)));
    assert!(fixture.ledger.live_lanes().await.unwrap().is_empty());
    let replay = Replay { jobs: vec![job.id], actor: "ann".into(), reason: "mapped".into(), revision: None, at: START };
    assert_eq!(fixture.ledger.replay(replay).await.unwrap().len(), 1);
    let job = fixture.read(job.id).await;
    assert_eq!((job.state, job.failure, job.dead_letter_queue, job.finished_at), (JobState::Queued, None, None, None));
    fixture.attempt(job.id, 1, JobState::Succeeded).await;
}

pub(crate) async fn lossy_conversions_are_counted_by_field<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(4);
    let warning = |field: &str| MappingWarning { field: field.to_owned(), code: LossCode::NotANumber };
    let with = |key: &str, fields: &[&str]| NewEvent {
        warnings: fields.iter().map(|field| warning(field)).collect(),
        ..event(key)
    };
    fixture.accept_event(with("a", &["attributes.size"])).await;
    fixture.accept_event(with("b", &["attributes.size", "attributes.age"])).await;
    fixture.accept_event(with("c", &[])).await;
    // A duplicate brings no event, and so no warning.
    fixture.repeat(with("a", &["attributes.size"])).await;
    let fixture = fixture.reopen().await;
    let counts = fixture.ledger.mapping_warnings("website".into()).await.unwrap();
    let counts: Vec<_> = counts.into_iter().map(|count| (count.warning, count.count)).collect();
    assert_eq!(counts, [(warning("attributes.age"), 1), (warning("attributes.size"), 2)]);
    assert_eq!(fixture.ledger.mapping_warnings("other".into()).await.unwrap(), []);
}

pub(crate) async fn how_late_a_source_repeats_itself_is_known<D: Driver>() {
    let fixture = open_with_few_recent_keys::<D>(4);
    let sent = |key: &str, after: Duration| NewEvent {
        received_at: START + after,
        expires_at: START + after + 30 * MINUTE,
        ..event(key)
    };
    for key in ["a", "b"] {
        fixture.accept_event(sent(key, Duration::ZERO)).await;
    }
    for _ in 0..8 {
        fixture.repeat(sent("a", MINUTE)).await;
    }
    fixture.repeat(sent("b", 20 * MINUTE)).await;
    // A clash is not a repeat.
    fixture.repeat(NewEvent { fingerprint: [7; 16], ..sent("b", 25 * MINUTE) }).await;
    fixture.accept_event(sent("a", 100 * MINUTE)).await;
    let fixture = fixture.reopen().await;
    let stats = fixture.ledger.duplicate_stats("website".into()).await.unwrap();
    assert_eq!((stats.duplicates, stats.after_expiry), (10, 1));
    let within = |lateness: Option<Duration>, minutes: u32| {
        let lateness = lateness.unwrap();
        assert!(
            lateness >= minutes * MINUTE && lateness < minutes * MINUTE * 5 / 4 + MINUTE,
            "{lateness:?} is not about {minutes}"
        );
    };
    within(stats.p50, 1);
    within(stats.p99, 100);
    within(stats.suggested_ttl, 100);
    assert!(stats.suggested_ttl.unwrap() > 100 * MINUTE);
    assert_eq!(fixture.ledger.duplicate_stats("other".into()).await.unwrap(), Default::default());
}

pub(crate) async fn the_last_repeats_of_an_event_are_kept_with_their_difference<D: Driver>() {
    use DuplicateDifference::{Content, Key, Nothing};
    let fixture = open::<D>();
    let first = fixture.accept_event(netted("a", 1, Duration::ZERO)).await;
    assert_eq!(fixture.ledger.event_duplicates(first.seq).await.unwrap(), None);
    let id = |n: u8| format!("{n:032x}");
    let traced = |event: NewEvent, n: u8| NewEvent { trace: format!("{}-0000000000000001-01", id(n)), ..event };
    fixture.repeat(traced(netted("a", 1, MINUTE), 1)).await;
    fixture.repeat(traced(netted("b", 1, 2 * MINUTE), 2)).await;
    fixture.repeat(traced(netted("a", 2, 3 * MINUTE), 3)).await;
    let fixture = fixture.reopen().await;
    let known = fixture.ledger.event_duplicates(first.seq).await.unwrap().unwrap();
    assert_eq!((known.count, known.first_at, known.last_at), (3, START + MINUTE, START + 3 * MINUTE));
    let shown = |known: &EventDuplicates| -> Vec<(DuplicateDifference, String)> {
        known.recent.iter().map(|request| (request.differs, request.trace_id())).collect()
    };
    let expected = [(Nothing, 1), (Key, 2), (Content, 3)].map(|(differs, n)| (differs, id(n)));
    assert_eq!(shown(&known), expected);
    // Many in one commit.
    let many = (0..20).map(|n| traced(netted("a", 1, 4 * MINUTE), 100 + n)).collect();
    fixture.ledger.accept_all(many).await.unwrap();
    let known = fixture.ledger.event_duplicates(first.seq).await.unwrap().unwrap();
    assert_eq!((known.count, known.first_at, known.recent.len()), (23, START + MINUTE, RECENT_DUPLICATES_MAX));
    assert_eq!(shown(&known).last(), Some(&(Nothing, id(119))));
    let other = fixture.accept_event(saying("z", 9)).await;
    assert_eq!(fixture.ledger.event_duplicates(other.seq).await.unwrap(), None);
}
