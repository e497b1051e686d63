//! SMTP server session with fault injection at every step.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::mailbox::{Mailbox, SmtpMessage, SmtpTruth};
use super::{Encryption, FakeStep, SmtpSettings};
use crate::faults::{Call, CallKind, Fault, Injector, Moment};
use crate::inspect::{self, Inspect};
use crate::lock;
use crate::serve::ConnectionHandler;

pub(super) struct Shared {
    settings: SmtpSettings,
    pub(super) injector: Injector,
    pub(super) certificate: String,
    acceptor: TlsAcceptor,
    mailbox: Mutex<Mailbox>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(settings: SmtpSettings, injector: Injector) -> io::Result<Shared> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certified = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key))
            .map_err(io::Error::other)?;
        Ok(Shared {
            settings,
            injector,
            certificate: certified.cert.pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            mailbox: Mutex::default(),
        })
    }

    pub(super) fn truth(&self) -> SmtpTruth {
        SmtpTruth { faults: self.injector.counts(), ..lock(&self.mailbox).truth.clone() }
    }

    pub(super) fn messages(&self) -> Vec<SmtpMessage> {
        lock(&self.mailbox).messages.iter().cloned().collect()
    }

    /// Applies latency and returns the plan's action at this step.
    async fn decide(&self, step: FakeStep, keys: &[&str]) -> StepAction {
        let method = step.as_str();
        let decision = self.injector.decide(&Call { kind: CallKind::Write, method, path: method, keys });
        if !decision.latency.is_zero() {
            tokio::time::sleep(decision.latency).await;
        }
        let Some(fault) = decision.fault else { return StepAction::Proceed };
        let hold = |ms| Duration::from_millis(ms);
        match fault {
            Fault::Latency(millis) => {
                tokio::time::sleep(hold(millis.max_ms)).await;
                StepAction::Proceed
            }
            Fault::Reply { code } => StepAction::Reply(code),
            Fault::TooManyRequests { .. } | Fault::ServerUnavailable => StepAction::Reply(421),
            Fault::RequestLimitExceeded => StepAction::Reply(452),
            Fault::LockRow => StepAction::Reply(450),
            Fault::DuplicateValue => StepAction::Reply(550),
            Fault::InvalidSession => StepAction::Reply(535),
            Fault::ErrorBefore | Fault::Gateway { moment: Moment::BeforeApplying, .. } | Fault::RedirectLoop => {
                StepAction::Reply(451)
            }
            Fault::ErrorAfter | Fault::Gateway { moment: Moment::AfterApplying, .. } => StepAction::ApplyAndReply(451),
            Fault::GarbageBody { moment: Moment::BeforeApplying } | Fault::StaleRead => StepAction::Malformed,
            Fault::GarbageBody { moment: Moment::AfterApplying } | Fault::HugeBody { .. } => {
                StepAction::ApplyAndMalformed
            }
            Fault::TimeoutBefore { hold_ms } => StepAction::Close(hold(hold_ms)),
            Fault::TimeoutAfter { hold_ms } => StepAction::ApplyAndClose(hold(hold_ms)),
            Fault::DropBefore => StepAction::Close(Duration::ZERO),
            Fault::DropAfter | Fault::CutResponse | Fault::TrickleBody { .. } => {
                StepAction::ApplyAndClose(Duration::ZERO)
            }
        }
    }
}

/// Action at one step of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepAction {
    Proceed,
    Reply(u16),
    Malformed,
    Close(Duration),
    ApplyAndReply(u16),
    ApplyAndMalformed,
    ApplyAndClose(Duration),
}

impl ConnectionHandler for Shared {
    async fn handle_connection(self: Arc<Self>, stream: TcpStream) {
        lock(&self.mailbox).truth.connections += 1;
        // The client notices an I/O error by itself.
        let _ = self.serve(stream).await;
    }
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        inspect::last(lock(&self.mailbox).messages.iter(), limit)
    }

    fn truth(&self) -> Value {
        json!(Shared::truth(self))
    }

    fn injector(&self) -> &Injector {
        &self.injector
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        match self.settings.encryption {
            Encryption::None => SmtpSession::new(self, stream, false).greet_and_run().await.map(drop),
            Encryption::Tls => {
                let stream = self.acceptor.accept(stream).await?;
                SmtpSession::new(self, stream, true).greet_and_run().await.map(drop)
            }
            Encryption::StartTls => {
                let Some(stream) = SmtpSession::new(self, stream, false).greet_and_run().await? else { return Ok(()) };
                let stream = self.acceptor.accept(stream).await?;
                SmtpSession::new(self, stream, true).run().await.map(drop)
            }
        }
    }
}

