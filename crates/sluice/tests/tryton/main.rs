//! Tryton, a CRM that makes two records of two equal creates and answers errors with 200, behind a network that cuts, holds and
//! delays calls, and a node that is killed: each customer becomes one party. `examples/tryton/serve` installs it once into
//! `target/third_party/tryton`; a failed installation fails the test.

#![allow(clippy::unwrap_used)]

#[path = "../cli/support/mod.rs"]
mod support;

mod faulty_proxy;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faulty_proxy::{FaultyProxy, Rates};
use serde_json::{Value, json};
use support::{Ran, Up, Workplace};
use tempfile::TempDir;

const CUSTOMERS: usize = 1_000;
/// Every tenth customer sends a second lead, with another address: another lane, the same party.
const SECOND_LEADS: usize = CUSTOMERS / 10;
/// The node is killed each time that so many customers more have a party.
const CUSTOMERS_PER_KILL: usize = 200;
/// Installing Tryton and creating its database takes a minute on a quiet machine.
const START_MAX: Duration = Duration::from_secs(900);
const SETTLED_MAX: Duration = Duration::from_secs(1_200);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn until<T>(limit: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A Tryton with an empty database.
struct Tryton {
    process: Child,
    directory: TempDir,
    port: u16,
}

impl Tryton {
    fn start() -> Tryton {
        let (directory, port) = (TempDir::new().unwrap(), free_port());
        let mut process = Command::new(root().join("examples/tryton/serve"))
            .arg(directory.path())
            .arg(port.to_string())
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let session = directory.path().join("session");
        until(START_MAX, "Tryton", || {
            assert!(process.try_wait().unwrap().is_none(), "Tryton ended: see the output above");
            session.exists().then_some(())
        });
        Tryton { process, directory, port }
    }

    fn session(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("session")).unwrap()
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        let mut command = Command::new(root().join("examples/tryton/rpc"));
        command.arg(self.directory.path()).args([&self.port.to_string(), method, &params.to_string()]);
        let answer = Ran::of(&mut command).ok();
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    fn parties(&self) -> usize {
        let count = self.call("model.party.party.search_count", &json!([[], 0, null, {}]));
        usize::try_from(count.as_u64().unwrap()).unwrap()
    }

    /// Number of parties of each customer.
    fn customers(&self) -> BTreeMap<String, usize> {
        let params = json!([[], 0, null, null, ["code"], {}]);
        let mut customers = BTreeMap::new();
        for identifier in self.call("model.party.identifier.search_read", &params).as_array().unwrap() {
            *customers.entry(identifier["code"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        customers
    }
}

impl Drop for Tryton {
    /// Ends the script with the server that it started.
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.process.wait();
    }
}

/// The example with these addresses.
fn workplace(tryton: &Tryton, address: &str) -> Workplace {
    let workplace = Workplace { directory: TempDir::new().unwrap() };
    let config = root().join("examples/tryton/config");
    for file in ["flow.yml", "worker.yml", "secrets/FORMS_TOKEN"] {
        workplace.write(file, &std::fs::read_to_string(config.join(file)).unwrap());
    }
    let destinations = std::fs::read_to_string(config.join("destinations.yml")).unwrap();
    let destinations = destinations.replace("127.0.0.1:8069", address).replace("timeout: 10s", "timeout: 5s")
        + "    breaker: { failures_in_a_row: 100000, calls_min: 100000 }\n";
    workplace.write("destinations.yml", &destinations);
    workplace.write("secrets/TRYTON_SESSION", &tryton.session());
    workplace
}

fn lead(submission: &str, customer: usize, address: &str) -> Value {
    json!({
        "submission_id": submission,
        "customer": format!("c-{customer}"),
        "email": address,
        "name": format!("Customer {customer}"),
    })
}

/// Posts a lead until it is accepted: the node may be down.
async fn post(client: &reqwest::Client, url: &str, lead: &Value) {
    let give_up = Instant::now() + Duration::from_secs(300);
    loop {
        let request = client.post(url).bearer_auth("tryton-forms-token").json(lead);
        if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
            return;
        }
        assert!(Instant::now() < give_up, "the node does not accept leads");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn post_all(url: String) {
    let client = reqwest::Client::new();
    for customer in 0..CUSTOMERS {
        let first = lead(&format!("s-{customer}"), customer, &format!("customer{customer}@example.com"));
        post(&client, &url, &first).await;
        if customer % 10 == 0 {
            let second = lead(&format!("t-{customer}"), customer, &format!("other{customer}@example.com"));
            post(&client, &url, &second).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_time_outs_and_cut_connections_leave_one_party_of_each_customer() {
    let tryton = Tryton::start();
    let rates = Rates { before: 12, after: 12, failed: 8, late: 0.5, held: 0.5, other: 3 };
    let proxy = FaultyProxy::start(tryton.port, rates, Duration::from_secs(6));
    let workplace = workplace(&tryton, &proxy.address());
    let intake = format!("127.0.0.1:{}", free_port());
    let mut node = start(&workplace, &intake);
    let posted = tokio::spawn(post_all(format!("http://{intake}/in/leads")));
    for kill in 1..CUSTOMERS / CUSTOMERS_PER_KILL {
        until(SETTLED_MAX, "parties", || (tryton.parties() >= kill * CUSTOMERS_PER_KILL).then_some(()));
        node.kill();
        node = start(&workplace, &intake);
    }
    posted.await.unwrap();
    let jobs = until(SETTLED_MAX, "the last job", || {
        let jobs = workplace.json(&["status", "--json"])["jobs"].clone();
        let live = ["queued", "running", "retrying", "waiting"].iter().any(|state| jobs.get(state).is_some());
        (!live).then_some(jobs)
    });
    println!("jobs {jobs}, faults {:?}", proxy.counts());
    let counts = proxy.counts();
    assert!(counts.values().all(|count| *count > 0), "a fault was never injected: {counts:?}");
    let customers = tryton.customers();
    let doubled: Vec<_> = customers.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "parties of one customer: {doubled:?}");
    assert_eq!((customers.len(), tryton.parties()), (CUSTOMERS, CUSTOMERS));
    assert_eq!(jobs, json!({ "succeeded": CUSTOMERS + SECOND_LEADS }));
}

/// A node whose intake is at this address.
fn start(workplace: &Workplace, intake: &str) -> Up {
    let arguments = ["up", "--intake", intake, "--admin", "127.0.0.1:0", "--watch", "false"];
    workplace.start(workplace.command(&arguments), &[])
}

/// Commands in the README of the example, at free ports.
#[test]
fn commands_of_the_readme_run_as_written() {
    let directory = TempDir::new().unwrap();
    let readme = std::fs::read_to_string(root().join("examples/tryton/README.md")).unwrap();
    let script = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let [tryton, intake, admin] = [(); 3].map(|()| free_port());
    let script = script.replace("8069", &tryton.to_string()).replace("8081", &admin.to_string());
    let script = format!("set -e\ntrap 'kill $(jobs -p)' EXIT\n{script}");
    copy(&root().join("examples/tryton"), &directory.path().join("examples/tryton"), tryton);
    let programs = directory.path().join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), programs.join("sluice")).unwrap();
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    command
        .args(["-c", &script])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default()))
        .env("TRYTON_HOME", root().join("target/third_party/tryton"))
        .env("SLUICE_INTAKE", format!("127.0.0.1:{intake}"))
        .env("SLUICE_ADMIN", format!("127.0.0.1:{admin}"))
        .env("SLUICE_LOG", "warn")
        .stdin(Stdio::null());
    let ran = Ran::of(&mut command).ok();
    assert!(ran.stdout.contains("lead-to-tryton"), "{ran}");
}

fn copy(from: &Path, to: &Path, port: u16) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target, port);
        } else {
            std::fs::copy(&entry, &target).unwrap();
            if target.ends_with("destinations.yml") {
                let text = std::fs::read_to_string(&entry).unwrap().replace("8069", &port.to_string());
                std::fs::write(target, text).unwrap();
            }
        }
    }
}
