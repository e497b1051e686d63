//! One conversation, word by word.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::mailbox::{Mailbox, SmtpMessage, SmtpTruth};
use super::{Encryption, FakeStep, SmtpSettings};
use crate::faults::{Call, CallKind, Fault, Injector, Moment};
use crate::locked;
use crate::serve::Connections;

pub(super) struct Shared {
    settings: SmtpSettings,
    pub(super) injector: Injector,
    pub(super) certificate: String,
    acceptor: TlsAcceptor,
    books: Mutex<Mailbox>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(settings: SmtpSettings, injector: Injector) -> io::Result<Shared> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key))
            .map_err(io::Error::other)?;
        Ok(Shared {
            settings,
            injector,
            certificate: made.cert.pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            books: Mutex::default(),
        })
    }

    pub(super) fn truth(&self) -> SmtpTruth {
        SmtpTruth { faults: self.injector.counts(), ..locked(&self.books).truth.clone() }
    }

    pub(super) fn messages(&self) -> Vec<SmtpMessage> {
        locked(&self.books).messages.iter().cloned().collect()
    }

    /// What the plan orders at this step.
    async fn decide(&self, step: FakeStep, keys: &[&str]) -> Act {
        let method = step.as_str();
        let decision = self.injector.decide(&Call { kind: CallKind::Write, method, path: method, keys });
        if !decision.latency.is_zero() {
            tokio::time::sleep(decision.latency).await;
        }
        let Some(fault) = decision.fault else { return Act::Go };
        let hold = |ms| Duration::from_millis(ms);
        match fault {
            Fault::Latency(millis) => {
                tokio::time::sleep(hold(millis.max_ms)).await;
                Act::Go
            }
            Fault::Reply { code } => Act::Say(code),
            Fault::TooManyRequests { .. } | Fault::ServerUnavailable => Act::Say(421),
            Fault::RequestLimitExceeded => Act::Say(452),
            Fault::LockRow => Act::Say(450),
            Fault::DuplicateValue => Act::Say(550),
            Fault::InvalidSession => Act::Say(535),
            Fault::ErrorBefore | Fault::Gateway { moment: Moment::BeforeApplying, .. } | Fault::RedirectLoop => {
                Act::Say(451)
            }
            Fault::ErrorAfter | Fault::Gateway { moment: Moment::AfterApplying, .. } => Act::ApplyAndSay(451),
            Fault::GarbageBody { moment: Moment::BeforeApplying } | Fault::StaleRead => Act::Babble,
            Fault::GarbageBody { moment: Moment::AfterApplying } | Fault::HugeBody { .. } => Act::ApplyAndBabble,
            Fault::TimeoutBefore { hold_ms } => Act::HangUp(hold(hold_ms)),
            Fault::TimeoutAfter { hold_ms } => Act::ApplyAndHangUp(hold(hold_ms)),
            Fault::DropBefore => Act::HangUp(Duration::ZERO),
            Fault::DropAfter | Fault::CutResponse | Fault::TrickleBody { .. } => Act::ApplyAndHangUp(Duration::ZERO),
        }
    }
}

/// What becomes of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Go,
    Say(u16),
    Babble,
    HangUp(Duration),
    ApplyAndSay(u16),
    ApplyAndBabble,
    ApplyAndHangUp(Duration),
}

impl Connections for Shared {
    async fn converse(self: Arc<Self>, stream: TcpStream) {
        locked(&self.books).truth.connections += 1;
        // Whoever is at the other end sees for itself how it ended.
        let _ = self.serve(stream).await;
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        match self.settings.encryption {
            Encryption::None => Talk::new(self, stream, false).greet_and_run().await.map(drop),
            Encryption::Tls => {
                let stream = self.acceptor.accept(stream).await?;
                Talk::new(self, stream, true).greet_and_run().await.map(drop)
            }
            Encryption::StartTls => {
                let Some(stream) = Talk::new(self, stream, false).greet_and_run().await? else { return Ok(()) };
                let stream = self.acceptor.accept(stream).await?;
                Talk::new(self, stream, true).run().await.map(drop)
            }
        }
    }
}

