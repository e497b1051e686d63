//! Query plans: reads stay fast however many finished jobs there are.

use rusqlite::{Connection, params_from_iter, types::Value as Sql};
use sluice_domain::event::EventStatus;
use sluice_domain::job::JobState;

use super::event_lists::walk_events_sql;
use super::lists::{IndexRange, walk_jobs_sql};
use super::search::Order;
use super::{Role, open};
use crate::filter::{EventQuery, JobFilter};

fn plan(sql: &str, values: Vec<Sql>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let connection = open(directory.path(), Role::Write).unwrap();
    explain(&connection, sql, values)
}

fn explain(connection: &Connection, sql: &str, values: Vec<Sql>) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
    steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("\n")
}

fn numbers(count: usize) -> Vec<Sql> {
    vec![Sql::Integer(1); count]
}

fn parked(states: &[JobState]) -> JobFilter {
    JobFilter { states: states.to_vec(), ..JobFilter::default() }
}

/// The plan of one walk over jobs, in either order.
fn walk_plans(filter: &JobFilter, range: Option<&IndexRange>) -> [String; 2] {
    [Order::NewestFirst, Order::OldestFirst].map(|order| {
        let (sql, values) = walk_jobs_sql(filter, &(1..9), order, range);
        plan(&sql, values)
    })
}

fn lane(numbers: usize) -> Vec<Sql> {
    let lane = ["crm", "w"].map(|name| Sql::Text(name.into()));
    lane.into_iter().chain(vec![Sql::Integer(1); numbers]).collect()
}

#[test]
fn the_backlog_is_a_range_of_its_index_and_checks_lanes_by_theirs() {
    let ready = plan(include_str!("sql/backlog_ready.sql"), lane(3));
    assert!(ready.contains("SEARCH j USING INDEX job_ready (destination=? AND worker=? AND id>?)"), "{ready}");
    let due = plan(include_str!("sql/backlog_due.sql"), lane(2));
    assert!(due.contains("SEARCH q USING INDEX deferred_due (destination=? AND worker=? AND due_at<?)"), "{due}");
    for plan in [&ready, &due] {
        assert!(
            plan.contains(
                "SEARCH d USING COVERING INDEX deferred_lane (destination=? AND worker=? AND entity=? AND id<?)"
            ),
            "{plan}"
        );
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN j"), "{plan}");
    }
    let blocked = plan(include_str!("sql/blocked_jobs.sql"), lane(2));
    assert!(blocked.contains("SEARCH j USING INDEX job_ready (destination=? AND worker=?)"), "{blocked}");
    let blocking = plan(include_str!("sql/blocking_jobs.sql"), vec![Sql::Text("[1]".into()), Sql::Integer(1)]);
    assert!(blocking.contains("SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"), "{blocking}");
    for plan in [&blocked, &blocking] {
        assert!(plan.contains("SEARCH d USING COVERING INDEX deferred_lane"), "{plan}");
    }
    let next = plan(include_str!("sql/next_due.sql"), lane(1));
    assert_eq!(next, "SEARCH deferred USING COVERING INDEX deferred_due (destination=? AND worker=? AND due_at>?)");
}

#[test]
fn jobs_are_loaded_by_their_keys() {
    for (sql, table) in [
        (include_str!("sql/load_jobs.sql"), "job USING INTEGER PRIMARY KEY (rowid=?)"),
        (include_str!("sql/load_events.sql"), "event USING INTEGER PRIMARY KEY (rowid=?)"),
        (include_str!("sql/load_bodies.sql"), "b USING INTEGER PRIMARY KEY (rowid=?)"),
        (include_str!("sql/body_lengths.sql"), "event_body USING INTEGER PRIMARY KEY (rowid=?)"),
        (include_str!("sql/load_effects.sql"), "effect USING PRIMARY KEY (job=?)"),
    ] {
        let plan = plan(sql, vec![Sql::Text("[1]".into())]);
        assert!(plan.contains(&format!("SEARCH {table}")), "{plan}");
    }
}

#[test]
fn the_oldest_jobs_are_the_first_entries_of_an_index() {
    let ready = plan(include_str!("sql/oldest_ready.sql"), [lane(0), numbers(1)].concat());
    assert!(ready.contains("SEARCH job USING INDEX job_ready (destination=? AND worker=?)"), "{ready}");
    let waiting = plan(include_str!("sql/oldest_waiting.sql"), vec![Sql::Text("w".into()), Sql::Integer(9)]);
    assert!(waiting.contains("SEARCH q USING COVERING INDEX deferred_worker (worker=?)"), "{waiting}");
    assert!(!format!("{ready}{waiting}").contains("TEMP B-TREE"), "{ready}\n{waiting}");
    let dead = plan(include_str!("sql/oldest_dead_letter.sql"), vec![Sql::Text("w".into()), Sql::Integer(9)]);
    assert!(dead.contains("SEARCH job USING INDEX job_parked (dead_letter_queue=?)"), "{dead}");
    assert!(!dead.contains("TEMP B-TREE"), "{dead}");
}

