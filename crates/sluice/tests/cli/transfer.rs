//! Imports and exports with the real binary: killed, stopped, without a node.

use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::Workplace;
use crate::support::scene::place;

fn leads(range: std::ops::Range<u32>) -> String {
    let lead = |n| json!({ "id": format!("lead-{n}"), "email": format!("p{n}@example.com"), "last_name": "Lovelace", "company": "A" });
    range.map(|n| format!("{}\n", lead(n))).collect()
}

const IMPORT: [&str; 8] =
    ["import", "leads.ndjson", "--flow", "website-leads", "--reason", "history", "--yes", "--json"];

fn imports(workplace: &Workplace) -> Value {
    workplace.json(&["imports", "--json"])["items"].clone()
}

/// Waits until the import has taken some rows.
fn until_begun(workplace: &Workplace) {
    workplace.until(&["imports", "--json"], |list| list["items"][0]["position"].as_u64().is_some_and(|rows| rows > 0));
}

#[test]
fn killed_import_and_killed_node_lose_and_double_nothing() {
    let (workplace, _around) = place(Default::default());
    workplace.write("leads.ndjson", &leads(0..120));
    let node = workplace.up(&[]);
    let slow = [&IMPORT[..], &["--rate", "4/s"]].concat();
    let mut import = workplace.command(&slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until_begun(&workplace);
    import.kill().unwrap();
    import.wait().unwrap();
    let position = imports(&workplace)[0]["position"].as_u64().unwrap();
    assert!(position < 120, "{position}");
    let mut import = workplace.command(&slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    workplace.until(&["imports", "--json"], |list| list["items"][0]["position"].as_u64() > Some(position));
    node.kill();
    let code = import.wait().unwrap().code();
    assert_ne!(code, Some(0), "the node is gone");
    // Without a node the ledger takes the rest, and the jobs wait for the next start.
    let ended = workplace.json(&IMPORT);
    let count = |name: &str| ended["import"][name].as_u64().unwrap();
    assert_eq!((count("accepted"), count("duplicates"), count("refused")), (120, 0, 0), "{ended}");
    assert_eq!((imports(&workplace).as_array().unwrap().len(), &ended["import"]["state"]), (1, &json!("done")));
    let _node = workplace.up(&[]);
    workplace.until_settled();
    assert_eq!(workplace.json(&["status", "--json"])["jobs"]["succeeded"], json!(120));
    workplace.run(&["verify"]).ok();
    workplace.run(&["balance"]).ok();
}

#[test]
fn reader_that_has_seen_enough_ends_an_export() {
    let (workplace, _around) = place(Default::default());
    workplace.write("leads.ndjson", &leads(0..2_000));
    let _node = workplace.up(&[]);
    workplace.run(&IMPORT).ok();
    let mut export =
        workplace.command(&["export", "events"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 100];
    export.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = export.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    let summary = workplace.json(&["export", "events", "--output", "all.csv", "--json"]);
    assert_eq!((&summary["rows"], &summary["revealed"]), (&json!(2_000), &json!(false)));
    let left: Vec<_> = std::fs::read_dir(workplace.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".sluice-export-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_say_what_is_wrong_with_a_file() {
    let workplace = Workplace::alone();
    workplace.write("empty.csv", "");
    workplace.write("twice.csv", "id,id\n1,2\n");
    workplace.write("leads.txt", "{}\n");
    for (file, code, words) in [
        ("empty.csv", 1, "is empty; nothing was imported"),
        ("twice.csv", 1, "columns 1 and 2 have the same name `id`"),
        ("leads.txt", 2, "the format of leads.txt is not known; use --format"),
        ("gone.csv", 3, "gone.csv cannot be read"),
    ] {
        let ran = workplace.run(&["import", file, "--flow", "website-leads", "--dry-run"]);
        assert!(ran.code == code && ran.stderr.contains(words), "{ran}");
    }
}
