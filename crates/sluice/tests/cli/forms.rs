//! `try` and `send` with what senders post that is not one JSON object: forms and lists.

use crate::support::Workplace;
use serde_json::{Value, json};

/// The scheme, what else stands under `verify`, and a payload as the sender posts it.
const SENDERS: [(&str, &str, &str); 6] = [
    (
        "twilio",
        ", public_url: \"https://example.com/in/twilio\"",
        "MessageSid=SM1&MessageStatus=sent&From=%2B41790000000\n",
    ),
    (
        "mailchimp",
        "",
        "type=subscribe&fired_at=2026-11-15+12:00:00&data[id]=8a25&data[email]=a%40b.c&data[list_id]=1\n",
    ),
    ("mailgun", "", "recipient=inbox%40example.com&sender=a%40b.c&subject=Hello\n"),
    ("slack", "", "payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%221%22%7D\n"),
    ("github", "", "payload=%7B%22action%22%3A%22opened%22%7D\n"),
    (
        "hubspot",
        ", public_url: \"https://example.com/in/hubspot\"",
        r#"[{"eventId":1,"portalId":2,"subscriptionId":3,"objectId":4,"subscriptionType":"contact.creation","occurredAt":1790000000000},
            {"eventId":2,"portalId":2,"subscriptionId":3,"objectId":5,"subscriptionType":"contact.deletion","occurredAt":1790000000001}]"#,
    ),
];

fn workplace() -> Workplace {
    let workplace = Workplace::alone();
    for (scheme, more, payload) in SENDERS {
        let flow = format!(
            "name: {scheme}\nsource: {scheme}\ntriggers: [{{ http: {{ path: /in/{scheme}, verify: {{ scheme: {scheme}, secret: \"${{secrets.WEBSITE_SECRET}}\"{more} }} }} }}]\nsteps: [{{ queue: notices }}]\n"
        );
        workplace.write(&format!("{scheme}.yml"), &flow);
        workplace.write(&format!("payloads/{scheme}.txt"), payload);
    }
    workplace
}

#[test]
fn form_is_tried_and_sent_in_the_format_of_its_sender() {
    let workplace = workplace();
    let _node = workplace.up(&[]);
    for (scheme, ..) in SENDERS {
        let file = format!("payloads/{scheme}.txt");
        // Whatever the worker would do with it is not this test's business; the event is.
        let tried = workplace.json(&["try", scheme, &file, "--json", "--reveal"]);
        let sent = workplace.run(&["send", scheme, &file, "--id", "try", "--json"]).ok();
        let sent: Value = serde_json::from_str(&sent.stdout).unwrap();
        let answer = &sent[0]["body"];
        let answers = answer["events"].as_array().cloned().unwrap_or(vec![answer.clone()]);
        let tried = tried["events"].as_array().unwrap();
        assert_eq!(tried.len(), answers.len(), "{scheme}");
        for (tried, answer) in tried.iter().zip(answers) {
            if scheme != "mailgun" {
                assert_eq!(tried["key"]["text"], answer["idempotency_key"], "{scheme}: {tried}");
            }
            let event = workplace.json(&["events", "show", answer["event_id"].as_str().unwrap(), "--json"]);
            assert_eq!(event["event_type"], tried["event_type"], "{scheme}");
        }
    }
}

#[test]
fn the_id_is_set_in_the_header_that_the_flow_reads() {
    let workplace = workplace();
    let flow = |name: &str, http: &str| {
        format!("name: {name}\ntriggers: [{{ http: {{ path: /in/{name}, {http} }} }}]\nsteps: [{{ queue: notices }}]\n")
    };
    let shop = "verify: { scheme: shopify, secret: \"${secrets.WEBSITE_SECRET}\" }";
    let orders = "verify: { scheme: woocommerce, secret: \"${secrets.WEBSITE_SECRET}\" }";
    let partner = "verify: { scheme: bearer, secret: \"${secrets.WEBSITE_SECRET}\" }, idempotency: { key_from: header:Idempotency-Key }";
    for (name, http) in [("shop", shop), ("orders", orders), ("partner", partner)] {
        workplace.write(&format!("{name}.yml"), &flow(name, http));
    }
    workplace.write("payloads/order.json", r#"{"id":5,"date_modified_gmt":"2026-11-15T12:00:00"}"#);
    let key = |flow: &str| {
        let tried = workplace.json(&["try", flow, "payloads/order.json", "--id", "order-7", "--json"]);
        tried["events"][0]["key"]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(key("shop"), "shop|shop|order-7");
    assert_eq!(key("partner"), "order-7");
    assert!(!key("orders").contains("order-7"), "a topic is no id");
    let unused = workplace.run(&["try", "orders", "payloads/order.json", "--id", "order-7"]);
    assert!(unused.stderr.contains("--id has no effect"), "{unused}");
    let _node = workplace.up(&[]);
    let sent = workplace.run(&["send", "partner", "payloads/order.json", "--id", "order-8", "--json"]).ok();
    let sent: Value = serde_json::from_str(&sent.stdout).unwrap();
    assert_eq!(sent[0]["body"]["idempotency_key"], "order-8", "{sent}");
}

#[test]
fn every_event_of_a_list_is_shown() {
    let ran = workplace().run(&["try", "hubspot", "payloads/hubspot.txt"]);
    for words in ["contact.creation", "contact.deletion"] {
        assert!(ran.stdout.contains(words), "{ran}");
    }
}

#[test]
fn a_form_may_be_written_as_json() {
    let workplace = workplace();
    let form = json!({"type": "subscribe", "fired_at": "2026-11-15 12:00:00", "data": {"id": "8a25", "email": "a@b.c", "list_id": "1"}});
    workplace.write("payloads/form.txt", &form.to_string());
    let as_json = workplace.json(&["try", "mailchimp", "payloads/form.txt", "--json"]);
    let as_form = workplace.json(&["try", "mailchimp", "payloads/mailchimp.txt", "--json"]);
    assert_eq!(as_json["events"][0]["key"]["text"], as_form["events"][0]["key"]["text"]);
    assert_eq!(as_json["events"][0]["event_type"], "subscribe");
}
