//! Rules of single senders that the recorded requests do not cover.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue must fail")]

mod verify_support;

use std::time::Duration;

use sluice_domain::verify::{
    HmacSettings, HubspotVersion, Scheme, Secret, SettingsProblem, TimestampSettings, TimestampSource, TimestampUnit,
    TokenLocation, Verifier, VerifierSettings, verify,
};
use verify_support::{ReceivedRequest, Vector, body, now, send, settings, verifier};

fn code(verifier: &Verifier, received: &ReceivedRequest) -> Option<&'static str> {
    verify(verifier, &received.request(), now()).err().map(|error| error.code())
}

fn after(seconds: i64) -> jiff::Timestamp {
    now() + jiff::SignedDuration::from_secs(seconds)
}

fn header(received: &ReceivedRequest, name: &str) -> String {
    received.headers.iter().find(|(own, _)| own == name).expect(name).1.clone()
}

/// Schemes with a default tolerance, in seconds.
const WINDOWS: [(Scheme, i64); 12] = [
    (Scheme::StandardWebhooks, 300),
    (Scheme::Svix, 300),
    (Scheme::Stripe, 300),
    (Scheme::Hubspot, 300),
    (Scheme::Calendly, 180),
    (Scheme::Slack, 300),
    (Scheme::Mailchimp, 300),
    (Scheme::Paddle, 5),
    (Scheme::Webflow, 300),
    (Scheme::Zoom, 300),
    (Scheme::Tiktok, 300),
    (Scheme::Mailgun, 300),
];

#[test]
fn default_tolerance_applies_in_both_directions() {
    for (scheme, seconds) in WINDOWS {
        let own = verifier(scheme, 1);
        let received = send(&own, body(scheme), now()).unwrap();
        let at = |when| {
            let answer = verify(&own, &received.request(), when);
            answer.err().map(|error| error.code())
        };
        assert_eq!(at(after(seconds)), None, "{scheme}");
        assert_eq!(at(after(seconds + 1)), Some("timestamp-too-old"), "{scheme}");
        assert_eq!(at(after(-seconds)), None, "{scheme}");
        assert_eq!(at(after(-seconds - 1)), Some("timestamp-in-future"), "{scheme}");
    }
}

#[test]
fn general_hmac_with_a_timestamp_has_a_default_tolerance() {
    let hmac = HmacSettings {
        signed: "{timestamp}.{body}".to_owned(),
        timestamp: Some(TimestampSettings {
            source: TimestampSource::Header("X-Time".to_owned()),
            unit: TimestampUnit::Seconds,
        }),
        ..HmacSettings::new("X-Sig")
    };
    let own = Verifier::new(VerifierSettings { hmac: Some(hmac), ..settings(Scheme::Hmac, 1) }).unwrap();
    let received = send(&own, b"{}", now()).unwrap();
    let at = |when| verify(&own, &received.request(), when).is_ok();
    assert!(at(after(300)) && !at(after(301)) && at(after(-300)) && !at(after(-301)));
}

#[test]
fn tolerance_is_accepted_only_by_schemes_that_sign_a_timestamp() {
    let timed: Vec<Scheme> = WINDOWS.iter().map(|(scheme, _)| *scheme).collect();
    for &scheme in Scheme::ALL {
        let made = Verifier::new(VerifierSettings { tolerance: Some(Duration::from_secs(10)), ..settings(scheme, 1) });
        if !timed.contains(&scheme) && ![Scheme::Zendesk, Scheme::Sendgrid].contains(&scheme) {
            assert!(made.is_err(), "{scheme}");
            continue;
        }
        let own = made.unwrap();
        let received = send(&own, body(scheme), now()).unwrap();
        let at = |when| verify(&own, &received.request(), when).is_ok();
        assert!(at(after(10)) && !at(after(11)) && at(after(-10)) && !at(after(-11)), "{scheme}");
    }
}

#[test]
fn zendesk_and_sendgrid_have_no_default_tolerance() {
    for scheme in [Scheme::Zendesk, Scheme::Sendgrid] {
        let own = verifier(scheme, 1);
        let received = send(&own, b"{}", now()).unwrap();
        let verified = verify(&own, &received.request(), after(86_400)).unwrap();
        assert_eq!(verified.timestamp, Some(now()), "{scheme}");
    }
}

