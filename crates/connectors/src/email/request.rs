//! Builds the mail from the step's settings. Pure.

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart, SinglePart};
use serde_json::Value;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;

use super::settings::Settings;
use crate::parameter::{kind, problem, scalar};

/// Headers that other parameters set, or that define the encoding of the mail.
const RESERVED_HEADERS: [&str; 12] = [
    "bcc",
    "cc",
    "content-transfer-encoding",
    "content-type",
    "date",
    "from",
    "message-id",
    "mime-version",
    "reply-to",
    "sender",
    "subject",
    "to",
];

/// Encoded mail with its SMTP envelope.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) from: String,
    pub(crate) recipients: Vec<String>,
    /// With angle brackets.
    pub(crate) message_id: String,
    /// Headers and body with CRLF line ends; not yet dot-stuffed.
    pub(crate) content: Vec<u8>,
}

/// Builds the mail. Every attempt yields the same mail except for its date.
pub(crate) fn build(settings: &Settings<'_>, from: &Mailbox, effect_key: &str, now: Time) -> Result<Mail, Failure> {
    let from = settings.from.as_ref().unwrap_or(from);
    let message_id = message_id(effect_key, from.email.domain());
    let date = std::time::UNIX_EPOCH + std::time::Duration::from_millis(u64::try_from(now.0).unwrap_or_default());
    let subject = line("subject", &settings.subject)?;
    let mut builder =
        Message::builder().from(from.clone()).message_id(Some(message_id.clone())).date(date).subject(subject);
    for mailbox in &settings.to {
        builder = builder.to(mailbox.clone());
    }
    for mailbox in &settings.cc {
        builder = builder.cc(mailbox.clone());
    }
    for mailbox in &settings.reply_to {
        builder = builder.reply_to(mailbox.clone());
    }
    for (name, value) in settings.headers.into_iter().flatten() {
        if let Some(header) = header(name, value)? {
            builder = builder.raw_header(header);
        }
    }
    let built = match (&settings.text, &settings.html) {
        (Some(text), Some(html)) => builder.multipart(
            MultiPart::alternative()
                .boundary(format!("sluice-{}", safe(effect_key)))
                .singlepart(SinglePart::plain(with_crlf(text)))
                .singlepart(SinglePart::html(with_crlf(html))),
        ),
        (Some(text), None) => builder.singlepart(SinglePart::plain(with_crlf(text))),
        (None, html) => builder.singlepart(SinglePart::html(with_crlf(html.as_deref().unwrap_or_default()))),
    };
    let message = built.map_err(|error| {
        Failure::new(FailureClass::Mapping, "invalid-mail", format!("Cannot build the mail: {error}."))
    })?;
    let mut recipients: Vec<String> = settings.recipients().map(|mailbox| mailbox.email.to_string()).collect();
    let mut seen = std::collections::HashSet::new();
    recipients.retain(|recipient| seen.insert(recipient.to_ascii_lowercase()));
    Ok(Mail { from: from.email.to_string(), recipients, message_id, content: message.formatted() })
}

/// Converts line ends to CRLF. `lettre` does so too, but in quadratic time: it shifts the rest of the text per line.
fn with_crlf(text: &str) -> String {
    let mut converted = String::with_capacity(text.len() + text.len() / 32);
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            converted.push_str("\r\n");
        }
        converted.push_str(line.strip_suffix('\r').unwrap_or(line));
    }
    converted
}

/// The same in every attempt of an effect; uses the sender's domain.
pub(crate) fn message_id(effect_key: &str, domain: &str) -> String {
    format!("<{}@{domain}>", safe(effect_key))
}

/// Replaces characters that could end the header.
fn safe(effect_key: &str) -> String {
    effect_key.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' }).collect()
}

fn header(name: &str, value: &Value) -> Result<Option<HeaderValue>, Failure> {
    let parameter = format!("headers.{name}");
    if value.is_null() {
        return Ok(None);
    }
    if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(problem(&parameter, "is set from other parameters and cannot be set here"));
    }
    let plain = name.chars().all(|c| c.is_ascii_graphic() && c != ':');
    let header_name = HeaderName::new_from_ascii(name.to_owned()).ok().filter(|_| plain && !name.is_empty());
    let header_name = header_name.ok_or_else(|| problem(&parameter, "is not a valid header name"))?;
    let text = scalar(value).ok_or_else(|| problem(&parameter, format_args!("must be text; it is {}", kind(value))))?;
    Ok(Some(HeaderValue::new(header_name, line(&parameter, &text)?)))
}

/// Header text without control characters: a line break would start another header.
fn line(parameter: &str, text: &str) -> Result<String, Failure> {
    if text.contains(|c: char| c.is_control()) {
        return Err(problem(parameter, "has a line break or another control character"));
    }
    Ok(text.to_owned())
}

