//! Hostile content changes nothing but its own cell.

use serde_json::{Value, json};

use crate::browser::{Browser, Script};
use crate::fixture::{FLOW, QUEUES, World, lead, until};
use crate::in_browser::{PHONE, sign_in};

/// Markup, quotes, control characters, overrides of the writing direction.
const HOSTILE: &str = "</td></tr></table><script>window.pwned=1</script><img src=x onerror=\"window.pwned=2\">'\"\u{202e}drow\u{2066}\u{200f}\u{7}\u{1b}[31m";

const WORKER: &str = r#"
version: 1
name: to-crm
consumes: { queue: leads }
retry: { max_attempts: 1, on_exhausted: "dlq:leads-dlq" }
run:
  - name: note
    run: http.request
    destination: hostile
    with: { url: "/", idempotency_header: Idempotency-Key, json: { name: "{{ event.last_name }}" } }
"#;

const CONTACTS: &str = "
contacts:
  identifiers: [{field: email}]
  sources: [{source: website, trust: 50}]
";

/// A destination that rejects everything with a hostile message.
fn hostile_server() -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let body =
        json!({ "error": { "code": HOSTILE, "message": format!("{HOSTILE}{}", "x".repeat(10_000)) } }).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 65_536]);
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_payload_header_error_and_name_stay_in_their_cells() {
    let browser = Browser::start(Script::On).await;
    let destination =
        format!("destinations:\n  hostile: {{ type: http, base_url: \"{}\", timeout: 10s }}\n", hostile_server());
    let files = [
        ("flow.yml", FLOW),
        ("worker.yml", WORKER),
        ("queues.yml", QUEUES),
        ("contacts.yml", CONTACTS),
        ("hostile.yml", destination.as_str()),
    ];
    let world = World::start_with(&files).await;
    let mut payload = lead("ada");
    payload["last_name"] = json!(HOSTILE);
    // As long as the flow lets in, without a place to break.
    payload["company"] = json!("x".repeat(7_000));
    payload[HOSTILE] = json!(HOSTILE);
    let body = payload.to_string().into_bytes();
    let request = world.client.post(format!("{}/in/website", world.intake));
    let request = request.header("x-signature", crate::fixture::sign(&body)).header("content-type", "application/json");
    let request = request.header("user-agent", "<script>window.pwned=3</script>\"'");
    let answer: Value = request.body(body).send().await.unwrap().json().await.unwrap();
    let event = answer["event_id"].as_str().unwrap().to_owned();
    let jobs = world.settled(&event).await;
    let job = jobs[0]["id"].as_str().unwrap().to_owned();
    let reason = format!("{HOSTILE}{}", "y".repeat(900));
    world.act("/api/v1/pause", json!({ "target": "source:website", "reason": reason })).await;
    let suppress = json!({ "add": [format!("{HOSTILE}@example.com")], "reason": reason });
    world.act("/api/v1/suppressions", suppress).await;
    let person =
        until(|| async { world.get("/api/v1/contacts/ada%40example.com").await["id"].as_str().map(str::to_owned) })
            .await;
    sign_in(&browser, &world).await;
    let pages = [
        "/".to_owned(),
        "/events".into(),
        format!("/events/{event}"),
        "/jobs".into(),
        format!("/jobs/{job}"),
        "/dead-letters".into(),
        format!("/people/{person}"),
        "/suppressions".into(),
        "/sources/website".into(),
        "/audit".into(),
        "/destinations/hostile".into(),
        format!("/dead-letters?code={}", "%3Cscript%3Ewindow.pwned%3D4%3C/script%3E"),
        format!("/events?source={}", "z".repeat(4_000)),
    ];
    for width in [1_280, PHONE] {
        browser.emulate("light", width).await;
        for path in &pages {
            browser.open(&format!("{}{path}", world.admin)).await;
            browser.sees("Live.").await;
            let seen = browser
                .run(
                    "return [window.pwned ?? 0, document.scripts.length, document.querySelectorAll('main img, main iframe, main object').length,\
                     document.documentElement.scrollWidth <= window.innerWidth + 1, getComputedStyle(document.body).direction,\
                     document.querySelectorAll('footer.bottom').length, document.body.children.length]",
                )
                .await;
            assert_eq!(seen, json!([0, 1, 0, true, "ltr", 1, 6]), "{path} {width}");
        }
    }
    assert_eq!(browser.errors().await, Vec::<String>::new());
    // Revealed, the text is there, as text.
    browser.open(&format!("{}/events/{event}", world.admin)).await;
    browser.run("for (const fold of document.querySelectorAll('details.fold')) fold.open = true; return true").await;
    browser.type_into("form[action$='/reveal'] input[name=reason]", "to look at it").await;
    browser.click("form[action$='/reveal'] button").await;
    browser.sees("revealed").await;
    let text =
        browser.run("return [...document.querySelectorAll('main pre')].map((part) => part.textContent).join()").await;
    assert!(text.as_str().unwrap().contains("<script>window.pwned=1</script>"), "{text}");
    assert_eq!(browser.run("return window.pwned ?? 0").await, json!(0));
    browser.close().await;
}
