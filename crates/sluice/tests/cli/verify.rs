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
    assert!(verified.stdout.contains("2 events and 2 jobs, 23 checks: no violations"), "{verified}");
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
