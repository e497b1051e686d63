//! `email.send` against the simulated SMTP server with a fault at every step, and against servers that disconnect
//! at a given byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, SmtpDestination, SmtpLogin, SmtpTls};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{Moment, Scripted};
use sluice_simulator::smtp::{Encryption, FakeStep};
use sluice_simulator::{Fault, FaultPlan, Smtp, SmtpSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{RawServer, unused_address};
use crate::{PATIENT, SHORT, brief, destination};

const PASSWORD: &str = "hunter2-mail";

fn at(address: std::net::SocketAddr, tls: SmtpTls) -> SmtpDestination {
    SmtpDestination {
        host: "127.0.0.1".into(),
        port: address.port(),
        tls,
        login: None,
        from: "Shop <shop@example.com>".into(),
        ca_certificate: None,
    }
}

fn to(settings: SmtpDestination) -> Connectors {
    Connectors::new([&destination("there", DestinationKind::Smtp(settings))], &OutboundSettings::default()).unwrap()
}

fn login(password: &str) -> Option<SmtpLogin> {
    Some(SmtpLogin { user: "ann".into(), password: password.into() })
}

fn mail() -> Value {
    json!({"to": ["ada@example.com", "Bob <bob@example.com>"], "subject": "Hello", "text": ".dot\nHello"})
}

fn send(with: &Value) -> Call<'_> {
    crate::call(Action::EmailSend, with, PATIENT)
}

fn server(settings: SmtpSettings) -> Smtp {
    Smtp::start(settings).unwrap()
}

#[tokio::test]
async fn mail_arrives_with_the_effect_key_in_its_message_id() {
    let server = server(SmtpSettings::default());
    let connectors = to(at(server.address(), SmtpTls::None));
    let with = mail();
    let outcome = connectors.call(send(&with)).await;
    let Outcome::Done { result } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((&result["message_id"], &result["recipients"]), (&json!("<effect-1@example.com>"), &json!(2)));
    assert!(result["answer"].as_str().unwrap().starts_with("250 2.0.0 Ok"), "{result}");
    let message = &server.messages()[0];
    assert_eq!(
        (message.from.as_str(), message.to.as_slice()),
        ("shop@example.com", &["ada@example.com".to_owned(), "bob@example.com".to_owned()][..])
    );
    assert_eq!(message.header("message-id"), Some("<effect-1@example.com>"));
    assert_eq!(message.header("to"), Some("ada@example.com, Bob <bob@example.com>"));
    assert_eq!(message.body, ".dot\r\nHello\r\n");
    // The receiver can recognise a duplicate.
    connectors.call(send(&with)).await;
    assert_eq!(server.truth().by_message_id["<effect-1@example.com>"], 2);
    assert!(matches!(connectors.read_back(send(&with)).await, Readback::Unreadable(_)));
}

#[tokio::test]
async fn every_reply_is_definite_and_only_a_missing_reply_after_the_dot_is_unsure() {
    let server = server(SmtpSettings {
        encryption: Encryption::StartTls,
        login: Some(("ann".into(), PASSWORD.into())),
        ..SmtpSettings::default()
    });
    let settings = SmtpDestination {
        login: login(PASSWORD),
        ca_certificate: Some(server.certificate().into()),
        ..at(server.address(), SmtpTls::StartTls)
    };
    let connectors = to(settings);
    let with = mail();
    let mut accepted = 0;
    for step in FakeStep::ALL {
        let after_dot = step == FakeStep::Dot;
        let early = matches!(step, FakeStep::Connect | FakeStep::Ehlo | FakeStep::StartTls | FakeStep::Auth);
        let refused = if early { "reject auth smtp-554" } else { "reject permanent smtp-554" };
        let reset = if after_dot { "unsure retryable reset" } else { "retry retryable reset" };
        let malformed = if after_dot { "unsure retryable protocol" } else { "retry retryable protocol" };
        let timeout = if after_dot { "unsure retryable timeout" } else { "retry retryable timeout" };
        let mut table = vec![
            (Fault::Reply { code: 451 }, "retry retryable smtp-451", false),
            (Fault::Reply { code: 421 }, "retry retryable smtp-421", false),
            (Fault::Reply { code: 554 }, refused, false),
            (Fault::DropBefore, reset, false),
            (Fault::DropAfter, reset, true),
            (Fault::GarbageBody { moment: Moment::BeforeApplying }, malformed, false),
            (Fault::TimeoutBefore { hold_ms: 60_000 }, timeout, false),
            (Fault::TimeoutAfter { hold_ms: 60_000 }, timeout, true),
        ];
        if step == FakeStep::Content {
            // A reply in the middle of the content is read as the reply to the final dot.
            table.retain(|(fault, ..)| matches!(fault, Fault::DropBefore | Fault::TimeoutBefore { .. }));
            table
                .iter_mut()
                .for_each(|row| row.1 = if matches!(row.0, Fault::DropBefore) { "reset" } else { "timeout" });
        }
        for (fault, expected, applied) in table {
            server.set_faults(FaultPlan::scripted([Scripted::first(1, fault.clone()).at(step.as_str())])).unwrap();
            let timeout = if expected.ends_with("timeout") { Duration::from_millis(400) } else { PATIENT };
            let outcome = connectors.call(Call { timeout, ..send(&with) }).await;
            // A small mail is sent together with its final dot before the server can reject its content.
            assert!(brief(&outcome).ends_with(expected), "{step:?} {fault:?}: {outcome:?}");
            accepted += u64::from(applied && after_dot);
            assert_eq!(server.truth().accepted, accepted, "{step:?} {fault:?}");
        }
    }
    assert_eq!(server.truth().accepted_unseen, accepted);
    server.set_faults(FaultPlan::none()).unwrap();
    assert_eq!(connectors.call(send(&with)).await.as_str(), "done");
    assert!(server.messages().last().unwrap().encrypted);
}

