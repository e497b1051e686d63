//! Signed requests pass verification, and modified ones fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue must fail")]

mod verify_support;

use std::time::Duration;

use proptest::prelude::*;
use sluice_domain::verify::{
    Algorithm, Assign, Encoding, HmacSettings, HubspotVersion, Layout, Scheme, Secret, SecretEncoding, Separator,
    SignProblem, SignatureHeader, TimestampSettings, TimestampSource, TimestampUnit, TokenLocation, UnsignedRequest,
    Verifier, VerifierSettings, handshake, sign, verify,
};
use verify_support::{ReceivedRequest, Vector, body, now, recorded, send, settings, verifier};

fn code(verifier: &Verifier, received: &ReceivedRequest) -> Option<&'static str> {
    verify(verifier, &received.request(), now()).err().map(|error| error.code())
}

#[test]
fn every_scheme_accepts_its_own_signature_and_rejects_other_secrets() {
    for &scheme in Scheme::ALL {
        let own = verifier(scheme, 1);
        let received = send(&own, body(scheme), now()).unwrap();
        let verified = verify(&own, &received.request(), now());
        let verified = verified.unwrap_or_else(|error| panic!("{scheme}: {error}"));
        if scheme == Scheme::None {
            assert_eq!(verified.secret, None);
            continue;
        }
        assert_eq!(verified.secret, Some("main"), "{scheme}");
        let error_code = code(&verifier(scheme, 2), &received).unwrap();
        assert!(error_code.ends_with("-mismatch"), "{scheme}: {error_code}");
    }
}

#[test]
fn request_without_credentials_is_rejected_as_missing() {
    for &scheme in Scheme::ALL {
        let own = verifier(scheme, 1);
        let bare = ReceivedRequest {
            method: "POST".to_owned(),
            path_and_query: "/in".to_owned(),
            headers: Vec::new(),
            body: body(scheme).to_vec(),
        };
        let error_code = code(&own, &bare);
        assert_eq!(error_code.is_none(), scheme == Scheme::None, "{scheme}");
        assert!(error_code.is_none_or(|code| code.ends_with("-missing")), "{scheme}: {error_code:?}");
    }
}

#[test]
fn every_variant_of_the_general_hmac_round_trips() {
    let timestamps = [
        (TimestampSource::Header("X-Time".to_owned()), TimestampUnit::Seconds),
        (TimestampSource::Header("X-Time".to_owned()), TimestampUnit::Milliseconds),
        (TimestampSource::Header("X-Time".to_owned()), TimestampUnit::Iso8601),
        (TimestampSource::Header("X-Time".to_owned()), TimestampUnit::HttpDate),
        (TimestampSource::Field("at".to_owned()), TimestampUnit::Seconds),
        (TimestampSource::Body("meta.sent".to_owned()), TimestampUnit::Seconds),
    ];
    let layouts = [
        (Separator::Comma, Assign::Equals),
        (Separator::Semicolon, Assign::Equals),
        (Separator::Space, Assign::Comma),
        (Separator::Space, Assign::Equals),
    ];
    let body = br#"{"meta":{"sent":1772443800},"a":1}"#;
    for (source, unit) in timestamps {
        for (separator, assign) in layouts {
            for algorithm in [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512] {
                for encoding in [Encoding::Hex, Encoding::Base64, Encoding::Base64Url] {
                    let hmac = HmacSettings {
                        algorithm,
                        encoding,
                        secret_encoding: SecretEncoding::Base64,
                        secret_prefix: Some("key_".to_owned()),
                        prefix: Some("p:".to_owned()),
                        layout: Layout::List { separator, assign, signature_key: "sig".to_owned() },
                        signed: "x{method}{url}|{id}|{timestamp}|{body}".to_owned(),
                        timestamp: Some(TimestampSettings { source: source.clone(), unit }),
                        id_header: Some("X-Id".to_owned()),
                        ..HmacSettings::new("X-Sig")
                    };
                    let own = Verifier::new(VerifierSettings {
                        hmac: Some(hmac),
                        tolerance: Some(Duration::from_secs(60)),
                        secrets: vec![Secret::new("main", "key_c2VjcmV0")],
                        ..settings(Scheme::Hmac, 1)
                    })
                    .unwrap();
                    let what = format!("{source:?} {unit:?} {separator:?} {algorithm:?} {encoding:?}");
                    let received = send(&own, body, now()).unwrap();
                    let verified = verify(&own, &received.request(), now());
                    assert_eq!(verified.unwrap().timestamp, Some(now()), "{what}");

                    let minute = jiff::SignedDuration::from_secs(61);
                    let at = |when| verify(&own, &received.request(), when).unwrap_err().code();
                    assert_eq!(at(now() + minute), "timestamp-too-old", "{what}");
                    assert_eq!(at(now() - minute), "timestamp-in-future", "{what}");
                    let mut other = received.clone();
                    other.set("x-id", "msg_2");
                    assert_eq!(code(&own, &other), Some("signature-mismatch"), "{what}");
                    let mut other = received.clone();
                    other.method = "PUT".to_owned();
                    assert_eq!(code(&own, &other), Some("signature-mismatch"), "{what}");
                    let mut other = received.clone();
                    other.path_and_query = "/in?tenant=b".to_owned();
                    assert_eq!(code(&own, &other), Some("signature-mismatch"), "{what}");
                    other.remove("x-id");
                    assert_eq!(code(&own, &other), Some("id-missing"), "{what}");
                }
            }
        }
    }
}

