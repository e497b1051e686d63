//! `sluice sim`: mail and Slack beside the CRM, and what they received.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::Workplace;

/// A running simulator. It is killed when dropped.
struct Simulator {
    child: Child,
    /// What it says first.
    addresses: Value,
}

impl Simulator {
    fn start(workplace: &Workplace, more: &[&str]) -> Simulator {
        let any = "127.0.0.1:0";
        let usual = ["sim", "--json", "--listen", any, "--sink", any, "--mail", any, "--slack", any, "--hubspot", any];
        let mut command = workplace.command(&[&usual[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        std::thread::spawn(move || lines.lines().for_each(drop));
        Simulator { child, addresses: serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")) }
    }

    fn url(&self) -> &str {
        self.addresses["salesforce"].as_str().unwrap()
    }

    /// Its address, for `--at`.
    fn at(&self) -> &str {
        self.url().strip_prefix("http://").unwrap()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one mail, line by line.
fn send_mail(address: &str) {
    let stream = TcpStream::connect(address).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut reply = || {
        let line = replies.find(|line| !line.as_ref().unwrap()[3..].starts_with('-')).unwrap().unwrap();
        assert!(line.starts_with('2') || line.starts_with('3'), "{line}");
    };
    reply();
    let content = "Subject: Hello\u{1b}[2J\r\nMessage-ID: <1@example.com>\r\n\r\nHi Ada\r\n.";
    for line in ["EHLO x", "MAIL FROM:<shop@example.com>", "RCPT TO:<ada@example.com>", "DATA", content] {
        (&stream).write_all(format!("{line}\r\n").as_bytes()).unwrap();
        reply();
    }
}

async fn get(url: String) -> Value {
    let text = reqwest::get(url).await.unwrap().error_for_status().unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn simulator_lists_mail_and_slack_messages_that_it_received() {
    let workplace = Workplace::alone();
    let simulator = Simulator::start(&workplace, &[]);
    send_mail(simulator.addresses["mail"].as_str().unwrap().strip_prefix("smtp://").unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let slack = &simulator.addresses["slack"];
    let posted = client.post(slack["webhook"].as_str().unwrap()).body(json!({"text": "a cart was left"}).to_string());
    posted.send().await.unwrap().error_for_status().unwrap();
    let message = json!({"channel": slack["channels"][0], "text": "second"}).to_string();
    let posted = client.post(format!("{}/chat.postMessage", slack["api"].as_str().unwrap())).body(message);
    let posted = posted.header("authorization", format!("Bearer {}", slack["token"].as_str().unwrap()));
    posted.send().await.unwrap().error_for_status().unwrap();

    let listed = workplace.run(&["sim", "received", "--at", simulator.at()]).ok();
    assert!(listed.stdout.contains("mail        to ada@example.com: Hello\\x1b[2J <1@example.com>"), "{listed}");
    assert!(listed.stdout.contains("slack       a cart was left"), "{listed}");
    assert!(listed.stdout.contains("second"), "{listed}");
    let mail = workplace.json(&["sim", "received", "mail", "--json", "--at", simulator.at()]);
    assert_eq!(mail["mail"][0]["to"], json!(["ada@example.com"]));
    assert_eq!(mail.as_object().unwrap().len(), 1);

    let url = simulator.url();
    let all = get(format!("{url}/sim/received")).await;
    assert_eq!(all["slack"].as_array().unwrap().len(), 2, "{all}");
    assert_eq!(all["salesforce"], json!([]));
    assert_eq!(get(format!("{url}/sim/slack/received?limit=1")).await[0]["text"], "second");
    assert_eq!(get(format!("{url}/sim/mail/truth")).await["accepted"], 1);
    let missing = workplace.run(&["sim", "received", "--at", "127.0.0.1:9"]);
    assert!(missing.code != 0 && missing.stderr.contains("sluice sim"), "{missing}");
}

#[tokio::test]
async fn simulator_answers_its_fault_settings_as_its_help_says() {
    let workplace = Workplace::alone();
    let simulator = Simulator::start(&workplace, &["--fail", "30", "--seed", "7"]);
    let url = simulator.url();
    for path in ["/sim/faults", "/sim/mail/faults", "/sim/slack/faults", "/sim/sink/faults", "/sim/hubspot/faults"] {
        let plan = get(format!("{url}{path}")).await;
        assert_eq!((&plan["percent"], &plan["seed"]), (&json!(30.0), &json!(7)), "{path}: {plan}");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let set = client.post(format!("{url}{path}")).body(plan.to_string()).send().await.unwrap();
        assert_eq!(set.status().as_u16(), 204, "the answer is a fault plan: {path}");
        assert_eq!(get(format!("{url}{path}")).await, plan, "{path}");
    }
    workplace.write("faults.json", &get(format!("{url}/sim/faults")).await.to_string());
    let again = Simulator::start(&workplace, &["--faults", "faults.json"]);
    assert_eq!(get(format!("{}/sim/faults", again.url())).await["percent"], 30.0);
}
