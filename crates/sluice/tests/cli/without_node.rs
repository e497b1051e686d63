//! Commands that need no node, and what commands say that need one and find none. Word for word.

use std::process::Stdio;

use crate::support::{Ran, Workplace, lead, squeezed, steady};
use serde_json::Value;

#[track_caller]
fn says(workplace: &Workplace, name: &str, ran: &Ran) {
    steady(workplace).bind(|| insta::assert_snapshot!(name, squeezed(&ran.to_string())));
}

#[test]
fn check_counts_resources() {
    let workplace = Workplace::alone();
    let ran = workplace.run(&["check"]).ok();
    assert!(ran.stdout.contains("No problems found (1 flow, 4 queues, 2 workers, 2 destinations; revision "), "{ran}");
    workplace.write("queues.yml", "queues: [crm-leads, crm-leads-dlq, notices, forgotten]\n");
    let warned = workplace.run(&["check"]).ok();
    assert_eq!(warned.stdout.matches("1 warning").count(), 1, "{warned}");
    assert!(warned.stdout.contains("\n1 warning (1 flow, 5 queues, 2 workers, 2 destinations; revision "), "{warned}");
}

#[test]
fn try_shows_key_event_jobs_and_requests_and_no_secret() {
    let workplace = Workplace::alone();
    let ran = workplace.run(&["try", "website-leads", "payloads/tell.txt"]).ok();
    assert!(
        !ran.stdout.contains("hook-token") && !ran.stdout.contains("Ada@") && !ran.stdout.contains("ada@"),
        "{ran}"
    );
    says(&workplace, "try", &ran);
    assert!(!workplace.path().join(".sluice").exists());
}

#[test]
fn try_reveals_personal_data_and_never_secrets() {
    let workplace = Workplace::alone();
    let ran = workplace.run(&["try", "/in/website", "payloads/tell.txt", "--reveal"]).ok();
    assert!(ran.stdout.contains("ada@example.com") && !ran.stdout.contains("hook-token"), "{ran}");
}

#[test]
fn try_reads_standard_input_and_prints_json() {
    let workplace = Workplace::alone();
    let ran = workplace.run_with_input(&["try", "website-leads", "-", "--json"], &lead("lead-9", "")).ok();
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let report = &report["events"][0];
    assert_eq!(report["key"]["text"], "lead-9");
    assert_eq!(report["key"]["parts"][0]["from"], "body.id");
    assert_eq!(report["queues"][1]["taken"], false);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    let step = &report["jobs"][0]["steps"][0];
    assert_eq!((step["runs"].as_str(), step["class"].as_str()), (Some("yes"), Some("natural")));
    assert_eq!(step["request"]["body"]["Email"], "a***@example.com");
}

