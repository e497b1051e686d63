//! What the file watcher activates.

use serde_json::Value;

use crate::support::scene::{Around, place};
use crate::support::{Ran, Workplace};
use sluice_simulator::FaultPlan;

/// A configuration whose worker has a dead letter.
fn with_a_dead_letter() -> (Workplace, Around) {
    let (workplace, around) = place(FaultPlan::default());
    let node = workplace.up(&[]);
    workplace.run(&["send", "website-leads", "payloads/broken.txt"]).ok();
    workplace.until_settled();
    node.stop();
    (workplace, around)
}

fn revision(workplace: &Workplace) -> Value {
    workplace.json(&["status", "--json"])["revision"].clone()
}

/// A worker of another name takes the jobs of the queue.
fn rename_the_worker(workplace: &Workplace) {
    let path = workplace.path().join("lead-to-crm.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text.replace("name: lead-to-crm", "name: lead-to-salesforce")).unwrap();
}

#[test]
fn file_watcher_does_not_activate_what_plan_refuses_as_stranding_jobs() {
    let (workplace, _around) = with_a_dead_letter();
    let node = workplace.up_with_watch();
    let before = revision(&workplace);
    rename_the_worker(&workplace);
    let log = node.until_logged("worker lead-to-crm: 0 live jobs, 1 dead letters");
    assert!(log.contains("the new configuration is not activated"), "{log}");
    assert_eq!(revision(&workplace), before);
    let refused = workplace.run(&["reload"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("--allow-stranded"), "{refused}");
    assert_eq!(revision(&workplace), before);
    workplace.run(&["reload", "--allow-stranded", "--reason", "the new name is better"]).ok();
    assert_ne!(revision(&workplace), before);
    let newest = workplace.json(&["revisions", "--json"])["items"][0].clone();
    assert_eq!((newest["actor"].as_str(), newest["reason"].as_str()), (Some("ada"), Some("the new name is better")));
}

#[test]
fn files_of_other_programs_neither_warn_nor_make_a_revision() {
    let workplace = Workplace::alone();
    let data = |arguments: &[&str]| {
        let mut command = workplace.command(arguments);
        Ran::of(command.env("SLUICE_DATA", "state")).ok()
    };
    let status =
        |arguments: &[&str]| serde_json::from_str::<Value>(&data(arguments).stdout).unwrap()["revision"].clone();
    let node = workplace.up(&[("SLUICE_DATA", "state")]);
    let before = status(&["status", "--json"]);
    workplace.write("package.json", r#"{"name": "tools", "version": "1.0.0", "scripts": {"run": "x"}}"#);
    workplace.write("payloads/lead.json", r#"{"event": "lead.created", "id": "lead-1"}"#);
    workplace.write("docker-compose.yml", "services: {}\n");
    assert_eq!(status(&["reload", "--json"]), before);
    node.stop();
    let _node = workplace.up(&[("SLUICE_DATA", "state")]);
    assert_eq!(status(&["status", "--json"]), before, "the data directory is no part of the configuration");
    let checked = workplace.run(&["check", "--strict"]).ok();
    assert!(checked.stdout.contains("Not part of the configuration: docker-compose.yml, package.json"), "{checked}");
}
