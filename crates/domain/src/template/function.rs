//! Built-in functions of expressions: normalization of emails and phone numbers, digests, times.

use minijinja::Environment;
use serde_json::Value;

use super::url::{UNRESERVED, UrlText, percent_encode};
use crate::event::{read_time, scalar};
use crate::normalize;
use crate::time::Time;

/// A function of one value, written `name(value)` or `value | name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Trims and lower-cases.
    NormalizeEmail,
    /// Pseudonym of an email address.
    EmailHash,
    /// A phone number as `+14155550123`; the argument is the country of numbers without a country code.
    E164,
    /// Pseudonym of a phone number, with the same argument.
    PhoneHash,
    /// SHA-256 in hexadecimal.
    Sha256,
    /// MD5 in hexadecimal, which some providers use as an id. Protects nothing.
    Md5,
    /// A time, truncated to whole seconds.
    Seconds,
    /// Percent-encoded text.
    Urlencode,
    /// Marks text that a URL takes as it is.
    RawUrl,
}

impl Function {
    pub const ALL: [Function; 9] = [
        Function::NormalizeEmail,
        Function::EmailHash,
        Function::E164,
        Function::PhoneHash,
        Function::Sha256,
        Function::Md5,
        Function::Seconds,
        Function::Urlencode,
        Function::RawUrl,
    ];

    /// As written in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Function::NormalizeEmail => "normalize_email",
            Function::EmailHash => "email_hash",
            Function::E164 => "e164",
            Function::PhoneHash => "phone_hash",
            Function::Sha256 => "sha256",
            Function::Md5 => "md5",
            Function::Seconds => "seconds",
            Function::Urlencode => "urlencode",
            Function::RawUrl => "raw_url",
        }
    }

    /// For the reference page.
    pub fn about(self) -> &'static str {
        match self {
            Function::NormalizeEmail => "An email address, trimmed and in lower case.",
            Function::EmailHash => {
                "The first half of the SHA-256 of the normalized email address. Everybody who guesses the address can compute it."
            }
            Function::E164 => {
                "A phone number as +14155550123; the argument is the country of numbers without a country code."
            }
            Function::PhoneHash => "The same for the normalized phone number, with the same argument.",
            Function::Sha256 => "SHA-256 in hexadecimal.",
            Function::Md5 => "MD5 in hexadecimal, for providers that use it as an id. It hides nothing.",
            Function::Seconds => "A time, truncated to whole seconds.",
            Function::Urlencode => {
                "Percent-encoded text, also `/`. Values in a `url` are encoded anyway, and not twice."
            }
            Function::RawUrl => "Marks a value that a `url` takes as it is, such as a whole URL.",
        }
    }

    /// Example over `body`, for the reference page.
    pub fn example(self) -> &'static str {
        match self {
            Function::NormalizeEmail => "normalize_email(body.email)",
            Function::EmailHash => "email_hash(body.email)",
            Function::E164 => "e164(body.phone, 'US')",
            Function::PhoneHash => "phone_hash(body.phone, 'US')",
            Function::Sha256 => "sha256(body.email)",
            Function::Md5 => "body.email | md5",
            Function::Seconds => "seconds(body.at)",
            Function::Urlencode => "urlencode(body.phone)",
            Function::RawUrl => "body.page | raw_url",
        }
    }

    /// True if the value does not reveal personal data.
    pub fn is_digest(self) -> bool {
        matches!(self, Function::EmailHash | Function::PhoneHash | Function::Sha256)
    }

    /// True if a URL takes the result as it is.
    pub(super) fn is_url_text(self) -> bool {
        matches!(self, Function::Urlencode | Function::RawUrl)
    }

    /// The result; `None` for null, lists and objects, and for text that is not a time where one is needed.
    pub fn apply(self, value: &Value, argument: Option<&str>) -> Option<Value> {
        if self == Function::Seconds {
            let seconds = Time(read_time(value)?.seconds() * 1000).to_string();
            return Some(Value::String(seconds.replace(".000Z", "Z")));
        }
        let text = scalar(value).filter(|text| self.is_url_text() || !text.trim().is_empty())?;
        Some(Value::String(match self {
            Function::NormalizeEmail => normalize::email(&text),
            Function::EmailHash => normalize::email_hash(&text),
            Function::E164 => normalize::e164(&text, argument),
            Function::PhoneHash => normalize::phone_hash(&text, argument),
            Function::Sha256 => normalize::sha256(&text),
            Function::Md5 => normalize::md5(&text),
            Function::Urlencode => {
                let mut encoded = String::with_capacity(text.len());
                percent_encode(&text, UNRESERVED, &mut encoded);
                encoded
            }
            Function::RawUrl => text,
            Function::Seconds => return None,
        }))
    }

    /// Registers all functions with the interpreter, for expressions that are more than one call.
    pub(super) fn register(environment: &mut Environment<'static>) {
        for function in Function::ALL {
            let call = move |value: minijinja::Value, argument: Option<String>| -> minijinja::Value {
                if value.is_undefined() || value.is_none() {
                    return minijinja::Value::UNDEFINED;
                }
                let plain = serde_json::to_value(&value).unwrap_or_default();
                match function.apply(&plain, argument.as_deref()) {
                    Some(Value::String(text)) if function.is_url_text() && !text.is_empty() => {
                        minijinja::Value::from_object(UrlText(text))
                    }
                    Some(Value::String(text)) => minijinja::Value::from(text),
                    _ => minijinja::Value::UNDEFINED,
                }
            };
            environment.add_filter(function.name(), call);
            environment.add_function(function.name(), call);
        }
    }
}

