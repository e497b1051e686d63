//! Handshakes, and requests that only resemble one.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue must fail")]

mod verify_support;

use sluice_domain::verify::{Scheme, handshake};
use verify_support::{ReceivedRequest, now, send, verifier};

#[test]
fn challenge_cannot_be_used_to_sign_an_event() {
    let zoom = verifier(Scheme::Zoom, 1);
    let challenge = |token: &str| {
        let body = serde_json::json!({
            "event": "endpoint.url_validation", "payload": {"plainToken": token},
        });
        ReceivedRequest {
            method: "POST".to_owned(),
            path_and_query: "/in".to_owned(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    };
    let response = |received: &ReceivedRequest| handshake(&zoom, &received.request(), now());
    assert!(response(&challenge("qgg8vlvZRS6UYooatFL8Aw")).is_some());
    assert_eq!(response(&challenge("v0:1772443800:{}")), None);
    assert_eq!(response(&challenge("")), None);
    assert_eq!(response(&challenge(&"a".repeat(129))), None);
    let mut signed_badly = challenge("qgg8vlvZRS6UYooatFL8Aw");
    signed_badly.set("x-zm-signature", "v0=00");
    assert_eq!(response(&signed_badly), None);
    let well = send(&zoom, &challenge("abc").body, now()).unwrap();
    assert!(response(&well).is_some());

    let linkedin = verifier(Scheme::Linkedin, 1);
    let challenge = |code: &str| ReceivedRequest {
        method: "GET".to_owned(),
        path_and_query: format!("/in?challengeCode={code}"),
        ..challenge("")
    };
    assert!(handshake(&linkedin, &challenge("890e4665-4dfe").request(), now()).is_some());
    assert_eq!(handshake(&linkedin, &challenge("hmacsha256%3D%7B%7D").request(), now()), None);
}

#[test]
fn only_real_handshakes_are_answered() {
    let get = |path: &str| ReceivedRequest {
        method: "GET".to_owned(),
        path_and_query: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let post = |body: &str| ReceivedRequest { method: "POST".to_owned(), body: body.as_bytes().to_vec(), ..get("/in") };
    let status = |scheme, received: &ReceivedRequest| {
        handshake(&verifier(scheme, 1), &received.request(), now()).map(|response| response.status)
    };
    let subscribe = "/in?hub.mode=subscribe&hub.verify_token=&hub.challenge=1";
    assert_eq!(status(Scheme::Meta, &get(subscribe)), Some(403), "no verify token is configured");
    assert_eq!(status(Scheme::Meta, &get("/in")), None);
    assert_eq!(status(Scheme::Stripe, &get(subscribe)), None);
    assert_eq!(status(Scheme::Mailchimp, &get("/in")), Some(200));
    assert_eq!(status(Scheme::Mailchimp, &post("type=subscribe")), None);
    assert_eq!(status(Scheme::Woocommerce, &post("webhook_id=7")), Some(200));
    for other in ["webhook_id=", "webhook_id=7&x=1", "webhook_id=a", "{}"] {
        assert_eq!(status(Scheme::Woocommerce, &post(other)), None, "{other}");
    }
    let mut signed = post("webhook_id=7");
    signed.set("x-wc-webhook-signature", "AAAA");
    assert_eq!(status(Scheme::Woocommerce, &signed), None);

    let ping = r#"{"topic":"ping"}"#;
    assert_eq!(status(Scheme::Intercom, &post(ping)), None, "unsigned");
    let signed = send(&verifier(Scheme::Intercom, 1), ping.as_bytes(), now()).unwrap();
    assert_eq!(status(Scheme::Intercom, &signed), Some(200));
    let mut signed = send(&verifier(Scheme::Github, 1), b"{}", now()).unwrap();
    assert_eq!(status(Scheme::Github, &signed), None);
    signed.set("x-github-event", "ping");
    assert_eq!(status(Scheme::Github, &signed), Some(200));
    signed.body.push(b' ');
    assert_eq!(status(Scheme::Github, &signed), None, "changed");
    assert_eq!(status(Scheme::MicrosoftGraph, &post("{}")), None);
}