#[test]
fn missing_or_malformed_timestamp_is_reported() {
    for (scheme, name) in [
        (Scheme::StandardWebhooks, "webhook-timestamp"),
        (Scheme::Svix, "svix-timestamp"),
        (Scheme::Hubspot, "x-hubspot-request-timestamp"),
        (Scheme::Slack, "x-slack-request-timestamp"),
        (Scheme::Zendesk, "x-zendesk-webhook-signature-timestamp"),
        (Scheme::Webflow, "x-webflow-timestamp"),
        (Scheme::Zoom, "x-zm-request-timestamp"),
        (Scheme::Sendgrid, "x-twilio-email-event-webhook-timestamp"),
    ] {
        let own = verifier(scheme, 1);
        let mut received = send(&own, b"{}", now()).unwrap();
        for wrong in ["soon", "1772443800.5", "-1", "1772443800x", "99999999999999999999"] {
            received.set(name, wrong);
            assert_eq!(code(&own, &received), Some("timestamp-malformed"), "{scheme} {wrong}");
        }
        for missing in ["", "  "] {
            received.set(name, missing);
            assert_eq!(code(&own, &received), Some("timestamp-missing"), "{scheme}");
        }
        received.remove(name);
        assert_eq!(code(&own, &received), Some("timestamp-missing"), "{scheme}");
    }
    for (scheme, name) in [
        (Scheme::Stripe, "stripe-signature"),
        (Scheme::Calendly, "calendly-webhook-signature"),
        (Scheme::Mailchimp, "x-mailchimp-signature"),
        (Scheme::Paddle, "paddle-signature"),
        (Scheme::Tiktok, "tiktok-signature"),
    ] {
        let own = verifier(scheme, 1);
        let mut received = send(&own, b"{}", now()).unwrap();
        let value = header(&received, name);
        received.set(name, value.replace("1772443800", "soon"));
        assert_eq!(code(&own, &received), Some("timestamp-malformed"), "{scheme}");
        let at = value.find([',', ';']).unwrap();
        received.set(name, &value[at + 1..]);
        assert_eq!(code(&own, &received), Some("timestamp-missing"), "{scheme}");
        received.set(name, &value[..at]);
        assert_eq!(code(&own, &received), Some("signature-malformed"), "{scheme}");
    }
}

#[test]
fn hexadecimal_signatures_ignore_case() {
    for (scheme, name) in [
        (Scheme::Github, "x-hub-signature-256"),
        (Scheme::Intercom, "x-hub-signature"),
        (Scheme::Linkedin, "x-li-signature"),
        (Scheme::Webflow, "x-webflow-signature"),
        (Scheme::Slack, "x-slack-signature"),
        (Scheme::Stripe, "stripe-signature"),
        (Scheme::Paddle, "paddle-signature"),
    ] {
        let own = verifier(scheme, 1);
        let mut received = send(&own, b"{}", now()).unwrap();
        let value = header(&received, name);
        let at = value.rfind('=').map_or(0, |at| at + 1);
        received.set(name, format!("{}{}", &value[..at], value[at..].to_ascii_uppercase()));
        assert_eq!(code(&own, &received), None, "{scheme}");
        if at > 0 {
            received.set(name, format!("{}{}", value[..at].to_ascii_uppercase(), &value[at..]));
            assert!(code(&own, &received).is_some(), "{scheme}: the prefix is exact");
        }
    }
}

#[test]
fn standard_webhooks_accepts_both_header_families_if_complete() {
    let standard = verifier(Scheme::StandardWebhooks, 1);
    let svix = verifier(Scheme::Svix, 1);
    for (sender, names) in [
        (&standard, ["webhook-id", "webhook-timestamp", "webhook-signature"]),
        (&svix, ["svix-id", "svix-timestamp", "svix-signature"]),
    ] {
        let received = send(sender, b"{}", now()).unwrap();
        for own in [&standard, &svix] {
            assert_eq!(code(own, &received), None);
            let codes = ["id-missing", "timestamp-missing", "signature-missing"];
            for (name, expected) in names.iter().zip(codes) {
                let mut part = received.clone();
                part.remove(name);
                assert_eq!(code(own, &part), Some(expected), "{name}");
            }
        }
    }
    let mut mixed = send(&standard, b"{}", now()).unwrap();
    mixed.set("svix-signature", "v1,AAAA");
    mixed.set("svix-id", "other");
    assert_eq!(code(&svix, &mixed), None, "the complete family counts");
    let mut part = send(&standard, b"{}", now()).unwrap();
    part.headers.iter_mut().for_each(|(name, _)| *name = name.replace("webhook-id", "svix-id"));
    assert_eq!(code(&standard, &part), Some("id-missing"));
}

