//! The variable `mail` of actions that send a mail: addresses as email and name, each of them checked. An event cannot add
//! recipients, since every text is one address.

use lettre::message::Mailbox;
use serde_json::{Map, Value, json};
use sluice_domain::outcome::Failure;

use crate::email::settings::{Settings, address};

/// `to`, `cc`, `bcc` and `reply_to` are lists of `{email, name}`, `from` is one of these; `NAME_text` is the same as a mail
/// header has it, and `header_list` has the headers as a list of `{Name, Value}`. What is absent is undefined.
pub(super) fn scope(with: &Value, default_from: Option<&str>) -> Result<Value, Failure> {
    let settings = Settings::read(with)?;
    let from = match (settings.from, default_from) {
        (Some(from), _) => Some(from),
        (None, Some(text)) => Some(address("from", text)?),
        (None, None) => None,
    };
    let mut mail = Map::new();
    for (name, mailboxes) in
        [("to", settings.to), ("cc", settings.cc), ("bcc", settings.bcc), ("reply_to", settings.reply_to)]
    {
        if !mailboxes.is_empty() {
            let text = mailboxes.iter().map(Mailbox::to_string).collect::<Vec<_>>().join(", ");
            mail.insert(name.to_owned(), mailboxes.iter().map(plain).collect());
            mail.insert(format!("{name}_text"), text.into());
        }
    }
    if let Some(from) = from {
        mail.insert("from".to_owned(), plain(&from));
        mail.insert("from_text".to_owned(), from.to_string().into());
    }
    mail.insert("subject".to_owned(), settings.subject.into());
    mail.extend(settings.text.map(|text| ("text".to_owned(), text.into())));
    mail.extend(settings.html.map(|html| ("html".to_owned(), html.into())));
    if let Some(headers) = settings.headers {
        let list = headers.iter().map(|(name, value)| json!({ "Name": name, "Value": value })).collect();
        mail.insert("headers".to_owned(), Value::Object(headers.clone()));
        mail.insert("header_list".to_owned(), list);
    }
    Ok(Value::Object(mail))
}

fn plain(mailbox: &Mailbox) -> Value {
    match &mailbox.name {
        Some(name) => json!({ "email": mailbox.email.to_string(), "name": name }),
        None => json!({ "email": mailbox.email.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_and_one_text_is_one_address() {
        let with = json!({"to": ["Ada L. <ada@x.org>", "bob@x.org"], "subject": "Hi", "text": "x"});
        let mail = scope(&with, Some("Shop <shop@x.org>")).unwrap();
        assert_eq!(mail["to"], json!([{"email": "ada@x.org", "name": "Ada L."}, {"email": "bob@x.org"}]));
        assert_eq!(mail["to_text"], "\"Ada L.\" <ada@x.org>, bob@x.org");
        assert_eq!((&mail["from"]["email"], &mail["cc"]), (&json!("shop@x.org"), &Value::Null));
        let two = json!({"to": ["a@x.org, b@x.org"], "subject": "Hi", "text": "x"});
        assert_eq!(scope(&two, None).unwrap_err().code, "invalid-parameter");
        let nobody = json!({"to": [], "subject": "Hi", "text": "x"});
        assert_eq!(scope(&nobody, None).unwrap_err().code, "no-identity");
    }
}
