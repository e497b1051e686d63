//! Imports and exports with the real binary: killed, stopped, without a node.

use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::scene::place;
use crate::support::{UP, Workplace};

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

#[test]
fn second_process_is_refused_and_disturbs_neither_an_import_nor_a_shadow() {
    let (workplace, _around) = place(Default::default());
    workplace.write("leads.ndjson", &leads(0..40));
    let node = workplace.up(&[]);
    // A shadow that maps otherwise.
    let copy = tempfile::TempDir::new().unwrap();
    for entry in std::fs::read_dir(workplace.path()).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|extension| extension == "yml") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let text = text.replace("source: website\n", "source: website-2\n");
            std::fs::write(copy.path().join(entry.file_name()), text).unwrap();
        }
    }
    let planned = workplace.run(&["plan", copy.path().to_str().unwrap(), "--shadow", "--reason", "a better name"]);
    assert_eq!(planned.code, 4, "{planned}");
    let slow = [&IMPORT[..], &["--rate", "8/s"]].concat();
    let mut import = workplace.command(&slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until_begun(&workplace);
    // Another node on the same data is refused, and the first one is still found.
    let second = workplace.run(&UP);
    assert!(second.code != 0 && second.stderr.contains("another process"), "{second}");
    // The same import again goes through the node: rows are taken once, whichever command sends them.
    let again = workplace.run(&slow);
    let first = import.wait().unwrap().code();
    assert!(first == Some(0) || again.code == 0, "one of them reaches the end: {first:?} {again}");
    let list = imports(&workplace);
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    let count = |name: &str| list[0][name].as_u64().unwrap();
    assert_eq!((count("accepted"), count("duplicates"), count("refused")), (40, 0, 0), "{list}");
    workplace.until(&["shadow", "--json"], |shadow| shadow["report"]["events"] == 40);
    workplace.until_settled();
    assert_eq!(workplace.json(&["status", "--json"])["jobs"]["succeeded"], json!(40));
    node.stop();
    workplace.run(&["verify"]).ok();
}

#[test]
fn repeats_of_an_event_are_shown_by_its_page_and_its_trace() {
    let (workplace, _around) = place(Default::default());
    let _node = workplace.up(&[]);
    let send = ["send", "website-leads", "payloads/lead.txt", "--json"];
    let event = workplace.json(&send)[0]["body"]["event_id"].as_str().unwrap().to_owned();
    for _ in 0..10 {
        workplace.run(&send).ok();
    }
    workplace.until_settled();
    let shown = workplace.run(&["events", "show", &event]).ok().stdout;
    assert!(shown.contains("Duplicates\n10 in all, the first "), "{shown}");
    assert_eq!(shown.matches("same key and content").count(), 8, "{shown}");
    let trace = workplace.run(&["trace", &event]).ok().stdout;
    assert!(trace.contains("the first of 2 earlier repeats"), "{trace}");
}