#[test]
fn standard_webhooks_rejects_a_dot_in_the_id() {
    let own = verifier(Scheme::StandardWebhooks, 1);
    let mut received = send(&own, b"{}", now()).unwrap();
    received.set("webhook-id", "msg.1");
    assert_eq!(code(&own, &received), Some("id-malformed"));
}

#[test]
fn standard_webhooks_tries_every_known_version_with_every_secret() {
    let published = Vector::named("standard-webhooks-v1a-published");
    let mut mixed = settings(Scheme::StandardWebhooks, 1);
    mixed.secrets.push(Secret::new("public", published.secret()));
    let mixed = Verifier::new(mixed).unwrap();
    let by_hmac = send(&verifier(Scheme::StandardWebhooks, 1), b"{}", now()).unwrap();
    let by_key = send(&published.verifier(), b"{}", now()).unwrap();
    let [hmac, key] = [&by_hmac, &by_key].map(|received| header(received, "webhook-signature"));
    let both = |value: String| {
        let mut received = by_hmac.clone();
        received.set("webhook-signature", value);
        verify(&mixed, &received.request(), now()).map(|verified| verified.secret.unwrap().to_owned())
    };
    assert_eq!(both(format!("{hmac} {key}")), Ok("main".into()));
    assert_eq!(both(format!("v1,AAAA  v2,zz {key}")), Ok("public".into()));
    assert_eq!(both(key.clone()), Ok("public".into()));
    let relabelled = both(key.replace("v1a,", "v1,")).unwrap_err();
    assert_eq!(relabelled.code(), "signature-malformed");
    let many = vec![hmac; 17].join(" ");
    assert_eq!(both(many).unwrap_err().code(), "signature-malformed");
}

#[test]
fn stripe_uses_its_secret_as_text_and_svix_decodes_it() {
    let text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let make = |scheme, secret: &str| Verifier::new(VerifierSettings::new(scheme, vec![Secret::new("main", secret)]));
    let stripe = make(Scheme::Stripe, text).unwrap();
    let received = send(&stripe, b"{}", now()).unwrap();
    assert_eq!(code(&stripe, &received), None);
    let stripped = make(Scheme::Stripe, &text[6..]).unwrap();
    assert_eq!(code(&stripped, &received), Some("signature-mismatch"));
    let svix = make(Scheme::Svix, text).unwrap();
    let received = send(&svix, b"{}", now()).unwrap();
    assert_eq!(code(&make(Scheme::Svix, &text[6..]).unwrap(), &received), None);
    let problem = make(Scheme::Svix, "whsec_not base64!").unwrap_err();
    assert!(matches!(problem, SettingsProblem::NotBase64 { .. }), "{problem}");
}

#[test]
fn shopify_prefers_the_newer_header() {
    let own = verifier(Scheme::Shopify, 1);
    let mut received = send(&own, b"{}", now()).unwrap();
    let right = header(&received, "shopify-hmac-sha256");
    let wrong = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    received.set("x-shopify-hmac-sha256", wrong);
    assert_eq!(code(&own, &received), None);
    received.set("x-shopify-hmac-sha256", &right);
    received.set("shopify-hmac-sha256", wrong);
    assert_eq!(code(&own, &received), Some("signature-mismatch"));
    received.remove("shopify-hmac-sha256");
    assert_eq!(code(&own, &received), None);
}

