//! Questions, suppressed contacts and safe mode from the command line, against a node of the real binary. Word for word.

use crate::support::scene::{Around, place};
use crate::support::{Ran, Up, Workplace, squeezed, steady};
use serde_json::Value;
use sluice_simulator::FaultPlan;

const ASK: &str = r#"
name: welcome
on: lead.created
safe_mode: { hold: true, for: 2h }
run:
  - name: approve
    run: approval.request
    with:
      title: "Write to {{ event.company }}?"
      summary: "{{ event.last_name }} asked for it"
      expires: 3d
"#;

#[track_caller]
fn says(workplace: &Workplace, name: &str, ran: &Ran) {
    let mut settings = steady(workplace);
    settings.add_filter(r"\bapr_[0-9a-f]{32}\b", "apr_[id]");
    settings.add_filter(r"\bin \d+[smhd]\b", "[in]");
    settings.bind(|| insta::assert_snapshot!(name, squeezed(&ran.to_string())));
}

/// A node whose leads wait for somebody to say yes.
fn asking() -> (Workplace, Up, Around) {
    let (workplace, around) = place(FaultPlan::default());
    workplace.write("welcome.yml", ASK);
    let node = workplace.up(&[]);
    (workplace, node, around)
}

fn names(value: &Value) -> String {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().cloned().collect::<Vec<_>>().join(" ")
}

/// Sends a lead, and waits until so many questions wait for an answer.
fn ask(workplace: &Workplace, payload: &str, questions: usize) -> Value {
    workplace.run(&["send", "website-leads", &format!("payloads/{payload}.txt")]).ok();
    workplace
        .until(&["approvals", "--json"], |list| list["items"].as_array().is_some_and(|items| items.len() == questions))
}

#[test]
fn approvals_are_listed_shown_and_decided_once() {
    let (workplace, _node, _around) = asking();
    let run = |arguments: &[&str]| workplace.run(arguments);
    says(&workplace, "approvals_none", &run(&["approvals"]).ok());
    says(&workplace, "approvals_none_match", &run(&["approvals", "--state", "rejected"]).ok());
    says(&workplace, "approve_none", &run(&["approvals", "approve", "--all", "--reason", "x", "--yes"]));

    let list = ask(&workplace, "lead", 1);
    let first = list["items"][0]["id"].as_str().unwrap().to_owned();
    says(&workplace, "approvals", &run(&["approvals"]).ok());
    says(&workplace, "approvals_show", &run(&["approvals", "show", &first]).ok());
    says(&workplace, "approve", &run(&["approvals", "approve", &first, "--reason", "looks good"]).ok());
    says(&workplace, "approve_again", &run(&["approvals", "reject", &first, "--reason", "too late"]));
    says(&workplace, "approvals_show_answered", &run(&["approvals", "show", &first]).ok());

    ask(&workplace, "tell", 1);
    let all = ["approvals", "reject", "--all", "--reason", "a holiday"];
    says(&workplace, "reject_without_yes", &run(&all));
    says(&workplace, "reject_dry_run", &run(&[&all[..], &["--dry-run"]].concat()).ok());
    says(&workplace, "reject", &run(&[&all[..], &["--yes"]].concat()).ok());
    says(&workplace, "approvals_answered", &run(&["approvals", "--state", "all"]).ok());
    says(&workplace, "no_such_question", &run(&["approvals", "show", "apr_nothing"]));
}

#[test]
fn approvals_have_the_json_of_the_api() {
    let (workplace, _node, _around) = asking();
    let list = ask(&workplace, "lead", 1);
    assert_eq!(names(&list), "items");
    let fields = names(&list["items"][0]);
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!(names(&workplace.json(&["approvals", "show", id, "--json"])), fields);
    let answered = workplace.json(&["approvals", "approve", id, "--reason", "x", "--json"]);
    assert_eq!((names(&answered), &answered["state"]), (fields, &Value::from("approved")));
    let none = workplace.json(&["approvals", "approve", "--all", "--reason", "x", "--yes", "--json"]);
    assert_eq!((names(&none), &none["changed"]), ("matched changed skipped dry_run".to_owned(), &Value::from(0)));
    assert_eq!(workplace.json(&["approvals", "--json"])["items"], Value::Array(vec![]));
}

#[test]
fn contacts_are_suppressed_and_shown_masked() {
    let (workplace, _node, _around) = asking();
    let run = |arguments: &[&str]| workplace.run(arguments);
    says(&workplace, "suppress_none", &run(&["suppress", "list"]).ok());
    assert_eq!(workplace.json(&["suppress", "list", "--json"])["items"], Value::Array(vec![]));
    workplace.write("gone.txt", "eve@example.com  # asked twice\n\n+491701234567\n");
    let one = ["suppress", "add", "ada@example.com", "--channel", "email", "--reason", "asked on the phone"];
    says(&workplace, "suppress_one", &run(&one).ok());
    says(&workplace, "suppress_file", &run(&["suppress", "add", "--file", "gone.txt", "--reason", "import"]).ok());
    let listed = run(&["suppress", "list"]).ok();
    assert!(!listed.stdout.contains("ada@example.com") && !listed.stdout.contains("491701234567"), "{listed}");
    says(&workplace, "suppress_list", &listed);
    let list = workplace.json(&["suppress", "list", "--json", "--limit", "1"]);
    let items = list["items"].as_array().unwrap();
    assert_eq!((items.len(), names(&items[0])), (1, "contact channel at actor reason".to_owned()));
    assert!(list["next"].is_string(), "{list}");
    says(&workplace, "unsuppress", &run(&["suppress", "remove", "eve@example.com", "--reason", "is back"]).ok());
    says(&workplace, "unsuppress_again", &run(&["suppress", "remove", "eve@example.com", "--reason", "is back"]));
    let removed = workplace.json(&["suppress", "remove", "+491701234567", "--reason", "is back", "--json"]);
    assert_eq!((names(&removed), &removed["removed"]), ("added removed".to_owned(), &Value::from(1)));
}

#[test]
fn safe_mode_is_turned_on_and_off() {
    let (workplace, _node, _around) = asking();
    let run = |arguments: &[&str]| workplace.run(arguments);
    says(&workplace, "safe_mode_off", &run(&["safe-mode"]).ok());
    assert_eq!(workplace.json(&["safe-mode", "--json"]), Value::Array(vec![]));
    let one = ["safe-mode", "on", "--worker", "welcome", "--reason", "partner is throttling us"];
    says(&workplace, "safe_mode_of_a_worker", &run(&one).ok());
    says(&workplace, "safe_mode_of_all", &run(&["safe-mode", "on", "--for", "30m", "--reason", "incident 42"]).ok());
    says(&workplace, "safe_mode", &run(&["safe-mode"]).ok());
    let modes = workplace.json(&["safe-mode", "--json"]);
    assert_eq!((modes.as_array().unwrap().len(), names(&modes[0])), (2, "worker since until actor reason".to_owned()));
    says(&workplace, "safe_mode_unknown_worker", &run(&["safe-mode", "on", "--worker", "nobody", "--reason", "x"]));
    says(&workplace, "safe_mode_for_a_while", &run(&["safe-mode", "on", "--for", "a while", "--reason", "x"]));
    says(
        &workplace,
        "safe_mode_turned_off",
        &run(&["safe-mode", "off", "--worker", "welcome", "--reason", "over"]).ok(),
    );
    assert_eq!(workplace.json(&["safe-mode", "off", "--reason", "over", "--json"]), Value::Array(vec![]));
}
