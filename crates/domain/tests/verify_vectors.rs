//! Recorded requests of every sender, each believed or refused as it has to be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod verify_support;

use serde_json::Value;
use sluice_domain::verify::{
    BodyForm, Composed, FieldLocation, Scheme, Secret, UnsignedRequest, Verifier, VerifierSettings, handshake, preset,
    sign, verify,
};
use verify_support::{Arrival, Vector, recorded};

#[test]
fn every_vector_is_believed_or_refused_for_the_right_reason() {
    let vectors = recorded().vectors;
    assert_eq!(vectors.len(), 107);
    let mut wrong = Vec::new();
    for vector in &vectors {
        let verifier = vector.verifier();
        let arrival = vector.arrival();
        let answer = verify(&verifier, &arrival.request(), vector.now());
        let code = answer.as_ref().err().map(|refusal| refusal.code());
        if code != vector.refusal.as_deref() {
            wrong.push(format!("{}: {code:?}, not {:?}", vector.id, vector.refusal));
        }
        if let Ok(verified) = answer {
            assert_eq!(verified.secret, Some("main"), "{}", vector.id);
            assert_eq!(verified.replay_token, vector.replay_token, "{}", vector.id);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_refusal_shows_a_secret_or_the_right_signature() {
    for vector in recorded().vectors {
        let verifier = vector.verifier();
        let mut arrival = vector.arrival();
        arrival.body.push(b'!');
        for arrival in [vector.arrival(), arrival] {
            let Err(refusal) = verify(&verifier, &arrival.request(), vector.now()) else { continue };
            let shown = format!("{refusal} {refusal:?} {verifier:?}");
            assert!(!shown.contains(&vector.secret()), "{}: {shown}", vector.id);
            if let Some(signature) = &vector.expected_signature {
                let digest = signature.rsplit(['=', ',']).find(|part| !part.is_empty()).unwrap();
                assert!(!shown.contains(digest), "{}: {shown}", vector.id);
            }
        }
    }
}

#[test]
fn every_vector_is_found_whatever_the_case_of_its_header_names() {
    for vector in recorded().vectors {
        let mut arrival = vector.arrival();
        for (name, value) in &mut arrival.headers {
            *name = name.to_ascii_uppercase();
            *value = format!("\t {value} ");
        }
        let answer = verify(&vector.verifier(), &arrival.request(), vector.now()).map(drop);
        assert_eq!(answer.is_ok(), vector.refusal.is_none(), "{}: {answer:?}", vector.id);
    }
}

#[test]
fn every_secret_is_tried() {
    for vector in recorded().vectors {
        if vector.refusal.is_some() {
            continue;
        }
        let mut settings = vector.settings();
        let other = other_secret(&vector);
        settings.secrets.insert(0, Secret::new("other", other));
        settings.secrets.push(Secret::new("third", vector.secret()));
        let verifier = Verifier::new(settings).unwrap();
        let arrival = vector.arrival();
        let verified = verify(&verifier, &arrival.request(), vector.now()).unwrap();
        assert_eq!(verified.secret, Some("main"), "{}", vector.id);
    }
}

#[test]
fn a_secret_that_has_expired_no_longer_opens_but_another_still_does() {
    for vector in recorded().vectors {
        if vector.refusal.is_some() {
            continue;
        }
        let arrival = vector.arrival();
        let mut settings = vector.settings();
        let just_now = vector.now() - jiff::SignedDuration::from_nanos(1);
        settings.secrets[0].not_after = Some(vector.now());
        let verifier = Verifier::new(settings.clone()).unwrap();
        assert!(verify(&verifier, &arrival.request(), vector.now()).is_ok(), "{}", vector.id);

        settings.secrets[0].not_after = Some(just_now);
        settings.secrets.push(Secret::new("other", other_secret(&vector)));
        let verifier = Verifier::new(settings.clone()).unwrap();
        let refusal = verify(&verifier, &arrival.request(), vector.now()).unwrap_err();
        assert_eq!(refusal.code(), "secret-expired", "{}", vector.id);

        settings.secrets.push(Secret::new("renewed", vector.secret()));
        let verifier = Verifier::new(settings).unwrap();
        let verified = verify(&verifier, &arrival.request(), vector.now()).unwrap();
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
fn signing_gives_what_the_sender_sent() {
    let mut compared = 0;
    for vector in recorded().vectors {
        let Some(expected) = &vector.expected_signature else { continue };
        if vector.refusal.is_some() || vector.request.headers.is_empty() {
            continue;
        }
        // Signed without the port that the URL has; the round trip covers the rest.
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

/// When the vector's sender signed it.
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
fn handshakes_are_answered() {
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
        let mut arrival = recorded.request.arrival();
        if scheme == Scheme::Slack {
            let unsigned = arrival.request();
            assert_eq!(handshake(&verifier, &unsigned, now), None, "an unsigned challenge");
            arrival = signed(&verifier, &arrival, now);
        }
        let answer = handshake(&verifier, &arrival.request(), now).expect(&recorded.id);
        assert_eq!(answer.status, recorded.response.status, "{}", recorded.id);
        let content_type = recorded.response.content_type.as_deref();
        assert!(content_type.is_none() || answer.content_type == content_type, "{}", recorded.id);
        if let Some(json) = &recorded.response.json {
            assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), *json);
        } else {
            let body = recorded.response.body.as_deref().unwrap_or_default();
            assert_eq!(answer.body, body, "{}", recorded.id);
        }
    }
}

fn signed(verifier: &Verifier, arrival: &Arrival, now: jiff::Timestamp) -> Arrival {
    let unsigned =
        UnsignedRequest { method: &arrival.method, id: "msg_1", content_type: "application/json", body: &arrival.body };
    let signed = sign(verifier, &unsigned, now).unwrap();
    let mut arrival = arrival.clone();
    for (name, value) in &signed.headers {
        arrival.set(name, value.expose());
    }
    arrival.body = signed.body;
    arrival
}

#[test]
fn presets_find_the_id_and_the_type_of_every_vector() {
    let (mut ids, mut types) = (0, 0);
    for vector in recorded().vectors {
        // An event that was wrapped in a form, and one whose recorded type is not its own.
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

/// The value in the vector's first event, its parts joined by a space.
fn found(vector: &Vector, ways: &[Composed], form: BodyForm) -> Option<String> {
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
    ways.iter().find_map(|parts| {
        text(&parts[0])?;
        Some(parts.iter().filter_map(text).collect::<Vec<_>>().join(" "))
    })
}

/// Enough of a form for fields without escapes.
fn form_value(body: &str) -> Value {
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}