#[test]
fn hubspot_does_not_fall_back_from_v3() {
    let with =
        |version| Verifier::new(VerifierSettings { hubspot_version: version, ..settings(Scheme::Hubspot, 1) }).unwrap();
    let auto = with(HubspotVersion::Auto);
    let mut received = send(&with(HubspotVersion::V1), b"[]", now()).unwrap();
    assert_eq!(code(&auto, &received), None);
    received.remove("x-hubspot-signature-version");
    assert_eq!(code(&auto, &received), None, "older requests state no version");
    received.set("x-hubspot-signature-version", "v9");
    assert_eq!(code(&auto, &received), Some("signature-malformed"));
    received.set("x-hubspot-signature-version", "v1");
    received.set("x-hubspot-signature-v3", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    assert_eq!(code(&auto, &received), Some("timestamp-missing"));
    received.set("x-hubspot-request-timestamp", "1772443800000");
    assert_eq!(code(&auto, &received), Some("signature-mismatch"));
}

#[test]
fn twilio_accepts_url_with_or_without_port_and_uses_the_received_query() {
    let with = |url: &str| {
        Verifier::new(VerifierSettings { public_url: Some(url.to_owned()), ..settings(Scheme::Twilio, 1) }).unwrap()
    };
    let plain = with("https://a.b/in");
    let ported = with("https://a.b:443/in");
    let other = with("https://a.b:444/in");
    let received = send(&plain, b"B=2&A=1", now()).unwrap();
    for own in [&plain, &ported, &other] {
        assert_eq!(code(own, &received), None);
    }
    assert_eq!(code(&plain, &send(&ported, b"A=1", now()).unwrap()), None);
    assert!(code(&plain, &send(&other, b"A=1", now()).unwrap()).is_some());
    assert!(code(&with("http://a.b/in"), &received).is_some(), "another scheme");

    let mut reordered = received.clone();
    reordered.body = b"A=1&B=2&A=1".to_vec();
    assert_eq!(code(&plain, &reordered), None, "order and repeated pairs do not matter");
    reordered.body = b"A=1&B=2&A=3".to_vec();
    assert_eq!(code(&plain, &reordered), Some("signature-mismatch"));

    let json = send(&with("https://a.b/in?x=1"), br#"{"a":1}"#, now()).unwrap();
    assert!(json.path_and_query.starts_with("/in?x=1&bodySHA256="), "{}", json.path_and_query);
    assert_eq!(code(&plain, &json), None, "the query is taken from the request");
    let mut changed = json.clone();
    changed.body = br#"{"a":2}"#.to_vec();
    assert_eq!(code(&plain, &changed), Some("body-mismatch"));
    let mut bare = json.clone();
    bare.path_and_query = "/in?x=1".to_owned();
    assert_eq!(code(&plain, &bare), Some("signature-mismatch"));
}

#[test]
fn woocommerce_unescapes_its_secret() {
    let make =
        |secret| Verifier::new(VerifierSettings::new(Scheme::Woocommerce, vec![Secret::new("main", secret)])).unwrap();
    let received = send(&make("a&b"), b"{}", now()).unwrap();
    assert_eq!(code(&make("a&amp;b"), &received), None);
    assert_eq!(code(&make("a&lt;b"), &received), Some("signature-mismatch"));
}

#[test]
fn mailgun_reads_json_and_forms_and_returns_its_token() {
    let own = verifier(Scheme::Mailgun, 1);
    let received = send(&own, br#"{"event-data":{}}"#, now()).unwrap();
    let token = verify(&own, &received.request(), now()).unwrap().replay_token.unwrap();
    assert_eq!(token.len(), 50);

    let sent: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    let sent = &sent["signature"];
    let text = |key: &str| sent[key].as_str().unwrap().to_owned();
    let [timestamp, signature] = [text("timestamp"), text("signature")];
    let mut form = received.clone();
    form.set("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    form.body = format!("from=a%40b&timestamp={timestamp}&token={token}&signature={signature}").into_bytes();
    assert_eq!(code(&own, &form), None);
    form.body.extend_from_slice(b"&token=other");
    assert_eq!(code(&own, &form), Some("body-malformed"));

    let mut json = received.clone();
    let with = |members: &str| format!(r#"{{"signature":{{{members}}}}}"#).into_bytes();
    let (stamp, proof) = (format!(r#""timestamp":{timestamp}"#), format!(r#""token":"{token}""#));
    let signature = format!(r#""signature":"{}""#, signature.to_uppercase());
    for (members, expected) in [
        (format!("{stamp},{proof},{signature}"), None),
        (format!("{proof},{signature}"), Some("timestamp-missing")),
        (format!(r#""timestamp":"x",{proof},{signature}"#), Some("timestamp-malformed")),
        (format!("{stamp},{signature}"), Some("signature-missing")),
        (format!("{stamp},{proof}"), Some("signature-missing")),
        (format!(r#"{stamp},{proof},"signature":"00""#), Some("signature-malformed")),
        (format!("{stamp},{stamp},{proof},{signature}"), Some("body-malformed")),
    ] {
        json.body = with(&members);
        assert_eq!(code(&own, &json), expected, "{members}");
    }
    json.body = b"not json".to_vec();
    assert_eq!(code(&own, &json), Some("body-malformed"));
}

#[test]
fn every_notification_of_microsoft_graph_must_carry_its_secret() {
    let mut two = settings(Scheme::MicrosoftGraph, 1);
    two.secrets = vec![Secret::new("one", "s1"), Secret::new("two", "s2")];
    let own = Verifier::new(two).unwrap();
    let mut received = send(&own, body(Scheme::MicrosoftGraph), now()).unwrap();
    for (body, expected) in [
        (r#"{"value":[{"clientState":"s2"},{"clientState":"s1"}]}"#, None),
        (r#"{"value":[{"clientState":"s1"},{"clientState":"s3"}]}"#, Some("credentials-mismatch")),
        (r#"{"value":[{"clientState":"s1"},{}]}"#, Some("credentials-missing")),
        (r#"{"value":[]}"#, Some("body-malformed")),
        (r#"{}"#, Some("body-malformed")),
        (r#"{"value":[{"clientState":"s1","clientState":"s1"}]}"#, Some("body-malformed")),
    ] {
        received.body = body.as_bytes().to_vec();
        assert_eq!(code(&own, &received), expected, "{body}");
    }
}

#[test]
fn shared_secrets_must_match_entirely() {
    let bearer = verifier(Scheme::Bearer, 1);
    let mut received = send(&bearer, b"{}", now()).unwrap();
    for (value, expected) in [
        ("BEARER secret & number 1", None),
        ("Bearer   secret & number 1", None),
        ("Bearer secret & number", Some("credentials-mismatch")),
        ("Bearer secret & number 11", Some("credentials-mismatch")),
        ("Bearer", Some("credentials-malformed")),
        ("Token secret & number 1", Some("credentials-malformed")),
        ("", Some("credentials-missing")),
    ] {
        received.set("authorization", value);
        assert_eq!(code(&bearer, &received), expected, "{value}");
    }

    let with_user = Verifier::new(VerifierSettings {
        user_name: Some("zoë".to_owned()),
        ..VerifierSettings::new(Scheme::Pipedrive, vec![Secret::new("main", "p:ä")])
    });
    let basic = with_user.unwrap();
    let mut received = send(&basic, b"{}", now()).unwrap();
    assert_eq!(header(&received, "authorization"), "Basic em/DqzpwOsOk");
    assert_eq!(code(&basic, &received), None);
    for (value, expected) in [
        ("basic em/DqzpwOsOk", None),
        ("Basic em/DqzpwOg==", Some("credentials-mismatch")),
        ("Basic em/DqzpwOg", Some("credentials-mismatch")),
        ("Basic !!", Some("credentials-malformed")),
        ("Bearer em/DqzpwOsOk", Some("credentials-malformed")),
    ] {
        received.set("authorization", value);
        assert_eq!(code(&basic, &received), expected, "{value}");
    }

    let token = Verifier::new(VerifierSettings {
        token: Some(TokenLocation::Header("X-Token".to_owned())),
        ..VerifierSettings::new(Scheme::Token, vec![Secret::new("main", "tok")])
    });
    let token = token.unwrap();
    for (value, expected) in [("tok", None), (" tok ", None), ("TOK", Some("credentials-mismatch"))] {
        received.set("x-token", value);
        assert_eq!(code(&token, &received), expected, "{value}");
    }
}
