//! `script` with real processes: Node.js, Python, Bash and other programs.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, ScriptDestination};
use sluice_domain::outcome::Outcome;

use crate::{PATIENT, brief, destination};

fn connectors_in(directory: &Path) -> Connectors {
    let kind = DestinationKind::Script(ScriptDestination { directory: directory.to_owned() });
    Connectors::new([&destination("there", kind)], &OutboundSettings::default()).unwrap()
}

fn run(with: &Value) -> Call<'_> {
    crate::call(Action::Script, with, PATIENT)
}

async fn outcome(directory: &Path, with: Value) -> Outcome {
    connectors_in(directory).call(run(&with)).await
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "lib/people.js",
        "import { upper } from 'shouting';\nexport const greet = (name) => upper(`hello ${name}`);\n",
    );
    write("node_modules/shouting/package.json", r#"{"name": "shouting", "type": "module", "exports": "./index.js"}"#);
    write("node_modules/shouting/index.js", "export const upper = (text) => text.toUpperCase();\n");
    write("lib/people.py", "def greet(name):\n    return 'hello ' + name\n");
    directory
}

#[tokio::test]
async fn node_script_imports_modules_beside_the_configuration() {
    let directory = directory();
    let with = json!({
        "runtime": "node:18",
        "script": "import { greet } from './lib/people.js';\n\
                   const body = JSON.parse(process.env.BODY);\n\
                   await new Promise((done) => setTimeout(done, 10));\n\
                   console.log('working');\n\
                   console.log(JSON.stringify({ said: greet(body.name), key: process.env.IDEMPOTENCY_KEY, event: JSON.parse(process.env.EVENT).id, db: process.env.DB_URL }));\n",
        "env": {"DB_URL": "postgres://hunter2"}, "body": {"name": "ada"}, "event": {"id": "evt_1"},
    });
    let done = outcome(directory.path(), with).await;
    let expected = json!({"said": "HELLO ADA", "key": "effect-1", "event": "evt_1", "db": "postgres://hunter2"});
    assert_eq!(done, Outcome::Done { result: expected });
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is written to the directory");
}

#[tokio::test]
async fn node_script_ends_at_its_last_await_or_with_an_empty_event_loop() {
    let directory = directory();
    let started = Instant::now();
    // Stands for an idle pooled connection that is never closed.
    let pool = json!({"runtime": "node:18", "script":
        "setInterval(() => {}, 60_000);\nawait new Promise((done) => setTimeout(done, 5));\nconsole.log(1);"});
    assert_eq!(outcome(directory.path(), pool).await, Outcome::Done { result: json!(1) });
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // A main function that is not awaited, as most scripts have.
    let unawaited = |end: &str| {
        json!({"runtime": "node:18", "script": format!(
            "async function main() {{ await new Promise((done) => setTimeout(done, 200)); {end} }}\n\
             main().catch((error) => {{ console.error(error); process.exit(1); }});")})
    };
    assert_eq!(outcome(directory.path(), unawaited("console.log(2)")).await, Outcome::Done { result: json!(2) });
    let failed = outcome(directory.path(), unawaited("throw new TypeError('late')")).await;
    assert_eq!(brief(&failed), "retry retryable exit-1");
    assert!(failed.failure().unwrap().message.contains("TypeError: late"), "{failed:?}");
    // The exit code set by the script is used.
    let code = json!({"runtime": "node:18", "script": "await new Promise((done) => setTimeout(done, 5)); process.exitCode = 75;"});
    assert_eq!(brief(&outcome(directory.path(), code).await), "retry retryable exit-75");
}

#[tokio::test]
async fn exit_code_decides_the_outcome() {
    let directory = directory();
    let bash = |script: &str, class: &str| json!({"runtime": "bash", "script": script, "class": class});
    for (script, class, expected) in [
        ("exit 75", "keyed", "retry retryable exit-75"),
        ("exit 65", "keyed", "reject permanent exit-65"),
        ("exit 64", "blind", "reject permanent exit-64"),
        ("exit 3", "keyed", "retry retryable exit-3"),
        ("exit 3", "blind", "unsure retryable exit-3"),
        ("false | true", "keyed", "retry retryable exit-1"),
        ("kill -9 $$", "keyed", "unsure retryable signal-9"),
        ("kill -9 $$", "natural", "unsure retryable signal-9"),
    ] {
        assert_eq!(brief(&outcome(directory.path(), bash(script, class)).await), expected, "{script}");
    }
    let thrown = json!({"runtime": "node:18", "script": "\n\nthrow new Error('no ada@example.com, no hunter2-env')", "env": {"A": "hunter2-env"}});
    let failed = outcome(directory.path(), thrown).await;
    assert_eq!(brief(&failed), "retry retryable exit-1");
    let message = &failed.failure().unwrap().message;
    assert!(message.ends_with("Error: no a***@example.com, no ***"), "{message}");
}

