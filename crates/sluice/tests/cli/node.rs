//! Commands against a node of the real binary, with a simulated CRM behind it. Word for word.

use crate::support::scene::{Scene, scene};
use crate::support::{Ran, UP, Workplace, squeezed, steady};
use serde_json::Value;

#[track_caller]
fn says(workplace: &Workplace, name: &str, ran: &Ran) {
    steady(workplace).bind(|| insta::assert_snapshot!(name, squeezed(&ran.to_string())));
}

fn id_of(list: &Value, state: &str) -> String {
    let found = list["items"].as_array().unwrap().iter().find(|job| job["state"] == state);
    found.unwrap_or_else(|| panic!("no {state} job in {list}"))["id"].as_str().unwrap().to_owned()
}

#[test]
fn sent_event_is_in_every_list() {
    let Scene { workplace, .. } = &scene();
    let sent = workplace.run(&["send", "/in/website", "payloads/lead.txt", "--times", "2", "--json"]).ok();
    let answers: Value = serde_json::from_str(&sent.stdout).unwrap();
    assert_eq!(answers[0]["status"], 202);
    assert_eq!((&answers[0]["duplicate"], &answers[1]["duplicate"]), (&Value::Bool(true), &Value::Bool(true)));
    assert!(answers[0]["body"].get("result").is_none(), "the flow names no result: {answers}");
    for (name, arguments) in [
        ("status", &["status"][..]),
        ("events", &["events"]),
        ("events_page", &["events", "list", "--limit", "1"]),
        ("events_none_match", &["events", "--source", "shop"]),
        ("events_by_key", &["events", "--key", "lead-1"]),
        ("events_by_contact", &["events", "--contact", "ada@example.com", "--since", "1d"]),
        ("events_dead", &["events", "--state", "dead"]),
        ("jobs", &["jobs"]),
        ("jobs_none_match", &["jobs", "--worker", "nobody"]),
        ("jobs_show", &["jobs", "show", "job_2"]),
        ("dlq", &["dlq"]),
        ("dlq_none_match", &["dlq", "--class", "auth"]),
        ("dlq_top", &["dlq", "top", "--since", "1h"]),
        ("dlq_groups", &["dlq", "groups"]),
        ("sources", &["sources"]),
        ("destinations", &["destinations"]),
        ("audit", &["audit"]),
    ] {
        let ran = workplace.run(arguments).ok();
        assert!(ran.stdout.lines().all(|line| !line.ends_with([' ', '…'])), "piped tables are not cut: {ran}");
        assert!(!ran.stdout.contains('\u{1b}'), "no colours without a terminal: {ran}");
        says(workplace, name, &ran);
    }
    let advice = workplace.run(&["sources", "show", "website"]).ok();
    for words in [
        "duplicates  2 in the last 7 days: 40 % of its requests",
        "after expiry         none",
        "key lifetime 30d covers 100 %",
    ] {
        assert!(advice.stdout.contains(words), "{words}: {advice}");
    }
    let events = workplace.json(&["events", "--json"]);
    let id = events["items"][0]["id"].as_str().unwrap();
    says(workplace, "events_show", &workplace.run(&["events", "show", id]).ok());
    let revealed = workplace.run(&["events", "show", id, "--reveal", "--reason", "a test"]).ok();
    assert!(revealed.stdout.contains("ada@example.com"), "{revealed}");
    let audit = workplace.json(&["audit", "--json", "--limit", "1"]);
    assert_eq!(
        (&audit["items"][0]["action"], &audit["items"][0]["actor"]),
        (&Value::from("reveal"), &Value::from("ada"))
    );
}

#[test]
fn json_has_the_shape_of_the_api() {
    let Scene { workplace, .. } = &scene();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert!(names(&workplace.json(&["status", "--json"])).starts_with("version revision intake events jobs"));
    let page = workplace.json(&["jobs", "--json", "--limit", "1"]);
    assert_eq!(names(&page), "items next");
    assert!(names(&page["items"][0]).starts_with("id event_id idempotency_key source event_type"));
    let next = page["next"].as_str().unwrap();
    let rest = workplace.json(&["jobs", "--json", "--after", next]);
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(names(&workplace.json(&["dlq", "top", "--json"])[0]), "count class code message last_at");
    assert_eq!(
        names(&workplace.json(&["replay", "job_2", "--dry-run", "--json"])),
        "matched changed skipped dry_run preview"
    );
    assert_eq!(workplace.json(&["pause", "worker:notify", "--reason", "x", "--json"])[0]["target"], "worker:notify");
    assert_eq!(workplace.json(&["reload", "--json"])["changed"], false);
}