#[test]
fn try_rejects_what_a_node_would_reject() {
    let workplace = Workplace::alone();
    let refused = |name: &str, body: &str| {
        let ran = workplace.run_with_input(&["try", "website-leads", "-"], body);
        assert_eq!(ran.code, 1, "{ran}");
        says(&workplace, name, &ran);
    };
    refused("try_without_key", r#"{"last_name":"Lovelace"}"#);
    refused("try_without_required_field", r#"{"id":"1"}"#);
    refused("try_no_json", "hello");
    refused("try_empty", "");
}

#[test]
fn unknown_flow_is_answered_with_a_suggestion() {
    let workplace = Workplace::alone();
    for (wanted, answer) in [
        ("website-lead", "unknown flow `website-lead`; did you mean `website-leads`?\n"),
        ("/in/websit", "unknown flow `/in/websit`; did you mean `/in/website`?\n"),
        ("shop", "unknown flow `shop`; the flows are `website-leads`\n"),
    ] {
        for command in ["try", "send"] {
            let ran = workplace.run(&[command, wanted, "payloads/lead.txt"]);
            assert_eq!((ran.code, ran.stderr.as_str()), (1, answer));
        }
    }
}

#[test]
fn unreadable_payload_and_invalid_header_are_usage_errors() {
    let workplace = Workplace::alone();
    let ran = workplace.run(&["try", "website-leads", "gone.json"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (2, "gone.json cannot be read: No such file or directory (os error 2)\n")
    );
    let ran = workplace.run(&["try", "website-leads", "payloads/lead.txt", "--header", "nonsense"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("use the format 'Name: value'"), "{ran}");
}

#[test]
fn configuration_errors_are_explained() {
    let workplace = Workplace::alone();
    workplace.write("queues.yml", "queues:\n  - nmae: crm-leads\n");
    let ran = workplace.run(&["try", "website-leads", "payloads/lead.txt"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("queues.yml") && ran.stderr.contains("nmae"), "{ran}");
}

#[test]
fn without_node_and_ledger_every_command_explains_what_to_do() {
    let workplace = Workplace::alone();
    says(&workplace, "no_node", &workplace.run(&["status"]));
    says(&workplace, "no_node_to_send_to", &workplace.run(&["send", "website-leads", "payloads/lead.txt"]));
    for command in [
        &["events"][..],
        &["jobs"],
        &["dlq"],
        &["dlq", "top"],
        &["sources"],
        &["destinations"],
        &["audit"],
        &["reload"],
        &["replay", "job_1", "--reason", "x"],
        &["pause", "source:website", "--reason", "x"],
        &["resume", "source:website"],
    ] {
        let ran = workplace.run(command);
        assert_eq!(ran.code, 3, "{command:?}: {ran}");
        assert!(ran.stderr.contains("Start one with `sluice up`"), "{command:?}: {ran}");
    }
    assert!(!workplace.path().join(".sluice").exists(), "looking must not make a ledger");
}

#[test]
fn refused_connection_and_invalid_address_are_distinguished() {
    let workplace = Workplace::alone();
    says(&workplace, "nobody_listens", &workplace.run(&["status", "--url", "http://127.0.0.1:9"]));
    let ran = workplace.run(&["status", "--url", "localhost:9"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.starts_with("`localhost:9` is not a node address"), "{ran}");
}

#[test]
fn commands_without_a_reason_are_usage_errors() {
    let workplace = Workplace::alone();
    for command in [
        &["replay", "job_1"][..],
        &["dlq", "drop", "job_1"],
        &["pause", "source:website"],
        &["jobs", "resolve", "job_1", "--happened"],
    ] {
        let ran = workplace.run(command);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains("--reason"), "{ran}");
    }
    let ran = workplace.run(&["replay", "--reason", "x"]);
    assert_eq!(ran.code, 2, "{ran}");
    let ran = workplace.run(&["jobs", "resolve", "job_1", "--reason", "x"]);
    assert!(ran.code == 2 && ran.stderr.contains("--did-not-happen"), "{ran}");
}

#[test]
fn reference_pages_are_printed_and_compared() {
    let workplace = Workplace::alone();
    for (page, part) in [("configuration", "## "), ("cli", "## sluice replay"), ("api", "\"openapi\"")] {
        let ran = workplace.run(&["reference", page]).ok();
        assert!(ran.stdout.contains(part), "{page}");
        workplace.write("page.txt", &ran.stdout);
        let same = workplace.run(&["reference", page, "--check", "page.txt"]).ok();
        assert_eq!(same.stdout, "page.txt is up to date.\n");
        workplace.write("page.txt", &ran.stdout.replacen('\n', "\nadded\n", 1));
        let other = workplace.run(&["reference", page, "--check", "page.txt"]);
        assert_eq!(other.code, 1);
        assert!(other.stderr.contains("page.txt differs from this build in line 2:\n  - added\n"), "{other}");
    }
    let ran = workplace.run(&["reference", "cli", "--check", "gone.md"]);
    assert_eq!(ran.code, 2, "{ran}");
}

#[test]
fn every_shell_gets_its_completions() {
    let workplace = Workplace::alone();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = workplace.run(&["completions", shell]).ok();
        assert!(ran.stdout.contains("destinations"), "{shell}");
    }
}

#[test]
fn simulator_prints_its_address_and_explains_invalid_faults() {
    let workplace = Workplace::alone();
    workplace.write("faults.json", r#"{"percent": 130}"#);
    let ran = workplace.run(&["sim", "--listen", "127.0.0.1:0", "--faults", "faults.json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (2, "faults.json: percent is 130; it must be between 0 and 100\n"));
    let ran = workplace.run(&["sim", "--fail", "130"]);
    assert!(ran.code == 2 && ran.stderr.contains("it must be between 0 and 100"), "{ran}");

    let mut command = workplace.command(&["sim", "--listen", "127.0.0.1:0", "--sink", "127.0.0.1:0", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (first["client_id"].as_str(), first["client_secret"].as_str()),
        (Some("sim-client"), Some("sim-secret"))
    );
    assert!(first["salesforce"].as_str().unwrap().starts_with("http://127.0.0.1:") && first["sink"].is_string());
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let last: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(last["totals"]["doubled"], 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_bench_that_is_stopped_leaves_nothing_behind() {
    let running = |data: &std::path::Path| data.metadata().is_ok_and(|log| log.len() > 0);
    for (seconds, under_way) in [("10", "bare/ledger.db-wal"), ("3", "accept/data/ledger.db-wal")] {
        let workplace = Workplace::alone();
        let place = workplace.path().join("temporary");
        std::fs::create_dir(&place).unwrap();
        let mut command = workplace.command(&["bench", "accept", "--seconds", seconds]);
        let command = command.env("TMPDIR", &place).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begun = || std::fs::read_dir(&place).unwrap().flatten().any(|found| running(&found.path().join(under_way)));
        while !begun() {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(3) && said.contains("the bench was stopped"), "{} {said}", ended.status);
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "{under_way}");
    }
}

#[test]
fn bench_reports_the_drain_of_a_backlog_beside_new_events() {
    let report = Workplace::alone().json(&["bench", "drain", "--jobs", "50", "--seconds", "1", "--json"]);
    assert_eq!(report["drain"]["jobs"], 50);
    let (drain, new) = (&report["drain"]["per_second"], &report["drain"]["new_per_second"]);
    assert!(drain.as_f64().unwrap() > 0.0 && new.as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(report["floors"][0]["name"], "drain of new events");
    assert!(report["accept"].is_null() && report["failures"].as_array().unwrap().is_empty());
}

#[test]
fn bench_reports_the_concurrency_held_at_a_destination_that_fails_at_random() {
    let report = Workplace::alone().json(&["bench", "failures", "--seconds", "1", "--json"]);
    let failures = report["failures"].as_array().unwrap();
    let percent: Vec<u64> = failures.iter().map(|held| held["failure_percent"].as_u64().unwrap()).collect();
    assert_eq!(percent, [0, 10, 30]);
    for held in failures {
        let (share, failed) = (held["held"].as_f64().unwrap(), held["failed_share"].as_f64().unwrap());
        assert!((0.0..=1.0).contains(&share) && (0.0..=1.0).contains(&failed), "{report}");
        assert!(held["failure_percent"] != 0 || failed == 0.0, "{report}");
    }
}
