//! How SQLite goes about the questions that are asked while millions of finished jobs lie around.

use rusqlite::{Connection, params_from_iter, types::Value as Sql};
use sluice_domain::job::{JobId, JobState};

use super::read::{JobFilter, Page, list_jobs_sql, matching_jobs_sql};
use super::{Role, open};

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

const PAGE: Page = Page { after: Some(9), limit: 50 };

#[test]
fn a_window_of_live_jobs_is_one_stretch_of_the_live_index() {
    let plan = plan(include_str!("sql/jobs_live.sql"), vec![Sql::Text("w".into()), Sql::Integer(0), Sql::Integer(10)]);
    assert_eq!(plan, "SEARCH job USING INDEX job_live (worker=? AND id>?)");
}

#[test]
fn running_jobs_are_found_among_the_live_ones() {
    let plan = plan(include_str!("sql/jobs_running.sql"), numbers(2));
    assert!(plan.contains("SCAN job USING INDEX job_live"), "{plan}");
}

#[test]
fn workers_with_live_jobs_are_found_by_one_look_up_each() {
    let plan = plan(include_str!("sql/workers_live.sql"), vec![]);
    assert_eq!(plan.matches("SEARCH job USING COVERING INDEX job_live").count(), 2, "{plan}");
    assert!(!plan.contains("SCAN job"), "{plan}");
}

#[test]
fn what_jobs_need_is_counted_without_those_that_are_over_and_without_sorting() {
    let plan = plan(include_str!("sql/pinned.sql"), vec![]);
    assert!(plan.contains("job USING INDEX job_live") && plan.contains("job USING INDEX job_parked"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn live_jobs_are_counted_without_their_rows() {
    let plan = plan(include_str!("sql/counts_live.sql"), vec![]);
    assert!(plan.contains("SCAN job USING COVERING INDEX job_live"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "a million jobs are sorted in memory: {plan}");
    // Its columns name the states one by one.
    let live: Vec<i64> = JobState::ALL.into_iter().filter(|state| state.is_live()).map(JobState::code).collect();
    assert_eq!(live, [0, 1, 2, 3]);
}

#[test]
fn dead_letters_are_found_without_walking_past_finished_jobs() {
    let since = plan(include_str!("sql/dead_reasons.sql"), numbers(2));
    assert!(since.contains("SEARCH job USING INDEX job_parked (state=?)"), "{since}");
    for states in [&[JobState::Dead][..], &[JobState::Unknown], &[JobState::Dead, JobState::Unknown]] {
        let (sql, values) = list_jobs_sql(&parked(states), PAGE);
        let listed = plan(&sql, values);
        assert!(listed.contains("SEARCH j USING INDEX job_parked (state=? AND id<?)"), "{states:?}: {listed}");
        let (sql, values) = matching_jobs_sql(&parked(states), JobId(0), 50);
        let matched = plan(&sql, values);
        assert!(
            matched.contains("SEARCH j USING COVERING INDEX job_parked (state=? AND id>?)"),
            "{states:?}: {matched}"
        );
    }
    let (sql, values) = list_jobs_sql(&parked(&[JobState::Dead]), Page { after: None, limit: 50 });
    let first = plan(&sql, values);
    assert!(first.contains("USING INDEX job_parked"), "{first}");
}

#[test]
fn live_jobs_of_a_worker_are_listed_from_the_live_index() {
    let filter = JobFilter { states: vec![JobState::Retrying], worker: Some("w".into()), ..JobFilter::default() };
    let (sql, values) = list_jobs_sql(&filter, PAGE);
    let plan = plan(&sql, values);
    assert!(plan.contains("SEARCH j USING INDEX job_live (worker=? AND id<?)"), "{plan}");
}

#[test]
fn pruning_walks_events_from_the_oldest_and_sorts_nothing() {
    for (sql, count) in [(include_str!("sql/prunable_bodies.sql"), 0), (include_str!("sql/prunable_events.sql"), 1)] {
        let plan = plan(sql, numbers(count));
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        assert!(!plan.contains("SCAN j"), "{plan}");
        assert!(plan.contains("SEARCH j USING INTEGER PRIMARY KEY"), "{plan}");
    }
}

#[test]
fn one_row_is_never_looked_for_in_all_of_them() {
    let files = [
        (include_str!("sql/event.sql"), 1),
        (include_str!("sql/event_key.sql"), 1),
        (include_str!("sql/event_body.sql"), 1),
        (include_str!("sql/job.sql"), 1),
        (include_str!("sql/jobs_of_event.sql"), 2),
        (include_str!("sql/effects.sql"), 1),
        (include_str!("sql/attempts.sql"), 1),
        (include_str!("sql/begin_job.sql"), 3),
        (include_str!("sql/settle_job.sql"), 14),
        (include_str!("sql/job_contact.sql"), 1),
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
        (include_str!("sql/settle_effect.sql"), 8),
        (include_str!("sql/place_effect.sql"), 4),
        (include_str!("sql/replay_job.sql"), 3),
        (include_str!("sql/resolve_job.sql"), 3),
        (include_str!("sql/resolve_effect.sql"), 3),
        (include_str!("sql/drop_job.sql"), 2),
        (include_str!("sql/noting_job.sql"), 2),
        (include_str!("sql/job_entity.sql"), 2),
        (include_str!("sql/retries_spent.sql"), 3),
        (include_str!("sql/delete_retries.sql"), 2),
        (include_str!("sql/note.sql"), 2),
        (include_str!("sql/mark.sql"), 3),
        (include_str!("sql/release_marks.sql"), 1),
        (include_str!("sql/delete_marks.sql"), 2),
        (include_str!("sql/delete_jobs.sql"), 2),
        (include_str!("sql/delete_effects.sql"), 2),
        (include_str!("sql/delete_attempts.sql"), 2),
        (include_str!("sql/delete_key_pages.sql"), 2),
        (include_str!("sql/next_key_page.sql"), 1),
        (include_str!("sql/has_events.sql"), 2),
        (include_str!("sql/last_ord.sql"), 0),
        (include_str!("sql/last_job.sql"), 0),
    ];
    let directory = tempfile::tempdir().unwrap();
    let connection = open(directory.path(), Role::Write).unwrap();
    for (sql, count) in files {
        let plan = explain(&connection, sql, numbers(count));
        let scans = plan.lines().filter(|line| line.starts_with("SCAN") && !line.contains("CONSTANT ROW")).count();
        assert_eq!(scans, 0, "{sql}\n{plan}");
    }
}
