//! The commands of the documentation do what they say, as they are written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Ran;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An address on which nothing listened a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Fenced blocks of a page: the text after the fence, and the content.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(info), false) => {
                found.push((info.to_owned(), String::new()));
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = &mut found.last_mut().unwrap().1;
                block.push_str(line);
                block.push('\n');
            }
            (None, false) => {}
        }
    }
    found
}

fn shell(page: &str) -> String {
    blocks(page).into_iter().filter(|(info, _)| info == "sh").map(|(_, block)| block).collect()
}

/// A script in which every command has to end with the exit code that its comment names, or with 0.
fn checked(commands: &str) -> String {
    let mut script = "set -u\ntrap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n".to_owned();
    for line in commands.replace("\\\n", " ").lines().filter(|line| !line.trim().is_empty()) {
        let (command, comment) = line.split_once(" #").unwrap_or((line, ""));
        if command.trim_end().ends_with('&') {
            script.push_str(&format!("{command}\n"));
            continue;
        }
        let code = comment.split_once("exit code ").map_or("0", |(_, code)| code.trim_end_matches(')'));
        let quoted = command.replace('\'', "'\\''");
        script.push_str(&format!(
            "{command}\ncode=$?; [ $code = {code} ] || {{ echo 'exit code '$code': {quoted}' >&2; exit 1; }}\n"
        ));
    }
    script
}

/// Where things listen, instead of the addresses on the page.
struct Addresses {
    intake: String,
    admin: String,
    crm: String,
    sink: String,
    mail: String,
    hubspot: String,
}

impl Addresses {
    fn free() -> Addresses {
        let [intake, admin, crm, sink, mail, hubspot] = [(); 6].map(|()| free_address());
        Addresses { intake, admin, crm, sink, mail, hubspot }
    }

    fn put_into(&self, text: &str) -> String {
        let port = self.mail.rsplit(':').next().unwrap();
        text.replace("127.0.0.1:8081", &self.admin)
            .replace("127.0.0.1:8090", &self.crm)
            .replace("127.0.0.1:8091", &self.sink)
            .replace("127.0.0.1:8093", &self.hubspot)
            .replace("127.0.0.1:1025", &self.mail)
            .replace("port: 1025", &format!("port: {port}"))
            .replace("sluice sim received", &format!("sluice sim received --at {}", self.crm))
            .replace("sluice sim --", &format!("sluice sim --listen {} --", self.crm))
    }
}

fn copy(from: &Path, to: &Path, addresses: &Addresses) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target, addresses);
        } else {
            std::fs::write(target, addresses.put_into(&std::fs::read_to_string(&entry).unwrap())).unwrap();
        }
    }
}

/// Runs a script in a directory, with `sluice` in the path.
fn run(script: &str, directory: &Path, addresses: &Addresses) -> Ran {
    let programs = directory.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), programs.join("sluice")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    command
        .args(["-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("SLUICE_INTAKE", &addresses.intake)
        .env("SLUICE_ADMIN", &addresses.admin)
        .env("SLUICE_LOG", "warn")
        .stdin(Stdio::null());
    Ran::of(&mut command)
}

/// The commands in the README of an example.
fn run_example(name: &str) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let addresses = Addresses::free();
    let example = root().join("examples").join(name);
    copy(&example, &directory.path().join("examples").join(name), &addresses);
    let readme = std::fs::read_to_string(example.join("README.md")).unwrap();
    run(&checked(&addresses.put_into(&shell(&readme))), directory.path(), &addresses).ok()
}

/// Files and commands of a page. Files that a block names are in `shop`, payloads beside it.
fn run_page(name: &str, before: &str) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let addresses = Addresses::free();
    let page = std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let mut secrets = BTreeSet::new();
    for (info, text) in blocks(&page) {
        let (folder, file) = match info.split_once(' ') {
            Some(("yaml", file)) => ("shop", file),
            Some(("json" | "csv", file)) => (".", file),
            _ => continue,
        };
        let path = directory.path().join(folder).join(file.trim());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &text).unwrap();
        let named = text.split("${secrets.").skip(1).filter_map(|rest| rest.split_once('}'));
        secrets.extend(named.map(|(name, _)| name.to_owned()));
    }
    let exported: String =
        secrets.iter().map(|name| format!("export SLUICE_SECRET_{name}=a-secret-of-this-page\n")).collect();
    let commands = addresses.put_into(&format!("{before}{}", shell(&page)));
    run(&format!("{exported}{}", checked(&commands)), directory.path(), &addresses).ok()
}

/// Starts a node with the configuration of a page.
const NODE: &str = "sluice up shop &
until curl -sf http://127.0.0.1:8081/readyz > /dev/null; do sleep 0.1; done
export SLUICE_CONFIG=shop
";

#[test]
fn commands_of_the_lead_routing_readme_run_as_written() {
    let ran = run_example("lead-routing");
    assert!(ran.stdout.contains("lead-to-crm"), "{ran}");
}

#[test]
fn commands_of_the_cart_recovery_readme_run_as_written() {
    run_example("cart-recovery");
}

#[test]
fn commands_of_the_other_readmes_run_as_written() {
    run_example("lead-capture");
    run_example("webhook-to-crm");
    run_example("hubspot-leads");
}

#[test]
fn commands_of_the_readmes_of_single_senders_run_as_written() {
    let forms = ["meta-lead-ads", "typeform-leads", "hubspot-forms"];
    let others = ["shopify-abandoned-cart", "stripe-customers", "calendly-invitees", "csv-import"];
    for name in forms.into_iter().chain(others) {
        run_example(name);
    }
}

#[test]
fn commands_of_the_one_person_readme_run_as_written() {
    let ran = run_example("one-person");
    assert!(ran.stdout.contains("con_1"), "{ran}");
}

#[test]
fn commands_of_the_configuration_page_run_as_written() {
    let ran = run_page("configuration.md", "");
    assert!(ran.stdout.contains("/subscribers/shop%3A7"), "{ran}");
}

#[test]
fn commands_of_the_playbooks_page_run_as_written() {
    let ran = run_page("playbooks.md", NODE);
    assert!(ran.stdout.contains("destination:discounts"), "{ran}");
}

#[test]
fn commands_of_the_import_and_export_page_run_as_written() {
    let ran = run_page("import-export.md", NODE);
    assert!(ran.stdout.contains("field-missing") && ran.stdout.contains("sluice_export,contact,"), "{ran}");
}

#[test]
fn command_that_fails_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let run = |commands: &str| {
        let script = checked(commands);
        Ran::of(Command::new("bash").args(["-c", &script]).current_dir(directory.path())).code
    };
    assert_eq!(run("true\nfalse   # refused (exit code 1)\ntrue \\\n  again\n"), 0);
    assert_eq!(run("true\nfalse\n"), 1);
    assert_eq!(run("true  # refused (exit code 1)\n"), 1);
}
