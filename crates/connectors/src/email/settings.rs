//! What a step of `email.send` asks for, typed.

use std::borrow::Cow;

use lettre::message::Mailbox;
use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};

use crate::parameter::{kind, map, problem, required, scalar, text, value};

/// How many addresses one mail may have. Servers take a hundred and more.
const ADDRESSES_MAX: usize = 100;

/// A rendered `with:`, read. Borrows from it.
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
    /// Reads a rendered `with:`.
    pub(crate) fn read(with: &'a Value) -> Result<Settings<'a>, Failure> {
        let to = addresses(with, "to")?;
        if to.is_empty() {
            return Err(Failure::new(
                FailureClass::Identity,
                "no-identity",
                "`with.to` is empty: the event does not say whom to write to.",
            ));
        }
        let from = text(with, "from")?.map(|text| address("from", &text)).transpose()?;
        let (text, html) = (text(with, "text")?, text(with, "html")?);
        if text.is_none() && html.is_none() {
            return Err(problem("text", "is missing, and so is `with.html`"));
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
            return Err(problem("to", format_args!("and its companions have more than {ADDRESSES_MAX} addresses")));
        }
        Ok(settings)
    }

    /// Everybody who gets it.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = &Mailbox> {
        self.to.iter().chain(&self.cc).chain(&self.bcc)
    }
}

/// Addresses: a text with one or more of them, or a list of texts.
fn addresses(with: &Value, name: &str) -> Result<Vec<Mailbox>, Failure> {
    let Some(given) = value(with, name) else { return Ok(Vec::new()) };
    let items = given.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(given));
    let mut found = Vec::with_capacity(items.len());
    for item in items.iter().filter(|item| !item.is_null()) {
        let text = scalar(item).ok_or_else(|| {
            problem(name, format_args!("must be an address or a list of them; it holds {}", kind(item)))
        })?;
        for part in split(&text) {
            found.push(address(name, part)?);
        }
    }
    Ok(found)
}

/// Parts between commas that are not inside quotes or angle brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut angled) = (false, false);
    text.split(move |c| {
        match c {
            '"' => quoted = !quoted,
            '<' if !quoted => angled = true,
            '>' if !quoted => angled = false,
            _ => {}
        }
        c == ',' && !quoted && !angled
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// One address. It is not quoted in the failure: it may be somebody's.
pub(crate) fn address(name: &str, text: &str) -> Result<Mailbox, Failure> {
    let mailbox: Mailbox = text
        .trim()
        .parse()
        .map_err(|_| problem(name, "holds something that is not an address such as ada@example.com"))?;
    let ascii = mailbox.email.to_string();
    // Servers without SMTPUTF8 would change or refuse it, each in its own way.
    if !ascii.is_ascii() || ascii.contains(|c: char| c.is_control() || c == ' ') {
        return Err(problem(name, "holds an address with characters outside of ASCII; write its domain in punycode"));
    }
    Ok(mailbox)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_come_alone_together_and_in_lists() {
        let read = |to: Value| -> Vec<String> {
            addresses(&json!({"to": to}), "to").unwrap().iter().map(|mailbox| mailbox.email.to_string()).collect()
        };
        assert_eq!(read(json!("a@b.example")), ["a@b.example"]);
        assert_eq!(read(json!("\"Love, Ada\" <a@b.example>, c@d.example,")), ["a@b.example", "c@d.example"]);
        assert_eq!(read(json!(["a@b.example", null, "Ada <c@d.example>"])), ["a@b.example", "c@d.example"]);
        assert!(read(json!(null)).is_empty());
    }

    #[test]
    fn every_problem_names_its_parameter_and_no_address() {
        let good = json!({"to": "a@b.example", "subject": "s", "text": "t"});
        let with = |name: &str, value: Value| {
            let mut with = good.clone();
            with[name] = value;
            with
        };
        for (with, expected) in [
            (with("to", json!("nobody")), "`with.to` holds something that is not an address"),
            (with("to", json!("a@b.example\r\nBcc: c@d.example")), "`with.to` holds"),
            (with("to", json!("ä@b.example")), "`with.to` holds"),
            (with("cc", json!([{}])), "`with.cc` must be an address"),
            (with("from", json!("me")), "`with.from` holds"),
            (with("subject", json!("")), "`with.subject` is empty"),
            (with("text", json!(null)), "`with.text` is missing, and so is"),
            (with("headers", json!("x")), "`with.headers` must be a map"),
            (with("bcc", json!(vec!["a@b.example"; 100])), "`with.to` and its companions"),
        ] {
            let failure = Settings::read(&with).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
        assert_eq!(Settings::read(&with("to", json!(""))).unwrap_err().class, FailureClass::Identity);
    }
}
