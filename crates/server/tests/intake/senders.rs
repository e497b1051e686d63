//! Every sender, signed as it signs, meets a real node: the first delivery is accepted, the repeat recognised by the sender's
//! own id, and a few lines of configuration are enough for that.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use data_encoding::BASE64;
use sluice_domain::verify::{Scheme, UnsignedRequest, Verifier, sign};
use sluice_server::config::{EnvironmentThenFiles, compile, read};

use crate::fixture::{Answer, World};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

struct Sender {
    scheme: Scheme,
    content_type: &'static str,
    /// The first delivery, and the repeat: what may differ between the two does.
    bodies: [&'static str; 2],
    /// What the key ends with, where the sender has an id of its own.
    key_end: &'static str,
    event_type: &'static str,
}

fn sender(scheme: Scheme) -> Sender {
    let same = |content_type, body, key_end, event_type| Sender {
        scheme,
        content_type,
        bodies: [body, body],
        key_end,
        event_type,
    };
    let json = |body, key_end, event_type| same(JSON, body, key_end, event_type);
    let general = r#"{"order": 7, "name": "Zoë"}"#;
    match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => json(
            r#"{"type":"contact.created","timestamp":"2026-11-15T12:00:00Z","data":{"id":1}}"#,
            "contact.created|msg_7",
            "contact.created",
        ),
        Scheme::Stripe => Sender {
            scheme,
            content_type: JSON,
            bodies: [
                r#"{"id":"evt_1","type":"checkout.session.expired","created":1790000000,"pending_webhooks":2}"#,
                r#"{"created":1790000000,"pending_webhooks":1,"type":"checkout.session.expired","id":"evt_1"}"#,
            ],
            key_end: "checkout.session.expired|evt_1",
            event_type: "checkout.session.expired",
        },
        Scheme::Shopify => json(r#"{"id":5,"email":"a@b.c"}"#, "|msg_7", "shopify"),
        Scheme::Github => same(FORM, "payload=%7B%22action%22%3A%22opened%22%7D", "|msg_7", "github"),
        Scheme::Meta => json(
            r#"{"object":"page","entry":[{"id":"1","time":1,"changes":[{"field":"leadgen","value":{"leadgen_id":"444","created_time":1790000000}}]}]}"#,
            "leadgen|444",
            "leadgen",
        ),
        Scheme::Typeform => json(
            r#"{"event_id":"01H","event_type":"form_response","form_response":{"token":"t","submitted_at":"2026-11-15T12:00:00Z"}}"#,
            "form_response|01H",
            "form_response",
        ),
        Scheme::Hubspot => Sender {
            scheme,
            content_type: JSON,
            bodies: [
                r#"[{"eventId":1,"portalId":2,"subscriptionId":3,"objectId":4,"subscriptionType":"contact.creation","occurredAt":1790000000000,"attemptNumber":0}]"#,
                r#"[{"eventId":1,"portalId":2,"subscriptionId":3,"objectId":4,"subscriptionType":"contact.creation","occurredAt":1790000000000,"attemptNumber":1}]"#,
            ],
            key_end: r"contact.creation|2\|3\|4\|contact.creation\|1790000000000\|1",
            event_type: "contact.creation",
        },
        Scheme::Calendly => json(
            r#"{"event":"invitee.created","created_at":"2026-11-15T12:00:00Z","payload":{"uri":"https://c/i/1","email":"a@b.c"}}"#,
            r"invitee.created|https://c/i/1\|invitee.created",
            "invitee.created",
        ),
        Scheme::Slack => json(
            r#"{"token":"old-proof","type":"event_callback","event_id":"Ev1","event_time":1790000000,"event":{"type":"x"}}"#,
            "event_callback|Ev1",
            "event_callback",
        ),
        Scheme::Twilio => {
            same(FORM, "MessageSid=SM1&MessageStatus=delivered&From=%2B14155550123", "delivered|msg_7", "delivered")
        }
        Scheme::Sendgrid => json(
            "[{\"sg_event_id\":\"sg1\",\"event\":\"open\",\"timestamp\":1790000000,\"email\":\"a@b.c\"},\r\n{\"sg_event_id\":\"sg2\",\"event\":\"click\",\"timestamp\":1790000001}]\r\n",
            "open|sg1",
            "open",
        ),
        Scheme::Mailchimp => same(
            FORM,
            "type=subscribe&fired_at=2026-11-15+12%3A00%3A00&data%5Bid%5D=8a25&data%5Blist_id%5D=L&data%5Bemail%5D=a%40b.c",
            r"subscribe|subscribe\|L\|8a25\|2026-11-15 12:00:00",
            "subscribe",
        ),
        Scheme::Intercom => Sender {
            scheme,
            content_type: JSON,
            bodies: [
                r#"{"type":"notification_event","id":"notif_1","topic":"contact.lead.created","created_at":1790000000,"delivery_attempts":1}"#,
                r#"{"type":"notification_event","id":"notif_1","topic":"contact.lead.created","created_at":1790000000,"delivery_attempts":2}"#,
            ],
            key_end: "contact.lead.created|notif_1",
            event_type: "contact.lead.created",
        },
        Scheme::Zendesk => json(
            r#"{"type":"zen:event-type:user.created","id":"z1","time":"2026-11-15T12:00:00Z"}"#,
            "zen:event-type:user.created|msg_7",
            "zen:event-type:user.created",
        ),
        Scheme::Woocommerce => json(r#"{"id":9,"date_modified_gmt":"2026-11-15T12:00:00"}"#, "", "woocommerce"),
        Scheme::Square => json(
            r#"{"event_id":"sq1","type":"payment.created","created_at":"2026-11-15T12:00:00Z"}"#,
            "payment.created|sq1",
            "payment.created",
        ),
        Scheme::Paddle => Sender {
            scheme,
            content_type: JSON,
            bodies: [
                r#"{"event_id":"evt_01","event_type":"transaction.completed","occurred_at":"2026-11-15T12:00:00Z","notification_id":"ntf_1"}"#,
                r#"{"event_id":"evt_01","event_type":"transaction.completed","occurred_at":"2026-11-15T12:00:00Z","notification_id":"ntf_2"}"#,
            ],
            key_end: "transaction.completed|evt_01",
            event_type: "transaction.completed",
        },
        Scheme::Webflow => json(
            r#"{"triggerType":"form_submission","payload":{"id":"w1","submittedAt":"2026-11-15T12:00:00Z"}}"#,
            r"form_submission|w1\|2026-11-15T12:00:00Z",
            "form_submission",
        ),
        Scheme::Linkedin => json(
            r#"{"type":"LEAD_ACTION","leadGenFormResponse":"urn:li:1","leadAction":"CREATED","occurredAt":1790000000000}"#,
            r"LEAD_ACTION|urn:li:1\|CREATED",
            "LEAD_ACTION",
        ),
        Scheme::Zoom => json(
            r#"{"event":"webinar.registration_created","event_ts":1790000000000,"payload":{"object":{"id":"88","registrant":{"id":"r1"}}}}"#,
            r"webinar.registration_created|webinar.registration_created\|1790000000000\|88\|r1",
            "webinar.registration_created",
        ),
        Scheme::Tiktok => json(
            r#"{"event":"video.publish","create_time":1790000000,"user_openid":"u","content":"{}"}"#,
            r"video.publish|video.publish\|1790000000\|u\|{}",
            "video.publish",
        ),
        Scheme::Mailgun => {
            json(r#"{"event-data":{"id":"mg1","event":"opened","recipient":"a@b.c"}}"#, "opened|mg1", "opened")
        }
        Scheme::GoogleAds => {
            json(r#"{"lead_id":"g1","form_id":9007199254740993,"user_column_data":[]}"#, "|g1", "google-ads")
        }
        Scheme::Pipedrive => json(
            r#"{"meta":{"id":"p1","action":"create","entity":"person","timestamp":"2026-11-15T12:00:00Z"},"data":{}}"#,
            r"create.person|person\|p1",
            "create.person",
        ),
        Scheme::Postmark => json(
            r#"{"MessageID":"pm1","RecordType":"Bounce","ID":7,"BouncedAt":"2026-11-15T12:00:00Z"}"#,
            r"Bounce|Bounce\|7",
            "Bounce",
        ),
        Scheme::MicrosoftGraph => json(
            r#"{"value":[{"id":"n1","subscriptionId":"s","changeType":"created","resource":"r"}]}"#,
            "created|n1",
            "created",
        ),
        Scheme::Hmac | Scheme::Bearer | Scheme::Token | Scheme::Basic | Scheme::None => {
            json(general, "", scheme.name())
        }
    }
}

/// True for a scheme that implies no sender.
pub(crate) fn is_general(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Hmac | Scheme::Bearer | Scheme::Token | Scheme::Basic | Scheme::None)
}

fn secret_name(scheme: Scheme) -> String {
    format!("S_{}", scheme.name().replace('-', "_").to_uppercase())
}

/// The secret, and the lines that the scheme needs beside it.
fn secret(scheme: Scheme) -> (String, &'static str) {
    match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => (format!("whsec_{}", BASE64.encode(&[7; 32])), ""),
        Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark => ("user:pass:word".to_owned(), ""),
        Scheme::Hmac => ("a secret".to_owned(), ", header: X-Signature"),
        Scheme::Token => ("a secret".to_owned(), ", header: X-Sender-Token"),
        Scheme::Hubspot | Scheme::Square | Scheme::Twilio => {
            ("a secret".to_owned(), ", public_url: \"https://hooks.example.com/in\"")
        }
        Scheme::Sendgrid => (String::new(), ", signing_key: \"${secrets.SENDGRID_PRIVATE}\""),
        _ => ("a secret".to_owned(), ""),
    }
}

pub(crate) fn flows() -> (String, Vec<(String, String)>) {
    let mut text = String::new();
    let mut secrets = vec![];
    for scheme in Scheme::ALL {
        let (value, more) = secret(*scheme);
        let verify = match scheme {
            Scheme::None => "none".to_owned(),
            _ => format!("{{ scheme: {scheme}, secret: \"${{secrets.{}}}\"{more} }}", secret_name(*scheme)),
        };
        text.push_str(&format!(
            "---\nname: {scheme}\ntriggers: [{{ http: {{ path: /in/{scheme}, verify: {verify} }} }}]\nsteps: [{{ queue: leads }}]\n"
        ));
        if *scheme == Scheme::Sendgrid {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
            let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
            secrets.push((secret_name(*scheme), BASE64.encode(public.as_ref())));
            secrets.push(("SENDGRID_PRIVATE".to_owned(), BASE64.encode(pair.to_pkcs8v1().unwrap().as_ref())));
        } else {
            secrets.push((secret_name(*scheme), value));
        }
    }
    (text, secrets)
}

async fn post(world: &World, verifier: &Verifier, sender: &Sender, body: &str, seconds: i64) -> Answer {
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(3 - seconds);
    let unsigned =
        UnsignedRequest { method: "POST", id: "msg_7", content_type: sender.content_type, body: body.as_bytes() };
    let signed = sign(verifier, &unsigned, at).unwrap();
    let query = signed.query.as_ref().map(|query| format!("?{}", query.expose())).unwrap_or_default();
    let mut request = world
        .client
        .post(format!("{}/in/{}{query}", world.intake, sender.scheme))
        .header("content-type", sender.content_type)
        .body(signed.body);
    for (name, value) in &signed.headers {
        request = request.header(name, value.expose());
    }
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sender_is_verified_and_its_duplicate_recognised() {
    let (text, secrets) = flows();
    let secrets: Vec<(&str, &str)> = secrets.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let files = [("flows.yml", text.as_str()), ("queues.yml", "queues: [leads]\n")];
    let world = World::start_with_secrets(&files, &secrets).await;
    let directory = world.directory.path();
    let compiled = compile(&read(directory).unwrap(), &EnvironmentThenFiles::new(directory.to_owned()));
    let config = compiled.config.unwrap();
    for scheme in Scheme::ALL {
        let sender = sender(*scheme);
        let flow = &config.flows[scheme.name()];
        let verifier = flow.verify.as_ref().unwrap();
        let status = match sluice_domain::verify::preset(*scheme).success {
            sluice_domain::verify::Success::Exactly200 => 200,
            sluice_domain::verify::Success::Any2xx => 202,
        };
        let first = post(&world, verifier, &sender, sender.bodies[0], 0).await;
        assert_eq!(first.status, status, "{scheme}: {}", first.body);
        let own = |answer: &Answer| {
            if flow.body.events.is_some() { answer.body["events"][0].clone() } else { answer.body.clone() }
        };
        let (event, key) = (own(&first)["event_id"].clone(), own(&first)["idempotency_key"].clone());
        assert_eq!(own(&first)["status"], "accepted", "{scheme}: {}", first.body);
        assert!(key.as_str().unwrap().ends_with(sender.key_end), "{scheme}: {key}");
        let repeat = post(&world, verifier, &sender, sender.bodies[1], 2).await;
        assert_eq!(
            (repeat.status, own(&repeat)["event_id"].clone()),
            (status, event.clone()),
            "{scheme}: {}",
            repeat.body
        );
        assert_eq!(repeat.headers["idempotent-replayed"], "true", "{scheme}");
        let shown = world.reveal(event.as_str().unwrap(), "test").await;
        assert_eq!(shown["event_type"], sender.event_type, "{scheme}: {shown}");
        for secret in ["old-proof", "a secret", "google_key", "clientState"] {
            assert!(!shown.to_string().contains(secret), "{scheme} stores {secret}: {shown}");
        }
        let mut forged = post(&world, &forger(verifier, *scheme), &sender, sender.bodies[0], 2).await;
        if *scheme == Scheme::None {
            forged.status = 401;
        }
        assert_eq!(forged.status, 401, "{scheme}: {}", forged.body);
    }
    let tallies = world.get("/api/v1/sources").await.to_string();
    assert!(tallies.contains("refused_lately"), "{tallies}");
}

/// Signs as somebody who does not know the secret.
fn forger(verifier: &Verifier, scheme: Scheme) -> Verifier {
    use sluice_domain::verify::{HmacSettings, Secret, TokenLocation, VerifierSettings};
    let secret = match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => format!("whsec_{}", BASE64.encode(&[9; 32])),
        Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark => "user:other".to_owned(),
        _ => "another secret".to_owned(),
    };
    let mut settings = VerifierSettings::new(scheme, vec![Secret::new("forged", secret)]);
    match scheme {
        Scheme::None => return verifier.clone(),
        Scheme::Hmac => settings.hmac = Some(HmacSettings::new("X-Signature")),
        Scheme::Token => settings.token = Some(TokenLocation::Header("X-Sender-Token".to_owned())),
        Scheme::Hubspot | Scheme::Square | Scheme::Twilio => {
            settings.public_url = Some("https://hooks.example.com/in".to_owned())
        }
        Scheme::Sendgrid => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
            let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
            settings.secrets = vec![Secret::new("forged", BASE64.encode(public.as_ref()))];
            settings.signing_key = Some(BASE64.encode(pair.to_pkcs8v1().unwrap().as_ref()).into());
        }
        _ => {}
    }
    Verifier::new(settings).unwrap()
}
