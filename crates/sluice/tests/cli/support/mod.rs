//! A directory to work in, the real binary, and what it says.

#![allow(dead_code)]

pub(crate) mod scene;

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A node on ports of the system's choosing.
pub(crate) const UP: [&str; 7] = ["up", "--intake", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--watch", "false"];

const FLOW: &str = r#"
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify:
        scheme: hmac
        header: X-Signature
        algorithm: sha256
        encoding: hex
        prefix: "sha256="
        secret: ${secrets.WEBSITE_SECRET}
      idempotency:
        key_from: body.id
event:
  type: lead.created
  identity:
    contact_external_id: "website:{{ body.id }}"
    email: "{{ body.email | lower | trim }}"
  attributes:
    last_name: body.last_name
    company: body.company
    broken: body.broken
  required: [attributes.last_name]
steps:
  - name: enqueue
    queue: { name: crm-leads }
  - name: tell
    if: body.tell
    queue: { name: notices }
"#;

const QUEUES: &str = "
queues:
  - name: crm-leads
  - name: crm-leads-dlq
  - name: notices
";

const WORKERS: [(&str, &str); 2] = [
    (
        "lead-to-crm.yml",
        r#"
name: lead-to-crm
consumes: { queue: crm-leads }
retry: { strategy: exponential, base_delay: 1s, max_attempts: 3, on_exhausted: "dlq:crm-leads-dlq" }
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields:
        LastName: "{{ event.last_name }}"
        Company: "{{ event.company }}"
        Email: "{{ event.email }}"
        Broken__c: "{{ event.broken }}"
"#,
    ),
    (
        "notify.yml",
        r#"
name: notify
consumes: { queue: notices }
retry: { strategy: exponential, base_delay: 1s, max_attempts: 3 }
run:
  - name: vip
    if: body.vip
    run: http.request
    with: { destination: hooks, method: PUT, url: "/resource/{{ body.id }}", json: { vip: true } }
  - name: post
    run: http.request
    with:
      destination: hooks
      url: /notices
      headers: { X-Api-Key: "${secrets.HOOK_TOKEN}" }
      json: { lead: "{{ body.id }}", email: "{{ event.email }}" }
  - name: follow-up
    if: steps.post.output.status == 200
    run: http.request
    with:
      destination: hooks
      method: PUT
      url: "/resource/{{ body.id }}"
      json: { said: "{{ steps.post.output.body.ok }}" }
"#,
    ),
];

/// A configuration in a directory of its own.
#[derive(Debug)]
pub(crate) struct Workplace {
    pub directory: TempDir,
}

impl Workplace {
    /// With destinations at these addresses.
    pub(crate) fn new(crm: &str, hooks: &str) -> Workplace {
        let workplace = Workplace { directory: TempDir::new().unwrap() };
        workplace.write("flow.yml", FLOW);
        workplace.write("queues.yml", QUEUES);
        for (name, text) in WORKERS {
            workplace.write(name, text);
        }
        let destinations = format!(
            "destinations:\n  crm:\n    type: salesforce\n    instance_url: {crm}\n    api_version: v60.0\n    \
             auth: {{ client_id: sim-client, client_secret: \"${{secrets.CRM_CLIENT_SECRET}}\" }}\n  hooks:\n    type: http\n    base_url: {hooks}\n"
        );
        workplace.write("destinations.yml", &destinations);
        workplace.write("secrets/WEBSITE_SECRET", "website-secret");
        workplace.write("secrets/CRM_CLIENT_SECRET", "sim-secret");
        workplace.write("secrets/HOOK_TOKEN", "hook-token-4711");
        workplace.write("payloads/lead.txt", &lead("lead-1", ""));
        workplace.write("payloads/broken.txt", &lead("lead-2", r#","broken":"x""#));
        workplace.write("payloads/tell.txt", &lead("lead-3", r#","tell":true"#));
        workplace
    }

    /// With destinations that nobody listens at.
    pub(crate) fn alone() -> Workplace {
        Workplace::new("http://127.0.0.1:9", "http://127.0.0.1:9")
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepared(Command::new(env!("CARGO_BIN_EXE_sluice")));
        command.args(arguments);
        command
    }

    /// In this directory, without the settings of another node.
    fn prepared(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
            command.env_remove(name);
        }
        command.current_dir(self.path()).env("SLUICE_ACTOR", "ada").env("SLUICE_LOG", "warn").stdin(Stdio::null());
        command
    }

    /// Runs to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(arguments))
    }

    /// The JSON that it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(arguments);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {ran}"))
    }

    /// Runs with something on standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::from(child.wait_with_output().unwrap())
    }

    /// A node on ports of the system's choosing, once it says that it is up.
    pub(crate) fn up(&self, more: &[(&str, &str)]) -> Up {
        self.start(self.command(&UP), more)
    }

    /// The same, with an umask.
    pub(crate) fn up_with_umask(&self, umask: &str, more: &[(&str, &str)]) -> Up {
        let mut command = Command::new("sh");
        let script = format!("umask {umask} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_sluice")]).args(UP);
        self.start(self.prepared(command), more)
    }

    /// The same, which reloads changed files.
    pub(crate) fn up_with_watch(&self) -> Up {
        let mut command = self.command(&UP[..5]);
        command.args(["--watch", "true"]);
        self.start(command, &[])
    }

    /// Starts a node by this command, and waits until it says that it is up.
    pub(crate) fn start(&self, mut command: Command, more: &[(&str, &str)]) -> Up {
        command.env("SLUICE_LOG", "info").envs(more.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("the node ended: {seen}")).unwrap();
            if line.contains("node started") {
                break;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        // Read on, or the node would block once the pipe is full.
        let log = Arc::new(Mutex::new(seen));
        let writes = log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = writes.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Up { child, log }
    }

    /// Runs the command again until its JSON is as wanted.
    pub(crate) fn until(&self, arguments: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let give_up = Instant::now() + Duration::from_secs(30);
        loop {
            let value = self.json(arguments);
            if wanted(&value) {
                return value;
            }
            assert!(Instant::now() < give_up, "{arguments:?} is still {value}");
        }
    }

    /// Until every job has come to an end.
    pub(crate) fn until_settled(&self) {
        self.until(&["jobs", "--json"], |list| {
            let live =
                |job: &Value| matches!(job["state"].as_str(), Some("queued" | "running" | "retrying" | "waiting"));
            !list["items"].as_array().unwrap().iter().any(live)
        });
    }
}