#[test]
fn totals_are_read_without_the_jobs() {
    for sql in [
        include_str!("sql/job_totals.sql"),
        include_str!("sql/live_lanes.sql"),
        include_str!("sql/pinned.sql"),
        include_str!("sql/event_count.sql"),
    ] {
        let plan = plan(sql, vec![]);
        assert!(!plan.lines().any(|line| line.ends_with(" job") || line.contains(" job ")), "{plan}");
        assert!(!plan.lines().any(|line| line.ends_with(" event") || line.contains(" event ")), "{plan}");
    }
}

#[test]
fn dead_letters_are_found_without_walking_past_finished_jobs() {
    let since = plan(include_str!("sql/dead_reasons.sql"), numbers(2));
    assert!(since.contains("job USING INDEX job_parked"), "{since}");
    for states in [&[JobState::Dead][..], &[JobState::Unknown], &[JobState::Dead, JobState::Unknown]] {
        for queue in [Some("leads-dead".to_owned()), None] {
            let range = IndexRange::Parked { dead_letter_queue: queue };
            for walked in walk_plans(&parked(states), Some(&range)) {
                assert!(
                    walked.contains("SEARCH j USING INDEX job_parked (dead_letter_queue=? AND id>? AND id<?)"),
                    "{walked}"
                );
                assert!(!walked.contains("TEMP B-TREE"), "{walked}");
            }
        }
    }
}

#[test]
fn live_jobs_are_listed_in_the_order_of_an_index() {
    let (destination, worker) = ("crm".to_owned(), "w".to_owned());
    let ready = IndexRange::Ready { destination, worker: worker.clone() };
    for (state, range, index, id) in [
        (JobState::Queued, ready, "j USING INDEX job_ready (destination=? AND worker=?", "id"),
        (
            JobState::Retrying,
            IndexRange::Waiting { worker },
            "q USING COVERING INDEX deferred_worker (worker=?",
            "rowid",
        ),
    ] {
        for walked in walk_plans(&parked(&[state]), Some(&range)) {
            assert!(walked.contains(&format!("SEARCH {index} AND {id}>? AND {id}<?)")), "{walked}");
            assert!(!walked.contains("TEMP B-TREE"), "{walked}");
        }
    }
}

/// Every filter of a list of jobs and of events walks a range of ids, so that the search can end anywhere and continue there.
#[test]
fn every_search_walks_ids_in_order() {
    let text = || Some("x".to_owned());
    let filters = [
        JobFilter::default(),
        JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() },
        JobFilter { code: text(), class: text(), ..JobFilter::default() },
        JobFilter { source: text(), worker: text(), queue: text(), ..JobFilter::default() },
    ];
    for filter in filters {
        for walked in walk_plans(&filter, None) {
            assert!(walked.contains("SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"), "{walked}");
            assert!(!walked.contains("TEMP B-TREE") && !walked.contains("SCAN"), "{walked}");
        }
    }
    let plan_of = |query: EventQuery| {
        let (sql, values) = walk_events_sql(&query, &(1..9));
        plan(&sql, values)
    };
    for query in [
        EventQuery::default(),
        EventQuery { source: text(), event_type: text(), ..EventQuery::default() },
        EventQuery { status: Some(EventStatus::Unrouted), ..EventQuery::default() },
    ] {
        let walked = plan_of(query);
        assert!(walked.contains("SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"), "{walked}");
        assert!(!walked.contains("TEMP B-TREE"), "{walked}");
    }
    let seqs = plan_of(EventQuery { seqs: Some(vec![1]), ..EventQuery::default() });
    assert!(seqs.contains("SEARCH e USING INTEGER PRIMARY KEY"), "{seqs}");
}

#[test]
fn pruning_walks_events_from_the_oldest_and_sorts_nothing() {
    for (sql, count) in [(include_str!("sql/prunable_bodies.sql"), 1), (include_str!("sql/prunable_events.sql"), 2)] {
        let plan = plan(sql, numbers(count));
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        assert!(!plan.contains("SCAN j"), "{plan}");
        assert!(plan.contains("SEARCH j USING INTEGER PRIMARY KEY"), "{plan}");
    }
}

