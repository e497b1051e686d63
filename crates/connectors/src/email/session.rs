//! SMTP client session. Not a library's: the meaning of an error depends on whether the final dot was sent.

use std::io;

use data_encoding::BASE64;
use sluice_domain::destination::SmtpLogin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::request::{Mail, dot_stuffed};
use super::response::{SmtpPhase, SmtpReply};
use super::{Security, Target};

/// Largest reply that is read.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// The session ended without an accepted mail.
#[derive(Debug)]
pub(crate) enum SmtpError {
    /// Error reply or unexpected reply.
    Reply(SmtpReply),
    /// The server lacks a required extension.
    Unsupported(&'static str),
    /// The received bytes are not an SMTP reply.
    Malformed,
    Io(io::Error),
}

impl From<io::Error> for SmtpError {
    fn from(error: io::Error) -> SmtpError {
        SmtpError::Io(error)
    }
}

/// Sends the mail. `phase` holds the progress, also if the future is dropped.
pub(crate) async fn send(target: &Target, mail: &Mail, phase: &mut SmtpPhase) -> Result<SmtpReply, SmtpError> {
    *phase = SmtpPhase::Connect;
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    stream.set_nodelay(true)?;
    match &target.security {
        Security::None => {
            let mut session = Session::new(stream);
            session.expect(phase, SmtpPhase::Greeting, 220).await?;
            session.deliver(target, mail, phase).await
        }
        Security::Tls(tls) => {
            let mut session = Session::new(tls.connect(&target.host, stream).await?);
            session.expect(phase, SmtpPhase::Greeting, 220).await?;
            session.deliver(target, mail, phase).await
        }
        Security::StartTls(tls) => {
            let mut session = Session::new(stream);
            session.expect(phase, SmtpPhase::Greeting, 220).await?;
            let extensions = session.hello(target, phase).await?;
            if !extensions.iter().any(|extension| extension == "STARTTLS") {
                *phase = SmtpPhase::StartTls;
                return Err(SmtpError::Unsupported("it does not offer STARTTLS"));
            }
            session.send_line("STARTTLS").await?;
            session.expect(phase, SmtpPhase::StartTls, 220).await?;
            // Plaintext after the reply to STARTTLS is injected by an attacker, not sent by the server.
            if !session.buffer.is_empty() {
                return Err(SmtpError::Unsupported("it sent plaintext after STARTTLS"));
            }
            let mut session = Session::new(tls.connect(&target.host, session.stream).await?);
            session.deliver(target, mail, phase).await
        }
    }
}

/// Parses the first reply in `bytes`.
pub(crate) async fn first_reply(bytes: &[u8]) -> Option<SmtpReply> {
    let mut session = Session::new(tokio::io::join(bytes, tokio::io::sink()));
    session.reply(&mut SmtpPhase::Greeting, SmtpPhase::Hello).await.ok()
}

struct Session<S> {
    stream: S,
    /// Received but not yet parsed.
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(stream: S) -> Session<S> {
        Session { stream, buffer: Vec::new() }
    }

    /// Session from EHLO to the reply to the final dot.
    async fn deliver(&mut self, target: &Target, mail: &Mail, phase: &mut SmtpPhase) -> Result<SmtpReply, SmtpError> {
        let extensions = self.hello(target, phase).await?;
        if let Some(login) = &target.login {
            self.authenticate(login, &extensions, phase).await?;
        }
        self.send_line(&format!("MAIL FROM:<{}>", mail.from)).await?;
        self.expect(phase, SmtpPhase::Sender, 250).await?;
        for recipient in &mail.recipients {
            self.send_line(&format!("RCPT TO:<{recipient}>")).await?;
            let reply = self.reply(phase, SmtpPhase::Recipient).await?;
            // 251 and 252 also accept the recipient.
            if !(250..=252).contains(&reply.code) {
                return Err(SmtpError::Reply(reply));
            }
        }
        self.send_line("DATA").await?;
        self.expect(phase, SmtpPhase::Data, 354).await?;
        *phase = SmtpPhase::Content;
        self.stream.write_all(&dot_stuffed(&mail.content)).await?;
        self.stream.flush().await?;
        *phase = SmtpPhase::Dot;
        self.stream.write_all(b".\r\n").await?;
        self.stream.flush().await?;
        let reply = self.expect(phase, SmtpPhase::Dot, 250).await?;
        // The mail is accepted; a failed QUIT changes nothing.
        let _ = self.send_line("QUIT").await;
        Ok(reply)
    }