#[test]
fn replays_drops_and_resolutions_report_their_changes() {
    let Scene { workplace, .. } = &scene();
    let run = |arguments: &[&str]| workplace.run(arguments);
    says(workplace, "replay_dry_run", &run(&["replay", "--filter", "state=dead,unknown", "--dry-run"]).ok());
    says(workplace, "replay_filter_without_yes", &run(&["replay", "--filter", "source=website", "--reason", "mended"]));
    says(workplace, "replay_nothing_matches", &run(&["replay", "--filter", "code=NOTHING", "--reason", "x"]));
    says(workplace, "pause", &run(&["pause", "destination:crm", "--reason", "maintenance"]).ok());
    says(workplace, "replay", &run(&["replay", "--filter", "source=website", "--reason", "mended", "--yes"]).ok());
    assert_eq!(workplace.json(&["jobs", "show", "job_2", "--json"])["state"], "queued");
    says(workplace, "replay_again", &run(&["replay", "job_2", "--reason", "twice"]));
    says(workplace, "status_paused", &run(&["status"]).ok());
    says(workplace, "jobs_show_waits", &run(&["jobs", "show", "job_2"]).ok());
    says(workplace, "replays", &run(&["replays"]).ok());
    says(workplace, "replays_show", &run(&["replays", "show", "replay_1"]).ok());
    says(workplace, "replays_cancel_done", &run(&["replays", "cancel", "replay_1", "--reason", "too late"]));
    says(workplace, "replays_unknown", &run(&["replays", "show", "replay_99"]));
    says(workplace, "resume", &run(&["resume", "destination:crm"]).ok());
    says(workplace, "resume_again", &run(&["resume", "destination:crm"]).ok());
    workplace.until(&["jobs", "show", "job_2", "--json"], |job| job["state"] == "dead");

    says(workplace, "dlq_ack", &run(&["dlq", "ack", "group_1", "--reason", "the vendor knows"]).ok());
    says(workplace, "dlq_ack_unknown", &run(&["dlq", "ack", "group_9", "--reason", "x"]));
    assert_eq!(workplace.json(&["dlq", "resolve", "group_1", "--reason", "fixed", "--json"])["state"], "resolved");
    says(workplace, "dlq_groups_open", &run(&["dlq", "groups", "--state", "open"]).ok());
    assert_eq!(workplace.json(&["dlq", "reopen", "group_1", "--reason", "not yet", "--json"])["state"], "open");

    let unknown = id_of(&workplace.json(&["dlq", "--json"]), "unknown");
    let resolved = run(&["jobs", "resolve", &unknown, "--happened", "--reason", "it is in the channel"]).ok();
    assert!(resolved.stdout.contains(&unknown), "{resolved}");
    workplace.until(&["jobs", "show", &unknown, "--json"], |job| job["state"] != "unknown");
    says(workplace, "resolve_what_is_known", &run(&["jobs", "resolve", "job_1", "--happened", "--reason", "x"]));

    says(workplace, "drop", &run(&["dlq", "drop", "job_1", "job_2", "--reason", "test data"]).ok());
    assert_eq!(workplace.json(&["jobs", "show", "job_2", "--json"])["state"], "dropped");
    let audit = workplace.json(&["audit", "--json"]);
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().filter_map(|line| line["action"].as_str()).collect();
    for action in ["pause", "resume", "replay", "resolve", "drop"] {
        assert!(actions.contains(&action), "{action} in {actions:?}");
    }
}

#[test]
fn nonsensical_requests_are_rejected_with_a_suggestion() {
    let Scene { workplace, .. } = &scene();
    for (name, arguments) in [
        ("bad_event_id", &["events", "show", "no-such-key"][..]),
        ("bad_job_id", &["jobs", "show", "x"]),
        ("no_such_job", &["jobs", "show", "job_99"]),
        ("no_such_event", &["events", "show", "evt_00000000000000000000000000"]),
        ("bad_state", &["jobs", "--state", "ded"]),
        ("bad_since", &["jobs", "--since", "soon"]),
        ("bad_filter", &["replay", "--filter", "wroker=x", "--reason", "x"]),
        ("empty_reason", &["replay", "job_2", "--reason", " "]),
        ("empty_reason_for_a_pause", &["pause", "source:website", "--reason", ""]),
        ("unknown_destination", &["pause", "destination:crn", "--reason", "x"]),
        ("bad_target", &["pause", "crm", "--reason", "x"]),
        ("no_such_source", &["sources", "show", "webiste"]),
        ("reveal_without_reason", &["events", "show", "evt_00000000000000000000000000", "--reveal"]),
        ("path_in_an_id", &["jobs", "show", "../status"]),
    ] {
        let ran = workplace.run(arguments);
        assert!(matches!(ran.code, 1 | 2), "{arguments:?}: {ran}");
        says(workplace, name, &ran);
    }
}

