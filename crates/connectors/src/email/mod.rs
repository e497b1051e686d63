//! `email.send`: one mail, one conversation, one connection.

mod request;
pub(crate) mod response;
pub(crate) mod session;
mod settings;

use std::io;
use std::time::Duration;

use data_encoding::BASE64;
use lettre::message::Mailbox;
use serde_json::{Value, json};
use sluice_domain::destination::{SmtpDestination, SmtpLogin, SmtpTls};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::verify::SecretValue;
use tokio::time::{Instant, timeout_at};

use request::{Mail, build};
use response::{SmtpPhase, broken, output, refused};
use session::SmtpError;
use settings::{Settings, address};

use crate::text::{exposed, redact_outcome};
use crate::tls::Tls;
use crate::{Call, Preview, deadline};

/// A mail server, prepared once.
#[derive(Debug)]
pub(crate) struct Target {
    host: String,
    port: u16,
    security: Security,
    login: Option<SmtpLogin>,
    from: Mailbox,
    /// What we call ourselves.
    hello: String,
    /// What must not appear in any text about this destination.
    secrets: Vec<SecretValue>,
}

/// How the way to a mail server is protected, and whom we trust.
#[derive(Debug)]
enum Security {
    None,
    StartTls(Tls),
    Tls(Tls),
}

impl Target {
    /// Prepares a destination, or says which of its keys is wrong. Nothing is connected yet.
    pub(crate) fn new(destination: &SmtpDestination) -> Result<Target, String> {
        let from = address("from", &destination.from)
            .map_err(|_| "from: is not an address such as shop@example.com or Shop <shop@example.com>".to_owned())?;
        let certificate = destination.ca_certificate.as_ref().map(SecretValue::expose);
        let tls = || Tls::new(certificate).map_err(|problem| format!("ca_certificate: {problem}"));
        let security = match destination.tls {
            // A machine without any certificates may still talk to itself.
            SmtpTls::None => Security::None,
            SmtpTls::StartTls => Security::StartTls(tls()?),
            SmtpTls::Tls => Security::Tls(tls()?),
        };
        if destination.host.is_empty() || destination.host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err("host: must be the name or address of a mail server".to_owned());
        }
        let mut secrets = Vec::new();
        if let Some(login) = &destination.login {
            let password = login.password.expose();
            let plain = format!("\0{}\0{password}", login.user);
            secrets.push(login.password.clone());
            secrets.push(SecretValue::new(BASE64.encode(password.as_bytes()).as_str()));
            secrets.push(SecretValue::new(BASE64.encode(plain.as_bytes()).as_str()));
        }
        Ok(Target {
            host: destination.host.clone(),
            port: destination.port,
            security,
            login: destination.login.clone(),
            hello: from.email.domain().to_owned(),
            from,
            secrets,
        })
    }
}

/// Sends the mail.
pub(crate) async fn call(target: &Target, longest: Duration, call: Call<'_>) -> Outcome {
    let mail = match prepare(target, &call) {
        Ok(mail) => mail,
        Err(failure) => return Outcome::Reject { failure },
    };
    let until = deadline([call.timeout, longest]);
    let (started, mut phase) = (Instant::now(), SmtpPhase::Connect);
    let sent = timeout_at(until, Box::pin(session::send(target, &mail, &mut phase))).await;
    let host = &target.host;
    let outcome = match sent {
        Ok(Ok(reply)) => Outcome::Done { result: output(&mail, &reply) },
        Ok(Err(SmtpError::Reply(reply))) => refused(host, phase, &reply),
        Ok(Err(SmtpError::Unable(what))) => Outcome::Reject {
            failure: Failure::new(FailureClass::Auth, "smtp-unable", format!("{host}: {what}; check the destination.")),
        },
        Ok(Err(SmtpError::Garbled)) => broken(host, phase, "protocol", "it does not answer in SMTP"),
        Ok(Err(SmtpError::Io(error))) => broken(host, phase, code(phase, &error), &error.to_string()),
        Err(_) => broken(host, phase, "timeout", "there was no answer in time"),
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(host, outcome = outcome.as_str(), ?phase, elapsed_ms, "answered");
    redact_outcome(outcome, exposed(&target.secrets))
}

/// Nobody can ask a mail server what it has taken.
pub(crate) fn read_back() -> Readback {
    Readback::Unreadable(Failure::new(
        FailureClass::Unknown,
        "no-read-back",
        "A mail server cannot be asked whether it has taken a mail; look for the Message-ID in its log.",
    ))
}

/// What would be sent.
pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let settings = Settings::read(call.with)?;
    let mail = prepare(target, call)?;
    let content = String::from_utf8_lossy(&mail.content);
    let head = content.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n ", " ");
    let mut headers: Vec<(String, String)> = head
        .split("\r\n")
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    headers.sort();
    Ok(Preview {
        method: "MAIL".to_owned(),
        url: format!("smtp://{}:{}", target.host, target.port),
        headers,
        body: json!({
            "from": mail.from, "recipients": mail.recipients, "subject": settings.subject,
            "text": settings.text.map_or(Value::Null, |text| text.into()),
            "html": settings.html.map_or(Value::Null, |html| html.into()),
        }),
    })
}

fn prepare(target: &Target, call: &Call<'_>) -> Result<Mail, Failure> {
    build(&Settings::read(call.with)?, &target.from, call.effect_key, call.now)
}

fn code(phase: SmtpPhase, error: &io::Error) -> &'static str {
    match (error.kind(), phase) {
        (io::ErrorKind::InvalidData, _) => "tls",
        (_, SmtpPhase::Connect) => "connect",
        _ => "reset",
    }
}