#[test]
fn either_of_accepts_one_match_and_first_of_checks_only_the_first() {
    let with = |header: SignatureHeader| {
        let hmac = HmacSettings { header, ..HmacSettings::new("replaced") };
        Verifier::new(VerifierSettings { hmac: Some(hmac), ..settings(Scheme::Hmac, 1) }).unwrap()
    };
    let names = || ("X-New".to_owned(), "X-Old".to_owned());
    let first = with(SignatureHeader::FirstOf(names().0, names().1));
    let either = with(SignatureHeader::EitherOf(names().0, names().1));
    let signed = send(&first, b"{}", now()).unwrap();
    let right = signed.headers.iter().find(|(name, _)| name == "x-new").unwrap().1.clone();
    let wrong = "0".repeat(64);
    for (new, old, first_accepts, either_accepts) in [
        (Some(&right), None, true, true),
        (None, Some(&right), true, true),
        (Some(&right), Some(&wrong), true, true),
        (Some(&wrong), Some(&right), false, true),
        (Some(&wrong), Some(&wrong), false, false),
    ] {
        let mut received = signed.clone();
        received.remove("x-new");
        for (name, value) in [("x-new", new), ("x-old", old)] {
            if let Some(value) = value {
                received.set(name, value);
            }
        }
        assert_eq!(code(&first, &received).is_none(), first_accepts, "{new:?} {old:?}");
        assert_eq!(code(&either, &received).is_none(), either_accepts, "{new:?} {old:?}");
    }
}

#[test]
fn hubspot_round_trips_in_each_version() {
    use HubspotVersion::{Auto, V1, V2, V3};
    let with =
        |version| Verifier::new(VerifierSettings { hubspot_version: version, ..settings(Scheme::Hubspot, 1) }).unwrap();
    for version in [Auto, V1, V2, V3] {
        let received = send(&with(version), b"[{}]", now()).unwrap();
        for required in [Auto, V1, V2, V3] {
            let accepts = required == version || required == Auto || (version, required) == (Auto, V3);
            assert_eq!(code(&with(required), &received).is_none(), accepts, "{version:?} {required:?}");
        }
    }
}

#[test]
fn public_key_alone_cannot_sign() {
    let published = Vector::named("standard-webhooks-v1a-published");
    let mut settings = published.settings();
    settings.signing_key = None;
    let own = Verifier::new(settings).unwrap();
    assert_eq!(send(&own, b"{}", now()).unwrap_err(), SignProblem::SigningKeyMissing);

    let private = published.signing_key.clone().unwrap();
    let pair = VerifierSettings::new(Scheme::Svix, vec![Secret::new("pair", private)]);
    let pair = Verifier::new(pair).unwrap();
    let received = send(&pair, b"{}", now()).unwrap();
    assert_eq!(code(&pair, &received), None);
    assert_eq!(code(&own, &received), None, "the other header family, the public half of the key");

    let mut settings = verify_support::settings(Scheme::Sendgrid, 1);
    settings.signing_key = None;
    let own = Verifier::new(settings).unwrap();
    assert_eq!(send(&own, b"[]", now()).unwrap_err(), SignProblem::SigningKeyMissing);
}