struct SmtpSession<'a, S> {
    shared: &'a Shared,
    stream: S,
    buffer: Vec<u8>,
    encrypted: bool,
    authenticated: bool,
    from: Option<String>,
    to: Vec<String>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> SmtpSession<'a, S> {
    fn new(shared: &'a Shared, stream: S, encrypted: bool) -> SmtpSession<'a, S> {
        let authenticated = shared.settings.login.is_none();
        SmtpSession { shared, stream, buffer: Vec::new(), encrypted, authenticated, from: None, to: Vec::new() }
    }

    async fn greet_and_run(mut self) -> io::Result<Option<S>> {
        match self.step_fault(FakeStep::Connect, &[]).await? {
            true => self.send_line("220 simulator ESMTP").await?,
            false => return Ok(None),
        }
        self.run().await
    }

    /// Runs the session until the client disconnects (`None`) or requests TLS (the stream).
    async fn run(mut self) -> io::Result<Option<S>> {
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let tls_satisfied = self.encrypted || self.shared.settings.encryption == Encryption::None;
            let keep_open = match word.as_str() {
                "EHLO" => self.hello().await?,
                "STARTTLS" if !self.encrypted && self.shared.settings.encryption == Encryption::StartTls => {
                    if self.step_fault(FakeStep::StartTls, &[]).await? {
                        self.send_line("220 go ahead").await?;
                        return Ok(Some(self.stream));
                    }
                    true
                }
                "AUTH" if tls_satisfied => self.authenticate(&line).await?,
                "MAIL" if !tls_satisfied => self.reply("530 5.7.0 Must issue a STARTTLS command first").await?,
                "MAIL" if !self.authenticated => self.reply("530 5.7.0 Authentication required").await?,
                "MAIL" => self.sender(&line).await?,
                "RCPT" if self.from.is_some() => self.recipient(&line).await?,
                "DATA" if !self.to.is_empty() => self.content().await?,
                "RSET" | "NOOP" => self.reply("250 2.0.0 Ok").await?,
                "QUIT" => {
                    self.send_line("221 2.0.0 Bye").await?;
                    return Ok(None);
                }
                "RCPT" | "DATA" => self.reply("503 5.5.1 Bad sequence of commands").await?,
                _ => self.reply("502 5.5.2 Command not recognized").await?,
            };
            if !keep_open {
                return Ok(None);
            }
        }
    }

    /// Performs the plan's action at a step. Returns false if a faulty reply replaced the regular one; fails if the
    /// connection is to be closed.
    async fn step_fault(&mut self, step: FakeStep, keys: &[&str]) -> io::Result<bool> {
        match self.shared.decide(step, keys).await {
            StepAction::Proceed => Ok(true),
            StepAction::Reply(code) | StepAction::ApplyAndReply(code) => {
                self.send_line(&format!("{code} injected fault")).await.map(|()| false)
            }
            StepAction::Malformed | StepAction::ApplyAndMalformed => {
                self.send_line("not an SMTP reply").await.map(|()| false)
            }
            StepAction::Close(hold) | StepAction::ApplyAndClose(hold) => {
                tokio::time::sleep(hold).await;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    async fn reply(&mut self, line: &str) -> io::Result<bool> {
        self.send_line(line).await.map(|()| true)
    }

    async fn hello(&mut self) -> io::Result<bool> {
        if !self.step_fault(FakeStep::Ehlo, &[]).await? {
            return Ok(true);
        }
        let mut extensions = vec!["simulator", "8BITMIME", "ENHANCEDSTATUSCODES"];
        if !self.encrypted && self.shared.settings.encryption == Encryption::StartTls {
            extensions.push("STARTTLS");
        }
        if self.shared.settings.login.is_some() {
            extensions.push("AUTH PLAIN LOGIN");
        }
        let last = extensions.len() - 1;
        let lines: Vec<String> = extensions
            .iter()
            .enumerate()
            .map(|(index, extension)| format!("250{}{extension}", if index == last { ' ' } else { '-' }))
            .collect();
        self.reply(&lines.join("\r\n")).await
    }

    async fn authenticate(&mut self, line: &str) -> io::Result<bool> {
        if !self.step_fault(FakeStep::Auth, &[]).await? {
            return Ok(true);
        }
        let decoded = |text: &str| BASE64.decode(text.trim().as_bytes()).unwrap_or_default();
        let given = match line.get(5..).map(str::trim) {
            Some(rest) if rest.to_ascii_uppercase().starts_with("PLAIN ") => {
                let parts = decoded(&rest[6..]);
                let mut parts =
                    parts.split(|byte| *byte == 0).skip(1).map(|part| String::from_utf8_lossy(part).into_owned());
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
            }
            Some(rest) if rest.eq_ignore_ascii_case("LOGIN") => {
                self.send_line("334 VXNlcm5hbWU6").await?;
                let user = self.line().await?.unwrap_or_default();
                self.send_line("334 UGFzc3dvcmQ6").await?;
                let password = self.line().await?.unwrap_or_default();
                let text = |line: &str| String::from_utf8_lossy(&decoded(line)).into_owned();
                (text(&user), text(&password))
            }
            _ => return self.reply("504 5.5.4 Unrecognized authentication type").await,
        };
        self.authenticated = self.shared.settings.login.as_ref() == Some(&given);
        match self.authenticated {
            true => self.reply("235 2.7.0 Authentication successful").await,
            false => self.reply("535 5.7.8 Authentication credentials invalid").await,
        }
    }

    async fn sender(&mut self, line: &str) -> io::Result<bool> {
        let from = path_of(line);
        if self.step_fault(FakeStep::Mail, &[&from]).await? {
            (self.from, self.to) = (Some(from), Vec::new());
            self.send_line("250 2.1.0 Ok").await?;
        }
        Ok(true)
    }

    async fn recipient(&mut self, line: &str) -> io::Result<bool> {
        let to = path_of(line);
        if self.step_fault(FakeStep::Rcpt, &[&to]).await? {
            self.to.push(to);
            self.send_line("250 2.1.5 Ok").await?;
        }
        Ok(true)
    }

    async fn content(&mut self) -> io::Result<bool> {
        if !self.step_fault(FakeStep::Data, &[]).await? {
            return Ok(true);
        }
        self.send_line("354 End data with <CR><LF>.<CR><LF>").await?;
        let mut content = Vec::new();
        let mut started = false;
        loop {
            let Some(line) = self.raw_line().await? else { return Ok(false) };
            if !started {
                started = true;
                if !self.step_fault(FakeStep::Content, &[]).await? {
                    return Ok(false);
                }
            }
            if line == b".\r\n" {
                break;
            }
            content.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            if content.len() > self.shared.settings.message_bytes_max {
                return self.reply("552 5.3.4 Message too big").await;
            }
        }
        let (from, to) = (self.from.take().unwrap_or_default(), std::mem::take(&mut self.to));
        let mut message = SmtpMessage::parse(from, to, &content, self.encrypted);
        let id = message.header("Message-ID").unwrap_or_default().to_owned();
        let keys: Vec<&str> = message.to.iter().map(String::as_str).chain([id.as_str()]).collect();
        let action = self.shared.decide(FakeStep::Dot, &keys).await;
        let applies = matches!(
            action,
            StepAction::Proceed
                | StepAction::ApplyAndReply(_)
                | StepAction::ApplyAndMalformed
                | StepAction::ApplyAndClose(_)
        );
        message.acknowledged = action == StepAction::Proceed;
        if applies {
            lock(&self.shared.mailbox).store(message, self.shared.settings.messages_kept_max);
        }
        match action {
            StepAction::Proceed => {
                self.reply(&format!("250 2.0.0 Ok: queued as {}", self.shared.truth().accepted)).await
            }
            StepAction::Reply(code) | StepAction::ApplyAndReply(code) => {
                self.reply(&format!("{code} injected fault")).await
            }
            StepAction::Malformed | StepAction::ApplyAndMalformed => self.reply("not an SMTP reply").await,
            StepAction::Close(hold) | StepAction::ApplyAndClose(hold) => {
                tokio::time::sleep(hold).await;
                Ok(false)
            }
        }
    }

    async fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        self.stream.flush().await
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let line = self.raw_line().await?;
        Ok(line.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    /// Reads a line including CRLF; `None` if the client has disconnected.
    async fn raw_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                return Ok(Some(self.buffer.drain(..end + 2).collect()));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).await? {
                0 => return Ok(None),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// Address between the angle brackets.
fn path_of(line: &str) -> String {
    line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path.to_owned()).unwrap_or_default()
}
