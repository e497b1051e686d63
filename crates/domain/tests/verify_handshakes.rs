//! Handshakes, and what must not pass for one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod verify_support;

use sluice_domain::verify::{Scheme, handshake};
use verify_support::{Arrival, now, send, verifier};

#[test]
fn a_challenge_cannot_be_used_to_have_an_event_signed() {
    let zoom = verifier(Scheme::Zoom, 1);
    let ask = |token: &str| {
        let body = serde_json::json!({
            "event": "endpoint.url_validation", "payload": {"plainToken": token},
        });
        Arrival {
            method: "POST".to_owned(),
            path_and_query: "/in".to_owned(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    };
    let answer = |arrival: &Arrival| handshake(&zoom, &arrival.request(), now());
    assert!(answer(&ask("qgg8vlvZRS6UYooatFL8Aw")).is_some());
    assert_eq!(answer(&ask("v0:1772443800:{}")), None);
    assert_eq!(answer(&ask("")), None);
    assert_eq!(answer(&ask(&"a".repeat(129))), None);
    let mut signed_badly = ask("qgg8vlvZRS6UYooatFL8Aw");
    signed_badly.set("x-zm-signature", "v0=00");
    assert_eq!(answer(&signed_badly), None);
    let well = send(&zoom, &ask("abc").body, now()).unwrap();
    assert!(answer(&well).is_some());

    let linkedin = verifier(Scheme::Linkedin, 1);
    let ask = |code: &str| Arrival {
        method: "GET".to_owned(),
        path_and_query: format!("/in?challengeCode={code}"),
        ..ask("")
    };
    assert!(handshake(&linkedin, &ask("890e4665-4dfe").request(), now()).is_some());
    assert_eq!(handshake(&linkedin, &ask("hmacsha256%3D%7B%7D").request(), now()), None);
}

#[test]
fn a_handshake_is_answered_only_where_it_is_one() {
    let get = |path: &str| Arrival {
        method: "GET".to_owned(),
        path_and_query: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let post = |body: &str| Arrival { method: "POST".to_owned(), body: body.as_bytes().to_vec(), ..get("/in") };
    let status = |scheme, arrival: &Arrival| {
        handshake(&verifier(scheme, 1), &arrival.request(), now()).map(|answer| answer.status)
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
