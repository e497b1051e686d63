//! The vendors' own clients, unchanged, succeed and fail on the simulator the way they do on the real thing.
//!
//! They are installed once into `target/vendor-clients`. When that fails, this test fails: a simulator that no real
//! client has tried is not known to look like anything.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_simulator::salesforce::Truth;
use sluice_simulator::{Salesforce, SalesforceSettings};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vendor")
}

fn installed() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp lies in target");
    target.join("vendor-clients")
}

fn run(what: &str, command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {command:?} did not start: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what} failed ({})\n{said}\n{complained}", output.status);
    said
}

/// Runs `install` unless the folder already holds what `wanted` lists.
fn once(folder: &Path, wanted: &str, install: impl FnOnce()) {
    let mark = folder.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return;
    }
    std::fs::create_dir_all(folder).expect("a folder in target");
    install();
    std::fs::write(&mark, wanted).expect("a mark in target");
}

fn install_simple_salesforce() -> PathBuf {
    let folder = installed().join("python");
    let list = scripts().join("requirements.txt");
    let wanted = std::fs::read_to_string(&list).expect("the list of packages");
    let python = folder.join("bin/python");
    once(&folder, &wanted, || {
        let environment = ["-m", "venv", "--clear"];
        run("creating a Python environment", Command::new("python3").args(environment).arg(&folder));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run("installing simple-salesforce from PyPI", Command::new(&python).args(install).arg(&list));
    });
    python
}

fn install_jsforce() -> PathBuf {
    let folder = installed().join("node");
    let wanted = std::fs::read_to_string(scripts().join("package.json")).expect("the list of packages");
    once(&folder, &wanted, || {
        std::fs::write(folder.join("package.json"), &wanted).expect("a copy in target");
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
        run("installing jsforce from npm", Command::new("npm").args(install).current_dir(&folder));
    });
    folder
}

fn seen(said: &str) -> Value {
    let last = said.lines().last().expect("the script prints what it saw");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn simple_salesforce() -> (Value, Truth) {
    let python = install_simple_salesforce();
    let org = Salesforce::start(SalesforceSettings::default()).expect("an org on a free port");
    let mut command = Command::new(python);
    command.arg(scripts().join("simple_salesforce_client.py"));
    command.env("SIM_URL", org.url()).env("SIM_TOKEN", org.issue_token());
    (seen(&run("simple-salesforce", &mut command)), org.truth())
}

fn jsforce() -> (Value, Truth) {
    let folder = install_jsforce();
    let org = Salesforce::start(SalesforceSettings::default()).expect("an org on a free port");
    let mut command = Command::new("node");
    command.arg(scripts().join("jsforce_client.mjs")).current_dir(folder).env("SIM_URL", org.url());
    let seen = seen(&run("jsforce", &mut command));
    assert_eq!(seen["instance_url"], org.url());
    (seen, org.truth())
}

/// What both scripts leave behind: the upserted lead and the two that share an id; the created one was deleted.
fn assert_left_behind(truth: &Truth) {
    let lead = truth.object("Lead");
    assert_eq!((lead.records, lead.created, lead.deleted, lead.ambiguous), (3, 4, 1, 1), "{truth:?}");
    assert_eq!(truth.faults_total(), 1);
}

#[test]
fn the_vendors_own_clients_see_what_they_know() {
    let python = std::thread::spawn(simple_salesforce);
    let (js, js_truth) = jsforce();
    let (py, py_truth) = python.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    check_simple_salesforce(&py);
    assert_left_behind(&py_truth);
    check_jsforce(&js);
    assert_left_behind(&js_truth);
}

fn check_simple_salesforce(seen: &Value) {
    assert_eq!(seen["create"]["success"], true);
    assert_eq!((&seen["upsert_new"], &seen["upsert_again"], &seen["update"]), (&json!(201), &json!(200), &json!(204)));
    assert_eq!((&seen["read"]["FirstName"], &seen["read"]["LastName"]), (&json!("Lwazi"), &json!("Nkosi")));
    assert_eq!(seen["query"]["records"][0]["Title"], "CTO");
    assert!(seen["usage"]["api-usage"].to_string().contains("10000000"), "{}", seen["usage"]);
    assert_eq!(seen["delete"], 204);
    for (name, kind, status, code) in [
        ("update_only", "SalesforceResourceNotFound", 404, json!("NOT_FOUND")),
        ("unknown_field", "SalesforceMalformedRequest", 400, json!("INVALID_FIELD")),
        ("several", "SalesforceMoreThanOneRecord", 300, Value::Null),
        ("lock", "SalesforceMalformedRequest", 400, json!("UNABLE_TO_LOCK_ROW")),
        ("expired", "SalesforceExpiredSession", 401, json!("INVALID_SESSION_ID")),
    ] {
        let failure = &seen[name];
        assert_eq!(
            (&failure["type"], &failure["status"], &failure["code"]),
            (&json!(kind), &json!(status), &code),
            "{name}"
        );
    }
    let several = seen["several"]["content"].as_array().expect("a list of addresses");
    assert!(several.iter().all(|url| url.as_str().is_some_and(|url| url.contains("/sobjects/Lead/00Q"))));
}

fn check_jsforce(seen: &Value) {
    assert_eq!(seen["refused"]["name"], "invalid_client");
    assert_eq!(
        (&seen["create"]["success"], &seen["update"]["success"], &seen["delete"]["success"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!((&seen["upsert_new"]["created"], &seen["upsert_again"]["created"]), (&json!(true), &json!(false)));
    assert_eq!(seen["upsert_new"]["id"], seen["upsert_again"]["id"]);
    assert_eq!(seen["read"]["FirstName"], "Lwazi");
    assert_eq!(seen["query"]["records"][0]["Title"], "CTO");
    assert_eq!(seen["usage"]["apiUsage"]["limit"], 10_000_000);
    assert_eq!(seen["versions"], 38);
    assert_eq!((&seen["collection"][0]["success"], &seen["collection"][1]["success"]), (&json!(true), &json!(false)));
    for (name, code) in [
        ("update_only", "NOT_FOUND"),
        ("unknown_field", "INVALID_FIELD"),
        ("several", "MULTIPLE_CHOICES"),
        ("lock", "UNABLE_TO_LOCK_ROW"),
        ("expired", "INVALID_SESSION_ID"),
    ] {
        assert_eq!(seen[name]["name"], code, "{name}: {}", seen[name]);
    }
}