/// A function with its argument.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) function: Function,
    argument: Option<String>,
}

impl Call {
    /// Parses `name(inside)`, `name(inside, 'argument')`, `inside | name` and `inside | name('argument')`.
    pub(super) fn parse(source: &str) -> Option<(Call, &str)> {
        let (name, inside, argument) = match source.split_once('|') {
            Some((inside, call)) => match call.trim().split_once('(') {
                None => (call.trim(), inside, None),
                Some((name, rest)) => (name.trim(), inside, Some(rest.trim().strip_suffix(')')?)),
            },
            None => {
                let (name, rest) = source.split_once('(')?;
                let rest = rest.trim().strip_suffix(')')?;
                match rest.split_once(',') {
                    Some((inside, argument)) => (name.trim(), inside, Some(argument)),
                    None => (name.trim(), rest, None),
                }
            }
        };
        let function = Function::ALL.into_iter().find(|function| function.name() == name)?;
        let argument = match argument.map(str::trim) {
            None => None,
            Some(text) => {
                let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
                let text = text.strip_prefix(quote)?.strip_suffix(quote)?;
                Some(text.to_owned()).filter(|text| !text.contains(quote))
            }
        };
        Some((Call { function, argument }, inside.trim()))
    }

    pub(super) fn apply(&self, value: &Value) -> Option<Value> {
        self.function.apply(value, self.argument.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expression, Scope};
    use serde_json::json;

    #[test]
    fn all_call_syntaxes_give_the_same_result() {
        let mut scope = Scope::new();
        scope.set("body", json!({"email": " Ada@X.org", "phone": "(415) 555-0123", "at": 1742646896.7, "n": 7}));
        let value = |source: &str| Expression::parse(source).unwrap().evaluate(&scope).unwrap();
        for (sources, expected) in [
            (
                vec![
                    "normalize_email(body.email)",
                    "body.email | normalize_email",
                    "normalize_email(body.email | trim)",
                ],
                json!("ada@x.org"),
            ),
            (
                vec!["e164(body.phone, 'US')", "body.phone|e164('US')", "(body.phone ~ '') | e164('US')"],
                json!("+14155550123"),
            ),
            (vec!["seconds(body.at)", "body.at | seconds"], json!("2025-03-22T12:34:56Z")),
        ] {
            for source in sources {
                assert_eq!(value(source), Some(expected.clone()), "{source}");
            }
        }
        let hash = value("email_hash(body.email)");
        assert_eq!(hash, value("'ada@x.org' | email_hash"));
        assert_eq!(value("sha256(body.n)").unwrap().as_str().unwrap().len(), 64);
        assert_eq!(value("email_hash(body.none)"), None);
        assert_eq!(value("(body.none ~ '') | email_hash"), None);
        assert!(Expression::parse("email_hash(body.email)").unwrap().is_digest());
        assert!(!Expression::parse("body.email | normalize_email").unwrap().is_digest());
        assert_eq!(Expression::parse("email_hash(body.email)").unwrap().as_path().unwrap().0, "body");
    }
}
