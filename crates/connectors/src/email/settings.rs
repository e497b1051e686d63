//! Parameters of an `email.send` step.

use std::borrow::Cow;

use lettre::message::Mailbox;
use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

use crate::parameter::{kind, map, problem, required, scalar, text, value};

/// Maximum recipients of one mail. Servers accept at least 100 (RFC 5321).
const ADDRESSES_MAX: usize = 100;

/// Parsed `with:`.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) to: Vec<Mailbox>,
    pub(crate) cc: Vec<Mailbox>,
    pub(crate) bcc: Vec<Mailbox>,
    pub(crate) reply_to: Vec<Mailbox>,
    pub(crate) from: Option<Mailbox>,
    pub(crate) subject: Cow<'a, str>,
    pub(crate) text: Option<Cow<'a, str>>,
    pub(crate) html: Option<Cow<'a, str>>,
    pub(crate) headers: Option<&'a Map<String, Value>>,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let to = addresses(with, "to")?;
        if to.is_empty() {
            return Err(Failure::new(
                FailureClass::Identity,
                "no-identity",
                "`with.to` is empty: the event has no recipient address.",
            ));
        }
        let from = text(with, "from")?.map(|text| address("from", &text)).transpose()?;
        let (text, html) = (text(with, "text")?, text(with, "html")?);
        if text.is_none() && html.is_none() {
            return Err(problem("text", "and `with.html` are missing; set at least one"));
        }
        let settings = Settings {
            to,
            cc: addresses(with, "cc")?,
            bcc: addresses(with, "bcc")?,
            reply_to: addresses(with, "reply_to")?,
            from,
            subject: required(with, "subject")?,
            text,
            html,
            headers: map(with, "headers")?,
        };
        if settings.recipients().count() > ADDRESSES_MAX {
            return Err(problem(
                "to",
                format_args!("has, together with cc and bcc, more than {ADDRESSES_MAX} addresses"),
            ));
        }
        Ok(settings)
    }

    /// To, cc and bcc.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = &Mailbox> {
        self.to.iter().chain(&self.cc).chain(&self.bcc)
    }
}

/// One address, or a list of them. A text is one address: a comma in a value of the event must not add recipients.
fn addresses(with: &Value, name: &str) -> Result<Vec<Mailbox>, Failure> {
    let Some(given) = value(with, name) else { return Ok(Vec::new()) };
    let items = given.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(given));
    let mut mailboxes = Vec::with_capacity(items.len());
    for item in items.iter().filter(|item| !item.is_null()) {
        let text = scalar(item).ok_or_else(|| {
            problem(name, format_args!("must be an address or a list of them; it holds {}", kind(item)))
        })?;
        if !text.trim().is_empty() {
            mailboxes.push(address(name, &text)?);
        }
    }
    Ok(mailboxes)
}

/// Parses one address. The failure does not quote it: it is personal data.
pub(crate) fn address(name: &str, text: &str) -> Result<Mailbox, Failure> {
    let invalid = || problem(name, "has an invalid address; write one like ada@example.com, and several as a list");
    let mailbox: Mailbox = text.trim().parse().map_err(|_| invalid())?;
    // The parser takes a folded line as a space.
    if text.contains(|c: char| c.is_control()) {
        return Err(invalid());
    }
    let ascii = mailbox.email.to_string();
    // Servers without SMTPUTF8 would change or reject it.
    if !ascii.is_ascii() || ascii.contains(|c: char| c.is_control() || c == ' ') {
        return Err(problem(name, "has an address with non-ASCII characters; write its domain in Punycode"));
    }
    Ok(mailbox)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_parse_from_text_and_lists() {
        let read = |to: Value| -> Vec<String> {
            addresses(&json!({"to": to}), "to").unwrap().iter().map(|mailbox| mailbox.email.to_string()).collect()
        };
        assert_eq!(read(json!("a@b.example")), ["a@b.example"]);
        assert_eq!(read(json!("\"Love, Ada\" <a@b.example>")), ["a@b.example"]);
        assert_eq!(read(json!(["a@b.example", null, "Ada <c@d.example>"])), ["a@b.example", "c@d.example"]);
        assert!(read(json!(null)).is_empty());
    }

    #[test]
    fn comma_or_line_break_in_an_address_adds_no_recipient() {
        for to in [
            json!("a@b.example, evil@c.example"),
            json!("a@b.example,evil@c.example"),
            json!("a@b.example;evil@c.example"),
            json!("a@b.example\nevil@c.example"),
            json!("a@b.example\r\nBcc: evil@c.example"),
            json!("<a@b.example>, <evil@c.example>"),
            json!("a@b.example evil@c.example"),
            json!(["a@b.example, evil@c.example"]),
            json!([["a@b.example", "evil@c.example"]]),
        ] {
            for name in ["to", "cc", "bcc", "reply_to"] {
                assert!(addresses(&json!({ name: to }), name).is_err(), "{name}: {to}");
            }
        }
    }

    #[test]
    fn problems_name_the_parameter_and_quote_no_address() {
        let good = json!({"to": "a@b.example", "subject": "s", "text": "t"});
        let with = |name: &str, value: Value| {
            let mut with = good.clone();
            with[name] = value;
            with
        };
        for (with, expected) in [
            (with("to", json!("nobody")), "`with.to` has an invalid address"),
            (with("to", json!("a@b.example\r\nBcc: c@d.example")), "`with.to` has"),
            (with("to", json!("ä@b.example")), "`with.to` has"),
            (with("cc", json!([{}])), "`with.cc` must be an address"),
            (with("from", json!("me")), "`with.from` has"),
            (with("subject", json!("")), "`with.subject` is empty"),
            (with("text", json!(null)), "`with.text` and `with.html` are missing"),
            (with("headers", json!("x")), "`with.headers` must be a map"),
            (with("bcc", json!(vec!["a@b.example"; 100])), "`with.to` has, together with cc and bcc"),
        ] {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
        assert_eq!(Settings::read(&with("to", json!(""))).unwrap_err().class, FailureClass::Identity);
    }
}
