//! `sluice events edit`, `flows` and `queues` against a node.

use serde_json::Value;

use crate::support::scene::{Scene, scene};
use crate::support::{Ran, Workplace, squeezed, steady};

#[track_caller]
fn says(workplace: &Workplace, name: &str, ran: &Ran) {
    steady(workplace).bind(|| insta::assert_snapshot!(name, squeezed(&ran.to_string())));
}

fn event_of(workplace: &Workplace, job: &str) -> String {
    workplace.json(&["jobs", "show", job, "--json"])["event_id"].as_str().unwrap().to_owned()
}

#[test]
fn event_is_edited_shown_and_restored() {
    let Scene { workplace, .. } = &scene();
    let dead = workplace.json(&["dlq", "--json"]);
    let job = dead["items"].as_array().unwrap().iter().find(|job| job["state"] == "dead").unwrap()["id"].clone();
    let job = job.as_str().unwrap().to_owned();
    let event = event_of(workplace, &job);
    let field = "attributes.note=short";
    let edit = |more: &[&str]| {
        let mut arguments = vec!["events", "edit", &event, "--set", field, "--reason", "too long"];
        arguments.extend(more);
        workplace.run(&arguments)
    };
    says(workplace, "events_edit_dry_run", &edit(&["--dry-run"]).ok());
    says(workplace, "events_edit_without_yes", &edit(&[]));
    says(workplace, "events_edit", &edit(&["--yes"]).ok());
    workplace.until_settled();
    says(workplace, "events_revisions", &workplace.run(&["events", "revisions", &event]).ok());
    says(workplace, "events_edit_nothing", &edit(&["--yes"]));
    let file = workplace.path().join("edited.json");
    std::fs::write(&file, r#"{"attributes": {"last_name": "King", "company": "Engines"}}"#).unwrap();
    let from_file =
        ["events", "edit", &event, "--file", file.to_str().unwrap(), "--reason", "by file", "--yes", "--json"];
    assert_eq!(workplace.json(&from_file)["revision"], 2);
    workplace.until_settled();
    let restored = workplace.json(&["events", "edit", &event, "--restore", "0", "--reason", "back", "--yes", "--json"]);
    assert_eq!((&restored["revision"], &restored["dry_run"]), (&Value::from(3), &Value::from(false)), "{restored}");
    workplace.until_settled();
    let no_editor = workplace.run(&["events", "edit", &event, "--reason", "x", "--yes"]);
    assert!(no_editor.code == 2 && no_editor.stderr.contains("$EDITOR"), "{no_editor}");
}

#[test]
fn edit_of_another_operator_while_the_editor_is_open_is_a_conflict() {
    let Scene { workplace, .. } = &scene();
    let dead = workplace.json(&["dlq", "--json"]);
    let job = dead["items"].as_array().unwrap().iter().find(|job| job["state"] == "dead").unwrap()["id"].clone();
    let event = event_of(workplace, job.as_str().unwrap());
    let script = format!(
        "#!/bin/sh\n{} events edit {event} --set attributes.company=Others --reason meanwhile --yes >&2\n\
         echo '{{\"attributes\": {{\"last_name\": \"Mine\"}}}}' > \"$1\"\n",
        env!("CARGO_BIN_EXE_sluice")
    );
    workplace.write("editor.sh", &script);
    let editor = format!("sh {}", workplace.path().join("editor.sh").display());
    let mut command = workplace.command(&["events", "edit", &event, "--reason", "by hand", "--yes"]);
    let edited = Ran::of(command.env("EDITOR", editor).env_remove("VISUAL"));
    assert!(edited.code == 1 && edited.stderr.contains("revision 1 is the current one"), "{edited}");
    let revisions = workplace.json(&["events", "revisions", &event, "--json"]);
    assert_eq!(revisions.as_array().unwrap().len(), 2, "{revisions}");
}

#[test]
fn flows_queues_and_filtered_audit_are_listed() {
    let Scene { workplace, .. } = &scene();
    says(workplace, "flows", &workplace.run(&["flows"]).ok());
    says(workplace, "queues", &workplace.run(&["queues"]).ok());
    workplace.run(&["pause", "destination:crm", "--reason", "maintenance"]).ok();
    let audit = workplace.json(&["audit", "--action", "pause", "--object", "destination:", "--json"]);
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    says(workplace, "audit_none_match", &workplace.run(&["audit", "--by", "nobody"]).ok());
}
