//! Changes of a running node: planned, applied as planned, taken back, and every revision kept.

use std::path::{Path, PathBuf};

use crate::support::scene::{Around, Scene, scene};
use crate::support::{Ran, Up, Workplace, lead, squeezed, steady};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A node that has seen some leads, and a copy of its configuration to edit.
struct Edited {
    workplace: Workplace,
    node: Up,
    copy: TempDir,
    _around: Around,
}

fn edited() -> Edited {
    let Scene { workplace, node, around } = scene();
    let copy = TempDir::new().unwrap();
    for name in files_in(workplace.path()) {
        std::fs::copy(workplace.path().join(&name), copy.path().join(&name)).unwrap();
    }
    Edited { workplace, node, copy, _around: around }
}

fn files_in(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = names
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yml"))
        .collect();
    names.sort();
    names
}

impl Edited {
    fn edit(&self, file: &str, old: &str, new: &str) {
        let path = self.copy.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(old).count(), 1, "{old:?} in {file}");
        std::fs::write(path, text.replace(old, new)).unwrap();
    }

    fn copy(&self) -> &str {
        self.copy.path().to_str().unwrap()
    }

    fn plan(&self) -> Value {
        self.workplace.json(&["plan", self.copy(), "--json"])
    }

    fn hash(&self) -> String {
        self.plan()["plan"].as_str().unwrap().to_owned()
    }

    fn apply(&self, plan: &str, more: &[&str]) -> Ran {
        let order = ["apply", self.copy(), "--plan", plan, "--reason", "a better one"];
        self.workplace.run(&[&order[..], more].concat())
    }

    fn texts(&self, directory: &Path) -> Vec<(String, String)> {
        let read = |name: String| (name.clone(), std::fs::read_to_string(directory.join(&name)).unwrap());
        files_in(directory).into_iter().map(read).collect()
    }

    fn in_force(&self) -> String {
        self.workplace.json(&["status", "--json"])["revision"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn says(&self, name: &str, ran: &Ran) {
        let mut settings = steady(&self.workplace);
        settings.add_filter(self.copy(), "[copy]");
        settings.add_filter(r"\b[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{12}\b", "[plan]");
        settings.add_filter(r"\b[0-9a-f]{16}\b", "[revision]");
        settings.bind(|| insta::assert_snapshot!(name, squeezed(&ran.to_string())));
    }
}

#[test]
fn change_is_planned_applied_as_planned_and_rolled_back() {
    let scene = edited();
    let first = scene.in_force();
    let nothing = scene.workplace.run(&["plan", scene.copy()]);
    assert_eq!(nothing.code, 0, "{nothing}");
    scene.edit("lead-to-crm.yml", "max_attempts: 3", "max_attempts: 9");
    scene.edit("lead-to-crm.yml", "object: Lead", "object: Contact");
    scene.edit("flow.yml", "path: /in/website", "path: /in/web");
    scene.edit("queues.yml", "  - name: notices", "  - name: notices\n    retention: 2d");
    let seen = scene.workplace.run(&["plan", scene.copy()]);
    assert_eq!(seen.code, 4, "{seen}");
    scene.says("plan", &seen);

    let before = scene.texts(scene.workplace.path());
    let applied = scene.apply(&scene.hash(), &[]);
    scene.says("apply", &applied);
    assert_eq!(
        scene.texts(scene.workplace.path()),
        scene.texts(scene.copy.path()),
        "the directory is what is in force"
    );
    assert_eq!(scene.workplace.run(&["plan", scene.copy()]).code, 0);
    let second = scene.in_force();
    assert_ne!(first, second);
    // The new address is open at once.
    scene.workplace.run(&["send", "/in/web", "payloads/lead.txt"]).ok();

    let unasked = scene.workplace.run(&["rollback", "--reason", "no"]);
    assert_eq!(unasked.code, 2, "{unasked}");
    scene.workplace.run(&["rollback", "--reason", "the old path is needed", "--yes"]).ok();
    assert_eq!(scene.in_force(), first);
    assert_eq!(scene.texts(scene.workplace.path()), before);
    let listed = scene.workplace.run(&["revisions"]);
    scene.says("revisions", &listed);
    let shown = scene.workplace.json(&["revisions", "show", &second[..8], "--json"]);
    assert_eq!(shown["files"]["queues.yml"], std::fs::read_to_string(scene.copy.path().join("queues.yml")).unwrap());
    let audit = scene.workplace.json(&["audit", "--json"]);
    let line = &audit["items"][0];
    assert_eq!((&line["actor"], &line["action"]), (&json!("ada"), &json!("configure")));
    assert_eq!((&line["object"], &line["detail"]), (&json!(first), &json!("the old path is needed")));
    // And forward again, by its name; then a restart finds what is in force.
    scene.workplace.run(&["rollback", &second[..6], "--reason", "after all", "--yes"]).ok();
    let Edited { workplace, node, .. } = scene;
    node.stop();
    let _node = workplace.up(&[]);
    assert_eq!(workplace.json(&["status", "--json"])["revision"], json!(second));
    let newest = &workplace.json(&["revisions", "--json"])["items"][0];
    assert_eq!((&newest["actor"], &newest["reason"]), (&json!("ada"), &json!("after all")), "a restart is no change");
}

#[test]
fn plan_is_tried_on_stored_requests() {
    let scene = edited();
    scene.edit("flow.yml", "path: /in/website", "path: /in/web");
    let trial = scene.workplace.json(&["plan", scene.copy(), "--history", "7d", "--json"])["history"].clone();
    assert_eq!((&trial["state"], &trial["report"]["different"]), (&json!("done"), &json!(0)), "{trial:#}");
    assert!(trial["report"]["events"].as_u64().unwrap() > 0, "{trial:#}");
    scene.edit("lead-to-crm.yml", "object: Lead", "object: Contact");
    let seen = scene.workplace.run(&["plan", scene.copy(), "--history", "7d"]);
    assert_eq!(seen.code, 4, "{seen}");
    for part in ["History", "Requests to destinations", "lead-to-crm", "url"] {
        assert!(seen.stdout.contains(part), "{part}: {seen}");
    }
    let history = seen.stdout.split("History").nth(1).unwrap().split("Apply:").next().unwrap();
    assert!(history.lines().all(|line| line.chars().count() <= 80), "{seen}");
    assert!(!history.contains("example.com") && history.contains("…/Aaaa/"), "{seen}");
    let unknown = scene.workplace.run(&["plan", scene.copy(), "--history", "soon"]);
    assert_eq!(unknown.code, 2, "{unknown}");
}

#[test]
fn shadow_is_started_with_a_plan_compared_and_stopped() {
    let scene = edited();
    scene.edit("lead-to-crm.yml", "object: Lead", "object: Contact");
    let unexplained = scene.workplace.run(&["plan", scene.copy(), "--shadow"]);
    assert_eq!(unexplained.code, 2, "{unexplained}");
    let started = scene.workplace.run(&["plan", scene.copy(), "--shadow", "--reason", "another object"]);
    assert_eq!(started.code, 4, "{started}");
    assert!(started.stderr.contains("sluice shadow"), "{started}");
    scene.workplace.write("payloads/beside.txt", &lead("beside", ""));
    scene.workplace.run(&["send", "website-leads", "payloads/beside.txt"]).ok();
    scene.workplace.until(&["shadow", "--json"], |shadow| shadow["verdict"] == "different");
    let shown = scene.workplace.run(&["shadow"]).ok();
    for part in ["1 of 1 requests differ", "another object", "lead-to-crm"] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    assert!(shown.stdout.lines().all(|line| line.chars().count() <= 80), "{shown}");
    scene.workplace.run(&["shadow", "stop", "--reason", "seen enough"]).ok();
    assert_eq!(scene.workplace.run(&["shadow"]).code, 1);
}

#[test]
fn shape_of_a_source_is_shown() {
    let scene = edited();
    scene.workplace.until(&["sources", "show", "website", "--shape", "--json"], |shapes| !shapes[0].is_null());
    let shown = scene.workplace.run(&["sources", "show", "website", "--shape"]).ok();
    for part in ["Learned from", "email", "text", "100 %"] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    assert!(!shown.stdout.to_lowercase().contains("ada@"), "{shown}");
    let nothing = scene.workplace.run(&["sources", "accept", "website", "--field", "utm", "--reason", "new form"]);
    assert_eq!(nothing.code, 1, "{nothing}");
    assert!(nothing.stderr.contains("no such notice"), "{nothing}");
}

#[test]
fn outdated_plan_is_not_applied() {
    let scene = edited();
    scene.edit("lead-to-crm.yml", "max_attempts: 3", "max_attempts: 4");
    let agreed = scene.hash();
    scene.edit("lead-to-crm.yml", "max_attempts: 4", "max_attempts: 40");
    let other_files = scene.apply(&agreed, &[]);
    assert_eq!(other_files.code, 1);
    assert!(other_files.stderr.contains("the files are revision"), "{other_files}");
    // Somebody else changes the node meanwhile.
    let agreed = scene.hash();
    scene.workplace.write("queues.yml", "queues: [crm-leads, crm-leads-dlq, notices, more]\n");
    scene.workplace.run(&["reload"]).ok();
    let other_node = scene.apply(&agreed, &[]);
    assert_eq!(other_node.code, 1);
    assert!(other_node.stderr.contains("the active revision is"), "{other_node}");
    let nonsense = scene.apply("latest", &[]);
    assert_eq!(nonsense.code, 2, "{nonsense}");
    // What was seen for this state is taken.
    scene.apply(&scene.hash(), &[]).ok();
}

#[test]
fn edits_in_the_configuration_directory_are_not_overwritten_silently() {
    let scene = edited();
    scene.edit("lead-to-crm.yml", "max_attempts: 3", "max_attempts: 4");
    scene.workplace.write("queues.yml", "queues: [crm-leads, crm-leads-dlq, notices, mine]\n");
    let refused = scene.apply(&scene.hash(), &[]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("queues.yml") && refused.stderr.contains("--discard-edits"), "{refused}");
    assert!(std::fs::read_to_string(scene.workplace.path().join("queues.yml")).unwrap().contains("mine"));
    scene.apply(&scene.hash(), &["--discard-edits"]).ok();
    assert_eq!(scene.texts(scene.workplace.path()), scene.texts(scene.copy.path()));
}

#[test]
fn resources_of_live_jobs_are_not_removed() {
    let scene = edited();
    let before = scene.in_force();
    std::fs::remove_file(scene.copy.path().join("lead-to-crm.yml")).unwrap();
    let seen = scene.workplace.run(&["plan", scene.copy()]);
    assert_eq!(seen.code, 1, "{seen}");
    scene.says("plan_that_strands", &seen);
    let refused = scene.apply(&scene.hash(), &[]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("worker lead-to-crm: 0 live jobs, 1 dead letters"), "{refused}");
    assert_eq!(scene.in_force(), before);
    scene.apply(&scene.hash(), &["--allow-stranded"]).ok();
    assert!(!scene.workplace.path().join("lead-to-crm.yml").exists());
}

#[test]
fn mistakes_are_found_by_the_node_with_its_own_secrets() {
    let scene = edited();
    let before = scene.texts(scene.workplace.path());
    scene.edit("destinations.yml", "secrets.CRM_CLIENT_SECRET", "secrets.NOBODY_HAS_THIS");
    let refused = scene.workplace.run(&["plan", scene.copy()]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("NOBODY_HAS_THIS"), "{refused}");
    assert_eq!(scene.texts(scene.workplace.path()), before);
}

#[tokio::test]
async fn only_configuration_files_are_accepted() {
    let scene = edited();
    let note: Value =
        serde_json::from_str(&std::fs::read_to_string(scene.workplace.path().join(".sluice/node.json")).unwrap())
            .unwrap();
    let admin = note["admin"].as_str().unwrap();
    let token = std::fs::read_to_string(scene.workplace.path().join(".sluice/admin.token")).unwrap();
    for path in ["../outside.yml", "/tmp/outside.yml", "secrets/WEBSITE_SECRET.json", ".sluice/node.json", "run.sh"] {
        let files = json!({ "files": { path: "queues: [a]" } });
        for (route, order) in [
            ("plan", files.clone()),
            ("apply", json!({ "files": files["files"], "plan": "00000000-00000000-000000000000", "reason": "x" })),
        ] {
            let answer = reqwest::Client::new()
                .post(format!("{admin}/api/v1/{route}"))
                .bearer_auth(token.trim())
                .json(&order)
                .send()
                .await
                .unwrap();
            let status = answer.status();
            let told: Value = answer.json().await.unwrap();
            assert_eq!((status.as_u16(), &told["code"]), (400, &json!("invalid")), "{route} {path}: {told}");
        }
    }
}

#[test]
fn interrupted_change_is_finished_by_the_next_start() {
    let Edited { workplace, node, copy, .. } = edited();
    drop(node);
    // As a node leaves it that is killed after it has committed to the files and before it has moved them.
    let staged = workplace.path().join(".sluice-apply");
    let queues = "queues: [crm-leads, crm-leads-dlq, notices, new]\n";
    std::fs::write(copy.path().join("queues.yml"), queues).unwrap();
    let files = sluice_server::config::read(copy.path()).unwrap();
    let revision = sluice_domain::config::Revision::of(files.iter()).0;
    std::fs::create_dir_all(staged.join("files")).unwrap();
    std::fs::write(staged.join("files/queues.yml"), queues).unwrap();
    let manifest = json!({ "revision": revision, "actor": "bob", "reason": "one more queue", "write": ["queues.yml"], "remove": [] });
    std::fs::write(staged.join("manifest.json"), manifest.to_string()).unwrap();
    let _node = workplace.up(&[]);
    assert_eq!(workplace.json(&["status", "--json"])["revision"], json!(revision));
    let newest = &workplace.json(&["revisions", "--json"])["items"][0];
    assert_eq!((&newest["actor"], &newest["reason"]), (&json!("bob"), &json!("one more queue")));
    assert!(!staged.exists());
}

#[test]
fn damaged_configuration_directory_is_restored_while_no_node_runs() {
    let Edited { workplace, node, copy, .. } = edited();
    let good = workplace.json(&["status", "--json"])["revision"].clone();
    node.stop();
    workplace.write("flow.yml", "name: [oops\n");
    let refused = workplace.run(&["rollback", good.as_str().unwrap(), "--reason", "it was broken", "--yes"]);
    assert_eq!(refused.code, 1, "{refused}");
    let back = ["rollback", good.as_str().unwrap(), "--reason", "it was broken", "--yes", "--discard-edits"];
    workplace.run(&back).ok();
    let text = |directory: &Path| std::fs::read_to_string(directory.join("flow.yml")).unwrap();
    assert_eq!(text(workplace.path()), text(copy.path()));
    let _node = workplace.up(&[]);
    assert_eq!(workplace.json(&["status", "--json"])["revision"], good);
}

#[test]
fn two_directories_are_compared_without_a_node() {
    let Edited { workplace, node, copy, .. } = edited();
    drop(node);
    let path = copy.path().join("queues.yml");
    std::fs::write(&path, "queues: [crm-leads, crm-leads-dlq, notices, new]\n").unwrap();
    let secrets = PathBuf::from(workplace.path()).join("secrets");
    std::fs::create_dir(copy.path().join("secrets")).unwrap();
    for name in ["WEBSITE_SECRET", "CRM_CLIENT_SECRET", "HOOK_TOKEN"] {
        std::fs::copy(secrets.join(name), copy.path().join("secrets").join(name)).unwrap();
    }
    let copy = copy.path().to_str().unwrap();
    let seen = workplace.run(&["plan", copy, "--against", "."]);
    assert_eq!(seen.code, 4, "{seen}");
    assert!(seen.stdout.contains("+ queue new"), "{seen}");
    assert_eq!(workplace.run(&["plan", copy, "--against", copy]).code, 0);
}
