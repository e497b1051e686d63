//! Third-party servers and parsers check the mail that we send. They are installed once into `target/third_party`; a
//! failed installation fails the test.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{Destination, DestinationKind, GateSettings, SmtpDestination, SmtpTls};
use sluice_domain::time::Time;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/third_party")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// Python interpreter of a virtual environment with the required packages.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let (folder, list) = (target.join("third_party"), scripts().join("requirements.txt"));
    let wanted = std::fs::read_to_string(&list).unwrap();
    let (python, mark) = (folder.join("bin/python"), folder.join("installed"));
    if !std::fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&list));
        std::fs::write(&mark, wanted).unwrap();
    }
    python
}

struct ThirdPartyServer {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl ThirdPartyServer {
    fn start(script: &str) -> ThirdPartyServer {
        let mut process = Command::new(python())
            .arg(scripts().join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        ThirdPartyServer { process, lines }
    }

    fn next_line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for ThirdPartyServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn third_party_server_accepts_and_parses_our_mail() {
    let mut server = ThirdPartyServer::start("aiosmtpd_sink.py");
    let port = server.next_line()["port"].as_u64().unwrap();
    let settings = SmtpDestination {
        host: "127.0.0.1".into(),
        port: u16::try_from(port).unwrap(),
        tls: SmtpTls::None,
        login: None,
        from: "Grüne Wiese <shop@example.com>".into(),
        ca_certificate: None,
    };
    let destination = Destination {
        name: "there".into(),
        kind: DestinationKind::Smtp(settings),
        timeout: Duration::from_secs(20),
        straggler_horizon: None,
        batch_max: None,
        gate: GateSettings::default(),
        failure_rules: vec![],
    };
    let connectors = Connectors::new([&destination], &OutboundSettings::default()).unwrap();
    let long = "Zeile mit Umläuten: äöü und 漢字. ".repeat(60);
    let with = json!({
        "to": ["Ada Lovelace <ada@example.com>", "bob@example.com"], "bcc": "carol@example.com", "reply_to": "help@example.com",
        "subject": format!("Grüße aus {}", "Düsseldorf ".repeat(12).trim()),
        "text": format!(".\n..\nHello\n{long}\n.end"), "html": format!("<p>Hällo</p>\n<p>{long}</p>"),
        "headers": {"List-Unsubscribe": "<https://example.com/u?x=1>", "X-Note": "ünïcode"},
    });
    let call = Call {
        action: Action::EmailSend,
        destination: "there",
        with: &with,
        effect_key: "eff_0123",
        message_key: None,
        record: None,
        attempt: 1,
        traceparent: None,
        timeout: Duration::from_secs(20),
        now: Time::parse("2026-11-15T12:00:00Z").unwrap(),
    };
    let outcome = connectors.call(call).await;
    assert_eq!(outcome.as_str(), "done", "{outcome:?}");
    let read = server.next_line();
    assert_eq!(read["from"], "shop@example.com");
    assert_eq!(read["to"], json!(["ada@example.com", "bob@example.com", "carol@example.com"]));
    assert_eq!(read["defects"], json!([]));
    let headers = &read["headers"];
    for (name, expected) in [
        ("message-id", "<eff_0123@example.com>"),
        ("from", "Grüne Wiese <shop@example.com>"),
        ("to", "Ada Lovelace <ada@example.com>, bob@example.com"),
        ("reply-to", "help@example.com"),
        ("subject", with["subject"].as_str().unwrap()),
        ("date", "Sun, 15 Nov 2026 12:00:00 +0000"),
        ("list-unsubscribe", "<https://example.com/u?x=1>"),
        ("x-note", "ünïcode"),
    ] {
        assert_eq!(headers[name], expected, "{name}");
    }
    assert!(headers.get("bcc").is_none(), "{headers}");
    let lines = |value: &Value| value.as_str().unwrap().trim_end().replace("\r\n", "\n");
    assert_eq!(lines(&read["text"]), with["text"].as_str().unwrap());
    assert_eq!(lines(&read["html"]), with["html"].as_str().unwrap().trim_end());
}