#[test]
fn a_single_row_is_never_searched_by_a_scan() {
    let files = [
        (include_str!("sql/event.sql"), 1),
        (include_str!("sql/event_key.sql"), 1),
        (include_str!("sql/event_body.sql"), 1),
        (include_str!("sql/job.sql"), 1),
        (include_str!("sql/jobs_of_event.sql"), 2),
        (include_str!("sql/effects.sql"), 1),
        (include_str!("sql/attempts.sql"), 1),
        (include_str!("sql/begin_job.sql"), 6),
        (include_str!("sql/settle_job.sql"), 20),
        (include_str!("sql/job_head.sql"), 1),
        (include_str!("sql/job_message.sql"), 1),
        (include_str!("sql/contact_key.sql"), 1),
        (include_str!("sql/contact_keys_after.sql"), 2),
        (include_str!("sql/last_contact.sql"), 0),
        (include_str!("sql/has_contacts.sql"), 2),
        (include_str!("sql/variants.sql"), 1),
        (include_str!("sql/variant_slots.sql"), 1),
        (include_str!("sql/repeat_variant.sql"), 2),
        (include_str!("sql/further_variant.sql"), 2),
        (include_str!("sql/delete_variants.sql"), 1),
        (include_str!("sql/lateness.sql"), 1),
        (include_str!("sql/mapping_warnings.sql"), 1),
        (include_str!("sql/effect.sql"), 2),
        (include_str!("sql/count_effects.sql"), 3),
        (include_str!("sql/attempt_count.sql"), 1),
        (include_str!("sql/job_identity.sql"), 1),
        (include_str!("sql/mark_body_pruned.sql"), 2),
        (include_str!("sql/proof.sql"), 2),
        (include_str!("sql/delete_proofs.sql"), 2),
        (include_str!("sql/change_seq.sql"), 0),
        (include_str!("sql/replay_job.sql"), 5),
        (include_str!("sql/waiting_under_link.sql"), 3),
        (include_str!("sql/waiting_event.sql"), 1),
        (include_str!("sql/waiting_event_of_job.sql"), 1),
        (include_str!("sql/delete_waiting_event.sql"), 1),
        (include_str!("sql/delete_waiting_links.sql"), 1),
        (include_str!("sql/expired_waiting_events.sql"), 2),
        (include_str!("sql/event_identity.sql"), 1),
        (include_str!("sql/event_identities.sql"), 2),
        (include_str!("sql/identified_events_of_contact.sql"), 1),
        (include_str!("sql/identified_events_of_key.sql"), 1),
        (include_str!("sql/delete_event_identity.sql"), 1),
        (include_str!("sql/set_event_contact.sql"), 2),
        (include_str!("sql/due_identity_lookups.sql"), 2),
        (include_str!("sql/keep_identity_lookup.sql"), 5),
        (include_str!("sql/identity_lookup.sql"), 1),
        (include_str!("sql/delete_identity_lookup.sql"), 1),
        (include_str!("sql/event_duplicates.sql"), 1),
        (include_str!("sql/delete_event_duplicates.sql"), 1),
        (include_str!("sql/applied_effects.sql"), 1),
        (include_str!("sql/replay.sql"), 1),
        (include_str!("sql/advance_replay.sql"), 7),
        (include_str!("sql/control_replay.sql"), 3),
        (include_str!("sql/resolve_job.sql"), 4),
        (include_str!("sql/drop_job.sql"), 2),
        (include_str!("sql/unknown_effect.sql"), 1),
        (include_str!("sql/retries_spent.sql"), 3),
        (include_str!("sql/delete_retries.sql"), 2),
        (include_str!("sql/mark.sql"), 3),
        (include_str!("sql/release_marks.sql"), 1),
        (include_str!("sql/delete_marks.sql"), 2),
        (include_str!("sql/delete_jobs.sql"), 2),
        (include_str!("sql/delete_effects.sql"), 2),
        (include_str!("sql/delete_attempts.sql"), 2),
        (include_str!("sql/delete_key_pages.sql"), 2),
        (include_str!("sql/next_key_page.sql"), 1),
        (include_str!("sql/has_events.sql"), 2),
        (include_str!("sql/user.sql"), 1),
        (include_str!("sql/delete_user.sql"), 1),
        (include_str!("sql/credential.sql"), 1),
        (include_str!("sql/take_link.sql"), 1),
        (include_str!("sql/use_credential.sql"), 2),
        (include_str!("sql/delete_credential.sql"), 2),
        (include_str!("sql/delete_credentials_of.sql"), 2),
        (include_str!("sql/delete_expired_credentials.sql"), 1),
        (include_str!("sql/delete_oldest_sessions.sql"), 2),
        (include_str!("sql/last_seq.sql"), 0),
        (include_str!("sql/last_job.sql"), 0),
        (include_str!("sql/event_stored_from.sql"), 1),
        (include_str!("sql/first_job_from.sql"), 1),
        (include_str!("sql/job_created_at.sql"), 1),
        (include_str!("sql/audit_time_from.sql"), 1),
    ];
    let directory = tempfile::tempdir().unwrap();
    let connection = open(directory.path(), Role::Write).unwrap();
    for (sql, count) in files {
        let plan = explain(&connection, sql, numbers(count));
        let scans = plan.lines().filter(|line| line.starts_with("SCAN") && !line.contains("CONSTANT ROW")).count();
        assert_eq!(scans, 0, "{sql}\n{plan}");
    }
}
