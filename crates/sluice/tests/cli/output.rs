//! What a terminal and a text log receive of senders and destinations.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{Ran, Workplace};

/// Moves the cursor, sets the title, forges a line, reorders text.
const HOSTILE: &str = "Grace\u{1b}[2J\u{1b}]0;title\u{7}\r\nforged: line\u{9b}31m\u{202e}Hopper";

/// A destination that rejects every request and quotes it, with escape sequences of its own.
fn rejecting_destination() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = vec![0; 16 * 1024];
            let mut length = 0;
            while !request[..length].ends_with(b"}") {
                match stream.read(&mut request[length..]) {
                    Ok(read) if read > 0 => length += read,
                    _ => break,
                }
            }
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let body = format!("\u{1b}[31mno\r\n{}", request.rsplit("\r\n").next().unwrap_or_default());
            let head = format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    url
}

/// One lead whose notice is rejected, from a hostile sender.
fn hostile() -> (Workplace, crate::support::Up) {
    let workplace = Workplace::new("http://127.0.0.1:9", &rejecting_destination());
    let lead = json!({ "id": HOSTILE, "email": "grace@example.com", "last_name": HOSTILE, "tell": true });
    workplace.write("payloads/hostile.txt", &lead.to_string());
    let node = workplace.up(&[]);
    workplace.run(&["send", "website-leads", "payloads/hostile.txt"]).ok();
    workplace.until(&["dlq", "--json"], |list| !list["items"].as_array().unwrap().is_empty());
    (workplace, node)
}

#[track_caller]
fn assert_clean(what: &str, text: &str) {
    let is_raw =
        |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(is_raw), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{what}: {text}");
}

#[test]
fn escape_sequences_of_a_payload_or_an_answer_do_not_reach_the_terminal_or_the_log() {
    let (workplace, node) = hostile();
    let event = workplace.json(&["events", "--json"])["items"][0]["id"].as_str().unwrap().to_owned();
    let job = workplace.json(&["dlq", "--json"])["items"][0]["id"].as_str().unwrap().to_owned();
    for arguments in [
        &["events"][..],
        &["events", "show", &event],
        &["events", "show", &event, "--reveal", "--reason", "a test"],
        &["jobs"],
        &["jobs", "show", &job],
        &["dlq"],
        &["dlq", "top"],
        &["status"],
        &["audit"],
        &["sources"],
        &["send", "website-leads", "payloads/hostile.txt"],
        &["try", "website-leads", "payloads/hostile.txt", "--reveal"],
        &["events", "show", &event, "--reveal", "--reason", "a test", "--json"],
    ] {
        let ran = workplace.run(arguments);
        assert_clean(&format!("{arguments:?}"), &ran.stdout);
        assert_clean(&format!("{arguments:?}"), &ran.stderr);
        // As on a terminal that shows colours.
        let mut command = workplace.command(arguments);
        let coloured = Ran::of(command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR"));
        for part in coloured.stdout.split('\u{1b}').skip(1) {
            let end = part.find(|c: char| !(c.is_ascii_digit() || matches!(c, '[' | ';'))).unwrap_or(part.len());
            assert!(part[end..].starts_with('m'), "{arguments:?}: only colours: {part:?}");
        }
        assert!(!coloured.stdout.contains("\u{1b}[31mno"), "{arguments:?}: {coloured}");
    }
    node.until_logged("code=http-400");
    assert_clean("log", &node.log());
}

#[test]
fn json_output_is_exact() {
    let (workplace, _node) = hostile();
    let event = workplace.json(&["events", "--json"])["items"][0]["id"].as_str().unwrap().to_owned();
    let shown = workplace.json(&["events", "show", &event, "--reveal", "--reason", "a test", "--json"]);
    assert_eq!(shown["raw"]["last_name"], Value::from(HOSTILE));
}

#[test]
fn values_that_a_destination_echoes_are_masked_in_lists_and_logs() {
    let (workplace, node) = hostile();
    let dead = workplace.run(&["dlq", "--json"]).ok();
    let list: Value = serde_json::from_str(&dead.stdout).unwrap();
    let message = list["items"][0]["failure"].to_string();
    assert!(message.contains("***"), "{message}");
    for text in [message.as_str(), &node.log()] {
        assert!(!text.contains("Grace") && !text.contains("Hopper"), "{text}");
    }
}