#[tokio::test]
async fn python_and_commands_run() {
    let directory = directory();
    let python = json!({"runtime": "python:3", "body": {"name": "ada"}, "script":
        "import json, os\nfrom lib.people import greet\nprint(json.dumps({'said': greet(json.loads(os.environ['BODY'])['name'])}))"});
    assert_eq!(outcome(directory.path(), python).await, Outcome::Done { result: json!({"said": "hello ada"}) });
    let program = json!({"command": ["printf", "%s\\n", "{\"a\": 1}"]});
    assert_eq!(outcome(directory.path(), program).await, Outcome::Done { result: json!({"a": 1}) });
    let missing = outcome(directory.path(), json!({"command": ["no-such-program"]})).await;
    assert_eq!(brief(&missing), "reject permanent missing-program");
    let gone = outcome(&directory.path().join("gone"), json!({"command": ["true"]})).await;
    assert_eq!(brief(&gone), "reject permanent no-directory");
}

#[tokio::test]
async fn only_listed_environment_variables_are_inherited() {
    let directory = directory();
    let done = outcome(directory.path(), json!({"runtime": "bash", "script": "env | cut -d= -f1 | sort | tr '\\n' ' ' | jq -R . 2>/dev/null || env -0 | tr '\\n\\0' ' \\n' | sed 's/=.*//' | sort | tr '\\n' ' ' | sed 's/.*/\"&\"/'"})).await;
    let Outcome::Done { result: Value::String(names) } = done else { panic!("{done:?}") };
    for name in names.split_whitespace() {
        let known = [
            "PATH",
            "HOME",
            "LANG",
            "TZ",
            "TMPDIR",
            "BODY",
            "EVENT",
            "IDEMPOTENCY_KEY",
            "EFFECT_KEY",
            "ATTEMPT",
            "PWD",
            "SHLVL",
            "_",
            "OLDPWD",
        ];
        assert!(known.contains(&name), "{name} in {names}");
    }
    assert!(names.contains("IDEMPOTENCY_KEY"), "{names}");
}

#[tokio::test]
async fn script_over_its_time_limit_is_killed_with_its_descendants() {
    let directory = directory();
    let started = Instant::now();
    let with =
        json!({"runtime": "bash", "timeout": "3s", "script": "sleep 300 & echo $! > child; echo stuck >&2; wait"});
    let killed = outcome(directory.path(), with).await;
    assert_eq!(brief(&killed), "unsure retryable timeout");
    assert!(killed.failure().unwrap().message.contains("stuck"), "{killed:?}");
    assert!(started.elapsed() < Duration::from_secs(200));
    assert!(is_gone(&read(directory.path(), "child")).await);

    // Dropping the attempt kills its processes.
    let with = json!({"runtime": "bash", "script": "sleep 300 & echo $! > given-up; wait"});
    let connectors = connectors_in(directory.path());
    let path = directory.path().join("given-up");
    tokio::select! {
        outcome = connectors.call(run(&with)) => panic!("{outcome:?}"),
        () = async { while std::fs::read_to_string(&path).unwrap_or_default().is_empty() { tokio::task::yield_now().await } } => {}
    }
    assert!(is_gone(&read(directory.path(), "given-up")).await);

    // A background process of a script that has exited is killed and does not delay the attempt.
    let with = json!({"runtime": "bash", "script": "sleep 300 & echo $! > left; echo 1"});
    assert_eq!(outcome(directory.path(), with).await, Outcome::Done { result: json!(1) });
    assert!(is_gone(&read(directory.path(), "left")).await);
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap().trim().to_owned()
}

/// Waits until a process has exited. A zombie counts as exited.
async fn is_gone(id: &str) -> bool {
    for _ in 0..2_000 {
        match std::fs::read_to_string(format!("/proc/{id}/stat")) {
            Ok(stat) if !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z') => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            _ => return true,
        }
    }
    false
}

#[tokio::test]
async fn large_output_and_large_body_are_handled() {
    let directory = directory();
    let much =
        json!({"runtime": "bash", "script": "head -c 20000000 /dev/zero | tr '\\0' 'x'; echo; echo '{\"n\": 1}'"});
    assert_eq!(outcome(directory.path(), much).await, Outcome::Done { result: json!({"n": 1}) });
    let body = "x".repeat(300_000);
    let node =
        json!({"runtime": "node:18", "body": body, "script": "console.log(JSON.parse(process.env.BODY).length)"});
    assert_eq!(outcome(directory.path(), node).await, Outcome::Done { result: json!(300_000) });
    let bash = json!({"runtime": "bash", "body": body, "script": "wc -c < $BODY_FILE"});
    assert_eq!(outcome(directory.path(), bash).await, Outcome::Done { result: json!(300_002) });
}

#[test]
fn preview_shows_the_script_without_its_secrets() {
    let directory = directory();
    let with = json!({"runtime": "bash", "script": "echo", "env": {"DB_URL": "hunter2"}, "body": 1, "event": 2});
    let preview = connectors_in(directory.path()).preview(&run(&with)).unwrap();
    assert!(!format!("{preview:?}").contains("hunter2"), "{preview:?}");
    assert_eq!(preview.body, json!({"runtime": "bash", "script": "echo"}));
    assert!(preview.headers.contains(&("DB_URL".into(), "***".into())), "{preview:?}");
    assert!(preview.headers.contains(&("BODY".into(), "1".into())), "{preview:?}");
}
