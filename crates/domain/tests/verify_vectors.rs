//! Recorded requests of every sender, each with its expected result.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue must fail")]

mod verify_support;

use serde_json::Value;
use sluice_domain::verify::{
    BodyForm, CompositeField, FieldLocation, Scheme, Secret, UnsignedRequest, Verifier, VerifierSettings, handshake,
    preset, sign, verify,
};
use verify_support::{ReceivedRequest, Vector, recorded};

#[test]
fn every_vector_has_its_expected_result() {
    let vectors = recorded().vectors;
    assert_eq!(vectors.len(), 107);
    let mut wrong = Vec::new();
    for vector in &vectors {
        let verifier = vector.verifier();
        let received = vector.received();
        let result = verify(&verifier, &received.request(), vector.now());
        let code = result.as_ref().err().map(|error| error.code());
        if code != vector.expected_error.as_deref() {
            wrong.push(format!("{}: {code:?}, not {:?}", vector.id, vector.expected_error));
        }
        if let Ok(verified) = result {
            assert_eq!(verified.secret, Some("main"), "{}", vector.id);
            assert_eq!(verified.replay_token, vector.replay_token, "{}", vector.id);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_error_shows_a_secret_or_the_expected_signature() {
    for vector in recorded().vectors {
        let verifier = vector.verifier();
        let mut received = vector.received();
        received.body.push(b'!');
        for received in [vector.received(), received] {
            let Err(error) = verify(&verifier, &received.request(), vector.now()) else { continue };
            let shown = format!("{error} {error:?} {verifier:?}");
            assert!(!shown.contains(&vector.secret()), "{}: {shown}", vector.id);
            if let Some(signature) = &vector.expected_signature {
                let digest = signature.rsplit(['=', ',']).find(|part| !part.is_empty()).unwrap();
                assert!(!shown.contains(digest), "{}: {shown}", vector.id);
            }
        }
    }
}

#[test]
fn header_name_case_does_not_matter() {
    for vector in recorded().vectors {
        let mut received = vector.received();
        for (name, value) in &mut received.headers {
            *name = name.to_ascii_uppercase();
            *value = format!("\t {value} ");
        }
        let result = verify(&vector.verifier(), &received.request(), vector.now()).map(drop);
        assert_eq!(result.is_ok(), vector.expected_error.is_none(), "{}: {result:?}", vector.id);
    }
}

#[test]
fn every_secret_is_tried() {
    for vector in recorded().vectors {
        if vector.expected_error.is_some() {
            continue;
        }
        let mut settings = vector.settings();
        let other = other_secret(&vector);
        settings.secrets.insert(0, Secret::new("other", other));
        settings.secrets.push(Secret::new("third", vector.secret()));
        let verifier = Verifier::new(settings).unwrap();
        let received = vector.received();
        let verified = verify(&verifier, &received.request(), vector.now()).unwrap();
        assert_eq!(verified.secret, Some("main"), "{}", vector.id);
    }
}

#[test]
fn expired_secret_is_rejected_and_another_still_accepted() {
    for vector in recorded().vectors {
        if vector.expected_error.is_some() {
            continue;
        }
        let received = vector.received();
        let mut settings = vector.settings();
        let just_now = vector.now() - jiff::SignedDuration::from_nanos(1);
        settings.secrets[0].not_after = Some(vector.now());
        let verifier = Verifier::new(settings.clone()).unwrap();
        assert!(verify(&verifier, &received.request(), vector.now()).is_ok(), "{}", vector.id);

        settings.secrets[0].not_after = Some(just_now);
        settings.secrets.push(Secret::new("other", other_secret(&vector)));
        let verifier = Verifier::new(settings.clone()).unwrap();
        let error = verify(&verifier, &received.request(), vector.now()).unwrap_err();
        assert_eq!(error.code(), "secret-expired", "{}", vector.id);

        settings.secrets.push(Secret::new("renewed", vector.secret()));
        let verifier = Verifier::new(settings).unwrap();
        let verified = verify(&verifier, &received.request(), vector.now()).unwrap();
        assert_eq!(verified.secret, Some("renewed"), "{}", vector.id);
    }
}

/// A secret of the same kind that signed nothing.
fn other_secret(vector: &Vector) -> &'static str {
    match vector.scheme() {
        Scheme::Sendgrid if vector.id == "sendgrid-utf8" => {
            "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw\
             +2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
        }
        Scheme::Sendgrid => {
            "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE5bbD3UL7+bhRHOx90fYpKaJos6MZ3wVChTzgqYnmQ+KDbqevupJC9Wwq\
             1vAAqSYuZiQOai5v6rXTr6f2yWp5bg=="
        }
        Scheme::StandardWebhooks | Scheme::Svix => "whsec_c29tZW9uZSBlbHNlJ3Mgc2VjcmV0",
        Scheme::Basic => "someone:else",
        _ => "abcdef0123456789",
    }
}

#[test]
fn sign_reproduces_recorded_requests() {
    let mut compared = 0;
    for vector in recorded().vectors {
        let Some(expected) = &vector.expected_signature else { continue };
        if vector.expected_error.is_some() || vector.request.headers.is_empty() {
            continue;
        }
        // Twilio signed this one without the port of the URL; the round trip covers the rest.
        if vector.id == "twilio-port-443-signed-without-port" || vector.scheme() == Scheme::Mailgun {
            continue;
        }
        let sent_at = sent_at(&vector);
        let body = vector.body();
        let mut settings = vector.settings();
        let is_json_twilio = vector.id == "twilio-published-json-body";
        if is_json_twilio {
            let url = settings.public_url.take().unwrap();
            settings.public_url = url.split_once("&bodySHA256").map(|(url, _)| url.to_owned());
        }
        let content_type = vector.request.headers.get("content-type").map_or("", String::as_str);
        let unsigned = UnsignedRequest {
            method: &vector.request.method,
            id: vector.event_id.as_deref().unwrap_or("msg_1"),
            content_type,
            body: &body,
        };
        let signed = sign(&Verifier::new(settings).unwrap(), &unsigned, sent_at).unwrap();
        let holds = signed.headers.iter().any(|(_, value)| value.expose().contains(expected));
        assert!(holds, "{}: {:?}", vector.id, signed.headers);
        compared += 1;
    }
    assert!(compared > 55, "{compared}");
}

/// Signing time of the vector.
fn sent_at(vector: &Vector) -> jiff::Timestamp {
    let millisecond = |text: &str| {
        let number: i64 = text.parse().ok()?;
        Some(if number > 100_000_000_000 { number } else { number * 1000 })
    };
    for (name, value) in &vector.request.headers {
        if name.ends_with("timestamp") {
            return match millisecond(value) {
                Some(at) => jiff::Timestamp::from_millisecond(at).unwrap(),
                None => value.parse().unwrap(),
            };
        }
        let mut fields = value.split([',', ';']).filter_map(|field| field.split_once('='));
        if let Some((_, at)) = fields.find(|(key, _)| matches!(*key, "t" | "ts")) {
            return jiff::Timestamp::from_millisecond(millisecond(at).unwrap()).unwrap();
        }
    }
    vector.now()
}

#[test]
fn recorded_handshakes_are_answered() {
    let handshakes = recorded().handshakes;
    assert_eq!(handshakes.len(), 9);
    for recorded in handshakes {
        let scheme: Scheme = recorded.scheme.parse().unwrap();
        let secret = recorded.secret.clone().unwrap_or_else(|| "slacksecret0001".to_owned());
        let verifier = Verifier::new(VerifierSettings {
            verify_token: recorded.verify_token.as_deref().map(Into::into),
            ..VerifierSettings::new(scheme, vec![Secret::new("main", secret)])
        })
        .unwrap();
        let now = jiff::Timestamp::from_second(1_772_443_800).unwrap();
        let mut received = recorded.request.received();
        if scheme == Scheme::Slack {
            let unsigned = received.request();
            assert_eq!(handshake(&verifier, &unsigned, now), None, "an unsigned challenge");
            received = signed(&verifier, &received, now);
        }
        let response = handshake(&verifier, &received.request(), now).expect(&recorded.id);
        assert_eq!(response.status, recorded.response.status, "{}", recorded.id);
        let content_type = recorded.response.content_type.as_deref();
        assert!(content_type.is_none() || response.content_type == content_type, "{}", recorded.id);
        if let Some(json) = &recorded.response.json {
            assert_eq!(serde_json::from_str::<Value>(&response.body).unwrap(), *json);
        } else {
            let body = recorded.response.body.as_deref().unwrap_or_default();
            assert_eq!(response.body, body, "{}", recorded.id);
        }
    }
}

fn signed(verifier: &Verifier, received: &ReceivedRequest, now: jiff::Timestamp) -> ReceivedRequest {
    let unsigned = UnsignedRequest {
        method: &received.method,
        id: "msg_1",
        content_type: "application/json",
        body: &received.body,
    };
    let signed = sign(verifier, &unsigned, now).unwrap();
    let mut received = received.clone();
    for (name, value) in &signed.headers {
        received.set(name, value.expose());
    }
    received.body = signed.body;
    received
}

#[test]
fn presets_find_the_id_and_the_type_of_every_vector() {
    let (mut ids, mut types) = (0, 0);
    for vector in recorded().vectors {
        // Skips an event wrapped in a form, and one whose recorded type is not its own.
        if ["slack-interactive-form", "meta-escaped-unicode"].contains(&vector.id.as_str()) {
            continue;
        }
        let preset = preset(vector.scheme());
        if let Some(id) = &vector.event_id {
            assert_eq!(found(&vector, preset.event_id, preset.body).as_ref(), Some(id));
            ids += 1;
        }
        if let Some(event_type) = &vector.event_type {
            let found = found(&vector, preset.event_type, preset.body);
            assert_eq!(found.as_ref(), Some(event_type), "{}", vector.id);
            types += 1;
        }
    }
    assert!(ids >= 40 && types >= 40, "{ids} {types}");
}

/// The value in the vector's first event, with its parts joined by a space.
fn found(vector: &Vector, alternatives: &[CompositeField], form: BodyForm) -> Option<String> {
    let mut body: Value = serde_json::from_slice(&vector.body()).unwrap_or_default();
    if form == BodyForm::Form {
        body = form_value(&vector.request.body);
    }
    if let BodyForm::Events(path) = form {
        for member in path {
            body = body[member][0].take();
        }
        if path.is_empty() {
            body = body[0].take();
        }
    }
    let text = |source: &FieldLocation| match source {
        FieldLocation::Header(name) => vector.request.headers.get(*name).cloned(),
        FieldLocation::Body(path) => {
            let mut value = &body;
            for member in *path {
                value = value.get(member)?;
            }
            value.as_str().map(str::to_owned).or_else(|| Some(value.to_string()))
        }
    };
    alternatives.iter().find_map(|parts| {
        text(&parts[0])?;
        Some(parts.iter().filter_map(text).collect::<Vec<_>>().join(" "))
    })
}

/// Parses forms without escapes.
fn form_value(body: &str) -> Value {
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}