#[test]
fn a_refused_payload_ends_with_code_1() {
    let Scene { workplace, .. } = &scene();
    workplace.write("payloads/none.txt", r#"{"id":"lead-4"}"#);
    says(workplace, "send_refused", &workplace.run(&["send", "website-leads", "payloads/none.txt"]));
    says(workplace, "send", &workplace.run(&["send", "website-leads", "payloads/lead.txt"]).ok());
}

#[test]
fn reload_activates_a_valid_configuration_and_rejects_an_invalid_one() {
    let Scene { workplace, .. } = &scene();
    says(workplace, "reload_unchanged", &workplace.run(&["reload"]).ok());
    workplace.write(
        "queues.yml",
        "queues:\n  - name: crm-leads\n  - name: crm-leads-dlq\n  - name: notices\n  - name: more\n",
    );
    says(workplace, "reload", &workplace.run(&["reload"]).ok());
    workplace.write("queues.yml", "queues:\n  - nmae: crm-leads\n");
    let ran = workplace.run(&["reload"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("nmae"), "{ran}");
}

#[test]
fn a_changed_secret_is_noticed_by_a_reload() {
    let Scene { workplace, .. } = &scene();
    workplace.write("secrets/WEBSITE_SECRET", "another-website-secret");
    // The sender signs with the new one already.
    assert_eq!(workplace.run(&["send", "website-leads", "payloads/lead.txt"]).code, 1);
    let before = workplace.json(&["status", "--json"])["revision"].clone();
    let reloaded = workplace.json(&["reload", "--json"]);
    assert_eq!((&reloaded["changed"], &reloaded["revision"]), (&Value::Bool(true), &before));
    workplace.run(&["send", "website-leads", "payloads/lead.txt"]).ok();
    assert_eq!(workplace.json(&["reload", "--json"])["changed"], false);
    let audit = workplace.json(&["audit", "--json"]);
    assert!(audit["items"].as_array().unwrap().iter().any(|line| line["action"] == "secrets"), "{audit}");
    assert!(!audit.to_string().contains("another-website-secret"));
}

#[test]
fn node_with_an_admin_token_requires_it() {
    let workplace = Workplace::alone();
    let _node = workplace.up(&[("SLUICE_ADMIN_TOKEN", "a-token-of-some-length")]);
    says(&workplace, "token_missing", &workplace.run(&["status"]));
    let with = |token: &str| Ran::of(workplace.command(&["status"]).env("SLUICE_ADMIN_TOKEN", token));
    says(&workplace, "token_wrong", &with("another-token-of-some-length"));
    with("a-token-of-some-length").ok();
    workplace.write("token", "a-token-of-some-length\n");
    let note: Value =
        serde_json::from_str(&std::fs::read_to_string(workplace.path().join(".sluice/node.json")).unwrap()).unwrap();
    let url = note["admin"].as_str().unwrap();
    workplace.run(&["status", "--url", url, "--admin-token-file", "token"]).ok();
}

#[test]
fn without_a_node_the_ledger_answers() {
    let Scene { workplace, node, around: _around } = scene();
    node.stop();
    assert!(!workplace.path().join(".sluice/node.json").exists());
    let run = |arguments: &[&str]| workplace.run(arguments);
    says(&workplace, "offline_status", &run(&["status"]).ok());
    says(&workplace, "offline_destinations", &run(&["destinations"]).ok());
    says(&workplace, "offline_replay", &run(&["replay", "job_2", "--reason", "mended"]).ok());
    says(&workplace, "offline_replay_newest", &run(&["replay", "job_2", "--latest-config", "--reason", "mended"]));
    says(&workplace, "offline_reload", &run(&["reload"]));
    run(&["pause", "source:website", "--reason", "over night"]).ok();
    assert_eq!(workplace.json(&["sources", "--json"])[0]["paused"], true);
    // The jobs and the pauses of the time without a node are the next node's.
    let node = workplace.up(&[]);
    workplace.until(&["jobs", "show", "job_2", "--json"], |job| job["state"] == "dead" && job["replays"] == 1);
    assert_eq!(workplace.run(&["send", "website-leads", "payloads/lead.txt"]).code, 1, "the source is paused");
    // A note whose process is gone does not lead astray.
    node.kill();
    assert!(workplace.path().join(".sluice/node.json").exists());
    assert_eq!(workplace.json(&["status", "--json"])["intake"], "");
    // Nor does a configuration with mistakes hide what is in the ledger.
    workplace.write("queues.yml", "queues: 7\n");
    assert_eq!(workplace.json(&["events", "--json"])["items"].as_array().unwrap().len(), 3);
}

#[test]
#[cfg(target_os = "linux")]
fn signal_during_the_start_ends_the_node_cleanly() {
    let workplace = Workplace::alone();
    let mut command = workplace.command(&UP);
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let catches_sigterm = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
    };
    while !catches_sigterm() {
        std::thread::yield_now();
    }
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let mut log = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut log).unwrap();
    assert!(child.wait().unwrap().success(), "{log}");
    let node = workplace.up(&[]);
    assert!(!node.log().contains("unclean shutdown"), "{}", node.log());
    node.stop();
}
