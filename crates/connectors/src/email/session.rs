//! The conversation with a mail server. Written out here rather than left to a library because what an error means
//! depends on whether the final dot had left.

use std::io;

use data_encoding::BASE64;
use sluice_domain::destination::SmtpLogin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::request::{Mail, stuffed};
use super::response::{SmtpPhase, SmtpReply};
use super::{Security, Target};

/// How much of a reply is read.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Why a conversation did not come to its end.
#[derive(Debug)]
pub(crate) enum SmtpError {
    /// The server said no, or something that does not belong here.
    Reply(SmtpReply),
    /// The server does not offer what is needed.
    Unable(&'static str),
    /// What came was no reply.
    Garbled,
    Io(io::Error),
}

impl From<io::Error> for SmtpError {
    fn from(error: io::Error) -> SmtpError {
        SmtpError::Io(error)
    }
}

/// Sends the mail. `phase` tells how far it has come, also when this future is dropped.
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
            let offers = session.hello(target, phase).await?;
            if !offers.iter().any(|offer| offer == "STARTTLS") {
                *phase = SmtpPhase::StartTls;
                return Err(SmtpError::Unable("it does not offer STARTTLS"));
            }
            session.say("STARTTLS").await?;
            session.expect(phase, SmtpPhase::StartTls, 220).await?;
            // What was said in the clear after this was not said by the server.
            if !session.buffer.is_empty() {
                return Err(SmtpError::Unable("it went on talking in the clear after STARTTLS"));
            }
            let mut session = Session::new(tls.connect(&target.host, session.stream).await?);
            session.deliver(target, mail, phase).await
        }
    }
}

/// The first reply in these bytes.
pub(crate) async fn first_reply(bytes: &[u8]) -> Option<SmtpReply> {
    let mut session = Session::new(tokio::io::join(bytes, tokio::io::sink()));
    session.reply(&mut SmtpPhase::Greeting, SmtpPhase::Hello).await.ok()
}

struct Session<S> {
    stream: S,
    /// Read and not yet used.
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(stream: S) -> Session<S> {
        Session { stream, buffer: Vec::new() }
    }

    /// Everything from EHLO to the reply to the final dot.
    async fn deliver(&mut self, target: &Target, mail: &Mail, phase: &mut SmtpPhase) -> Result<SmtpReply, SmtpError> {
        let offers = self.hello(target, phase).await?;
        if let Some(login) = &target.login {
            self.log_in(login, &offers, phase).await?;
        }
        self.say(&format!("MAIL FROM:<{}>", mail.from)).await?;
        self.expect(phase, SmtpPhase::Sender, 250).await?;
        for recipient in &mail.recipients {
            self.say(&format!("RCPT TO:<{recipient}>")).await?;
            let reply = self.reply(phase, SmtpPhase::Recipient).await?;
            // 251 forwards, 252 tries; both take it.
            if !(250..=252).contains(&reply.code) {
                return Err(SmtpError::Reply(reply));
            }
        }
        self.say("DATA").await?;
        self.expect(phase, SmtpPhase::Data, 354).await?;
        *phase = SmtpPhase::Content;
        self.stream.write_all(&stuffed(&mail.content)).await?;
        self.stream.flush().await?;
        *phase = SmtpPhase::Dot;
        self.stream.write_all(b".\r\n").await?;
        self.stream.flush().await?;
        let reply = self.expect(phase, SmtpPhase::Dot, 250).await?;
        // The mail is the server's; whether it hears our goodbye changes nothing.
        let _ = self.say("QUIT").await;
        Ok(reply)
    }

    /// The names of what the server offers, in capitals; `AUTH` is followed by its ways.
    async fn hello(&mut self, target: &Target, phase: &mut SmtpPhase) -> Result<Vec<String>, SmtpError> {
        self.say(&format!("EHLO {}", target.hello)).await?;
        let reply = self.expect(phase, SmtpPhase::Hello, 250).await?;
        Ok(reply.text.lines().skip(1).map(|line| line.trim().to_ascii_uppercase()).collect())
    }

    async fn log_in(&mut self, login: &SmtpLogin, offers: &[String], phase: &mut SmtpPhase) -> Result<(), SmtpError> {
        *phase = SmtpPhase::Auth;
        let ways: Vec<&str> = offers
            .iter()
            .filter_map(|offer| offer.strip_prefix("AUTH"))
            .flat_map(|ways| ways.split([' ', '=']))
            .collect();
        let (user, password) = (login.user.as_str(), login.password.expose());
        if ways.contains(&"PLAIN") {
            let secret = BASE64.encode(format!("\0{user}\0{password}").as_bytes());
            self.say(&format!("AUTH PLAIN {secret}")).await?;
        } else if ways.contains(&"LOGIN") {
            self.say("AUTH LOGIN").await?;
            self.expect(phase, SmtpPhase::Auth, 334).await?;
            self.say(&BASE64.encode(user.as_bytes())).await?;
            self.expect(phase, SmtpPhase::Auth, 334).await?;
            self.say(&BASE64.encode(password.as_bytes())).await?;
        } else {
            return Err(SmtpError::Unable("it offers no way to log in that is known here (PLAIN, LOGIN)"));
        }
        self.expect(phase, SmtpPhase::Auth, 235).await.map(drop)
    }

    async fn say(&mut self, line: &str) -> Result<(), SmtpError> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await?;
        Ok(self.stream.flush().await?)
    }

    async fn expect(&mut self, phase: &mut SmtpPhase, next: SmtpPhase, code: u16) -> Result<SmtpReply, SmtpError> {
        let reply = self.reply(phase, next).await?;
        if reply.code == code { Ok(reply) } else { Err(SmtpError::Reply(reply)) }
    }

    /// A whole reply, with all its lines.
    async fn reply(&mut self, phase: &mut SmtpPhase, next: SmtpPhase) -> Result<SmtpReply, SmtpError> {
        *phase = next;
        let mut text = String::new();
        let mut read = 0;
        loop {
            let line = self.line().await?;
            read += line.len();
            let code = line.get(..3).and_then(|code| code.parse().ok()).filter(|code| (200..600).contains(code));
            let (Some(code), last) = (code, line.as_bytes().get(3)) else { return Err(SmtpError::Garbled) };
            if read > REPLY_BYTES_MAX || !matches!(last, None | Some(b' ' | b'-')) {
                return Err(SmtpError::Garbled);
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

    async fn line(&mut self) -> Result<String, SmtpError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() > REPLY_BYTES_MAX {
                return Err(SmtpError::Garbled);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}