    /// Extensions of the server in upper case; `AUTH` is followed by its mechanisms.
    async fn hello(&mut self, target: &Target, phase: &mut SmtpPhase) -> Result<Vec<String>, SmtpError> {
        self.send_line(&format!("EHLO {}", target.hello)).await?;
        let reply = self.expect(phase, SmtpPhase::Hello, 250).await?;
        Ok(reply.text.lines().skip(1).map(|line| line.trim().to_ascii_uppercase()).collect())
    }

    async fn authenticate(
        &mut self,
        login: &SmtpLogin,
        extensions: &[String],
        phase: &mut SmtpPhase,
    ) -> Result<(), SmtpError> {
        *phase = SmtpPhase::Auth;
        let mechanisms: Vec<&str> = extensions
            .iter()
            .filter_map(|extension| extension.strip_prefix("AUTH"))
            .flat_map(|mechanisms| mechanisms.split([' ', '=']))
            .collect();
        let (user, password) = (login.user.as_str(), login.password.expose());
        if mechanisms.contains(&"PLAIN") {
            let secret = BASE64.encode(format!("\0{user}\0{password}").as_bytes());
            self.send_line(&format!("AUTH PLAIN {secret}")).await?;
        } else if mechanisms.contains(&"LOGIN") {
            self.send_line("AUTH LOGIN").await?;
            self.expect(phase, SmtpPhase::Auth, 334).await?;
            self.send_line(&BASE64.encode(user.as_bytes())).await?;
            self.expect(phase, SmtpPhase::Auth, 334).await?;
            self.send_line(&BASE64.encode(password.as_bytes())).await?;
        } else {
            return Err(SmtpError::Unsupported("it offers neither AUTH PLAIN nor AUTH LOGIN"));
        }
        self.expect(phase, SmtpPhase::Auth, 235).await.map(drop)
    }

    async fn send_line(&mut self, line: &str) -> Result<(), SmtpError> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        Ok(self.stream.flush().await?)
    }

    async fn expect(&mut self, phase: &mut SmtpPhase, next: SmtpPhase, code: u16) -> Result<SmtpReply, SmtpError> {
        let reply = self.reply(phase, next).await?;
        if reply.code == code { Ok(reply) } else { Err(SmtpError::Reply(reply)) }
    }

    /// Reads one reply with all its lines.
    async fn reply(&mut self, phase: &mut SmtpPhase, next: SmtpPhase) -> Result<SmtpReply, SmtpError> {
        *phase = next;
        let mut text = String::new();
        let mut read = 0;
        loop {
            let line = self.read_line().await?;
            read += line.len();
            let code = line.get(..3).and_then(|code| code.parse().ok()).filter(|code| (200..600).contains(code));
            let (Some(code), last) = (code, line.as_bytes().get(3)) else { return Err(SmtpError::Malformed) };
            if read > REPLY_BYTES_MAX || !matches!(last, None | Some(b' ' | b'-')) {
                return Err(SmtpError::Malformed);
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line.get(4..).unwrap_or_default());
            if last != Some(&b'-') {
                return Ok(SmtpReply { code, text });
            }
        }
    }

    async fn read_line(&mut self) -> Result<String, SmtpError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() > REPLY_BYTES_MAX {
                return Err(SmtpError::Malformed);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}
