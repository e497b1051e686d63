//! `sluice connectors`: what ships is listed, shown and tested, and served by the simulator.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::Workplace;

fn workplace() -> Workplace {
    Workplace { directory: TempDir::new().unwrap() }
}

#[test]
fn shipped_connectors_are_listed_and_their_recorded_answers_hold() {
    let workplace = workplace();
    let listed = workplace.json(&["connectors", "list", "--json"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"twilio") && names.contains(&"postmark"), "{names:?}");
    let tested = workplace.run(&["connectors", "test"]).ok();
    assert_eq!(tested.stdout.lines().filter(|line| line.contains(": ok (")).count(), names.len(), "{}", tested.stdout);
    let one = workplace.json(&["connectors", "test", "segment", "--json"]);
    assert_eq!((one.as_array().unwrap().len(), &one[0]["connector"]), (1, &Value::from("segment")), "{one}");
    let table = workplace.run(&["connectors"]).ok().stdout;
    assert!(table.contains("analytics.track") && table.contains("keyed"), "{table}");
}

#[test]
fn connector_is_shown_with_its_keys_actions_and_failure_rules() {
    let workplace = workplace();
    let shown = workplace.run(&["connectors", "show", "twilio"]).ok().stdout;
    for part in ["auth_token", "twilio.sms", "Effect verifiable", "21610", "wait 5s"] {
        assert!(shown.contains(part), "{part} is missing in:\n{shown}");
    }
    let source = workplace.run(&["connectors", "show", "twilio", "--source"]).ok().stdout;
    assert!(source.starts_with("connector: twilio\n"), "{source}");
    let unknown = workplace.run(&["connectors", "show", "twillio"]);
    assert!(unknown.stderr.contains("did you mean `twilio`?"), "{}", unknown.stderr);
}

#[test]
fn simulator_says_where_the_provider_of_a_connector_is() {
    let workplace = workplace();
    let any = "127.0.0.1:0";
    let words = ["sim", "--json", "--listen", any, "--connector", "twilio", "--connector-listen", any];
    let mut child = workplace.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let base_url = first["connector"]["base_url"].as_str().unwrap();
    assert!(base_url.starts_with("http://127.0.0.1:") && base_url.ends_with("/2010-04-01"), "{first}");
}

#[test]
fn everything_that_can_be_simulated_is_listed() {
    let workplace = workplace();
    let list: Value = serde_json::from_str(&workplace.run(&["sim", "--list", "--json"]).ok().stdout).unwrap();
    let names: Vec<&str> =
        list["simulators"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    for name in ["salesforce", "hubspot", "s3", "ses", "webpush", "connector"] {
        assert!(names.contains(&name), "{name}: {list}");
    }
    assert!(list["connectors"].as_array().unwrap().contains(&Value::from("fcm")), "{list}");
    assert!(list["faults"].as_array().unwrap().len() > 20, "{list}");
    let shown = workplace.run(&["sim", "--list"]).ok().stdout;
    for part in ["127.0.0.1:8095", "drop_after", "twilio"] {
        assert!(shown.contains(part), "{part} is missing in:\n{shown}");
    }
}

#[test]
fn simulator_says_where_objects_mails_and_push_messages_go() {
    let workplace = workplace();
    let any = "127.0.0.1:0";
    let words = ["sim", "--json", "--listen", any, "--s3", any, "--ses", any, "--webpush", any];
    let mut child = workplace.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    for name in ["s3", "ses", "webpush"] {
        assert!(first[name]["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{first}");
    }
    assert!(first["webpush"]["endpoint"].as_str().unwrap().ends_with("/push/1"), "{first}");
}