/// Dot-stuffed content without the final dot: lines end with CRLF, a leading dot is doubled. A bare CR or LF becomes
/// CRLF: some servers treat it as a line end, which would allow SMTP smuggling.
pub(crate) fn dot_stuffed(content: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(content.len() + content.len() / 40 + 2);
    let mut start_of_line = true;
    let mut bytes = content.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if byte == b'\r' {
                    bytes.next_if_eq(&b'\n');
                }
                wire.extend_from_slice(b"\r\n");
                start_of_line = true;
            }
            byte => {
                if start_of_line && byte == b'.' {
                    wire.push(b'.');
                }
                wire.push(byte);
                start_of_line = false;
            }
        }
    }
    if !start_of_line {
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mail(with: Value) -> Result<Mail, Failure> {
        let from: Mailbox = "Shop <shop@example.com>".parse().unwrap();
        build(&Settings::read(&with).unwrap(), &from, "eff_01", Time::parse("2026-11-15T12:00:00Z").unwrap())
    }

    #[test]
    fn mail_contains_exactly_its_parameters() {
        let mail = mail(json!({
            "to": "Ada <ada@example.com>", "cc": "c@example.com", "bcc": ["d@example.com", "Ada@example.com"],
            "reply_to": "help@example.com", "subject": "Grüße", "text": "Hello\n.\nbye", "html": "<p>Hello</p>",
            "headers": {"List-Unsubscribe": "<https://example.com/u>", "X-None": null},
        }))
        .unwrap();
        assert_eq!(mail.recipients, ["ada@example.com", "c@example.com", "d@example.com"]);
        assert_eq!((mail.from.as_str(), mail.message_id.as_str()), ("shop@example.com", "<eff_01@example.com>"));
        assert_eq!(
            String::from_utf8(mail.content).unwrap(),
            "From: Shop <shop@example.com>\r\n\
             Message-ID: <eff_01@example.com>\r\n\
             Date: Sun, 15 Nov 2026 12:00:00 +0000\r\n\
             Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n\
             To: Ada <ada@example.com>\r\n\
             Cc: c@example.com\r\n\
             Reply-To: help@example.com\r\n\
             List-Unsubscribe: <https://example.com/u>\r\n\
             MIME-Version: 1.0\r\n\
             Content-Type: multipart/alternative; boundary=\"sluice-eff_01\"\r\n\
             \r\n\
             --sluice-eff_01\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: 7bit\r\n\
             \r\n\
             Hello\r\n.\r\nbye\r\n\
             --sluice-eff_01\r\n\
             Content-Type: text/html; charset=utf-8\r\n\
             Content-Transfer-Encoding: 7bit\r\n\
             \r\n\
             <p>Hello</p>\r\n\
             --sluice-eff_01--\r\n"
        );
    }

    #[test]
    fn event_values_cannot_inject_headers() {
        let with = |name: &str, value: Value| {
            let mut with = json!({"to": "a@example.com", "subject": "s", "text": "t"});
            with[name] = value;
            with
        };
        for (with, expected) in [
            (with("subject", json!("a\r\nBcc: b@example.com")), "`with.subject` has a line break"),
            (with("headers", json!({"X-A": "a\nBcc: b@example.com"})), "`with.headers.X-A` has a line break"),
            (with("headers", json!({"X-A: b\r\nBcc": "x"})), "is not a valid header name"),
            (with("headers", json!({"Message-Id": "x"})), "`with.headers.Message-Id` is set from other parameters"),
            (with("headers", json!({"X-A": ["x"]})), "`with.headers.X-A` must be text"),
        ] {
            let failure = mail(with).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
        assert_eq!(message_id("a>\r\nb", "example.com"), "<a---b@example.com>");
    }

    #[test]
    fn leading_dots_are_doubled_and_line_ends_are_crlf() {
        for (content, expected) in [
            (&b"a\r\n.\r\nb"[..], &b"a\r\n..\r\nb\r\n"[..]),
            (b".", b"..\r\n"),
            (b"a\n.\nb\r.\r", b"a\r\n..\r\nb\r\n..\r\n"),
            (b"", b""),
        ] {
            assert_eq!(dot_stuffed(content), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_content_never_contains_the_end_of_data(content in proptest::collection::vec(proptest::sample::select(b"a.\r\n".to_vec()), 0..60)) {
            let wire = dot_stuffed(&content);
            proptest::prop_assert!(!wire.windows(5).any(|window| window == b"\r\n.\r\n") && !wire.starts_with(b".\r\n"));
            proptest::prop_assert!(wire.is_empty() || wire.ends_with(b"\r\n"));
        }
    }
}