/// SMTP server that disconnects after `after` bytes of the content, including its end.
async fn disconnecting(after: usize) -> (RawServer, Arc<Mutex<Vec<u8>>>) {
    let received: Arc<Mutex<Vec<u8>>> = Arc::default();
    let shared = received.clone();
    let raw = RawServer::start(move |mut stream| {
        let received = shared.clone();
        async move {
            stream.write_all(b"220 raw\r\n").await.unwrap();
            let (mut buffer, mut content) = (Vec::new(), false);
            loop {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_err() {
                    return;
                }
                if content {
                    let mut received = received.lock().unwrap();
                    received.push(byte[0]);
                    if received.len() == after {
                        return;
                    }
                    continue;
                }
                buffer.push(byte[0]);
                if buffer.ends_with(b"\r\n") {
                    content = buffer == b"DATA\r\n";
                    let reply: &[u8] = if content { b"354 go\r\n" } else { b"250 ok\r\n" };
                    stream.write_all(reply).await.unwrap();
                    buffer.clear();
                }
            }
        }
    })
    .await;
    (raw, received)
}

#[tokio::test]
async fn mail_without_its_final_dot_is_not_sent() {
    // Larger than the socket buffers, so the disconnect is noticed in the middle of the content.
    let large = json!({"to": "ada@example.com", "subject": "Hello", "text": "line of text\n".repeat(1_500_000)});
    let (raw, _) = disconnecting(10_000).await;
    let connectors = to(at(raw.address(), SmtpTls::None));
    let outcome = connectors.call(send(&large)).await;
    assert_eq!(brief(&outcome), "retry retryable reset");
    assert!(outcome.failure().unwrap().message.contains("at the content). The mail was not sent"), "{outcome:?}");

    // A server that stops reading in the middle.
    let stalled = RawServer::start(|mut stream| async move {
        stream.write_all(b"220 raw\r\n").await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"DATA\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            read.push(byte[0]);
            if byte[0] == b'\n' {
                let reply: &[u8] = if read.ends_with(b"DATA\r\n") { b"354 go\r\n" } else { b"250 ok\r\n" };
                stream.write_all(reply).await.unwrap();
            }
        }
        std::future::pending::<()>().await;
    })
    .await;
    let connectors = to(at(stalled.address(), SmtpTls::None));
    let outcome = connectors.call(Call { timeout: Duration::from_millis(500), ..send(&large) }).await;
    assert_eq!(brief(&outcome), "retry retryable timeout");
    let small = mail();
    let outcome = connectors.call(Call { timeout: Duration::from_millis(500), ..send(&small) }).await;
    assert_eq!(brief(&outcome), "unsure retryable timeout");
}