#[test]
fn sign_reports_why_it_fails() {
    let unsigned = UnsignedRequest { method: "POST", id: "a.b", content_type: "", body: b"[]" };
    let problem = |scheme| sign(&verifier(scheme, 1), &unsigned, now()).unwrap_err();
    let scheme = Scheme::Svix;
    assert_eq!(problem(scheme), SignProblem::Id { scheme });
    for scheme in [Scheme::Mailgun, Scheme::GoogleAds, Scheme::MicrosoftGraph] {
        assert!(matches!(problem(scheme), SignProblem::Body(_)), "{scheme}");
    }
    let mut expired = settings(Scheme::Github, 1);
    expired.secrets[0].not_after = Some(now() - jiff::SignedDuration::from_secs(1));
    let expired = Verifier::new(expired).unwrap();
    assert_eq!(sign(&expired, &unsigned, now()).unwrap_err(), SignProblem::NoSecret);
}

/// Schemes whose signature covers every byte of the body.
fn covers_the_body(scheme: Scheme) -> bool {
    !matches!(
        scheme,
        Scheme::Mailgun
            | Scheme::GoogleAds
            | Scheme::MicrosoftGraph
            | Scheme::Bearer
            | Scheme::Token
            | Scheme::Basic
            | Scheme::Pipedrive
            | Scheme::Postmark
            | Scheme::None
    )
}

#[test]
fn changed_added_or_removed_body_byte_fails_verification() {
    let mut tried = 0;
    for vector in recorded().vectors {
        let is_form = vector.id.starts_with("twilio") && !vector.id.contains("json");
        if vector.expected_error.is_some() || !covers_the_body(vector.scheme()) || is_form {
            continue;
        }
        let own = vector.verifier();
        let intact = vector.received();
        let error_code = |body: Vec<u8>| {
            let received = ReceivedRequest { body, ..intact.clone() };
            verify(&own, &received.request(), vector.now()).is_err()
        };
        for at in 0..intact.body.len() {
            let mut body = intact.body.clone();
            body[at] ^= 1 << (at % 8);
            assert!(error_code(body), "{} changed at {at}", vector.id);
            tried += 1;
        }
        assert!(error_code([&intact.body[..], b" "].concat()), "{}", vector.id);
        if let Some((_, shorter)) = intact.body.split_last() {
            assert!(error_code(shorter.to_vec()), "{}", vector.id);
        }
    }
    assert!(tried > 5000, "{tried}");
}

#[test]
fn changed_signature_character_fails_verification() {
    for &scheme in Scheme::ALL {
        if scheme == Scheme::None {
            continue;
        }
        let own = verifier(scheme, 1);
        let intact = send(&own, body(scheme), now()).unwrap();
        let proof_headers = intact.headers.iter().filter(|(name, _)| {
            ["signature", "authorization", "timestamp", "webhook-id", "svix-id", "hmac"]
                .iter()
                .any(|part| name.contains(part))
        });
        for (name, value) in proof_headers {
            for at in 0..value.len() {
                let mut changed = value.clone().into_bytes();
                changed[at] ^= 1;
                let mut received = intact.clone();
                received.set(name, String::from_utf8(changed).unwrap());
                assert!(code(&own, &received).is_some(), "{scheme}: {name} at {at}");
            }
        }
    }
}