/// A lead as the website posts it.
pub(crate) fn lead(id: &str, more: &str) -> String {
    format!(r#"{{"id":"{id}","email":"Ada@Example.com","last_name":"Lovelace","company":"Engines"{more}}}"#)
}

/// A running node. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Up {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Up {
    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        let told = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(told.success() && self.child.wait().unwrap().success());
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until its log has this text, and returns the log.
    pub(crate) fn until_logged(&self, text: &str) -> String {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(Instant::now() < give_up, "no `{text}` in\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Ran {
        Ran::from(command.output().unwrap())
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self}");
        self
    }
}

impl From<std::process::Output> for Ran {
    fn from(output: std::process::Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}\n{}", self.code, self.stdout)?;
        if self.stderr.is_empty() { Ok(()) } else { write!(f, "--- standard error\n{}", self.stderr) }
    }
}

/// Takes out of a snapshot what differs from run to run.
pub(crate) fn steady(workplace: &Workplace) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(true);
    settings.set_omit_expression(true);
    settings.add_filter(&workplace.path().display().to_string().replace('.', "\\."), "[directory]");
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:[port]");
    settings.add_filter(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)", "[time]");
    settings.add_filter(r"([Cc]onfiguration +)[0-9a-f]{16}", "${1}[revision]");
    settings.add_filter(r"running( +)\d+, \d+ in memory", "running${1}[n], [n] in memory");
    settings.add_filter(r#""revision": "[0-9a-f]{16}""#, r#""revision": "[revision]""#);
    settings.add_filter(r"configure +[0-9a-f]{16}", "configure  [revision]");
    settings.add_filter(r"\b[0-9a-f]{32}\b", "[hex]");
    settings.add_filter(r"\bevt_[0-9a-z]{26}\b", "evt_[id]");
    settings.add_filter(r"\beff_[0-9a-f]{32}\b", "eff_[key]");
    settings.add_filter(r"process \d+", "process [pid]");
    settings.add_filter(r" +\d+ ms", "  [took]");
    settings.add_filter(r#""took_ms": \d+"#, r#""took_ms": "[took]""#);
    settings.add_filter(r#""content-length": "\d+""#, r#""content-length": "[length]""#);
    settings.add_filter(r"\b(now|\d+[smhd] ago)\b", "[ago]");
    settings
}

/// The rows of tables without their alignment, and only the start of what was cut: how wide a column is depends on how
/// long ago things were. Tables have tests of their own for that.
pub(crate) fn squeezed(text: &str) -> String {
    let is_heading =
        |line: &str| line.starts_with(|c: char| c.is_ascii_uppercase() || c == '#') && line.to_uppercase() == line;
    let mut in_table = false;
    let mut squeezed = String::new();
    for line in text.lines() {
        in_table = !line.is_empty() && (in_table || is_heading(line));
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: Vec<String> = cells
            .map(|cell| match cell.strip_suffix('…') {
                Some(cut) => cut.chars().take(12).chain(['…']).collect(),
                None => cell.to_owned(),
            })
            .collect();
        squeezed.push_str(&if in_table { cells.join("  ") } else { line.to_owned() });
        squeezed.push('\n');
    }
    squeezed
}