struct Talk<'a, S> {
    shared: &'a Shared,
    stream: S,
    buffer: Vec<u8>,
    encrypted: bool,
    known: bool,
    from: Option<String>,
    to: Vec<String>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Talk<'a, S> {
    fn new(shared: &'a Shared, stream: S, encrypted: bool) -> Talk<'a, S> {
        let known = shared.settings.login.is_none();
        Talk { shared, stream, buffer: Vec::new(), encrypted, known, from: None, to: Vec::new() }
    }

    async fn greet_and_run(mut self) -> io::Result<Option<S>> {
        match self.ordered(FakeStep::Connect, &[]).await? {
            true => self.say("220 simulator ESMTP").await?,
            false => return Ok(None),
        }
        self.run().await
    }

    /// Speaks until the other end goes, or, with the stream, until it wants TLS.
    async fn run(mut self) -> io::Result<Option<S>> {
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let private = self.encrypted || self.shared.settings.encryption == Encryption::None;
            let go = match word.as_str() {
                "EHLO" => self.hello().await?,
                "STARTTLS" if !self.encrypted && self.shared.settings.encryption == Encryption::StartTls => {
                    if self.ordered(FakeStep::StartTls, &[]).await? {
                        self.say("220 go ahead").await?;
                        return Ok(Some(self.stream));
                    }
                    true
                }
                "AUTH" if private => self.log_in(&line).await?,
                "MAIL" if !private => self.answer("530 5.7.0 Must issue a STARTTLS command first").await?,
                "MAIL" if !self.known => self.answer("530 5.7.0 Authentication required").await?,
                "MAIL" => self.sender(&line).await?,
                "RCPT" if self.from.is_some() => self.recipient(&line).await?,
                "DATA" if !self.to.is_empty() => self.content().await?,
                "RSET" | "NOOP" => self.answer("250 2.0.0 Ok").await?,
                "QUIT" => {
                    self.say("221 2.0.0 Bye").await?;
                    return Ok(None);
                }
                "RCPT" | "DATA" => self.answer("503 5.5.1 Bad sequence of commands").await?,
                _ => self.answer("502 5.5.2 Command not recognized").await?,
            };
            if !go {
                return Ok(None);
            }
        }
    }

    /// Carries out what the plan orders at a step. `false`: the honest answer is not due any more. When the connection is
    /// to end, that is an error.
    async fn ordered(&mut self, step: FakeStep, keys: &[&str]) -> io::Result<bool> {
        match self.shared.decide(step, keys).await {
            Act::Go => Ok(true),
            Act::Say(code) | Act::ApplyAndSay(code) => self.say(&format!("{code} on order")).await.map(|()| false),
            Act::Babble | Act::ApplyAndBabble => self.say("what do you mean?").await.map(|()| false),
            Act::HangUp(hold) | Act::ApplyAndHangUp(hold) => {
                tokio::time::sleep(hold).await;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    async fn answer(&mut self, line: &str) -> io::Result<bool> {
        self.say(line).await.map(|()| true)
    }

    async fn hello(&mut self) -> io::Result<bool> {
        if !self.ordered(FakeStep::Ehlo, &[]).await? {
            return Ok(true);
        }
        let mut offers = vec!["simulator", "8BITMIME", "ENHANCEDSTATUSCODES"];
        if !self.encrypted && self.shared.settings.encryption == Encryption::StartTls {
            offers.push("STARTTLS");
        }
        if self.shared.settings.login.is_some() {
            offers.push("AUTH PLAIN LOGIN");
        }
        let last = offers.len() - 1;
        let lines: Vec<String> = offers
            .iter()
            .enumerate()
            .map(|(at, offer)| format!("250{}{offer}", if at == last { ' ' } else { '-' }))
            .collect();
        self.answer(&lines.join("\r\n")).await
    }

    async fn log_in(&mut self, line: &str) -> io::Result<bool> {
        if !self.ordered(FakeStep::Auth, &[]).await? {
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
                self.say("334 VXNlcm5hbWU6").await?;
                let user = self.line().await?.unwrap_or_default();
                self.say("334 UGFzc3dvcmQ6").await?;
                let password = self.line().await?.unwrap_or_default();
                let text = |line: &str| String::from_utf8_lossy(&decoded(line)).into_owned();
                (text(&user), text(&password))
            }
            _ => return self.answer("504 5.5.4 Unrecognized authentication type").await,
        };
        self.known = self.shared.settings.login.as_ref() == Some(&given);
        match self.known {
            true => self.answer("235 2.7.0 Authentication successful").await,
            false => self.answer("535 5.7.8 Authentication credentials invalid").await,
        }
    }

    async fn sender(&mut self, line: &str) -> io::Result<bool> {
        let from = path_of(line);
        if self.ordered(FakeStep::Mail, &[&from]).await? {
            (self.from, self.to) = (Some(from), Vec::new());
            self.say("250 2.1.0 Ok").await?;
        }
        Ok(true)
    }

    async fn recipient(&mut self, line: &str) -> io::Result<bool> {
        let to = path_of(line);
        if self.ordered(FakeStep::Rcpt, &[&to]).await? {
            self.to.push(to);
            self.say("250 2.1.5 Ok").await?;
        }
        Ok(true)
    }

    async fn content(&mut self) -> io::Result<bool> {
        if !self.ordered(FakeStep::Data, &[]).await? {
            return Ok(true);
        }
        self.say("354 End data with <CR><LF>.<CR><LF>").await?;
        let mut content = Vec::new();
        let mut begun = false;
        loop {
            let Some(line) = self.raw_line().await? else { return Ok(false) };
            if !begun {
                begun = true;
                if !self.ordered(FakeStep::Content, &[]).await? {
                    return Ok(false);
                }
            }
            if line == b".\r\n" {
                break;
            }
            content.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            if content.len() > self.shared.settings.message_bytes_max {
                return self.answer("552 5.3.4 Message too big").await;
            }
        }
        let (from, to) = (self.from.take().unwrap_or_default(), std::mem::take(&mut self.to));
        let mut message = SmtpMessage::parse(from, to, &content, self.encrypted);
        let id = message.header("Message-ID").unwrap_or_default().to_owned();
        let keys: Vec<&str> = message.to.iter().map(String::as_str).chain([id.as_str()]).collect();
        let act = self.shared.decide(FakeStep::Dot, &keys).await;
        let applies = matches!(act, Act::Go | Act::ApplyAndSay(_) | Act::ApplyAndBabble | Act::ApplyAndHangUp(_));
        message.told = act == Act::Go;
        if applies {
            locked(&self.shared.books).take(message, self.shared.settings.messages_kept_max);
        }
        match act {
            Act::Go => self.answer(&format!("250 2.0.0 Ok: queued as {}", self.shared.truth().taken)).await,
            Act::Say(code) | Act::ApplyAndSay(code) => self.answer(&format!("{code} on order")).await,
            Act::Babble | Act::ApplyAndBabble => self.answer("what do you mean?").await,
            Act::HangUp(hold) | Act::ApplyAndHangUp(hold) => {
                tokio::time::sleep(hold).await;
                Ok(false)
            }
        }
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        self.stream.flush().await
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let line = self.raw_line().await?;
        Ok(line.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    /// A line with its end; `None` when the other end has gone.
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

/// What stands between the angle brackets.
fn path_of(line: &str) -> String {
    line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path.to_owned()).unwrap_or_default()
}