fn any_header() -> impl Strategy<Value = (String, String)> {
    let names = [
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "svix-id",
        "svix-timestamp",
        "svix-signature",
        "stripe-signature",
        "x-hub-signature-256",
        "x-hub-signature",
        "shopify-hmac-sha256",
        "x-shopify-hmac-sha256",
        "typeform-signature",
        "x-hubspot-signature",
        "x-hubspot-signature-v3",
        "x-hubspot-signature-version",
        "x-hubspot-request-timestamp",
        "calendly-webhook-signature",
        "x-slack-signature",
        "x-slack-request-timestamp",
        "x-twilio-signature",
        "x-twilio-email-event-webhook-signature",
        "x-twilio-email-event-webhook-timestamp",
        "x-mailchimp-signature",
        "x-zendesk-webhook-signature",
        "x-zendesk-webhook-signature-timestamp",
        "x-wc-webhook-signature",
        "x-square-hmacsha256-signature",
        "paddle-signature",
        "x-webflow-signature",
        "x-webflow-timestamp",
        "x-li-signature",
        "x-zm-signature",
        "x-zm-request-timestamp",
        "tiktok-signature",
        "authorization",
        "content-type",
        "x-signature",
        "x-github-event",
    ];
    let values = prop_oneof![
        ".{0,40}",
        "(t|ts|v1|h1|s|v0|sha256|v1a)[=,][0-9a-fA-F+/=]{0,130}([,; ](v1|h1|s|t)[=,].{0,90}){0,3}",
        "17724438[0-9]{2}([0-9]{3})?",
        "(v[0-9]=)?[0-9a-f]{64}",
        "[A-Za-z0-9+/]{43}=",
        "(Bearer|basic) .{0,30}",
        Just("application/x-www-form-urlencoded".to_owned()),
        Just("ping".to_owned()),
    ];
    (prop::sample::select(names.to_vec()), values).prop_map(|(name, value)| (name.to_owned(), value))
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        "[a-z%+&=0-9]{0,60}".prop_map(String::into_bytes),
        r#"\{"(signature|google_key|value|event|type|topic)":("ping"|\[\{\}\]|\{"timestamp":1,"token":"x"\}|null|7)\}"#
            .prop_map(String::into_bytes),
        Just(br#"{"type":"url_verification","challenge":"x"}"#.to_vec()),
        Just(br#"{"event":"endpoint.url_validation","payload":{"plainToken":"x:y"}}"#.to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn unsigned_requests_are_rejected_without_panic(
        headers in prop::collection::vec(any_header(), 0..8),
        body in any_body(),
        query in "(\\?.{0,40})?",
        method in "(GET|POST|.{0,4})",
    ) {
        let received = ReceivedRequest { method, path_and_query: format!("/in{query}"), headers, body };
        for &scheme in Scheme::ALL {
            let own = if scheme == Scheme::Sendgrid {
                Vector::named("sendgrid-published").verifier()
            } else {
                verifier(scheme, 1)
            };
            let accepted = verify(&own, &received.request(), now()).is_ok();
            prop_assert_eq!(accepted, scheme == Scheme::None, "{}", scheme);
            let _ = handshake(&own, &received.request(), now());
        }
    }

    #[test]
    fn signed_requests_are_accepted(
        body in prop::collection::vec(any::<u8>(), 0..200),
        index in 0..Scheme::ALL.len(),
    ) {
        let scheme = Scheme::ALL[index];
        let own = verifier(scheme, 1);
        let Ok(received) = send(&own, &body, now()) else { return Ok(()) };
        prop_assert_eq!(code(&own, &received), None);
    }

    #[test]
    fn settings_never_panic(
        text in prop::collection::vec("(.{0,12}|\\{(body|timestamp|id)\\}.{0,4}|https://.{0,9})", 8),
        index in 0..Scheme::ALL.len(),
        separator in prop::sample::select(vec![Separator::Comma, Separator::Space]),
        assign in prop::sample::select(vec![Assign::Comma, Assign::Equals]),
        encoding in prop::sample::select(vec![
            SecretEncoding::Text, SecretEncoding::Base64, SecretEncoding::Hex, SecretEncoding::HtmlText,
        ]),
    ) {
        let scheme = Scheme::ALL[index];
        let hmac = HmacSettings {
            secret_encoding: encoding,
            secret_prefix: Some(text[0].clone()),
            prefix: Some(text[1].clone()),
            layout: Layout::List { separator, assign, signature_key: text[2].clone() },
            signed: text[3].clone() + "{body}",
            timestamp: text[3].contains("{timestamp}").then(|| TimestampSettings {
                source: TimestampSource::Body(text[4].clone()),
                unit: TimestampUnit::Iso8601,
            }),
            id_header: Some(text[5].clone()),
            ..HmacSettings::new(text[6].clone())
        };
        let made = Verifier::new(VerifierSettings {
            public_url: text[7].starts_with("http").then(|| text[7].clone()),
            hmac: (scheme == Scheme::Hmac).then_some(hmac),
            token: (scheme == Scheme::Token).then(|| TokenLocation::Header(text[6].clone())),
            ..VerifierSettings::new(scheme, vec![Secret::new("main", text[0].as_str())])
        });
        if let Ok(own) = made && let Ok(received) = send(&own, text[1].as_bytes(), now()) {
            let _ = verify(&own, &received.request(), now());
        }
    }
}
