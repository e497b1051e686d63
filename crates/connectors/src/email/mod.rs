//! `email.send`: one connection and one SMTP session per mail.

mod request;
pub(crate) mod response;
pub(crate) mod session;
pub(crate) mod settings;

use std::io;
use std::time::Duration;

use data_encoding::BASE64;
use lettre::message::Mailbox;
use serde_json::{Value, json};
use sluice_domain::destination::{SmtpDestination, SmtpLogin, SmtpTls};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::verify::SecretValue;
use tokio::time::{Instant, timeout_at};

use request::{Mail, build};
use response::{SHIPPED_RULES, SmtpPhase, no_reply, output, rejected};
use session::SmtpError;
use settings::{Settings, address};

use crate::text::{exposed, redact_outcome};
use crate::tls::Tls;
use crate::{Call, Preview, deadline};

/// SMTP destination with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    host: String,
    port: u16,
    security: Security,
    login: Option<SmtpLogin>,
    from: Mailbox,
    /// Host name sent with EHLO.
    hello: String,
    /// Redacted from every message about this destination.
    secrets: Vec<SecretValue>,
    /// What error replies mean.
    rules: FailureTable,
}

/// Transport security and the trusted certificates.
#[derive(Debug)]
enum Security {
    None,
    StartTls(Tls),
    Tls(Tls),
}

impl Target {
    /// The same, with rules of the destination before the shipped ones.
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { rules: SHIPPED_RULES.behind(own), ..self }
    }

    /// Parses the settings; the error names the invalid key. Does not connect.
    pub(crate) fn new(destination: &SmtpDestination) -> Result<Target, String> {
        let from = address("from", &destination.from)
            .map_err(|_| "from: is not an address such as shop@example.com or Shop <shop@example.com>".to_owned())?;
        let certificate = destination.ca_certificate.as_ref().map(SecretValue::expose);
        let tls = || Tls::new(certificate).map_err(|problem| format!("ca_certificate: {problem}"));
        let security = match destination.tls {
            // Does not load the system's roots, so it works on a machine without any.
            SmtpTls::None => Security::None,
            SmtpTls::StartTls => Security::StartTls(tls()?),
            SmtpTls::Tls => Security::Tls(tls()?),
        };
        if destination.host.is_empty() || destination.host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err("host: must be a host name or an IP address".to_owned());
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
            rules: SHIPPED_RULES.clone(),
            secrets,
        })
    }
}

pub(crate) async fn call(target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let mail = match prepare(target, &call) {
        Ok(mail) => mail,
        Err(failure) => return Outcome::Reject { failure },
    };
    let deadline_at = deadline([call.timeout, timeout_max]);
    let (started, mut phase) = (Instant::now(), SmtpPhase::Connect);
    let result = timeout_at(deadline_at, Box::pin(session::send(target, &mail, &mut phase))).await;
    let host = &target.host;
    let outcome = match result {
        Ok(Ok(reply)) => Outcome::Done { result: output(&mail, &reply) },
        Ok(Err(SmtpError::Reply(reply))) => rejected(host, phase, &reply, &target.rules),
        Ok(Err(SmtpError::Unsupported(what))) => Outcome::Reject {
            failure: Failure::new(
                FailureClass::Auth,
                "smtp-unable",
                format!("{host}: {what}. Check the destination's settings."),
            ),
        },
        Ok(Err(SmtpError::Malformed)) => no_reply(host, phase, "protocol", "the reply is not SMTP"),
        Ok(Err(SmtpError::Io(error))) => no_reply(host, phase, code(phase, &error), &error.to_string()),
        Err(_) => no_reply(host, phase, "timeout", "no reply before the timeout"),
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(host, outcome = outcome.as_str(), ?phase, elapsed_ms, "mail attempt ended");
    redact_outcome(outcome, exposed(&target.secrets))
}

/// SMTP has no read-back.
pub(crate) fn read_back() -> Readback {
    Readback::Unreadable(Failure::new(
        FailureClass::Unknown,
        "no-read-back",
        "SMTP cannot report whether a mail was accepted. Search the server's log for the Message-ID.",
    ))
}

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
