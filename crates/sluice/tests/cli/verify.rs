//! `sluice verify` and `sluice balance` on the ledger of a real node, while it runs and after, whole and touched by somebody.

use crate::support::{Workplace, lead};
use sluice_simulator::{Salesforce, SalesforceSettings};

#[test]
fn ledger_is_inspected_while_its_node_runs_and_after() {
    let crm = Salesforce::start(SalesforceSettings::default()).unwrap();
    let workplace = Workplace::new(&crm.url(), "http://127.0.0.1:9");
    let missing = workplace.run(&["verify"]);
    assert_eq!(missing.code, 3, "{missing}");
    assert!(missing.stderr.contains("no ledger in") && missing.stderr.contains("--data"), "{missing}");

    let node = workplace.up(&[]);
    for payload in ["lead", "broken", "lead"] {
        workplace.run(&["send", "website-leads", &format!("payloads/{payload}.txt")]).ok();
    }
    workplace.until_settled();
    let verified = workplace.run(&["verify"]).ok();
    assert!(verified.stdout.contains("2 events and 2 jobs, 28 checks: no violations"), "{verified}");
    let balanced = workplace.json(&["balance", "--json"]);
    let line = &balanced["lines"][0];
    let counts =
        ["accepted", "duplicate", "done", "noop", "dead", "waiting", "unknown", "dropped", "pruned", "remainder"];
    assert_eq!(counts.map(|name| line[name].as_i64().unwrap()), [2, 1, 1, 0, 1, 0, 0, 0, 0, 0], "{balanced}");
    assert_eq!(line["source"], "website");
    let source = &workplace.json(&["sources", "--json"])[0];
    assert_eq!((&source["accepted"], &source["duplicates"]), (&line["accepted"], &line["duplicate"]), "one number");
    node.stop();

    let balanced = workplace.run(&["balance"]).ok();
    let heading: Vec<&str> = balanced.stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        heading.join(" ").to_lowercase(),
        "day source accepted duplicate done noop dead waiting unknown dropped pruned remainder"
    );
    assert!(balanced.stdout.trim_end().ends_with("All events are accounted for."), "{balanced}");
    let whole = workplace.json(&["verify", "--json"]);
    assert_eq!((&whole["events"], whole["broken"].as_array().unwrap().len()), (&2.into(), 0));
}

#[test]
fn altered_rows_are_named_and_set_the_exit_code() {
    let workplace = Workplace::alone();
    let node = workplace.up(&[]);
    for n in 0..3 {
        workplace.run_with_input(&["send", "website-leads", "-"], &lead(&format!("lead-{n}"), "")).ok();
    }
    node.stop();
    let ledger = rusqlite::Connection::open(workplace.path().join(".sluice/ledger.db")).unwrap();
    ledger.execute_batch("DELETE FROM job WHERE id = 2").unwrap();
    let verified = workplace.run(&["verify"]);
    assert_eq!(verified.code, 1, "{verified}");
    assert!(verified.stdout.contains("event 2 says that it has 1 jobs, and has 0"), "{verified}");
    assert!(verified.stdout.trim_end().ends_with("invariants violated"), "{verified}");
    ledger.execute_batch("DELETE FROM event WHERE seq = 2").unwrap();
    let balanced = workplace.run(&["balance"]);
    assert_eq!(balanced.code, 1, "{balanced}");
    assert!(balanced.stdout.contains("1 event is not accounted for: it was lost."), "{balanced}");
}

/// A copy of the data directory after a change of its file.
fn tampered(workplace: &Workplace, sql: &str) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().unwrap();
    for name in ["ledger.db", "root.key"] {
        std::fs::copy(workplace.path().join(".sluice").join(name), copy.path().join(name)).unwrap();
    }
    rusqlite::Connection::open(copy.path().join("ledger.db")).unwrap().execute_batch(sql).unwrap();
    copy
}

#[test]
fn an_altered_or_deleted_row_and_a_swapped_result_are_named() {
    const SWAP: &str = "CREATE TEMP TABLE two AS SELECT job, result FROM effect WHERE job IN (1, 2);
                        UPDATE effect SET result = (SELECT t.result FROM two t WHERE t.job = 3 - effect.job)";
    const SWAP_JOBS: &str = "CREATE TEMP TABLE two AS SELECT id, result FROM job WHERE id IN (1, 2);
                             UPDATE job SET result = (SELECT t.result FROM two t WHERE t.id = 3 - job.id)";
    let crm = Salesforce::start(SalesforceSettings::default()).unwrap();
    let workplace = Workplace::new(&crm.url(), "http://127.0.0.1:9");
    let node = workplace.up(&[]);
    for id in ["lead-1", "lead-2"] {
        workplace.run_with_input(&["send", "website-leads", "-"], &lead(id, "")).ok();
    }
    workplace.until_settled();
    node.stop();
    let verify = |sql: &str| {
        let copy = tampered(&workplace, sql);
        workplace.run(&["verify", "--data", copy.path().to_str().unwrap()])
    };
    verify("SELECT 1").ok();
    for (sql, named) in [
        ("UPDATE effect SET state = 'not_applied' WHERE job = 1", "the effect `upsert` of job_1 was altered"),
        ("UPDATE attempt SET outcome = 'noop' WHERE job = 2", "attempt 1 of job_2 was altered"),
        ("UPDATE attempt SET mac = NULL, started_at = 1 WHERE job = 2", "attempt 1 of job_2 was altered"),
        ("UPDATE event_body SET sealed = zeroblob(length(sealed)) WHERE seq = 2", "the body of event 2 was altered"),
        ("UPDATE job SET worker = 'other' WHERE id = 1", "job_1 was altered: its identity, its result or its counts"),
        (SWAP, "the effect `upsert` of job_1 was altered"),
        (SWAP_JOBS, "job_1 was altered: its identity, its result or its counts"),
        ("DELETE FROM effect WHERE job = 2", "job_2 counts 1 effects, and has 0"),
        ("DELETE FROM attempt WHERE job = 2", "job_2 counts 1 attempts, and has 0"),
        ("DELETE FROM event_body WHERE seq = 1", "event 1 has lost its body"),
        ("DELETE FROM job WHERE id = 1", "event 1 says that it has 1 jobs, and has 0"),
        ("DELETE FROM event WHERE seq = 1", "job_1 belongs to event 1, which is not there"),
    ] {
        let verified = verify(sql);
        assert_eq!(verified.code, 1, "{sql}: {verified}");
        assert!(verified.stdout.contains(named), "{sql}: {verified}");
    }
}

#[test]
fn verify_without_the_root_key_says_what_it_cannot_notice() {
    let workplace = Workplace::alone();
    workplace.up(&[]).stop();
    let copy = tampered(&workplace, "SELECT 1");
    let data = copy.path().to_str().unwrap();
    std::fs::remove_file(copy.path().join("root.key")).unwrap();
    let refused = workplace.run(&["verify", "--data", data]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("root key was not found"), "{refused}");
    assert!(refused.stderr.contains("--without-root-key"), "{refused}");
    assert!(!copy.path().join("root.key").exists(), "no key is made for a ledger that has one");

    std::fs::write(copy.path().join("root.key"), "7".repeat(64)).unwrap();
    let refused = workplace.run(&["verify", "--data", data]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("--without-root-key"), "{refused}");

    let verified = workplace.run(&["verify", "--data", data, "--without-root-key"]).ok();
    assert!(verified.stdout.contains("24 checks"), "{verified}");
    assert!(verified.stdout.contains("without the root key, altered rows are not found"), "{verified}");
}