#[tokio::test]
async fn final_dot_is_sent_last() {
    let (raw, received) = disconnecting(usize::MAX).await;
    let connectors = to(at(raw.address(), SmtpTls::None));
    let with = mail();
    let outcome = connectors.call(Call { timeout: SHORT * 5, ..send(&with) }).await;
    assert_eq!(brief(&outcome), "unsure retryable timeout");
    let length = received.lock().unwrap().len();
    assert!(received.lock().unwrap().ends_with(b"\r\n..dot\r\nHello\r\n.\r\n"));
    // Whether the server read the last byte is unknown, so the outcome is unsure in both cases.
    for after in [length - 1, length] {
        let (raw, _) = disconnecting(after).await;
        let outcome = to(at(raw.address(), SmtpTls::None)).call(send(&with)).await;
        assert_eq!(brief(&outcome), "unsure retryable reset", "{after} of {length}");
    }
}

#[tokio::test]
async fn nothing_is_sent_without_a_connection_or_a_valid_login() {
    let with = mail();
    let unreachable = to(at(unused_address().await, SmtpTls::None));
    assert_eq!(brief(&unreachable.call(send(&with)).await), "retry retryable connect");

    let server = server(SmtpSettings { login: Some(("ann".into(), PASSWORD.into())), ..SmtpSettings::default() });
    let authenticated = to(SmtpDestination { login: login(PASSWORD), ..at(server.address(), SmtpTls::None) });
    assert_eq!(authenticated.call(send(&with)).await.as_str(), "done");
    let wrong = to(SmtpDestination { login: login("hunter2-wrong"), ..at(server.address(), SmtpTls::None) });
    let outcome = wrong.call(send(&with)).await;
    assert_eq!(brief(&outcome), "reject auth smtp-535");
    let preview = wrong.preview(&send(&with)).unwrap();
    let shown = format!("{wrong:?} {outcome:?} {preview:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(preview.body["recipients"], json!(["ada@example.com", "bob@example.com"]));
    assert!(preview.headers.contains(&("message-id".into(), "<effect-1@example.com>".into())), "{preview:?}");
    let anonymous = to(at(server.address(), SmtpTls::None));
    assert_eq!(brief(&anonymous.call(send(&with)).await), "reject auth smtp-530");
    assert_eq!(server.truth().accepted, 1);
}

#[tokio::test]
async fn one_rejected_recipient_rejects_the_mail() {
    let server = server(SmtpSettings::default());
    let refuse = Scripted::for_key("bob@example.com", Fault::Reply { code: 550 }).at("RCPT");
    server.set_faults(FaultPlan::scripted([refuse])).unwrap();
    let connectors = to(at(server.address(), SmtpTls::None));
    assert_eq!(brief(&connectors.call(send(&mail())).await), "reject permanent smtp-550");
    assert_eq!(server.truth().accepted, 0);
}

#[tokio::test]
async fn mail_is_sent_only_over_verified_tls() {
    let with = mail();
    for (encryption, tls) in [(Encryption::Tls, SmtpTls::Tls), (Encryption::StartTls, SmtpTls::StartTls)] {
        let server = server(SmtpSettings { encryption, ..SmtpSettings::default() });
        let trusting =
            SmtpDestination { ca_certificate: Some(server.certificate().into()), ..at(server.address(), tls) };
        assert_eq!(to(trusting.clone()).call(send(&with)).await.as_str(), "done");
        assert!(server.messages()[0].encrypted);
        // An untrusted certificate, then a wrong host name.
        assert_eq!(to(at(server.address(), tls)).call(send(&with)).await.as_str(), "retry");
        let other = SmtpDestination { host: "127.0.0.2".into(), ..trusting };
        assert_eq!(to(other).call(send(&with)).await.as_str(), "retry");
        assert_eq!(server.truth().accepted, 1);
    }
    let plain = server(SmtpSettings::default());
    let outcome = to(at(plain.address(), SmtpTls::StartTls)).call(send(&with)).await;
    assert_eq!(brief(&outcome), "reject auth smtp-unable");

    // Plaintext injected before the handshake is not accepted as the server's.
    let injected = RawServer::start(|mut stream| async move {
        stream.write_all(b"220 raw\r\n").await.unwrap();
        let mut read = [0; 100];
        let _ = stream.read(&mut read).await;
        stream.write_all(b"250-raw\r\n250 STARTTLS\r\n").await.unwrap();
        let _ = stream.read(&mut read).await;
        stream.write_all(b"220 go\r\n250 ok\r\n").await.unwrap();
        let _ = stream.read(&mut read).await;
    })
    .await;
    let outcome = to(at(injected.address(), SmtpTls::StartTls)).call(send(&with)).await;
    assert_eq!(brief(&outcome), "reject auth smtp-unable");
}
